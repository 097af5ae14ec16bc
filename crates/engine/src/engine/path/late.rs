//! Single requests that a leg is late with.
//!
//! A leg can lose sight of one request, or of some, and go on answering the others. A verdict on the
//! whole leg would be wrong then: what is late is handed over by itself, and the leg goes on being
//! used. A client's read is asked of another leg as well; a write that another leg has is decided by
//! that leg from then on; a page that nobody can wait for is written where another leg decides.
//!
//! A leg's own wait limit counts only where it is the least of the legs' limits: a leg that stalls half
//! of what it is asked for has made its own a high one.

use crate::engine::Engine;
use crate::engine::path::read::Place;
use crate::engine::state::in_flight::Purpose;
use crate::engine::state::leg::{Class, Pace};
use crate::engine::state::operations::Stage;
use crate::engine::state::slab::Key;
use crate::identifiers::LegIndex;
use crate::io::Buffers;
use crate::marks::Mark;
use crate::planted::{self, Planted};
use crate::settings::Policy;
use hemi_units::Instant;

/// A write that takes this many times as long as the leg usually takes is no part of its pace.
const LOST_TIMES: u64 = 8;

/// A read that went to a leg again which had been late with it is waited for this many times as long.
const AGAIN_TIMES: u64 = 8;

/// A read that its legs are late with is asked for at most this many times more …
const ASKED_MORE: u32 = 4;
/// … each time this many times as late as the last.
const ASKED_LATER: u32 = 4;

impl<B: Buffers> Engine<B> {
    /// Returns how long one I/O of a leg is waited for where another leg could do instead, nanoseconds:
    /// the least wait limit of the leg and of the others that are trusted. For a page or a flush
    /// it is half of that, and at least as for a small write: that is what their limit is made of.
    pub(in crate::engine) fn hand_over_after(&self, leg: usize, class: Class, sectors: u64) -> u64 {
        let kind = Pace::kind(class, sectors);
        let now = self.clock.now();
        let mut least = u64::MAX;
        for (at, other) in self.legs.in_use().iter().enumerate() {
            if at == leg || other.is_in() && other.is_trusted(now) {
                least = least.min(other.pace.limit_of(kind));
            }
        }
        match class {
            Class::Flush => (least / 2).max(self.hand_over_after(leg, Class::Write, 0)),
            Class::Read | Class::Write => least,
        }
    }

    /// Returns true if a leg has a write in flight for many times as long as it usually takes. Such writes
    /// fill its window, and slower writers would make none of them end sooner.
    pub(in crate::engine) fn loses_sight_of_writes(&self, leg: usize) -> bool {
        let state = &self.legs[leg];
        let lost = (LOST_TIMES * state.pace.usual_write()).max(self.settings.wait_floor);
        for (_, io) in self.ios.on(leg) {
            if matches!(io.purpose, Purpose::Write { .. }) {
                return self.clock.now().since(io.submitted) > lost
                    && !planted::is(Planted::LostPace);
            }
        }
        false
    }

    /// Returns true if a leg has lost sight of one I/O and goes on answering others: it has answered what
    /// was sent later. Nothing follows for the leg then. Only of what can be handed over by itself.
    pub(in crate::engine) fn has_lost_sight_of(&self, slot: u32) -> bool {
        let io = &self.ios[slot];
        let class = match io.purpose {
            Purpose::Read { .. }
            | Purpose::Hedge { .. }
            | Purpose::DrainRead { .. }
            | Purpose::LateRead { .. }
            | Purpose::Sieve { .. } => Class::Read,
            Purpose::Write { .. } => Class::Write,
            Purpose::Metadata(write) if self.regions.metadata().is_page(write.object) => {
                Class::Flush
            }
            _ => return false,
        };
        let leg = &self.legs[usize::from(io.leg)];
        let limit = leg.pace.wait_limit(class, io.extent.sectors());
        self.settings.policy == Policy::First
            && leg.pace.has_been_heard_since(class, io.submitted, limit)
            && self.clock.now().since(io.submitted) < self.settings.out_after
            && !planted::is(Planted::LegJudgedByOne)
    }

    /// Hands over an I/O that a leg is late with. A write is handed over when its operation is looked at
    /// again. Returns when this one is to be looked at again.
    pub(in crate::engine) fn hand_over(&mut self, slot: u32) -> Instant {
        let io = self.ios[slot];
        self.legs[usize::from(io.leg)].pace.note_lost_sight(self.clock.now());
        match io.purpose {
            Purpose::Read { .. } if !planted::is(Planted::LateReadAwaited) => {
                return self.hand_over_read(slot);
            }
            Purpose::DrainRead { .. } if self.has_lost_sight_of(slot) => {
                self.give_up_drain_read(slot, false);
            }
            Purpose::Sieve { target, .. } if self.has_lost_sight_of(slot) => {
                self.give_up_sieve(slot, usize::from(target));
            }
            Purpose::Metadata(write) if !planted::is(Planted::LatePageAwaited) => {
                self.hand_over_page(usize::from(io.leg), write.object);
            }
            Purpose::Flush => self.hand_over_flush(usize::from(io.leg), slot),
            _ => {}
        }
        Instant::NEVER
    }

    /// Asks another leg for what a leg is late with reading, once that has taken as long as the other is
    /// expected to take. A read that cannot be asked twice, or whose other leg has fallen silent, starts
    /// over without the leg.
    fn hand_over_read(&mut self, slot: u32) -> Instant {
        let io = self.ios[slot];
        let Purpose::Read { operation: key } = io.purpose else { return Instant::NEVER };
        let Some(&state) = self.operations.get(key) else { return Instant::NEVER };
        let first = LegIndex(io.leg).bit();
        let others = self.place(io.extent, first | state.failed);
        let is_part =
            state.extent != self.requests[state.request].extent || io.extent != state.extent;
        if let Place::Leg(other, sectors) = others {
            let from = io.submitted + self.legs[other].expected_read(sectors);
            if self.clock.now() < from {
                return if is_part { from } else { from.min(self.ask_again(slot, key)) };
            }
        }
        if !state.hedged {
            let age = self.clock.now().since(io.submitted);
            self.legs[usize::from(io.leg)].pace.note_lost_read(io.extent.sectors(), age);
        }
        self.consider_hedge(slot, true);
        let Some(&state) = self.operations.get(key) else { return Instant::NEVER };
        let asked_twice = state.hedged && state.parts > 1;
        let alone = !state.hedged && matches!(others, Place::Wait | Place::Nowhere);
        if !is_part && (asked_twice || alone) {
            return self.ask_again(slot, key);
        }
        // Once for all its parts. Where it was sent to the leg again it is waited for longer.
        let late = self.hand_over_after(usize::from(io.leg), Class::Read, io.extent.sectors());
        let request = &self.requests[state.request];
        let again = request.avoid & first != 0 && !request.restart;
        let from = io.submitted + if again { AGAIN_TIMES * late } else { late };
        let elsewhere = self.elsewhere(usize::from(io.leg), state.failed, io.extent);
        if self.clock.now() >= from && elsewhere && self.has_lost_sight_of(slot) {
            self.give_up_read(slot);
            return Instant::NEVER;
        }
        self.clock.now() + late
    }

    /// Asks once more for what is late, though no other leg has it or that one is late, too: a leg may
    /// have lost sight of this one request.
    fn ask_again(&mut self, slot: u32, key: Key) -> Instant {
        let io = self.ios[slot];
        let late = self.hand_over_after(usize::from(io.leg), Class::Read, io.extent.sectors());
        let state = self.operations[key.slot];
        let more = state.parts.saturating_sub(2);
        if more >= ASKED_MORE || planted::is(Planted::ReadAskedTwice) {
            return Instant::NEVER;
        }
        let after = |more: u32| io.submitted + (late + late / 2) * u64::from(ASKED_LATER.pow(more));
        if self.clock.now() < after(more) {
            return after(more);
        }
        let age = self.clock.now().since(io.submitted);
        let other = self.place(io.extent, state.failed | LegIndex(io.leg).bit());
        let is_better = |engine: &Self, place: &Place| match *place {
            Place::Leg(leg, sectors) => {
                engine.legs[leg].expected_read(sectors) <= age && !engine.is_asked(leg, key)
            }
            _ => false,
        };
        let place = Some(other).filter(|other| is_better(self, other));
        let place = place.unwrap_or_else(|| self.place(io.extent, state.failed));
        if let Place::Leg(leg, sectors) = place
            && self.legs[leg].answers()
            && sectors == io.extent.sectors()
        {
            self.marks.add(Mark::ReadAskedAgain);
            self.send_hedge(leg, io.extent, key);
        }
        after(more + 1).max(self.clock.now() + late)
    }

    /// Returns true if a leg has been asked for an operation's read and has not answered.
    fn is_asked(&self, leg: usize, key: Key) -> bool {
        for (_, io) in self.ios.on(leg) {
            if let Purpose::Read { operation } | Purpose::Hedge { operation } = io.purpose
                && operation == key
            {
                return true;
            }
        }
        false
    }

    /// A page write to a leg is late, or failed: whoever waits for it gets another authority.
    pub(in crate::engine) fn hand_over_page(&mut self, leg: usize, object: u32) {
        if !self.regions.metadata_mut().note_late(object, LegIndex(leg as u8)) {
            return;
        }
        if self.regions.metadata().is_page(object) {
            self.marks.add(Mark::PageLate);
            self.regions.wake_moves();
            self.retry_all_waiting(Some(object));
            self.consider_flushes();
        }
    }

    /// A leg's flush is late: what a client's flush depends on it for gets another authority.
    fn hand_over_flush(&mut self, leg: usize, slot: u32) {
        let state = &mut self.legs[leg];
        let again = state.stamps.call_late();
        if !again && state.stamps.is_flush_io(slot) && self.flushing.is_awaited() {
            self.marks.add(Mark::FlushLate);
            self.consider_flushes();
        }
    }

    /// Returns true if a leg's flush is in flight and late.
    pub(super) fn flush_is_late(&self, leg: usize) -> bool {
        self.legs[leg].stamps.is_late() && !planted::is(Planted::LateFlushAwaited)
    }

    /// Returns the legs that may take over from an authority that is late with what is waited for in a
    /// region, as a mask; `None` if nothing such is.
    pub(super) fn relief_of_late_authority(&self, record: u32) -> Option<u8> {
        // A leg that usually takes longer than has been waited for would be waited for in turn, and so
        // would one that is late with the page itself.
        let waited = self
            .regions
            .waiters(record)
            .map(|w| self.clock.now().since(self.operations[w].started));
        let waited = waited.max().filter(|_| !planted::is(Planted::SlowerRelieves));
        let page = self.regions.page_of(self.regions.region_of(record));
        let quick = self
            .legs
            .that_are_in()
            .filter(|leg| waited.is_none_or(|t| leg.pace.usual_write() <= t));
        let quick = quick.filter(|leg| !self.regions.metadata().is_late(page, leg.index));
        let quick = quick.fold(0, |mask, leg| mask | leg.index.bit());
        let mut waiters = self.regions.waiters(record);
        if let Some(late) = waiters.find(|&operation| self.authority_is_late(operation)) {
            let free = self.regions.goes_by_ledger() && !self.operations[late].fua;
            return Some(self.operations[late].done & if free { u8::MAX } else { quick });
        }
        let region = self.regions.region_of(record);
        let authority = self.regions.entry(region).authority();
        let flush = self.flushing.is_awaited() && self.flush_is_late(authority.index());
        if !flush && !self.regions.page_is_late(record) {
            return None;
        }
        // Once to any leg. After that to one that was late, too, only when this leg has had as long as
        // all before it: pages would be handed to and fro, and none be durable in time.
        let again = !self.regions.may_move_again(record, self.clock.now());
        let again = again || planted::is(Planted::LateMoveHeld);
        let fit =
            self.legs.that_are_in().filter(|leg| !again || leg.pace.is_steady(self.clock.now()));
        let fit = fit.fold(0, |mask, leg| mask | leg.index.bit());
        let fit = if flush { fit } else { fit & quick };
        // Not to a leg that what is waited for has still to reach.
        let mut waiters = self.regions.waiters(record).peekable();
        let is_waited_for = waiters.peek().is_some() || self.flushing.is_awaited();
        let sent = |&operation: &u32| self.operations[operation].stage == Stage::Running;
        let have = waiters.filter(sent).map(|operation| self.operations[operation].done);
        is_waited_for.then(|| have.fold(fit, |mask, done| mask & done))
    }
}
