//! The replacement of this program by its successor.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::MemfdFlags;
use rustix::io::FdFlags;
use sd_notify::NotifyState;

use super::{DESCRIPTOR, FALLBACK, FILE_NAME, HandedOver};
use crate::this_program;

/// A closed volume and its clients, ready for the next program.
#[derive(Debug)]
pub struct Successor {
    handed: HandedOver,
    binary: PathBuf,
    control: OwnedFd,
    http: Option<OwnedFd>,
}

impl Successor {
    /// Joins the handover of a reactor and the sockets of control.
    pub(crate) fn new(
        handed: HandedOver,
        binary: PathBuf,
        control: OwnedFd,
        http: Option<OwnedFd>,
    ) -> Successor {
        Successor { handed, binary, control, http }
    }

    /// Becomes the next program, with the arguments of this one. If that cannot be run, this
    /// program is started anew and continues. Returns only if that fails too, and the clients
    /// are then cut off.
    pub fn exec(self) -> io::Error {
        let Successor { handed, binary, control, http } = self;
        let HandedOver { mut state, descriptors, .. } = handed;
        state.process = std::process::id();
        state.version = env!("CARGO_PKG_VERSION").to_owned();
        state.control = Some(control.as_raw_fd());
        state.http = http.as_ref().map(|http| http.as_raw_fd());
        let file = match memory_file(&state.encode()) {
            Ok(file) => file,
            Err(error) => return error,
        };
        for descriptor in descriptors.iter().chain([&control, &file]).chain(&http) {
            if let Err(errno) = rustix::io::fcntl_setfd(descriptor, FdFlags::empty()) {
                return errno.into();
            }
        }
        // systemd waits for READY=1 again, which the successor sends. A failure here is
        // harmless.
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            let _ = sd_notify::notify(&[NotifyState::Reloading, now]);
        }
        block_signals();
        let error = replace(&binary, &file, None);
        let reason = format!("{} could not be run: {error}", binary.display());
        replace(Path::new(this_program::PATH), &file, Some(&reason))
    }

    /// Returns the next program.
    pub fn binary(&self) -> &PathBuf {
        &self.binary
    }
}

/// Runs `binary` in place of this program. Returns only if that fails.
fn replace(binary: &Path, file: &OwnedFd, fallback: Option<&str>) -> io::Error {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| OsString::from("hemi"));
    let mut command = Command::new(binary);
    command.arg0(name).args(arguments).env(DESCRIPTOR, file.as_raw_fd().to_string());
    // This process has taken the descriptors that systemd passed to it.
    for name in ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"] {
        command.env_remove(name);
    }
    match fallback {
        Some(reason) => command.env(FALLBACK, reason),
        None => command.env_remove(FALLBACK),
    };
    command.exec()
}

/// Creates a file in memory with these bytes.
pub(super) fn memory_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    let descriptor = rustix::fs::memfd_create(FILE_NAME, MemfdFlags::CLOEXEC)?;
    let mut file = std::fs::File::from(descriptor);
    file.write_all(bytes)?;
    Ok(file.into())
}

/// Restores the default action of TERM and INT, since the volume is closed and nobody would
/// handle them. HUP is ignored until the successor runs.
pub(crate) fn reset_signals() {
    for (signal, handler) in [
        (libc::SIGTERM, libc::SIG_DFL),
        (libc::SIGINT, libc::SIG_DFL),
        (libc::SIGHUP, libc::SIG_IGN),
    ] {
        // SAFETY: neither action runs any code of ours.
        unsafe { libc::signal(signal, handler) };
    }
}

/// Blocks signals until the successor runs. Otherwise a signal in between would be lost.
fn block_signals() {
    mask(libc::SIG_BLOCK);
}

/// Unblocks the signals that the previous program blocked.
pub(super) fn let_signals_in() {
    mask(libc::SIG_UNBLOCK);
}

/// Changes the calling thread's mask for the signals that stop or reload a volume.
fn mask(how: i32) {
    // SAFETY: the set is initialised by `sigemptyset`, and the calls change only this thread's
    // mask.
    unsafe {
        let mut signals = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(signals.as_mut_ptr());
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::sigaddset(signals.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(how, signals.as_ptr(), std::ptr::null_mut());
    }
}
