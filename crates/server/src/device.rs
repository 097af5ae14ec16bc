//! The volume as a block device of this machine, through a driver of the kernel: ublk, or its
//! NBD client if there is no ublk.
//!
//! `/dev/hemi/NAME` points at the device, whatever its number. The device outlives its server.
//! While there is no server, requests wait, and the next server gets those that the last one
//! left unanswered. That is safe, because every write of a volume may be done twice, and the
//! legs' locks ensure that no I/O of the previous server is left in flight. The kernel keeps
//! the volume's id with the device, which identifies it. A thread that may block creates a
//! device or takes one over. The reactor serves the requests (`export/`).

pub mod apart;
mod error;
mod link;
mod nbd;
mod process;
mod ublk;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::config::device::DeviceKind;
use crate::control::volume::{Identity, Phase};
use crate::messages::ReactorHandle;
pub use error::DeviceError;
use error::{failed, is_refusal};
pub use nbd::KernelSocket;
pub use process::prepare;
pub use ublk::OpenDevice;
pub(crate) use ublk::{COMMIT_AND_FETCH, FETCH, io_command};

/// Time for the previous server to end completely. It may have to wait for a drive that hangs.
const PREDECESSOR_PATIENCE: Duration = Duration::from_secs(60);

/// Time that requests in flight get to end, before a device counts as in use.
const IN_FLIGHT_PATIENCE: Duration = Duration::from_secs(2);
const RETRY_AFTER: Duration = Duration::from_millis(5);

/// Held while the device is created, taken over or removed. Two threads at once would create
/// two devices, or take the device over from each other.
static CHANGING: Mutex<()> = Mutex::new(());

fn change() -> MutexGuard<'static, ()> {
    // A panic cannot leave anything half changed.
    CHANGING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A kernel driver that creates block devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Driver {
    Ublk,
    Nbd,
}

impl Driver {
    /// Returns the requested driver, or the best available one if none is requested.
    fn choose(kind: DeviceKind) -> Result<Driver, DeviceError> {
        match kind {
            DeviceKind::Ublk => ublk::check().map(|()| Driver::Ublk),
            DeviceKind::Nbd => nbd::check().map(|()| Driver::Nbd),
            DeviceKind::None | DeviceKind::Auto => match ublk::check() {
                Ok(()) => Ok(Driver::Ublk),
                Err(error @ DeviceError::NotAllowed { .. }) => Err(error),
                Err(error) => nbd::check().map(|()| Driver::Nbd).map_err(|nbd| {
                    DeviceError::NoDriver { ublk: Box::new(error), nbd: Box::new(nbd) }
                }),
            },
        }
    }

    /// Returns the driver of the volume's existing device, if there is one.
    fn of(id: [u8; 16]) -> Option<Driver> {
        match (ublk::exists(id), nbd::exists(id)) {
            (true, _) => Some(Driver::Ublk),
            (false, true) => Some(Driver::Nbd),
            (false, false) => None,
        }
    }
}

/// Checks that this machine can use block devices of this kind.
///
/// # Errors
/// Returns a [`DeviceError`] if there is no driver, an old one, or no permission to use it.
pub fn check(kind: DeviceKind) -> Result<(), DeviceError> {
    Driver::choose(kind).map(drop)
}

/// Returns true if the volume with this id is a block device.
pub fn exists(id: [u8; 16]) -> bool {
    Driver::of(id).is_some()
}

/// Creates a block device for the volume that this reactor serves, or takes over its existing
/// device, of whatever kind. Returns the device's path, at once if this process already serves
/// it. Waits for the previous server to end, for the first requests, and for any other change
/// of the device.
/// # Errors
/// Returns a [`DeviceError`]. Everything that had been created is removed again.
pub fn attach(reactor: &ReactorHandle, kind: DeviceKind) -> Result<String, DeviceError> {
    let _alone = change();
    let snapshot = reactor.snapshot();
    let identity = &*snapshot.identity;
    let driver = match Driver::of(identity.id) {
        Some(driver) => driver,
        None => Driver::choose(kind)?,
    };
    let path = match driver {
        Driver::Ublk => ublk::attach(reactor, identity)?,
        Driver::Nbd => nbd::attach(reactor, identity)?,
    };
    match link::put(&identity.name, Path::new(&path)) {
        Ok(link) => {
            announce(&path);
            tracing::info!(path, link = %link.display(), "block device");
        }
        Err(error) => {
            tracing::warn!(path, %error, "block device, without a name of its own in /dev/hemi");
        }
    }
    Ok(path)
}

/// Removes the volume's block device.
///
/// # Errors
/// Returns [`DeviceError::InUse`] while it is mounted, [`DeviceError::None`] if there is none,
/// or the error of the step that failed.
pub fn detach(reactor: &ReactorHandle) -> Result<(), DeviceError> {
    let _alone = change();
    let snapshot = reactor.snapshot();
    debug_assert!(snapshot.phase != Phase::Closed);
    let identity: &Identity = &snapshot.identity;
    match Driver::of(identity.id) {
        Some(Driver::Ublk) => ublk::detach(reactor, identity)?,
        Some(Driver::Nbd) => nbd::detach(reactor, identity)?,
        None => return Err(DeviceError::None { name: identity.name.clone() }),
    }
    link::remove(&identity.name);
    Ok(())
}

/// Removes the block device of a volume that nobody serves. Writes that still wait are lost.
/// With `force`, a mount or program that still has it open gets errors from then on.
///
/// # Errors
/// Returns those of [`detach`], except [`DeviceError::InUse`] if `force` is set, and
/// [`DeviceError::Served`] if somebody serves it.
pub fn remove(name: &str, force: bool) -> Result<(), DeviceError> {
    let none = || DeviceError::None { name: name.to_owned() };
    let device = link::target(name).ok_or_else(none)?;
    let removed = ublk::remove(&device, force).or_else(|| nbd::remove(&device, force));
    removed.ok_or_else(none)??;
    link::remove(name);
    Ok(())
}

/// Returns the path of the link that always points at a volume's block device, unless the volume's name
/// cannot be that of a file.
pub fn link_of(name: &str) -> Option<PathBuf> {
    link::path(name)
}

/// Opens the block device exclusively, so that nobody else can mount it. Returns `None` if it
/// no longer exists.
fn hold(path: &str) -> Result<Option<File>, DeviceError> {
    let opened =
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_EXCL).open(Path::new(path));
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            Err(DeviceError::InUse { path: path.to_owned() })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("cannot open", path)(error)),
    }
}

/// Returns the kernel's names of hemi's block devices, such as `ublkb0`.
pub(crate) fn linked() -> Vec<String> {
    link::all().into_iter().map(|(_, device)| device).collect()
}

/// Returns the name of the volume whose block device is at `path`, if there is one.
pub fn volume_at(path: &Path) -> Option<String> {
    let device = path.canonicalize().ok()?;
    let device = device.file_name()?.to_str()?;
    link::all().into_iter().find(|(_, known)| known == device).map(|(name, _)| name)
}

/// Waits for the requests that the kernel has in flight on a block device.
///
/// A driver that is told to stop a device waits for them, and no signal interrupts that. They come
/// from a program that has the device open without having it for itself.
///
/// # Errors
/// [`DeviceError::InUse`] if they do not end within [`IN_FLIGHT_PATIENCE`].
fn await_requests(path: &str) -> Result<(), DeviceError> {
    let name = Path::new(path).file_name().unwrap_or_default();
    let counts = Path::new("/sys/block").join(name).join("inflight");
    let until = Instant::now() + IN_FLIGHT_PATIENCE;
    // Reads and writes in flight. A device that does not exist has none.
    while std::fs::read_to_string(&counts)
        .is_ok_and(|text| text.split_whitespace().any(|count| count != "0"))
    {
        if Instant::now() >= until {
            return Err(DeviceError::InUse { path: path.to_owned() });
        }
        std::thread::sleep(RETRY_AFTER);
    }
    Ok(())
}

/// Has udev process a device again, now that its name in /dev/hemi exists.
fn announce(device: &str) {
    let name = Path::new(device).file_name().unwrap_or_default();
    let path = Path::new("/sys/block").join(name).join("uevent");
    if let Err(error) = std::fs::write(&path, "change") {
        tracing::debug!(path = %path.display(), %error, "udev was not notified of the block device");
    }
}
