//! Schedules of phases, one after another.

use crate::delays::Delays;
use crate::share::Share;

/// Maximum number of phases of a schedule.
pub const PHASES_MAX: usize = 64;
/// Longest phase, in nanoseconds: 30 days.
pub const LENGTH_MAX: u64 = 30 * 24 * 3_600_000_000_000;

/// A period in which the same shares of requests stall.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// Share of the reads that stall.
    pub reads: Share,
    /// Share of the writes, and of all other requests that are not reads, that stall.
    pub writes: Share,
    /// Distribution of the delays. Unused if both shares are zero.
    pub delays: Delays,
    /// Length of the phase in nanoseconds; `None` for no end.
    pub length: Option<u64>,
}

/// The reason why phases form no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {right}")]
pub struct ScheduleError {
    /// The error, with the phase's number (from 1) and the value.
    pub what: String,
    /// The allowed values.
    pub right: String,
}

impl ScheduleError {
    pub(crate) fn new(what: impl Into<String>, right: impl Into<String>) -> ScheduleError {
        ScheduleError { what: what.into(), right: right.into() }
    }
}

/// Phases, one after another. No request stalls after the last one.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    phases: Vec<Phase>,
    /// End of each phase, in nanoseconds since the beginning.
    ends: Vec<u64>,
}

impl Schedule {
    /// Creates a schedule from 1 to [`PHASES_MAX`] phases, each longer than zero and at most
    /// [`LENGTH_MAX`]. Only the last may have no end.
    ///
    /// # Errors
    /// Fails if the phases break these rules; the error names the allowed values.
    pub fn new(phases: Vec<Phase>) -> Result<Schedule, ScheduleError> {
        if phases.is_empty() || phases.len() > PHASES_MAX {
            return Err(ScheduleError::new(
                format!("a schedule has {} phases", phases.len()),
                format!("use 1 to {PHASES_MAX}"),
            ));
        }
        let mut ends = Vec::with_capacity(phases.len());
        let mut end = 0_u64;
        for (index, phase) in phases.iter().enumerate() {
            let number = index + 1;
            let last = number == phases.len();
            match phase.length {
                None if last => end = u64::MAX,
                None => {
                    return Err(ScheduleError::new(
                        format!("phase {number} has no length"),
                        "give its length; only the last phase may have none",
                    ));
                }
                Some(length) if length == 0 || length > LENGTH_MAX => {
                    return Err(ScheduleError::new(
                        format!("phase {number} lasts {} s", length as f64 / 1e9),
                        "use more than 0, at most 30 days",
                    ));
                }
                Some(length) => end += length,
            }
            let stalls = phase.reads != Share::NONE || phase.writes != Share::NONE;
            if stalls && let Some((what, right)) = phase.delays.problem() {
                return Err(ScheduleError::new(format!("phase {number}: {what}"), right));
            }
            ends.push(end);
        }
        Ok(Schedule { phases, ends })
    }

    /// Returns the phases.
    pub fn phases(&self) -> &[Phase] {
        &self.phases
    }

    /// Returns the phase at `since` nanoseconds after the beginning: its number, from 0, and
    /// its end. Returns `None` once the last phase is over.
    pub fn at(&self, since: u64) -> Option<(usize, u64)> {
        let index = self.ends.partition_point(|end| *end <= since);
        self.ends.get(index).map(|end| (index, *end))
    }

    /// Returns the total length in nanoseconds, or `None` if there is no end.
    pub fn length(&self) -> Option<u64> {
        self.ends.last().copied().filter(|end| *end != u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(length: Option<u64>) -> Phase {
        let (reads, writes) = (Share::NONE, Share::ALL);
        Phase { reads, writes, delays: Delays::Fixed(5), length }
    }

    #[test]
    fn phases_follow_one_another() {
        let schedule = Schedule::new(vec![phase(Some(10)), phase(Some(1))]).expect("it is right");
        assert_eq!(schedule.at(0), Some((0, 10)));
        assert_eq!(schedule.at(9), Some((0, 10)));
        assert_eq!(schedule.at(10), Some((1, 11)));
        assert_eq!(schedule.at(11), None);
        assert_eq!(schedule.length(), Some(11));
        let endless = Schedule::new(vec![phase(Some(10)), phase(None)]).expect("it is right");
        assert_eq!(endless.at(u64::MAX - 1), Some((1, u64::MAX)));
        assert_eq!(endless.length(), None);
    }

    #[test]
    fn what_is_wrong_names_the_phase() {
        let many = vec![phase(Some(1)); PHASES_MAX + 1];
        let delays = Delays::Fixed(0);
        let no_delay = vec![phase(Some(1)), Phase { delays, ..phase(Some(1)) }];
        for (wrong, part) in [
            (vec![], "0 phases"),
            (many, "65 phases"),
            (vec![phase(None), phase(Some(1))], "phase 1 has no length"),
            (vec![phase(Some(1)), phase(Some(0))], "phase 2 lasts 0 s"),
            (vec![phase(Some(LENGTH_MAX + 1))], "phase 1 lasts"),
            (no_delay, "phase 2: a delay of 0 s"),
        ] {
            let error = Schedule::new(wrong).expect_err("it is wrong");
            assert!(error.what.contains(part), "{error}");
        }
        let healthy = Phase { writes: Share::NONE, delays, ..phase(Some(1)) };
        assert!(Schedule::new(vec![healthy]).is_ok(), "health needs no delay");
    }
}
