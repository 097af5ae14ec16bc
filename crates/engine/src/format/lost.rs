//! The lost list: extents whose newest acknowledged data no leg holds any more.
//!
//! They answer EIO until they are rewritten, across restarts, so the list is kept on every
//! leg, in two slots of one block each.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{
    FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned, transmute_mut,
    transmute_ref,
};

use hemi_units::Extent;

use super::Id;
use super::block::{self, Block, BlockState, Kind, SECTOR_PAYLOAD_BYTES, Sector};

/// 16-byte cells in a sector: an extent each, but for the two that hold the header.
const CELLS_PER_SECTOR: usize = 31;
const HEADER_CELLS: usize = 2;
const FIRST_SECTOR_EXTENTS: usize = CELLS_PER_SECTOR - HEADER_CELLS;
const OTHER_SECTORS: usize = 7;

/// Most extents a list holds (246). Whoever has more merges neighbours, which loses the data
/// between them but never serves stale data.
pub const LOST_EXTENTS_MAX: usize = FIRST_SECTOR_EXTENTS + OTHER_SECTORS * CELLS_PER_SECTOR;
const _: () = assert!(LOST_EXTENTS_MAX == 246);

/// The header of a list, beside its sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostHeader {
    /// The generation it was written in.
    pub generation: Id,
    /// The volume's highest join epoch when it was written.
    pub join_epoch: u64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawExtent {
    start: U64,
    end: U64,
}
const _: () = assert!(size_of::<RawExtent>() * CELLS_PER_SECTOR == SECTOR_PAYLOAD_BYTES);

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawFirst {
    count: U32,
    reserved: U32,
    generation: Id,
    join_epoch: U64,
    extents: [RawExtent; FIRST_SECTOR_EXTENTS],
}
const _: () = assert!(size_of::<RawFirst>() == SECTOR_PAYLOAD_BYTES);

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawLost {
    first: Sector<RawFirst>,
    others: [Sector<[RawExtent; CELLS_PER_SECTOR]>; OTHER_SECTORS],
}
const _: () = assert!(size_of::<RawLost>() == block::BLOCK_BYTES);

/// The reason why a list cannot be written, or why a slot holds none to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LostError {
    /// More extents than [`LOST_EXTENTS_MAX`].
    #[error("the list of lost extents names {count} extents, more than 246")]
    TooMany {
        /// Their number.
        count: usize,
    },
    /// Extents that are empty, out of order, overlapping or beyond the volume.
    #[error(
        "lost extent {index} (sectors {start} to {end}) is empty, out of order or beyond the volume"
    )]
    BadExtent {
        /// Its index in the list.
        index: usize,
        /// Its first sector.
        start: u64,
        /// One past its last sector.
        end: u64,
    },
    /// Never written.
    #[error("the list of lost extents was never written")]
    Blank,
    /// A write that was cut in two, hence never durable: to be ignored.
    #[error("the last write of the list of lost extents (sequence {newest}) was interrupted")]
    Torn {
        /// The highest sequence seen.
        newest: u64,
    },
    /// Damaged.
    #[error("the list of lost extents is damaged")]
    Damaged {
        /// The highest sequence among its valid sectors.
        newest: Option<u64>,
    },
}

/// A valid list, still in its block.
#[derive(Clone, Copy)]
pub struct LostList<'a> {
    raw: &'a RawLost,
    sequence: u64,
}

/// Checks that extents are not empty, sorted, disjoint and within the volume.
fn check(extents: impl Iterator<Item = Extent>, volume_sectors: u64) -> Result<(), LostError> {
    let mut previous = 0;
    for (index, Extent { start, end }) in extents.enumerate() {
        if start < previous || start >= end || end > volume_sectors {
            return Err(LostError::BadExtent { index, start, end });
        }
        previous = end;
    }
    Ok(())
}

/// Fills in and seals a list of sorted, disjoint extents.
///
/// `address` is the slot's on the leg ([`super::Layout::lost_address`]), `volume` the
/// volume's id, `volume_sectors` its size.
///
/// # Errors
/// [`LostError::TooMany`], [`LostError::BadExtent`]; the block is then unspecified.
pub fn encode(
    block: &mut Block,
    address: u64,
    volume: Id,
    sequence: u64,
    header: &LostHeader,
    extents: &[Extent],
    volume_sectors: u64,
) -> Result<(), LostError> {
    if extents.len() > LOST_EXTENTS_MAX {
        return Err(LostError::TooMany { count: extents.len() });
    }
    check(extents.iter().copied(), volume_sectors)?;
    let raw: &mut RawLost = transmute_mut!(block);
    raw.zero();
    let first = &mut raw.first.payload;
    first.count = U32::new(extents.len() as u32);
    first.generation = header.generation;
    first.join_epoch = U64::new(header.join_epoch);
    let others = raw.others.iter_mut().flat_map(|sector| &mut sector.payload);
    for (cell, extent) in first.extents.iter_mut().chain(others).zip(extents) {
        *cell = RawExtent { start: U64::new(extent.start), end: U64::new(extent.end) };
    }
    block::seal(block, Kind::LOST, address, volume, sequence);
    Ok(())
}

/// Judges a slot of the list; the arguments are those of [`encode`].
///
/// # Errors
/// See [`LostError`].
pub fn open(
    block: &Block,
    address: u64,
    volume: Id,
    volume_sectors: u64,
) -> Result<LostList<'_>, LostError> {
    let sequence = match block::open(block, Kind::LOST, address, volume) {
        BlockState::Valid { sequence } => sequence,
        BlockState::Blank => return Err(LostError::Blank),
        BlockState::Torn { newest } => return Err(LostError::Torn { newest }),
        BlockState::Damaged { newest } => return Err(LostError::Damaged { newest }),
    };
    let list = LostList { raw: transmute_ref!(block), sequence };
    if list.len() > LOST_EXTENTS_MAX {
        return Err(LostError::TooMany { count: list.len() });
    }
    check(list.extents(), volume_sectors)?;
    Ok(list)
}

impl<'a> LostList<'a> {
    /// The sequence it was written with.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns its header.
    pub fn header(&self) -> LostHeader {
        let first = &self.raw.first.payload;
        LostHeader { generation: first.generation, join_epoch: first.join_epoch.get() }
    }

    /// Returns the number of extents it names.
    pub fn len(&self) -> usize {
        self.raw.first.payload.count.get() as usize
    }

    /// Returns true if nothing is lost.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The extents, in volume sectors: sorted, disjoint, within the volume.
    pub fn extents(&self) -> impl Iterator<Item = Extent> + 'a {
        let others = self.raw.others.iter().flat_map(|sector| &sector.payload);
        let cells = self.raw.first.payload.extents.iter().chain(others).take(self.len());
        cells.map(|cell| Extent { start: cell.start.get(), end: cell.end.get() })
    }
}
