//! The volume as a ublk device: `/dev/ublkbN`, whose requests come from `/dev/ublkcN`.
//!
//! The device outlives its server by `UBLK_F_USER_RECOVERY_REISSUE`: the next server gets the requests
//! that were left unanswered.

mod abi;
mod control;
mod descriptors;
mod payload;

use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{
    DeviceError, PREDECESSOR_PATIENCE, failed, hold, hold_flushed, is_refusal, process, tune,
};
use crate::control::volume::Identity;
use crate::messages::{ReactorHandle, ReactorMessage};
pub(crate) use abi::{COMMIT_AND_FETCH, FETCH, io_command};
use abi::{DeviceInfo, Parameters};
use control::{CONTROL_PATH, Control};
pub use payload::OpenDevice;

/// Most requests of a device in flight.
const DEPTH: u16 = 128;
/// Most bytes of one request's payload: the size of the parts that the export cuts requests into.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Most bytes of one discard or zeroing.
const RANGE_BYTES_MAX: u32 = 1 << 30;
/// Features that the driver must have: payload by copy (Linux 6.5), and devices that outlive their server.
const NEEDED: u64 = abi::USER_COPY | abi::USER_RECOVERY | abi::REISSUE | abi::IOCTL_ENCODE;
/// Time for the device's node to appear.
const NODE_PATIENCE: Duration = Duration::from_secs(5);
const RETRY_AFTER: Duration = Duration::from_millis(5);

fn block_path(number: u32) -> String {
    format!("/dev/ublkb{number}")
}

fn not_allowed(source: io::Error) -> DeviceError {
    DeviceError::NotAllowed { at: CONTROL_PATH, source }
}

/// Opens the driver, and checks that it has the features in [`NEEDED`].
fn driver() -> Result<Control, DeviceError> {
    let mut control = Control::open().map_err(|error| match is_refusal(&error) {
        true => not_allowed(error),
        false => DeviceError::NoUblk(error),
    })?;
    let found = control.features().map_err(|error| match is_refusal(&error) {
        true => not_allowed(error),
        false => DeviceError::OldUblk { found: 0, needed: NEEDED },
    })?;
    let fits = found & NEEDED == NEEDED;
    if fits { Ok(control) } else { Err(DeviceError::OldUblk { found, needed: NEEDED }) }
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
        // A device that has gone meanwhile, or that belongs to another user, is not ours.
        let Ok(info) = control.info(number) else { continue };
        if info.volume == mark_of(id) && info.flags & NEEDED == NEEDED {
            return Ok(Some(info));
        }
    }
    Ok(None)
}

/// Checks that the driver can be used.
pub(super) fn check() -> Result<(), DeviceError> {
    driver().map(drop)
}

/// Returns true if the volume with this id is a device of this driver.
pub(super) fn exists(id: [u8; 16]) -> bool {
    let Ok(mut control) = Control::open() else { return false };
    let found = find(&mut control, id).ok().flatten();
    found.is_some_and(|info| info.state != abi::STATE_DEAD)
}

/// Makes the volume a device, or takes over its existing one. Returns its path.
pub(super) fn attach(reactor: &ReactorHandle, identity: &Identity) -> Result<String, DeviceError> {
    let mut control = driver()?;
    let number = match find(&mut control, identity.id)? {
        // After an upgrade this process may be its server in name only.
        Some(info)
            if info.state == abi::STATE_LIVE
                && process::is_this(info.server)
                && reactor.snapshot().device.is_some() =>
        {
            info.number
        }
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
    tune_queue(number);
    Ok(block_path(number))
}

/// Sets the scheduler and the number of requests.
///
/// - No scheduler: the engine has its own, which knows the drives.
/// - One request fewer than there are tags, so that one command is always in the ring. The driver notices
///   that its server is gone when the kernel takes back one of its commands. With none there it would wait
///   30 s for a request to time out.
fn tune_queue(number: u32) {
    let device = format!("ublkb{number}");
    tune(&device, "scheduler", "none");
    tune(&device, "nr_requests", &(DEPTH - 1).to_string());
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
        flags: NEEDED | control.features().unwrap_or(0) & abi::RESIZABLE,
        volume: mark_of(identity.id),
        ..DeviceInfo::default()
    };
    let info = control.add(wanted).map_err(|error| match is_refusal(&error) {
        true => not_allowed(error),
        false => failed("cannot make", "/dev/ublkbN")(error),
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
        // The reactor releases it when its commands end, which they do now.
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
    if sectors > identity.size_bytes >> 9 {
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
            // A server was killed while it took the device over: that has begun already.
            Err(error)
                if error.raw_os_error() == Some(libc::EINVAL)
                    && info.state == abi::STATE_QUIESCED =>
            {
                break;
            }
            Err(error) => return Err(failed("cannot take over", &path)(error)),
        }
        info = control.info(info.number).map_err(failed("cannot look at", &path))?;
    }
    debug_assert!(info.state == abi::STATE_QUIESCED || info.state == abi::STATE_LIVE);
    hand_over(reactor, &info, identity)?;
    control.end_recovery(info.number).map_err(failed("cannot take over", &path))?;
    // The volume may have grown.
    if sectors < identity.size_bytes >> 9
        && let Err(error) = control.update_size(info.number, identity.size_bytes >> 9)
    {
        tracing::warn!(
            path, %error,
            "the block device keeps its size (before Linux 6.16): unmount it, hemi detach-device, \
             hemi attach"
        );
    }
    Ok(())
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

/// Removes the volume's device.
pub(super) fn detach(reactor: &ReactorHandle, identity: &Identity) -> Result<(), DeviceError> {
    let mut control = driver()?;
    let Some(info) = find(&mut control, identity.id)? else {
        return Err(DeviceError::None { name: identity.name.clone() });
    };
    let path = block_path(info.number);
    let held = hold_flushed(&path)?;
    control.stop(info.number).map_err(failed("cannot stop", &path))?;
    drop(held);
    reactor.wait_for(|reply| ReactorMessage::AwaitDeviceEnd { reply })?;
    control.delete(info.number).map_err(failed("cannot remove", &path))
}

/// Removes a device that nobody serves. Returns `None` if it belongs to another driver.
pub(super) fn remove(device: &Path, force: bool) -> Option<Result<(), DeviceError>> {
    let number = device.file_name()?.to_str()?.strip_prefix("ublkb")?.parse().ok()?;
    Some(remove_numbered(number, force))
}

fn remove_numbered(number: u32, force: bool) -> Result<(), DeviceError> {
    let mut control = driver()?;
    let path = block_path(number);
    let info = control.info(number).map_err(failed("cannot look at", &path))?;
    if info.state == abi::STATE_LIVE && process::is_running(info.server) {
        return Err(DeviceError::Served { path, server: info.server });
    }
    let stopped = failed("cannot stop", &path);
    if force {
        control.stop(number).map_err(stopped)?;
        // A program that has it open keeps it. Before Linux 6.9 the next start of the volume deletes it.
        if let Err(error) = control.delete_later(number) {
            tracing::warn!(path, %error, "the block device is dead, and not deleted yet");
        }
        return Ok(());
    }
    let held = hold(&path)?;
    control.stop(number).map_err(stopped)?;
    drop(held);
    control.delete(number).map_err(failed("cannot remove", &path))
}
