//! Operators' requests as events.

use std::time::Duration;

use super::{Event, Severity};
use crate::control::quantities::{bytes, duration};
use crate::control::volume::{Refusal, Request, Snapshot};
use hemi_units::SECTOR_BYTES;

/// Returns the event of a request that was done or refused, with the time it took. `snapshot` was taken
/// afterwards.
pub(in crate::control) fn outcome(
    request: &Request,
    result: &Result<(), Refusal>,
    took: Duration,
    snapshot: &Snapshot,
) -> Event {
    let took = took.as_nanos() as u64;
    if let Request::Scrub { repair } = request
        && let Some(event) = scrubbed(*repair, result, took, snapshot)
    {
        return event;
    }
    let asked = request.to_string();
    let event = match result {
        Ok(()) => Event::new("request", Severity::Info, format!("Asked to {asked}: done.")),
        Err(refusal) => Event::new(
            "request",
            Severity::Notice,
            format!("Asked to {asked}: refused, because {}.", refusal.what.trim_end_matches('.')),
        ),
    };
    event.with("request", asked).with("done", result.is_ok()).with("took_ns", took)
}

/// Returns the event of a scrub that has begun.
pub(in crate::control) fn scrub_begins(repair: bool, snapshot: &Snapshot) -> Event {
    let size = bytes(snapshot.identity.size_bytes);
    let what = if repair { "and repair what differs" } else { "without repair" };
    Event::new(
        "scrub",
        Severity::Info,
        format!("A scrub began: it compares {size} on all legs {what}."),
    )
    .with("repair", repair)
    .with("total_bytes", snapshot.identity.size_bytes)
}

/// Returns the event of a scrub that has ended; `None` if it was refused before it began.
fn scrubbed(
    repair: bool,
    result: &Result<(), Refusal>,
    took: u64,
    snapshot: &Snapshot,
) -> Option<Event> {
    let mismatched = snapshot.status.scrub_mismatches * SECTOR_BYTES;
    let time = duration(took);
    let (severity, text) = match (result, mismatched) {
        (Ok(()), 0) => {
            (Severity::Info, format!("The scrub ended after {time}: no difference was found."))
        }
        (Ok(()), _) if repair => (
            Severity::Warning,
            format!(
                "The scrub ended after {time}: {} differed between legs and were rewritten.",
                bytes(mismatched)
            ),
        ),
        (_, 1..) => (
            Severity::Warning,
            format!(
                "The scrub ended after {time}: {} differ between legs; hemi scrub --repair makes them alike.",
                bytes(mismatched)
            ),
        ),
        (Err(_), 0) => return None,
    };
    let event = Event::new("scrub", severity, text);
    let event = event.with("repair", repair).with("took_ns", took);
    Some(event.with("mismatched_bytes", mismatched))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::volume::{Identity, RefusalKind};

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
        let (plain, repair) = (Request::Scrub { repair: false }, Request::Scrub { repair: true });
        assert_eq!(text(&plain, &Ok(()), 0), "The scrub ended after 3 s: no difference was found.");
        assert!(text(&plain, &refusal, 8).contains("4 KiB differ between legs"));
        assert!(
            text(&repair, &Ok(()), 8).contains("4 KiB differed between legs and were rewritten")
        );
        assert!(text(&repair, &refusal, 0).contains("slot 7"), "it never began");
    }
}
