//! The virtual clock's agenda: events in order of (time, sequence), so that events due at the same
//! instant happen in the order in which they were planned.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hemi_units::Instant;

/// An event of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A leg I/O ends: its slot, and the use count of the slot.
    IoEnds(u32, u32),
    /// A client may go on.
    Client(u8),
    /// I/O that was in flight when a leg's session dropped can no longer land.
    ZombiesEnd(u8, u32),
    /// A leg that was gone is back.
    Back(u8, u32),
    /// Nothing, so that time passes until then.
    Wait,
}

/// Events to come.
#[derive(Default)]
pub struct Events {
    heap: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    sequence: u64,
}

impl Events {
    /// Plans an event.
    pub fn at(&mut self, time: Instant, event: Event) {
        self.sequence += 1;
        self.heap.push(Reverse((time, self.sequence, event)));
    }

    /// Returns the time of the next event, or [`Instant::NEVER`] if there is none.
    pub fn next_time(&self) -> Instant {
        self.heap.peek().map_or(Instant::NEVER, |Reverse((time, _, _))| *time)
    }

    /// Takes the next event.
    pub fn take(&mut self) -> Option<Event> {
        self.heap.pop().map(|Reverse((_, _, event))| event)
    }

    /// Returns the number of events, and the number of those due by `by`.
    pub fn count(&self, by: Instant) -> (usize, usize) {
        let due = self.heap.iter().filter(|Reverse((time, ..))| *time <= by);
        (self.heap.len(), due.count())
    }

    /// Takes the event after the first `passed` events, which stay, and returns it with the time it
    /// was due.
    pub fn take_after(&mut self, passed: usize) -> Option<(Instant, Event)> {
        let before: Vec<_> = (0..passed).map_while(|_| self.heap.pop()).collect();
        let taken = self.heap.pop().map(|Reverse((time, _, event))| (time, event));
        self.heap.extend(before);
        taken
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.heap.clear();
        self.sequence = 0;
    }
}
