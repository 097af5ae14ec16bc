//! The pace a client has to keep while others wait for buffers that it holds.
//!
//! A client that takes its answers, or sends its payload, a byte at a time makes progress
//! forever. So progress is measured against the bytes the client holds: at its pace it would
//! have to be done within [`HOLD_TIME`].

use hemi_units::{Instant, SECOND};

/// Time within which a client has to take the answers that are ready, or to send the payload
/// that buffers were taken for, if others wait for buffers.
pub(super) const HOLD_TIME: u64 = 10 * SECOND;
/// Time over which a client's pace is measured, in nanoseconds.
pub(super) const PACE_WINDOW: u64 = 2 * SECOND;

/// One direction of a connection at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sample {
    /// Bytes moved since the connection began.
    pub(super) moved: u64,
    /// Bytes that wait only for the client, or zero if none do.
    pub(super) pending: u64,
}

/// The pace of one direction of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    since: Instant,
    begun: Sample,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Pace {
        Pace { since: now, begun: Sample::default() }
    }

    /// Takes a sample. Returns true if the client was too slow throughout the last window.
    pub(super) fn is_slow(&mut self, now: Instant, sample: Sample) -> bool {
        let window = now.since(self.since);
        if sample.pending == 0 || self.begun.pending == 0 {
            (self.since, self.begun) = (now, sample);
            return false;
        }
        if window < PACE_WINDOW {
            return false;
        }
        let moved = u128::from(sample.moved - self.begun.moved) * u128::from(HOLD_TIME);
        let slow = moved < u128::from(self.begun.pending) * u128::from(window);
        (self.since, self.begun) = (now, sample);
        slow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples a client once a second for 4 s, with `pending` bytes waiting and `rate` bytes
    /// moved per second.
    fn is_slow(pending: u64, rate: u64) -> bool {
        let mut pace = Pace::new(Instant(0));
        (0..=4).any(|second| {
            let sample = Sample { moved: second * rate, pending };
            pace.is_slow(Instant(second * SECOND), sample)
        })
    }

    #[test]
    fn the_pace_is_measured_against_what_waits() {
        assert!(is_slow(1 << 20, 1), "a byte a second");
        assert!(is_slow(48 << 20, 256 << 10), "48 MiB at 256 KiB/s");
        assert!(!is_slow(48 << 20, 8 << 20), "48 MiB at 8 MiB/s");
        assert!(!is_slow(64 << 10, 64 << 10));
        assert!(!is_slow(0, 0), "nothing waits for it");
    }

    #[test]
    fn a_client_that_was_done_in_between_is_watched_anew() {
        let mut pace = Pace::new(Instant(0));
        let pending = 1 << 20;
        assert!(!pace.is_slow(Instant(SECOND), Sample { moved: 0, pending }));
        assert!(!pace.is_slow(Instant(2 * SECOND), Sample { moved: 0, pending: 0 }));
        assert!(!pace.is_slow(Instant(3 * SECOND), Sample { moved: 0, pending }));
        assert!(!pace.is_slow(Instant(4 * SECOND), Sample { moved: 0, pending }));
        assert!(pace.is_slow(Instant(5 * SECOND), Sample { moved: 0, pending }));
    }
}
