//! Event counters that a front end hands over, for kicks from the guest and calls to it.

use std::fs::File;
use std::os::fd::{AsRawFd as _, OwnedFd};

/// Checks that a file is an event counter. A read or write of any other file might never end
/// and keep this process from ending.
///
/// # Errors
/// Returns a message if the file is not an event counter.
pub(super) fn check(file: File) -> Result<OwnedFd, String> {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let target = std::fs::read_link(&link).map_err(|error| format!("{link}: {error}"))?;
    if target.as_os_str() != "anon_inode:[eventfd]" {
        return Err(format!("{} is no event counter (eventfd)", target.display()));
    }
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_event_counters_pass() {
        let counter = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        check(counter.into()).unwrap();
        let error = check(File::open("/dev/zero").unwrap()).expect_err("it is a device");
        assert!(error.contains("/dev/zero is no event counter"), "{error}");
    }
}
