//! The watch over a leg, whether it answers: freezes, probation, strikes, the next look at it.

use crate::planted::{self, Planted};
use hemi_units::{Instant, MILLISECOND, SECOND};

/// First probation after a thaw; doubles each time the leg fails it.
const PROBATION_FIRST: u64 = 20 * MILLISECOND;
/// I/O answered in time in a row after which earlier freezes are forgotten.
const STRIKES_FORGET: u32 = 16;
/// Strikes from which on I/O that is a little late counts as the leg's usual.
const STRIKES_USUAL: u32 = 2;
/// Probation from which on all late I/O of a leg counts as its usual.
const RELAPSES_FROM: u64 = 8 * PROBATION_FIRST;
/// Longest probation.
const PROBATION_MAX: u64 = 5 * SECOND;
/// A leg that stayed well for this long starts over with the first probation.
const PROBATION_FORGET: u64 = 30 * SECOND;

/// The ways in which a leg answers, or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Health {
    /// The slot holds no device of the driver's.
    Absent,
    /// I/O completes within the wait limit.
    Answering,
    /// An I/O outlived its limit and is still out.
    Frozen { since: Instant },
    /// The driver says it does not answer.
    Gone { since: Instant, removed: bool },
}

/// Late I/O that a history takes in for the leg's usual.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Late {
    /// None: one freeze says nothing of the usual.
    None,
    /// Those that have passed the limit by no more than half of it.
    Little,
    /// All.
    All,
}

/// The watch over one leg.
pub(in crate::engine) struct Watch {
    health: Health,
    probation: u64,
    probation_until: Instant,
    last_thaw: Instant,
    /// Freezes since it last answered in time for long.
    strikes: u32,
    /// The duration of the last freeze, or absence of its session, in nanoseconds.
    last_freeze: u64,
    /// I/O it has answered in time since one was late.
    in_time: u32,
    /// I/O it has answered late without so much in time between.
    lates: u32,
    /// The time of the next look at its I/O in flight.
    next_look: Instant,
    /// That came late and was put off once.
    was_put_off: bool,
}

impl Watch {
    pub(super) fn new(is_present: bool) -> Watch {
        Watch {
            health: if is_present { Health::Answering } else { Health::Absent },
            probation: PROBATION_FIRST,
            probation_until: Instant(0),
            last_thaw: Instant(0),
            strikes: 0,
            last_freeze: 0,
            in_time: 0,
            lates: 0,
            next_look: Instant::NEVER,
            was_put_off: false,
        }
    }

    pub(in crate::engine) fn health(&self) -> Health {
        self.health
    }

    /// Returns true if its slot holds no device, or the device has been removed.
    pub(in crate::engine) fn is_removed(&self) -> bool {
        matches!(self.health, Health::Absent | Health::Gone { removed: true, .. })
    }

    /// Returns true if it is on probation after a freeze.
    pub(in crate::engine) fn is_on_probation(&self, now: Instant) -> bool {
        now < self.probation_until
    }

    /// Returns when its probation ends, or has ended.
    pub(in crate::engine) fn probation_until(&self) -> Instant {
        self.probation_until
    }

    /// Returns its freezes since it last answered in time for long.
    pub(in crate::engine) fn strikes(&self) -> u32 {
        self.strikes
    }

    /// Returns how long the last freeze, or absence of its session, took, nanoseconds.
    pub(in crate::engine) fn last_freeze(&self) -> u64 {
        self.last_freeze
    }

    /// Counts an answer. Returns which late ones are its usual.
    pub(super) fn note_answer(&mut self, is_in_time: bool) -> Late {
        if is_in_time {
            self.in_time += 1;
        } else {
            self.in_time = 0;
            self.lates += 1;
        }
        if self.in_time >= STRIKES_FORGET {
            self.strikes = 0;
            self.lates = 0;
        }
        if self.probation >= RELAPSES_FROM {
            Late::All
        } else if self.strikes.max(self.lates) >= STRIKES_USUAL {
            Late::Little
        } else {
            Late::None
        }
    }

    /// Its last thaw came soon after the one before.
    pub(in crate::engine) fn has_relapsed(&self) -> bool {
        self.probation > PROBATION_FIRST
    }

    /// Notes that it has frozen.
    pub(super) fn freeze(&mut self, since: Instant) {
        self.health = Health::Frozen { since };
        self.strikes += 1;
    }

    /// Ends a freeze. The probation doubles if the leg failed it: if the I/O that took too long
    /// was sent after the last thaw, and soon after it. I/O sent before that thaw is of the same
    /// trouble and says nothing of how the leg has been since. Returns how long it took, nanoseconds.
    pub(super) fn thaw(&mut self, since: Instant, now: Instant) -> u64 {
        let duration = now.since(since);
        let well = since.since(self.last_thaw);
        let tried = since >= self.last_thaw || planted::is(Planted::ProbationDoublesAnyway);
        self.probation = if self.last_thaw == Instant(0) || well > PROBATION_FORGET {
            PROBATION_FIRST
        } else if tried && well < 4 * self.probation {
            (2 * self.probation).min(PROBATION_MAX)
        } else {
            self.probation
        };
        self.last_thaw = now;
        self.last_freeze = duration;
        self.health = Health::Answering;
        self.probation_until = now + self.probation;
        duration
    }

    /// Notes that the driver says it does not answer.
    pub(super) fn lose(&mut self, since: Instant, removed: bool) {
        self.health = Health::Gone { since, removed };
    }

    /// Waits for a silent leg no more, as if its device had been removed.
    pub(in crate::engine) fn give_up(&mut self) {
        if let Health::Frozen { since } | Health::Gone { since, .. } = self.health {
            self.health = Health::Gone { since, removed: true };
        }
    }

    /// Notes that its slot holds no device any more.
    pub(in crate::engine) fn leave(&mut self) {
        self.health = Health::Absent;
    }

    /// Returns when its I/O in flight is to be looked at next.
    pub(in crate::engine) fn next_look(&self) -> Instant {
        self.next_look
    }

    /// Has its I/O looked at by then.
    pub(in crate::engine) fn look_by(&mut self, by: Instant) {
        self.next_look = self.next_look.min(by);
    }

    /// Has its I/O looked at then, whatever was to be.
    pub(in crate::engine) fn look_at(&mut self, at: Instant) {
        self.next_look = at;
    }

    /// Puts off a look that comes late, once. Returns false if it was put off already.
    pub(in crate::engine) fn put_off_look(&mut self, until: Instant) -> bool {
        let puts_off = !core::mem::replace(&mut self.was_put_off, true);
        if puts_off {
            self.next_look = until;
        }
        puts_off
    }

    /// Notes that its I/O is looked at.
    pub(in crate::engine) fn begin_look(&mut self) {
        self.was_put_off = false;
    }
}
