//! Bounds on injected faults.

use hemi_stalls::{Experiment, PhaseSpec, Schedule, ScheduleError};

use super::volume::{Fault, Refusal, RefusalKind};
use hemi_units::Time;

/// Longest injected freeze, longer than every `out_after` in use.
pub const FREEZE_MAX: Time = Time::seconds(3600);
/// Longest injected delay.
pub const DELAY_MAX: Time = Time::seconds(60);

/// Returns the schedule of a fault that stalls requests, or `None` for any other fault.
///
/// # Errors
///
/// A refusal that names the phase, the value and the bound.
pub fn schedule(fault: &Fault) -> Result<Option<Schedule>, Refusal> {
    let refusal = |ScheduleError { what, right }| {
        Refusal::new(RefusalKind::BadRequest, what, sentence(&right))
    };
    let schedule = match fault {
        Fault::Stall { phases, .. } => PhaseSpec::schedule(phases).map_err(refusal)?,
        Fault::Experiment { name, time_scale, .. } => {
            let experiment: Experiment = name.parse().map_err(|_| {
                let names = Experiment::ALL.map(Experiment::name).join(", ");
                Refusal::new(
                    RefusalKind::BadRequest,
                    format!("there is no experiment `{name}`"),
                    format!("Use one of {names}."),
                )
            })?;
            experiment.schedule(*time_scale).map_err(refusal)?
        }
        _ => return Ok(None),
    };
    Ok(Some(schedule))
}

/// Turns a clause into a sentence.
fn sentence(clause: &str) -> String {
    let mut letters = clause.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).chain(['.']).collect()
}

/// Checks that a fault is within its bounds.
///
/// # Errors
///
/// A refusal that names the value and the bound.
pub fn check(fault: &Fault) -> Result<(), Refusal> {
    let refuse =
        |what: String, way_out: String| Err(Refusal::new(RefusalKind::BadRequest, what, way_out));
    match fault {
        Fault::Stall { .. } | Fault::Experiment { .. } => schedule(fault).map(|_| ()),
        Fault::Freeze { duration } if *duration == Time(0) || *duration > FREEZE_MAX => refuse(
            format!("a freeze of {duration} is out of range"),
            format!("Use more than 0s, at most {FREEZE_MAX}."),
        ),
        Fault::Delay { delay } if *delay > DELAY_MAX => refuse(
            format!("a delay of {delay} is out of range"),
            format!("Use at most {DELAY_MAX}; 0s ends it."),
        ),
        Fault::Error { rate, .. } if !(0.0..=1.0).contains(rate) => refuse(
            format!("an error rate of {rate} is out of range: it is a share, from 0 to 1"),
            "0 ends the fault, 0.5 fails every second I/O, 1 fails all.".to_owned(),
        ),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::volume::FaultyOperation;
    use super::*;

    #[test]
    fn refusals_have_a_way_out() {
        let fault = Fault::Stall { phases: Vec::new(), seed: 0 };
        let refusal = check(&fault).expect_err("it has no phases");
        assert_eq!(refusal.what, "a schedule has 0 phases");
        assert_eq!(refusal.way_out, "Use 1 to 64.");
        let name = "ebs-other".to_owned();
        let fault = Fault::Experiment { name, time_scale: 1.0, seed: 0 };
        let refusal = check(&fault).expect_err("there is none");
        assert!(refusal.what.contains("`ebs-other`"), "{refusal}");
        assert!(refusal.way_out.contains("ebs-sustained, ebs-increasing"), "{refusal:?}");
    }

    #[test]
    fn bounds_hold() {
        let error = |rate| Fault::Error { operation: FaultyOperation::Read, rate };
        let stall = |phases: &[&str]| Fault::Stall {
            phases: phases.iter().map(|phase| phase.parse().expect("its form is right")).collect(),
            seed: 0,
        };
        let experiment = |name: &str, time_scale| Fault::Experiment {
            name: name.to_owned(),
            time_scale,
            seed: 0,
        };
        for (fault, right) in [
            (Fault::Freeze { duration: Time::seconds(2) }, true),
            (Fault::Freeze { duration: Time(0) }, false),
            (Fault::Freeze { duration: Time::seconds(3601) }, false),
            (Fault::Delay { delay: Time(0) }, true),
            (Fault::Delay { delay: Time::seconds(61) }, false),
            (error(0.5), true),
            (error(1.5), false),
            (error(f64::NAN), false),
            (stall(&["writes:1,reads:0.5,by:500ms"]), true),
            (stall(&["writes:1,by:20ms..2s,for:1m", "for:2m", "reads:0.001,by:1h"]), true),
            (stall(&[]), false),
            (stall(&["writes:1,by:61m"]), false),
            (stall(&["writes:1,by:0s"]), false),
            (stall(&["writes:1,by:1s", "for:1s"]), false),
            (stall(&["writes:1.5,by:1s"]), false),
            (experiment("ebs-sustained", 1.0), true),
            (experiment("ebs-sustained", 0.0), false),
            (experiment("ebs-other", 1.0), false),
            (Fault::Clear, true),
        ] {
            assert_eq!(check(&fault).is_ok(), right, "{fault:?}");
        }
    }
}
