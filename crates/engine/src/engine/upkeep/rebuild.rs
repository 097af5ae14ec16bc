//! Regions owed as a whole: taken up as debts, and complete in the end.

use crate::engine::Engine;
use crate::engine::state::debt::{Debt, Since, Source};
use crate::engine::state::slab::Key;
use crate::identifiers::LegIndex;
use crate::io::Buffers;
use crate::planted::{self, Planted};
use hemi_units::SECOND;

/// Exposure from which owed regions yield to newer debts …
const PRESSED_PERMILLE: u64 = 500;
/// … and how often one is taken up all the same.
const REGION_INTERVAL: u64 = SECOND / 2;

impl<B: Buffers> Engine<B> {
    /// Turns regions owed as a whole into exact debts, where the sweep stands, enough to keep
    /// the window full. Under pressure from newer debts they still get a share: one in so
    /// much time.
    pub(super) fn take_up_regions(&mut self, leg: usize) {
        let index = LegIndex(leg as u8);
        let enough = u64::from(self.settings.leg_window) * u64::from(self.settings.drain_bytes);
        for _ in 0..self.settings.leg_window {
            let state = &self.legs[leg];
            // What has been taken up may wait for a leg that is silent: it holds up no other.
            let held_up = planted::is(Planted::RebuildHeldUp);
            let payable = match held_up {
                true => state.debts.rebuild_bytes(),
                false => state.debts.payable_rebuild_bytes(),
            };
            if self.regions.stale_count(index) == 0
                || state.draining.rebuilding() > 0 && payable >= enough
                || !state.debts.has_room(self.settings.limits.region_pieces)
            {
                return;
            }
            let pressed = self.pressure_permille() >= PRESSED_PERMILLE;
            let waits_alone = payable == 0 && state.debts.rebuild_bytes() > 0;
            let under_way =
                state.draining.rebuilding() > 0 && (!waits_alone || state.load.rebuild() > 0);
            if pressed
                && (under_way || state.draining.took_up_within(REGION_INTERVAL, self.clock.now()))
            {
                return;
            }
            let Some(region) = self.next_region_owed(leg) else { return };
            let Some(record) = self.record(region) else { return };
            // Writes still out on it are held; what they cover is paid after them. Operations
            // not yet acknowledged were not sent to this leg: they are in the debt, which is
            // read from a fresh leg after they are on it.
            let extent = self.regions.extent(region);
            self.legs[leg].draining.note_taken_up(self.clock.now());
            self.begin_rebuilding(leg, record);
            self.regions.clear_stale(index, region);
            let mut debt = Debt::new(extent, Source::Leg, Since::REBUILD, Key::NONE);
            debt.compare = self.regions.take_comparable(index, region);
            self.legs[leg].debts.add(debt);
            self.regions.adjust_lacks(record, leg, 1);
        }
    }

    /// Returns the region to rebuild next: one that somebody waits for, else by the sweep. What only
    /// silent legs have is passed over.
    fn next_region_owed(&mut self, leg: usize) -> Option<u32> {
        let index = LegIndex(leg as u8);
        let waited_for = self
            .regions
            .regions_to_move(self.settings.limits.moves_looked_at)
            .find(|&region| self.regions.is_stale(index, region) && self.has_source(leg, region));
        if waited_for.is_some() {
            return waited_for;
        }
        let mut from = self.regions.of_sector(self.legs[leg].draining.cursor());
        for _ in 0..self.settings.limits.sweep_skips {
            let next = self.regions.next_stale(index, from);
            let region = next.or_else(|| self.regions.next_stale(index, 0))?;
            if self.has_source(leg, region) {
                return Some(region);
            }
            from = region + 1;
        }
        self.legs[leg]
            .draining
            .go_on_from(self.regions.extent(from.min(self.regions.count() - 1)).start);
        None
    }

    /// Returns true if a leg that answers may have something of a region that another owes. What an
    /// authority owes is looked at in any case: if nobody has it, it stands as found.
    fn has_source(&self, leg: usize, region: u32) -> bool {
        let decides = self.regions.decides(LegIndex(leg as u8), region);
        decides
            || planted::is(Planted::RebuildHeldUp)
            || self.legs.slots().any(|other| {
                let state = &self.legs[other];
                other != leg
                    && state.is_member()
                    && state.answers()
                    && !self.regions.is_stale(state.index, region)
            })
    }

    pub(in crate::engine) fn begin_rebuilding(&mut self, leg: usize, record: u32) {
        if self.regions.set_rebuilding(record, leg, true) {
            self.legs[leg].draining.begin_rebuilding();
        }
    }

    /// A region is no longer being rebuilt for a leg: it is complete, or owed whole again.
    pub(in crate::engine) fn end_rebuilding(&mut self, leg: usize, record: u32) {
        if self.regions.set_rebuilding(record, leg, false) {
            self.legs[leg].draining.end_rebuilding();
        }
    }

    /// Gives a region's record back if nothing needs it. A debt of a rebuild may have been
    /// superseded by a client's write: with the last lack gone the rebuild is over, too.
    pub(in crate::engine) fn retire_record(&mut self, record: u32) {
        for leg in self.legs.slots() {
            if self.regions.lacks(record, leg) == 0 {
                self.end_rebuilding(leg, record);
            }
        }
        self.regions.retire(record);
    }

    /// A leg has got further in a region: it may have become complete there.
    pub(in crate::engine) fn consider_complete(&mut self, record: u32, leg: usize) {
        let region = self.regions.region_of(record);
        let index = LegIndex(leg as u8);
        if self.regions.lacks(record, leg) > 0 || self.regions.is_stale(index, region) {
            return;
        }
        self.regions.note_complete(record, index);
        self.end_rebuilding(leg, record);
        if !self.regions.is_touched(region) && !self.regions.entry(region).is_whole(index) {
            self.regions.heal(index, region);
        }
        if self.regions.has_waiters(record) {
            self.retry_waiting(record);
        }
        if self.regions.slot(region) == Some(record) {
            self.retire_record(record);
        }
    }
}
