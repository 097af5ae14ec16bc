//! The volume as a ublk device: `/dev/ublkbN`, whose requests come from `/dev/ublkcN`.
//!
//! The device outlives its server by `UBLK_F_USER_RECOVERY_REISSUE`: the next server gets the
//! requests that were left unanswered.

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
    DeviceError, PREDECESSOR_PATIENCE, RETRY_AFTER, apart, await_requests, failed, hold,
    is_refusal, process,
};
use crate::control::volume::Identity;
use crate::messages::{ReactorHandle, ReactorMessage};
pub(crate) use abi::{COMMIT_AND_FETCH, FETCH, io_command};
use abi::{DeviceInfo, Parameters};
use control::{CONTROL_PATH, Control};
pub use payload::OpenDevice;

/// Maximum number of requests of a device in flight.
const DEPTH: u16 = 128;
/// Maximum payload of one request in bytes. The export cuts requests into parts of this size.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Maximum length of one discard or zeroing in bytes.
const RANGE_BYTES_MAX: u32 = 1 << 30;
/// Features that the driver must have: payload by copy (Linux 6.5), and devices that outlive
/// their server.
const NEEDED: u64 = abi::USER_COPY | abi::USER_RECOVERY | abi::REISSUE | abi::IOCTL_ENCODE;
/// Time for the device's node to appear.
const NODE_PATIENCE: Duration = Duration::from_secs(5);

fn block_path(number: u32) -> String {
    format!("/dev/ublkb{number}")
}

fn not_allowed(source: io::Error) -> DeviceError {
    DeviceError::NotAllowed { at: CONTROL_PATH, source }
}

/// Opens the driver and checks that it has the features in [`NEEDED`].
fn driver() -> Result<Control, DeviceError> {
    let mut control = Control::open().map_err(|error| match is_refusal(&error) {
        true => not_allowed(error),
        false => DeviceError::NoUblk(error),
    })?;
    fits(control.features())?;
    Ok(control)
}

/// Checks the driver's answer to the query of its features.
fn fits(features: io::Result<u64>) -> Result<(), DeviceError> {
    match features {
        Ok(found) if found & NEEDED == NEEDED => Ok(()),
        Ok(found) => Err(DeviceError::OldUblk { found, needed: NEEDED }),
        Err(error) if is_refusal(&error) => Err(not_allowed(error)),
        // Drivers before Linux 6.5 do not know the query.
        Err(_) => Err(DeviceError::OldUblk { found: 0, needed: NEEDED }),
    }
}

/// Returns the part of a volume's id that the kernel keeps for us.
fn mark_of(id: [u8; 16]) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|byte| id[byte]))
}

/// Finds the existing device of the volume with this id, if any.
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
        // A device that has disappeared meanwhile, or that belongs to another user, is not
        // ours.
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

/// Makes the volume a device or takes over its existing one. Returns its path.
pub(super) fn attach(reactor: &ReactorHandle, identity: &Identity) -> Result<String, DeviceError> {
    let mut control = driver()?;
    let number = match find(&mut control, identity.id)? {
        // After an upgrade this process may be its server without serving it yet.
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
/// - No scheduler, because the engine has its own, which knows the drives.
/// - One request fewer than there are tags, so that one command is always in the ring. The
///   driver notices that its server is gone when the kernel takes back one of its commands.
///   With none there it would wait 30 s for a request to time out.
fn tune_queue(number: u32) {
    let requests = (DEPTH - 1).to_string();
    apart::set(&format!("ublkb{number}"), &[("scheduler", "none"), ("nr_requests", &requests)]);
}

/// Creates a new device.
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
        hand_over(reactor, &info, identity, Instant::now() + NODE_PATIENCE)?;
        control.start(info.number).map_err(failed("cannot start", &path))
    })();
    if started.is_err() {
        // The reactor releases it when its commands end, which they do now.
        let _ = control.stop(info.number);
        let _ = control.delete(info.number);
    }
    started.map(|()| info.number)
}

/// Returns the volume's limits as the driver's parameters.
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

/// Takes over a device whose server is gone or ending.
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
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                if Instant::now() >= until {
                    return Err(DeviceError::Predecessor { path });
                }
                std::thread::sleep(RETRY_AFTER);
            }
            // A server was killed while it took the device over, so this has begun already. The
            // driver has no other reason to answer EINVAL here (`ublk_ctrl_start_recovery` of
            // Linux 6.12):
            // - The device cannot outlive its server. `find` returns no such device.
            // - No queue is ready. A device that was ever started has its queue ready until a
            //   recovery begins, and a recovery begins only when the device is quiesced.
            // - The command is malformed, or we have no permission for the device. The driver
            //   has just answered a command of the same form about it.
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
    hand_over(reactor, &info, identity, until)?;
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

/// Hands the character device to the reactor, which takes requests from then on. Waits until
/// `free_by` for another server to let go of it.
fn hand_over(
    reactor: &ReactorHandle,
    info: &DeviceInfo,
    identity: &Identity,
    free_by: Instant,
) -> Result<(), DeviceError> {
    let node = format!("/dev/ublkc{}", info.number);
    let file = open_node(&node, free_by).map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => DeviceError::Predecessor { path: block_path(info.number) },
        _ => failed("cannot open", &node)(error),
    })?;
    let sectors = identity.size_bytes >> 9;
    let opened = OpenDevice::new(file, info.queue_depth, block_path(info.number), sectors);
    let opened = Box::new(opened);
    Ok(reactor.wait_for(|reply| ReactorMessage::AttachDevice { opened, reply })?)
}

/// Opens the character device, whose node udev may not have created yet. Only one server at a
/// time may have it open. A server that was killed while it took the device over may still hold
/// it, so this waits for it until `free_by`.
fn open_node(node: &str, free_by: Instant) -> io::Result<OwnedFd> {
    let there_by = Instant::now() + NODE_PATIENCE;
    loop {
        let opened = OpenOptions::new().read(true).write(true).open(node);
        let until = match opened.as_ref().map_err(io::Error::raw_os_error) {
            Err(Some(libc::ENOENT)) => there_by,
            Err(Some(libc::EBUSY)) => free_by,
            _ => return opened.map(OwnedFd::from),
        };
        if Instant::now() >= until {
            return opened.map(OwnedFd::from);
        }
        std::thread::sleep(RETRY_AFTER);
    }
}

/// Removes the volume's device.
pub(super) fn detach(reactor: &ReactorHandle, identity: &Identity) -> Result<(), DeviceError> {
    let mut control = driver()?;
    let Some(info) = find(&mut control, identity.id)? else {
        return Err(DeviceError::None { name: identity.name.clone() });
    };
    let path = block_path(info.number);
    let held = apart::hold_flushed(&path)?;
    await_requests(&path)?;
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
        // A program that has it open keeps it. Before Linux 6.9 the next start of the volume
        // deletes it.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Features that Linux 6.1 to 6.4 have: everything but payload by copy.
    const LINUX_6_4: u64 = NEEDED & !abi::USER_COPY;

    #[test]
    fn a_driver_without_the_features_is_refused_by_name() {
        fits(Ok(NEEDED)).expect("it has what is needed");
        fits(Ok(NEEDED | abi::RESIZABLE | 1)).expect("more is no harm");
        for missing in [abi::USER_COPY, abi::USER_RECOVERY, abi::REISSUE, abi::IOCTL_ENCODE] {
            let found = NEEDED & !missing;
            let refused = fits(Ok(found)).expect_err("it lacks one");
            assert!(
                matches!(&refused, DeviceError::OldUblk { found: said, needed: NEEDED } if *said == found),
                "{refused:?}"
            );
        }
        let old = fits(Ok(LINUX_6_4)).expect_err("it is old");
        let (text, way_out) = (old.to_string(), old.way_out());
        assert!(text.contains(&format!("features {LINUX_6_4:#x}, needed {NEEDED:#x}")), "{text}");
        assert!(way_out.contains("Linux 6.5") && way_out.contains("docs/mounting.md"), "{way_out}");
    }

    #[test]
    fn a_driver_that_does_not_know_the_question_is_old_and_one_that_refuses_is_not() {
        for errno in [libc::EOPNOTSUPP, libc::EINVAL, libc::ENODEV] {
            let refused = fits(Err(io::Error::from_raw_os_error(errno))).expect_err("no answer");
            assert!(matches!(refused, DeviceError::OldUblk { found: 0, .. }), "{refused:?}");
        }
        for errno in [libc::EPERM, libc::EACCES] {
            let refused = fits(Err(io::Error::from_raw_os_error(errno))).expect_err("no right");
            assert!(matches!(refused, DeviceError::NotAllowed { .. }), "{refused:?}");
            assert!(refused.way_out().contains("CAP_SYS_ADMIN"));
        }
    }

    #[test]
    fn a_node_that_comes_late_is_waited_for() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("ublkc0");
        let node = path.to_str().expect("a UTF-8 path");
        std::fs::write(node, []).expect("a file");
        open_node(node, Instant::now()).expect("it is there");
        std::fs::remove_file(node).expect("it is there");
        let later = {
            let path = path.clone();
            std::thread::spawn(move || {
                std::thread::sleep(RETRY_AFTER * 4);
                std::fs::write(path, [])
            })
        };
        open_node(node, Instant::now()).expect("it is waited for");
        later.join().expect("it writes").expect("a file");
    }
}
