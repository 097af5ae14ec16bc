//! The clients' side of a system: their requests and the answers.

use hemi_drives::drive::{Completion, Counters, Failure, Request};
use hemi_units::Instant;

/// The clients' side of a system of several drives.
#[derive(Clone, Debug, Default)]
pub(crate) struct Front {
    now: Instant,
    counters: Counters,
    under_way: u32,
    answered: Vec<Completion>,
}

impl Front {
    /// Creates the front of a system whose time begins at `now`.
    pub(crate) fn new(now: Instant) -> Front {
        Front { now, answered: Vec::with_capacity(256), ..Front::default() }
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    pub(crate) fn counters(&self) -> Counters {
        self.counters
    }

    /// Advances the time.
    pub(crate) fn pass(&mut self, now: Instant) {
        if self.under_way > 0 {
            self.counters.busy += now.since(self.now);
        }
        self.now = now;
    }

    /// Counts a client's request at `now`.
    pub(crate) fn ask(&mut self, now: Instant, request: &Request) {
        self.pass(now);
        self.under_way += 1;
        self.counters.count(request.operation, request.extent);
    }

    /// Answers a client's request now.
    pub(crate) fn answer(&mut self, tag: u64) {
        self.conclude(Completion::done(tag, self.now));
    }

    /// Fails a client's request now.
    pub(crate) fn fail(&mut self, tag: u64, failure: Failure) {
        self.conclude(Completion { tag, at: self.now, result: Err(failure) });
    }

    fn conclude(&mut self, completion: Completion) {
        self.under_way -= 1;
        self.answered.push(completion);
    }

    /// Returns the time of the next event: now if an answer is waiting, else `next`, never in
    /// the past.
    pub(crate) fn next_event(&self, next: Instant) -> Instant {
        if self.answered.is_empty() { next.max(self.now) } else { self.now }
    }

    /// Moves the answers given until `now` to `done`.
    pub(crate) fn hand_over(&mut self, now: Instant, done: &mut Vec<Completion>) {
        self.pass(now);
        done.append(&mut self.answered);
    }
}
