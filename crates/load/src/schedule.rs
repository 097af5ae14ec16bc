//! Which request may go when: a workload behind a cap on the requests under way.
//!
//! A state machine without a clock or I/O: the engine drives it with the real clock, the
//! tests with a virtual one.

use std::collections::VecDeque;

use hemi_units::Instant;
use hemi_workload::{Issue, Workload};

/// Requests that wait for the cap before the queue grows. A workload that was told of the cap
/// ([`hemi_workload::any::AnyWorkload::cap`]) keeps no backlog here.
const WAITING: usize = 1 << 12;

/// A request that may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// What the workload asked for.
    pub issue: Issue,
    /// Since when it might have gone: when it was intended, or when the completion it waited
    /// for was seen, if that was later. What passes from then on is the engine's lateness.
    pub due: Instant,
}

/// A workload behind a cap.
#[derive(Debug)]
pub struct Schedule<W> {
    workload: W,
    cap: u32,
    under_way: u32,
    waiting: VecDeque<Ready>,
    /// When the cap was last seen to be reached no more.
    freed: Instant,
    stopped: bool,
    issues: Vec<Issue>,
}

impl<W: Workload> Schedule<W> {
    /// The workload, of which at most `cap` requests are under way at a time (at least 1).
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

    /// The workload, to be asked about requests under way.
    pub fn workload(&self) -> &W {
        &self.workload
    }

    /// When there may be something to issue by itself; [`Instant::NEVER`] when only a
    /// completion makes it so, or it is over.
    pub fn next_event(&self) -> Instant {
        if self.stopped {
            return Instant::NEVER;
        }
        match self.waiting.front() {
            Some(ready) if self.under_way < self.cap => ready.due.max(self.freed),
            _ => self.workload.next_event(),
        }
    }

    /// Takes in what the workload wants by `now`. To be called before the completions seen at
    /// the same time: what they let go is due since they were seen, all else since it was
    /// intended.
    pub fn advance(&mut self, now: Instant) {
        if !self.stopped && self.workload.next_event() <= now {
            self.workload.advance(now, &mut self.issues);
            self.take_in(Instant(0));
        }
    }

    /// A request was seen to be done at `now`.
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

    /// The next request that may go, which counts as under way from here on.
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

    /// Requests under way.
    pub fn under_way(&self) -> u32 {
        self.under_way
    }

    /// Requests that wait for the cap and have been taken in.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Issues nothing any more; how many requests that waited are dropped by it.
    pub fn stop(&mut self) -> u64 {
        self.stopped = true;
        let dropped = self.waiting.len() as u64;
        self.waiting.clear();
        dropped
    }

    /// Whether all has been issued, and is done.
    pub fn is_over(&self) -> bool {
        self.under_way == 0 && (self.stopped || self.waiting.is_empty() && self.workload.is_over())
    }
}

#[cfg(test)]
mod tests;
