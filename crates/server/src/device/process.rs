//! Prepares a process to serve a block device of its own machine.

use rustix::mm::MlockAllFlags;
use rustix::process::Pid;
use rustix::thread::UnshareFlags;

/// The kernel's `PR_SET_IO_FLUSHER` (Linux 5.6).
const SET_IO_FLUSHER: i32 = 57;

/// Prepares the process before it starts threads, which inherit these settings.
///
/// - Its memory is locked. To make room for one of its pages the kernel might write to the very
///   device that it serves, and wait forever. For the same reason its allocations start no
///   writes.
/// - It gets its own mount namespace, which still receives changes from outside. Otherwise, if
///   it were the last process to leave a container, its end would unmount the file systems on
///   its device, which it no longer serves. This is left out if the device already exists
///   (`was_device`): a file system mounted on it would be mounted here too, and stay so where
///   an unmount elsewhere does not propagate.
///
/// A step that is not allowed is skipped and logged.
pub fn prepare(was_device: bool) {
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    if let Err(error) = rustix::mm::mlockall(flags) {
        tracing::warn!(%error, "memory is not locked (RLIMIT_MEMLOCK): under pressure the block device may hang");
    }
    // SAFETY: the call takes and changes plain flags of the calling thread.
    let flusher = unsafe { libc::prctl(SET_IO_FLUSHER, 1, 0, 0, 0) };
    if flusher != 0 {
        let error = std::io::Error::last_os_error();
        tracing::warn!(%error, "this process is not an I/O flusher to the kernel (CAP_SYS_RESOURCE)");
    }
    if !was_device && let Err(error) = own_mounts() {
        tracing::warn!(%error, "mounts are shared: in a container, mount the block device outside of it");
    }
}

fn own_mounts() -> rustix::io::Result<()> {
    // SAFETY: the unsafe variants of this call share descriptors between threads. Mounts do
    // not.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS)? };
    let slave = rustix::mount::MountPropagationFlags::DOWNSTREAM
        | rustix::mount::MountPropagationFlags::REC;
    rustix::mount::mount_change("/", slave)
}

/// Returns true if `process` is this process.
pub(super) fn is_this(process: i32) -> bool {
    process as u32 == std::process::id()
}

/// Returns true if another process is running and is not about to end.
pub(super) fn is_running(process: i32) -> bool {
    if Pid::from_raw(process).is_none() || is_this(process) {
        return false;
    }
    let stat = hemi_text::read_lossy(format!("/proc/{process}/stat")).unwrap_or_default();
    // The state follows the name in parentheses, which may contain anything.
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
    if !matches!(state, Some('R' | 'S' | 'D' | 'T' | 't')) {
        return false;
    }
    // A process killed while it waits for a drive is in state D, but no longer serves.
    !is_killed(process)
}

/// Returns true if a process has a pending SIGKILL.
fn is_killed(process: i32) -> bool {
    let status = hemi_text::read_lossy(format!("/proc/{process}/status")).unwrap_or_default();
    let pending = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key)?.trim().split(' ').next());
        line.and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0)
    };
    (pending("SigPnd:") | pending("ShdPnd:")) >> (libc::SIGKILL - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_with_any_name_is_running() {
        let folder = tempfile::tempdir().expect("a directory");
        let program = folder.path().join(OsStr::from_bytes(b"c\xe9t"));
        std::os::unix::fs::symlink("/bin/cat", &program).expect("a link");
        let mut child = Command::new(&program).stdin(Stdio::piped()).spawn().expect("a process");
        // The kernel sets the name a little after the spawn has returned.
        let comm = format!("/proc/{}/comm", child.id());
        while std::fs::read_to_string(&comm).is_ok() {
            std::thread::yield_now();
        }
        let running = is_running(child.id() as i32);
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        assert!(running);
        assert!(!is_running(child.id() as i32));
    }
}
