//! The volume as a block device of this machine, through a driver of the kernel: ublk, or its NBD client
//! where ublk is missing.
//!
//! `/dev/hemi/NAME` leads to the device, whatever its number. The device outlives its server. While there
//! is no server, requests wait, and the next server gets those that the last one left unanswered. That is
//! safe: every write of a volume may be done twice, and the legs' locks make sure that no I/O of the
//! previous server is left in flight. The kernel keeps the volume's id with the device, which identifies
//! it. A thread that may wait makes a device and takes one over. The reactor serves the requests
//! (`export/`).

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
use std::time::Duration;

use crate::config::device::DeviceKind;
use crate::control::volume::{Identity, Phase};
use crate::messages::ReactorHandle;
pub use error::DeviceError;
use error::{failed, is_refusal};
pub use nbd::KernelSocket;
pub use process::prepare;
pub use ublk::OpenDevice;
pub(crate) use ublk::{COMMIT_AND_FETCH, FETCH, io_command};

/// Time for the server before this one to be gone altogether. It may have to wait for a drive that hangs.
const PREDECESSOR_PATIENCE: Duration = Duration::from_secs(60);

/// Held while the device is made, taken over or removed. Two who make it at once would make two devices, or
/// take it over from each other.
static CHANGING: Mutex<()> = Mutex::new(());

fn change() -> MutexGuard<'static, ()> {
    // There is nothing that a panic could leave half changed.
    CHANGING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A kernel driver that makes block devices.
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

    /// Returns the driver whose device the volume with this id is already.
    fn of(id: [u8; 16]) -> Option<Driver> {
        match (ublk::exists(id), nbd::exists(id)) {
            (true, _) => Some(Driver::Ublk),
            (false, true) => Some(Driver::Nbd),
            (false, false) => None,
        }
    }
}

/// Checks that volumes can be block devices of this kind here.
///
/// # Errors
/// [`DeviceError`]: no driver, an old one, or no right to it.
pub fn check(kind: DeviceKind) -> Result<(), DeviceError> {
    Driver::choose(kind).map(drop)
}

/// Returns true if the volume with this id has been made a block device, and is one still.
pub fn exists(id: [u8; 16]) -> bool {
    Driver::of(id).is_some()
}

/// Makes the volume that this reactor serves a block device, or takes over its existing device, of
/// whatever kind. Returns the device's path, at once if it is one already. Waits for the previous server
/// to be gone, for the first requests, and for whoever changes the device at that moment.
///
/// # Errors
/// [`DeviceError`]; what had been made is gone again.
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

/// Makes the volume no block device any more.
///
/// # Errors
/// [`DeviceError::InUse`] while it is mounted, [`DeviceError::None`] if it is none, or what failed.
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

/// Removes the block device of a volume that nobody serves. Writes that still wait are lost. With `force`,
/// a mount or program that still has it open sees errors from then on.
///
/// # Errors
/// Those of [`detach`], without [`DeviceError::InUse`] if `force` is set, and [`DeviceError::Served`] if
/// somebody serves it.
pub fn remove(name: &str, force: bool) -> Result<(), DeviceError> {
    let none = || DeviceError::None { name: name.to_owned() };
    let device = link::target(name).ok_or_else(none)?;
    let removed = ublk::remove(&device, force).or_else(|| nbd::remove(&device, force));
    removed.ok_or_else(none)??;
    link::remove(name);
    Ok(())
}

/// Returns the path of the link that always leads to a volume's block device.
pub fn link_of(name: &str) -> PathBuf {
    link::path(name)
}

/// Opens the block device for nobody else to mount it. `None` if there is none any more.
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

/// Holds the block device as [`hold`] does, after flushing everything written to it to the legs.
fn hold_flushed(path: &str) -> Result<Option<File>, DeviceError> {
    let held = hold(path)?;
    if let Some(file) = &held {
        file.sync_all().map_err(failed("cannot flush", path))?;
    }
    Ok(held)
}

/// Has udev look at a device again, now that its name in /dev/hemi is there.
fn announce(device: &str) {
    let name = Path::new(device).file_name().unwrap_or_default();
    let path = Path::new("/sys/block").join(name).join("uevent");
    if let Err(error) = std::fs::write(&path, "change") {
        tracing::debug!(path = %path.display(), %error, "udev was not told of the block device");
    }
}

/// Sets a key of a block device's queue in sysfs. A failure costs speed only, and is logged.
fn tune(device: &str, key: &str, value: &str) {
    let path = PathBuf::from(format!("/sys/block/{device}/queue/{key}"));
    if let Err(error) = std::fs::write(&path, value) {
        tracing::warn!(path = %path.display(), value, %error, "the block device is not tuned");
    }
}
