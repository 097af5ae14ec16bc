//! Growth: a closed volume gets more regions behind those that it has.
//!
//! The data stays where it is, so the region table has to fit in front of it. What is written does not
//! count until a superblock names the new size: pages first, superblocks last, each durable before the
//! next. A growth cut short leaves the old size, or the new one on some legs. Those without it look as if
//! they had missed the close, and are brought up to date by the others.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::Opening;
use crate::format::{
    BLOCK_BYTES, Block, Layout, LayoutError, Membership, RegionEntry, Superblock, page,
};
use crate::identifiers::{LEGS_MAX, LegIndex};

/// The growth of a volume: the blocks to write.
pub struct Growth {
    /// The layout that the volume will have.
    pub layout: Layout,
    /// Blocks to write, in steps. All of a step is durable on every leg before the next is begun.
    pub steps: Vec<Vec<LegWrite>>,
}

/// A block of one leg's metadata.
pub struct LegWrite {
    /// The leg.
    pub leg: LegIndex,
    /// Its byte address there.
    pub address: u64,
    /// Its content.
    pub block: Box<Block>,
}

/// A reason why a volume cannot grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrowthError {
    /// The volume was not closed.
    #[error("the volume was not closed: serve it, and stop it")]
    NotClosed,
    /// A leg missed the close.
    #[error("leg {} missed the last close: serve the volume until it is healthy, and stop it", .0.0)]
    Doubted(LegIndex),
    /// A leg that is in is absent.
    #[error("leg {} is not there: all legs that are in have to be", .0.0)]
    Absent(LegIndex),
    /// The volume has that size already, or a larger one.
    #[error("the volume has {bytes} bytes, and {asked} are no more than that: it does not shrink")]
    NotLarger {
        /// Its size.
        bytes: u64,
        /// The size asked for.
        asked: u64,
    },
    /// No volume has such a size with regions as large as these.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The region table would reach into the data.
    #[error(
        "a volume of {asked} bytes has a region table that does not fit before the data: this one \
         can grow to {most} bytes"
    )]
    NoRoom {
        /// The size asked for.
        asked: u64,
        /// The largest that fits.
        most: u64,
    },
}

/// Returns the largest size in bytes that a volume of this layout can grow to, whatever the size of its legs.
pub fn largest(layout: &Layout) -> u64 {
    let fits = |bytes: u64| {
        Layout::new(bytes, layout.region_bytes())
            .is_ok_and(|grown| grown.data_offset() == layout.data_offset())
    };
    // The number of whole regions for which it holds. It holds for the present ones.
    let (mut most, mut end) = (layout.volume_bytes() / layout.region_bytes(), 1 << 25);
    while end - most > 1 {
        let middle = most.midpoint(end);
        if fits(middle * layout.region_bytes()) {
            most = middle;
        } else {
            end = middle;
        }
    }
    (most * layout.region_bytes()).max(layout.volume_bytes())
}

/// Works out how a volume grows to `volume_bytes`. `whole` has a bit for each slot: these legs are alike in
/// the new regions, and their content there becomes the volume's. The other legs are filled from them.
///
/// # Errors
/// [`GrowthError`].
///
/// # Panics
/// If `whole` has no leg that is in.
pub fn grow(opening: &Opening, volume_bytes: u64, whole: u8) -> Result<Growth, GrowthError> {
    let superblock = &opening.superblock;
    let old = superblock.layout;
    if !opening.clean {
        return Err(GrowthError::NotClosed);
    }
    let legs = || (0..LEGS_MAX as u8).map(LegIndex);
    let is_in = |leg: &LegIndex| superblock.legs[leg.index()].state == Membership::In;
    if let Some(leg) = legs().filter(is_in).find(|leg| opening.doubted & leg.bit() != 0) {
        return Err(GrowthError::Doubted(leg));
    }
    if let Some(leg) = legs().filter(is_in).find(|leg| !opening.slots.contains(leg)) {
        return Err(GrowthError::Absent(leg));
    }
    let layout = grown(&old, volume_bytes)?;
    let in_mask = legs().filter(is_in).fold(0, |mask, leg| mask | leg.bit());
    assert!(whole & in_mask != 0, "a region has a leg that is whole");
    let writer = Writer {
        opening,
        layout,
        entry: RegionEntry::new(whole & in_mask, false, LegIndex(0)),
        legs: legs().filter(is_in).collect(),
    };
    let first_new = old.page_count();
    let mut steps = Vec::new();
    steps.push((first_new..layout.page_count()).flat_map(|page| writer.new_page(page)).collect());
    // The last page gets more entries. Until then those behind its last region mean nothing.
    steps.push(writer.longer_page(first_new - 1));
    for step in 0..2 {
        steps.push(writer.superblocks(step));
    }
    Ok(Growth { layout, steps })
}

/// Returns the layout of a volume that has grown to this size, whatever its legs hold.
///
/// # Errors
/// [`GrowthError::NotLarger`], [`GrowthError::Layout`] or [`GrowthError::NoRoom`].
pub fn grown(old: &Layout, volume_bytes: u64) -> Result<Layout, GrowthError> {
    if volume_bytes <= old.volume_bytes() {
        return Err(GrowthError::NotLarger { bytes: old.volume_bytes(), asked: volume_bytes });
    }
    let layout = Layout::new(volume_bytes, old.region_bytes())?;
    if layout.data_offset() != old.data_offset() {
        return Err(GrowthError::NoRoom { asked: volume_bytes, most: largest(old) });
    }
    Ok(layout)
}

struct Writer<'a> {
    opening: &'a Opening,
    layout: Layout,
    /// The entry of every new region.
    entry: RegionEntry,
    legs: Vec<LegIndex>,
}

impl Writer<'_> {
    /// Returns both slots of a page that only new regions are in, for every leg.
    fn new_page(&self, page: u32) -> Vec<LegWrite> {
        let entries = [self.entry; page::ENTRIES_PER_PAGE];
        let entries = &entries[..self.layout.page_regions(page).len()];
        let both = self.legs.iter().flat_map(|leg| [(*leg, 0), (*leg, 1)]);
        both.map(|(leg, slot)| self.page(leg, page, slot, u64::from(slot) + 1, entries)).collect()
    }

    /// Returns the page that the old regions end in, with the new ones behind them.
    fn longer_page(&self, page: u32) -> Vec<LegWrite> {
        let regions = self.layout.page_regions(page);
        let known = &self.opening.table[regions.start as usize..];
        let mut entries = known.to_vec();
        let old = self.opening.superblock.layout;
        if let Some(last) = entries.last_mut()
            && !old.volume_bytes().is_multiple_of(old.region_bytes())
        {
            *last = longer(*last, self.entry.whole());
        }
        entries.resize(regions.len(), self.entry);
        let state = &self.opening.objects[page as usize];
        let sequence = state.sequence + 1;
        let slot = |leg: &LegIndex| 1 - (state.slot[leg.index()] & 1);
        self.legs.iter().map(|leg| self.page(*leg, page, slot(leg), sequence, &entries)).collect()
    }

    fn page(
        &self,
        leg: LegIndex,
        page: u32,
        slot: u8,
        sequence: u64,
        entries: &[RegionEntry],
    ) -> LegWrite {
        let superblock = &self.opening.superblock;
        let header = page::PageHeader {
            page,
            generation: superblock.generation,
            join_epoch: superblock.join_epoch,
        };
        let address = self.layout.page_address(page, slot);
        let mut block = Box::new([0; BLOCK_BYTES]);
        page::encode(&mut block, address, superblock.volume_id, sequence, &header, entries);
        LegWrite { leg, address, block }
    }

    /// Returns every leg's superblock with the new size: first in the slot that does not hold the newest,
    /// then in the other.
    fn superblocks(&self, step: u8) -> Vec<LegWrite> {
        let object = self.opening.superblock.layout.page_count() as usize;
        let state = &self.opening.objects[object];
        let sequence = state.sequence + 1 + u64::from(step);
        let write = |leg: &LegIndex| {
            let slot = (state.slot[leg.index()] ^ 1 ^ step) & 1;
            let mut block = Box::new([0; BLOCK_BYTES]);
            let superblock = Superblock {
                leg: *leg,
                layout: self.layout,
                sequence,
                ..self.opening.superblock.clone()
            };
            superblock.encode(&mut block, slot);
            LegWrite { leg: *leg, address: Layout::superblock_address(slot), block }
        };
        self.legs.iter().map(write).collect()
    }
}

/// Returns the new entry of a region that was short. In its new part the legs of `whole` are alike. Only
/// legs that are alike in both parts stay whole.
fn longer(entry: RegionEntry, whole: u8) -> RegionEntry {
    let decides = match entry.is_dirty() {
        true => entry.authority().bit(),
        false => entry.whole(),
    };
    let alike = decides & whole;
    // One leg is always like itself.
    let one = decides & decides.wrapping_neg();
    entry.with_whole(if alike == 0 { one } else { alike })
}
