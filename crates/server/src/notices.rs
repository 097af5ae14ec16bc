//! Writes the engine's notices to the log.
//!
//! A leg that fails every write would fill the log. So its errors are logged once a second at most, each line
//! with the number of errors since the previous one.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use hemi_engine::identifiers::{LEGS_MAX, LegIndex};
use hemi_engine::io::{LegError, Notice, OutReason};
use hemi_units::{Instant, SECOND, prose};
use rustix::io::Errno;

use crate::control::volume::{LegIdentity, Noticed};

/// Maximum number of notices that wait for the control thread.
const NOTICES_MAX: usize = 1024;
/// Shortest time between two lines about errors of one leg, in nanoseconds.
const ERROR_LINE_INTERVAL: u64 = SECOND;

/// Number of finds of a scrub that one line in the log stands for.
const FINDS_A_LINE: u64 = 1000;
/// Time without finds after which the next one is logged, in nanoseconds.
const FINDS_APART: u64 = 60 * SECOND;

/// An I/O that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Failed {
    error: LegError,
    /// The system's error, if it gave one.
    errno: Option<Errno>,
    sector: u64,
}

/// The errors of one leg that have not been logged yet.
#[derive(Clone, Copy, Debug, Default)]
struct Errors {
    /// Time before which no line is due.
    quiet_until: Instant,
    /// The newest error not yet logged, and the number of errors not yet logged.
    unsaid: Option<(Failed, u64)>,
}

impl Errors {
    /// Counts an error.
    fn add(&mut self, failed: Failed) {
        let before = self.unsaid.map_or(0, |(_, count)| count);
        self.unsaid = Some((failed, before + 1));
    }

    /// Returns the error to log now, if a line is due: the newest one, and the number it stands for.
    fn due(&mut self, now: Instant) -> Option<(Failed, u64)> {
        if now < self.quiet_until {
            return None;
        }
        let said = self.unsaid.take()?;
        self.quiet_until = now + ERROR_LINE_INTERVAL;
        Some(said)
    }
}

/// A count of what comes in great numbers: the first is logged, and then each thousandth.
#[derive(Clone, Copy, Debug, Default)]
struct Finds {
    count: u64,
    newest: Instant,
}

impl Finds {
    /// Counts one. Returns the count if a line is due.
    fn add(&mut self, now: Instant) -> Option<u64> {
        if now.since(self.newest) > FINDS_APART {
            self.count = 0;
        }
        (self.newest, self.count) = (now, self.count + 1);
        (self.count == 1 || self.count.is_multiple_of(FINDS_A_LINE)).then_some(self.count)
    }
}

/// The log of one volume's notices, and the sender of notices to the control thread.
#[derive(Debug)]
pub(crate) struct Notices {
    errors: [Errors; LEGS_MAX],
    mismatches: Finds,
    repaired: Finds,
    sender: SyncSender<Noticed>,
    left_out: Arc<AtomicU64>,
}

/// The control thread's receiver of notices.
#[derive(Debug)]
pub(crate) struct NoticeReceiver {
    receiver: Receiver<Noticed>,
    left_out: Arc<AtomicU64>,
}

impl NoticeReceiver {
    /// Appends the notices that have come, oldest first. Returns the number of notices that were dropped for
    /// lack of room.
    pub(crate) fn take(&mut self, into: &mut Vec<Noticed>) -> u64 {
        into.extend(self.receiver.try_iter().take(NOTICES_MAX));
        self.left_out.swap(0, Ordering::Relaxed)
    }
}

impl Notices {
    /// Returns the log, and the control thread's receiver.
    pub(crate) fn new() -> (Notices, NoticeReceiver) {
        let (sender, receiver) = sync_channel(NOTICES_MAX);
        let left_out = Arc::new(AtomicU64::new(0));
        let notices = Notices {
            errors: Default::default(),
            mismatches: Finds::default(),
            repaired: Finds::default(),
            sender,
            left_out: Arc::clone(&left_out),
        };
        (notices, NoticeReceiver { receiver, left_out })
    }

    /// Logs a notice with the leg's own name, and sends it to the control thread.
    /// `errno` is the system's error of an I/O that failed.
    pub(crate) fn log(
        &mut self,
        now: Instant,
        legs: &[LegIdentity],
        notice: Notice,
        errno: Option<Errno>,
    ) {
        if let Notice::Mismatch { leg, extent } = notice {
            // Control learns of them by the scrub's result.
            let count = self.mismatches.add(now);
            if let Some(count) = count {
                let leg = name(legs, leg);
                let (sector, sectors) = (extent.start, extent.sectors());
                tracing::warn!(count, leg, sector, sectors, "scrub: a leg differs from another");
            }
            return;
        }
        // The sender does not wait for a control thread that is busy or gone.
        if self.sender.try_send(Noticed { at: now, notice, errno }).is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
        match notice {
            Notice::LegError { leg, error, sector } => {
                self.errors[leg.index()].add(Failed { error, errno, sector });
                self.say_errors(now, legs);
            }
            Notice::Repaired { leg, differed, extent } => {
                if let Some(count) = self.repaired.add(now) {
                    let leg = name(legs, leg);
                    let (sector, sectors) = (extent.start, extent.sectors());
                    tracing::info!(
                        count,
                        leg,
                        differed,
                        sector,
                        sectors,
                        "an extent was rewritten"
                    );
                }
            }
            other => log(legs, other),
        }
    }

    /// Logs the errors that have been held back long enough. Must be called at intervals.
    pub(crate) fn say_errors(&mut self, now: Instant, legs: &[LegIdentity]) {
        for (slot, errors) in self.errors.iter_mut().enumerate() {
            let Some((failed, count)) = errors.due(now) else { continue };
            let Failed { error, errno, sector } = failed;
            let error = cause(error, errno);
            let leg = name(legs, LegIndex(slot as u8));
            if count == 1 {
                tracing::warn!(leg, error, sector, "an I/O failed");
            } else {
                tracing::warn!(leg, error, sector, count, "I/Os failed; this is the newest");
            }
        }
    }
}

/// Returns the reason why an I/O of a leg failed, with the system's own words if it gave an error.
pub(crate) fn cause(error: LegError, errno: Option<Errno>) -> String {
    let kind = match error {
        LegError::Media => "the medium failed",
        LegError::NoSpace => "it has no space left",
        LegError::Gone => "its device or session is gone",
        LegError::Other => "an unexpected error",
    };
    match (errno.map(io::Error::from), error) {
        (Some(errno), LegError::Other) => errno.to_string(),
        (Some(errno), _) => format!("{kind}: {errno}"),
        (None, _) => kind.to_owned(),
    }
}

/// Returns the name that operators use for a leg.
pub(crate) fn name(legs: &[LegIdentity], leg: LegIndex) -> String {
    let known = legs.iter().find(|known| known.leg == leg.0);
    known.map_or_else(|| format!("leg {}", leg.0), |known| known.name.clone())
}

/// Returns a leg's name with its slot, by which commands know it.
pub(crate) fn label(name: &str, leg: LegIndex) -> String {
    let slot = format!("leg {}", leg.0);
    if name.is_empty() || name == slot { slot } else { format!("{name} ({slot})") }
}

/// Capitalises a sentence that begins with a leg. A leg's own name keeps its case.
pub(crate) fn capital(text: String) -> String {
    match text.strip_prefix("leg ") {
        Some(rest) => format!("Leg {rest}"),
        None => text,
    }
}

fn log(legs: &[LegIdentity], notice: Notice) {
    let name = |leg| name(legs, leg);
    match notice {
        // These are logged at intervals.
        Notice::LegError { .. } => {}
        Notice::Frozen { leg, limit } => {
            tracing::warn!(
                leg = name(leg),
                limit = prose::duration(limit),
                "frozen: an I/O outlived its limit"
            );
        }
        Notice::Thawed { leg, duration } => {
            tracing::info!(leg = name(leg), frozen = prose::duration(duration), "answers again");
        }
        Notice::Lagging { leg } => tracing::info!(leg = name(leg), "lags behind"),
        Notice::CaughtUp { leg } => tracing::info!(leg = name(leg), "has caught up"),
        Notice::Out { leg, reason } => {
            let reason = match reason {
                OutReason::Unresponsive => "it did not answer for too long",
                OutReason::Removed => "its device is gone",
                OutReason::WriteErrors => "it fails writes",
                OutReason::Detached => "it was detached",
                OutReason::Joining => "it is joining and has to drain first",
            };
            tracing::warn!(leg = name(leg), reason, "out: the volume goes on without it");
        }
        Notice::In { leg } => tracing::info!(leg = name(leg), "in: it holds everything again"),
        Notice::Lost { extent } => tracing::error!(
            sector = extent.start,
            sectors = extent.sectors(),
            "LOST: no leg holds this extent any more; it answers EIO until rewritten"
        ),
        Notice::Halted { leg, regions } => tracing::error!(
            leg = name(leg),
            regions,
            "HALTED: its device is gone, and it alone decides regions that had not been compared since \
             the start"
        ),
        // These are logged by the thousand.
        Notice::Repaired { .. } | Notice::Mismatch { .. } => {}
        Notice::Throttling => {
            tracing::warn!("writers are slowed down: exposure is past half its bound");
        }
        Notice::ThrottlingEnded => tracing::info!("writers are no longer slowed down"),
        Notice::Converged => tracing::info!("every leg is whole; the volume is clean"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_error_is_named() {
        assert_eq!(cause(LegError::Media, None), "the medium failed");
        assert_eq!(cause(LegError::Other, None), "an unexpected error");
        let words = |errno: Errno| io::Error::from(errno).to_string();
        assert_eq!(cause(LegError::Other, Some(Errno::NOTCONN)), words(Errno::NOTCONN));
        let remote = cause(LegError::Media, Some(Errno::REMOTEIO));
        assert_eq!(remote, format!("the medium failed: {}", words(Errno::REMOTEIO)));
    }

    #[test]
    fn a_scrub_that_finds_much_is_told_by_the_thousand() {
        let mut finds = Finds::default();
        let told: Vec<u64> =
            (1..=3500).filter_map(|at| finds.add(Instant(at * SECOND / 1000))).collect();
        assert_eq!(told, [1, 1000, 2000, 3000]);
        assert_eq!(finds.add(Instant(100 * SECOND)), Some(1), "another scrub");
    }

    #[test]
    fn a_leg_that_fails_all_the_time_is_told_once_a_second_with_a_count() {
        let mut errors = Errors::default();
        let (mut lines, mut told) = (0, 0);
        for tenth in 0..35 {
            errors.add(Failed { error: LegError::NoSpace, errno: None, sector: tenth });
            if let Some((newest, count)) = errors.due(Instant(tenth * SECOND / 10)) {
                assert_eq!(newest.sector, tenth);
                lines += 1;
                told += count;
            }
        }
        assert_eq!((lines, told), (4, 31));
        // The rest is logged although no error follows, and nothing after that.
        let (_, rest) = errors.due(Instant(5 * SECOND)).expect("what was held back");
        assert_eq!(rest, 4);
        assert_eq!(errors.due(Instant(9 * SECOND)), None);
    }
}
