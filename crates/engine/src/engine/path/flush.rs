//! Flush: when a client may believe its data durable.
//!
//! A flush goes to every leg that answers. It is acknowledged when, for every write
//! acknowledged before it, the leg recovery would choose has it durable: that is the
//! authority of each dirty region written since that leg's last flush. Metadata is durable
//! already: no write is acknowledged before its region's authority is, and no flush while a
//! move of authority is on its way. A leg that freezes is not waited for: its regions'
//! authority moves, to a leg that has flushed everything acknowledged there.

use alloc::vec::Vec;

use crate::engine::Engine;
use crate::engine::state::debt::Since;
use crate::engine::state::debt::Source;
use crate::engine::state::failing::Task;
use crate::engine::state::in_flight::{Io, Purpose};
use crate::engine::state::leg::Health;
use crate::engine::state::slab::Key;
use crate::identifiers::{LEGS_MAX, LegIndex};
use crate::io::{Buffers, LegError, LegOperation, RequestError};
use crate::marks::Mark;
use crate::planted::{self, Planted};
use crate::settings::{FlushCopies, Policy};
use hemi_units::{Extent, Instant, SECOND};

/// Connections told apart for reporting a flush that lost data; ids are taken modulo this.
const CONNECTIONS: usize = 1024;

/// Clients do not flush when they have not for this long.
const QUIET_AFTER: u64 = SECOND;

/// A request that waits for its flush to be answered.
#[derive(Clone, Copy)]
struct Waiting {
    slot: u32,
    /// The stamp that each leg must have flushed.
    targets: [u64; LEGS_MAX],
    /// Legs still waited for.
    needed: u8,
    /// For several copies: what a leg lacks since then or longer, it has to get first.
    covers_until: Instant,
    /// For several copies: the lost list without what was rewritten before it.
    lost_list: u64,
    /// For several copies: legs seen to have everything from before it.
    caught_up: u8,
    /// For several copies: legs seen to have that durable.
    durable: u8,
    /// For several copies: the generation of regions unrecorded for a leg that each of these waits for.
    unrecorded: [u64; LEGS_MAX],
    /// Moves of authority made before it depended on no leg any more. Later ones are not waited for.
    moves: Option<u64>,
}

/// Clients' flushes, and what they have to report.
pub(in crate::engine) struct Flushing {
    waiting: Vec<Waiting>,
    failures: Failures,
    /// The last time that a client asked for something to be durable; `None` before the first.
    asked: Option<Instant>,
}

impl Flushing {
    pub(in crate::engine) fn with_capacity(capacity: usize) -> Flushing {
        let waiting = Vec::with_capacity(capacity);
        Flushing { waiting, failures: Failures::default(), asked: None }
    }

    /// Returns true if a client waits for a flush.
    pub(in crate::engine) fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the number of the last move of authority that a client's flush waits for; 0 if none does.
    pub(in crate::engine) fn moves_awaited(&self) -> u64 {
        self.waiting.iter().filter_map(|flush| flush.moves).max().unwrap_or(0)
    }

    /// Notes that a client asks for something to be durable, by a flush or with FUA.
    pub(super) fn note_asked(&mut self, now: Instant) {
        self.asked = Some(now);
    }

    /// Returns true if clients have not asked for anything to be durable for a while.
    pub(super) fn is_quiet(&self, now: Instant) -> bool {
        self.asked.is_none_or(|asked| now.since(asked) >= QUIET_AFTER)
    }

    /// Notes that flushed-for data is gone: the next flush of each connection reports it.
    pub(in crate::engine) fn note_loss(&mut self) {
        self.failures.note_loss();
    }
}

/// Losses that flushes have to report, once to each connection.
struct Failures {
    /// Counts losses of flushed-for data that no leg could make durable.
    losses: u64,
    told: Vec<u64>,
}

impl Default for Failures {
    fn default() -> Failures {
        Failures { losses: 0, told: alloc::vec![0; CONNECTIONS] }
    }
}

impl Failures {
    fn note_loss(&mut self) {
        self.losses += 1;
    }

    /// Returns true if this connection has a loss to be told of; it has been told then.
    fn take(&mut self, connection: u32) -> bool {
        let told = &mut self.told[connection as usize % CONNECTIONS];
        let owed = *told < self.losses;
        *told = self.losses;
        owed
    }
}

impl<B: Buffers> Engine<B> {
    /// A client connection begins under this id: losses before it are none of its business.
    pub fn connection_opened(&mut self, connection: u32) {
        self.flushing.failures.take(connection);
    }

    /// Returns true if flushes have to reach more than one leg.
    pub(super) fn flush_is_strict(&self) -> bool {
        self.flush_legs_wanted() > 1
    }

    /// Returns how many legs must have flushed; more than are in means all that are.
    fn flush_legs_wanted(&self) -> usize {
        let all = self.legs.that_are_in().count();
        match (self.settings.policy, self.settings.flush_copies) {
            (Policy::All | Policy::WriteBehind, _) | (_, FlushCopies::All) => all,
            (_, FlushCopies::Count(count)) => usize::from(count).clamp(1, all.max(1)),
        }
    }

    pub(super) fn begin_flush(&mut self, slot: u32) {
        if let Some(buffer) = self.requests.begin_flush(slot) {
            self.buffers.release(buffer);
        }
        self.regions.note_flush();
        self.flushing.note_asked(self.clock.now());
        // A write with FUA ends in one: what was sent of it meanwhile counts as before it.
        let early = planted::is(Planted::FuaCountsFromStart);
        let covers_until = if early { self.requests[slot].started } else { self.clock.now() };
        let metadata = self.regions.metadata();
        let lost_list = metadata.newest(metadata.lost_list());
        let mut targets = [0; LEGS_MAX];
        let mut needed = 0;
        for leg in self.legs.slots() {
            let state = &mut self.legs[leg];
            targets[leg] = state.stamps.done();
            if !state.is_member() || state.stamps.done() <= state.stamps.flushed() {
                continue;
            }
            if state.answers() {
                let joined = state.stamps.may_join_flush();
                self.marks.add_if(!joined, Mark::FlushNotJoined);
                state.stamps.want_flush(state.stamps.done());
            }
            let one_will_do = needed != 0 && planted::is(Planted::FlushOneLeg);
            if self.regions.authority_count(LegIndex(leg as u8)) > 0 && !one_will_do {
                needed |= LegIndex(leg as u8).bit();
            }
        }
        self.flushing.waiting.push(Waiting {
            slot,
            targets,
            needed,
            covers_until,
            lost_list,
            caught_up: 0,
            durable: 0,
            unrecorded: [0; LEGS_MAX],
            moves: None,
        });
        self.consider_flushes();
    }

    pub(super) fn start_flush(&mut self, leg: usize) {
        if self.ios.free_slots() == 0 {
            return;
        }
        self.legs[leg].stamps.begin_flush();
        self.regions.note_flush_begun(LegIndex(leg as u8), self.legs[leg].stamps.done());
        let io = Io::new(leg as u8, Purpose::Flush, Extent::default(), Source::Leg);
        let slot = self.start_io(io, LegOperation::Flush);
        self.legs[leg].stamps.note_flush_io(slot);
    }

    pub(super) fn flush_done(&mut self, slot: u32, io: &Io, result: Result<(), LegError>) {
        let leg = usize::from(io.leg);
        if let Err(error) = result
            && !planted::is(Planted::FlushErrorsForgiven)
        {
            self.count_failure(leg, Task::Flush, error);
        }
        let state = &mut self.legs[leg];
        if !state.stamps.is_flush_io(slot) {
            // Of a session that dropped: what that lost was noted when the leg came back, and
            // what it was given since is not touched by it.
            self.marks.add(Mark::FlushOfLastSession);
            return;
        }
        let Some(stamp) = state.stamps.end_flush() else { return };
        let is_away = matches!(state.watch.health(), Health::Gone { removed: false, .. });
        if is_away && result == Err(LegError::Gone) {
            // It ends because the session has. Whether the leg lost anything is judged once it is
            // back.
            self.marks.add(Mark::FlushOfLastSession);
            return;
        }
        let later = planted::is(Planted::FlushCoversLater);
        let stamp = if later { state.stamps.done() } else { stamp };
        match result {
            Ok(()) => {
                state.stamps.note_flushed(stamp);
                state.failing.note_success(Task::Flush);
                self.regions.note_flushed(LegIndex(leg as u8), stamp);
                self.note_flush_time(leg, self.clock.now().since(io.submitted));
                self.go_on_returning(LegIndex(leg as u8));
                if !self.lost.is_empty() {
                    // Writes over what was lost wait for it.
                    self.retry_all_waiting(None);
                }
            }
            Err(_) => {
                self.marks.add(Mark::FlushFailed);
                state.stamps.note_flush_failed(self.clock.now() + crate::engine::TICK);
                self.regions.note_flush_failed(LegIndex(leg as u8));
                if self.lose_cache(leg) {
                    self.fail_flushes_needing(leg);
                }
            }
        }
        self.consider_flushes();
    }

    /// Answers every flush whose time has come. One that has a loss to tell does so at once:
    /// what else it waits for changes nothing about that.
    pub(in crate::engine) fn consider_flushes(&mut self) {
        let mut at = 0;
        while at < self.flushing.waiting.len() {
            let slot = self.flushing.waiting[at].slot;
            if self.flushing.failures.take(self.requests[slot].connection) {
                self.marks.add(Mark::LossTold);
                self.requests.fail(slot, RequestError::Io);
                self.flushing.waiting.swap_remove(at);
                self.reply(slot);
            } else if self.flush_is_satisfied(at) {
                self.flushing.waiting.swap_remove(at);
                self.reply(slot);
            } else {
                at += 1;
            }
        }
    }

    /// Flushes that depend on data a leg may have lost fail now; the others' connections are
    /// told at their next.
    fn fail_flushes_needing(&mut self, leg: usize) {
        let bit = LegIndex(leg as u8).bit();
        let mut at = 0;
        while at < self.flushing.waiting.len() {
            let Waiting { slot, needed, .. } = self.flushing.waiting[at];
            if needed & bit == 0 {
                at += 1;
                continue;
            }
            self.flushing.waiting.swap_remove(at);
            self.flushing.failures.take(self.requests[slot].connection);
            self.marks.add(Mark::LossTold);
            self.requests.fail(slot, RequestError::Io);
            self.reply(slot);
        }
    }

    fn flush_is_satisfied(&mut self, at: usize) -> bool {
        for leg in self.legs.slots() {
            let index = LegIndex(leg as u8);
            if self.flushing.waiting[at].needed & index.bit() == 0 {
                continue;
            }
            let target = self.flushing.waiting[at].targets[leg];
            if self.legs[leg].stamps.flushed() >= target {
                self.flushing.waiting[at].needed &= !index.bit();
            } else if self.legs[leg].answers()
                && !self.legs[leg].stamps.has_failed()
                && !self.flush_is_late(leg)
            {
                self.legs[index.index()].stamps.want_flush(target);
            } else if !self.move_undurable(index) {
                self.flushing.waiting[at].needed &= !index.bit();
            }
        }
        if self.flushing.waiting[at].needed != 0 {
            return false;
        }
        let made = self.regions.moves_made();
        if !self.regions.no_authority_is_suspect() {
            // The move off it is still to come, and is what makes durable what it may have lost.
            self.marks.add(Mark::FlushWaitedForMove);
            let unawaited = planted::is(Planted::SuspectMovesUnawaited);
            self.flushing.waiting[at].moves = unawaited.then_some(made);
            return false;
        }
        let until = *self.flushing.waiting[at].moves.get_or_insert(made);
        if !self.moves_are_durable(until) && !planted::is(Planted::FlushIgnoresMoves) {
            self.marks.add(Mark::FlushWaitedForMove);
            return false;
        }
        let answered = !self.flush_is_strict() || self.enough_copies(at);
        self.marks.add_if(answered && made > until, Mark::FlushBeforeLaterMoves);
        answered
    }

    /// `flush_copies` above one: enough legs have everything from before the flush, durable, and
    /// say so themselves: each may be the only one that is left.
    fn enough_copies(&mut self, at: usize) -> bool {
        let wanted = self.flush_legs_wanted();
        let covers_until = self.flushing.waiting[at].covers_until;
        let mut have = 0;
        for leg in self.legs.slots() {
            let state = &self.legs[leg];
            if !state.is_in() {
                continue;
            }
            let index = state.index;
            let caught_up = !self.is_lacking_since(leg, covers_until)
                && self.regions.stale_count(index) == 0
                && self.legs[leg].draining.rebuilding() == 0;
            if !caught_up {
                continue;
            }
            // The goals are fixed when the leg is first seen to have everything from before the
            // flush, and to have it durable, so that later writes do not move them.
            let done = self.legs[leg].stamps.done();
            let request = &mut self.flushing.waiting[at];
            if request.caught_up & index.bit() == 0 {
                request.caught_up |= index.bit();
                request.targets[leg] = done;
            }
            let target = request.targets[leg];
            if self.legs[leg].stamps.flushed() < target {
                if self.legs[leg].answers() {
                    self.legs[index.index()].stamps.want_flush(target);
                }
                continue;
            }
            if request.durable & index.bit() == 0 {
                request.durable |= index.bit();
                request.unrecorded[leg] = self.regions.unrecorded_generation(index);
            }
            let (unrecorded, lost_list) = (request.unrecorded[leg], request.lost_list);
            let recorded = self.regions.is_recorded(index, unrecorded)
                || planted::is(Planted::UnrecordedCounts);
            if recorded && self.has_lost_list(index, lost_list) {
                have += 1;
            }
        }
        have >= wanted
    }

    /// Returns true if a leg has the lost list of this sequence or a newer one. Otherwise the leg
    /// is given it: alone, it would answer EIO for what has been rewritten since.
    fn has_lost_list(&mut self, leg: LegIndex, sequence: u64) -> bool {
        let metadata = self.regions.metadata();
        if metadata.durable(metadata.lost_list(), leg) >= sequence
            || planted::is(Planted::RewrittenStaysLost)
        {
            return true;
        }
        self.request_lost_list(leg);
        false
    }

    /// Forgets what a leg had: it may be gone with its cache, or with the leg itself: flushes of several
    /// copies look again at what it has. A flush of it that covers what it had at first may end
    /// before it has that back.
    pub(in crate::engine) fn forget_copies(&mut self, leg: LegIndex) {
        let kept = planted::is(Planted::CopiesRemembered);
        for waiting in self.flushing.waiting.iter_mut().filter(|_| !kept) {
            waiting.caught_up &= !leg.bit();
            waiting.durable &= !leg.bit();
        }
    }

    /// Returns since when a leg has lacked an acknowledged write: since the oldest such write
    /// arrived. A leg lacks what it owes, what is in flight to it or being read for it, and what
    /// a write that is not acknowledged has taken the place of.
    pub(super) fn oldest_lack(&self, leg: usize) -> Option<Instant> {
        let under_way = self.oldest_under_way(leg).map(|since| since.arrived);
        [self.legs[leg].debts.oldest_since(), under_way].into_iter().flatten().min()
    }

    /// Returns true if a leg has lacked an acknowledged write since that moment or longer. One that has
    /// been superseded counts for as long as the leg lacks what has taken its place.
    fn is_lacking_since(&mut self, leg: usize, moment: Instant) -> bool {
        let forgotten = planted::is(Planted::YoungAgain);
        let lacked = |since: Since| if forgotten { since.arrived } else { since.lacked };
        self.legs[leg].debts.is_lacked_since(moment)
            || self.oldest_under_way(leg).is_some_and(|since| lacked(since) <= moment)
    }

    /// Returns since when what is in flight to a leg, being read for it, or carried has been lacked.
    fn oldest_under_way(&self, leg: usize) -> Option<Since> {
        let parts = [self.oldest_write(leg), self.oldest_drain_read(leg), self.oldest_carry(leg)];
        parts.into_iter().flatten().reduce(Since::or)
    }

    fn oldest_drain_read(&self, leg: usize) -> Option<Since> {
        if !self.legs[leg].load.is_read_for() {
            return None;
        }
        let reads = self.ios.iter().filter_map(|(_, io)| match io.purpose {
            Purpose::DrainRead { target, since, .. } if usize::from(target) == leg => Some(since),
            Purpose::Compare { since, .. } if usize::from(io.leg) == leg => Some(since),
            _ => None,
        });
        reads.reduce(Since::or)
    }

    fn oldest_carry(&self, leg: usize) -> Option<Since> {
        if self.legs[leg].load.carrying() == 0 || planted::is(Planted::CarriedIsThere) {
            return None;
        }
        let carrying = self.operations.iter().filter(|(_, state)| state.carries >> leg & 1 == 1);
        carrying.map(|(_, state)| state.carried_since).reduce(Since::or)
    }

    fn oldest_write(&self, leg: usize) -> Option<Since> {
        let mut oldest: Option<Since> = None;
        for (_, io) in self.ios.on(leg) {
            if let Purpose::Write { since, operation, drain, .. } = io.purpose
                && (operation == Key::NONE || !self.operations.is_live(operation))
            {
                oldest = Some(oldest.map_or(since, |oldest| oldest.or(since)));
                if !drain && planted::is(Planted::DrainsInOrder) {
                    break;
                }
            }
        }
        oldest
    }
}
