//! Events of the volume, each with its cause in one sentence and its figures.
//!
//! They come from the engine's notices, from differences between snapshots and from operators' requests. The
//! log is bounded and kept over restarts beside the history. Its ids always increase.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;

use axum::body::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

mod conditions;
#[cfg(test)]
mod made;
mod notices;
mod requests;
mod verdicts;
mod watch;

pub(super) use conditions::Worst;
pub(super) use requests::{outcome as of_request, scrub_begins, word};
pub(super) use verdicts::of_verdict;
pub(super) use watch::{Before, MOVED, Watch, stopped};

/// Maximum number of events kept.
pub const EVENTS_MAX: usize = 4096;
/// Maximum size of the events kept, in bytes of JSON.
pub const EVENTS_BYTES_MAX: usize = 1 << 20;
/// Maximum number of events in an answer of the control API.
pub const EVENTS_PER_ANSWER: u16 = 1000;
/// Longest text of an event in bytes. A longer one is truncated.
const TEXT_BYTES_MAX: usize = 1024;

/// The severity of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Something normal.
    #[default]
    Info,
    /// Worth knowing.
    Notice,
    /// A promise is at risk, or something is failing.
    Warning,
    /// Data is lost, or clients are not served.
    Critical,
}

impl fmt::Display for Severity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Severity::Info => "info",
            Severity::Notice => "notice",
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        })
    }
}

/// An event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its id. Later events have greater ids, also over restarts.
    pub id: u64,
    /// Its time, in milliseconds since 1970.
    pub at: u64,
    /// Its severity.
    pub severity: Severity,
    /// Its kind, such as `freeze`. More kinds may be added.
    pub kind: Cow<'static, str>,
    /// The leg it concerns; `null` if none.
    #[serde(default)]
    pub leg: Option<u8>,
    /// The name of that leg.
    #[serde(default)]
    pub name: Option<String>,
    /// The event and its cause, in one sentence.
    pub text: String,
    /// Its figures.
    #[serde(default)]
    pub values: Map<String, Value>,
}

impl Event {
    /// Returns an event of now, without an id.
    pub(super) fn new(kind: &'static str, severity: Severity, text: impl Into<String>) -> Event {
        let mut text: String = text.into();
        if text.len() > TEXT_BYTES_MAX {
            text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
            text.push('…');
        }
        Event { kind: Cow::Borrowed(kind), severity, text, ..Event::default() }
    }

    /// Sets the leg.
    pub(super) fn of_leg(self, leg: u8, name: impl Into<String>) -> Event {
        Event { leg: Some(leg), name: Some(name.into()), ..self }
    }

    /// Adds a figure.
    pub(super) fn with(mut self, name: &str, value: impl Into<Value>) -> Event {
        self.values.insert(name.to_owned(), value.into());
        self
    }

    /// Sets the time, in milliseconds since 1970.
    pub(super) fn at(self, at: u64) -> Event {
        Event { at, ..self }
    }
}

/// An event as it is kept: serialised to JSON once.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// [`Event::id`].
    pub(super) id: u64,
    /// The event as JSON.
    pub(super) json: Bytes,
}

/// The events kept, oldest first.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    entries: VecDeque<Entry>,
    bytes: usize,
    last_id: u64,
    /// The time of the newest event since the start.
    last_at: u64,
}

impl EventLog {
    /// Gives an event its id and keeps it. The id is the time in milliseconds, or one more than the last id,
    /// so it increases even if nothing is kept over restarts.
    ///
    /// Notices come a moment after requests that they preceded. So an event has at least the time of the one
    /// before it, unless the clock was set back and that time is yet to come.
    pub(super) fn push(&mut self, mut event: Event, now_ms: u64) -> Entry {
        if self.last_at <= now_ms {
            event.at = event.at.max(self.last_at);
        }
        self.last_at = event.at;
        event.id = event.at.max(self.last_id + 1);
        let json = serde_json::to_vec(&event).unwrap_or_default();
        let entry = Entry { id: event.id, json: Bytes::from(json) };
        self.keep(entry.clone());
        entry
    }

    /// Keeps an event that has an id, unless it is older than one already kept.
    pub(super) fn keep(&mut self, entry: Entry) {
        if entry.id <= self.last_id {
            return;
        }
        self.last_id = entry.id;
        self.bytes += entry.json.len();
        self.entries.push_back(entry);
        while self.entries.len() > EVENTS_MAX || self.bytes > EVENTS_BYTES_MAX {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.bytes -= oldest.json.len();
        }
    }

    /// Returns the id of the newest event; zero if there has been none.
    pub(super) fn last_id(&self) -> u64 {
        self.last_id
    }

    /// Returns the first events after an id, at most `most`, oldest first.
    pub(super) fn after(&self, id: u64, most: usize) -> impl Iterator<Item = &Entry> {
        let first = self.entries.partition_point(|entry| entry.id <= id);
        self.entries.range(first..).take(most)
    }

    /// Returns the newest events, at most `most`, oldest first.
    pub(super) fn newest(&self, most: usize) -> impl Iterator<Item = &Entry> {
        self.entries.range(self.entries.len().saturating_sub(most)..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at: u64) -> Event {
        Event::new("test", Severity::Info, "A test.").at(at)
    }

    #[test]
    fn ids_rise_though_the_clock_falls() {
        let mut log = EventLog::default();
        let ids: Vec<u64> = [1000, 1000, 500, 2000].map(|at| log.push(event(at), at).id).to_vec();
        assert_eq!(ids, [1000, 1001, 1002, 2000]);
        assert_eq!(log.after(1000, 2).map(|entry| entry.id).collect::<Vec<_>>(), [1001, 1002]);
        assert_eq!(log.newest(2).map(|entry| entry.id).collect::<Vec<_>>(), [1002, 2000]);
        assert_eq!(log.after(2000, 9).count(), 0);
    }

    #[test]
    fn times_rise_with_ids_unless_the_clock_was_set_back() {
        let mut log = EventLog::default();
        let mut at = |at, now_ms| {
            let entry = log.push(event(at), now_ms);
            let event: Event = serde_json::from_slice(&entry.json).expect("it is an event");
            event.at
        };
        assert_eq!(at(1000, 1000), 1000);
        assert_eq!(at(900, 1100), 1000, "it was noticed late");
        assert_eq!(at(1100, 1100), 1100);
        assert_eq!(at(500, 500), 500, "the clock was set back");
        assert_eq!(at(450, 510), 500);
    }

    #[test]
    fn the_log_is_bounded_by_count_and_by_bytes() {
        let mut log = EventLog::default();
        for at in 0..EVENTS_MAX as u64 + 10 {
            log.push(event(at + 1), at + 1);
        }
        assert_eq!(log.entries.len(), EVENTS_MAX);
        let long = "x".repeat(10 * TEXT_BYTES_MAX);
        for at in 0..4000 {
            let at = at + 10_000_000;
            log.push(Event::new("test", Severity::Info, long.clone()).at(at), at);
        }
        assert!(log.bytes <= EVENTS_BYTES_MAX && log.bytes > EVENTS_BYTES_MAX / 2);
        let sum: usize = log.entries.iter().map(|entry| entry.json.len()).sum();
        assert_eq!(sum, log.bytes);
    }

    #[test]
    fn an_event_reads_as_it_was_written() {
        let event = event(5).of_leg(1, "hdd").with("frozen_ns", 7u64);
        let text = serde_json::to_string(&event).expect("it has a form");
        assert_eq!(serde_json::from_str::<Event>(&text).ok(), Some(event));
    }
}
