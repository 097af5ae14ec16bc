//! The choice of the debt that is paid next.
//!
//! Debts somebody waits for go first, then those of a region that another leg's silence
//! makes urgent, then the oldest when age nears its bound, then a sweep in sector order. The
//! oldest gets a share beside those that go first: a leg for which somebody always waits would
//! else never get to it.

use crate::engine::Engine;
use crate::engine::state::debt::Debt;
use crate::engine::state::leg::Leg;
use crate::io::Buffers;
use crate::planted::{self, Planted};
use hemi_units::Instant;

/// Debts paid of which one is the oldest, once its age is past half the bound.
const SHARE_AT_HALF: u32 = 8;
/// Debts paid of which one is the oldest, once its age is past the bound, whoever waits.
const SHARE_AT_BOUND: u32 = 2;

/// Returns true if a debt can be paid now: it is not put off, and nothing overlapping is in flight.
fn can_go(leg: &Leg, debt: &Debt, now: Instant) -> bool {
    debt.not_before <= now
        && (!leg.load.is_held(debt.extent) || planted::is(Planted::DrainOverZombie))
}

impl<B: Buffers> Engine<B> {
    /// The next debt somebody waits for, in order of arrival.
    pub(super) fn next_urgent(&self, leg: usize) -> Option<u32> {
        let state = &self.legs[leg];
        if state.debts.urgent() == 0 {
            return None;
        }
        let now = self.clock.now();
        let can_go = |debt: &Debt| can_go(state, debt, now);
        let looked_at = self.settings.limits.urgent_looked_at;
        state.debts.oldest_urgent_where(looked_at, can_go).map(|(slot, _)| slot)
    }

    /// The next debt to pay, by the order above.
    pub(super) fn next_debt(&mut self, leg: usize) -> Option<u32> {
        let pressing = self.next_urgent(leg).or_else(|| self.next_to_move(leg));
        let old = self.next_old(leg);
        let starves = planted::is(Planted::OldDebtsStarve);
        if let (Some(pressing), Some((old, share)), false) = (pressing, old, starves) {
            let is_turn = self.legs[leg].draining.is_turn_of_old(share);
            return Some(if is_turn { old } else { pressing });
        }
        pressing.or(old.map(|(slot, _)| slot)).or_else(|| self.next_in_order(leg))
    }

    /// Returns the next debt of the sweep that can go. If none can, as far as it looks, the sweep goes on
    /// from there the next time: behind debts that wait for memory may be those whose copies take it up.
    fn next_in_order(&mut self, leg: usize) -> Option<u32> {
        let state = &self.legs[leg];
        let looked_at = state.debts.len().min(2 * self.settings.limits.sweep_skips);
        let (now, mut at) = (self.clock.now(), state.draining.cursor());
        for (slot, debt) in state.debts.from(at).chain(state.debts.from(0)).take(looked_at) {
            if can_go(state, debt, now) {
                return Some(slot);
            }
            at = debt.extent.end;
        }
        self.legs[leg].draining.go_on_from(at);
        None
    }

    /// The first debt of a region that is to get another authority.
    fn next_to_move(&self, leg: usize) -> Option<u32> {
        if planted::is(Planted::MovesLast) {
            return None;
        }
        let mut to_move = self.regions.regions_to_move(self.settings.limits.moves_looked_at);
        to_move.find_map(|region| {
            let extent = self.regions.extent(region);
            self.payable_from(leg, extent.start, extent.end)
        })
    }

    /// The oldest debt, once its age nears the bound, and out of how many it is to be one.
    fn next_old(&self, leg: usize) -> Option<(u32, u32)> {
        let (state, now) = (&self.legs[leg], self.clock.now());
        let (bound, half) = (self.settings.exposure_age, self.settings.exposure_age / 2);
        if state.debts.oldest_since().is_none_or(|since| now.since(since) <= half) {
            return None;
        }
        let wanted = |debt: &Debt| now.since(debt.since.arrived) > half && can_go(state, debt, now);
        let (slot, debt) =
            state.debts.oldest_where(self.settings.limits.oldest_looked_at, wanted)?;
        let share =
            if now.since(debt.since.arrived) > bound { SHARE_AT_BOUND } else { SHARE_AT_HALF };
        Some((slot, share))
    }

    /// The first debt between two sectors that can go now.
    fn payable_from(&self, leg: usize, from: u64, to: u64) -> Option<u32> {
        let (state, now) = (&self.legs[leg], self.clock.now());
        let near = state.debts.from(from).take(self.settings.limits.sweep_skips);
        let mut there = near.take_while(|(_, debt)| debt.extent.start < to);
        there.find(|(_, debt)| can_go(state, debt, now)).map(|(slot, _)| slot)
    }
}
