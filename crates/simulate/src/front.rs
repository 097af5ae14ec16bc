//! The side of a system that its clients see: what they asked, what is answered, and when.

use hemi_drives::drive::{Completion, Counters, Request};
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
    /// Of a system whose time begins at `now`.
    pub(crate) fn new(now: Instant) -> Front {
        Front { now, answered: Vec::with_capacity(256), ..Front::default() }
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    pub(crate) fn counters(&self) -> Counters {
        self.counters
    }

    /// Time goes on.
    pub(crate) fn pass(&mut self, now: Instant) {
        if self.under_way > 0 {
            self.counters.busy += now.since(self.now);
        }
        self.now = now;
    }

    /// A client asks at `now`.
    pub(crate) fn ask(&mut self, now: Instant, request: &Request) {
        self.pass(now);
        self.under_way += 1;
        self.counters.count(request.operation, request.extent);
    }

    /// A client is answered now.
    pub(crate) fn answer(&mut self, tag: u64) {
        self.under_way -= 1;
        self.answered.push(Completion { tag, at: self.now });
    }

    /// When something happens, if by themselves the drives and timers do at `next`: not in the
    /// past, and now where an answer waits to be handed over.
    pub(crate) fn next_event(&self, next: Instant) -> Instant {
        if self.answered.is_empty() { next.max(self.now) } else { self.now }
    }

    /// Hands over what was answered until `now`.
    pub(crate) fn hand_over(&mut self, now: Instant, done: &mut Vec<Completion>) {
        self.pass(now);
        done.append(&mut self.answered);
    }
}
