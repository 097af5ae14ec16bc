//! Hiccups: times when the whole volume stands still.

use hemi_random::Rng;
use hemi_units::Instant;

use super::parameters::Hiccups;

/// A second clock that stops while the volume is paused. Requests in flight are dated on it, so
/// a pause delays all of them without touching them.
#[derive(Clone, Debug)]
pub(super) struct Pauses {
    hiccups: Option<Hiccups>,
    rng: Rng,
    /// Total length of finished pauses, in nanoseconds.
    paused: u64,
    /// Start of the next pause, on the volume's clock; never without hiccups.
    next: u64,
    /// Length of that pause.
    length: u64,
}

impl Pauses {
    pub(super) fn new(hiccups: Option<Hiccups>, rng: Rng) -> Pauses {
        let mut pauses = Pauses { hiccups, rng, paused: 0, next: 0, length: 0 };
        pauses.draw();
        pauses
    }

    /// Draws the pause after the one at `next`.
    fn draw(&mut self) {
        let Some(hiccups) = self.hiccups else {
            self.next = u64::MAX;
            return;
        };
        // At least a nanosecond, so that time advances.
        let pause = self.rng.exponential(hiccups.every.0 as f64) as u64;
        self.next = self.next.saturating_add(pause.max(1));
        let length = self.rng.log_normal(hiccups.median.0 as f64, hiccups.sigma) as u64;
        self.length = length.min(hiccups.longest.0);
    }

    /// Returns the end of the next pause.
    fn next_end(&self) -> u64 {
        self.next.saturating_add(self.paused).saturating_add(self.length)
    }

    /// Returns true if the volume's clock is known up to `at`: no further pause has ended by then.
    pub(super) fn reach(&self, at: Instant) -> bool {
        at.0 < self.next_end()
    }

    /// Counts the pauses that have ended by `now`.
    #[inline]
    pub(super) fn pass(&mut self, now: Instant) {
        if !self.reach(now) {
            self.end_pauses(now);
        }
    }

    fn end_pauses(&mut self, now: Instant) {
        while !self.reach(now) && self.next != u64::MAX {
            self.paused += self.length;
            self.draw();
        }
    }

    /// Returns the time of the volume's clock at `now`, up to which [`Pauses::pass`] has been
    /// called.
    pub(super) fn volume_time(&self, now: Instant) -> u64 {
        (now.0 - self.paused).min(self.next)
    }

    /// Returns the time at which the volume's clock will show `volume_time`, or the end of the
    /// next pause if that is earlier, since another pause may follow.
    pub(super) fn real_time(&self, volume_time: u64) -> Instant {
        if volume_time <= self.next {
            Instant(volume_time.saturating_add(self.paused))
        } else {
            Instant(self.next_end())
        }
    }
}
