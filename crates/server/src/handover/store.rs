//! systemd's file descriptor store, in which a state outlives the process until the next start.
//!
//! A unit with `FileDescriptorStoreMax=` may give descriptors to systemd, which passes them to
//! the next process of the unit. At a restart that is the successor. At a stop systemd closes
//! them (`FileDescriptorStorePreserve=restart`). A process that is asked to end cannot tell the
//! two apart, so it hands over either way.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use super::exec::memory_file;
use super::{HandedOver, Taken};

/// Names in the store: that of the memory file, and the prefix of sockets, which are called
/// `hemi-N`, where N is their number in the state.
const STATE_NAME: &str = "hemi-state";
const SOCKET_NAME: &str = "hemi-";
/// The first descriptor that systemd passes.
const FIRST: RawFd = 3;

/// Returns the number of descriptors that systemd keeps for this process, or zero if it offers
/// no store.
pub(crate) fn room() -> usize {
    let offered = std::env::var("FDSTORE").ok().and_then(|count| count.parse().ok());
    if std::env::var_os("NOTIFY_SOCKET").is_some() { offered.unwrap_or(0) } else { 0 }
}

/// Gives everything to systemd.
///
/// # Errors
/// Fails if there is no space for all of it or systemd does not listen. systemd will close the
/// descriptors it has received.
pub(crate) fn keep(
    handed: HandedOver,
    control: &OwnedFd,
    http: Option<&OwnedFd>,
) -> io::Result<usize> {
    let HandedOver { mut state, descriptors, .. } = handed;
    state.process = 0;
    state.version = env!("CARGO_PKG_VERSION").to_owned();
    state.control = Some(control.as_raw_fd());
    state.http = http.map(|http| http.as_raw_fd());
    let count = state.descriptors().len() + 1;
    if count > room() {
        let text = format!("{count} descriptors, and FileDescriptorStoreMax={}", room());
        return Err(io::Error::other(text));
    }
    let notify = Notify::new()?;
    for descriptor in descriptors.iter().chain([control]).chain(http) {
        let name = format!("{SOCKET_NAME}{}", descriptor.as_raw_fd());
        notify.store(&name, descriptor.as_fd())?;
    }
    // The state goes last, so that if it is there, everything is.
    notify.store(STATE_NAME, memory_file(&state.encode())?.as_fd())?;
    Ok(state.connections.len())
}

/// Takes the state that the previous process gave to systemd, and a descriptor for each number in it.
/// Clients that have hung up since are missing. Returns `None` if there is no state.
pub(super) fn take() -> Result<Option<Taken>, String> {
    let variable = |name: &str| std::env::var(name).ok();
    let process = variable("LISTEN_PID").and_then(|number| number.parse().ok());
    let names = variable("LISTEN_FDNAMES").unwrap_or_default();
    let names: Vec<&str> = names.split(':').collect();
    let count = variable("LISTEN_FDS").and_then(|count| count.parse().ok());
    if process != Some(std::process::id()) || count != Some(names.len()) {
        return Ok(None);
    }
    let mut state = None;
    let mut sockets = Vec::new();
    for (number, name) in (FIRST..).zip(&names) {
        let Some(known) = name.strip_prefix(SOCKET_NAME) else { continue };
        // SAFETY: systemd passes this descriptor to this process by its name, for it to own.
        // This function is called once, before anything else could have opened a descriptor of
        // this number.
        let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
        if let Err(error) = rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC) {
            // No such descriptor is open, so it must not be closed either.
            std::mem::forget(descriptor);
            return Err(format!("{name}: {error}"));
        }
        match known.parse() {
            Ok(known) => sockets.push((known, descriptor)),
            Err(_) => state = Some(descriptor),
        }
    }
    forget(&names);
    match state {
        Some(state) => Ok(Some((super::inherit::read(state)?, sockets))),
        None if sockets.is_empty() => Ok(None),
        None => Err("sockets without a state".into()),
    }
}

/// Has systemd forget the descriptors that were taken. A socket that it kept open would never
/// end for its client.
fn forget(names: &[&str]) {
    let Ok(notify) = Notify::new() else { return };
    for name in names.iter().filter(|name| name.starts_with(SOCKET_NAME)) {
        if let Err(error) = notify.send(&format!("FDSTOREREMOVE=1\nFDNAME={name}\n"), &[]) {
            tracing::warn!(%error, name, "systemd keeps a descriptor");
        }
    }
}

/// The socket to systemd.
struct Notify(UnixDatagram);

impl Notify {
    fn new() -> io::Result<Notify> {
        use std::os::linux::net::SocketAddrExt as _;
        use std::os::unix::ffi::OsStrExt as _;
        let path = std::env::var_os("NOTIFY_SOCKET")
            .ok_or_else(|| io::Error::other("NOTIFY_SOCKET is not set"))?;
        let socket = UnixDatagram::unbound()?;
        match path.as_bytes().strip_prefix(b"@") {
            Some(name) => {
                let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
                socket.connect_addr(&address)?;
            }
            None => socket.connect(&path)?,
        }
        Ok(Notify(socket))
    }

    fn store(&self, name: &str, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.send(&format!("FDSTORE=1\nFDNAME={name}\n"), &[descriptor])
    }

    fn send(&self, text: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            let pushed = ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
            debug_assert!(pushed, "there is room for one");
        }
        let text = [io::IoSlice::new(text.as_bytes())];
        rustix::net::sendmsg(&self.0, &text, &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}
