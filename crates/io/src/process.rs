//! Facts about other processes: whether they are alive, and who owns them. The kernel keeps the files of a
//! killed hemi open until its last I/O has ended, usually for some milliseconds.

use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;

/// Returns true if a process has ended or is about to: gone, not yet waited for, or without memory.
pub fn is_dead(process: u32) -> bool {
    let read = |name: &str| hemi_text::read_lossy(format!("/proc/{process}/{name}"));
    let Ok(stat) = read("stat") else { return true };
    // The state follows the command's name, which is in parentheses and may itself contain parentheses.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, None | Some('Z' | 'X')) || read("cmdline").is_ok_and(|text| text.is_empty())
}

/// Returns true if a process belongs to udev. udev locks a device while it probes it: when the device
/// appears, and when a program that has written to it closes it.
pub(crate) fn is_udev(process: u32) -> bool {
    const NAMES: [&str; 3] = ["systemd-udevd", "(udev-worker)", "udevd"];
    hemi_text::read_lossy(format!("/proc/{process}/comm"))
        .is_ok_and(|name| NAMES.contains(&name.trim_end()))
}

/// Returns the process that listens, or connected, at the other end of a unix socket; `None` if it cannot
/// be seen from here.
pub fn peer(connection: &UnixStream) -> Option<u32> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both pointers are to this function's own variables, and `length` is the size of the first.
    // (rustix returns a `Pid`, which is never zero, but a process in another namespace shows as zero.)
    let result = unsafe {
        libc::getsockopt(
            connection.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    (result == 0 && credentials.pid > 0).then(|| credentials.pid.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_whose_name_is_cut_within_a_character_is_alive() {
        let folder = tempfile::tempdir().unwrap();
        // The kernel keeps 15 bytes of the name.
        let program = folder.path().join(OsStr::from_bytes("vierzehn-zeiché".as_bytes()));
        std::os::unix::fs::symlink("/bin/cat", &program).unwrap();
        let mut child = Command::new(&program).stdin(Stdio::piped()).spawn().unwrap();
        // The kernel sets the name a little after the spawn has returned, and the command line after that.
        let process = std::path::PathBuf::from(format!("/proc/{}", child.id()));
        let has_name = || std::fs::read_to_string(process.join("comm")).is_err();
        let has_line = || std::fs::read(process.join("cmdline")).is_ok_and(|line| !line.is_empty());
        while !(has_name() && has_line()) {
            std::thread::yield_now();
        }
        let alive = !is_dead(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(alive);
        assert!(is_dead(child.id()));
    }
}
