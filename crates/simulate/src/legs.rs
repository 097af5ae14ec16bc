//! The drives of a mirror side by side, on one clock.

use hemi_drives::drive::{Completion, Counters, Drive, Presence, Request};
use hemi_units::Instant;

/// Drives that are advanced together. Events at the same time are handled in order of legs.
pub(crate) struct Legs<D> {
    drives: Vec<D>,
    /// [`Drive::next_event`] of each.
    next: Vec<Instant>,
    /// The time that each has been advanced to.
    at: Vec<Instant>,
    done: Vec<Completion>,
}

impl<D: Drive> Legs<D> {
    pub(crate) fn new(drives: Vec<D>) -> Legs<D> {
        let next = drives.iter().map(Drive::next_event).collect();
        let at = vec![Instant(0); drives.len()];
        Legs { drives, next, at, done: Vec::with_capacity(64) }
    }

    /// Returns the size of the smallest drive in sectors.
    pub(crate) fn sectors(&self) -> u64 {
        self.drives.iter().map(Drive::sectors).min().unwrap_or(0)
    }

    pub(crate) fn next_event(&self) -> Instant {
        self.next.iter().copied().min().unwrap_or(Instant::NEVER)
    }

    pub(crate) fn submit(&mut self, leg: usize, now: Instant, request: Request) {
        if self.next[leg] > now && self.at[leg] < now {
            // No request ends, but the drive's clock has to advance.
            self.drives[leg].advance(now, &mut self.done);
            self.at[leg] = now;
            debug_assert!(self.done.is_empty(), "nothing was due");
        }
        self.drives[leg].submit(now, request);
        self.next[leg] = self.drives[leg].next_event();
    }

    /// Advances to `now` and passes the completions to `each`, in order of legs.
    pub(crate) fn advance(&mut self, now: Instant, mut each: impl FnMut(usize, Completion)) {
        for (leg, drive) in self.drives.iter_mut().enumerate() {
            if self.next[leg] > now {
                continue;
            }
            drive.advance(now, &mut self.done);
            (self.next[leg], self.at[leg]) = (drive.next_event(), now);
            for completion in self.done.drain(..) {
                each(leg, completion);
            }
        }
    }

    /// Returns [`Drive::presence`] of a leg.
    pub(crate) fn presence(&self, leg: usize) -> Option<Presence> {
        self.drives[leg].presence()
    }

    pub(crate) fn counters(&mut self, leg: usize, now: Instant) -> Counters {
        if self.next[leg] > now {
            self.drives[leg].advance(now, &mut self.done);
        }
        self.drives[leg].counters()
    }
}

/// The recent read latency of a leg.
#[derive(Clone, Copy, Default)]
pub(crate) struct Pace {
    /// Moving average in nanoseconds, weight 1/16.
    average: u64,
}

impl Pace {
    pub(crate) fn record(&mut self, latency: u64) {
        let average = self.average;
        self.average = if average == 0 { latency } else { average - average / 16 + latency / 16 };
    }

    /// Returns the expected latency with `queued` requests ahead. (The average already includes
    /// queueing.)
    pub(crate) fn expected(&self, queued: u32) -> u64 {
        self.average.saturating_mul(4 + u64::from(queued)) / 4
    }
}
