//! Settling regions and making legs whole, in the background.
//!
//! A touched region nobody has used for a while settles once every leg that stays whole has
//! everything and has flushed it: it is armed, or becomes clean where too many are dirty. A leg that
//! is absent or stays behind loses its bit instead and gets it back when it has drained and flushed.
//! One flush per leg, and at most one page write, cover many regions.

use crate::engine::Engine;
use crate::engine::state::in_flight::Purpose;
use crate::engine::state::leg::{Health, Leg};
use crate::engine::state::regions::Walk;
use crate::engine::state::slab::Key;
use crate::identifiers::{LEGS_MAX, LegIndex};
use crate::io::{Buffers, Notice};
use crate::marks::Mark;
use crate::planted::{self, Planted};
use hemi_units::{Extent, Instant, MILLISECOND, SECOND};

/// A leg that owes something in an idle region is waited for this many times `clean_after`
/// before it loses its bit there.
const PATIENCE: u64 = 4;
/// The share of the cap on dirty regions at which the oldest are cleaned, idle or not.
const CAP_PERMILLE: u64 = 875;
/// A region must have been left alone for this long even when the cap presses.
const IDLE_MIN: u64 = 20 * MILLISECOND;
/// While clients write, a leg gets pages that nobody waits for once in so long …
const LAZY_INTERVAL: u64 = 5 * SECOND;
/// … and a flush that nobody waits for after this many times the time that its last flush took …
const FLUSH_SHARE: u64 = 256;
/// … but no later than this.
const FLUSH_INTERVAL_MAX: u64 = 60 * SECOND;
/// Nobody writes when no region has been used for this long.
const AT_REST_AFTER: u64 = SECOND;

/// The place of the settling of regions.
#[derive(Default)]
pub(in crate::engine) struct Settling {
    /// The first record that the next tick looks at.
    next: Option<Key>,
    /// The operator has been told that the legs are the same.
    said_converged: bool,
}

impl<B: Buffers> Engine<B> {
    /// Every hundred milliseconds: limits, rates, cleaning, lazy metadata, retries.
    pub(in crate::engine) fn background(&mut self) {
        let fastest = self
            .legs
            .that_are_in()
            .filter(|leg| leg.answers())
            .map(|leg| leg.pace.usual_write())
            .filter(|usual| *usual > 0)
            .min()
            .unwrap_or(0);
        for leg in self.legs.slots() {
            let now = self.clock.now();
            let settings = *self.settings;
            let loses_sight = self.loses_sight_of_writes(leg);
            let full = self.is_held_back_by_window(leg);
            let state = &mut self.legs[leg];
            state.pace.refresh_limits(&settings);
            let usual = state.pace.usual_write();
            state.window.refresh(now, usual, full);
            state.pace.judge_slow(fastest, now);
            // On probation it is given little: how fast it pays then says nothing of the leg.
            let counts = state.is_trusted(now) || planted::is(Planted::ProbationPace);
            let busy = state.answers() && counts && !state.debts.is_empty();
            let at_most = state.drain_rate_at_most(&settings);
            state.drain_rate.refresh(now, busy, at_most);
            state.drain_rate.doubt(loses_sight);
            if state.is_member() {
                self.is_lagging(leg);
            }
        }
        self.fade_unused_reads();
        for leg in self.legs.slots() {
            if !self.legs[leg].answers() {
                // Another leg may have become fresh for them since.
                self.give_up_reads(leg);
            }
        }
        self.yield_scrub();
        self.requests.retry_stalled();
        self.retry_all_waiting(None);
        self.return_authority();
        self.consider_out();
        self.fold_debts_of_silent();
        self.give_up_copies();
        // Else only flushes look at them, and a record is kept for as long as nobody has.
        self.record_old_moves();
        self.clean_regions();
        self.heal_regions();
        self.retry_superblock();
        self.write_lazily();
        self.place_unplaced();
        self.consider_flushes();
        self.pump_throttle();
    }

    /// Has legs that get no reads because they were slow tried again in a while: how fast they are is
    /// known only while they get some.
    fn fade_unused_reads(&mut self) {
        let mut in_use = [[false; 2]; LEGS_MAX];
        for (state, in_use) in self.legs.iter_mut().zip(&mut in_use) {
            *in_use = state.pace.reads_in_use();
        }
        for large in 0..2 {
            if !in_use.iter().any(|of_leg| of_leg[large]) {
                continue;
            }
            for (state, of_leg) in self.legs.iter_mut().zip(&in_use) {
                if !of_leg[large] && state.answers() {
                    state.pace.fade_reads(large);
                }
            }
        }
    }

    fn clean_regions(&mut self) {
        let cap = self.regions.dirty_bound().unwrap_or(self.settings.dirty_regions_max);
        let short = self.regions.records_are_short();
        let awaited = short || self.operations.unplaced() > 0 || self.life.is_closing();
        let pressed = u64::from(self.regions.touched_count()) * 1000
            > u64::from(cap) * CAP_PERMILLE
            || self.operations.unplaced() > 0
            || short;
        let closing = self.life.is_closing();
        // From where the last tick ended: the oldest may be those that wait for a leg that is out.
        let kept = self.settling.next.filter(|_| !planted::is(Planted::CleansFromOldest));
        let begun = kept.and_then(|key| self.regions.keyed(key));
        let mut at = begun.or_else(|| self.regions.oldest());
        self.settling.next = None;
        let wanted = if closing || planted::is(Planted::DirtyNotSticky) {
            0
        } else if pressed {
            IDLE_MIN
        } else {
            self.settings.clean_after
        };
        // Under pressure, or with a leg that leaves, more is asked of legs than they may be asked aside.
        let settles = !pressed && !closing && self.leaving() == 0 && self.lost.is_empty();
        let walk = Walk {
            now: self.clock.now(),
            idle: wanted,
            patience: self.settings.clean_after.saturating_mul(PATIENCE),
            may_be_asked: self.follow_waits(),
            settles,
        };
        let mut left = self.settings.limits.cleans_per_tick;
        while left > 0 {
            if let Some(record) = at.filter(|_| !short) {
                let (next, passed) = self.regions.pass_waiting(record, left, &walk);
                debug_assert!(self.just_wait(record, passed, &walk), "something is to be done");
                (at, left) = (next, left - passed);
                if left == 0 {
                    break;
                }
            }
            let Some(record) = at else { return };
            left -= 1;
            at = self.regions.newer(record);
            let idle = self.clock.now().since(self.regions.last_use(record));
            if idle < wanted {
                // In order of last use: nobody after this one has been idle for longer.
                return;
            }
            let at_rest =
                !self.regions.has_operations(record) || planted::is(Planted::CleanWhileWriting);
            if at_rest && self.regions.is_touched(self.regions.region_of(record)) {
                self.clean_region(record, idle, pressed, awaited);
            } else {
                self.retire_record(record);
            }
            if short && self.regions.is_used(record) {
                self.round_up_debts(record);
            }
            self.note_wait(record, &walk);
        }
        self.settling.next = at.map(|record| self.regions.key(record));
    }

    /// Frees the record of a clean region of which legs owe some parts: they owe all of it from
    /// now on, which needs no record. Without that, writes spread over more regions than there
    /// are records would wait for the leg that owes.
    fn round_up_debts(&mut self, record: u32) {
        let region = self.regions.region_of(record);
        let entry = self.regions.entry(region);
        if self.regions.is_touched(region) || self.regions.has_operations(record) {
            return;
        }
        for leg in self.legs.slots() {
            // What is being rebuilt would be begun anew, and never end.
            let rebuilt = self.regions.is_rebuilding(record, leg)
                && self.legs[leg].answers()
                && !planted::is(Planted::RebuildRoundedUp);
            let owes = self.regions.lacks(record, leg) > 0 && !rebuilt;
            if owes && !entry.is_whole(LegIndex(leg as u8)) {
                self.owe_region(leg, region);
            }
        }
        self.retire_record(record);
    }

    /// Settles one region if it can be, else asks for the flush it needs. Takes whether too many are
    /// dirty, and whether somebody waits for that to change.
    fn clean_region(&mut self, record: u32, idle: u64, pressed: bool, awaited: bool) {
        if !self.authority_is_durable(record) {
            // Recovery might still choose the leg before: nothing may count on this one yet.
            return;
        }
        let region = self.regions.region_of(record);
        let authority = self.regions.entry(region).authority();
        let is_leaving = self.is_leaving(authority);
        let mut whole = 0;
        let mut waits = false;
        for leg in self.legs.slots() {
            let index = LegIndex(leg as u8);
            let state = &self.legs[leg];
            if !state.is_member() {
                continue;
            }
            let complete = self.regions.is_complete(index, region)
                || self.lacks_only_repairs(record, leg)
                || planted::is(Planted::CleanBehindDebts) && !self.regions.is_stale(index, region);
            let done = self.regions.last_done(record, leg);
            // One that is silent keeps its bit where it has everything durable: else it could not
            // be left alone with what a flush of several copies has counted on it for.
            let is_repaired = !state.answers() && self.regions.is_only_repaired(record, leg);
            let has_it = state.is_in()
                && (done <= state.stamps.flushed() || is_repaired)
                && state.watch.health() != Health::Absent
                && !planted::is(Planted::SilentLosesBit);
            let stays = complete && (state.answers() || has_it);
            if !stays {
                // Better to wait a little for a leg that is catching up than to make it owe
                // a whole region after a crash.
                let patience = self.settings.clean_after.saturating_mul(PATIENCE);
                let catching_up = self.may_catch_up(state)
                    && !self.regions.is_stale(index, region)
                    && idle < patience
                    && !pressed;
                let is_compared =
                    state.is_in() && !awaited && self.regions.waits_to_compare(region, index);
                waits |= catching_up || is_compared;
                continue;
            }
            // What it has there of what is recorded as lost is older. It must know that first, or
            // recovery would take it for the newest.
            if self.lost.touches(self.regions.extent(region)) && !self.has_heard_of_loss(index) {
                if state.answers() {
                    self.request_lost_list(index);
                    waits = true;
                }
                continue;
            }
            if done <= state.stamps.flushed()
                || is_repaired
                || planted::is(Planted::CleanBeforeFlush)
            {
                whole |= index.bit();
            } else if !state.stamps.has_failed()
                || (is_leaving || index == authority) && self.may_flush_again(leg)
            {
                if pressed || is_leaving || self.may_flush_aside(leg) {
                    self.legs[index.index()].stamps.want_flush(done);
                }
                waits = true;
            }
        }
        if waits || whole & authority.bit() == 0 {
            return;
        }
        // Under a leg that leaves, one that stays has to have it all. It is not left to a move
        // of authority: the leg may be waiting for writers that wait for a clean region.
        let has_it = |leg: &Leg| whole & leg.index.bit() != 0;
        if is_leaving && !self.legs_that_stay(authority).any(has_it) {
            return;
        }
        let is_armed = if is_leaving || self.life.is_closing() {
            self.regions.clean(region, whole);
            false
        } else {
            self.regions.settle(record, whole)
        };
        if !is_armed {
            self.counters.region_cleaned();
        }
        self.marks.add_if(is_armed, Mark::Settled);
        self.marks.add_if(pressed, Mark::CleanedUnderPressure);
        let behind = self.legs.iter().any(|leg| leg.is_in() && whole & leg.index.bit() == 0);
        self.marks.add_if(behind, Mark::CleanedWithoutLeg);
        for leg in self.legs.slots() {
            let index = LegIndex(leg as u8);
            if !is_armed && self.legs[leg].is_in() && self.legs[leg].answers() {
                self.regions.request_page_of(region, index);
            }
            let behind = self.legs[leg].is_member()
                && whole & index.bit() == 0
                && self.regions.is_complete(index, region);
            if behind {
                self.regions.heal(index, region);
            }
        }
        self.retire_record(record);
    }

    /// Returns true if a leg may get a flush that nobody waits for. A drive that writes behind a cache
    /// stands still for it, and clients' writes with it. Where a leg is missing, the others are to be
    /// recorded whole at once: only whole legs decide regions anew.
    pub(super) fn may_flush_aside(&self, leg: usize) -> bool {
        self.legs[leg].stamps.has_rested(self.clock.now())
            || self.is_at_rest()
            || self.is_leg_missing() && !planted::is(Planted::HeirFlushedSeldom)
            || planted::is(Planted::FlushedAside)
    }

    /// Returns true if no client has written lately, or will: work in the background is in nobody's way.
    fn is_at_rest(&self) -> bool {
        let last_use = self.regions.last_use_of_any().unwrap_or(Instant(0));
        self.clock.now().since(last_use) >= AT_REST_AFTER || self.life.is_closing()
    }

    /// Returns true if a leg does not answer, is out, or leaves.
    fn is_leg_missing(&self) -> bool {
        let is_missing = |leg: &Leg| !leg.is_in() || !leg.answers() || self.is_leaving(leg.index);
        self.legs.iter().filter(|leg| leg.is_member()).any(is_missing)
    }

    /// Notes how long a leg's flush took, nanoseconds: the next that nobody waits for comes later.
    pub(in crate::engine) fn note_flush_time(&mut self, leg: usize, time: u64) {
        let rest = time.saturating_mul(FLUSH_SHARE).min(FLUSH_INTERVAL_MAX);
        self.legs[leg].stamps.rest_until(self.clock.now() + rest);
    }

    /// Returns true if a leg whose flush failed is to be asked for another: writers may wait until it
    /// has everything that a leg which is leaving decides, or until a region that it decides itself
    /// settles.
    fn may_flush_again(&self, leg: usize) -> bool {
        self.legs[leg].stamps.may_retry(self.clock.now()) && !planted::is(Planted::HeirFlushedOnce)
    }

    /// Returns true if all that a leg lacks of a region are blocks that its medium could not read: it
    /// is recorded whole, as it is where that is found in a clean region.
    pub(in crate::engine) fn lacks_only_repairs(&self, record: u32, leg: usize) -> bool {
        let region = self.regions.region_of(record);
        let index = LegIndex(leg as u8);
        if !self.regions.is_rebuilding(record, leg)
            || self.regions.is_stale(index, region)
            || planted::is(Planted::UnreadableLosesBit)
        {
            return false;
        }
        let extent = self.regions.extent(region);
        let mut repairs = self.repairs_under_way(leg, extent);
        let mut at = extent.start;
        while let Some((_, debt)) = self.legs[leg].debts.first_after(at)
            && debt.extent.start < extent.end
        {
            repairs += u32::from(debt.repair && debt.is_acknowledged());
            at = debt.extent.end;
        }
        repairs == self.regions.lacks(record, leg)
    }

    /// Counts the repairs within an extent that are being read or written for a leg.
    fn repairs_under_way(&self, leg: usize, extent: Extent) -> u32 {
        let repairs = self.ios.iter().filter(|(_, io)| match io.purpose {
            Purpose::Write { repair, .. } => repair && usize::from(io.leg) == leg,
            Purpose::DrainRead { target, repair, .. } => repair && usize::from(target) == leg,
            _ => false,
        });
        repairs.filter(|(_, io)| io.extent.overlaps(extent)).count() as u32
    }

    /// Gives legs their bits back for regions they have drained and flushed.
    fn heal_regions(&mut self) {
        for leg in self.legs.slots() {
            let index = LegIndex(leg as u8);
            if self.regions.healing_count(index) == 0 || !self.legs[leg].answers() {
                continue;
            }
            if !self.regions.metadata().knows_lost(index) {
                self.request_lost_list(index);
                continue;
            }
            if !self.regions.has_healed(index) {
                self.regions.begin_healing_flush(index);
                self.legs[leg].stamps.begin_healing();
            }
            let stamp = self.legs[leg].stamps.healing();
            if self.legs[leg].stamps.flushed() < stamp && !planted::is(Planted::HealBeforeFlush) {
                if self.may_flush_aside(leg) {
                    self.legs[index.index()].stamps.want_flush(stamp);
                }
                continue;
            }
            let mut from = 0;
            for _ in 0..self.settings.limits.heals_per_tick {
                let Some(region) = self.regions.take_healed(index, from) else { break };
                from = region + 1;
                if self.regions.is_touched(region) || !self.regions.is_complete(index, region) {
                    continue;
                }
                self.marks.add(Mark::Healed);
                self.regions.note_whole(index, region);
                self.record_soon(region);
            }
        }
    }

    /// Brings every leg's metadata up to date, a few blocks at a time, and at intervals while clients write.
    fn write_lazily(&mut self) {
        let mut current = true;
        let at_rest = self.is_at_rest() || planted::is(Planted::PagesAside);
        for leg in self.legs.slots() {
            let state = &self.legs[leg];
            let index = state.index;
            if !state.is_member() || !state.answers() {
                continue;
            }
            let now = self.clock.now();
            if !self.changes.is_changing(index)
                && (at_rest && !state.waits_to_retry(now) || state.may_have_pages(now))
            {
                self.legs[leg].put_off_pages(now + LAZY_INTERVAL);
                current &= self.regions.metadata_mut().request_lazily(index);
            } else {
                current = false;
            }
        }
        let converged = current && self.is_converged();
        if converged && !self.settling.said_converged {
            self.outbox.notice(Notice::Converged);
        }
        self.settling.said_converged = converged;
    }

    /// Every leg is in, owes nothing, and is recorded whole for every region. Not while something
    /// is recorded as lost: what the legs hold there need not be the same before it is rewritten.
    pub(in crate::engine) fn is_converged(&self) -> bool {
        self.regions.touched_count() == 0
            && self.lost.is_empty()
            && self.legs.iter().all(|leg| {
                !leg.is_member()
                    || leg.is_in()
                        && leg.answers()
                        && leg.debts.is_empty()
                        && leg.load.is_idle()
                        && self.regions.stale_count(leg.index) == 0
                        && leg.draining.rebuilding() == 0
                        && self.regions.healing_count(leg.index) == 0
            })
    }
}
