//! The region table: what recovery must know of every region, in pages of 1736 entries.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{
    FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned, transmute_mut,
    transmute_ref,
};

use crate::identifiers::LegIndex;

use super::Id;
use super::block::{self, Block, BlockState, Kind, SECTOR_PAYLOAD_BYTES, Sector};

/// Entries in one sector of a page.
pub const ENTRIES_PER_SECTOR: usize = SECTOR_PAYLOAD_BYTES / 2;
/// Sectors of a page that hold entries: all but the first, which holds the header.
const ENTRY_SECTORS: usize = 7;
/// Entries in a page.
pub const ENTRIES_PER_PAGE: usize = ENTRY_SECTORS * ENTRIES_PER_SECTOR;
const _: () = assert!(ENTRIES_PER_PAGE == 1736);

const DIRTY: u16 = 1 << 8;
const AUTHORITY_SHIFT: u32 = 9;
const AUTHORITY: u16 = 0b111 << AUTHORITY_SHIFT;
const UNSUPPORTED: u16 = 0xF000;

/// One region's persistent state, 16 bits:
///
/// | bits | meaning |
/// | --- | --- |
/// | 0 to 7 | which legs are whole, by slot |
/// | 8 | dirty |
/// | 9 to 11 | slot of the authority |
/// | 12 to 15 | zero |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RegionEntry(pub u16);

impl RegionEntry {
    /// An entry.
    pub const fn new(whole: u8, dirty: bool, authority: LegIndex) -> RegionEntry {
        let dirty = if dirty { DIRTY } else { 0 };
        let authority = (authority.0 as u16) << AUTHORITY_SHIFT;
        RegionEntry(whole as u16 | dirty | (authority & AUTHORITY))
    }

    /// Returns the legs that are whole, a bit for each slot.
    pub const fn whole(self) -> u8 {
        self.0 as u8
    }

    /// Returns true if this leg is whole.
    pub const fn is_whole(self, leg: LegIndex) -> bool {
        leg.0 < 8 && (self.0 >> leg.0) & 1 == 1
    }

    /// Returns true if the region is dirty, so that the legs may differ.
    pub const fn is_dirty(self) -> bool {
        self.0 & DIRTY != 0
    }

    /// The leg that decides the region at recovery. Means nothing in a clean region.
    pub const fn authority(self) -> LegIndex {
        LegIndex(((self.0 & AUTHORITY) >> AUTHORITY_SHIFT) as u8)
    }

    /// The same with these legs whole.
    pub const fn with_whole(self, whole: u8) -> RegionEntry {
        RegionEntry((self.0 & !0xFF) | whole as u16)
    }

    /// The same, dirty under this authority.
    pub const fn with_authority(self, authority: LegIndex) -> RegionEntry {
        RegionEntry::new(self.whole(), true, authority)
    }

    /// The same, clean; the authority is cleared with the mark, so that equal states have
    /// equal bits.
    pub const fn cleaned(self) -> RegionEntry {
        RegionEntry(self.whole() as u16)
    }

    /// Returns true if this version knows every bit that is set.
    pub const fn is_supported(self) -> bool {
        self.0 & UNSUPPORTED == 0
    }
}

/// The header of a page, beside its sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageHeader {
    /// Its number in the table, from zero.
    pub page: u32,
    /// The generation it was written in.
    pub generation: Id,
    /// The volume's highest join epoch when it was written: of a leg that joined later it
    /// says nothing, that is, not whole.
    pub join_epoch: u64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    page: U32,
    reserved: U32,
    generation: Id,
    join_epoch: U64,
    unused: [u8; 464],
}
const _: () = assert!(size_of::<RawHeader>() == SECTOR_PAYLOAD_BYTES);

type RawEntries = [U16; ENTRIES_PER_SECTOR];
const _: () = assert!(size_of::<RawEntries>() == SECTOR_PAYLOAD_BYTES);

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawPage {
    header: Sector<RawHeader>,
    entries: [Sector<RawEntries>; ENTRY_SECTORS],
}
const _: () = assert!(size_of::<RawPage>() == block::BLOCK_BYTES);

/// The reason why a slot of a page holds nothing to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// Never written.
    #[error("the page was never written")]
    Blank,
    /// A write that was cut in two, hence never durable: to be ignored.
    #[error("the page's last write (sequence {newest}) was interrupted")]
    Torn {
        /// The highest sequence seen.
        newest: u64,
    },
    /// Damaged: it may have held what nothing else holds.
    #[error("the page is damaged")]
    Damaged {
        /// The highest sequence among its valid sectors.
        newest: Option<u64>,
    },
    /// Intact, but another page's: a fault in whoever wrote it.
    #[error("the page says it is page {found}, not page {expected}")]
    WrongPage {
        /// The number asked for.
        expected: u32,
        /// The number found.
        found: u32,
    },
    /// Intact, but with bits this version does not know.
    #[error(
        "entry {index} of page {page} is {entry:#06x}, with bits this version of hemi does not \
         know; use a newer hemi"
    )]
    Unsupported {
        /// The page.
        page: u32,
        /// The entry's index in the page.
        index: u32,
        /// The entry.
        entry: u16,
    },
}

/// A valid page, still in its block.
#[derive(Clone, Copy)]
pub struct Page<'a> {
    raw: &'a RawPage,
    sequence: u64,
}

/// Fills in and seals a page: [`fill`], then [`seal`].
pub fn encode(
    block: &mut Block,
    address: u64,
    volume: Id,
    sequence: u64,
    header: &PageHeader,
    entries: &[RegionEntry],
) {
    fill(block, header, entries);
    seal(block, address, volume, sequence);
}

/// Fills in a page that is still to be sealed.
///
/// Entries past the last given are zero; of more than [`ENTRIES_PER_PAGE`] only the first are
/// taken.
pub fn fill(block: &mut Block, header: &PageHeader, entries: &[RegionEntry]) {
    let raw: &mut RawPage = transmute_mut!(block);
    raw.zero();
    raw.header.payload.page = U32::new(header.page);
    raw.header.payload.generation = header.generation;
    raw.header.payload.join_epoch = U64::new(header.join_epoch);
    // A sector at a time: copying within one is a few instructions.
    for (sector, entries) in raw.entries.iter_mut().zip(entries.chunks(ENTRIES_PER_SECTOR)) {
        for (slot, entry) in sector.payload.iter_mut().zip(entries) {
            slot.set(entry.0);
        }
    }
}

/// Seals a page that is filled in; sealing it again changes nothing.
///
/// `address` is the slot's on the leg ([`super::Layout::page_address`]), `volume` the
/// volume's id, `sequence` as in [`block::seal`].
pub fn seal(block: &mut Block, address: u64, volume: Id, sequence: u64) {
    block::seal(block, Kind::PAGE, address, volume, sequence);
}

/// Returns the entries of a page that was filled in, sealed or not.
pub fn entries(block: &Block) -> impl Iterator<Item = RegionEntry> {
    entries_of(transmute_ref!(block))
}

/// Returns the entry at a place below [`ENTRIES_PER_PAGE`] of a page that was filled in, sealed or
/// not.
pub fn entry(block: &Block, place: usize) -> RegionEntry {
    let raw: &RawPage = transmute_ref!(block);
    let sector = &raw.entries[place / ENTRIES_PER_SECTOR];
    RegionEntry(sector.payload[place % ENTRIES_PER_SECTOR].get())
}

fn entries_of(raw: &RawPage) -> impl Iterator<Item = RegionEntry> {
    let sectors = raw.entries.iter();
    sectors.flat_map(|sector| &sector.payload).map(|entry| RegionEntry(entry.get()))
}

/// Judges a slot of page number `page`; `address` and `volume` as in [`seal`].
///
/// # Errors
/// See [`PageError`].
pub fn open(block: &Block, page: u32, address: u64, volume: Id) -> Result<Page<'_>, PageError> {
    let sequence = match block::open(block, Kind::PAGE, address, volume) {
        BlockState::Valid { sequence } => sequence,
        BlockState::Blank => return Err(PageError::Blank),
        BlockState::Torn { newest } => return Err(PageError::Torn { newest }),
        BlockState::Damaged { newest } => return Err(PageError::Damaged { newest }),
    };
    let opened = Page { raw: transmute_ref!(block), sequence };
    let found = opened.header().page;
    if found != page {
        return Err(PageError::WrongPage { expected: page, found });
    }
    match opened.entries().enumerate().find(|(_, entry)| !entry.is_supported()) {
        None => Ok(opened),
        Some((index, entry)) => {
            Err(PageError::Unsupported { page, index: index as u32, entry: entry.0 })
        }
    }
}

impl<'a> Page<'a> {
    /// The sequence it was written with.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns its header.
    pub fn header(&self) -> PageHeader {
        let header = &self.raw.header.payload;
        PageHeader {
            page: header.page.get(),
            generation: header.generation,
            join_epoch: header.join_epoch.get(),
        }
    }

    /// All [`ENTRIES_PER_PAGE`] entries, those past the last region included.
    pub fn entries(&self) -> impl Iterator<Item = RegionEntry> + 'a {
        entries_of(self.raw)
    }
}
