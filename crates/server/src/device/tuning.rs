//! Settings of a started device in sysfs.

use std::path::PathBuf;

use super::DEPTH;

/// Sets the scheduler and the number of requests.
///
/// - No scheduler: the engine has its own, which knows the drives.
/// - One request fewer than there are tags, so that one command is always in the ring: the driver notices
///   that its server is gone when the kernel takes back a command of it. With none there it would wait for
///   a request to time out, 30 s.
pub(super) fn tune(number: u32) {
    set(number, "scheduler", "none");
    set(number, "nr_requests", &(DEPTH - 1).to_string());
}

fn set(number: u32, key: &str, value: &str) {
    let path = PathBuf::from(format!("/sys/block/ublkb{number}/queue/{key}"));
    if let Err(error) = std::fs::write(&path, value) {
        tracing::warn!(path = %path.display(), value, %error, "the block device is not tuned");
    }
}
