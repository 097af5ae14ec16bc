//! Owing: what a leg does not get now becomes a debt, or all of its region does.

use crate::engine::Engine;
use crate::engine::state::debt::{Debt, Lacked, Since, Source};
use crate::engine::state::slab::Key;
use crate::identifiers::LegIndex;
use crate::io::Buffers;
use crate::marks::Mark;
use crate::planted::{self, Planted};
use hemi_units::{Extent, Instant};

impl<B: Buffers> Engine<B> {
    /// Makes an operation's write a debt of a leg.
    pub(in crate::engine) fn owe(&mut self, operation: u32, leg: usize) {
        let state = self.operations[operation];
        let index = LegIndex(leg as u8);
        let full = self.legs[leg].debts.len() >= self.settings.owed_extents_max as usize;
        if full && !self.must_stay(index, state.region) || !self.make_room(leg, state.region) {
            self.marks.add(Mark::RegionOwed);
            self.owe_without_room(leg, state.region);
            return;
        }
        state.source.retain(&mut self.buffers);
        let key = self.operations.key(operation);
        self.owe_waiting(
            leg,
            Debt::new(state.extent, state.source, Since::at(self.clock.now()), key),
        );
    }

    /// Adds a debt whose write a client still waits for, over whatever the leg owes there: that
    /// is older. Needs room for two, in a region that is not owed as a whole.
    pub(super) fn owe_waiting(&mut self, leg: usize, debt: Debt) {
        let operation = debt.operation.slot;
        let record = self.record_of(operation);
        let carved = self.legs[leg].debts.carve(debt.extent, &mut self.buffers);
        self.regions.adjust_lacks(record, leg, carved.debts);
        self.marks.add_if(carved.superseded, Mark::DebtSuperseded);
        if let Some(since) = carved.since
            && !planted::is(Planted::SupersededForgotten)
            && self.carry(operation, leg, since, carved.sectors)
        {
            self.regions.adjust_lacks(record, leg, 1);
        }
        self.legs[leg].debts.add(debt);
        self.operations.owe(operation, LegIndex(leg as u8));
    }

    /// Returns true if a region's data hangs on this leg: it is the authority; or the authority lost its
    /// cache and is being given back what others have; or the authority's session has dropped with
    /// something there un-flushed. What it has lost is known only when it is back, and until then
    /// what others are fresh for may be all there is of it.
    pub(in crate::engine) fn must_stay(&self, leg: LegIndex, region: u32) -> bool {
        let authority = self.regions.entry(region).authority();
        let is_touched = self.regions.is_touched(region);
        if is_touched && authority == leg {
            return true;
        }
        if is_touched && !self.may_still_have(authority.index(), region) {
            return true;
        }
        self.regions.slot(region).is_some_and(|record| self.regions.is_suspect(record))
            && !self.regions.is_complete(authority, region)
    }

    /// Returns true if a leg's list of debts has room for one more of a region, splits included. Where
    /// data there hangs on this leg it must not owe all of the region: it then owes all of others
    /// instead, which need no place in the list.
    pub(super) fn make_room(&mut self, leg: usize, region: u32) -> bool {
        let index = LegIndex(leg as u8);
        if self.legs[leg].debts.has_room(2) {
            return true;
        }
        if !self.must_stay(index, region) || planted::is(Planted::NoRoomMade) {
            return false;
        }
        let mut at = 0;
        while let Some((_, debt)) = self.legs[leg].debts.first_after(at) {
            let other = self.regions.of_sector(debt.extent.start);
            at = self.regions.extent(other).end;
            if other != region && !self.must_stay(index, other) {
                self.marks.add(Mark::RegionOwed);
                self.owe_region(leg, other);
                if self.legs[leg].debts.has_room(2) {
                    return true;
                }
            }
        }
        false
    }

    /// Makes the leg owe all of a region, since its list has no room for a part of it. A leg that decides the
    /// region gets from the others what they have, as if it had lost its cache; for the rest its content stands.
    pub(super) fn owe_without_room(&mut self, leg: usize, region: u32) {
        self.owe_region(leg, region);
        let decides = self.regions.decides(LegIndex(leg as u8), region);
        if let Some(record) = self.regions.slot(region).filter(|_| decides)
            && !planted::is(Planted::AuthorityUndoubted)
        {
            self.regions.note_cache_lost(record, &self.legs);
            self.regions.want_move(record);
        }
    }

    /// Makes the leg owe all of a region, without copies. Its exact debts there go.
    pub(in crate::engine) fn owe_region(&mut self, leg: usize, region: u32) {
        let index = LegIndex(leg as u8);
        if self.regions.is_stale(index, region) {
            return;
        }
        let extent = self.regions.extent(region);
        let mut dropped = 0i32;
        while let Some((slot, debt)) = self.legs[leg].debts.overlapping(extent) {
            let debt_operation = debt.operation;
            let taken = self.legs[leg].debts.take(slot);
            taken.source.release(&mut self.buffers);
            if debt_operation == Key::NONE {
                dropped += 1;
            } else if self.operations.is_live(debt_operation) {
                self.revisits.look_at_all();
                self.operations.unowe(debt_operation.slot, index);
                dropped += i32::from(self.uncarry(debt_operation.slot, leg));
            }
        }
        if let Some(record) = self.regions.slot(region) {
            self.regions.adjust_lacks(record, leg, -dropped);
            self.end_rebuilding(leg, record);
        }
        self.regions.stop_healing(index, region);
        self.regions.set_stale(index, region);
    }

    /// Lets an operation that is not acknowledged yet stand for acknowledged sectors that a leg has lacked
    /// since `since`. Returns true if it carried nothing for
    /// the leg before.
    pub(in crate::engine) fn carry(
        &mut self,
        operation: u32,
        leg: usize,
        since: Since,
        lacked: Lacked,
    ) -> bool {
        let (more, first) = self.operations.carry(operation, LegIndex(leg as u8), since, lacked);
        self.legs[leg].load.carry(more, first);
        first
    }

    /// A leg has what a write carried for it, or lacks it in another way. Returns false if the
    /// write carried nothing for it.
    pub(super) fn uncarry(&mut self, operation: u32, leg: usize) -> bool {
        let Some(carried) = self.operations.uncarry(operation, LegIndex(leg as u8)) else {
            return false;
        };
        self.legs[leg].load.uncarry(carried);
        true
    }

    /// Owes the parts of an extent that nothing newer covers; replaces one counted lack.
    pub(in crate::engine) fn owe_beneath(
        &mut self,
        leg: usize,
        extent: Extent,
        source: Source,
        since: Since,
        until: Instant,
        repair: bool,
    ) {
        let region = self.regions.of_sector(extent.start);
        let record = self.regions.slot(region).expect("a region with lacks has a record");
        if planted::is(Planted::FailedOverNewer) {
            let carved = self.legs[leg].debts.carve(extent, &mut self.buffers);
            self.regions.adjust_lacks(record, leg, carved.debts);
        }
        let mut pieces = -1i32;
        let mut at = extent.start;
        while at < extent.end {
            let rest = Extent { start: at, end: extent.end };
            let found = self.legs[leg].debts.overlapping(rest);
            let over = found.map(|(_, debt)| debt);
            if let Some((slot, over)) = found
                && over.is_acknowledged()
                && !over.is_rebuild()
                && !planted::is(Planted::YoungAgain)
            {
                self.legs[leg].debts.date_back(slot, since);
            }
            if let Some(over) = over.filter(|over| self.operations.is_live(over.operation))
                && !planted::is(Planted::SupersededForgotten)
            {
                // A write that a client still waits for takes its place.
                let covered = over.extent.intersection(rest).sectors();
                let lacked = Lacked::of(since.is_rebuild(), covered);
                let first = self.carry(over.operation.slot, leg, since, lacked);
                pieces += i32::from(first);
            }
            let covered = over.map(|debt| debt.extent);
            let gap = Extent { start: at, end: covered.map_or(extent.end, |c| c.start.max(at)) };
            if !gap.is_empty() {
                if !self.make_room(leg, region) {
                    self.regions.adjust_lacks(record, leg, pieces);
                    source.release(&mut self.buffers);
                    self.owe_without_room(leg, region);
                    return;
                }
                let part = source.skip(gap.start - extent.start);
                part.retain(&mut self.buffers);
                let mut debt = Debt::new(gap, part, since, Key::NONE);
                debt.repair = repair;
                debt.not_before = until;
                self.legs[leg].debts.add(debt);
                pieces += 1;
            }
            at = covered.map_or(extent.end, |c| c.end);
        }
        source.release(&mut self.buffers);
        self.regions.adjust_lacks(record, leg, pieces);
    }
}
