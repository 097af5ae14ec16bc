//! The time, as the driver gives it, and when the background is due.

use hemi_units::Instant;

/// The engine's clock. It moves with each input and never goes back.
pub(in crate::engine) struct Clock {
    now: Instant,
    next_tick: Instant,
}

impl Clock {
    /// Starts at a time, with the first tick of the background some nanoseconds later.
    pub(in crate::engine) fn new(now: Instant, first_tick: u64) -> Clock {
        Clock { now, next_tick: now + first_tick }
    }

    pub(in crate::engine) fn now(&self) -> Instant {
        self.now
    }

    /// Moves on to the time of an input.
    pub(in crate::engine) fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Returns when the background is due.
    pub(in crate::engine) fn next_tick(&self) -> Instant {
        self.next_tick
    }

    /// Makes the background due after some nanoseconds.
    pub(in crate::engine) fn tick_after(&mut self, wait: u64) {
        self.next_tick = self.now + wait;
    }
}
