//! `[[system.faults]]`: scripted faults of a leg, whatever its drive.

use hemi_drives::any::AnyDrive;
use hemi_drives::faulty::{Faulty, Freeze};
use hemi_stalls::{Experiment, PhaseSpec, Schedule, Stalls};
use hemi_units::{Instant, Time};
use serde::Deserialize;

/// A fault of one leg: a freeze, stalls, or a published experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultSpec {
    /// The leg, from 0.
    pub leg: usize,
    /// Start in virtual time since the beginning of the run. Default 0.
    #[serde(default)]
    pub at: Time,
    /// Time for which the leg does not answer.
    pub freeze: Option<Time>,
    /// Time from the start of one freeze to the start of the next. Needs `freeze`.
    pub every: Option<Time>,
    /// Stalls of single requests, in phases.
    pub stall: Option<Vec<PhaseSpec>>,
    /// Stalls of single requests as in an [`Experiment`].
    pub experiment: Option<String>,
    /// Factor on the lengths of the phases of an experiment. Needs `experiment`. Default 1.
    pub time_scale: Option<f64>,
    /// Seed of the choice of requests. Needs `stall` or `experiment`. Derived from the run's seed if
    /// absent.
    pub seed: Option<u64>,
}

/// A fault in the form a drive takes.
enum Fault {
    Freeze(Freeze),
    Stalls(Schedule),
}

impl FaultSpec {
    /// Returns the fault, or the error in it.
    fn fault(&self) -> Result<Fault, String> {
        let stalls = self.stall.is_some() || self.experiment.is_some();
        for (given, needed, there) in [
            ("every", "freeze", self.every.is_none() || self.freeze.is_some()),
            ("time_scale", "experiment", self.time_scale.is_none() || self.experiment.is_some()),
            ("seed", "stall or experiment", self.seed.is_none() || stalls),
        ] {
            if !there {
                return Err(format!("`{given}` goes with {needed}"));
            }
        }
        let wrong = |error: hemi_stalls::ScheduleError| error.to_string();
        match (self.freeze, &self.stall, &self.experiment) {
            (Some(length), None, None) => {
                if length == Time(0) {
                    return Err("freeze: the length must be above zero".to_owned());
                }
                if self.every.is_some_and(|every| every <= length) {
                    return Err("every: has to be longer than `freeze`".to_owned());
                }
                let (at, every) = (Instant(self.at.0), self.every.map(|every| every.0));
                Ok(Fault::Freeze(Freeze { at, length: length.0, every }))
            }
            (None, Some(phases), None) => {
                PhaseSpec::schedule(phases).map(Fault::Stalls).map_err(wrong)
            }
            (None, None, Some(name)) => {
                let experiment: Experiment = name.parse()?;
                let scale = self.time_scale.unwrap_or(1.0);
                experiment.schedule(scale).map(Fault::Stalls).map_err(wrong)
            }
            _ => Err("a fault has one of `freeze`, `stall` and `experiment`".to_owned()),
        }
    }
}

/// Checks the faults of a system of `legs` legs.
pub(crate) fn check(faults: &[FaultSpec], legs: usize) -> Result<(), String> {
    for (number, fault) in (1..).zip(faults) {
        let named = |what: String| format!("system.faults: fault {number}: {what}");
        if fault.leg >= legs {
            let last = legs.saturating_sub(1);
            return Err(named(format!("leg = {}: the legs are 0 to {last}", fault.leg)));
        }
        fault.fault().map_err(named)?;
    }
    Ok(())
}

/// Puts the faults of this leg in front of its drive. They must have been [`check`]ed.
pub(crate) fn lay(faults: &[FaultSpec], leg: usize, drive: AnyDrive, seed: u64) -> AnyDrive {
    let (mut freezes, mut stalls) = (Vec::new(), Vec::new());
    for (number, spec) in (1_u64..).zip(faults) {
        if spec.leg != leg {
            continue;
        }
        match spec.fault() {
            Ok(Fault::Freeze(freeze)) => freezes.push(freeze),
            Ok(Fault::Stalls(schedule)) => {
                // Faults of one run draw independently of each other.
                let seed = spec.seed.unwrap_or(seed ^ (number << 48));
                stalls.push(Stalls::new(schedule, seed, Instant(spec.at.0)));
            }
            Err(wrong) => unreachable!("the spec was checked: {wrong}"),
        }
    }
    if freezes.is_empty() && stalls.is_empty() {
        return drive;
    }
    AnyDrive::Faulty(Box::new(Faulty::new(drive, freezes, stalls)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<(), String> {
        #[derive(Deserialize)]
        struct File {
            faults: Vec<FaultSpec>,
        }
        let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
        check(&file.faults, 2)
    }

    #[test]
    fn every_form_is_taken() {
        let right = r#"
            [[faults]]
            leg = 1
            at = "10 s"
            freeze = "2 s"
            every = "1 min"

            [[faults]]
            leg = 0
            seed = 3
            stall = [
              { reads = 0.5, writes = 1, by = "500 ms", for = "15 min" },
              { for = "1 min" },
              { reads = 0.001, by = "20 ms..2 s", for = "1 min" },
              { writes = 0.1, by = "200 ms~0.8" },
            ]

            [[faults]]
            leg = 1
            experiment = "ebs-intermittent"
            time_scale = 0.1
        "#;
        assert_eq!(checked(right), Ok(()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (wrong, part) in [
            ("leg = 2\nfreeze = \"1 s\"", "leg = 2: the legs are 0 to 1"),
            ("leg = 0", "one of `freeze`, `stall` and `experiment`"),
            ("leg = 0\nfreeze = \"1 s\"\nexperiment = \"ebs-sustained\"", "one of `freeze`"),
            ("leg = 0\nfreeze = \"0 s\"", "must be above zero"),
            ("leg = 0\nfreeze = \"2 s\"\nevery = \"2 s\"", "every"),
            ("leg = 0\nfreeze = \"2 s\"\nseed = 1", "`seed` goes with stall or experiment"),
            ("leg = 0\nstall = []", "0 phases"),
            ("leg = 0\nstall = [{ reads = 2, by = \"1 s\" }]", "phase 1: reads: a share of 2"),
            ("leg = 0\nstall = [{ reads = 1, by = \"1 parsec\" }]", "1 parsec"),
            ("leg = 0\nstall = [{ flushes = 1 }]", "flushes"),
            ("leg = 0\nexperiment = \"ebs\"", "`ebs`"),
            ("leg = 0\nexperiment = \"ebs-sustained\"\ntime_scale = 0", "time scale of 0"),
        ] {
            let error = checked(&format!("[[faults]]\n{wrong}")).expect_err(wrong);
            assert!(error.contains(part), "{wrong}: {error}");
        }
    }
}
