//! The consequences when a leg may have lost everything it completed since its last successful
//! flush: a session that dropped, a reset, a failed flush.
//!
//! It owes those regions again. Where another leg is complete, all of the region is owed and
//! the leg stops being the authority there. Where none is, the leg is given back piece by
//! piece what others are fresh for or what a copy in memory still holds; until it has that,
//! durably, nothing is acknowledged and no flush is answered that depends on it. A leg that
//! is silent is waited for: it may have what this one lost. And where several lose their
//! caches it is the authority's content that stands: only there is everything durable that a
//! flush was answered for. But what another has flushed since the authority lost its cache
//! it still has: the authority goes on getting that from there.
//! What only this leg held cannot be told from what it kept: it stands as found on the leg,
//! and the flush that would have covered it reports the loss to every connection, once.

use crate::engine::Engine;
use crate::engine::state::debt::{Debt, Lacked, Since, Source};
use crate::engine::state::slab::Key;
use crate::identifiers::LegIndex;
use crate::io::{Buffers, Operation, RequestError};
use crate::marks::Mark;
use crate::planted::{self, Planted};
use hemi_units::Extent;

impl<B: Buffers> Engine<B> {
    /// Has a leg owe again what it may have lost. Returns true if there was anything nobody else has.
    pub(in crate::engine) fn lose_cache(&mut self, leg: usize) -> bool {
        // What has been read of it, or is to be written over, may not be there any more.
        self.give_up_own_reads(leg, true);
        let index = LegIndex(leg as u8);
        self.forget_copies(index);
        if !planted::is(Planted::ComparedAfterLoss) {
            self.regions.forget_comparable(index);
        }
        let flushed = self.legs[leg].stamps.flushed();
        let reported = self.legs[leg].stamps.loss_reported();
        let (mut alone, mut news) = (false, false);
        let mut at = self.regions.oldest();
        while let Some(record) = at {
            at = self.regions.newer(record);
            let region = self.regions.region_of(record);
            if !self.regions.is_touched(region) && !self.regions.entry(region).is_whole(index) {
                // What it has been given may have been in its cache alone.
                if self.legs[leg].is_member() {
                    self.owe_region(leg, region);
                }
                continue;
            }
            if self.regions.last_done(record, leg) <= flushed {
                continue;
            }
            if self.has_nothing_new(record, leg) {
                self.marks.add(Mark::RepairsKept);
                continue;
            }
            if self.another_has_all(leg, region) {
                self.marks.add(Mark::CacheLostWithPeer);
                self.owe_region(leg, region);
                self.forget_done(leg, record);
            } else if let Some(decides) = self.decides_beside(leg, region) {
                self.marks.add(Mark::CacheLostWithPeer);
                let lost = self.keep_what_is_flushed(leg, decides, record).unwrap_or_else(|| {
                    self.owe_region(leg, region);
                    self.forget_done(leg, record);
                    // If that leg is gone for good all of it is lost, which is said then.
                    let is_there = !self.legs[decides.index()].watch.is_removed();
                    is_there && self.restore_what_is_left(decides, record)
                });
                if lost {
                    self.marks.add(Mark::CacheLostAlone);
                    self.fail_parts_done(region, false);
                }
                alone |= lost;
                news |= lost;
            } else {
                self.forget_done(leg, record);
                // The region may be owed as a whole already; with no room for its writes, by now.
                let owed = self.regions.is_stale(index, region);
                let only_here = !owed && self.owe_what_others_have(leg, record);
                self.marks.add(Mark::CacheLostWithoutPeer);
                self.marks.add_if(only_here, Mark::CacheLostAlone);
                alone |= only_here;
                if only_here {
                    self.fail_parts_done(region, false);
                    self.give_up_uncounted(leg, region);
                }
                news |= only_here && self.regions.last_done(record, leg) > reported;
            }
            if self.regions.decides(index, region) {
                self.regions.note_cache_lost(record, &self.legs);
                self.regions.want_move(record);
            }
        }
        self.lose_healing(leg);
        if news {
            self.flushing.note_loss();
            self.legs[leg].stamps.note_loss_reported();
        }
        alone
    }

    /// Content that a leg has drained and is not recorded whole for may have been in its cache alone. In any
    /// other untouched region without a record it is whole, or owes all of it.
    fn lose_healing(&mut self, leg: usize) {
        let index = LegIndex(leg as u8);
        let mut from = 0;
        while let Some(region) = self.regions.next_healing(index, from) {
            from = region + 1;
            let is_whole = self.regions.entry(region).is_whole(index);
            let trusted = is_whole || planted::is(Planted::HealingTrusted);
            if !self.regions.is_touched(region) && !trusted {
                self.owe_region(leg, region);
            }
        }
    }

    /// The leg whose durable content stands in a region where `leg` has lost its cache and no
    /// other is known to have everything: the authority, if that is another. All that flushes
    /// were answered for is durable there, whatever else it has lost; on the leg that lost its
    /// cache it need not be, which may not even have had the region before its last flush.
    fn decides_beside(&self, leg: usize, region: u32) -> Option<LegIndex> {
        let authority = self.regions.entry(region).authority();
        (self.regions.is_touched(region) && authority.index() != leg).then_some(authority)
    }

    /// A leg has been given something in a region whose authority has lost its cache. Where that
    /// owes it, too, the authority may have to get it from the leg, which did not have it when the
    /// cache was lost and may not have it durably: the leg is trusted no more.
    pub(in crate::engine) fn note_given(&mut self, record: u32, leg: usize, extent: Extent) {
        let authority = self.regions.entry(self.regions.region_of(record)).authority().index();
        let suspect = self.regions.is_suspect(record);
        if !suspect || authority == leg || planted::is(Planted::GivenSinceTrusted) {
            return;
        }
        let mut rest = extent;
        while !rest.is_empty()
            && let Some((_, debt)) = self.legs[authority].debts.overlapping(rest)
        {
            if debt.source == Source::Leg && debt.is_acknowledged() {
                self.regions.distrust(record, leg);
                return;
            }
            rest.start = debt.extent.end.min(rest.end);
        }
    }

    /// A leg lost its cache that gives an authority back what that one lost. If it has been
    /// flushed in between, it still has durably whatever it was fresh for by then, and the
    /// authority goes on getting that from it. No flush of a client's has been answered since
    /// then that depends on the region: none can have promised more. So the leg owes only what
    /// others are fresh for or have a copy of, and for the rest its own content stands. Whether
    /// there is a rest; `None` if it is not to be trusted so far.
    fn keep_what_is_flushed(
        &mut self,
        leg: usize,
        authority: LegIndex,
        record: u32,
    ) -> Option<bool> {
        let index = LegIndex(leg as u8);
        let region = self.regions.region_of(record);
        let keeps =
            self.regions.has_flushed_since_loss(record, leg, self.legs[leg].stamps.flushed())
                && !self.regions.is_stale(index, region)
                && self.may_still_have(authority.index(), region);
        if !keeps {
            return None;
        }
        self.forget_done(leg, record);
        if self.regions.is_stale(index, region) {
            return None;
        }
        let alone = self.owe_what_others_have(leg, record);
        self.revisits.look_at_all();
        (!self.regions.is_stale(index, region)).then_some(alone)
    }

    /// An authority that waited for what a leg had which has now lost it, too: it gets what
    /// is left elsewhere, and for the rest its own content stands. Whether there is a rest.
    fn restore_what_is_left(&mut self, authority: LegIndex, record: u32) -> bool {
        let leg = authority.index();
        let region = self.regions.region_of(record);
        if self.regions.is_complete(authority, region) {
            return false;
        }
        self.regions.clear_stale(authority, region);
        let extent = self.regions.extent(region);
        let mut at = extent.start;
        while let Some((slot, debt)) = self.legs[leg].debts.first_after(at) {
            if debt.extent.start >= extent.end {
                break;
            }
            at = debt.extent.end;
            if debt.source == Source::Leg && debt.is_acknowledged() {
                self.legs[leg].debts.take(slot);
                self.regions.adjust_lacks(record, leg, -1);
            }
        }
        self.owe_unsent(leg, record);
        let lost = self.owe_what_others_have(leg, record);
        if lost {
            self.give_up_uncounted(leg, region);
        }
        if self.regions.lacks(record, leg) == 0 {
            self.end_rebuilding(leg, record);
        }
        self.regions.note_cache_lost(record, &self.legs);
        self.regions.want_move(record);
        self.revisits.look_at_all();
        lost
    }

    /// Nobody can serve a read of the beginning of `extent`, which lies in one region: lets what
    /// its authority holds there stand, if it may. Returns whether it does now.
    ///
    /// The last leg that had something can lose it in many ways, and it would be easy to forget
    /// one; but whoever needs the data comes by here.
    pub(in crate::engine) fn authority_stands(&mut self, extent: Extent) -> bool {
        let region = self.regions.of_sector(extent.start);
        let authority = self.regions.entry(region).authority().index();
        // What is recorded as lost, or went with the device, answers EIO instead.
        self.regions.is_touched(region)
            && !planted::is(Planted::AuthorityDoubted)
            && !self.lost.touches(extent)
            && !self.legs[authority].watch.is_removed()
            && self.stands_as_found(authority, extent)
    }

    /// An authority that lost its cache may owe what those who had it have lost as well since: then
    /// its own content stands, and the loss is reported. Returns whether it does from now on at the
    /// beginning of `extent`.
    pub(super) fn stands_as_found(&mut self, leg: usize, extent: Extent) -> bool {
        let Some((_, debt)) = self.legs[leg].debts.overlapping(extent) else { return false };
        let region = self.regions.of_sector(extent.start);
        let decides = self.regions.decides(LegIndex(leg as u8), region);
        let is_owed = debt.extent.start <= extent.start
            && debt.source == Source::Leg
            && debt.is_acknowledged();
        let Some(record) = self
            .regions
            .slot(region)
            .filter(|&record| decides && is_owed && self.regions.is_suspect(record))
        else {
            return false;
        };
        let owed = debt.extent.intersection(extent);
        let Some(sectors) = self.nobody_has(leg, owed) else { return false };
        let stands = Extent::new(owed.start, sectors);
        if !self.legs[leg].debts.has_room(self.room_to_stand(leg, region, debt.extent, stands)) {
            return false;
        }
        let carved = self.legs[leg].debts.carve(stands, &mut self.buffers);
        self.regions.adjust_lacks(record, leg, carved.debts);
        if !planted::is(Planted::UnsentForgotten) {
            self.owe_unsent(leg, record);
        }
        self.report_lost_on(leg, region);
        self.consider_complete(record, leg);
        true
    }

    /// Something acknowledged in a region is gone, and what `leg` holds there stands: flushes say so, and
    /// requests that go on.
    pub(in crate::engine) fn report_lost_on(&mut self, leg: usize, region: u32) {
        self.marks.add(Mark::CacheLostAlone);
        self.flushing.note_loss();
        self.fail_parts_done(region, false);
        self.give_up_uncounted(leg, region);
    }

    /// Returns how many more debts a leg may come to have when part of one is no longer owed, since what
    /// the leg holds there stands. A list that is full of such debts gets shorter by it.
    fn room_to_stand(&self, leg: usize, region: u32, owed: Extent, stands: Extent) -> usize {
        let unsent = self.unsent(leg, region).count();
        if unsent > 0 || planted::is(Planted::FullListDoubted) {
            return 2 + unsent;
        }
        usize::from(owed.start < stands.start && stands.end < owed.end)
    }

    /// Makes legs that are not counted on owe a region in which what `leg` has kept stands from now on:
    /// those whose device was removed, and those that are silent while they are marked out. They may
    /// come back with what the leg has lost.
    fn give_up_uncounted(&mut self, leg: usize, region: u32) {
        for other in self.legs.slots() {
            let state = &self.legs[other];
            let uncounted = if self.legs[other].watch.is_removed() {
                !planted::is(Planted::RemovedStillFresh)
            } else {
                self.leaves_silently(other) && !planted::is(Planted::LeavingStillFresh)
            };
            if other != leg && state.is_member() && uncounted {
                self.owe_region(other, region);
            }
        }
    }

    /// Fails requests that go on and a part of which in this region had been done: what a leg alone
    /// held of it is gone. (Parts still in flight are written again.) A part
    /// with FUA is gone only with the leg itself.
    pub(in crate::engine) fn fail_parts_done(&mut self, region: u32, with_leg: bool) {
        let extent = self.regions.extent(region);
        for slot in self.requests.slots() {
            if !self.requests.is_used(slot) {
                continue;
            }
            let request = &self.requests[slot];
            // One with FUA ends in a flush.
            let writes = request.fua && request.operation == Operation::Flush
                || matches!(
                    request.operation,
                    Operation::Write | Operation::WriteZeroes { .. } | Operation::Discard
                );
            let begun = Extent { start: request.extent.start, end: request.next };
            if !writes || request.fua && !with_leg || !begun.overlaps(extent) {
                continue;
            }
            let here = begun.intersection(extent).sectors();
            let under_way: u64 = self
                .operations
                .iter()
                .filter(|(_, part)| part.request == slot && part.region == region && !part.is_read)
                .map(|(_, part)| part.extent.sectors())
                .sum();
            if under_way < here {
                self.requests.fail(slot, RequestError::Io);
            }
        }
    }

    /// Forgets that a leg had writes in flight: it has to get them again. Until it has, it also
    /// lacks what was acknowledged beneath them.
    fn forget_done(&mut self, leg: usize, record: u32) {
        let index = LegIndex(leg as u8);
        let region = self.regions.region_of(record);
        for operation in self.operations.slots() {
            if !self.operations.is_running_write(operation)
                || self.operations[operation].region != region
            {
                continue;
            }
            if self.operations[operation].done & index.bit() != 0 {
                self.operations.lose(operation, index);
                self.lose_rewritten(self.operations.key(operation));
                if !self.regions.is_stale(index, region) {
                    self.owe(operation, leg);
                }
            }
            let state = &self.operations[operation];
            let pending = (state.in_flight | state.owed) & index.bit() != 0
                && !planted::is(Planted::BeneathForgotten);
            let now = self.clock.now();
            if pending
                && !self.regions.is_stale(index, region)
                && self.carry(operation, leg, Since::at(now), Lacked::default())
            {
                self.regions.adjust_lacks(record, leg, 1);
            }
        }
    }

    /// Owes the leg whatever of a region others are fresh for or a copy holds. Whether there
    /// was anything else.
    fn owe_what_others_have(&mut self, leg: usize, record: u32) -> bool {
        let index = LegIndex(leg as u8);
        let region = self.regions.region_of(record);
        let extent = self.regions.extent(region);
        let mut alone = false;
        let mut at = extent.start;
        while at < extent.end {
            let mut rest = Extent { start: at, end: extent.end };
            if let Some(lost) = self.lost.first(rest)
                && !planted::is(Planted::LostGivenBack)
            {
                // Others may have what was there before. The list says so, but is not durable yet.
                if lost.start <= at {
                    at = lost.end.min(extent.end);
                    continue;
                }
                rest.end = lost.start;
            }
            if let Some(until) = self.legs[leg].load.held_until(at) {
                // What is in flight there comes after it; beneath it nothing else is newer.
                at = until;
                continue;
            }
            let owed = self.legs[leg].debts.overlapping(rest).map(|(_, debt)| debt.extent);
            if let Some(owed) = owed.filter(|owed| owed.start <= at) {
                at = owed.end;
                continue;
            }
            let held = self.legs[leg].load.first_held(rest);
            let end =
                rest.end.min(owed.map_or(u64::MAX, |o| o.start)).min(held.unwrap_or(u64::MAX));
            let found = self.elsewhere_than(index.bit(), Extent { start: at, end });
            let piece = Extent::new(at, found.sectors);
            at = piece.end;
            let Some((_, source)) = found.held else {
                alone = true;
                continue;
            };
            if !self.legs[leg].debts.has_room(2) {
                return self.stand_as_found(index, region);
            }
            source.retain(&mut self.buffers);
            self.legs[leg].debts.add(Debt::new(piece, source, Since::REBUILD, Key::NONE));
            self.regions.adjust_lacks(record, leg, 1);
            self.begin_rebuilding(leg, record);
        }
        alone
    }

    /// No room to note what others have: the leg's content is the region's, and all others
    /// owe it; unless it does not decide, and then it owes all of the region itself.
    pub(in crate::engine) fn stand_as_found(&mut self, leg: LegIndex, region: u32) -> bool {
        if self.decides_beside(leg.index(), region).is_some() {
            self.owe_region(leg.index(), region);
            return true;
        }
        for other in self.legs.slots() {
            if other != leg.index() && self.legs[other].is_member() {
                self.owe_region(other, region);
            }
        }
        true
    }
}
