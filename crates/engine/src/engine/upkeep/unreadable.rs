//! A debt whose data no leg can read: the only fresh leg's medium fails there.
//!
//! The drain cannot pay it and must not give up on the rest: a failed read is tried again in
//! halves until the bad blocks stand alone, on each fresh leg in turn, and a block that stays
//! unreadable is recorded as lost. From then on reads of it say so (`EIO`) until it has been
//! rewritten, on whichever leg; once the record is durable the debt is written off.

use crate::engine::state::debt::{Since, Source};
use crate::engine::{Engine, TICK};
use crate::identifiers::{LEGS_MAX, LegIndex};
use crate::io::Buffers;
use hemi_units::{Extent, MILLISECOND};

/// Reads of one block that fail on every fresh leg before it counts as lost.
const TRIES: u8 = 8;
/// Before the next try of a block, and of a half of something larger.
const BLOCK_RETRY: u64 = 20 * TICK;
const HALF_RETRY: u64 = 50 * MILLISECOND;

impl<B: Buffers> Engine<B> {
    /// The read half of a debt failed on a leg's medium: it is owed again, in parts.
    pub(super) fn owe_unread(
        &mut self,
        leg: usize,
        extent: Extent,
        since: Since,
        repair: bool,
        tries: u8,
    ) {
        let block = self.volume.block_sectors();
        if extent.sectors() > block {
            self.owe_halves(leg, extent, since, repair, block);
            return;
        }
        let until = self.clock.now() + BLOCK_RETRY;
        self.owe_beneath(leg, extent, Source::Leg, since, until, repair);
        let tries = tries.saturating_add(1);
        self.legs[leg].debts.set_tries(extent, tries);
        let fresh = self.fresh_legs(leg, extent);
        let silent = fresh & !self.answering() != 0;
        let count = fresh.count_ones().max(1) as u8;
        if tries >= TRIES.saturating_mul(count) && !silent && !self.lost.holds(extent) {
            self.note_lost(extent);
        }
    }

    fn owe_halves(&mut self, leg: usize, extent: Extent, since: Since, repair: bool, block: u64) {
        let half = (extent.sectors() / 2).next_multiple_of(block);
        let middle = (extent.start + half).min(extent.end);
        let until = self.clock.now() + HALF_RETRY;
        let region = self.regions.of_sector(extent.start);
        let record = self.regions.slot(region).expect("a region with lacks has a record");
        let front = Extent { start: extent.start, end: middle };
        let back = Extent { start: middle, end: extent.end };
        if back.is_empty() {
            self.owe_beneath(leg, front, Source::Leg, since, until, repair);
            return;
        }
        self.regions.adjust_lacks(record, leg, 1);
        self.owe_beneath(leg, front, Source::Leg, since, until, repair);
        if self.regions.is_stale(LegIndex(leg as u8), region) {
            // No room: all of the region is owed instead.
            self.regions.adjust_lacks(record, leg, -1);
        } else {
            self.owe_beneath(leg, back, Source::Leg, since, until, repair);
        }
    }

    /// The legs other than one that are fresh for all of an extent, answering or not, as a mask.
    fn fresh_legs(&self, leg: usize, extent: Extent) -> u8 {
        let fresh = |other: usize| {
            other != leg
                && self.legs[other].is_member()
                && !self.legs[other].watch.is_removed()
                && self.fresh_prefix(other, extent) >= extent.sectors()
        };
        (0..LEGS_MAX).filter(|&other| fresh(other)).fold(0, |mask, other| mask | 1 << other)
    }

    fn answering(&self) -> u8 {
        (0..LEGS_MAX).filter(|&leg| self.legs[leg].answers()).fold(0, |mask, leg| mask | 1 << leg)
    }

    /// Returns where to read a debt that could not be read before: each fresh leg in turn.
    pub(super) fn next_source(&self, leg: usize, extent: Extent, tries: u8) -> Option<usize> {
        let sources = self.fresh_legs(leg, extent) & self.answering();
        let count = sources.count_ones() as usize;
        let turn = usize::from(tries).checked_rem(count)?;
        (0..LEGS_MAX).filter(|&other| sources >> other & 1 == 1).nth(turn)
    }

    /// Returns true if a debt is recorded as lost, durably on the leg that owes it: nothing more can
    /// be done about it.
    pub(super) fn is_written_off(&mut self, leg: usize, extent: Extent, tries: u8) -> bool {
        if tries < TRIES || !self.lost.holds(extent) {
            return false;
        }
        let index = LegIndex(leg as u8);
        if self.regions.metadata().knows_lost(index) {
            return true;
        }
        self.request_lost_list(index);
        false
    }

    /// Drops a debt that is recorded as lost.
    pub(super) fn write_off(&mut self, leg: usize, slot: u32) {
        let debt = self.legs[leg].debts.take(slot);
        debt.source.release(&mut self.buffers);
        let region = self.regions.of_sector(debt.extent.start);
        let record = self.regions.slot(region).expect("a region with debts has a record");
        self.regions.adjust_lacks(record, leg, -1);
        self.consider_complete(record, leg);
    }
}
