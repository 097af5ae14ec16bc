//! The latency experiments that Amazon publishes for its EBS volumes.
//!
//! Amazon EBS User Guide, *Latency injection* (the action `aws:ebs:volume-io-latency`): four
//! templates of 15 minutes each.

use std::fmt;
use std::str::FromStr;

use hemi_units::{MILLISECOND, SECOND};

use crate::delays::Delays;
use crate::schedule::{Phase, Schedule, ScheduleError};
use crate::share::Share;

/// Largest factor on the lengths of an experiment's phases.
pub const SCALE_MAX: f64 = 100.0;

const MINUTE: u64 = 60 * SECOND;

/// A published experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experiment {
    /// 500 ms on half of the reads and all writes.
    Sustained,
    /// 50, 200, 700 ms, 1 and 15 s on 10 % of the reads and 25 % of the writes.
    Increasing,
    /// 30, 10 and 20 s on 0.1 % of reads and writes, with health between.
    Intermittent,
    /// 20 and 5 s, 900, 300 and 40 ms on 10 % of reads and writes.
    Decreasing,
}

impl Experiment {
    /// All experiments, in the order in which they are published.
    pub const ALL: [Experiment; 4] = [
        Experiment::Sustained,
        Experiment::Increasing,
        Experiment::Intermittent,
        Experiment::Decreasing,
    ];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Experiment::Sustained => "ebs-sustained",
            Experiment::Increasing => "ebs-increasing",
            Experiment::Intermittent => "ebs-intermittent",
            Experiment::Decreasing => "ebs-decreasing",
        }
    }

    /// Returns the phases as published.
    fn phases(self) -> Vec<Phase> {
        let phase = |reads, writes, delay, length| Phase {
            reads: Share::per_mille(reads),
            writes: Share::per_mille(writes),
            delays: Delays::Fixed(delay),
            length: Some(length),
        };
        let steps = |reads, writes, delays: [u64; 5]| {
            delays.map(|delay| phase(reads, writes, delay, 3 * MINUTE)).to_vec()
        };
        match self {
            Experiment::Sustained => vec![phase(500, 1000, 500 * MILLISECOND, 15 * MINUTE)],
            Experiment::Increasing => steps(
                100,
                250,
                [50 * MILLISECOND, 200 * MILLISECOND, 700 * MILLISECOND, SECOND, 15 * SECOND],
            ),
            Experiment::Intermittent => vec![
                phase(1, 1, 30 * SECOND, MINUTE),
                phase(0, 0, 0, 5 * MINUTE),
                phase(1, 1, 10 * SECOND, 2 * MINUTE),
                phase(0, 0, 0, 5 * MINUTE),
                phase(1, 1, 20 * SECOND, 2 * MINUTE),
            ],
            Experiment::Decreasing => steps(
                100,
                100,
                [20 * SECOND, 5 * SECOND, 900 * MILLISECOND, 300 * MILLISECOND, 40 * MILLISECOND],
            ),
        }
    }

    /// Returns the schedule, with every phase `scale` times as long as published. Delays stay
    /// the same.
    ///
    /// # Errors
    /// Fails if `scale` is not above 0 and at most [`SCALE_MAX`].
    pub fn schedule(self, scale: f64) -> Result<Schedule, ScheduleError> {
        // The reverse comparison would let NaN pass.
        if !(scale > 0.0 && scale <= SCALE_MAX) {
            return Err(ScheduleError::new(
                format!("a time scale of {scale} is out of range"),
                format!("use more than 0, at most {SCALE_MAX}"),
            ));
        }
        let scaled = |length: u64| ((length as f64 * scale).round() as u64).max(1);
        let phases = self.phases().into_iter();
        Schedule::new(
            phases.map(|phase| Phase { length: phase.length.map(scaled), ..phase }).collect(),
        )
    }
}

impl fmt::Display for Experiment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for Experiment {
    type Err = String;

    fn from_str(text: &str) -> Result<Experiment, String> {
        Experiment::ALL.into_iter().find(|known| known.name() == text).ok_or_else(|| {
            let names = Experiment::ALL.map(Experiment::name).join(", ");
            format!("there is no experiment `{text}`: use one of {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_takes_a_quarter_of_an_hour() {
        for experiment in Experiment::ALL {
            let schedule = experiment.schedule(1.0).expect("it is published");
            assert_eq!(schedule.length(), Some(15 * MINUTE), "{experiment}");
            let short = experiment.schedule(0.1).expect("so is a part of it");
            assert_eq!(short.length(), Some(90 * SECOND), "{experiment}");
            for (whole, part) in schedule.phases().iter().zip(short.phases()) {
                assert_eq!(whole.delays, part.delays, "delays are not scaled");
            }
            assert_eq!(experiment.name().parse(), Ok(experiment));
        }
    }

    #[test]
    fn names_and_scales_are_checked() {
        let error = "ebs-random".parse::<Experiment>().expect_err("there is none");
        assert!(error.contains("ebs-random") && error.contains("ebs-decreasing"), "{error}");
        for scale in [0.0, -1.0, f64::NAN, f64::INFINITY, 101.0] {
            assert!(Experiment::Sustained.schedule(scale).is_err(), "{scale}");
        }
        assert!(Experiment::Sustained.schedule(1e-300).is_ok(), "a nanosecond at the least");
    }
}
