//! A bounded number of log lines about clients that misbehave.
//!
//! A client can connect and break the protocol thousands of times a second. The log gets at
//! most [`LINES_PER_SECOND`] lines of that, and the number of lines dropped.

use hemi_text::Plain;
use hemi_units::{Instant, SECOND};

/// Maximum number of lines a second about clients that misbehave.
pub(super) const LINES_PER_SECOND: u32 = 10;

/// Counts of the lines logged and dropped in the current second.
#[derive(Debug, Default)]
pub(crate) struct Complaints {
    begun: Instant,
    logged: u32,
    dropped: u64,
}

impl Complaints {
    /// Logs the reason why a client was cut off. Text from the client is shown as plain text.
    pub(crate) fn log(&mut self, now: Instant, peer: &str, reason: &str) {
        if self.admit(now) {
            tracing::info!(peer, reason = %Plain(reason), "a client is cut off");
        }
    }

    /// Returns true if a line may be logged now.
    pub(crate) fn admit(&mut self, now: Instant) -> bool {
        if now.since(self.begun) >= SECOND {
            if self.dropped > 0 {
                tracing::info!(clients = self.dropped, "more clients were cut off");
            }
            *self = Complaints { begun: now, ..Complaints::default() };
        }
        let admitted = self.logged < LINES_PER_SECOND;
        self.logged += u32::from(admitted);
        self.dropped += u64::from(!admitted);
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_so_many_lines() {
        let mut complaints = Complaints::default();
        let start = 5 * SECOND;
        let lines = (0..6700u64)
            .filter(|client| complaints.admit(Instant(start + client * 100_000)))
            .count();
        assert_eq!(lines as u32, LINES_PER_SECOND);
        assert_eq!(complaints.dropped, 6690);
        assert!(complaints.admit(Instant(start + SECOND)));
        assert_eq!((complaints.logged, complaints.dropped), (1, 0));
    }
}
