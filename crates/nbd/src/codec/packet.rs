//! Encoded headers in a fixed array.

use zerocopy::{Immutable, IntoBytes};

/// Longest packet in bytes: an extended reply header with `OFFSET_HOLE`'s 12 bytes, rounded up.
pub const PACKET_BYTES_MAX: usize = 48;

/// One encoded header, to be sent as the first part of a gather send.
#[derive(Clone, Copy)]
pub struct Packet {
    bytes: [u8; PACKET_BYTES_MAX],
    length: u8,
}

impl Packet {
    /// Returns the packet of one structure.
    pub(crate) fn of(head: &(impl IntoBytes + Immutable)) -> Packet {
        let mut packet = Packet { bytes: [0; PACKET_BYTES_MAX], length: 0 };
        packet.push(head);
        packet
    }

    /// Returns the packet of a header and the fixed fields that follow it.
    pub(crate) fn of_two(
        head: &(impl IntoBytes + Immutable),
        tail: &(impl IntoBytes + Immutable),
    ) -> Packet {
        let mut packet = Packet::of(head);
        packet.push(tail);
        packet
    }

    fn push(&mut self, part: &(impl IntoBytes + Immutable)) {
        let part = part.as_bytes();
        let start = usize::from(self.length);
        self.bytes[start..start + part.len()].copy_from_slice(part);
        // It is at most 48, so the cast cannot lose anything.
        self.length = (start + part.len()) as u8;
    }

    /// Returns the encoded bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl core::ops::Deref for Packet {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl core::fmt::Debug for Packet {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Packet({:02x?})", self.as_bytes())
    }
}

impl PartialEq for Packet {
    fn eq(&self, other: &Packet) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Packet {}
