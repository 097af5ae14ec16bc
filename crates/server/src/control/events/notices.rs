//! Events made from the engine's notices. The log is bounded, and rare events must not drown in it. So a leg
//! that freezes or fails all the time is reported a few times a minute, and then in sum.

use std::sync::Arc;

use hemi_engine::identifiers::{LEGS_MAX, LegIndex};
use hemi_engine::io::{Notice, OutReason};
use hemi_units::SECTOR_BYTES;

use super::{Event, Severity};
use crate::control::volume::{Noticed, Snapshot};
use crate::notices::{capital, cause, label};
use hemi_units::prose::{bytes, counted, duration};

/// Freezes of one leg that are reported individually within [`FOLD_MS`].
const FREEZES_TOLD: u32 = 6;
/// Span over which repeated events are reported in sum, in milliseconds.
const FOLD_MS: u64 = 60_000;

/// A counter of repeated events that are reported in sum.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fold {
    /// The beginning of the span; zero if nothing has happened lately.
    began_ms: u64,
    told: u32,
    /// Events not reported yet.
    untold: u32,
    /// The sum of their durations, bytes or the like.
    pub(super) sum: u64,
}

impl Fold {
    /// Counts one more event. Returns true if it is to be reported individually.
    pub(super) fn take(&mut self, at_ms: u64, told_max: u32) -> bool {
        if self.began_ms == 0 {
            self.began_ms = at_ms;
        }
        let is_told = self.told < told_max;
        if is_told {
            self.told += 1;
        } else {
            self.untold += 1;
        }
        is_told
    }

    /// Returns the number of events to report in sum, and their sum, if the span is over.
    pub(super) fn over(&mut self, now_ms: u64) -> Option<(u32, u64)> {
        if self.began_ms == 0 || now_ms.abs_diff(self.began_ms) < FOLD_MS {
            return None;
        }
        let ended = std::mem::take(self);
        if ended.untold == 0 {
            return None;
        }
        // The events go on: the next span begins with those reported in sum.
        *self = Fold { began_ms: now_ms, told: ended.told, ..Fold::default() };
        Some((ended.untold, ended.sum))
    }
}

/// The state kept for one leg.
#[derive(Debug, Default)]
struct Leg {
    freezes: Fold,
    /// True if the current freeze has not been reported individually.
    is_folded: bool,
    /// The last snapshot before the current freeze.
    before: Option<Arc<Snapshot>>,
    errors: Fold,
    /// The current rebuild: the time it began, and the bytes to be filled.
    rebuild: Option<(u64, u64)>,
}

/// Makes events from notices.
#[derive(Debug, Default)]
pub(super) struct NoticeEvents {
    legs: [Leg; LEGS_MAX],
    repaired: Fold,
    throttled_ms: Option<u64>,
    lost_bytes: u64,
}

impl NoticeEvents {
    /// Takes a notice from time `at_ms`. `before` is the snapshot before it, and `now` the newest one.
    pub(super) fn take(
        &mut self,
        at_ms: u64,
        noticed: &Noticed,
        before: &Arc<Snapshot>,
        now: &Snapshot,
        events: &mut Vec<Event>,
    ) {
        let mut say = |event: Event| events.push(event.at(at_ms));
        match noticed.notice {
            Notice::Frozen { leg, limit } => {
                let known = &mut self.legs[leg.index()];
                known.before = Some(Arc::clone(before));
                known.is_folded = !known.freezes.take(at_ms, FREEZES_TOLD);
                if !known.is_folded {
                    say(frozen(now, leg, limit));
                }
            }
            Notice::Thawed { leg, duration } => {
                let known = &mut self.legs[leg.index()];
                let base = known.before.take();
                if known.is_folded {
                    known.freezes.sum += duration;
                } else {
                    say(thawed(now, leg, duration, base.as_deref()));
                }
            }
            Notice::Out { leg, reason: OutReason::Joining } => self.rebuild_begins(at_ms, leg, now, events),
            Notice::Out { leg, reason } => say(out(now, leg, reason)),
            Notice::In { leg } => say(self.is_in(at_ms, leg, now)),
            Notice::LegError { leg, error, sector } => {
                if self.legs[leg.index()].errors.take(at_ms, 1) {
                    say(failed(now, leg, &cause(error, noticed.errno), sector));
                }
            }
            Notice::Lost { extent } => self.lost_bytes += extent.bytes(),
            Notice::Halted { leg, regions } => say(of_leg(
                now,
                leg,
                "halted",
                Severity::Critical,
                |label| {
                    format!(
                        "The volume is no longer served: the device of {label} is gone, and it alone decides \
                         {} that had not been compared since the start.",
                        counted(regions, "region")
                    )
                },
            )
            .with("regions", regions)),
            // The scrub that found it has said so.
            Notice::Repaired { differed: true, .. } => {}
            Notice::Repaired { leg, extent, .. } => {
                self.repaired.sum += extent.bytes();
                if self.repaired.take(at_ms, 1) {
                    self.repaired.sum -= extent.bytes();
                    say(of_leg(now, leg, "repaired", Severity::Notice, |label| {
                        let size = bytes(extent.bytes());
                        format!("{size} that {label} could not read were rewritten there from another leg.")
                    })
                    .with("bytes", extent.bytes())
                    .with("at_bytes", extent.start * SECTOR_BYTES));
                }
            }
            Notice::Throttling => {
                self.throttled_ms = Some(at_ms);
                say(throttling(now));
            }
            Notice::ThrottlingEnded => say(self.throttling_ended(at_ms)),
            // These are normal, or part of a scrub's result.
            Notice::Lagging { .. }
            | Notice::CaughtUp { .. }
            | Notice::Converged
            | Notice::Mismatch { .. } => {}
        }
    }

    /// Reports events that have been held back long enough.
    pub(super) fn tick(&mut self, now_ms: u64, snapshot: &Snapshot, events: &mut Vec<Event>) {
        let lost = std::mem::take(&mut self.lost_bytes);
        if lost > 0 {
            let text = format!(
                "No leg holds {} of acknowledged data any more: reading them fails until they are written again.",
                bytes(lost)
            );
            events
                .push(Event::new("lost", Severity::Critical, text).with("bytes", lost).at(now_ms));
        }
        for (slot, known) in (0u8..).zip(&mut self.legs) {
            let leg = LegIndex(slot);
            if let Some((count, frozen)) = known.freezes.over(now_ms) {
                let time = duration(frozen);
                let event = of_leg(snapshot, leg, "freeze", Severity::Warning, |label| {
                    format!(
                        "{label} froze {} within a minute, for {time} in all.",
                        counted(count, "more time")
                    )
                });
                events.push(event.with("count", count).with("frozen_ns", frozen).at(now_ms));
            }
            if let Some((count, _)) = known.errors.over(now_ms) {
                let event = of_leg(snapshot, leg, "errors", Severity::Warning, |label| {
                    format!("{} of {label} failed within a minute.", counted(count, "more I/O"))
                });
                events.push(event.with("count", count).at(now_ms));
            }
        }
        if let Some((count, sum)) = self.repaired.over(now_ms) {
            let text = format!(
                "{} that a leg could not read {} rewritten within a minute, {} in all.",
                counted(count, "more extent"),
                if count == 1 { "was" } else { "were" },
                bytes(sum)
            );
            let event = Event::new("repaired", Severity::Notice, text).with("count", count);
            events.push(event.with("bytes", sum).at(now_ms));
        }
    }

    /// Begins the rebuild of a leg, which is being filled from now on or since the volume was opened.
    pub(super) fn rebuild_begins(
        &mut self,
        at_ms: u64,
        leg: LegIndex,
        now: &Snapshot,
        events: &mut Vec<Event>,
    ) {
        let known = &mut self.legs[leg.index()];
        if known.rebuild.is_some() {
            return;
        }
        let owed = of_slot(now, leg).map_or(0, |leg| leg.owed_bytes);
        // The leg has joined, and its debt shows in the next snapshot only.
        let to_fill = if owed > 0 { owed } else { now.identity.size_bytes };
        known.rebuild = Some((at_ms, to_fill));
        let event = of_leg(now, leg, "rebuild", Severity::Notice, |label| {
            format!("The rebuild of {label} began: {} have to be filled.", bytes(to_fill))
        });
        events.push(event.with("to_fill_bytes", to_fill).with("done", false).at(at_ms));
    }

    fn is_in(&mut self, at_ms: u64, leg: LegIndex, now: &Snapshot) -> Event {
        match self.legs[leg.index()].rebuild.take() {
            Some((began_ms, filled)) => {
                let took = at_ms.saturating_sub(began_ms).max(1) * 1_000_000;
                let rate = (u128::from(filled) * 1_000_000_000 / u128::from(took)) as u64;
                of_leg(now, leg, "rebuild", Severity::Notice, |label| {
                    format!(
                        "The rebuild of {label} is done: {} were filled in {}, {} a second.",
                        bytes(filled),
                        duration(took),
                        bytes(rate)
                    )
                })
                .with("filled_bytes", filled)
                .with("took_ns", took)
                .with("done", true)
            }
            None => of_leg(now, leg, "in", Severity::Notice, |label| {
                format!("{label} is in again: it holds everything.")
            }),
        }
    }

    /// Forgets the rebuild of a leg that has left.
    pub(super) fn forget_rebuild(&mut self, leg: LegIndex) {
        self.legs[leg.index()].rebuild = None;
    }

    fn throttling_ended(&mut self, at_ms: u64) -> Event {
        let took = self.throttled_ms.take().map(|since| at_ms.saturating_sub(since) * 1_000_000);
        let text = match took {
            Some(took) => format!("Writers are no longer slowed down, after {}.", duration(took)),
            None => "Writers are no longer slowed down.".to_owned(),
        };
        let event = Event::new("throttle-end", Severity::Info, text);
        match took {
            Some(took) => event.with("took_ns", took),
            None => event,
        }
    }
}

/// Returns an event of a leg. Its text is made from the leg's name.
pub(super) fn of_leg(
    snapshot: &Snapshot,
    leg: LegIndex,
    kind: &'static str,
    severity: Severity,
    text: impl FnOnce(String) -> String,
) -> Event {
    let name = crate::notices::name(&snapshot.legs, leg);
    let text = capital(text(label(&name, leg)));
    Event::new(kind, severity, text).of_leg(leg.0, name)
}

fn of_slot(snapshot: &Snapshot, leg: LegIndex) -> Option<&hemi_engine::status::LegStatus> {
    snapshot.status.legs.iter().find(|known| known.leg == leg.0)
}

/// Returns the names of the other legs that answer.
fn others(snapshot: &Snapshot, leg: LegIndex) -> Vec<String> {
    use hemi_engine::status::LegState;
    let answers = |known: &&hemi_engine::status::LegStatus| {
        known.leg != leg.0 && matches!(known.state, LegState::Healthy | LegState::Lagging)
    };
    let names = snapshot.status.legs.iter().filter(answers);
    names.map(|known| crate::notices::name(&snapshot.legs, LegIndex(known.leg))).collect()
}

fn frozen(now: &Snapshot, leg: LegIndex, limit: u64) -> Event {
    let others = others(now, leg);
    let injected = now.injected.iter().any(|(slot, _)| *slot == leg.0);
    let cause = if injected { "; a fault is injected" } else { "" };
    let clients = if others.is_empty() {
        "no other leg answers, so clients wait".to_owned()
    } else {
        format!("clients go on with {}", others.join(" and "))
    };
    of_leg(now, leg, "freeze", Severity::Warning, |label| {
        format!(
            "{label} does not answer: an I/O has taken longer than its limit of {}{cause}; {clients}.",
            duration(limit)
        )
    })
    .with("limit_ns", limit)
    .with("injected", injected)
}

fn thawed(now: &Snapshot, leg: LegIndex, frozen: u64, before: Option<&Snapshot>) -> Event {
    // Requests answered meanwhile, up to the next snapshot.
    let served = before.map(|before| {
        let mut served = now.status.client_reads.since(&before.status.client_reads);
        served.merge(&now.status.client_writes.since(&before.status.client_writes));
        served
    });
    let (count, slowest) = served.map_or((0, 0), |served| (served.count(), served.max()));
    let clients = match count {
        0 => "no client's request was answered meanwhile".to_owned(),
        _ => format!(
            "meanwhile {count} client {} answered, the slowest after {}",
            if count == 1 { "request was" } else { "requests were" },
            duration(slowest)
        ),
    };
    of_leg(now, leg, "thaw", Severity::Info, |label| {
        format!("{label} answers again after {}; {clients}.", duration(frozen))
    })
    .with("frozen_ns", frozen)
    .with("requests", count)
    .with("slowest_ns", slowest)
}

fn out(now: &Snapshot, leg: LegIndex, reason: OutReason) -> Event {
    let (severity, reason, cause) = match reason {
        OutReason::Unresponsive => {
            (Severity::Warning, "unresponsive", "it did not answer for too long")
        }
        OutReason::Removed => (Severity::Warning, "removed", "its device is gone"),
        OutReason::WriteErrors => (Severity::Warning, "write-errors", "it fails writes"),
        OutReason::Detached => (Severity::Notice, "detached", "it was detached"),
        OutReason::Joining => (Severity::Notice, "joining", "it has to be filled first"),
    };
    of_leg(now, leg, "out", severity, |label| {
        format!("{label} is out, because {cause}; the volume goes on without it.")
    })
    .with("reason", reason)
}

fn failed(now: &Snapshot, leg: LegIndex, cause: &str, sector: u64) -> Event {
    of_leg(now, leg, "errors", Severity::Warning, |label| {
        format!("An I/O of {label} failed at byte {}: {cause}.", sector * SECTOR_BYTES)
    })
    .with("count", 1)
    .with("error", cause)
    .with("at_bytes", sector * SECTOR_BYTES)
}

fn throttling(now: &Snapshot) -> Event {
    let status = &now.status;
    let text = format!(
        "Writers are slowed down, because exposure is near its bound of {} and {}.",
        bytes(status.exposure_bytes_bound),
        duration(status.exposure_age_bound)
    );
    Event::new("throttle", Severity::Warning, text)
        .with("exposure_bytes", status.exposure_bytes)
        .with("bound_bytes", status.exposure_bytes_bound)
        .with("exposure_age_ns", status.exposure_age)
        .with("bound_age_ns", status.exposure_age_bound)
}

#[cfg(test)]
mod tests;
