//! The volume as a device of the kernel's NBD client, `/dev/nbdN`, for kernels without ublk.
//!
//! The kernel gets one end of a socket pair, and the reactor serves the other as it serves any
//! client, past the handshake. When the server ends, the device stays. Requests wait for the
//! next server's socket, and those left unanswered are sent again once they have waited for the
//! time in `io_timeout`. The device's own thread gives the kernel another socket whenever the
//! reactor's end of one has ended.
//!
//! There is one connection, without a request timeout. With several, or with a timeout, the
//! kernel takes a slow server for a dead one, cuts its connections and sends everything again.
//! With one connection and no timeout it only resends requests whose socket has since been
//! replaced.

mod netlink;

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use hemi_nbd::codec::TransmissionFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustix::thread::CapabilitySet;

use super::{DeviceError, PREDECESSOR_PATIENCE, apart, await_requests, failed, hold, is_refusal};
use crate::control::volume::Identity;
use crate::export::{ExportOptions, volume_features};
use crate::messages::{ReactorError, ReactorHandle, ReactorMessage};
use netlink::{Connect, Netlink};

/// The directory in which the kernel lists block devices.
const BLOCK_DEVICES: &str = "/sys/block";
/// The driver's entry point, as errors name it.
const NETLINK: &str = "netlink family \"nbd\"";
/// Time that requests wait for a server, in effect forever, as with ublk.
const WAIT: Duration = Duration::from_secs(3650 * 86400);
/// Time after which the kernel checks an unanswered request and sends it again if its socket
/// has been replaced. The kernel rounds it up to whole seconds.
const LOOK_AFTER: Duration = Duration::from_millis(250);
/// Size in bytes of the socket's buffer for requests that the kernel sends ahead, so that it
/// need not stop in the middle of one. If a signal arrives there, kernels before 6.13 send the
/// request in two halves with another between them.
const SEND_BYTES: usize = 8 << 20;
/// Maximum payload of one request in KiB. The export cuts requests into parts of this size.
const REQUEST_KIB_MAX: u64 = 1024;
/// Time within which the end of a socket that the kernel has not taken is noticed.
const REFUSED_WITHIN: Duration = Duration::from_millis(50);
/// An index that no device has, because the highest minor number is 2^20 - 1.
const INDEX_END: u32 = 1 << 20;

/// The reactor's end of the kernel's connection.
#[derive(Debug)]
pub struct KernelSocket {
    /// The socket.
    pub(crate) socket: OwnedFd,
    /// The path of the block device.
    pub(crate) path: String,
    /// The volume as the kernel knows it.
    pub(crate) options: ExportOptions,
    /// Receives a message when the connection has ended.
    pub(crate) ended: SyncSender<()>,
}

/// Checks that the driver can be used.
pub(super) fn check() -> Result<(), DeviceError> {
    driver()?;
    // Anybody may look up the family. Its commands, which come later, need this capability.
    let capable = rustix::thread::capabilities(None)
        .is_ok_and(|own| own.effective.contains(CapabilitySet::SYS_ADMIN));
    if capable { Ok(()) } else { Err(not_allowed(io::ErrorKind::PermissionDenied.into())) }
}

fn driver() -> Result<Netlink, DeviceError> {
    Netlink::open().map_err(|error| match is_refusal(&error) {
        true => not_allowed(error),
        false => DeviceError::NoNbd(error),
    })
}

fn not_allowed(source: io::Error) -> DeviceError {
    DeviceError::NotAllowed { at: NETLINK, source }
}

fn block_path(index: u32) -> String {
    format!("/dev/nbd{index}")
}

/// Returns the backend identifier by which the kernel records a device's volume.
fn backend_of(id: [u8; 16]) -> String {
    format!("hemi:{:032x}", u128::from_be_bytes(id))
}

fn backend_path(index: u32) -> String {
    format!("{BLOCK_DEVICES}/nbd{index}/backend")
}

/// Returns the backend identifier of a device, if it is connected and the kernel records one.
fn backend(index: u32) -> Option<String> {
    let text = std::fs::read_to_string(backend_path(index)).ok()?;
    Some(text.trim_end().to_owned())
}

/// Returns all existing devices, connected or not, in order.
fn indices() -> Vec<u32> {
    let entries = std::fs::read_dir(BLOCK_DEVICES).into_iter().flatten();
    let mut indices: Vec<u32> = entries.filter_map(|entry| index_of(&entry.ok()?.path())).collect();
    indices.sort_unstable();
    indices
}

/// Returns the N of a path that ends in `nbdN`.
fn index_of(device: &Path) -> Option<u32> {
    device.file_name()?.to_str()?.strip_prefix("nbd")?.parse().ok()
}

fn find(id: [u8; 16]) -> Option<u32> {
    let wanted = backend_of(id);
    indices().into_iter().find(|index| backend(*index).is_some_and(|found| found == wanted))
}

/// Returns true if the volume with this id is a device of this driver.
pub(super) fn exists(id: [u8; 16]) -> bool {
    find(id).is_some()
}

/// Makes the volume a device, or takes over its existing one. Returns its path.
pub(super) fn attach(reactor: &ReactorHandle, identity: &Identity) -> Result<String, DeviceError> {
    let netlink = driver()?;
    let snapshot = reactor.snapshot();
    let found = find(identity.id);
    let (sender, ended) = sync_channel(1);
    let mut device = Served {
        netlink,
        reactor: reactor.clone(),
        index: 0,
        backend: backend_of(identity.id),
        options: ExportOptions {
            volume: identity.name.clone(),
            size: identity.size_bytes,
            block: identity.block_bytes,
            buffer_budget: snapshot.buffers.budget_bytes,
        },
        sender,
    };
    match found {
        Some(index) => match device.watch(index) {
            Ok(()) => {}
            Err(ReactorError::Busy) => return Ok(device.path()),
            Err(_) => device.take_over(index, &ended)?,
        },
        None => device.make()?,
    }
    let path = device.path();
    let kernel_name = format!("nbd{}", device.index);
    // The engine has its own scheduler, which knows the drives.
    let (timeout, sectors) = (LOOK_AFTER.as_millis().to_string(), REQUEST_KIB_MAX.to_string());
    let settings = [("scheduler", "none"), ("io_timeout", &timeout), ("max_sectors_kb", &sectors)];
    apart::set(&kernel_name, &settings);
    std::thread::Builder::new()
        .name("hemi-nbd-device".into())
        .spawn(move || device.keep(&ended))
        .map_err(failed("cannot look after", &path))?;
    Ok(path)
}

/// A device that this process serves.
struct Served {
    netlink: Netlink,
    reactor: ReactorHandle,
    index: u32,
    backend: String,
    options: ExportOptions,
    /// The sender that is cloned for every socket. It gets a message when the socket has ended.
    sender: SyncSender<()>,
}

impl Served {
    fn path(&self) -> String {
        block_path(self.index)
    }

    /// Looks after a device whose connection was kept across an upgrade.
    fn watch(&mut self, index: u32) -> Result<(), ReactorError> {
        self.index = index;
        let ended = self.sender.clone();
        self.reactor.wait_for(|reply| ReactorMessage::WatchKernel { ended, reply })?;
        // The volume may have grown.
        if let Err(error) = self.netlink.resize(index, self.options.size, &self.backend) {
            tracing::warn!(path = self.path(), %error, "the block device keeps its size");
        }
        Ok(())
    }

    /// Creates a new device: the first one not connected, or an additional one.
    fn make(&mut self) -> Result<(), DeviceError> {
        let known = indices();
        let free = known.iter().filter(|index| !is_connected(**index)).copied();
        let next = known.last().map_or(0, |last| last + 1);
        for index in free.chain(next..INDEX_END) {
            self.index = index;
            let socket = self.serve_socket()?;
            let device = Connect {
                index,
                bytes: self.options.size,
                block_bytes: self.options.block,
                flags: volume_features().0 | TransmissionFlags::HAS_FLAGS.0,
                wait_seconds: WAIT.as_secs(),
                backend: &self.backend,
            };
            match self.netlink.connect(&device, socket.as_fd()) {
                Ok(()) if backend(index).as_deref() == Some(&self.backend) => return Ok(()),
                Ok(()) => {
                    let _ = self.netlink.disconnect(index);
                    self.forget();
                    return Err(DeviceError::OldNbd { path: backend_path(index) });
                }
                // Another process was faster.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => self.forget(),
                Err(error) => {
                    self.forget();
                    return Err(match is_refusal(&error) {
                        true => not_allowed(error),
                        false => failed("cannot make", &self.path())(error),
                    });
                }
            }
        }
        Err(failed("cannot make", "/dev/nbdN")(io::Error::from_raw_os_error(libc::ENOSPC)))
    }

    /// Takes over a device whose server is gone or ending.
    fn take_over(&mut self, index: u32, ended: &Receiver<()>) -> Result<(), DeviceError> {
        self.index = index;
        let until = Instant::now() + PREDECESSOR_PATIENCE;
        loop {
            let (device, volume) = (size_of_device(index)?, self.options.size);
            if device > volume {
                return Err(DeviceError::Size { path: self.path(), device, volume });
            }
            self.offer().map_err(|error| match is_refusal(&error) {
                true => not_allowed(error),
                false => failed("cannot take over", &self.path())(error),
            })?;
            match ended.recv_timeout(REFUSED_WITHIN) {
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                // The kernel still has a socket of a killed server, which waits for a drive.
                Ok(()) if Instant::now() < until => {}
                Ok(()) => return Err(DeviceError::Predecessor { path: self.path() }),
                Err(RecvTimeoutError::Disconnected) => return Err(ReactorError::Ended.into()),
            }
        }
    }

    /// Gives the kernel another socket whenever one has ended, until the device is removed or
    /// the volume is closed.
    fn keep(mut self, ended: &Receiver<()>) {
        while ended.recv().is_ok() {
            // A socket that the kernel did not take ends at once.
            std::thread::sleep(REFUSED_WITHIN);
            if backend(self.index).as_deref() != Some(&self.backend) {
                return self.forget();
            }
            match self.offer() {
                Ok(()) => {
                    tracing::debug!(path = self.path(), "the block device is connected again")
                }
                // The volume is closed.
                Err(error) if error.kind() == io::ErrorKind::NotConnected => return,
                // Somebody is disconnecting it.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return self.forget(),
                Err(error) => {
                    let path = self.path();
                    tracing::error!(
                        path, %error,
                        "the block device could not be connected again: hemi attach does it"
                    );
                    return self.forget();
                }
            }
        }
    }

    /// Offers the kernel another socket.
    fn offer(&mut self) -> io::Result<()> {
        let socket = self.serve_socket().map_err(|error| match error {
            DeviceError::Failed { source, .. } => source,
            _ => io::ErrorKind::NotConnected.into(),
        })?;
        self.netlink.reconnect(self.index, self.options.size, &self.backend, socket.as_fd())
    }

    /// Has the reactor serve one end of a new pair of sockets, and returns the other.
    fn serve_socket(&self) -> Result<OwnedFd, DeviceError> {
        let path = self.path();
        let (ours, kernels) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|errno| failed("cannot connect", &path)(errno.into()))?;
        if let Err(error) = sockopt::set_socket_send_buffer_size_force(&kernels, SEND_BYTES) {
            tracing::debug!(path, %error, "a small send buffer");
        }
        let (options, ended) = (self.options.clone(), self.sender.clone());
        let socket = Box::new(KernelSocket { socket: ours, path, options, ended });
        self.reactor.wait_for(|reply| ReactorMessage::ServeKernel { socket, reply })?;
        Ok(kernels)
    }

    /// Has the reactor forget the device.
    fn forget(&self) {
        let _ = self.reactor.send(ReactorMessage::AwaitDeviceEnd { reply: Box::new(|_| ()) });
    }
}

fn is_connected(index: u32) -> bool {
    Path::new(&format!("{BLOCK_DEVICES}/nbd{index}/pid")).exists()
}

/// Returns a device's size in bytes.
fn size_of_device(index: u32) -> Result<u64, DeviceError> {
    let path = format!("{BLOCK_DEVICES}/nbd{index}/size");
    let text = std::fs::read_to_string(&path).map_err(failed("cannot read", &path))?;
    let sectors = text.trim().parse::<u64>().map_err(|error| io::Error::other(error.to_string()));
    Ok(sectors.map_err(failed("cannot read", &path))? << 9)
}

/// Removes the volume's device.
pub(super) fn detach(reactor: &ReactorHandle, identity: &Identity) -> Result<(), DeviceError> {
    let none = || DeviceError::None { name: identity.name.clone() };
    let index = find(identity.id).ok_or_else(none)?;
    let path = block_path(index);
    let held = apart::hold_flushed(&path)?;
    await_requests(&path)?;
    let disconnected = driver()?.disconnect(index).map_err(failed("cannot disconnect", &path));
    drop(held);
    disconnected?;
    Ok(reactor.wait_for(|reply| ReactorMessage::AwaitDeviceEnd { reply })?)
}

/// Removes a device that nobody serves. Returns `None` if it belongs to another driver.
pub(super) fn remove(device: &Path, force: bool) -> Option<Result<(), DeviceError>> {
    index_of(device).map(|index| remove_numbered(index, force))
}

fn remove_numbered(index: u32, force: bool) -> Result<(), DeviceError> {
    let path = block_path(index);
    if !backend(index).is_some_and(|found| found.starts_with("hemi:")) {
        // It has been disconnected and may belong to another server by now.
        return Ok(());
    }
    if !force {
        hold_unserved(&path)?;
    }
    driver()?.disconnect(index).map_err(failed("cannot disconnect", &path))
}

/// Checks that an unserved device is neither mounted nor held.
///
/// The first open of a device reads its partition table and would wait for a server. The
/// exclusive claim is checked before that. The open continues when the device is disconnected.
fn hold_unserved(path: &str) -> Result<(), DeviceError> {
    let (sender, opened) = sync_channel(1);
    let name = path.to_owned();
    let open = move || {
        // The caller may have stopped waiting.
        let _ = sender.send(hold(&name));
    };
    std::thread::Builder::new()
        .name("hemi-hold".into())
        .spawn(open)
        .map_err(failed("cannot open", path))?;
    opened.recv_timeout(REFUSED_WITHIN).unwrap_or(Ok(None)).map(drop)
}
