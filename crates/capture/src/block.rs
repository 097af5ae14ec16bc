//! Blocks: a header with a checksum, and a payload.

/// First bytes of every block; the last byte is the format's version.
pub(crate) const MAGIC: [u8; 8] = *b"HEMICAP\x01";
/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = 40;
/// Maximum size of a payload in bytes.
pub(crate) const PAYLOAD_MAX: usize = 64 << 10;

/// The contents of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum BlockKind {
    /// The [`crate::Head`]; always the first block, and no other.
    Beginning = 0,
    /// Records.
    Records = 1,
    /// Nothing: the recording was ended cleanly. The last block.
    End = 2,
}

/// A block's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: BlockKind,
    pub(crate) payload: u32,
    pub(crate) records: u32,
    /// Blocks before this one.
    pub(crate) number: u64,
    /// Number of requests, since the beginning, that were not recorded.
    pub(crate) dropped: u64,
}

/// Encodes a whole block.
pub(crate) fn encode(header: Header, payload: &[u8]) -> Vec<u8> {
    let mut block = Vec::with_capacity(HEADER_BYTES + payload.len());
    block.extend(MAGIC);
    block.extend([0; 4]);
    block.extend((payload.len() as u32).to_le_bytes());
    block.extend((header.kind as u32).to_le_bytes());
    block.extend(header.records.to_le_bytes());
    block.extend(header.number.to_le_bytes());
    block.extend(header.dropped.to_le_bytes());
    block.extend(payload);
    let checksum = crc32c::crc32c(&block[12..]);
    block[8..12].copy_from_slice(&checksum.to_le_bytes());
    block
}

/// Decodes a header and the checksum of everything after its first 12 bytes. Returns `None` if
/// it is not a header.
pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<(Header, u32)> {
    let u32_at =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
    if bytes[..8] != MAGIC {
        return None;
    }
    let kind = match u32_at(16) {
        0 => BlockKind::Beginning,
        1 => BlockKind::Records,
        2 => BlockKind::End,
        _ => return None,
    };
    let payload = u32_at(12);
    if payload as usize > PAYLOAD_MAX {
        return None;
    }
    let header =
        Header { kind, payload, records: u32_at(20), number: u64_at(24), dropped: u64_at(32) };
    Some((header, u32_at(8)))
}
