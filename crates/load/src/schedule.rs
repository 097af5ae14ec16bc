//! The decision which request may go when: a workload behind a cap on the requests in flight.
//!
//! This is a state machine without a clock or I/O. The engine drives it with the real clock, the
//! tests with a virtual one.

use std::collections::VecDeque;

use hemi_units::Instant;
use hemi_workload::{Issue, Workload};

/// The number of requests that may wait for the cap before the queue grows. A workload that was
/// told of the cap ([`hemi_workload::any::AnyWorkload::cap`]) keeps no backlog here.
const WAITING: usize = 1 << 12;

/// A request that may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The request as the workload issued it.
    pub issue: Issue,
    /// The time since which it might have been issued: its intended time, or when the completion it
    /// waited for was seen, if that was later. Any delay from then on is the engine's lateness.
    pub due: Instant,
}

/// A workload behind a cap.
#[derive(Debug)]
pub struct Schedule<W> {
    workload: W,
    cap: u32,
    under_way: u32,
    waiting: VecDeque<Ready>,
    /// The time at which a place under the cap was last seen to become free.
    freed: Instant,
    stopped: bool,
    issues: Vec<Issue>,
}

impl<W: Workload> Schedule<W> {
    /// Creates the schedule of a workload with at most `cap` requests in flight (at least 1).
    pub fn new(workload: W, cap: u32) -> Schedule<W> {
        Schedule {
            workload,
            cap: cap.max(1),
            under_way: 0,
            waiting: VecDeque::with_capacity(WAITING),
            freed: Instant(0),
            stopped: false,
            issues: Vec::with_capacity(WAITING),
        }
    }

    /// Returns the workload, to be asked about requests in flight.
    pub fn workload(&self) -> &W {
        &self.workload
    }

    /// Returns the time at which there may be something to issue. It is [`Instant::NEVER`] when
    /// only a completion can cause that, or the workload is over.
    pub fn next_event(&self) -> Instant {
        if self.stopped {
            return Instant::NEVER;
        }
        match self.waiting.front() {
            Some(ready) if self.under_way < self.cap => ready.due.max(self.freed),
            _ => self.workload.next_event(),
        }
    }

    /// Takes in the requests that the workload wants by `now`. Must be called before the
    /// completions seen at the same time: requests they release are due since the completion was
    /// seen, all others since their intended time.
    pub fn advance(&mut self, now: Instant) {
        if !self.stopped && self.workload.next_event() <= now {
            self.workload.advance(now, &mut self.issues);
            self.take_in(Instant(0));
        }
    }

    /// Notes that a request was seen to be done at `now`.
    pub fn completed(&mut self, now: Instant, tag: u32) {
        if self.under_way == self.cap {
            self.freed = now;
        }
        self.under_way -= 1;
        self.workload.completed(now, tag, &mut self.issues);
        if self.stopped {
            self.issues.clear();
        }
        self.take_in(now);
    }

    fn take_in(&mut self, since: Instant) {
        for issue in self.issues.drain(..) {
            self.waiting.push_back(Ready { issue, due: issue.intended.max(since) });
        }
    }

    /// Takes the next request that may go, which counts as in flight from here on.
    pub fn take(&mut self) -> Option<Ready> {
        if self.under_way >= self.cap {
            return None;
        }
        let mut ready = self.waiting.pop_front()?;
        self.under_way += 1;
        // Until then there was no place.
        ready.due = ready.due.max(self.freed);
        Some(ready)
    }

    /// Returns the number of requests in flight.
    pub fn under_way(&self) -> u32 {
        self.under_way
    }

    /// Returns the number of requests taken in that wait for the cap.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Stops issuing. Returns the number of waiting requests that are dropped.
    pub fn stop(&mut self) -> u64 {
        self.stopped = true;
        let dropped = self.waiting.len() as u64;
        self.waiting.clear();
        dropped
    }

    /// Returns true if every request has been issued and is done.
    pub fn is_over(&self) -> bool {
        self.under_way == 0 && (self.stopped || self.waiting.is_empty() && self.workload.is_over())
    }
}

#[cfg(test)]
mod tests;
