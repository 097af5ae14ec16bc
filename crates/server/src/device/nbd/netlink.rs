//! Commands to the kernel's NBD client, through generic netlink (`linux/nbd-netlink.h`).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLM_F_ACK, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
    ParseableParametrized,
};
use netlink_packet_generic::ctrl::nlas::GenlCtrlAttrs;
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_generic::{GenlFamily, GenlHeader, GenlMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};

/// Name of the generic netlink family.
const FAMILY: &str = "nbd";
/// Version of the family.
const VERSION: u8 = 1;

/// The family's commands, `NBD_CMD_…`.
const CONNECT: u8 = 1;
const DISCONNECT: u8 = 2;
const RECONFIGURE: u8 = 3;

/// The attributes of commands, `NBD_ATTR_…`.
const INDEX: u16 = 1;
const SIZE_BYTES: u16 = 2;
const BLOCK_BYTES: u16 = 3;
const TIMEOUT: u16 = 4;
const SERVER_FLAGS: u16 = 5;
const SOCKETS: u16 = 7;
const DEAD_CONNECTION_TIMEOUT: u16 = 8;
const BACKEND: u16 = 10;
/// The attributes of a socket, `NBD_SOCK_ITEM` and `NBD_SOCK_FD`.
const SOCKET_ITEM: u16 = 1;
const SOCKET_DESCRIPTOR: u16 = 1;

/// The properties of a device that are passed to the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connect<'a> {
    /// The N of `/dev/nbdN`.
    pub(super) index: u32,
    pub(super) bytes: u64,
    pub(super) block_bytes: u32,
    /// The transmission flags of the protocol.
    pub(super) flags: u16,
    /// Time that requests wait for a server, in seconds.
    pub(super) wait_seconds: u64,
    /// The backend identifier of the device's owner. The kernel accepts later sockets only with
    /// the same one.
    pub(super) backend: &'a str,
}

/// A netlink socket to the kernel's NBD client.
pub(super) struct Netlink {
    socket: Socket,
    family: u16,
}

impl Netlink {
    /// Finds the kernel's NBD client.
    ///
    /// # Errors
    /// Returns ENOENT if there is none, or another error of the system.
    pub(super) fn open() -> io::Result<Netlink> {
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        let mut netlink = Netlink { socket, family: 0 };
        let name = GenlCtrlAttrs::FamilyName(FAMILY.to_owned());
        let ask = GenlCtrl { cmd: GenlCtrlCmd::GetFamily, nlas: vec![name] };
        netlink.send(GenlMessage::from_payload(ask))?;
        let mut family = None;
        netlink.receive::<GenlCtrl>(|answer| {
            family = answer.nlas.iter().find_map(|attribute| match attribute {
                GenlCtrlAttrs::FamilyId(id) => Some(*id),
                _ => None,
            });
        })?;
        netlink.family = family.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(netlink)
    }

    /// Creates a device whose requests go to `socket`.
    ///
    /// # Errors
    /// Returns EBUSY if the index is in use, or another error of the system.
    pub(super) fn connect(
        &mut self,
        device: &Connect<'_>,
        socket: BorrowedFd<'_>,
    ) -> io::Result<()> {
        self.command(
            CONNECT,
            vec![
                number(INDEX, device.index),
                long(SIZE_BYTES, device.bytes),
                long(BLOCK_BYTES, u64::from(device.block_bytes)),
                // There is no timeout, because a slow server is not a dead one.
                long(TIMEOUT, 0),
                long(DEAD_CONNECTION_TIMEOUT, device.wait_seconds),
                long(SERVER_FLAGS, u64::from(device.flags)),
                text(BACKEND, device.backend),
                sockets(socket),
            ],
        )
    }

    /// Offers a device another socket, which it takes if its own is dead, and sets its size.
    ///
    /// # Errors
    /// Returns EINVAL if the device is not connected or has another backend, or another error
    /// of the system.
    pub(super) fn reconnect(
        &mut self,
        index: u32,
        bytes: u64,
        backend: &str,
        socket: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let size = long(SIZE_BYTES, bytes);
        let attributes = vec![number(INDEX, index), size, text(BACKEND, backend), sockets(socket)];
        self.command(RECONFIGURE, attributes)
    }

    /// Sets the size of a device.
    ///
    /// # Errors
    /// Returns those of [`Netlink::reconnect`].
    pub(super) fn resize(&mut self, index: u32, bytes: u64, backend: &str) -> io::Result<()> {
        let attributes =
            vec![number(INDEX, index), long(SIZE_BYTES, bytes), text(BACKEND, backend)];
        self.command(RECONFIGURE, attributes)
    }

    /// Disconnects a device. Waiting requests fail.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(super) fn disconnect(&mut self, index: u32) -> io::Result<()> {
        self.command(DISCONNECT, vec![number(INDEX, index)])
    }

    fn command(&mut self, command: u8, attributes: Vec<DefaultNla>) -> io::Result<()> {
        let mut message = GenlMessage::from_payload(Message { command, attributes });
        message.set_resolved_family_id(self.family);
        self.send(message)?;
        self.receive::<Message>(|_| {})
    }

    fn send<F>(&self, message: GenlMessage<F>) -> io::Result<()>
    where
        F: GenlFamily + Emitable + std::fmt::Debug,
        NetlinkMessage<GenlMessage<F>>: From<GenlMessage<F>>,
        GenlMessage<F>: netlink_packet_core::NetlinkSerializable,
    {
        let mut message = NetlinkMessage::from(message);
        message.header.flags = NLM_F_REQUEST | NLM_F_ACK;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map(drop)
    }

    /// Waits for the acknowledgement of a command. Passes answers before it to `take`.
    fn receive<F>(&self, mut take: impl FnMut(F)) -> io::Result<()>
    where
        F: ParseableParametrized<[u8], GenlHeader> + std::fmt::Debug,
    {
        loop {
            let (bytes, _) = self.socket.recv_from_full()?;
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let message = NetlinkMessage::<GenlMessage<F>>::deserialize(rest)
                    .map_err(|error| io::Error::other(format!("netlink: {error}")))?;
                match message.payload {
                    NetlinkPayload::Error(error) => {
                        return error.code.map_or(Ok(()), |_| Err(error.to_io()));
                    }
                    NetlinkPayload::InnerMessage(answer) => take(answer.into_parts().1),
                    _ => {}
                }
                let length = (message.header.length as usize).next_multiple_of(4);
                rest = rest.get(length.max(4)..).unwrap_or_default();
            }
        }
    }
}

/// A message of the family.
#[derive(Debug)]
struct Message {
    command: u8,
    attributes: Vec<DefaultNla>,
}

impl GenlFamily for Message {
    fn family_name() -> &'static str {
        FAMILY
    }

    fn command(&self) -> u8 {
        self.command
    }

    fn version(&self) -> u8 {
        VERSION
    }
}

impl Emitable for Message {
    fn buffer_len(&self) -> usize {
        self.attributes.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        self.attributes.as_slice().emit(buffer);
    }
}

impl ParseableParametrized<[u8], GenlHeader> for Message {
    /// Skips the attributes of an answer, which contain nothing new.
    fn parse_with_param(_: &[u8], header: GenlHeader) -> Result<Message, DecodeError> {
        Ok(Message { command: header.cmd, attributes: Vec::new() })
    }
}

fn number(kind: u16, value: u32) -> DefaultNla {
    DefaultNla::new(kind, value.to_ne_bytes().to_vec())
}

fn long(kind: u16, value: u64) -> DefaultNla {
    DefaultNla::new(kind, value.to_ne_bytes().to_vec())
}

fn text(kind: u16, value: &str) -> DefaultNla {
    DefaultNla::new(kind, [value.as_bytes(), &[0]].concat())
}

fn nested(kind: u16, inner: &DefaultNla) -> DefaultNla {
    let mut value = vec![0; inner.buffer_len()];
    inner.emit(&mut value);
    DefaultNla::new(kind, value)
}

/// Returns the attribute with a list of one socket.
fn sockets(socket: BorrowedFd<'_>) -> DefaultNla {
    let descriptor = number(SOCKET_DESCRIPTOR, socket.as_raw_fd() as u32);
    nested(SOCKETS, &nested(SOCKET_ITEM, &descriptor))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn attributes_are_laid_out_as_the_kernel_reads_them() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let descriptor = (file.as_fd().as_raw_fd() as u32).to_ne_bytes();
        let attributes = vec![number(INDEX, 3), text(BACKEND, "ab"), sockets(file.as_fd())];
        let message = Message { command: RECONFIGURE, attributes };
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        let head = |length: u16, kind: u16| [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        let expected = [
            head(8, INDEX),
            3_u32.to_ne_bytes().to_vec(),
            head(7, BACKEND),
            b"ab\0\0".to_vec(),
            head(16, SOCKETS),
            head(12, SOCKET_ITEM),
            head(8, SOCKET_DESCRIPTOR),
            descriptor.to_vec(),
        ];
        assert_eq!(bytes, expected.concat());
    }
}
