//! The text form of a phase.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use hemi_units::Time;

use crate::delays::Delays;
use crate::schedule::{Phase, Schedule, ScheduleError};
use crate::share::Share;

/// A phase as text: `reads:0.5,writes:1,by:500ms,for:15m`, in any order. By default no reads
/// and no writes stall, and the phase has no end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseSpec {
    /// Share of the reads that stall, 0 to 1.
    #[serde(default)]
    pub reads: f64,
    /// Share of the writes that stall, 0 to 1.
    #[serde(default)]
    pub writes: f64,
    /// Distribution of the delays. May be absent if no request stalls.
    #[serde(default = "nothing", skip_serializing_if = "Option::is_none")]
    pub by: Option<Delays<Time>>,
    /// Length of the phase.
    #[serde(default = "nothing", rename = "for", skip_serializing_if = "Option::is_none")]
    pub length: Option<Time>,
}

/// The default of an absent value. (serde's own default would require more of the time type.)
fn nothing<T>() -> Option<T> {
    None
}

impl PhaseSpec {
    /// Returns the phase; `number` counts from 1.
    fn phase(&self, number: usize) -> Result<Phase, ScheduleError> {
        let share = |name: &str, value: f64| {
            Share::of(value).ok_or_else(|| {
                ScheduleError::new(
                    format!("phase {number}: {name}: a share of {value} is out of range"),
                    "use 0 (none) to 1 (all), in steps of a millionth",
                )
            })
        };
        let (reads, writes) = (share("reads", self.reads)?, share("writes", self.writes)?);
        let stalls = reads != Share::NONE || writes != Share::NONE;
        let delays = match self.by {
            Some(delays) => delays.map(|time| time.0),
            None if stalls => {
                return Err(ScheduleError::new(
                    format!("phase {number} has no delay"),
                    "say by how much requests stall, as in by:500ms",
                ));
            }
            None => Delays::Fixed(0),
        };
        Ok(Phase { reads, writes, delays, length: self.length.map(|time| time.0) })
    }

    /// Returns the schedule of these phases.
    ///
    /// # Errors
    /// Fails if the phases are invalid; the error names the allowed values.
    pub fn schedule(phases: &[PhaseSpec]) -> Result<Schedule, ScheduleError> {
        let phases = (1_usize..).zip(phases).map(|(number, phase)| phase.phase(number));
        Schedule::new(phases.collect::<Result<_, _>>()?)
    }
}

impl FromStr for PhaseSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<PhaseSpec, String> {
        let mut phase = PhaseSpec { reads: 0.0, writes: 0.0, by: None, length: None };
        let mut given: Vec<&str> = Vec::new();
        for part in text.split(',') {
            let (key, value) = part.split_once(':').ok_or_else(|| {
                format!("`{part}` is not a KEY:VALUE, as in reads:0.5,writes:1,by:500ms,for:15m")
            })?;
            let (key, value) = (key.trim(), value.trim());
            if given.contains(&key) {
                return Err(format!("`{key}` is given twice"));
            }
            given.push(key);
            let share = || {
                value
                    .parse()
                    .map_err(|_| format!("the share `{value}` is not a number from 0 to 1"))
            };
            match key {
                "reads" => phase.reads = share()?,
                "writes" => phase.writes = share()?,
                "by" => phase.by = Some(value.parse()?),
                "for" => {
                    let length = value.parse::<Time>().map_err(|error| error.to_string())?;
                    phase.length = Some(length);
                }
                _ => return Err(format!("`{key}` is not reads, writes, by or for")),
            }
        }
        Ok(phase)
    }
}

impl fmt::Display for PhaseSpec {
    /// Writes the text form, without absent values.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "reads:{},writes:{}", self.reads, self.writes)?;
        if let Some(delays) = &self.by {
            write!(formatter, ",by:{delays}")?;
        }
        match &self.length {
            Some(length) => write!(formatter, ",for:{length}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_is_read_and_shown() {
        let phase: PhaseSpec = "writes:1,reads:0.5,by:500ns,for:900ns".parse().expect("right");
        let by = Some(Delays::Fixed(Time(500)));
        assert_eq!(phase, PhaseSpec { reads: 0.5, writes: 1.0, by, length: Some(Time(900)) });
        assert_eq!(phase.to_string(), "reads:0.5,writes:1,by:500ns,for:900ns");
        let json = serde_json::to_string(&phase).expect("it has a JSON form");
        assert_eq!(json, r#"{"reads":0.5,"writes":1.0,"by":"500ns","for":"900ns"}"#);
        assert_eq!(serde_json::from_str::<PhaseSpec>(&json).expect("its own"), phase);
        let healthy: PhaseSpec = "for:10ns".parse().expect("right");
        let schedule = PhaseSpec::schedule(&[healthy, phase]).expect("right");
        assert_eq!(schedule.length(), Some(910));
        assert_eq!(schedule.phases()[1].writes, Share::ALL);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (wrong, part) in [
            ("", "KEY:VALUE"),
            ("reads", "`reads` is not a KEY:VALUE"),
            ("reads:half", "`half`"),
            ("reads:1,reads:1", "twice"),
            ("flushes:1", "`flushes` is not reads, writes"),
            ("reads:1,by:soon", "`soon` is not a duration"),
        ] {
            let error = wrong.parse::<PhaseSpec>().expect_err("it is wrong");
            assert!(error.contains(part), "{wrong}: {error}");
        }
        for (wrong, part) in [
            ("reads:2,by:1ns", "phase 1: reads: a share of 2"),
            ("writes:-1,by:1ns", "phase 1: writes"),
            ("writes:1", "phase 1 has no delay"),
        ] {
            let phase: PhaseSpec = wrong.parse().expect("its form is right");
            let error = PhaseSpec::schedule(&[phase]).expect_err("it is wrong");
            assert!(error.what.contains(part), "{wrong}: {error}");
        }
    }
}
