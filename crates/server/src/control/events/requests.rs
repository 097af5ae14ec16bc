//! Operators' requests as events.

use std::time::Duration;

use super::{Event, Severity};
use crate::control::scrubs::found;
use crate::control::volume::{Refusal, RefusalKind, Request, Snapshot};
use hemi_engine::command::ScrubRepair;
use hemi_units::Extent;
use hemi_units::prose::{bytes, duration};

/// Returns the event of a request that was done or refused, with the time it took. `snapshot` was taken
/// afterwards.
pub(in crate::control) fn outcome(
    request: &Request,
    result: &Result<(), Refusal>,
    took: Duration,
    snapshot: &Snapshot,
) -> Event {
    let took = took.as_nanos() as u64;
    if let Request::Scrub { repair, .. } = request
        && let Some(event) = scrubbed(*repair, result, took, snapshot)
    {
        return event;
    }
    let (asked, word) = (request.to_string(), word(request, result));
    let event = match result {
        Ok(()) => Event::new("request", Severity::Info, format!("Asked to {asked}: {word}.")),
        Err(refusal) => Event::new(
            "request",
            Severity::Notice,
            format!("Asked to {asked}: {word}, because {}.", refusal.what.trim_end_matches('.')),
        ),
    };
    event.with("request", asked).with("done", result.is_ok()).with("took_ns", took)
}

/// Returns what came of a request in a word. The next program alone knows what comes of a handover.
pub(in crate::control) fn word(request: &Request, result: &Result<(), Refusal>) -> &'static str {
    match (request, result) {
        (Request::Upgrade { .. } | Request::HandOver, Ok(())) => {
            "begun, and clients wait for the next program"
        }
        (_, Ok(())) => "done",
        (_, Err(Refusal { kind: RefusalKind::Failed, .. })) => "failed",
        (_, Err(_)) => "refused",
    }
}

/// Returns the event of a scrub that has begun.
pub(in crate::control) fn scrub_begins(
    repair: ScrubRepair,
    part: Option<Extent>,
    snapshot: &Snapshot,
) -> Event {
    let total = part.map_or(snapshot.identity.size_bytes, Extent::bytes);
    let what = match repair {
        ScrubRepair::Nothing => "rewrites nothing".to_owned(),
        ScrubRepair::Unreadable => "rewrites what a leg cannot read".to_owned(),
        ScrubRepair::From(leg) => format!("rewrites what differs from leg {}", leg.0),
    };
    let text = format!("A scrub began: it compares {} on all legs, and {what}.", bytes(total));
    Event::new("scrub", Severity::Info, text)
        .with("repair", repair != ScrubRepair::Nothing)
        .with("total_bytes", total)
}

/// Returns the event of a scrub that has ended; `None` if it was refused before it began.
fn scrubbed(
    repair: ScrubRepair,
    result: &Result<(), Refusal>,
    took: u64,
    snapshot: &Snapshot,
) -> Option<Event> {
    let (differ, unreadable) = found(snapshot);
    if result.as_ref().is_err_and(|refusal| refusal.kind != RefusalKind::Failed) {
        return None;
    }
    let mut parts = Vec::new();
    if unreadable > 0 {
        let outcome = match repair {
            ScrubRepair::Nothing => "was left",
            ScrubRepair::Unreadable | ScrubRepair::From(_) => "is rewritten from the others",
        };
        parts.push(format!("a leg could not read {}, which {outcome}", bytes(unreadable)));
    }
    if differ > 0 {
        let outcome = match (repair, result) {
            (ScrubRepair::From(leg), Ok(())) => format!("and are rewritten from leg {}", leg.0),
            (ScrubRepair::From(_), Err(_)) => "of which some could not be rewritten now".to_owned(),
            _ => "and were left; hemi scrub --show lists where".to_owned(),
        };
        parts.push(format!("{} differ between legs, {outcome}", bytes(differ)));
    }
    let (severity, said) = match parts.is_empty() {
        true => (Severity::Info, "no difference was found".to_owned()),
        false => (Severity::Warning, parts.join("; ")),
    };
    let text = format!("The scrub ended after {}: {said}.", duration(took));
    let event = Event::new("scrub", severity, text)
        .with("repair", repair != ScrubRepair::Nothing)
        .with("took_ns", took)
        .with("mismatched_bytes", differ)
        .with("unreadable_bytes", unreadable);
    Some(event)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::volume::Identity;
    use crate::grow::GrowTo;
    use hemi_engine::identifiers::LegIndex;

    fn snapshot(mismatches: u64) -> Snapshot {
        let mut snapshot = Snapshot::opening(Identity::default(), Vec::new());
        snapshot.status.scrub_mismatches = mismatches;
        snapshot
    }

    fn text(request: &Request, result: &Result<(), Refusal>, mismatches: u64) -> String {
        outcome(request, result, Duration::from_secs(3), &snapshot(mismatches)).text
    }

    #[test]
    fn each_outcome_is_said_with_its_cause() {
        let refusal = Err(Refusal::new(RefusalKind::NotFound, "slot 7 holds no leg", "x"));
        assert_eq!(
            text(&Request::Remove { leg: 7 }, &refusal, 0),
            "Asked to remove leg 7: refused, because slot 7 holds no leg."
        );
        assert_eq!(text(&Request::Remove { leg: 7 }, &Ok(()), 0), "Asked to remove leg 7: done.");
        let scrub = |repair| Request::Scrub { repair, part: None };
        let (plain, from) = (scrub(ScrubRepair::Nothing), scrub(ScrubRepair::From(LegIndex(1))));
        let failed = Err(Refusal::new(RefusalKind::Failed, "the new program is silent", "x"));
        let grow = Request::Upgrade { binary: None, force: false, grow: Some(GrowTo::Max) };
        assert_eq!(
            text(&grow, &failed, 0),
            "Asked to grow as far as the legs allow: failed, because the new program is silent."
        );
        assert_eq!(
            text(&grow, &Ok(()), 0),
            "Asked to grow as far as the legs allow: begun, and clients wait for the next program."
        );
        assert_eq!(text(&plain, &Ok(()), 0), "The scrub ended after 3 s: no difference was found.");
        let failed = Err(Refusal::new(RefusalKind::Failed, "4 KiB differ", "x"));
        assert!(text(&plain, &failed, 8).contains("4 KiB differ between legs, and were left"));
        assert!(text(&from, &Ok(()), 8).contains("and are rewritten from leg 1"));
        assert!(text(&from, &refusal, 0).contains("slot 7"), "it never began");
    }
}
