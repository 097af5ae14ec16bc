//! The state of the volume in one sentence, and advice for the operator.

use hemi_engine::status::LegState;
use serde::{Deserialize, Serialize};

use super::api::{LegStatus, OutReason, VolumeStatus};
use super::promises::{bytes, duration};
use super::volume::Phase;

/// The safety of the data, in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Safety {
    /// Every leg is in and answers, and nothing is lost.
    Safe,
    /// A leg is missing, does not answer or is being filled, data is lost, or exposure exceeds its bound.
    AtRisk,
    /// Clients are not served.
    #[default]
    Down,
}

/// A summary of the volume in one sentence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The safety of the data, in one word.
    pub state: Safety,
    /// The same in one sentence, with figures.
    pub text: String,
    /// Advice for the operator; `null` if nothing needs to be done.
    pub advice: Option<String>,
}

/// Summarises the volume, as far as its status is filled in.
pub(super) fn summary(status: &VolumeStatus) -> Summary {
    let (state, text, advice) = judge(status);
    Summary { state, text, advice }
}

fn judge(status: &VolumeStatus) -> (Safety, String, Option<String>) {
    let at_risk =
        |text: String, advice: Option<&str>| (Safety::AtRisk, text, advice.map(str::to_owned));
    match status.phase {
        Phase::Serving => {}
        Phase::Opening => return (Safety::Down, "The volume is being opened.".into(), None),
        Phase::Closing => return (Safety::Down, "The volume is being stopped.".into(), None),
        Phase::Closed => return (Safety::Down, "The volume is stopped.".into(), None),
        Phase::Upgrading => {
            return (Safety::Down, "Another program is taking over; clients wait.".into(), None);
        }
    }
    if status.lost_bytes > 0 {
        let lost = bytes(status.lost_bytes);
        let text =
            format!("{lost} of acknowledged data are on no leg any more; reading them fails.");
        return at_risk(text, Some("Write them again from a backup."));
    }
    let inside: Vec<&LegStatus> = status.legs.iter().filter(|leg| is_in(leg)).collect();
    if !inside.iter().any(|leg| answers(leg)) {
        return (
            Safety::Down,
            "No leg answers, and clients wait.".into(),
            Some("Look at the drives and servers that the legs are on.".into()),
        );
    }
    if let [sole] = inside[..] {
        return alone(status, sole);
    }
    if let Some(silent) = inside.iter().find(|leg| !answers(leg)) {
        let since =
            silent.state_age_ns.map_or_else(String::new, |age| format!(" for {}", duration(age)));
        let text = format!(
            "{} has not answered{since}: it lacks {}, {}.",
            silent.name,
            bytes(silent.owed_bytes),
            exposed(status)
        );
        return at_risk(
            capital(text),
            Some("If it does not come back, replace it: hemi leg replace."),
        );
    }
    let exposure = &status.exposure;
    let is_past = exposure.bytes > exposure.bound_bytes || exposure.age_ns > exposure.bound_age_ns;
    if exposure.bytes > 0 && is_past {
        let text = format!(
            "Exposure is past its bound of {} and {}: {}.",
            bytes(exposure.bound_bytes),
            duration(exposure.bound_age_ns),
            exposed(status)
        );
        return at_risk(text, None);
    }
    if status.scrub.mismatched_bytes > 0 && !status.scrub.running {
        let text = format!("A scrub found {} that differ.", bytes(status.scrub.mismatched_bytes));
        return at_risk(text, Some("Make the legs alike: hemi scrub --repair."));
    }
    let outside = status.legs.iter().find(|leg| {
        leg.state == LegState::Out
            && !matches!(leg.out_reason, Some(OutReason::Detached | OutReason::Joining))
    });
    if let Some(out) = outside {
        let text = format!("{} is out and lacks {}.", out.name, bytes(out.owed_bytes));
        let advice = "Bring it back (hemi leg attach) or replace it (hemi leg replace).";
        return at_risk(capital(text), Some(advice));
    }
    let text = if exposure.bytes == 0 {
        format!("Everything that was acknowledged is on all {} legs.", inside.len())
    } else {
        format!("All {} legs answer; {}.", inside.len(), exposed(status))
    };
    (Safety::Safe, text, None)
}

fn alone(status: &VolumeStatus, sole: &LegStatus) -> (Safety, String, Option<String>) {
    let filling = status.legs.iter().find(|leg| leg.out_reason == Some(OutReason::Joining));
    let (text, advice) = match filling {
        Some(leg) => (
            format!(
                "All data is on {} alone, while {} is being filled: {} to go.",
                sole.name,
                leg.name,
                bytes(leg.owed_bytes)
            ),
            None,
        ),
        None => (
            format!("All data is on {} alone.", sole.name),
            Some(
                "Bring the other leg back (hemi leg attach), or add one (hemi leg add).".to_owned(),
            ),
        ),
    };
    (Safety::AtRisk, text, advice)
}

/// Describes the data held by one leg only.
fn exposed(status: &VolumeStatus) -> String {
    match status.exposure.bytes {
        0 => "everything that was acknowledged is on more than one leg".to_owned(),
        exposed => format!(
            "{} of the last {} are on one leg only",
            bytes(exposed),
            duration(status.exposure.age_ns)
        ),
    }
}

fn capital(text: String) -> String {
    // A leg's name keeps its case. Only "leg 1", the name of a leg without one, is capitalised as the
    // beginning of a sentence.
    match text.strip_prefix("leg ") {
        Some(rest) => format!("Leg {rest}"),
        None => text,
    }
}

fn answers(leg: &LegStatus) -> bool {
    matches!(leg.state, LegState::Healthy | LegState::Lagging)
}

fn is_in(leg: &LegStatus) -> bool {
    !matches!(leg.state, LegState::Out | LegState::Empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const SECOND: u64 = 1_000_000_000;

    fn volume() -> VolumeStatus {
        let leg = |leg: u8, name: &str| LegStatus {
            leg,
            name: name.into(),
            state: LegState::Healthy,
            ..LegStatus::default()
        };
        let mut status = VolumeStatus {
            phase: Phase::Serving,
            legs: vec![leg(0, "ssd"), leg(1, "hdd")],
            ..VolumeStatus::default()
        };
        (status.exposure.bound_bytes, status.exposure.bound_age_ns) = (64 * MIB, 5 * SECOND);
        status
    }

    fn said(change: impl FnOnce(&mut VolumeStatus)) -> (Safety, String, bool) {
        let mut status = volume();
        change(&mut status);
        let Summary { state, text, advice } = summary(&status);
        (state, text, advice.is_some())
    }

    #[test]
    fn the_sentence_says_what_is_where() {
        let text = |state, text: &str, has_advice| (state, text.to_owned(), has_advice);
        assert_eq!(
            said(|_| {}),
            text(Safety::Safe, "Everything that was acknowledged is on all 2 legs.", false)
        );
        assert_eq!(
            said(|status| (status.exposure.bytes, status.exposure.age_ns) = (12 * MIB, SECOND)),
            text(
                Safety::Safe,
                "All 2 legs answer; 12 MiB of the last 1 s are on one leg only.",
                false
            )
        );
        let frozen = |status: &mut VolumeStatus| {
            (status.exposure.bytes, status.exposure.age_ns) = (12 * MIB, SECOND);
            let leg = &mut status.legs[1];
            (leg.state, leg.owed_bytes) = (LegState::Frozen, 12 * MIB);
            leg.state_age_ns = Some(3 * SECOND);
        };
        assert_eq!(
            said(frozen),
            text(
                Safety::AtRisk,
                "hdd has not answered for 3 s: it lacks 12 MiB, 12 MiB of the last 1 s are on one leg only.",
                true
            )
        );
        assert_eq!(
            said(|status| status.legs[1].state = LegState::Out),
            text(Safety::AtRisk, "All data is on ssd alone.", true)
        );
        let none = |status: &mut VolumeStatus| {
            status.legs.iter_mut().for_each(|leg| leg.state = LegState::Frozen);
        };
        assert_eq!(said(none), text(Safety::Down, "No leg answers, and clients wait.", true));
        assert_eq!(said(|status| status.lost_bytes = 4096).0, Safety::AtRisk);
        assert_eq!(said(|status| status.phase = Phase::Closed).0, Safety::Down);
    }
}
