//! Readies a process to serve a block device of its own machine.

use rustix::mm::MlockAllFlags;
use rustix::process::Pid;
use rustix::thread::UnshareFlags;

/// `PR_SET_IO_FLUSHER` of the kernel's interface (Linux 5.6).
const SET_IO_FLUSHER: i32 = 57;

/// Readies the process before it starts threads, which have the same from it.
///
/// - Its memory stays: making room for a page of its own, the kernel might write to the very device that
///   it serves, and wait for it for ever. For the same reason its allocations start no writes.
/// - Its mounts are its own (changes elsewhere still come in): if it were the last to leave a
///   container, its end would unmount what is on its device, which it serves no longer. Not so where the
///   device is there already, as `was_device` says: what is mounted on it would be mounted here too, and
///   be left to this process where unmounting it elsewhere does not reach.
///
/// A step that is not allowed is left out, and logged.
pub fn prepare(was_device: bool) {
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    if let Err(error) = rustix::mm::mlockall(flags) {
        tracing::warn!(%error, "memory is not locked (RLIMIT_MEMLOCK): under pressure the block device may hang");
    }
    // SAFETY: the call takes and changes plain flags of the calling thread.
    let flusher = unsafe { libc::prctl(SET_IO_FLUSHER, 1, 0, 0, 0) };
    if flusher != 0 {
        let error = std::io::Error::last_os_error();
        tracing::warn!(%error, "not known to the kernel as one that writes back memory (CAP_SYS_RESOURCE)");
    }
    if !was_device && let Err(error) = own_mounts() {
        tracing::warn!(%error, "mounts are shared: in a container, mount the block device outside of it");
    }
}

fn own_mounts() -> rustix::io::Result<()> {
    // SAFETY: the calls that this makes unsafe share descriptors between threads; mounts do not.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS)? };
    let slave = rustix::mount::MountPropagationFlags::DOWNSTREAM
        | rustix::mount::MountPropagationFlags::REC;
    rustix::mount::mount_change("/", slave)
}

/// Returns true if it is this process.
pub(super) fn is_this(process: i32) -> bool {
    process as u32 == std::process::id()
}

/// Returns true if another process runs that is not about to end.
pub(super) fn is_running(process: i32) -> bool {
    if Pid::from_raw(process).is_none() || is_this(process) {
        return false;
    }
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // Behind the name in parentheses, which may hold anything.
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
    if !matches!(state, Some('R' | 'S' | 'D' | 'T' | 't')) {
        return false;
    }
    // One that was killed while it waits for a drive is in D, and is not served by any more.
    !is_killed(process)
}

/// Returns true if SIGKILL is on its way to a process.
fn is_killed(process: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let pending = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key)?.trim().split(' ').next());
        line.and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0)
    };
    (pending("SigPnd:") | pending("ShdPnd:")) >> (libc::SIGKILL - 1) & 1 == 1
}
