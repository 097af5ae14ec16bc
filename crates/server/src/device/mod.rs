//! The volume as a block device of this machine, through the kernel's ublk driver.
//!
//! `/dev/ublkbN` and `/dev/hemi/NAME` are the device, and `/dev/ublkcN` is where its requests come from.
//! The device outlives its server: while none is there, requests wait, and what a server left unanswered
//! goes to the next (`UBLK_F_USER_RECOVERY_REISSUE`). Every write of a volume may be done twice, so that is
//! safe; and that no I/O of the server before is left in flight is what the legs' locks are for. A
//! device is known for the volume's by the volume's id, which the kernel keeps for us. Making one and
//! taking it over are done on a thread that may wait; requests are the reactor's (`export/device.rs`).

mod abi;
mod control;
mod descriptors;
mod link;
mod payload;
mod process;
mod tuning;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::control::volume::{Identity, Phase};
use crate::messages::{ReactorError, ReactorHandle, ReactorMessage};
pub(crate) use abi::{COMMIT_AND_FETCH, Descriptor, FETCH, io_command};
use abi::{DeviceInfo, Parameters};
use control::{CONTROL_PATH, Control};
pub use payload::OpenDevice;
pub use process::prepare;

/// Requests of a device in flight at most.
pub const DEPTH: u16 = 128;
/// Bytes of one request's payload at most: a part of a request as the export has them.
pub const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Bytes of one discard or zeroing at most.
const RANGE_BYTES_MAX: u32 = 1 << 30;
/// Features that the driver must have: payload by copy (Linux 6.5), and devices that outlive their server.
const NEEDED: u64 = abi::USER_COPY | abi::USER_RECOVERY | abi::REISSUE | abi::IOCTL_ENCODE;
/// Time for the server before this one to be gone altogether. It may have to wait for a drive that hangs.
const PREDECESSOR_PATIENCE: Duration = Duration::from_secs(60);
/// Time for the device's node to appear.
const NODE_PATIENCE: Duration = Duration::from_secs(5);
const RETRY_AFTER: Duration = Duration::from_millis(5);

/// A reason why a volume is not, or cannot cease to be, a block device.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The kernel has no ublk driver, or it is not loaded.
    #[error("this kernel offers no ublk ({CONTROL_PATH}: {0})")]
    NoDriver(io::Error),
    /// Its features do not suffice.
    #[error(
        "this kernel's ublk lacks what a device that outlives its server needs (features {found:#x}, \
         needed {NEEDED:#x})"
    )]
    Features {
        /// Its features.
        found: u64,
    },
    /// No right to make devices.
    #[error("not allowed to make block devices ({CONTROL_PATH}: {0})")]
    NotAllowed(io::Error),
    /// The volume is a block device of another process's.
    #[error("{path} is this volume already, served by process {server}")]
    Served {
        /// The device.
        path: String,
        /// Its server.
        server: i32,
    },
    /// The device has another size than the volume.
    #[error("{path} has {device} bytes, the volume {volume}")]
    Size {
        /// The device.
        path: String,
        /// Its bytes.
        device: u64,
        /// The volume's.
        volume: u64,
    },
    /// Somebody uses the device.
    #[error("{path} is in use: it is mounted, or held by another program")]
    InUse {
        /// The device.
        path: String,
    },
    /// There is no device.
    #[error("volume {name:?} is no block device of this machine")]
    None {
        /// The volume.
        name: String,
    },
    /// A step failed.
    #[error("{doing} {path}: {source}")]
    Failed {
        /// The step.
        doing: &'static str,
        /// The device, or its node.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The event loop would not serve it.
    #[error("the block device is not served: {0}")]
    Reactor(#[from] ReactorError),
}

impl DeviceError {
    /// Returns what to do about it.
    pub fn way_out(&self) -> &'static str {
        match self {
            DeviceError::NoDriver(_) => {
                "Load it with `modprobe ublk_drv`: it needs Linux 6.5 or later, built with \
                 CONFIG_BLK_DEV_UBLK. docs/mounting.md has other ways to a device."
            }
            DeviceError::Features { .. } => {
                "Use Linux 6.5 or later. docs/mounting.md has other ways to a device."
            }
            DeviceError::NotAllowed(_) => {
                "It takes root (CAP_SYS_ADMIN); in a container the device cgroup has to allow it, too."
            }
            DeviceError::Served { .. } => "Stop that one first.",
            DeviceError::Size { .. } => {
                "Unmount it, and remove it with hemi detach-device; the next start makes it anew."
            }
            DeviceError::InUse { .. } => "Unmount it first: findmnt and lsof show who has it.",
            DeviceError::None { .. } => "hemi attach makes it one.",
            DeviceError::Failed { .. } | DeviceError::Reactor(_) => "See the log; try again.",
        }
    }
}

fn failed(doing: &'static str, path: &str) -> impl FnOnce(io::Error) -> DeviceError {
    let path = path.to_owned();
    move |source| DeviceError::Failed { doing, path, source }
}

fn block_path(number: u32) -> String {
    format!("/dev/ublkb{number}")
}

/// Opens the driver, and checks that it can what is needed.
fn driver() -> Result<Control, DeviceError> {
    let mut control = Control::open().map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => DeviceError::NotAllowed(error),
        _ => DeviceError::NoDriver(error),
    })?;
    let found = control.features().map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => DeviceError::NotAllowed(error),
        _ => DeviceError::Features { found: 0 },
    })?;
    if found & NEEDED == NEEDED { Ok(control) } else { Err(DeviceError::Features { found }) }
}

/// Returns the part of a volume's id that the kernel keeps for us.
fn mark_of(id: [u8; 16]) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|byte| id[byte]))
}

/// Finds the device that is, or was, the volume with this id.
fn find(control: &mut Control, id: [u8; 16]) -> Result<Option<DeviceInfo>, DeviceError> {
    let entries = match std::fs::read_dir("/sys/class/ublk-char") {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("cannot list", "/sys/class/ublk-char")(error)),
    };
    let mut numbers: Vec<u32> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix("ublkc")?.parse().ok())
        .collect();
    numbers.sort_unstable();
    for number in numbers {
        // One that has gone in between, or another user's, is not ours.
        let Ok(info) = control.info(number) else { continue };
        if info.volume == mark_of(id) && info.flags & NEEDED == NEEDED {
            return Ok(Some(info));
        }
    }
    Ok(None)
}

/// Checks that volumes can be block devices here.
///
/// # Errors
/// [`DeviceError`]: no driver, an old one, or no right to it.
pub fn check() -> Result<(), DeviceError> {
    driver().map(drop)
}

/// Returns true if the volume with this id has been made a block device, and is one still.
pub fn exists(id: [u8; 16]) -> bool {
    let Ok(mut control) = Control::open() else { return false };
    let found = find(&mut control, id).ok().flatten();
    found.is_some_and(|info| info.state != abi::STATE_DEAD)
}

/// Makes the volume that this reactor serves a block device, or takes over the one it has been. Returns
/// the device's path, at once if it is one already. Waits: for a server before this one to be gone, and for the first requests.
///
/// # Errors
/// [`DeviceError`]; what had been made is gone again.
pub fn attach(reactor: &ReactorHandle) -> Result<String, DeviceError> {
    let snapshot = reactor.snapshot();
    let identity = &*snapshot.identity;
    let mut control = driver()?;
    let number = match find(&mut control, identity.id)? {
        Some(info) if info.state == abi::STATE_LIVE && process::is_this(info.server) => info.number,
        Some(info) if info.state != abi::STATE_DEAD => {
            take_over(&mut control, reactor, identity, info)?;
            info.number
        }
        stale => {
            if let Some(info) = stale {
                let path = block_path(info.number);
                control.delete(info.number).map_err(failed("cannot remove", &path))?;
            }
            make(&mut control, reactor, identity)?
        }
    };
    let path = block_path(number);
    tuning::tune(number);
    match link::put(&identity.name, number) {
        Ok(link) => tracing::info!(path, link = %link.display(), "block device"),
        Err(error) => {
            tracing::warn!(path, %error, "block device, without a name of its own in /dev/hemi");
        }
    }
    Ok(path)
}

/// Makes a new device.
fn make(
    control: &mut Control,
    reactor: &ReactorHandle,
    identity: &Identity,
) -> Result<u32, DeviceError> {
    let wanted = DeviceInfo {
        queues: 1,
        queue_depth: DEPTH,
        io_bytes_max: REQUEST_BYTES_MAX,
        flags: NEEDED,
        volume: mark_of(identity.id),
        ..DeviceInfo::default()
    };
    let info = control.add(wanted).map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => DeviceError::NotAllowed(error),
        _ => failed("cannot make", "/dev/ublkbN")(error),
    })?;
    let path = block_path(info.number);
    let started = (|| {
        control
            .set_parameters(info.number, parameters(identity))
            .map_err(failed("cannot set the limits of", &path))?;
        hand_over(reactor, &info, identity)?;
        control.start(info.number).map_err(failed("cannot start", &path))
    })();
    if started.is_err() {
        // The reactor lets go of it when its commands end, which they do now.
        let _ = control.stop(info.number);
        let _ = control.delete(info.number);
    }
    started.map(|()| info.number)
}

/// Returns the volume's limits in the driver's terms.
fn parameters(identity: &Identity) -> Parameters {
    let block_shift = identity.block_bytes.trailing_zeros() as u8;
    Parameters {
        length: size_of::<Parameters>() as u32,
        types: abi::PARAMETER_TYPES,
        attributes: abi::ATTRIBUTES,
        logical_block_shift: block_shift,
        physical_block_shift: block_shift.max(12),
        io_opt_shift: block_shift.max(12),
        io_min_shift: block_shift.max(12),
        sectors_max: REQUEST_BYTES_MAX >> 9,
        device_sectors: identity.size_bytes >> 9,
        discard_granularity: identity.block_bytes.max(4096),
        discard_sectors_max: RANGE_BYTES_MAX >> 9,
        write_zeroes_sectors_max: RANGE_BYTES_MAX >> 9,
        discard_segments_max: 1,
        ..Parameters::default()
    }
}

/// Takes over a device whose server is gone, or going.
fn take_over(
    control: &mut Control,
    reactor: &ReactorHandle,
    identity: &Identity,
    mut info: DeviceInfo,
) -> Result<(), DeviceError> {
    let path = block_path(info.number);
    let sectors = control.sectors(info.number).map_err(failed("cannot look at", &path))?;
    if sectors != identity.size_bytes >> 9 {
        let (device, volume) = (sectors << 9, identity.size_bytes);
        return Err(DeviceError::Size { path, device, volume });
    }
    let until = Instant::now() + PREDECESSOR_PATIENCE;
    loop {
        if info.state == abi::STATE_LIVE && process::is_running(info.server) {
            return Err(DeviceError::Served { path, server: info.server });
        }
        match control.start_recovery(info.number) {
            Ok(()) => break,
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < until => {
                std::thread::sleep(RETRY_AFTER);
            }
            Err(error) => return Err(failed("cannot take over", &path)(error)),
        }
        info = control.info(info.number).map_err(failed("cannot look at", &path))?;
    }
    debug_assert!(info.state == abi::STATE_QUIESCED || info.state == abi::STATE_LIVE);
    hand_over(reactor, &info, identity)?;
    control.end_recovery(info.number).map_err(failed("cannot take over", &path))
}

/// Hands the character device to the reactor, which takes requests from then on.
fn hand_over(
    reactor: &ReactorHandle,
    info: &DeviceInfo,
    identity: &Identity,
) -> Result<(), DeviceError> {
    let node = format!("/dev/ublkc{}", info.number);
    let file = open_node(&node).map_err(failed("cannot open", &node))?;
    let sectors = identity.size_bytes >> 9;
    let opened = OpenDevice::new(file, info.queue_depth, block_path(info.number), sectors)
        .map_err(failed("cannot map the requests of", &node))?;
    let opened = Box::new(opened);
    Ok(reactor.wait_for(|reply| ReactorMessage::AttachDevice { opened, reply })?)
}

/// Opens the character device, whose node udev may still be making.
fn open_node(node: &str) -> io::Result<OwnedFd> {
    let until = Instant::now() + NODE_PATIENCE;
    loop {
        match OpenOptions::new().read(true).write(true).open(node) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && Instant::now() < until => {
                std::thread::sleep(RETRY_AFTER);
            }
            opened => return opened.map(OwnedFd::from),
        }
    }
}

/// Makes the volume no block device any more.
///
/// # Errors
/// [`DeviceError::InUse`] while it is mounted, [`DeviceError::None`] if it is none, or what failed.
pub fn detach(reactor: &ReactorHandle) -> Result<(), DeviceError> {
    let snapshot = reactor.snapshot();
    debug_assert!(snapshot.phase != Phase::Closed);
    let identity = &*snapshot.identity;
    let mut control = driver()?;
    let Some(info) = find(&mut control, identity.id)? else {
        return Err(DeviceError::None { name: identity.name.clone() });
    };
    let path = block_path(info.number);
    let held = hold(&path)?;
    if let Some(file) = &held {
        file.sync_all().map_err(failed("cannot flush", &path))?;
    }
    control.stop(info.number).map_err(failed("cannot stop", &path))?;
    drop(held);
    reactor.wait_for(|reply| ReactorMessage::AwaitDeviceEnd { reply })?;
    control.delete(info.number).map_err(failed("cannot remove", &path))?;
    link::remove(&identity.name);
    Ok(())
}

/// Removes the block device of a volume that nobody serves: what was written to it and waits is lost.
///
/// # Errors
/// As [`detach`]; [`DeviceError::Served`] if somebody does serve it.
pub fn remove(name: &str) -> Result<(), DeviceError> {
    let Some(number) = link::number(name) else {
        return Err(DeviceError::None { name: name.to_owned() });
    };
    let mut control = driver()?;
    let path = block_path(number);
    let info = control.info(number).map_err(failed("cannot look at", &path))?;
    if info.state == abi::STATE_LIVE && process::is_running(info.server) {
        return Err(DeviceError::Served { path, server: info.server });
    }
    let held = hold(&path)?;
    control.stop(number).map_err(failed("cannot stop", &path))?;
    drop(held);
    control.delete(number).map_err(failed("cannot remove", &path))?;
    link::remove(name);
    Ok(())
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

/// Returns the path of the name that a volume's block device keeps.
pub fn link_of(name: &str) -> PathBuf {
    link::path(name)
}
