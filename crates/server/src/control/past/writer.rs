//! The thread that first reads the history's file and then appends to it.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use axum::body::Bytes;
use hemi_engine::format::Id;

use crate::config::place::Place;
use crate::control::events::{Before, Entry, Event, MOVED};
use crate::control::hidden::Hour;
use crate::control::history::file::{Batch, EXTENSION, HistoryFile, Kept};
use crate::control::history::rings::Rings;
use crate::state;
use hemi_io::clock::unix_ms;

/// Maximum number of batches that wait for the disk. Further ones are left out of the file.
const BATCHES_MAX: usize = 64;

/// The records read from before.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) rings: Rings,
    pub(super) events: Vec<Entry>,
    pub(super) hours: Vec<Hour>,
    pub(super) before: Before,
    /// The time of the last report of moves of authority; zero if there is none.
    pub(super) moves_told_ms: u64,
}

/// The outcome of reading the file.
pub(super) enum Read {
    /// The records that were kept.
    Kept(Box<Found>),
    /// Nothing was kept, and nothing will be.
    Nothing,
}

/// The thread.
#[derive(Debug)]
pub(super) struct Writer {
    batches: SyncSender<Batch>,
    found: Receiver<Box<Found>>,
    ended: Receiver<()>,
    is_late: bool,
}

impl Writer {
    /// Starts the thread. Returns `None`, after a line in the log, if nothing is to be kept.
    pub(super) fn spawn(place: Place, volume: Id) -> Option<Writer> {
        if place == Place::None {
            return None;
        }
        let (batches, to_write) = sync_channel(BATCHES_MAX);
        let (give, found) = sync_channel(1);
        let (end, ended) = sync_channel(1);
        let run = move || {
            write(&place, volume, &give, &to_write);
            // Nobody may be waiting for this.
            let _ = end.try_send(());
        };
        let spawned = std::thread::Builder::new().name("hemi-history".into()).spawn(run);
        if let Err(error) = &spawned {
            say_none(&error.to_string());
        }
        spawned.ok().map(|_| Writer { batches, found, ended, is_late: false })
    }

    /// Returns the outcome of reading, once.
    pub(super) fn read(&self) -> Option<Read> {
        match self.found.try_recv() {
            Ok(found) => Some(Read::Kept(found)),
            Err(std::sync::mpsc::TryRecvError::Empty) => None,
            // The outcome has been taken, or the thread has ended without one.
            Err(std::sync::mpsc::TryRecvError::Disconnected) => {
                self.ended.try_recv().is_ok().then_some(Read::Nothing)
            }
        }
    }

    /// Appends records, unless the disk is far behind.
    pub(super) fn append(&mut self, batch: Batch) {
        if batch.is_empty() {
            return;
        }
        match self.batches.try_send(batch) {
            Ok(()) => self.is_late = false,
            Err(TrySendError::Full(_)) if !self.is_late => {
                self.is_late = true;
                tracing::warn!(
                    "the state directory does not answer; the history has gaps in its file"
                );
            }
            Err(_) => {}
        }
    }

    /// Appends the last records, and waits for them for at most `patience`.
    pub(super) fn end(mut self, batch: Batch, patience: Duration) {
        self.append(batch);
        let Writer { batches, ended, .. } = self;
        drop(batches);
        if ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!(
                "the state directory does not answer; the end of the history is not kept"
            );
        }
    }
}

/// Logs once that nothing is kept.
fn say_none(why: &str) {
    tracing::warn!(why, "the history is not kept over restarts");
}

fn write(place: &Place, volume: Id, give: &SyncSender<Box<Found>>, batches: &Receiver<Batch>) {
    let path = match state::file(place, volume, EXTENSION) {
        Ok(path) => path,
        Err(why) => return say_none(&why),
    };
    let mut found = Box::<Found>::default();
    let mut last_ms = 0;
    let opened = HistoryFile::open(&path, volume, unix_ms(), |kept| match kept {
        Kept::Row(resolution, row) => {
            last_ms = last_ms.max(row.at_ms);
            found.rings.push(resolution, *row);
        }
        Kept::Event(id, json) => {
            if let Ok(event) = serde_json::from_slice::<Event>(&json) {
                last_ms = last_ms.max(event.at);
                found.before = found.before.after(&event);
                if event.kind == MOVED {
                    found.moves_told_ms = event.at;
                }
            }
            found.events.push(Entry { id, json: Bytes::from(json) });
        }
        Kept::Hour(hour) => found.hours.push(hour),
    });
    let (mut file, notice) = match opened {
        Ok(opened) => opened,
        Err(error) => return say_none(&format!("{}: {error}", path.display())),
    };
    if let Some(notice) = notice {
        tracing::warn!(notice, "not all of the history could be read");
    }
    found.before = found.before.seen(last_ms);
    if give.send(found).is_err() {
        return;
    }
    tracing::info!(path = %path.display(), "history");
    let mut failed = false;
    for batch in batches {
        match file.append(&batch, unix_ms()) {
            Ok(()) => failed = false,
            Err(error) if !failed => {
                failed = true;
                let path = path.display();
                tracing::warn!(%error, %path, "the history cannot be written; it has a gap in its file");
            }
            Err(_) => {}
        }
    }
}
