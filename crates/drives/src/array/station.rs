//! A station: a server that serves one item after another, in order of arrival.

use std::collections::VecDeque;

use hemi_units::Instant;

/// A station with its queue of items, each with the time at which its service ends.
#[derive(Clone, Debug)]
pub(super) struct Station<T> {
    free_at: Instant,
    queue: VecDeque<(Instant, T)>,
}

impl<T> Station<T> {
    pub(super) fn new() -> Station<T> {
        Station { free_at: Instant(0), queue: VecDeque::new() }
    }

    /// Serves `item` for `lasts` nanoseconds, after the items before it.
    pub(super) fn book(&mut self, now: Instant, lasts: u64, item: T) {
        self.free_at = self.free_at.max(now) + lasts;
        self.queue.push_back((self.free_at, item));
    }

    /// Returns the end of the next service, or never if no item is queued.
    pub(super) fn next(&self) -> Instant {
        self.queue.front().map_or(Instant::NEVER, |&(at, _)| at)
    }

    /// Removes and returns an item whose service has ended by `now`.
    pub(super) fn pop(&mut self, now: Instant) -> Option<T> {
        if self.next() > now {
            return None;
        }
        self.queue.pop_front().map(|(_, item)| item)
    }
}
