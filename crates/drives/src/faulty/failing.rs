//! Failures of whole drives and of single requests: absences, errors by chance, the end of flash.

use hemi_random::Rng;
use hemi_stalls::Share;
use hemi_units::{Instant, Operation};

use super::spell::Spell;
use crate::drive::Presence;

/// A time in which a drive is away, or its death if that time has no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absence {
    /// The time.
    pub spell: Spell,
    /// Nanoseconds until the host is told that a request failed; above zero.
    pub error_after: u64,
}

impl Absence {
    fn presence(&self, now: Instant) -> (Presence, Instant) {
        match self.spell.at(now) {
            (None, change) => (Presence::Present, change),
            (Some(_), Instant::NEVER) => (Presence::Dead, Instant::NEVER),
            (Some(_), change) => (Presence::Away, change),
        }
    }
}

/// All absences of a drive, and its presence now.
#[derive(Clone, Debug)]
pub(super) struct Absences {
    all: Vec<Absence>,
    presence: Presence,
    /// Time of the next change.
    until: Instant,
    error_after: u64,
}

impl Absences {
    pub(super) fn new(all: Vec<Absence>) -> Absences {
        let mut absences =
            Absences { all, presence: Presence::Present, until: Instant(0), error_after: 0 };
        absences.turn(Instant(0));
        absences
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn presence(&self) -> Presence {
        self.presence
    }

    /// Returns the time of the next change.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Returns the nanoseconds until the host is told that a request failed.
    pub(super) fn error_after(&self) -> u64 {
        self.error_after
    }

    /// Brings the presence up to `now`. Returns true if the drive went away.
    pub(super) fn turn(&mut self, now: Instant) -> bool {
        let before = self.presence;
        (self.presence, self.until) = (Presence::Present, Instant::NEVER);
        for absence in &self.all {
            let (presence, change) = absence.presence(now);
            self.until = self.until.min(change);
            if presence == Presence::Dead || self.presence == Presence::Present {
                self.presence = presence;
                if presence != Presence::Present {
                    self.error_after = absence.error_after;
                }
            }
        }
        if self.presence == Presence::Dead {
            self.until = Instant::NEVER;
        }
        before == Presence::Present && self.presence != Presence::Present
    }
}

/// Errors of single requests, by chance. A request that is tried again draws again.
#[derive(Clone, Debug)]
pub struct Errors {
    /// The time.
    pub spell: Spell,
    /// Share of the reads that fail.
    pub reads: Share,
    /// Share of the writes, and of all other requests that are not reads, that fail.
    pub writes: Share,
    /// Nanoseconds by which the error comes after the drive's usual time.
    pub error_after: u64,
    /// Source of the draws.
    pub rng: Rng,
}

impl Errors {
    /// Returns by how much later the error of this request comes, or `None` if it succeeds.
    pub(super) fn draw(&mut self, now: Instant, operation: Operation) -> Option<u64> {
        let (Some(_), _) = self.spell.at(now) else { return None };
        let share = if operation == Operation::Read { self.reads } else { self.writes };
        let fails = share != Share::NONE && share.drawn(&mut self.rng);
        fails.then_some(self.error_after)
    }
}

/// The end of a flash drive, once its cycles are used up: first it takes no more writes, then it
/// answers with errors only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EndOfLife {
    /// Cycles of the drive's life before the run, beyond those its model has had.
    pub cycles_before: f64,
    /// Mean cycles from which on it takes no writes.
    pub read_only_at: f64,
    /// Nanoseconds from then until it answers with errors only; `None` for never.
    pub fails_after: Option<u64>,
    /// Nanoseconds until the host is told that a request failed; above zero.
    pub error_after: u64,
    /// Time at which it was found to be read-only.
    pub(super) ended: Option<Instant>,
}

impl EndOfLife {
    /// Creates the end of a drive.
    pub fn new(
        cycles_before: f64,
        read_only_at: f64,
        fails_after: Option<u64>,
        error_after: u64,
    ) -> EndOfLife {
        EndOfLife { cycles_before, read_only_at, fails_after, error_after, ended: None }
    }

    /// Notes the drive's cycles at `now`. Returns true for an operation that it refuses.
    pub(super) fn refuses(&mut self, now: Instant, cycles: f64, operation: Operation) -> bool {
        if self.ended.is_none() && self.cycles_before + cycles >= self.read_only_at {
            self.ended = Some(now);
        }
        let Some(ended) = self.ended else { return false };
        let writes = matches!(operation, Operation::Write { .. } | Operation::Trim);
        writes || self.has_failed(ended, now)
    }

    /// Returns true if it answers with errors only.
    pub(super) fn is_dead(&self, now: Instant) -> bool {
        self.ended.is_some_and(|ended| self.has_failed(ended, now))
    }

    fn has_failed(&self, ended: Instant, now: Instant) -> bool {
        self.fails_after.is_some_and(|after| now >= ended + after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_goes_returns_and_dies() {
        let absence = |at, length, every| Absence {
            spell: Spell { at: Instant(at), length, every },
            error_after: at,
        };
        let mut absences =
            Absences::new(vec![absence(10, Some(5), Some(20)), absence(32, None, None)]);
        let mut seen = Vec::new();
        while absences.until() != Instant::NEVER {
            let now = absences.until();
            let went = absences.turn(now);
            seen.push((now.0, absences.presence(), went));
        }
        let (present, away, dead) = (Presence::Present, Presence::Away, Presence::Dead);
        let gone = [(10, away, true), (15, present, false), (30, away, true), (32, dead, false)];
        assert_eq!(seen, gone);
        assert_eq!(absences.error_after(), 32);
    }

    #[test]
    fn worn_flash_is_read_only_first() {
        let mut end = EndOfLife::new(90.0, 100.0, Some(50), 1);
        let write = Operation::Write { fua: false };
        assert!(!end.refuses(Instant(5), 9.9, write));
        assert!(end.refuses(Instant(10), 10.0, write));
        assert!(end.refuses(Instant(11), 10.0, Operation::Trim));
        for (now, dead) in [(11, false), (59, false), (60, true)] {
            assert_eq!(end.refuses(Instant(now), 10.0, Operation::Read), dead, "{now}");
            assert_eq!(end.refuses(Instant(now), 10.0, Operation::Flush), dead, "{now}");
        }
    }
}
