//! A write that no leg could take: whose content stands where it was to go.

use crate::engine::Engine;
use crate::engine::state::debt::{Debt, Since, Source};
use crate::engine::state::slab::Key;
use crate::engine::upkeep::elsewhere::Elsewhere;
use crate::identifiers::{LEGS_MAX, LegIndex};
use crate::io::{Buffers, RequestError};
use crate::marks::Mark;
use crate::planted::{self, Planted};
use hemi_units::Extent;

impl<B: Buffers> Engine<B> {
    /// Returns the leg whose content stands where a write failed: the authority's, unless it lost its cache
    /// and another has what was acknowledged beneath.
    fn keeper_of(&self, operation: u32, authority: LegIndex, beneath: u8) -> LegIndex {
        let state = self.operations[operation];
        let has_it = |leg: LegIndex| {
            let state_of = &self.legs[leg.index()];
            state_of.is_in()
                && !self.regions.is_stale(leg, state.region)
                && beneath & leg.bit() == 0
                && state_of.debts.overlapping(state.extent).is_none()
        };
        if has_it(authority) {
            return authority;
        }
        (0..LEGS_MAX as u8).map(LegIndex).find(|&leg| has_it(leg)).unwrap_or(authority)
    }

    /// Finds whose content stands at the beginning of an extent where a write failed: the keeper's; where
    /// that lacks what was acknowledged before, as the legs in `beneath` do, another's that has it or is
    /// being given it, be it one that is not in. Nobody's, if there is none.
    fn kept_from(&self, extent: Extent, keeper: LegIndex, beneath: u8) -> Elsewhere {
        if beneath & keeper.bit() == 0 || planted::is(Planted::FailedOverLacked) {
            return Elsewhere { sectors: extent.sectors(), held: Some((keeper, Source::Leg)) };
        }
        self.elsewhere_than(beneath, extent)
    }

    /// No leg could take it. What the legs hold there now may differ: all but the keeper owe
    /// it, from the keeper, so that reads give one answer until it is rewritten.
    pub(super) fn fail_write(&mut self, operation: u32, record: u32) {
        let state = self.operations[operation];
        let authority = self.regions.entry(state.region).authority();
        self.marks.add(Mark::WriteFailed);
        self.lose_rewritten(self.operations.key(operation));
        for leg in self.legs.slots() {
            if state.owed & LegIndex(leg as u8).bit() != 0
                && let Some((slot, _)) = self.legs[leg].debts.overlapping(state.extent)
            {
                let debt = self.legs[leg].debts.take(slot);
                debt.source.release(&mut self.buffers);
            }
        }
        let beneath = state.carries;
        for leg in self.legs.slots().filter(|leg| beneath >> leg & 1 == 1) {
            self.uncarry(operation, leg);
            self.regions.adjust_lacks(record, leg, -1);
        }
        let keeper = self.keeper_of(operation, authority, beneath);
        let mut rest = state.extent;
        let mut lost = false;
        while !rest.is_empty() {
            let found = self.kept_from(rest, keeper, beneath);
            lost |= found.held.is_none();
            let (from, source) = found.held.unwrap_or((keeper, Source::Leg));
            let piece = Extent::new(rest.start, found.sectors);
            rest.start = piece.end;
            self.keep(operation, piece, from, source, beneath);
        }
        if lost {
            self.report_lost_on(keeper.index(), state.region);
        }
        self.leave_region(operation, record);
        for leg in self.legs.slots() {
            if self.legs[leg].is_member() && self.regions.slot(state.region) == Some(record) {
                self.consider_complete(record, leg);
            }
        }
        let error = if state.no_space { RequestError::NoSpace } else { RequestError::Io };
        self.end_operation(operation, Some(error));
    }

    /// Lets what one leg holds stand in a part of a write that failed: every other owes it, from a copy if
    /// that leg has not got it yet.
    fn keep(
        &mut self,
        operation: u32,
        piece: Extent,
        keeper: LegIndex,
        source: Source,
        beneath: u8,
    ) {
        let state = self.operations[operation];
        let record = self.record_of(operation);
        // What has landed there is the content from now on, and may be in the cache only.
        let stamp = self.legs[keeper.index()].stamps.complete_write();
        self.regions.note_done(record, keeper.index(), stamp);
        self.regions.note_acknowledged(record, keeper.index());
        // Room for debts is made at the cost of others', which may hold this copy.
        source.retain(&mut self.buffers);
        for leg in self.legs.slots() {
            let index = LegIndex(leg as u8);
            let keeper = if planted::is(Planted::FailedWriteDiverges) { index } else { keeper };
            let owes = self.legs[leg].is_member() && index != keeper;
            if !owes || self.regions.is_stale(index, state.region) {
                continue;
            }
            if !self.make_room(leg, state.region) {
                self.stand_as_found(index, state.region);
                continue;
            }
            let carved = self.legs[leg].debts.carve(piece, &mut self.buffers);
            let carried = (beneath & index.bit() != 0).then_some(state.carried_since);
            let since = [carved.since, carried]
                .into_iter()
                .flatten()
                .filter(|_| !planted::is(Planted::YoungAgain))
                .fold(Since::at(self.clock.now()), Since::beneath);
            source.retain(&mut self.buffers);
            self.legs[leg].debts.add(Debt::new(piece, source, since, Key::NONE));
            self.regions.adjust_lacks(record, leg, carved.debts + 1);
        }
        source.release(&mut self.buffers);
    }
}
