//! Hiccups: times when the whole volume stands still.

use hemi_random::Rng;
use hemi_units::Instant;

use super::parameters::Hiccups;

/// A second clock that stands still while the volume does. What is under way is dated on it,
/// so a pause delays everything without touching it.
#[derive(Clone, Debug)]
pub(super) struct Pauses {
    hiccups: Option<Hiccups>,
    rng: Rng,
    /// Nanoseconds of pauses that are over.
    paused: u64,
    /// On the volume's clock, when the next pause begins; never without hiccups.
    next: u64,
    /// How long it will last.
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
        // At least a nanosecond, so that time goes on.
        let pause = self.rng.exponential(hiccups.every.0 as f64) as u64;
        self.next = self.next.saturating_add(pause.max(1));
        let length = self.rng.log_normal(hiccups.median.0 as f64, hiccups.sigma) as u64;
        self.length = length.min(hiccups.longest.0);
    }

    /// Puts behind what is over at `now`.
    pub(super) fn pass(&mut self, now: Instant) {
        while now.0 >= self.next.saturating_add(self.paused).saturating_add(self.length) {
            if self.next == u64::MAX {
                return;
            }
            self.paused += self.length;
            self.draw();
        }
    }

    /// What the volume's clock shows at `now`, which has been [`Pauses::pass`]ed.
    pub(super) fn volume_time(&self, now: Instant) -> u64 {
        (now.0 - self.paused).min(self.next)
    }

    /// When the volume's clock will show `volume_time`, or the end of the next pause if that
    /// is earlier: another may follow.
    pub(super) fn real_time(&self, volume_time: u64) -> Instant {
        if volume_time <= self.next {
            Instant(volume_time.saturating_add(self.paused))
        } else {
            Instant(self.next.saturating_add(self.paused).saturating_add(self.length))
        }
    }
}
