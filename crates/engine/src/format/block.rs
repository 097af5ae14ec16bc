//! Metadata blocks: 4 KiB whose eight 512-byte sectors each certify themselves.
//!
//! A power cut in the middle of a block write leaves some of its sectors new and the others
//! old, never a sector half of each (the promise every drive makes, and what P3 assumes).
//! So a torn block shows eight sectors that are each valid but differ in sequence. Such a
//! write was never reported complete, hence nothing acknowledged depends on it, and the
//! other slot's older block stands: [`BlockState::Torn`] may be ignored.
//!
//! A sector that does not check out is something else: rot, a misdirected or lost write, an
//! unreadable place. The block it belongs to may have been completed and relied upon, so the
//! other slot's older block must not quietly stand in for it: [`BlockState::Damaged`] calls
//! for another leg's copy or for the operator (P7). One checksum over the whole block could
//! not tell the two apart, which is why each sector has its own.
//!
//! The checksum (CRC-32C) also covers what the sector does not store: the block's address on
//! the leg, so that a block written to or read from a wrong place is damage, and the volume's
//! id, so that what an earlier volume left behind is never taken for this one's.

use crc32c::{crc32c, crc32c_append};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute_mut};
use zerocopy::{FromZeros, transmute_ref};

use super::Id;

/// Bytes in a metadata block.
pub const BLOCK_BYTES: usize = 4096;
/// Sectors in a metadata block.
pub const BLOCK_SECTORS: usize = 8;
/// Bytes of a sector that are the owner's: all but the trailer.
pub const SECTOR_PAYLOAD_BYTES: usize = 496;
/// Bytes of a block that are the owner's, in eight pieces.
pub const BLOCK_PAYLOAD_BYTES: usize = BLOCK_SECTORS * SECTOR_PAYLOAD_BYTES;
/// Bytes of a sector its checksum covers: all but the checksum.
const CHECKED_BYTES: usize = 508;

/// The bytes of a metadata block.
pub type Block = [u8; BLOCK_BYTES];

/// The kind of a block: three ASCII letters in every sector's trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind([u8; 3]);

impl Kind {
    /// A superblock.
    pub const SUPERBLOCK: Kind = Kind(*b"HSB");
    /// A page of the region table.
    pub const PAGE: Kind = Kind(*b"RGN");
    /// A list of lost extents.
    pub const LOST: Kind = Kind(*b"LST");
    /// A stamp of a remote leg.
    pub const STAMP: Kind = Kind(*b"STP");
    /// The superblock of a standby.
    pub const STANDBY: Kind = Kind(*b"SBY");

    /// The kind named by three ASCII letters.
    pub const fn new(letters: [u8; 3]) -> Kind {
        Kind(letters)
    }

    /// The trailer's kind field for one sector: sector number, then the letters.
    fn tag(self, sector: usize) -> U32 {
        let [a, b, c] = self.0;
        // Eight sectors: the number fits a byte.
        U32::from_bytes([sector as u8, a, b, c])
    }
}

/// The last 16 bytes of every sector of a block.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Trailer {
    sequence: U64,
    tag: U32,
    crc: U32,
}
const _: () = assert!(size_of::<Trailer>() == 16);

/// A sector: its owner's payload, then the trailer. Owners define their blocks as structs of
/// these, so that the compiler checks the layout.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Sector<Payload> {
    pub(super) payload: Payload,
    pub(super) trailer: Trailer,
}

/// A payload that is all reserved.
pub(super) type Unused = [u8; SECTOR_PAYLOAD_BYTES];
const _: () = assert!(size_of::<Sector<Unused>>() == 512);

/// A sector as the checksum sees it.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct CheckedSector {
    checked: [u8; CHECKED_BYTES],
    crc: U32,
}
const _: () = assert!(size_of::<CheckedSector>() == 512);

type Sectors = [Sector<Unused>; BLOCK_SECTORS];
type CheckedSectors = [CheckedSector; BLOCK_SECTORS];
const _: () = assert!(size_of::<Sectors>() == BLOCK_BYTES);

/// No sequence and no join epoch is this high: counting one for every nanosecond takes three
/// centuries. Beyond it a block is damaged, so that whoever counts on from what was read
/// cannot overflow.
pub const SEQUENCE_END: u64 = 1 << 63;
/// Sequences of blocks. The first write of a block has 1: 0 stands for what was never written.
const SEQUENCES: core::ops::Range<u64> = 1..SEQUENCE_END;

/// The outcome of [`open`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// Every sector is valid and of this one write.
    Valid {
        /// The write's sequence.
        sequence: u64,
    },
    /// Every byte is zero: nothing was ever written here.
    Blank,
    /// Every sector is valid but not all are of one write: a write was cut in two, was never
    /// durable, and may be ignored.
    Torn {
        /// The highest sequence seen; the next write here must be higher.
        newest: u64,
    },
    /// Some sector is not valid: the content is unknown, and may have been durable.
    Damaged {
        /// The highest sequence among the valid sectors, if any is.
        newest: Option<u64>,
    },
}

/// Completes a block whose payloads are filled in: writes the trailer of every sector.
///
/// `address` is the block's first byte on the leg. `volume` is the volume's id, or zeros for
/// a superblock, whose reader does not know it yet. `sequence` must be higher than that of
/// everything written to either slot before, above 0, and below [`SEQUENCE_END`].
pub fn seal(block: &mut Block, kind: Kind, address: u64, volume: Id, sequence: u64) {
    let sectors: &mut Sectors = transmute_mut!(block);
    for (number, sector) in sectors.iter_mut().enumerate() {
        sector.trailer =
            Trailer { sequence: U64::new(sequence), tag: kind.tag(number), crc: U32::ZERO };
    }
    let seed = crc_seed(address, volume);
    let sectors: &mut CheckedSectors = transmute_mut!(block);
    for sector in sectors {
        sector.crc = U32::new(crc32c_append(seed, &sector.checked));
    }
}

/// Judges a block as read from `address`; the arguments are those of [`seal`].
///
/// A place that cannot be read is to be passed as damaged without calling this.
pub fn open(block: &Block, kind: Kind, address: u64, volume: Id) -> BlockState {
    if block.iter().all(|&byte| byte == 0) {
        return BlockState::Blank;
    }
    let seed = crc_seed(address, volume);
    let trailers: &Sectors = transmute_ref!(block);
    let checked: &CheckedSectors = transmute_ref!(block);
    let mut oldest = u64::MAX;
    let mut newest = None;
    let mut damaged = false;
    for (number, (sector, check)) in trailers.iter().zip(checked).enumerate() {
        let valid = sector.trailer.tag == kind.tag(number)
            && SEQUENCES.contains(&sector.trailer.sequence.get())
            && check.crc.get() == crc32c_append(seed, &check.checked);
        if valid {
            let sequence = sector.trailer.sequence.get();
            oldest = oldest.min(sequence);
            newest = newest.max(Some(sequence));
        } else {
            damaged = true;
        }
    }
    match newest {
        Some(newest) if !damaged && newest == oldest => BlockState::Valid { sequence: newest },
        Some(newest) if !damaged => BlockState::Torn { newest },
        newest => BlockState::Damaged { newest },
    }
}

/// The checksum of what a block's sectors are certified with but do not store.
fn crc_seed(address: u64, volume: Id) -> u32 {
    crc32c_append(crc32c(&address.to_le_bytes()), &volume)
}

/// A block of zeros.
pub fn blank() -> Block {
    Block::new_zeroed()
}
