//! Exposure, and when writers wait for it.
//!
//! Exposure is what one leg alone holds of acknowledged data. With two legs it is the sum of
//! what both owe; with more, every byte held by one leg only is owed by all the others, so
//! the two smallest debts bound it from above. Regions owed as a whole (a rebuild, a crash)
//! are shown beside it but do not hold writers back: they shrink by themselves, and stopping
//! a volume for the length of a rebuild would serve nobody.
//!
//! From seven eighths of the bound writes are paced towards the rate at which debts are paid, plus
//! a part of what room is left each second: the slope is gradual and never reaches the bound.
//! Before that nothing is gained by it: a burst that fits is paid when it is over. Where a leg
//! cannot pay as much as the bound within the bound in age, the bound is what it can pay. Long
//! writes then go in pieces, since one that is let in at once would pass that. What a leg does
//! not answer for is no younger for slower writers: the age itself holds nobody back.

use alloc::collections::VecDeque;

use crate::engine::Engine;
use crate::engine::state::slab::Key;
use crate::identifiers::LegIndex;
use crate::io::{Buffers, Notice};
use crate::marks::Mark;
use crate::planted::{self, Planted};
use crate::settings::{ExposureMode, Policy};
use hemi_units::{Instant, SECOND, SECTOR_BYTES};

/// Writers use up the room that is left with this time constant.
const ROOM_TIME: u64 = SECOND;
/// Throttling is said to have begun at this share of the bound …
const BEGIN_PERMILLE: u64 = 875;
/// … and to have ended below this one.
const END_PERMILLE: u64 = 750;
/// Least part of the bound that a leg is taken to pay in time: the drain needs something to put in
/// order, and a leg that stalls with every request pays little.
const PAYABLE_MIN_PARTS: u64 = 16;
/// A write longer than this part of the bound is let in piece by piece …
const BOUND_PARTS: u64 = 4;
/// … and where age bounds more closely than bytes, one longer than this part of that: about
/// what is paid within the longest pause.
const PAYABLE_PARTS: u64 = 16;
/// Pieces get no shorter than this for that: a request in pieces can be done in part.
const PIECE_MIN: u64 = 16 << 10;
/// No single write is put off for longer than this by pacing.
const PAUSE_MAX: u64 = SECOND / 4;

/// Requests that write and are held back, and when the next may go on.
pub(in crate::engine) struct Throttle {
    waiting: VecDeque<Key>,
    next: Instant,
    /// Writers have been told to be held back, and not yet that they are not any more.
    active: bool,
    /// The most exposure there has been, in bytes.
    peak: u64,
    /// Sectors of writes let in and not yet acknowledged.
    unacknowledged: u64,
}

impl Throttle {
    pub(in crate::engine) fn new(capacity: usize) -> Throttle {
        Throttle {
            waiting: VecDeque::with_capacity(capacity),
            next: Instant(0),
            active: false,
            peak: 0,
            unacknowledged: 0,
        }
    }

    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns true while writers are held back, or were until lately.
    pub(in crate::engine) fn is_active(&self) -> bool {
        self.active
    }

    /// Returns the most exposure there has been, in bytes.
    pub(in crate::engine) fn peak(&self) -> u64 {
        self.peak
    }

    /// Counts a write that may now come to be acknowledged.
    pub(in crate::engine) fn let_in(&mut self, sectors: u64) {
        self.unacknowledged += sectors;
    }

    /// Counts a write that has been answered.
    pub(in crate::engine) fn answered(&mut self, sectors: u64) {
        self.unacknowledged -= sectors;
    }

    /// Returns the sectors of writes that have been let in and not been answered.
    pub(in crate::engine) fn unacknowledged(&self) -> u64 {
        self.unacknowledged
    }
}

/// Puts a value among the two least, in order, if it is one of them.
fn keep_least<T: Copy + Ord>(least: &mut [T; 2], value: T) {
    if value < least[0] {
        *least = [value, least[0]];
    } else if value < least[1] {
        least[1] = value;
    }
}

/// Acknowledged bytes that legs lack.
#[derive(Clone, Copy)]
struct Lacks {
    /// Number of legs.
    legs: u64,
    /// Sum of what they lack.
    sum: u64,
    /// The two that lack least, with their slots.
    least: [(u64, usize); 2],
}

impl Lacks {
    /// Returns the exposure if `bytes` more were acknowledged. What one leg alone has of them raises
    /// either of the two smallest debts by its size, and the sum of all by so much for each of the
    /// other legs.
    fn exposure(&self, bytes: u64) -> u64 {
        if self.legs < 2 {
            // What is in flight counts once a second leg is being taken in.
            return bytes;
        }
        let [(least, _), (second, _)] = self.least;
        (least + second + 2 * bytes).min(self.sum / (self.legs - 1) + bytes)
    }

    /// Returns the leg that is second by how little it lacks: with two legs the one that owes most.
    fn second(&self) -> Option<usize> {
        Some(self.least[1].1).filter(|_| self.legs >= 2)
    }
}

impl<B: Buffers> Engine<B> {
    /// Acknowledged bytes a leg lacks, regions owed as a whole left out.
    pub(in crate::engine) fn lacked_bytes(&self, leg: usize) -> u64 {
        let state = &self.legs[leg];
        let left_out = planted::is(Planted::ExposureInFlight);
        let in_flight = if left_out { 0 } else { state.load.acknowledged() };
        let carried =
            if planted::is(Planted::CarriedUncounted) { 0 } else { state.load.carried().exact };
        state.debts.bytes() + (in_flight + carried) * SECTOR_BYTES
    }

    /// An upper bound of the acknowledged bytes held by one leg only; exact for two legs.
    /// The two smallest debts bound it, and so does the sum of all by the number of the other
    /// legs, since each of them lacks such a byte.
    pub(in crate::engine) fn exposure(&self) -> u64 {
        self.lacks(None).exposure(0)
    }

    /// Returns the most that [`Engine::exposure`] can become when `bytes` more are acknowledged,
    /// before a leg that is being taken in has been, and after.
    fn exposure_if(&self, lacks: &Lacks, bytes: u64) -> u64 {
        let now = lacks.exposure(bytes);
        // One that is silent meanwhile holds nobody back: it is taken in later, or not at all.
        let coming = self.changes.coming_in().filter(|leg| self.legs[leg.index()].answers());
        coming.map_or(now, |leg| now.max(self.lacks(Some(leg)).exposure(bytes)))
    }

    /// Returns true if a leg can be taken in without passing the bound with what has been let in.
    pub(in crate::engine) fn exposure_fits_with(&self, leg: LegIndex) -> bool {
        let bytes = self.unacknowledged_bytes();
        !self.throttles() || self.lacks(Some(leg)).exposure(bytes) <= self.settings.exposure_bytes
    }

    /// Returns what the legs that are in lack, and one more.
    fn lacks(&self, more: Option<LegIndex>) -> Lacks {
        let mut lacks = Lacks { legs: 0, sum: 0, least: [(u64::MAX, usize::MAX); 2] };
        for leg in self.legs.slots() {
            if !self.legs[leg].is_in() && more != Some(LegIndex(leg as u8)) {
                continue;
            }
            let lacked = self.lacked_bytes(leg);
            lacks.legs += 1;
            lacks.sum += lacked;
            keep_least(&mut lacks.least, (lacked, leg));
        }
        lacks
    }

    /// An upper bound of the age of the oldest exposed write, nanoseconds; exact for two legs.
    /// What one leg alone holds all the others lack, so that the oldest lack of the leg that is
    /// second by that is as old at least. One that owes regions whole may lack all the others do.
    pub(in crate::engine) fn exposure_age(&self) -> u64 {
        let mut least = [u64::MAX; 2];
        let mut oldest = 0;
        for leg in self.legs.slots().filter(|&leg| self.legs[leg].is_in()) {
            let lack = self.oldest_lack(leg).map_or(0, |since| self.clock.now().since(since));
            oldest = oldest.max(lack);
            let index = LegIndex(leg as u8);
            let owes_whole =
                self.regions.stale_count(index) > 0 || self.legs[leg].draining.rebuilding() > 0;
            keep_least(&mut least, if owes_whole { u64::MAX } else { lack });
        }
        least[1].min(oldest)
    }

    pub(super) fn note_exposure(&mut self) {
        let exposure = self.exposure();
        self.throttle.peak = self.throttle.peak.max(exposure);
    }

    /// Returns how full the bound is, by bytes or by the time the debts will take to pay.
    pub(in crate::engine) fn pressure_permille(&self) -> u64 {
        let lacks = self.lacks(None);
        let exposure = lacks.exposure(0);
        if exposure == 0 {
            return 0;
        }
        exposure.saturating_mul(1000) / self.effective_bound(&lacks).max(1)
    }

    /// The bound in bytes, or what the lagging leg can pay within the bound in age if that
    /// is less.
    fn effective_bound(&self, lacks: &Lacks) -> u64 {
        let rate = self.pay_rate(lacks);
        if rate == 0 || planted::is(Planted::PayRateIgnored) {
            return self.settings.exposure_bytes;
        }
        let age = u128::from(self.settings.exposure_age);
        let payable = (u128::from(rate) * age * 7 / 10 / u128::from(SECOND)) as u64;
        let bound = self.settings.exposure_bytes;
        bound.min(payable.max(bound / PAYABLE_MIN_PARTS))
    }

    /// Bytes per second at which the leg pays that is second by how little it lacks. Zero when that is
    /// not known.
    fn pay_rate(&self, lacks: &Lacks) -> u64 {
        lacks.second().map_or(0, |leg| self.legs[leg].drain_rate.bytes_per_second())
    }

    /// Returns the exposure if all that is in flight were acknowledged and `sectors` more were in
    /// flight.
    pub(in crate::engine) fn exposure_with(&self, sectors: u64) -> u64 {
        let bytes = self.unacknowledged_bytes() + sectors * SECTOR_BYTES;
        self.exposure_if(&self.lacks(None), bytes)
    }

    pub(in crate::engine) fn throttles(&self) -> bool {
        self.settings.exposure_mode == ExposureMode::Throttle
            && matches!(self.settings.policy, Policy::First | Policy::Paper)
    }

    /// Returns true if the next part of a request has to wait for its turn. It is queued then.
    pub(super) fn holds_back(&mut self, slot: u32) -> bool {
        if !self.throttles() {
            return false;
        }
        if self.throttle.waiting.is_empty() && self.may_pass(slot) {
            return false;
        }
        self.throttle.waiting.push_back(self.requests.hold_back(slot));
        true
    }

    /// Returns true if the next part of a request may go now. Sets when the next one may.
    fn may_pass(&mut self, slot: u32) -> bool {
        let lacks = self.lacks(None);
        let exposure = lacks.exposure(0);
        let bound = self.effective_bound(&lacks);
        let bytes = self.part_within(slot, self.write_sectors_within(bound)).bytes();
        // Everything in flight may be acknowledged at the moment a leg freezes, or, while the
        // volume is degraded, when its second leg is in again. With nothing in flight and
        // nothing exposed there is room for any write: see `write_sectors_max`.
        let under_way = self.unacknowledged_bytes();
        let then = self.exposure_if(&lacks, under_way + bytes);
        if then > self.settings.exposure_bytes {
            self.marks.add(Mark::ExposureBound);
            let silent = self.legs.that_are_in().any(|leg| !leg.answers());
            self.marks.add_if(silent, Mark::ExposureBoundWhileFrozen);
            return false;
        }
        if exposure + under_way == 0 {
            return true;
        }
        // What is in flight will have to be paid as well.
        let unpaced = planted::is(Planted::BurstUnpaced);
        let to_pay = if bound < self.settings.exposure_bytes && !unpaced { then } else { exposure };
        let mut filled = to_pay.saturating_mul(1000) / bound.max(1);
        if planted::is(Planted::PacedByAge) && self.exposure_age() > self.settings.exposure_age {
            filled = 1000;
        }
        self.say_throttling(filled);
        let begin = if planted::is(Planted::PacedFromHalf) { 500 } else { BEGIN_PERMILLE };
        if filled < begin {
            return true;
        }
        if self.clock.now() < self.throttle.next {
            self.marks.add(Mark::ExposurePaced);
            return false;
        }
        // Where pacing begins the pay rate is multiplied without end, at the bound it is
        // itself; beside it a share of the room that is left.
        let room = bound.saturating_sub(to_pay);
        let over = filled.saturating_sub(begin).max(1);
        let paid = self.pay_rate(&lacks).saturating_mul(1000 - begin) / over;
        let rate = paid.saturating_add(room * SECOND / ROOM_TIME).max(1);
        let pause = (u128::from(bytes) * u128::from(SECOND) / u128::from(rate)) as u64;
        // Credit for at most a millisecond keeps a late timer from costing throughput.
        let from = self.throttle.next.max(self.clock.now() - 1_000_000);
        self.throttle.next = from + pause.min(PAUSE_MAX);
        true
    }

    /// Longest write let in at once: a part of the bound, so that there is always room for it
    /// without going past, also with three legs or more; less where age bounds more closely.
    pub(super) fn write_sectors_max(&self) -> u64 {
        if self.throttles() {
            self.write_sectors_within(self.effective_bound(&self.lacks(None)))
        } else {
            u64::MAX
        }
    }

    /// The same under this [`Engine::effective_bound`].
    fn write_sectors_within(&self, bound: u64) -> u64 {
        let block = self.volume.block_sectors();
        let mut longest = self.settings.exposure_bytes / BOUND_PARTS;
        if bound < self.settings.exposure_bytes {
            longest = longest.min((bound / PAYABLE_PARTS).max(PIECE_MIN));
        }
        let sectors = longest / SECTOR_BYTES;
        (sectors / block * block).max(block)
    }

    fn unacknowledged_bytes(&self) -> u64 {
        let left_out = planted::is(Planted::ExposureUnacknowledged);
        if left_out { 0 } else { self.throttle.unacknowledged() * SECTOR_BYTES }
    }

    fn say_throttling(&mut self, filled: u64) {
        if !self.throttle.active && filled >= BEGIN_PERMILLE {
            self.throttle.active = true;
            self.outbox.notice(Notice::Throttling);
        } else if self.throttle.active && filled < END_PERMILLE {
            self.throttle.active = false;
            self.outbox.notice(Notice::ThrottlingEnded);
        }
    }

    /// Lets writers go on as exposure allows.
    pub(in crate::engine) fn pump_throttle(&mut self) {
        if self.detaching.is_paused() {
            return;
        }
        if self.throttle.active && self.throttle.waiting.is_empty() {
            let filled = self.pressure_permille();
            self.say_throttling(filled);
        }
        while let Some(&key) = self.throttle.waiting.front() {
            let request = self.requests.get(key);
            let goes_on = request.is_some_and(|request| request.error.is_none());
            if goes_on {
                let no_room = !self.has_room_for_operation(key.slot);
                if no_room || self.throttles() && !self.may_pass(key.slot) {
                    return;
                }
            }
            self.throttle.waiting.pop_front();
            if !self.requests.is_live(key) {
                continue;
            }
            self.requests.let_go_on(key.slot);
            if goes_on {
                self.start_next(key.slot);
            }
            self.advance_request(key.slot);
        }
    }

    /// Returns when a writer held back by pacing may go.
    pub(in crate::engine) fn throttle_deadline(&self) -> Instant {
        if self.throttle.waiting.is_empty() {
            Instant::NEVER
        } else if self.throttle.next > self.clock.now() {
            self.throttle.next
        } else {
            // Held back by the bound itself: a completion or the tick will tell.
            self.clock.next_tick()
        }
    }
}
