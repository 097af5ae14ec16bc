//! Reads a leg's region table.

use hemi_engine::format::page::{self, PageError};
use hemi_engine::format::{BLOCK_BYTES, Block, Membership, RegionEntry, Superblock, block};
use hemi_engine::identifiers::LegIndex;

use super::{
    Authority, BAD_SLOTS_MAX, BadSlot, NotWhole, Runs, Slot, SlotState, TableView, read_block,
};
use hemi_io::blocking::BlockingLeg;

/// Pages read at once, both slots of each: 1 MiB.
const PAGES_AT_ONCE: u32 = 128;

/// The results gathered while pages are read.
struct TableReader<'a> {
    superblock: &'a Superblock,
    view: TableView,
    authorities: [u64; 8],
    not_whole: [Runs; 8],
}

pub(super) fn read_table(leg: &dyn BlockingLeg, superblock: &Superblock) -> TableView {
    let layout = &superblock.layout;
    let mut reader = TableReader {
        superblock,
        view: TableView {
            regions: layout.region_count(),
            pages: layout.page_count(),
            ..TableView::default()
        },
        authorities: [0; 8],
        not_whole: Default::default(),
    };
    let mut bytes = vec![0; PAGES_AT_ONCE as usize * 2 * BLOCK_BYTES];
    for start in (0..layout.page_count()).step_by(PAGES_AT_ONCE as usize) {
        let end = layout.page_count().min(start + PAGES_AT_ONCE);
        let wanted = (end - start) as usize * 2 * BLOCK_BYTES;
        let together = leg.read_at(layout.page_address(start, 0), &mut bytes[..wanted]).is_ok();
        for (page, blocks) in (start..end).zip(bytes.chunks_exact(2 * BLOCK_BYTES)) {
            let slots = [0u8, 1].map(|slot| {
                if together {
                    let at = usize::from(slot) * BLOCK_BYTES;
                    let mut block = block::blank();
                    block.copy_from_slice(&blocks[at..at + BLOCK_BYTES]);
                    return Ok(block);
                }
                // One of many could not be read, so each is read alone.
                read_block(leg, layout.page_address(page, slot))
            });
            reader.page(page, slots);
        }
    }
    reader.finish()
}

impl TableReader<'_> {
    fn page(&mut self, page: u32, slots: [Result<Block, Slot>; 2]) {
        let layout = &self.superblock.layout;
        let mut newest: Option<page::Page<'_>> = None;
        let mut highest_bad = None;
        for (slot, block) in (0u8..).zip(&slots) {
            let found = match block {
                Err(unreadable) => unreadable.clone(),
                Ok(block) => {
                    let address = layout.page_address(page, slot);
                    match page::open(block, page, address, self.superblock.volume_id) {
                        Ok(opened) => {
                            if newest.is_none_or(|newest| newest.sequence() < opened.sequence()) {
                                newest = Some(opened);
                            }
                            Slot::valid(opened.sequence())
                        }
                        Err(error) => page_slot(error),
                    }
                }
            };
            self.count(&found);
            if !matches!(found.state, SlotState::Valid | SlotState::Torn) {
                // Its sequence is unknown, so it may have been the newest.
                highest_bad = highest_bad.max(Some(found.sequence.unwrap_or(u64::MAX)));
                if self.view.bad_slots.len() < BAD_SLOTS_MAX {
                    self.view.bad_slots.push(BadSlot { page, slot, found });
                }
            }
        }
        let regions = layout.page_regions(page);
        let Some(newest) = newest else {
            self.view.unknown.push_range(regions.start.into(), regions.end.into());
            return;
        };
        if highest_bad.is_some_and(|sequence| sequence >= newest.sequence()) {
            self.view.doubtful.push_range(regions.start.into(), regions.end.into());
        }
        let join_epoch = newest.header().join_epoch;
        for (region, entry) in regions.zip(newest.entries()) {
            self.region(region, entry, join_epoch);
        }
    }

    fn region(&mut self, region: u32, entry: RegionEntry, join_epoch: u64) {
        if entry.is_dirty() {
            self.view.dirty.push(region.into());
            self.authorities[entry.authority().index()] += 1;
        }
        for (record, leg) in self.superblock.legs.iter().zip(0u8..) {
            // A page older than the leg's joining says nothing about it.
            let whole = entry.is_whole(LegIndex(leg)) && join_epoch >= record.join_epoch;
            if record.state != Membership::Empty && !whole {
                self.not_whole[usize::from(leg)].push(region.into());
            }
        }
    }

    fn count(&mut self, slot: &Slot) {
        let counts = &mut self.view.slots;
        let count = match slot.state {
            SlotState::Valid => &mut counts.valid,
            SlotState::Blank => &mut counts.blank,
            SlotState::Torn => &mut counts.torn,
            SlotState::Damaged => &mut counts.damaged,
            SlotState::Unreadable => &mut counts.unreadable,
            SlotState::Refused => &mut counts.refused,
        };
        *count += 1;
    }

    fn finish(mut self) -> TableView {
        for (leg, regions) in (0u8..).zip(self.not_whole) {
            if regions.count() > 0 {
                self.view.not_whole.push(NotWhole { leg, regions });
            }
        }
        for (leg, regions) in (0u8..).zip(self.authorities) {
            if regions > 0 {
                self.view.authorities.push(Authority { leg, regions });
            }
        }
        self.view
    }
}

fn page_slot(error: PageError) -> Slot {
    let (state, sequence) = match error {
        PageError::Blank => (SlotState::Blank, None),
        PageError::Torn { newest } => (SlotState::Torn, Some(newest)),
        PageError::Damaged { newest } => (SlotState::Damaged, newest),
        PageError::WrongPage { .. } | PageError::Unsupported { .. } => (SlotState::Refused, None),
    };
    Slot::bad(state, sequence, error)
}
