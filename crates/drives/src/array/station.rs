//! A station: something that serves one thing after another, in the order they come.

use std::collections::VecDeque;

use hemi_units::Instant;

/// What waits for its service to end, and since when it is booked.
#[derive(Clone, Debug)]
pub(super) struct Station<T> {
    free_at: Instant,
    queue: VecDeque<(Instant, T)>,
}

impl<T> Station<T> {
    pub(super) fn new() -> Station<T> {
        Station { free_at: Instant(0), queue: VecDeque::new() }
    }

    /// Serves `item` for so many nanoseconds, once those before it are served.
    pub(super) fn book(&mut self, now: Instant, lasts: u64, item: T) {
        self.free_at = self.free_at.max(now) + lasts;
        self.queue.push_back((self.free_at, item));
    }

    /// When the next is served.
    pub(super) fn next(&self) -> Instant {
        self.queue.front().map_or(Instant::NEVER, |&(at, _)| at)
    }

    /// Takes one that is served at `now`.
    pub(super) fn pop(&mut self, now: Instant) -> Option<T> {
        if self.next() > now {
            return None;
        }
        self.queue.pop_front().map(|(_, item)| item)
    }
}
