//! Freezing: legs that count as frozen, and the consequences.
//!
//! An I/O is frozen when it outlives the leg's wait limit: a multiple of the leg's own high
//! quantile for that kind of I/O, within a floor and a ceiling, counted from submission. A
//! tick that comes late says that our own loop was late; it is then given one more turn to
//! bring completions before anything is concluded. The last leg that answers is never
//! called frozen: there is nobody to go on with.

use crate::engine::Engine;
use crate::engine::state::in_flight::Purpose;
use crate::engine::state::leg::{Class, Health, Pace};
use crate::identifiers::LegIndex;
use crate::io::{Buffers, Notice};
use crate::marks::Mark;
use hemi_units::{Instant, MILLISECOND};

/// A tick later than this after its deadline was held up by ourselves.
const LATE_LOOP: u64 = 5 * MILLISECOND;
/// The time a late loop waits for completions before it looks again.
const LATE_GRACE: u64 = MILLISECOND;
/// Freezes in a row after which a leg is worth no less as an alternative to another one.
const STRIKES_MAX: u32 = 10;
/// A leg is waited for at most this many times as long as the last freeze of another.
const LATE_TIMES: u64 = 4;

/// The time that a leg is given while the others are no better.
struct Patience {
    /// A multiple of its wait limit …
    times: u64,
    /// … but, beyond the limit itself, no longer than this, nanoseconds.
    longest: u64,
    /// The time to look at that again.
    review: Instant,
}

impl Patience {
    /// The age at which an I/O with this wait limit is overdue.
    fn last(&self, limit: u64) -> u64 {
        limit.saturating_mul(self.times).min(self.longest).max(limit)
    }
}

/// Ages at which an I/O of one kind is looked at, nanoseconds.
#[derive(Clone, Copy)]
struct Ages {
    /// See [`Engine::first_look`].
    first: u64,
    /// See [`Engine::hand_over_after`].
    late: u64,
    /// The wait limit.
    limit: u64,
    /// See [`Patience::last`].
    last: u64,
    /// The leg is marked out at this age.
    out: u64,
}

impl Ages {
    fn looks(&self) -> impl Iterator<Item = u64> {
        [self.first, self.late, self.limit, self.last, self.out].into_iter()
    }

    /// Returns the age at which an I/O of this age is looked at next.
    fn after(&self, age: u64) -> Option<u64> {
        self.looks().filter(|&look| age < look).min()
    }

    /// Returns the age at which an I/O of this age has been looked at last.
    fn before(&self, age: u64) -> Option<u64> {
        self.looks().filter(|&look| look <= age).max()
    }
}

impl<B: Buffers> Engine<B> {
    /// Looks at every leg whose time has come.
    pub(in crate::engine) fn scan_legs(&mut self) {
        for leg in self.legs.slots() {
            let watch = &mut self.legs[leg].watch;
            let (now, due) = (self.clock.now(), watch.next_look());
            if !self.ios.any_on(leg) {
                watch.look_at(Instant::NEVER);
            } else if now >= due {
                if now.since(due) > LATE_LOOP && watch.put_off_look(now + LATE_GRACE) {
                    self.marks.add(Mark::LoopLate);
                    continue;
                }
                watch.begin_look();
                self.scan_leg(leg);
            }
        }
    }

    /// Looks at the I/O a leg has in flight, oldest first: hedges, prepares, concludes.
    fn scan_leg(&mut self, leg: usize) {
        let now = self.clock.now();
        let mut next = Instant::NEVER;
        let mut frozen = None;
        let mut flush_ahead = false;
        let patience = self.patience(leg);
        let mut all_ages = [None; Pace::KINDS];
        // I/O of a kind that is at least this old brings nothing that an older one has not.
        let mut passed = [u64::MAX; Pace::KINDS];
        let mut following = self.ios.oldest(leg);
        while let Some(at) = following {
            let io = &self.ios[at];
            following = io.newer();
            let Some(kind) = io.kind() else { continue };
            let submitted = io.submitted;
            let age = now.since(submitted);
            if age >= passed[kind] {
                continue;
            }
            let class = io.purpose.class();
            let ages = match all_ages[kind] {
                Some(ages) => ages,
                None => {
                    let ages = self.ages(leg, class, io.extent.sectors(), &patience);
                    *all_ages[kind].insert(ages)
                }
            };
            if age >= ages.last && !self.has_lost_sight_of(at) {
                frozen = frozen.or(Some((submitted, ages.last)));
            } else if age < ages.first {
                next = next.min(submitted + ages.first);
                passed[kind] = 0;
            } else {
                next = next.min(ages.after(age).map_or(Instant::NEVER, |look| submitted + look));
                next = next.min(patience.review);
                flush_ahead |= class == Class::Write || class == Class::Flush && age >= ages.limit;
                if class == Class::Write {
                    // It is handed over when its operation is looked at again.
                    if age >= ages.late {
                        self.legs[leg].pace.note_lost_sight(now);
                    }
                    if age < ages.last {
                        passed[kind] = ages.before(age).unwrap_or(age);
                    }
                    continue;
                }
                if age >= ages.late {
                    next = next.min(self.hand_over(at));
                } else if class == Class::Read {
                    self.consider_hedge(at, false);
                }
                // Either may have sent something, or changed what is known of the legs.
                following = self.ios.after(at);
                all_ages = [None; Pace::KINDS];
                passed = [u64::MAX; Pace::KINDS];
            }
        }
        if let (Some((since, limit)), Health::Answering) = (frozen, self.legs[leg].watch.health()) {
            next = next.min(now + limit);
            if self.another_answers(leg) {
                self.freeze(leg, since, limit);
            }
        }
        if flush_ahead {
            self.prepare_successor(leg);
        }
        self.legs[leg].watch.look_at(next);
    }

    /// Returns the ages at which an I/O of a leg is looked at. They are the same for all of its kind.
    fn ages(&self, leg: usize, class: Class, sectors: u64, patience: &Patience) -> Ages {
        let limit = self.legs[leg].pace.wait_limit(class, sectors);
        Ages {
            first: self.first_look(leg, class, sectors),
            late: self.hand_over_after(leg, class, sectors),
            limit,
            last: patience.last(limit),
            out: self.settings.out_after,
        }
    }

    /// Returns the age at which an I/O is looked at first, nanoseconds: to hedge a read, to prepare
    /// whoever would take a write over, to hand a page over.
    pub(in crate::engine) fn first_look(&self, leg: usize, class: Class, sectors: u64) -> u64 {
        let late = self.hand_over_after(leg, class, sectors);
        match class {
            Class::Read => late.min(self.legs[leg].pace.hedge_delay(sectors)),
            Class::Write => late / 2,
            Class::Flush => late,
        }
    }

    /// Returns how long a leg is waited for. Longer than its wait limit only while every other leg is on
    /// probation and keeps coming too late itself: legs that all take longer than their limits
    /// would else be left for each other forever, and nothing asked of them would ever end. Not
    /// much longer than one of the others takes when it is late: there it would be done by then.
    fn patience(&self, leg: usize) -> Patience {
        let others = || self.legs.that_are_in().filter(|o| o.index.index() != leg && o.answers());
        if others().any(|other| other.is_trusted(self.clock.now())) {
            return Patience { times: 1, longest: 0, review: Instant::NEVER };
        }
        let strikes = others().map(|other| other.watch.strikes()).min().unwrap_or(0);
        let review = others().map(|other| other.watch.probation_until()).min();
        let late = others().map(|other| other.watch.last_freeze()).min().unwrap_or(0);
        Patience {
            times: 1 << strikes.min(STRIKES_MAX),
            longest: late.saturating_mul(LATE_TIMES),
            review: review.unwrap_or(Instant::NEVER),
        }
    }

    /// Returns true if another leg that is in answers.
    pub(in crate::engine) fn another_answers(&self, leg: usize) -> bool {
        self.legs.that_are_in().any(|other| other.index.index() != leg && other.answers())
    }

    /// Half way to the wait limit: the leg that would take over gets its flush, so that the
    /// move itself need not wait for one.
    fn prepare_successor(&mut self, leg: usize) {
        let index = LegIndex(leg as u8);
        if !self.regions.flushes_used() || self.regions.authority_count(index) == 0 {
            return;
        }
        let next = self
            .legs
            .that_are_in()
            .filter(|other| other.index != index && other.is_trusted(self.clock.now()))
            .min_by_key(|other| (other.pace.is_slow(), other.rank()))
            .map(|other| other.index);
        if let Some(next) = next {
            self.marks.add(Mark::SuccessorFlushed);
            let stamp = self.legs[next.index()].stamps.done();
            self.legs[next.index()].stamps.want_flush(stamp);
        }
    }

    /// A leg stops answering: what waits for it goes on without it.
    fn freeze(&mut self, leg: usize, since: Instant, limit: u64) {
        let index = LegIndex(leg as u8);
        self.legs[leg].freeze(since);
        self.marks.add(Mark::Frozen);
        self.outbox.notice(Notice::Frozen { leg: index, limit });
        self.leave_leg(leg);
    }

    /// Moves reads, authority and flushes off a leg that does not answer.
    pub(super) fn leave_leg(&mut self, leg: usize) {
        let index = LegIndex(leg as u8);
        self.mark_zombies(leg);
        self.give_up_own_reads(leg, false);
        self.yield_scrub();
        self.give_up_reads(leg);
        self.want_moves_from(index);
        // Writes that another leg has already, and only this one was to decide.
        self.reconsider_operations();
        self.consider_flushes();
    }

    fn mark_zombies(&mut self, leg: usize) {
        for (_, io) in self.ios.on(leg) {
            if matches!(io.purpose, Purpose::Write { drain: true, .. }) {
                self.marks.add(Mark::ZombieOverDrain);
            }
        }
    }

    /// After a completion: a frozen leg with nothing overdue left in flight answers again.
    pub(in crate::engine) fn consider_thaw(&mut self, leg: usize) {
        let Health::Frozen { since } = self.legs[leg].watch.health() else { return };
        for (at, io) in self.ios.on(leg) {
            let limit = self.legs[leg].pace.wait_limit(io.purpose.class(), io.extent.sectors());
            if self.clock.now().since(io.submitted) >= limit && !self.has_lost_sight_of(at) {
                return;
            }
        }
        let duration = self.legs[leg].thaw(since, self.clock.now());
        self.marks.add_if(self.legs[leg].watch.has_relapsed(), Mark::Relapsed);
        self.legs[leg].watch.look_at(self.clock.now());
        self.outbox.notice(Notice::Thawed { leg: LegIndex(leg as u8), duration });
        self.after_return();
    }

    /// A leg answers again: whoever waited for any leg at all may go on.
    pub(super) fn after_return(&mut self) {
        for leg in self.legs.slots() {
            self.legs[leg].debts.begin_round();
        }
        self.requests.retry_stalled();
        self.retry_all_waiting(None);
        self.consider_flushes();
    }
}
