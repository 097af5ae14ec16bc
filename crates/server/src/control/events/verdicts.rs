//! Events of verdicts on slow legs.

use hemi_engine::identifiers::LegIndex;

use super::notices::of_leg;
use super::{Event, Severity};
use crate::control::volume::Snapshot;
use crate::fail_slow::Verdict;

/// Returns the event of a new verdict on a leg, or of the end of one.
pub(in crate::control) fn of_verdict(
    snapshot: &Snapshot,
    leg: u8,
    verdict: Option<&Verdict>,
) -> Event {
    let leg = LegIndex(leg);
    match verdict {
        Some(verdict) => of_leg(snapshot, leg, "verdict", Severity::Warning, |leg| {
            format!("{leg} is slower than it should be: {}", verdict.text)
        })
        .with("since_ms", verdict.since_ms),
        None => of_leg(snapshot, leg, "verdict", Severity::Info, |leg| {
            format!("{leg} is as fast as it should be again.")
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::volume::{Identity, LegIdentity};

    #[test]
    fn a_verdict_is_told_and_its_end() {
        let legs = vec![LegIdentity { leg: 1, name: "hdd".into(), path: "/dev/sdb".into() }];
        let snapshot = Snapshot::opening(Identity::default(), legs);
        let verdict = Verdict {
            text: "It answers writes in 7.2 ms.".into(),
            since_ms: 5,
            severity: crate::fail_slow::Severity::Warning,
        };
        let event = of_verdict(&snapshot, 1, Some(&verdict));
        assert_eq!(
            event.text,
            "hdd (leg 1) is slower than it should be: It answers writes in 7.2 ms."
        );
        assert_eq!((event.leg, event.severity), (Some(1), Severity::Warning));
        assert_eq!(event.values["since_ms"], 5);
        let event = of_verdict(&snapshot, 1, None);
        assert_eq!(event.text, "hdd (leg 1) is as fast as it should be again.");
        assert_eq!(event.severity, Severity::Info);
    }
}
