//! Acknowledging writes: at the first completion that recovery would honour, as far as the policy
//! allows. Where none comes by itself, a move of authority is asked for.

use alloc::vec::Vec;

use crate::engine::Engine;
use crate::engine::state::debt::Since;
use crate::engine::state::leg::{Class, Health, Leg};
use crate::engine::state::operations::Stage;
use crate::engine::state::slab::Key;
use crate::identifiers::LegIndex;
use crate::io::Buffers;
use crate::marks::Mark;
use crate::planted::{self, Planted};
use crate::settings::Policy;
use hemi_units::Instant;

/// Writes whose acknowledgement is looked at again, apart from completions.
pub(in crate::engine) struct Revisits {
    /// Those that wait for a point in time.
    timed: Vec<Key>,
    /// All of them, when this input has been dealt with.
    all: bool,
}

impl Revisits {
    pub(in crate::engine) fn with_capacity(capacity: usize) -> Revisits {
        Revisits { timed: Vec::with_capacity(capacity), all: false }
    }

    /// Notes that something other than a completion may let writes be acknowledged.
    pub(in crate::engine) fn look_at_all(&mut self) {
        self.all = true;
    }

    /// Returns true once after each such note.
    pub(in crate::engine) fn take_all(&mut self) -> bool {
        core::mem::take(&mut self.all)
    }
}

impl<B: Buffers> Engine<B> {
    /// Looks again at every write that is with the legs.
    pub(in crate::engine) fn reconsider_operations(&mut self) {
        for slot in self.operations.slots() {
            if self.operations.is_running_write(slot) {
                self.consider_acknowledgement(slot);
            }
        }
    }

    /// Looks again at the writes of a region whose authority has moved. The new one may have them already
    /// where only the old one was to decide.
    pub(in crate::engine) fn reconsider_region(&mut self, region: u32) {
        let record = self.regions.slot(region);
        if !record.is_some_and(|record| self.regions.has_operations(record)) {
            return;
        }
        let extent = self.regions.extent(region);
        // One that leaves has its place taken by the last, which has been looked at by then. A scrub's range
        // is no operation's.
        for place in (0..self.locks.count()).rev() {
            let write = self.locks.write_at(place, extent);
            if let Some(write) = write.filter(|&write| self.operations.is_running_write(write)) {
                self.consider_acknowledgement(write);
            }
        }
    }

    /// Acknowledges an operation if recovery would honour it; else sees to what is missing.
    pub(super) fn consider_acknowledgement(&mut self, operation: u32) {
        let state = self.operations[operation];
        let record = self.record_of(operation);
        let authority = self.regions.entry(state.region).authority();
        let first =
            self.regions.entry(self.regions.of_sector(self.requests[state.request].extent.start));
        if planted::is(Planted::SpanningNeverAcked) && first.authority() != authority {
            return;
        }
        let first_decides = planted::is(Planted::FirstRegionDecides);
        let authority = if first_decides { first.authority() } else { authority };
        if state.done & authority.bit() != 0 {
            let dropped =
                matches!(self.legs[authority.index()].watch.health(), Health::Gone { .. });
            if dropped || !self.regions.is_complete(authority, state.region) {
                // It lost its cache, or may have: this write and what lies beneath it may be
                // gone. Whether it has, it says when it comes back.
                self.regions.want_move(record);
                self.regions.wait(operation, record);
            } else if state.rewrites_lost
                && state.in_flight == 0
                && !self.lost.has_room_without(state.extent)
            {
                self.fail_write(operation, record);
            } else if !self.recovery_honours(operation, record)
                && !planted::is(Planted::AckBeforeMove)
                || !self.lost_list_follows(operation)
            {
                self.marks.add(Mark::AcknowledgementWaited);
                self.regions.wait(operation, record);
            } else if self.policy_allows(operation) {
                self.acknowledge(operation, record);
            }
            return;
        }
        // It owed the whole region when the write was sent, or lost its cache since, and is the
        // authority now.
        let unsent = (state.in_flight | state.owed) & authority.bit() == 0;
        if unsent && self.legs[authority.index()].answers() {
            if !self.regions.is_stale(authority, state.region) {
                self.owe(operation, authority.index());
                return;
            }
            // It gets the write once its region is taken up.
            self.regions.wait(operation, record);
        }
        if state.done != 0 {
            let answers = self.legs[authority.index()].answers();
            let timed_out = self.is_timed_out(operation);
            let deadline = self.late_deadline(operation);
            let late = deadline.is_some_and(|deadline| self.clock.now() >= deadline);
            if !answers || state.failed & authority.bit() != 0 || timed_out || late {
                let quiet = late && self.flushing.is_quiet(self.clock.now());
                self.marks.add_if(quiet, Mark::AuthorityNotAwaited);
                if timed_out {
                    self.regions.force_move(record);
                } else {
                    self.regions.want_move(record);
                }
                self.regions.wait(operation, record);
            } else if deadline.is_some() {
                self.look_again_in_time(operation);
            }
            return;
        }
        let sent = state.in_flight | state.owed;
        let failed = self.legs.that_are_in().all(|leg| {
            let bit = leg.index.bit();
            state.failed & bit != 0 || sent & bit == 0
        });
        if failed && state.in_flight == 0 && state.failed != 0 {
            self.fail_write(operation, record);
        }
    }

    /// Returns true if the next start would honour a write that the region's authority has. One that is
    /// to be durable needs the page: a power cut leaves no ledger.
    fn recovery_honours(&mut self, operation: u32, record: u32) -> bool {
        let needs_page = self.operations[operation].fua && !planted::is(Planted::FuaByLedger);
        self.regions.goes_by_ledger() && !needs_page || self.authority_is_durable(record)
    }

    /// Returns true if the lost list no longer names what this write has rewritten.
    fn lost_list_follows(&mut self, operation: u32) -> bool {
        let state = self.operations[operation];
        if !state.rewrites_lost {
            if !self.lost.touches(state.extent) {
                return true;
            }
            // Lost while the write was in flight: what it wrote may be in a cache only.
            let authority = self.regions.entry(state.region).authority();
            let record = self.record_of(operation);
            let stamp = self.regions.last_done(record, authority.index());
            if self.legs[authority.index()].stamps.flushed() < stamp {
                self.legs[authority.index()].stamps.want_flush(stamp);
                return false;
            }
            self.operations.rewrite_lost(operation);
        }
        let waits = self.regions.rewrites_wait(self.record_of(operation));
        if !self.lost.has_room_without(state.extent) || waits {
            return false;
        }
        self.rewrite_lost(operation);
        let authority = self.regions.entry(state.region).authority();
        if self.regions.metadata().knows_lost(authority) || planted::is(Planted::AckBeforeList) {
            return true;
        }
        self.request_lost_list(authority);
        false
    }

    /// Returns true if the volume's policy lets a safe write be acknowledged now.
    fn policy_allows(&mut self, operation: u32) -> bool {
        let state = self.operations[operation];
        // A leg it was not sent to owes the whole region, and is not waited for; one that
        // failed it owes it, or the region.
        let sent = state.in_flight | state.owed;
        let missing = |engine: &Self, except: Option<usize>| {
            engine
                .legs
                .that_are_in()
                .any(|leg| Some(leg.index.index()) != except && sent & leg.index.bit() != 0)
        };
        match self.settings.policy {
            Policy::First => true,
            Policy::All => !missing(self, None),
            Policy::WriteBehind => {
                let slow = usize::from(self.settings.slow_leg);
                let leg = &self.legs[slow];
                let behind = leg.debts.len() as u32 + leg.load.writes();
                let except = (behind <= self.settings.write_behind_limit).then_some(slow);
                !missing(self, except)
            }
            Policy::Paper => !missing(self, None) || self.is_timed_out(operation),
        }
    }

    /// Returns when the paper's rule gives up on the legs that are still missing.
    fn paper_deadline(&self, operation: u32) -> Option<Instant> {
        let state = &self.operations[operation];
        let first = state.first_done?;
        let wait = first.since(state.started) as u128
            * u128::from(self.settings.paper_wait_permille)
            / 1000;
        Some(state.started + wait as u64)
    }

    fn is_timed_out(&mut self, operation: u32) -> bool {
        if self.settings.policy != Policy::Paper {
            return false;
        }
        let timed_out =
            self.paper_deadline(operation).is_some_and(|deadline| self.clock.now() >= deadline);
        if !timed_out {
            self.look_again_in_time(operation);
        }
        timed_out
    }

    /// Returns when the authority of an operation's region has been waited for long enough, if another
    /// leg has the write. By the ledger, that is when it is later than it usually is, and at once if it
    /// is always slower than the leg that has it. While clients do not flush, it is at once as well if a leg
    /// that has the write may take over without a flush, which nobody else has asked for then, and otherwise
    /// when the write is handed over. So it is where a page has to say at once who takes over: its write
    /// costs what would be gained by that.
    fn late_deadline(&self, operation: u32) -> Option<Instant> {
        let state = &self.operations[operation];
        let authority = self.regions.entry(state.region).authority();
        let is_awaited = state.done != 0 && state.done & authority.bit() == 0;
        if !is_awaited || self.settings.policy != Policy::First {
            return None;
        }
        let by_ledger = self.regions.goes_by_ledger()
            && !state.fua
            && !planted::is(Planted::LateAuthorityAwaited);
        let (leg, sectors) = (authority.index(), state.extent.sectors());
        let hand_over = self.hand_over_after(leg, Class::Write, sectors);
        let decides = &self.legs[leg];
        let has_it = |leg: &&Leg| state.done & leg.index.bit() != 0;
        let outpaced = decides.pace.is_slow()
            && self.legs.that_are_in().filter(has_it).any(|leg| !leg.pace.is_slow());
        if !by_ledger && planted::is(Planted::LateWriteAwaited) {
            return None;
        }
        let quiet = self.flushing.is_quiet(self.clock.now());
        let record = self.record_of(operation);
        let has_flushed =
            |leg: &Leg| self.regions.has_flushed(record, leg.index, leg.stamps.flushed());
        let may_take_over = |leg: &Leg| has_flushed(leg) || planted::is(Planted::QuietMovesFlush);
        let durable = quiet && self.legs.that_are_in().filter(has_it).any(may_take_over);
        let wait = if by_ledger && (outpaced || durable) {
            0
        } else if by_ledger && !quiet {
            decides.pace.late_after(sectors).min(hand_over)
        } else {
            hand_over
        };
        Some(state.sent + wait)
    }

    /// Returns true if another leg may take over from an operation's authority, which is late.
    pub(super) fn authority_is_late(&self, operation: u32) -> bool {
        let running = self.operations[operation].stage == Stage::Running;
        running
            && self.late_deadline(operation).is_some_and(|deadline| self.clock.now() >= deadline)
    }

    fn look_again_in_time(&mut self, operation: u32) {
        if self.operations.time(operation) {
            let key = self.operations.key(operation);
            self.revisits.timed.push(key);
        }
    }

    /// Returns when an operation that waits for a point in time is to be looked at again.
    fn deadline_of(&self, operation: u32) -> Option<Instant> {
        match self.settings.policy {
            Policy::Paper => self.paper_deadline(operation),
            _ => self.late_deadline(operation),
        }
    }

    pub(in crate::engine) fn timed_deadline(&self) -> Instant {
        self.revisits
            .timed
            .iter()
            .filter(|key| self.operations.is_live(**key))
            .filter_map(|key| self.deadline_of(key.slot))
            .min()
            .unwrap_or(Instant::NEVER)
    }

    /// Looks again at operations that have waited long enough.
    pub(in crate::engine) fn release_timed(&mut self) {
        let mut at = 0;
        while at < self.revisits.timed.len() {
            let key = self.revisits.timed[at];
            let due = !self.operations.is_live(key)
                || self.deadline_of(key.slot).is_none_or(|deadline| self.clock.now() >= deadline);
            if due {
                self.revisits.timed.swap_remove(at);
                if self.operations.is_live(key) {
                    self.operations.end_time(key.slot);
                    self.consider_acknowledgement(key.slot);
                }
            } else {
                at += 1;
            }
        }
    }

    /// The write is safe: what legs do not have yet is from now on an acknowledged lack.
    fn acknowledge(&mut self, operation: u32, record: u32) {
        let state = self.operations[operation];
        let key = self.operations.key(operation);
        let keep_copy = self.keeps_copies();
        self.marks.add_if(state.owed != 0 && !keep_copy, Mark::CopyGivenUp);
        for leg in self.legs.slots() {
            let bit = LegIndex(leg as u8).bit();
            let carries = state.carries & bit != 0;
            let counted = i32::from(carries);
            let forgotten = planted::is(Planted::YoungAgain);
            let since = if carries && !forgotten { state.carried_since } else { Since::REBUILD };
            if state.in_flight & bit != 0 {
                self.legs[leg].load.acknowledge(state.extent.sectors());
                self.regions.adjust_lacks(record, leg, 1 - counted);
                if !since.is_rebuild() {
                    self.ios.date_back(leg, key, since);
                }
            } else if state.owed & bit != 0 {
                let debts = &mut self.legs[leg].debts;
                let owes =
                    debts.acknowledge(state.extent, key, since, keep_copy, &mut self.buffers);
                if owes {
                    self.regions.adjust_lacks(record, leg, 1 - counted);
                }
            }
        }
        for leg in self.legs.slots().filter(|leg| state.done >> leg & 1 == 1) {
            self.regions.note_acknowledged(record, leg);
        }
        self.keep_rewritten(operation);
        self.leave_region(operation, record);
        self.end_operation(operation, None);
        self.note_exposure();
    }

    pub(super) fn leave_region(&mut self, operation: u32, record: u32) {
        if self.operations[operation].timed {
            // Not left to be found: many more may come and go before a time is up.
            let key = self.operations.key(operation);
            if let Some(at) = self.revisits.timed.iter().position(|timed| *timed == key) {
                self.revisits.timed.swap_remove(at);
            }
        }
        self.regions.stop_waiting(operation, record);
        self.regions.end_operation(record, self.clock.now());
    }
}
