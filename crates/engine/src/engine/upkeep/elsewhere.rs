//! The newest data elsewhere: what other legs have of an extent, now or when they answer again.

use crate::engine::Engine;
use crate::engine::state::debt::Source;
use crate::engine::state::in_flight::Purpose;
use crate::engine::state::leg::Health;
use crate::identifiers::LegIndex;
use crate::io::Buffers;
use crate::planted::{self, Planted};
use hemi_units::Extent;

/// The holder of the newest data of the beginning of an extent, apart from one leg.
pub(in crate::engine) struct Elsewhere {
    pub(in crate::engine) sectors: u64,
    /// The leg that has it, and the copy in memory if it has not landed there yet.
    pub(in crate::engine) held: Option<(LegIndex, Source)>,
}

impl<B: Buffers> Engine<B> {
    /// Returns how many sectors from the beginning of an extent every other leg lacks, whether it
    /// answers or not; `None` if one may have some.
    pub(super) fn nobody_has(&self, leg: usize, extent: Extent) -> Option<u64> {
        let mut end = extent.end;
        for other in self.legs.slots().filter(|&o| o != leg && self.legs[o].is_member()) {
            let state = &self.legs[other];
            if self.legs[other].watch.is_removed()
                || self.regions.is_stale(state.index, self.regions.of_sector(extent.start))
            {
                continue;
            }
            if state.load.held_until(extent.start).is_some() {
                return None;
            }
            let (_, owed) = state.debts.overlapping(Extent::new(extent.start, 1))?;
            if !owed.is_acknowledged() || owed.source != Source::Leg {
                return None;
            }
            end = end.min(owed.extent.end);
        }
        Some(end - extent.start)
    }

    /// Returns true if another leg holds everything acknowledged in a region. One that is silent may
    /// have it when it comes back: it is waited for.
    pub(super) fn another_has_all(&self, leg: usize, region: u32) -> bool {
        self.legs.slots().filter(|&other| other != leg && self.legs[other].is_in()).any(|other| {
            self.may_still_have(other, region)
                && self.regions.is_complete(LegIndex(other as u8), region)
        })
    }

    /// Returns true if a leg that holds something of a region now holds it when it answers again: not
    /// one whose session has dropped with something there that it had not flushed, nor one
    /// that is being marked out.
    pub(in crate::engine) fn may_still_have(&self, leg: usize, region: u32) -> bool {
        let state = &self.legs[leg];
        if self.leaves_silently(leg) {
            return false;
        }
        let is_flushed = |record| {
            let done = self.regions.last_done(record, leg);
            done <= state.stamps.flushed() || self.has_nothing_new(record, leg)
        };
        match state.watch.health() {
            Health::Answering | Health::Frozen { .. } => true,
            Health::Gone { removed: false, .. } => self.regions.slot(region).is_none_or(is_flushed),
            Health::Gone { removed: true, .. } | Health::Absent => false,
        }
    }

    /// Returns true if a leg is being marked out and does not answer. A superblock may say already
    /// that it is out, so nobody may wait for it.
    pub(super) fn leaves_silently(&self, leg: usize) -> bool {
        let state = &self.legs[leg];
        !state.answers() && self.changes.is_going_out(state.index)
    }

    /// Returns true if a leg has been given nothing in a region since it had flushed everything but what it
    /// held before, durably: that is there, or cannot be read again. So it is in a region that is not
    /// touched, wherever the leg is recorded whole: recovery counts on it, too.
    pub(super) fn has_nothing_new(&self, record: u32, leg: usize) -> bool {
        let region = self.regions.region_of(record);
        let is_whole = self.regions.entry(region).is_whole(LegIndex(leg as u8));
        let is_settled = is_whole && !self.regions.is_touched(region);
        (is_settled || self.regions.is_only_repaired(record, leg))
            && !planted::is(Planted::RepairsLost)
    }

    /// Finds the newest data of the beginning of an extent, on any member but those in `except`.
    pub(in crate::engine) fn elsewhere_than(&self, except: u8, extent: Extent) -> Elsewhere {
        let others =
            || self.legs.slots().filter(|&o| except >> o & 1 == 0 && self.legs[o].is_member());
        let fresh = others()
            .filter(|&other| self.may_still_have(other, self.regions.of_sector(extent.start)))
            .map(|other| (self.fresh_prefix(other, extent), other))
            .max()
            .filter(|&(sectors, _)| sectors > 0);
        if let Some((sectors, other)) = fresh {
            return Elsewhere { sectors, held: Some((LegIndex(other as u8), Source::Leg)) };
        }
        for other in others() {
            let index = LegIndex(other as u8);
            if let Some((_, debt)) = self.legs[other].debts.overlapping(extent)
                && debt.extent.start <= extent.start
                && debt.source != Source::Leg
                && debt.is_acknowledged()
            {
                let sectors = debt.extent.end.min(extent.end) - extent.start;
                let source = debt.source.skip(extent.start - debt.extent.start);
                return Elsewhere { sectors, held: Some((index, source)) };
            }
            if let Some((source, sectors)) = self.in_flight_copy(other, extent) {
                return Elsewhere { sectors, held: Some((index, source)) };
            }
        }
        let end = others().map(|other| self.next_edge(other, extent)).min();
        Elsewhere { sectors: end.unwrap_or(extent.end) - extent.start, held: None }
    }

    /// Returns where, within `extent`, a leg may begin to have other data than at its beginning:
    /// at the next edge of a debt or of a range in flight. What is in flight over several debts
    /// must not hide that one of them keeps a copy.
    fn next_edge(&self, leg: usize, extent: Extent) -> u64 {
        let state = &self.legs[leg];
        let begins_or_ends = |begin: u64, end: u64| if begin > extent.start { begin } else { end };
        let debt = state.debts.overlapping(extent).map(|(_, debt)| debt.extent);
        let of_debt = debt.map(|debt| begins_or_ends(debt.start, debt.end));
        let of_held = state.load.held_until(extent.start).or_else(|| state.load.first_held(extent));
        let of_debt =
            of_debt.filter(|_| of_held.is_none() || !planted::is(Planted::CopyOverlooked));
        [of_debt, of_held].into_iter().flatten().fold(extent.end, u64::min)
    }

    /// The buffer of an acknowledged write in flight on a leg at the beginning of `extent`.
    fn in_flight_copy(&self, leg: usize, extent: Extent) -> Option<(Source, u64)> {
        let region = self.regions.of_sector(extent.start);
        if self.regions.is_stale(LegIndex(leg as u8), region) {
            return None;
        }
        // What the leg owes there is newer than what it has in flight.
        let newer = self.legs[leg].debts.overlapping(extent).map(|(_, debt)| debt.extent.start);
        let end = extent.end.min(newer.unwrap_or(u64::MAX));
        let extent = Extent { start: extent.start, end };
        if extent.is_empty() {
            return None;
        }
        for (_, io) in self.ios.on(leg) {
            if let Purpose::Write { operation, .. } = io.purpose
                && !self.operations.is_live(operation)
                && io.extent.start <= extent.start
                && io.extent.end > extent.start
            {
                let sectors = io.extent.end.min(extent.end) - extent.start;
                return Some((io.source.skip(extent.start - io.extent.start), sectors));
            }
        }
        None
    }
}
