//! Drives that were found to be slow in the field.
//!
//! R. Lu et al., *From Missteps to Milestones: A Journey to Practical Fail-Slow Detection* (ACM
//! TOS 2023; Perseus, FAST 2023), with data of 248,000 drives. Two clusters of it are public: the
//! latency of each drive, as a mean over each 15 s, 3 hours a day. The figures here are taken from
//! them: each drive's latency is divided by the median of the other drives in its host at the same
//! time. None of these was ever above 3.
//!
//! The data has latencies and no service times, so a factor on the service time is an
//! approximation, close where the queue is short.

use std::fmt;
use std::str::FromStr;

use hemi_units::{Instant, SECOND};

use super::slow::{Affected, Slow};
use super::spell::Spell;

/// The behaviour of a drive of that data that is labelled as slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowExperiment {
    /// Cluster A, host 22, disk 11, an NVMe drive. It was over 3 times slower in 30.0 % of 10,079
    /// samples of 14 days, in 1,019 episodes of 45 s on average, and then 5.0 times (median).
    Intermittent,
    /// Cluster B, host 5, disk 5. It was 175 times slower (median) in all 5,055 samples of 8 days.
    Sustained,
}

impl SlowExperiment {
    /// All experiments.
    pub const ALL: [SlowExperiment; 2] = [SlowExperiment::Intermittent, SlowExperiment::Sustained];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            SlowExperiment::Intermittent => "perseus-intermittent",
            SlowExperiment::Sustained => "perseus-sustained",
        }
    }

    /// Returns it from `at` on, with every length `scale` times as long as it was.
    pub fn slow(self, at: Instant, scale: f64) -> Slow {
        let scaled = |length: u64| ((length as f64 * scale) as u64).max(1);
        let (factor, length, every) = match self {
            SlowExperiment::Intermittent => {
                let (length, every) = (scaled(45 * SECOND), scaled(150 * SECOND));
                (5.0, Some(length), Some(every.max(length + 1)))
            }
            SlowExperiment::Sustained => (175.0, None, None),
        };
        Slow { spell: Spell { at, length, every }, factor, over: 0, affected: Affected::All }
    }
}

impl fmt::Display for SlowExperiment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for SlowExperiment {
    type Err = String;

    fn from_str(text: &str) -> Result<SlowExperiment, String> {
        SlowExperiment::ALL.into_iter().find(|known| known.name() == text).ok_or_else(|| {
            let names = SlowExperiment::ALL.map(SlowExperiment::name).join(", ");
            format!("there is no experiment `{text}`: use one of {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_intermittent_drive_is_slow_for_its_share_of_the_time() {
        for (scale, unit) in [(1.0, SECOND), (0.01, SECOND / 100)] {
            let Slow { spell, .. } = SlowExperiment::Intermittent.slow(Instant(7), scale);
            let slow = (0..1500).filter(|step| spell.at(Instant(7 + step * unit)).0.is_some());
            assert_eq!(slow.count(), 450, "30.0 % at scale {scale}");
        }
        for experiment in SlowExperiment::ALL {
            assert_eq!(experiment.name().parse(), Ok(experiment));
        }
    }
}
