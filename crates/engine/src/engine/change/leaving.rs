//! Leaving: before a leg is marked out no region may depend on it, and whatever says so is durable
//! before the superblock that excludes it.

use alloc::vec::Vec;

use crate::engine::Engine;
use crate::engine::state::debt::Debt;
use crate::engine::state::leg::{Health, Leg};
use crate::identifiers::{LEGS_MAX, LegIndex};
use crate::io::Buffers;
use crate::planted::{self, Planted};
use hemi_units::Extent;

/// Metadata objects, with sequences, that have to be durable before the last change is made.
#[derive(Default)]
pub(in crate::engine) struct Prerequisites {
    objects: Vec<(u32, u64)>,
}

/// The places where searches for what depends on a leg go on, for each leg.
#[derive(Default)]
pub(in crate::engine) struct GivingUp([Places; LEGS_MAX]);

#[derive(Default)]
struct Places {
    /// The untouched region that is looked at next for what the leg had alone, if it is gone for good.
    region: u32,
    /// The record that is looked at next for whether the leg is the authority.
    record: u32,
}

impl Prerequisites {
    /// Forgets them: the change is taken back.
    pub(super) fn forget(&mut self) {
        self.objects.clear();
    }
}

impl<B: Buffers> Engine<B> {
    /// Moves every region's authority off a leg; whether none is left. What only a removed
    /// leg held is lost.
    pub(super) fn give_up_authority(&mut self, leg: usize) -> bool {
        let goes = self.give_up_all(leg);
        if self.legs[leg].watch.is_removed() && !self.lost.is_empty() {
            // Reads of what has just been lost wait for an answer that will not come.
            self.give_up_reads(leg);
        }
        goes
    }

    fn give_up_all(&mut self, leg: usize) -> bool {
        let index = LegIndex(leg as u8);
        let depend = self.untouched_regions_depend_on(leg);
        // Others need not wait until all has been told that a removed leg alone had.
        let goes_on = self.legs[leg].watch.is_removed() && !planted::is(Planted::LossHoldsUp);
        if depend && !goes_on
            || self.authorities_depend_on(leg)
            || self.absent_authorities_depend_on(leg)
        {
            return false;
        }
        let stay = self.mask_that_stays(index);
        self.regions.disarm_all_of(index, stay);
        if self.regions.authority_count(index) == 0 {
            return !depend;
        }
        let walks = planted::is(Planted::TouchedWalkedAgain);
        let most = if walks { usize::MAX } else { self.settings.limits.cleans_per_tick };
        for _ in 0..most {
            let Some(record) = self.regions.record_from(self.giving_up.0[leg].record) else {
                self.giving_up.0[leg].record = 0;
                break;
            };
            self.giving_up.0[leg].record = record + 1;
            let region = self.regions.region_of(record);
            if self.regions.decides(index, region) {
                self.regions.force_move(record);
                if self.legs[leg].watch.is_removed() {
                    self.lose_what_only(leg, region);
                }
            }
        }
        false
    }

    /// Returns true if an authority that lost its cache waits for what this leg has: as below.
    fn authorities_depend_on(&mut self, leg: usize) -> bool {
        let index = LegIndex(leg as u8);
        let mut depends = false;
        let mut at = 0;
        while let Some(record) = self.regions.next_suspect(at) {
            at = record + 1;
            let region = self.regions.region_of(record);
            let authority = self.regions.entry(region).authority();
            if authority != index && !self.regions.is_complete(authority, region) {
                if self.legs[leg].watch.is_removed() {
                    self.lose_what_only(leg, region);
                } else {
                    depends = true;
                }
            }
        }
        depends
    }

    /// Returns true if the session of an authority has dropped with something that it had not flushed,
    /// and only this leg may have it when the authority turns out to have lost it.
    fn absent_authorities_depend_on(&self, leg: usize) -> bool {
        let is_gone = |leg: &Leg| matches!(leg.watch.health(), Health::Gone { removed: false, .. });
        let decides = |other: &Leg| {
            other.index.index() != leg && self.regions.authority_count(other.index) > 0
        };
        if self.legs[leg].watch.is_removed()
            || !self.legs.iter().any(|other| is_gone(other) && decides(other))
            || planted::is(Planted::OutBesideAbsent)
        {
            return false;
        }
        let mut records =
            core::iter::successors(self.regions.oldest(), |&at| self.regions.newer(at));
        let depends = |record| {
            let region = self.regions.region_of(record);
            let authority = self.regions.entry(region).authority();
            let has_all = |other: &Leg| {
                other.index != authority
                    && self.may_still_have(other.index.index(), region)
                    && self.regions.is_complete(other.index, region)
            };
            self.regions.is_touched(region)
                && authority.index() != leg
                && is_gone(&self.legs[authority.index()])
                && !self.may_still_have(authority.index(), region)
                && !self.legs_that_stay(LegIndex(leg as u8)).any(has_all)
        };
        records.any(depends)
    }

    /// Returns true if an untouched region is whole on this leg alone: it cannot be marked out, unless it
    /// is gone for good; what it alone held is then lost, some regions at a time. Another that has
    /// drained one still has to flush and be recorded whole.
    fn untouched_regions_depend_on(&mut self, leg: usize) -> bool {
        let index = LegIndex(leg as u8);
        let stay = self.mask_that_stays(index);
        let depend = self.regions.depend_on(index, stay);
        if depend && self.legs[leg].watch.is_removed() {
            self.lose_untouched(leg);
        }
        depend
    }

    /// Looks at regions that a leg which is gone for good may have had alone, a bounded number of them
    /// from where it ended last. Nothing is lost where one that answers lacks nothing: it is enough to
    /// follow what the one owes that owes the fewest regions.
    fn lose_untouched(&mut self, leg: usize) {
        let index = LegIndex(leg as u8);
        let heirs = self.legs_that_stay(index).filter(|other| other.answers());
        let heir = heirs.min_by_key(|other| self.regions.stale_count(other.index));
        let Some(heir) = heir.map(|heir| heir.index) else { return };
        let in_one_go = self.settings.limits.cleans_per_tick;
        let most = if planted::is(Planted::LostAllAtOnce) { usize::MAX } else { in_one_go };
        for _ in 0..most {
            let Some(region) = self.next_owed(heir, self.giving_up.0[leg].region) else {
                self.giving_up.0[leg].region = 0;
                return;
            };
            self.giving_up.0[leg].region = region + 1;
            let is_whole = self.regions.entry(region).is_whole(index);
            if is_whole && !self.regions.is_touched(region) && !self.is_whole_beside(index, region)
            {
                self.lose_what_only(leg, region);
            }
        }
    }

    /// Returns the first region at or after `from` of which a leg owes all or a part.
    fn next_owed(&self, leg: LegIndex, from: u32) -> Option<u32> {
        if from >= self.regions.count() {
            return None;
        }
        let debt = self.legs[leg.index()].debts.first_after(self.regions.extent(from).start);
        let exactly = debt.map(|(_, debt)| self.regions.of_sector(debt.extent.start));
        self.regions.next_stale(leg, from).into_iter().chain(exactly).min()
    }

    /// Returns true if another leg is recorded whole for an untouched region, and lacks nothing of it. One
    /// whose medium could not read all of it is recorded whole, too, and owes that.
    pub(in crate::engine) fn is_whole_beside(&self, leg: LegIndex, region: u32) -> bool {
        let entry = self.regions.entry(region);
        self.legs_that_stay(leg).any(|other| {
            entry.is_whole(other.index) && self.regions.is_complete(other.index, region)
        })
    }

    /// The legs that are in and will be, one left out.
    pub(in crate::engine) fn legs_that_stay(&self, except: LegIndex) -> impl Iterator<Item = &Leg> {
        self.legs.iter().filter(move |leg| self.stays(leg, except))
    }

    /// Returns the legs that are in and will be, one left out, as a mask.
    fn mask_that_stays(&self, except: LegIndex) -> u8 {
        self.legs_that_stay(except).fold(0, |legs, leg| legs | leg.index.bit())
    }

    /// Records what was on a leg alone that is gone for good. No flush was promised of what the leg
    /// had not been flushed for: the next on each connection says so, and so does one that waits.
    fn note_lost_with_leg(&mut self, extent: Extent) {
        self.note_lost(extent);
        if !planted::is(Planted::GoneUntold) {
            self.flushing.note_loss();
            self.fail_parts_done(self.regions.of_sector(extent.start), true);
        }
    }

    fn stays(&self, leg: &Leg, except: LegIndex) -> bool {
        leg.is_in() && leg.index != except && !self.changes.is_going_out(leg.index)
    }

    /// A leg is gone for good: what no other leg holds in a region, copies included, is lost.
    /// The leg that lacks least becomes complete by not counting it.
    fn lose_what_only(&mut self, leg: usize, region: u32) {
        let complete = self.legs.that_are_in().any(|other| {
            other.index.index() != leg
                && other.answers()
                && self.regions.is_complete(other.index, region)
        });
        // One that is silent may have it when it comes back: that is worth waiting for.
        let hope = self.legs.that_are_in().any(|other| {
            other.index.index() != leg
                && !other.answers()
                && self.may_still_have(other.index.index(), region)
                && !self.regions.is_stale(other.index, region)
        });
        let authority = self.regions.entry(region).authority();
        let decides_beside = self.regions.is_touched(region) && authority.index() != leg;
        // A silent authority may come back with all that nobody has been compared with.
        let is_awaited = decides_beside
            && self.regions.is_uncompared(region)
            && self.legs[authority.index()].is_in()
            && !self.legs[authority.index()].answers()
            && !self.legs[authority.index()].watch.is_removed();
        let hope = hope && !planted::is(Planted::SilentLegGivenUp);
        if complete || hope || is_awaited {
            return;
        }
        let lacks = |other: LegIndex| {
            self.regions.slot(region).map_or(0, |r| self.regions.lacks(r, other.index()))
        };
        // An authority that lacks a few writes goes before one that was never compared with it.
        let rank = |other: LegIndex| {
            let is_stale = self.regions.is_stale(other, region);
            (self.loses_uncompared(other, region), is_stale, lacks(other))
        };
        let heir = self
            .legs_that_stay(LegIndex(leg as u8))
            .filter(|other| other.answers())
            .map(|other| other.index)
            .min_by_key(|&other| rank(other));
        let Some(heir) = heir else { return };
        let extent = self.regions.extent(region);
        let gone = if decides_beside { authority } else { LegIndex(leg as u8) };
        if self.loses_uncompared(heir, region) && self.halt_for(gone) {
            return;
        }
        if self.regions.is_stale(heir, region) {
            self.regions.clear_stale(heir, region);
            self.note_lost_with_leg(extent);
            if let Some(record) = self.regions.slot(region) {
                self.owe_unsent(heir.index(), record);
                self.consider_complete(record, heir.index());
            } else if !self.regions.is_touched(region) {
                self.regions.heal(heir, region);
            }
            return;
        }
        let Some(record) = self.regions.slot(region) else { return };
        let mut lost = false;
        let mut at = extent.start;
        while let Some((slot, debt)) = self.legs[heir.index()].debts.first_after(at) {
            if debt.extent.start >= extent.end {
                break;
            }
            at = debt.extent.end;
            if self.is_nowhere(heir, &debt) {
                self.legs[heir.index()].debts.take(slot);
                self.regions.adjust_lacks(record, heir.index(), -1);
                self.note_lost_with_leg(debt.extent);
                lost = true;
            }
        }
        if lost {
            self.owe_unsent(heir.index(), record);
        }
        self.consider_complete(record, heir.index());
    }

    /// Returns true if nobody is left to give a leg what it owes.
    fn is_nowhere(&self, leg: LegIndex, debt: &Debt) -> bool {
        debt.source == crate::engine::Source::Leg
            && debt.is_acknowledged()
            && self.drain_source(leg.index(), debt.extent).is_none()
    }

    /// Returns true if a leg owes of an uncompared region what it may have from before the volume was
    /// opened, and nobody is left to give it that. What an authority owes it has lost since.
    fn loses_uncompared(&self, leg: LegIndex, region: u32) -> bool {
        if !self.regions.is_uncompared(region) || self.regions.entry(region).authority() == leg {
            return false;
        }
        let extent = self.regions.extent(region);
        let debts = core::iter::successors(
            self.legs[leg.index()].debts.first_after(extent.start),
            |(_, debt)| self.legs[leg.index()].debts.first_after(debt.extent.end),
        );
        self.regions.is_stale(leg, region)
            || debts
                .take_while(|(_, debt)| debt.extent.start < extent.end)
                .any(|(_, debt)| debt.is_rebuild() && self.is_nowhere(leg, &debt))
    }

    /// A leg that owed a whole region, even if this has been taken up as a debt, does so no
    /// more without having drained it: it gets the writes in flight that were not sent to it.
    pub(in crate::engine) fn owe_unsent(&mut self, leg: usize, record: u32) {
        let index = LegIndex(leg as u8);
        let region = self.regions.region_of(record);
        for operation in self.operations.slots() {
            if self.is_unsent(operation, leg, region) && !self.regions.is_stale(index, region) {
                self.owe(operation, leg);
            }
        }
    }

    /// Returns the writes in flight in a region that were not sent to a leg.
    pub(in crate::engine) fn unsent(&self, leg: usize, region: u32) -> impl Iterator<Item = u32> {
        let operations = self.operations.slots();
        operations.filter(move |&operation| self.is_unsent(operation, leg, region))
    }

    fn is_unsent(&self, operation: u32, leg: usize, region: u32) -> bool {
        if !self.operations.is_running_write(operation) {
            return false;
        }
        let state = &self.operations[operation];
        let sent = (state.in_flight | state.owed | state.done) >> leg & 1 == 1;
        state.region == region && !sent
    }

    /// Notes what recovery would have to know if the leg were out now: the region table as it
    /// is, and what is lost.
    pub(super) fn list_what_goes_before(&mut self) {
        let metadata = self.regions.metadata();
        self.prerequisites.objects.clear();
        let list = (!planted::is(Planted::OutBeforeList)).then_some(metadata.lost_list());
        for object in (0..metadata.superblock()).chain(list) {
            self.prerequisites.objects.push((object, metadata.newest(object)));
        }
    }

    /// Returns true if all of that is durable on one of the legs that stay. Asks for what is not.
    pub(super) fn what_goes_before_is_durable(&mut self, leaving: LegIndex) -> bool {
        let mut wanted = core::mem::take(&mut self.prerequisites.objects);
        wanted.retain(|&(object, sequence)| {
            let metadata = self.regions.metadata();
            let has_it = |leg: &Leg| metadata.durable(object, leg.index) >= sequence;
            let vouches =
                planted::is(Planted::LeaverVouches) && has_it(&self.legs[leaving.index()]);
            if vouches || self.legs_that_stay(leaving).any(has_it) {
                return false;
            }
            for leg in 0..self.legs.len() {
                let state = &self.legs[leg];
                if self.stays(state, leaving) && state.answers() {
                    let index = state.index;
                    self.regions.metadata_mut().request(object, index);
                }
            }
            true
        });
        self.prerequisites.objects = wanted;
        self.prerequisites.objects.is_empty()
    }
}
