//! Gives up missing legs at a start, as the operator has permitted beforehand (`start_degraded`).
//!
//! It is `hemi promote` of the remaining leg, with the same loss. It is done for missing legs only: not if
//! the remaining leg is damaged, if histories contradict each other, or if several legs remain and somebody
//! has to choose the one that decides.

use hemi_engine::format::Membership;
use hemi_engine::recovery::{Problem, Refusal, newest_of};
use hemi_units::prose::bytes;
use serde::{Deserialize, Serialize};

use super::candidate::{Candidate, State};
use crate::config::place::Place;
use crate::inspect::{LegReport, Slot, SlotState, inspect_leg};
use crate::promote::{LedgerAsked, PromoteError, PromotionPlan};
use crate::serve::ServeError;
use hemi_io::config::legs::LegSpec;
use hemi_io::leg::OpenLeg;

/// The loss that a start accepted in order to go on without missing legs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenUp {
    /// The slots of the legs given up.
    pub legs: Vec<u8>,
    /// Bytes that the remaining leg is known to lack. Reads of them fail until they are written again.
    pub lacks_bytes: u64,
    /// Bytes in the regions in which it may lack the newest writes.
    pub uncertain_bytes: u64,
}

impl GivenUp {
    /// Returns how much is lost, as the end of a sentence.
    pub(crate) fn lost(&self) -> String {
        let more = match self.uncertain_bytes {
            0 => String::new(),
            uncertain => format!(", and perhaps some in {} more", bytes(uncertain)),
        };
        match self.lacks_bytes {
            0 if self.uncertain_bytes == 0 => "none is known of".to_owned(),
            0 => format!("none for certain{more}"),
            lacks => format!("{} for certain{more}", bytes(lacks)),
        }
    }
}

/// The reason why missing legs were not given up.
pub(super) enum NotGivenUp {
    /// The start was refused not only for missing legs. Holds the reason in words.
    Unfit(String),
    /// The promotion was tried and failed.
    Failed(ServeError),
}

impl From<PromoteError> for NotGivenUp {
    fn from(error: PromoteError) -> NotGivenUp {
        match error {
            PromoteError::Refused(reason) => NotGivenUp::Unfit(reason),
            error => NotGivenUp::Failed(error.into()),
        }
    }
}

/// Returns true if missing legs are the only reason why a volume does not open.
pub(super) fn lacks_legs_only(refusal: &Refusal) -> bool {
    refusal.problems.iter().all(|problem| missing(problem).is_some())
}

/// Promotes the only present leg after a start was refused for missing legs. The ledger must not be locked.
/// The leg is closed and reopened.
pub(super) fn give_up_missing(
    refusal: &Refusal,
    candidates: &mut [Candidate],
    place: &Place,
) -> Result<GivenUp, NotGivenUp> {
    let mut present = candidates.iter_mut().filter(|candidate| candidate.is_present());
    let (Some(candidate), None) = (present.next(), present.next()) else {
        return unfit(
            "several legs are there, and one of them has to be named to decide alone (hemi promote)",
        );
    };
    let state = std::mem::replace(&mut candidate.state, State::Absent("being promoted".into()));
    let outcome = match state {
        State::Present { leg, metadata } => {
            promote(refusal, &candidate.config.path, leg, &metadata, place)
        }
        _ => unreachable!("only legs that are present were looked through"),
    };
    candidate.try_again().map_err(NotGivenUp::Failed)?;
    outcome
}

fn promote(
    refusal: &Refusal,
    spec: &LegSpec,
    leg: OpenLeg,
    metadata: &[u8],
    place: &Place,
) -> Result<GivenUp, NotGivenUp> {
    let own = newest_of(metadata).map_err(|error| NotGivenUp::Unfit(error.to_string()))?;
    if own.own_record().state != Membership::In {
        return unfit("the leg that is there is out, and decides nothing");
    }
    let plan = PromotionPlan::of(spec, leg, place)?;
    let report = plan.report();
    if let LedgerAsked::Unknown { problem, .. } = &report.ledger {
        return unfit(&format!(
            "the ledger that the volume was served with since the machine started {problem}"
        ));
    }
    if is_damaged(&inspect_leg(&report.path, plan.leg(), &[])) {
        return unfit("metadata of the leg that is there is damaged (hemi inspect)");
    }
    let given_up = GivenUp {
        legs: refusal.problems.iter().filter_map(missing).collect(),
        lacks_bytes: report.lacks_bytes,
        uncertain_bytes: u64::from(report.uncertain_regions) * report.region_bytes,
    };
    plan.carry_out()?;
    Ok(given_up)
}

fn missing(problem: &Problem) -> Option<u8> {
    match problem {
        Problem::Missing { leg, .. } => Some(leg.0),
        _ => None,
    }
}

fn unfit<T>(reason: &str) -> Result<T, NotGivenUp> {
    Err(NotGivenUp::Unfit(reason.to_owned()))
}

/// Returns true if any of a leg's metadata is neither valid nor torn.
fn is_damaged(report: &LegReport) -> bool {
    let bad = |slot: &Slot| {
        matches!(slot.state, SlotState::Damaged | SlotState::Unreadable | SlotState::Refused)
    };
    let in_table = report.table.as_ref().is_none_or(|table| {
        let slots = table.slots;
        slots.damaged + slots.unreadable + slots.refused > 0 || table.unknown.count() > 0
    });
    let in_lost = report.lost.as_ref().is_none_or(|lost| lost.slots.iter().any(bad));
    report.superblock_slots.iter().any(bad) || in_table || in_lost
}
