//! A request of a virtio block device, from the segments of its chain.

use hemi_engine::io::Operation;
use hemi_units::{Extent, SECTOR_BYTES};

use super::abi::{self, Disk, HEADER_BYTES, RANGE_BYTES};
use super::memory::{GuestMemory, Segment};
use super::{Broken, REQUEST_BYTES_MAX};

/// The request of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// An operation for the engine. Its payload begins `skip` bytes into the segments.
    Operation {
        /// The operation.
        operation: Operation,
        /// Its place in the volume.
        extent: Extent,
        /// Number of bytes before the payload.
        skip: u64,
    },
    /// A query of the device's identity, which goes `skip` bytes into the segments.
    Identity {
        /// Number of bytes before the identity.
        skip: u64,
    },
    /// A request that is not done but answered with this status.
    Refused(u8),
}

/// Returns the number of bytes of a chain that the device reads, and of those that it writes.
pub(crate) fn lengths(segments: &[Segment]) -> (u64, u64) {
    segments.iter().fold((0, 0), |(read, written), segment| {
        let length = u64::from(segment.length);
        if segment.writable { (read, written + length) } else { (read + length, written) }
    })
}

/// Parses the request of a chain.
///
/// # Errors
/// Returns [`Broken::NoHeader`] or [`Broken::NoStatus`] if it cannot be parsed or answered.
pub(crate) fn parse(
    memory: &GuestMemory,
    segments: &[Segment],
    disk: &Disk,
) -> Result<Asked, Broken> {
    let (read, written) = lengths(segments);
    if read < HEADER_BYTES {
        return Err(Broken::NoHeader { bytes: read });
    }
    // The last byte is the status.
    let Some(room) = written.checked_sub(1) else { return Err(Broken::NoStatus) };
    let header: [u8; HEADER_BYTES as usize] = memory.read(segments, 0)?;
    let [a, b, c, d, _, _, _, _, sector @ ..] = header;
    let (kind, sector) = (u32::from_le_bytes([a, b, c, d]), u64::from_le_bytes(sector));
    let payload = read - HEADER_BYTES;
    Ok(match kind {
        abi::READ => transfer(disk, Operation::Read, sector, room, read),
        abi::WRITE => transfer(disk, Operation::Write, sector, payload, HEADER_BYTES),
        abi::FLUSH_CACHE => {
            Asked::Operation { operation: Operation::Flush, extent: Extent::default(), skip: 0 }
        }
        abi::IDENTIFY if room >= abi::IDENTITY_BYTES as u64 => Asked::Identity { skip: read },
        abi::DISCARD_RANGE | abi::WRITE_ZEROES_RANGE if payload == RANGE_BYTES => {
            range(disk, kind, memory.read(segments, HEADER_BYTES)?)
        }
        abi::IDENTIFY | abi::DISCARD_RANGE | abi::WRITE_ZEROES_RANGE => {
            Asked::Refused(abi::STATUS_ERROR)
        }
        _ => Asked::Refused(abi::STATUS_UNSUPPORTED),
    })
}

/// Returns a request with `bytes` of payload.
fn transfer(disk: &Disk, operation: Operation, sector: u64, bytes: u64, skip: u64) -> Asked {
    if bytes > REQUEST_BYTES_MAX || !bytes.is_multiple_of(SECTOR_BYTES) {
        return Asked::Refused(abi::STATUS_ERROR);
    }
    match place(disk, operation, sector, bytes / SECTOR_BYTES) {
        Some(extent) => Asked::Operation { operation, extent, skip },
        None => Asked::Refused(abi::STATUS_ERROR),
    }
}

/// Returns a request for a range, without payload.
fn range(disk: &Disk, kind: u32, range: [u8; RANGE_BYTES as usize]) -> Asked {
    let [a, b, c, d, e, f, g, h, i, j, k, l, flags @ ..] = range;
    let sector = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    let sectors = u64::from(u32::from_le_bytes([i, j, k, l]));
    let flags = u32::from_le_bytes(flags);
    let operation = match (kind, flags) {
        (abi::DISCARD_RANGE, 0) => Operation::Discard,
        (abi::WRITE_ZEROES_RANGE, 0) => Operation::WriteZeroes { may_unmap: false },
        (abi::WRITE_ZEROES_RANGE, abi::RANGE_UNMAP) => Operation::WriteZeroes { may_unmap: true },
        _ => return Asked::Refused(abi::STATUS_UNSUPPORTED),
    };
    let fits = sectors <= abi::RANGE_BYTES_MAX / SECTOR_BYTES;
    match place(disk, operation, sector, sectors).filter(|_| fits) {
        Some(extent) => Asked::Operation { operation, extent, skip: 0 },
        None => Asked::Refused(abi::STATUS_ERROR),
    }
}

/// Returns the extent of a request that the disk can do. It has whole blocks on the disk, and
/// does not change a read-only disk.
fn place(disk: &Disk, operation: Operation, sector: u64, sectors: u64) -> Option<Extent> {
    let block = u64::from(disk.block_bytes) / SECTOR_BYTES;
    let end = sector.checked_add(sectors)?;
    let whole = sectors > 0 && sector.is_multiple_of(block) && sectors.is_multiple_of(block);
    let allowed = operation == Operation::Read || !disk.read_only;
    (whole && allowed && end <= disk.sectors).then_some(Extent { start: sector, end })
}

#[cfg(test)]
mod tests;
