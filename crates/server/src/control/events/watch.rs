//! Watches a volume through its snapshots and notices, and makes events.

use std::sync::Arc;

use hemi_engine::identifiers::{LEGS_MAX, LegIndex};
use hemi_engine::io::OutReason;
use hemi_engine::status::{LegState, LegStatus};

use super::notices::{Fold, NoticeEvents, of_leg};
use super::{Event, Severity};
use crate::control::api::VolumeStatus;
use crate::control::health::{self, Health, Summary};
use crate::control::volume::{HandoverReport, Noticed, Phase, Snapshot};
use crate::notices;
use hemi_io::clock::unix_ms;
use hemi_units::prose::{bytes, counted, duration};

/// The kind of the events that report moves of authority.
pub(in crate::control) const MOVED: &str = "authority-moved";
/// Time without moves of authority after which they are reported in sum, in milliseconds.
const MOVES_QUIET_MS: u64 = 2_000;
/// Shortest time between two such reports, in milliseconds.
const MOVES_TOLD_MS: u64 = 60_000;

/// Moves of authority that have not been reported.
#[derive(Debug)]
struct Moves {
    began_ms: u64,
    last_ms: u64,
    /// The snapshot before the first of them.
    before: Arc<Snapshot>,
}

/// The end of the previous server of this volume, as far as its last event tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::control) enum Before {
    /// It is unknown.
    #[default]
    Unknown,
    /// It stopped.
    Stopped,
    /// It did not stop. It was last seen at this time, in milliseconds since 1970.
    Broken(u64),
}

impl Before {
    /// Returns what is known after one more event.
    pub(in crate::control) fn after(self, event: &Event) -> Before {
        match &*event.kind {
            "started" | "upgraded" => Before::Broken(event.at),
            "stopped" if event.severity < Severity::Critical => Before::Stopped,
            _ => self,
        }
    }

    /// Returns it with the time at which the server was last seen.
    pub(in crate::control) fn seen(self, last_ms: u64) -> Before {
        match self {
            Before::Broken(_) => Before::Broken(last_ms),
            other => other,
        }
    }
}

/// Makes events from snapshots and notices.
#[derive(Debug, Default)]
pub(in crate::control) struct Watch {
    notices: NoticeEvents,
    last: Option<Arc<Snapshot>>,
    gone_since: [Option<u64>; LEGS_MAX],
    moves: Option<Moves>,
    moves_told_ms: u64,
    left_out: Fold,
    has_started: bool,
    is_closing: bool,
}

impl Watch {
    /// Takes the newest snapshot and the notices since the last one, of which `left_out` were dropped.
    /// `before` is `None` until the end of the previous server is known.
    pub(in crate::control) fn observe(
        &mut self,
        snapshot: &Arc<Snapshot>,
        notices: &[Noticed],
        left_out: u64,
        before: Option<Before>,
        events: &mut Vec<Event>,
    ) {
        let now_ms = unix_ms();
        let clock = hemi_io::clock::now();
        let last = self.last.replace(Arc::clone(snapshot)).unwrap_or_else(|| Arc::clone(snapshot));
        if let Some(before) = before
            && !self.has_started
            && snapshot.phase == Phase::Serving
        {
            self.has_started = true;
            events.push(begun(snapshot, before, now_ms));
        }
        for noticed in notices {
            let at_ms = now_ms.saturating_sub(clock.since(noticed.at) / 1_000_000);
            self.notices.take(at_ms, noticed, &last, snapshot, events);
        }
        self.watch_left_out(left_out, now_ms, events);
        for leg in &snapshot.status.legs {
            self.look_at(leg, snapshot, now_ms, events);
        }
        self.watch_moves(&last, snapshot, now_ms, events);
        self.notices.tick(now_ms, snapshot, events);
        if snapshot.phase == Phase::Closing && !self.is_closing {
            self.is_closing = true;
            events.push(closing(snapshot).at(now_ms));
        }
    }

    /// Takes the time at which the previous server last reported moves of authority.
    pub(in crate::control) fn told_before(&mut self, moves_told_ms: u64) {
        self.moves_told_ms = self.moves_told_ms.max(moves_told_ms);
    }

    /// Reports notices that were dropped, because more came at once than there was room for.
    fn watch_left_out(&mut self, left_out: u64, now_ms: u64, events: &mut Vec<Event>) {
        let mut say = |count: u64, thing: &str, why: &str| {
            let (what, has) = (counted(count, thing), if count == 1 { "was" } else { "were" });
            let text = format!("{what} {has} left out here{why}; the log has the rest.");
            let event = Event::new("left-out", Severity::Notice, text);
            events.push(event.with("count", count).at(now_ms));
        };
        if left_out > 0 && self.left_out.take(now_ms, 1) {
            say(left_out, "event", ", because too many came at once");
        } else {
            self.left_out.sum += left_out;
        }
        if let Some((_, count)) = self.left_out.over(now_ms) {
            say(count, "more event", " within a minute");
        }
    }

    fn look_at(
        &mut self,
        leg: &LegStatus,
        snapshot: &Snapshot,
        now_ms: u64,
        events: &mut Vec<Event>,
    ) {
        let index = LegIndex(leg.leg);
        let gone_since = &mut self.gone_since[index.index()];
        match (leg.state == LegState::Gone, *gone_since) {
            (true, None) => {
                *gone_since = Some(now_ms);
                events.push(gone(snapshot, index).at(now_ms));
            }
            (false, Some(since)) => {
                *gone_since = None;
                let after = now_ms.saturating_sub(since) * 1_000_000;
                if leg.state != LegState::Out {
                    events.push(back(snapshot, index, after).at(now_ms));
                }
            }
            _ => {}
        }
        match (leg.state, leg.out_reason) {
            (LegState::Out, Some(OutReason::Joining)) => {
                self.notices.rebuild_begins(now_ms, index, snapshot, events);
            }
            (LegState::Out, _) => self.notices.forget_rebuild(index),
            _ => {}
        }
    }

    /// Reports moves of authority once they are over.
    fn watch_moves(
        &mut self,
        last: &Arc<Snapshot>,
        snapshot: &Snapshot,
        now_ms: u64,
        events: &mut Vec<Event>,
    ) {
        if snapshot.status.authority_moves > last.status.authority_moves {
            let began = || Moves { began_ms: now_ms, last_ms: now_ms, before: Arc::clone(last) };
            self.moves.get_or_insert_with(began).last_ms = now_ms;
        }
        let is_due = |moves: &mut Moves| {
            let is_past = |at_ms: u64, span_ms| now_ms.abs_diff(at_ms) >= span_ms;
            is_past(moves.last_ms, MOVES_QUIET_MS) && is_past(self.moves_told_ms, MOVES_TOLD_MS)
        };
        if let Some(moves) = self.moves.take_if(is_due) {
            self.moves_told_ms = now_ms;
            events.push(moved(&moves, snapshot, now_ms));
        }
    }
}

fn begun(snapshot: &Snapshot, before: Before, now_ms: u64) -> Event {
    if let Some(report) = &snapshot.taken_over {
        return upgraded(report).at(now_ms);
    }
    let all = snapshot.status.legs.iter().filter(|leg| leg.state != LegState::Empty).count();
    let without = without(snapshot);
    let (mut severity, since) = match before {
        Before::Unknown => (Severity::Info, String::new()),
        Before::Stopped => (Severity::Info, ", after a stop".to_owned()),
        Before::Broken(last_ms) => (
            Severity::Warning,
            format!(
                "; it had not been stopped, and was last served {} ago",
                duration(now_ms.saturating_sub(last_ms) * 1_000_000)
            ),
        ),
    };
    let on = match without.len() {
        0 => counted(all as u64, "leg"),
        missing => format!("{} of {all} legs", all - missing),
    };
    let identity = &snapshot.identity;
    let mut text = format!(
        "hemi {} serves the volume {} of {} on {on}{since}.",
        env!("CARGO_PKG_VERSION"),
        identity.name,
        bytes(identity.size_bytes)
    );
    if !without.is_empty() {
        severity = Severity::Warning;
        let is = if without.len() == 1 { "is" } else { "are" };
        text.push_str(&format!(" Missing {is}: {}.", without.join(", ")));
    }
    if let Some(given_up) = &identity.given_up {
        severity = Severity::Warning;
        let label = |&leg: &u8| {
            let leg = LegIndex(leg);
            notices::label(&notices::name(&snapshot.legs, leg), leg)
        };
        let legs = given_up.legs.iter().map(label).collect();
        text.push(' ');
        text.push_str(&health::gave_up(given_up, legs));
    }
    Event::new("started", severity, text)
        .with("version", env!("CARGO_PKG_VERSION"))
        .with("legs", all - without.len())
        .with("unclean", matches!(before, Before::Broken(_)))
        .at(now_ms)
}

/// Returns the legs without which a volume is served although nobody detached them.
fn without(snapshot: &Snapshot) -> Vec<String> {
    let is_missing = |leg: &&LegStatus| match leg.state {
        LegState::Gone => true,
        LegState::Out => !matches!(leg.out_reason, Some(OutReason::Detached | OutReason::Joining)),
        LegState::Empty | LegState::Healthy | LegState::Lagging | LegState::Frozen => false,
    };
    let missing = snapshot.status.legs.iter().filter(is_missing);
    missing
        .map(|leg| LegIndex(leg.leg))
        .map(|leg| notices::label(&notices::name(&snapshot.legs, leg), leg))
        .collect()
}

fn upgraded(report: &HandoverReport) -> Event {
    let (mut severity, mut text) = match &report.fallback {
        Some(why) => (
            Severity::Warning,
            format!("The upgrade failed, and the program from before goes on: {why}."),
        ),
        None => (
            if report.cut > 0 { Severity::Warning } else { Severity::Notice },
            format!(
                "hemi {} took over from {}: {} went on after {}, {} cut off.",
                env!("CARGO_PKG_VERSION"),
                report.version,
                counted(report.connections, "client"),
                duration(report.pause_ns),
                if report.cut == 1 { "1 was".to_owned() } else { format!("{} were", report.cut) }
            ),
        ),
    };
    if let Some(why) = &report.not_grown {
        severity = severity.max(Severity::Warning);
        text.push_str(&format!(" The volume has not grown: {why}"));
    }
    Event::new("upgraded", severity, text)
        .with("version", env!("CARGO_PKG_VERSION"))
        .with("from_version", report.version.clone())
        .with("connections", report.connections)
        .with("cut", report.cut)
        .with("pause_ns", report.pause_ns)
}

fn closing(snapshot: &Snapshot) -> Event {
    let owed: u64 = snapshot.status.legs.iter().map(|leg| leg.owed_bytes).sum();
    let text = match owed {
        0 => "The volume is being stopped.".to_owned(),
        _ => format!("The volume is being stopped; legs owe {}.", bytes(owed)),
    };
    Event::new("stopping", Severity::Info, text).with("owed_bytes", owed)
}

/// Returns the event of a volume that is no longer served. `status` is its last one, and `left` is what the
/// judge says of the legs.
pub(in crate::control) fn stopped(status: &VolumeStatus, left: &Summary) -> Event {
    let owed: u64 = status.legs.iter().map(|leg| leg.owed_bytes).sum();
    let (severity, text) = match status.phase {
        Phase::Closed => {
            let is_well = left.state == Health::Healthy && owed == 0;
            let severity = if is_well { Severity::Info } else { Severity::Notice };
            (severity, format!("The volume was stopped. {}", left.text))
        }
        _ => (
            Severity::Critical,
            "The volume is no longer served, as after a kill; the log says why.".to_owned(),
        ),
    };
    Event::new("stopped", severity, text).with("owed_bytes", owed).at(unix_ms())
}

fn gone(snapshot: &Snapshot, leg: LegIndex) -> Event {
    let reason = snapshot.no_session.iter().find(|(slot, _)| *slot == leg.0);
    let cause = reason.map_or("its device or server cannot be reached", |(_, reason)| reason);
    of_leg(snapshot, leg, "gone", Severity::Warning, |label| format!("{label} is gone: {cause}."))
}

fn back(snapshot: &Snapshot, leg: LegIndex, after: u64) -> Event {
    of_leg(snapshot, leg, "back", Severity::Notice, |label| {
        format!("{label} is back after {}.", duration(after))
    })
    .with("gone_ns", after)
}

fn moved(moves: &Moves, snapshot: &Snapshot, now_ms: u64) -> Event {
    let count = snapshot.status.authority_moves - moves.before.status.authority_moves;
    let regions = |of: &Snapshot, leg: u8| {
        let known = of.status.legs.iter().find(|known| known.leg == leg);
        known.map_or(0, |known| known.authority_regions)
    };
    let change = |leg: &LegStatus| {
        let (was, is) = (regions(&moves.before, leg.leg), leg.authority_regions);
        let name = crate::notices::name(&snapshot.legs, LegIndex(leg.leg));
        (was != is).then(|| format!("{name} decides {}, before {was}", counted(is, "region")))
    };
    let changes: Vec<String> = snapshot.status.legs.iter().filter_map(change).collect();
    let took = moves.last_ms.saturating_sub(moves.began_ms) * 1_000_000;
    let now = match &changes[..] {
        [] => "each leg decides as many as before".to_owned(),
        changes => changes.join("; "),
    };
    let ago = duration(now_ms.saturating_sub(moves.last_ms) * 1_000_000);
    let when = match count {
        1 => format!("of a region moved {ago} ago"),
        _ => format!("of regions moved {count} times, the last time {ago} ago"),
    };
    let event = Event::new(MOVED, Severity::Info, format!("The authority {when}: {now}."));
    event.with("moves", count).with("took_ns", took).at(now_ms)
}

#[cfg(test)]
mod tests;
