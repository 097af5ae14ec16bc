//! Bounds on injected faults.

use super::volume::{Fault, Refusal, RefusalKind};
use crate::config::units::Time;

/// Longest injected freeze: long enough to outlast every `out_after` in use.
pub const FREEZE_MAX: Time = Time::seconds(3600);
/// Longest injected delay.
pub const DELAY_MAX: Time = Time::seconds(60);

/// Whether a fault is within bounds.
///
/// # Errors
///
/// A refusal naming the value and the bound.
pub fn check(fault: Fault) -> Result<(), Refusal> {
    let refuse =
        |what: String, way_out: String| Err(Refusal::new(RefusalKind::BadRequest, what, way_out));
    match fault {
        Fault::Freeze { duration } if duration == Time(0) || duration > FREEZE_MAX => refuse(
            format!("a freeze of {duration} is out of range"),
            format!("Use more than 0s, at most {FREEZE_MAX}."),
        ),
        Fault::Delay { delay } if delay > DELAY_MAX => refuse(
            format!("a delay of {delay} is out of range"),
            format!("Use at most {DELAY_MAX}; 0s ends it."),
        ),
        Fault::Error { rate, .. } if !(0.0..=1.0).contains(&rate) => refuse(
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
    fn bounds_hold() {
        let error = |rate| Fault::Error { operation: FaultyOperation::Read, rate };
        for (fault, right) in [
            (Fault::Freeze { duration: Time::seconds(2) }, true),
            (Fault::Freeze { duration: Time(0) }, false),
            (Fault::Freeze { duration: Time::seconds(3601) }, false),
            (Fault::Delay { delay: Time(0) }, true),
            (Fault::Delay { delay: Time::seconds(61) }, false),
            (error(0.5), true),
            (error(1.5), false),
            (error(f64::NAN), false),
            (Fault::Clear, true),
        ] {
            assert_eq!(check(fault).is_ok(), right, "{fault:?}");
        }
    }
}
