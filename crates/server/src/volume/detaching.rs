//! The way out where a leg is not detached because no other leg could go on without it.

use hemi_engine::command::CommandError;
use hemi_engine::identifiers::LegIndex;
use hemi_engine::io::OutReason;
use hemi_engine::status::{LegState, LegStatus};

use super::refusal;
use crate::control::volume::{Refusal, Snapshot};
use crate::messages::ReactorError;

/// Returns the refusal of a detach, with what helps in this state of the other legs.
pub(super) fn not_detached(error: ReactorError, snapshot: &Snapshot, leg: LegIndex) -> Refusal {
    let command = match &error {
        ReactorError::Command(command) => Some(*command),
        _ => None,
    };
    let refusal = refusal(error);
    let may_follow = command == Some(CommandError::LastCompleteLeg);
    if !may_follow && command != Some(CommandError::OnlyLeg) {
        return refusal;
    }
    let others = || {
        let others = snapshot.status.legs.iter().filter(|other| other.leg != leg.0);
        others.filter(|other| {
            other.state != LegState::Empty && other.out_reason != Some(OutReason::Detached)
        })
    };
    let is_out = |other: &LegStatus| !matches!(other.out_reason, None | Some(OutReason::Joining));
    if others().any(|other| !is_out(other)) {
        return refusal;
    }
    let Some(out) = others().next().map(|other| other.leg) else { return refusal };
    let name = crate::notices::name(&snapshot.legs, LegIndex(out));
    let unless = match may_follow {
        true => ", unless it recovers and drains what it owes (hemi status --watch)",
        false => "",
    };
    let way_out = format!(
        "Leg {out} ({name}) is out. Put another disk in its place{unless}: hemi leg replace {out} DISK, and \
         wait until it is filled. To take leg {} elsewhere, stop hemi serve instead.",
        leg.0
    );
    Refusal { way_out, ..refusal }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::volume::{Identity, LegIdentity};

    /// Returns the way out for leg 0, if the other legs are in these states.
    fn way_out(error: CommandError, others: &[(LegState, Option<OutReason>)]) -> String {
        let known = |leg| LegIdentity { leg, name: format!("l{leg}"), path: String::new() };
        let mut snapshot = Snapshot::opening(Identity::default(), (0..8).map(known).collect());
        let own = LegStatus { state: LegState::Healthy, ..LegStatus::default() };
        let other = |(leg, (state, out_reason))| LegStatus {
            leg,
            state,
            out_reason,
            ..LegStatus::default()
        };
        snapshot.status.legs =
            std::iter::once(own).chain((1..).zip(others.iter().copied()).map(other)).collect();
        not_detached(ReactorError::Command(error), &snapshot, LegIndex(0)).way_out
    }

    #[test]
    fn it_helps_in_the_state_of_the_other_legs() {
        use CommandError::{LastCompleteLeg, OnlyLeg};
        let failing = (LegState::Out, Some(OutReason::WriteErrors));
        let silent = (LegState::Out, Some(OutReason::Unresponsive));
        let detached = (LegState::Out, Some(OutReason::Detached));
        let wait = "Wait until another leg owes nothing: hemi status --watch.";
        assert_eq!(way_out(LastCompleteLeg, &[(LegState::Lagging, None)]), wait);
        assert_eq!(way_out(LastCompleteLeg, &[failing, (LegState::Lagging, None)]), wait);
        let joining = (LegState::Out, Some(OutReason::Joining));
        assert_eq!(way_out(LastCompleteLeg, &[joining]), wait);
        for (error, others, unless) in [
            (LastCompleteLeg, &[detached, failing][..], true),
            (OnlyLeg, &[detached, silent], false),
        ] {
            let text = way_out(error, others);
            assert!(text.contains("Leg 2 (l2) is out."), "{text}");
            assert!(text.contains("hemi leg replace 2 DISK"), "{text}");
            assert_eq!(text.contains("unless it recovers"), unless, "{text}");
            assert!(!text.contains("owes nothing"), "{text}");
        }
        assert!(way_out(OnlyLeg, &[detached]).contains("hemi leg add"));
    }
}
