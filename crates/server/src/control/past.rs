//! The control thread's record of the past: the history, the events and the hidden stall time.
//!
//! It is kept in bounded memory and in a file of the state directory. A thread of its own writes the file
//! ([`writer`]), so a disk that hangs holds up neither control nor clients. Until the file has been read, new
//! events wait for a moment, so that older ones come first.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use hemi_engine::format::Id;
use tokio::sync::watch as signal;

use super::api::VolumeStatus;
use super::events::{Before, Entry, Event, EventLog, Watch, Worst};
use super::hidden::{Hidden, HiddenStall};
use super::history::answer::HistoryAnswer;
use super::history::file::Batch;
use super::history::rings::{Resolution, Rings};
use super::history::sampler::Sampler;
use super::usage::{self, ProcessStatus};
use super::volume::{LegIdentity, Phase, Snapshot, Volume};
use crate::config::place::Place;
use hemi_io::clock::unix_ms;
use writer::{Read, Writer};

mod writer;

/// Interval between two looks at the volume.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Longest time that steps of the history wait to be written to the file.
const WRITE_EVERY: Duration = Duration::from_secs(10);
/// Longest wait for the file to be read. After it, events are handed out without older ones.
const READ_PATIENCE: Duration = Duration::from_secs(5);
/// Longest wait for the last records to be written at the end.
const END_PATIENCE: Duration = Duration::from_secs(2);
/// The same in an upgrade, while clients wait.
const UPGRADE_PATIENCE: Duration = Duration::from_millis(50);
/// Maximum number of events that wait for the file to be read.
const WAITING_MAX: usize = 256;

/// The record of the past. The data path never touches it.
#[derive(Debug)]
pub(super) struct Past {
    inner: Mutex<Inner>,
    /// The id of the newest event.
    newest: signal::Sender<u64>,
    /// True once the file has been read or is no longer waited for.
    is_read: signal::Sender<bool>,
}

#[derive(Debug)]
struct Inner {
    began: Instant,
    rings: Rings,
    log: EventLog,
    hidden: Hidden,
    sampler: Sampler,
    watch: Watch,
    worst: Worst,
    usage: Usage,
    /// Events that wait for the file; `None` once it has been read or is no longer waited for.
    waiting: Option<Vec<Event>>,
    before: Before,
    writer: Option<Writer>,
    batch: Batch,
    batch_since: Instant,
}

/// The processor time at one moment, and the share since the moment before.
#[derive(Debug)]
struct Usage {
    at: Instant,
    cpu: u64,
    permille: u64,
}

impl Past {
    /// Starts the record of a volume, and starts reading what was kept from before.
    pub(super) fn begin(place: &Place, volume: Id) -> Past {
        let now = Instant::now();
        let writer = Writer::spawn(place.clone(), volume);
        let waiting = writer.is_some().then(Vec::new);
        Past {
            inner: Mutex::new(Inner {
                began: now,
                rings: Rings::default(),
                log: EventLog::default(),
                hidden: Hidden::default(),
                sampler: Sampler::default(),
                watch: Watch::default(),
                worst: Worst::default(),
                usage: Usage { at: now, cpu: usage::cpu_ns(), permille: 0 },
                waiting,
                before: Before::Unknown,
                writer,
                batch: Batch::default(),
                batch_since: now,
            }),
            newest: signal::Sender::new(0),
            is_read: signal::Sender::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the volume and records what has changed.
    pub(super) fn look(&self, volume: &dyn Volume) {
        let (mut notices, mut events) = (Vec::new(), Vec::new());
        let left_out = volume.take_notices(&mut notices);
        let snapshot = volume.snapshot();
        let mut inner = self.lock();
        inner.read();
        inner.usage.measure();
        if snapshot.phase == Phase::Opening && notices.is_empty() {
            return self.tell(inner);
        }
        let now_ms = unix_ms();
        // The cause of the previous server's end is known only once the file has been read.
        let before = inner.waiting.is_none().then_some(inner.before);
        inner.watch.observe(&snapshot, &notices, left_out, before, &mut events);
        events.extend(volume.take_standby_turns().iter().map(|turn| turn.event().at(now_ms)));
        events.into_iter().for_each(|event| inner.take(event));
        if snapshot.phase != Phase::Opening {
            inner.sample(&snapshot, now_ms);
        }
        inner.write();
        self.tell(inner);
    }

    /// Records an event.
    pub(super) fn happened(&self, event: Event) {
        let mut inner = self.lock();
        inner.take(if event.at == 0 { event.at(unix_ms()) } else { event });
        self.tell(inner);
    }

    /// Records a change of the worst condition in a judged status.
    pub(super) fn judged(&self, status: &VolumeStatus) {
        let mut inner = self.lock();
        if let Some(event) = inner.worst.take(status, unix_ms()) {
            inner.take(event);
            self.tell(inner);
        }
    }

    fn tell(&self, inner: MutexGuard<'_, Inner>) {
        let last = inner.log.last_id();
        let is_read = inner.waiting.is_none();
        drop(inner);
        self.is_read.send_if_modified(|known| std::mem::replace(known, is_read) != is_read);
        self.newest.send_if_modified(|known| std::mem::replace(known, last) != last);
    }

    /// Waits until the file has been read, for at most [`READ_PATIENCE`] after the start. An answer of
    /// events or of the history is complete after it.
    pub(super) async fn until_read(&self) {
        // The sender lives as long as `self`, so this cannot fail.
        let _ = self.is_read.subscribe().wait_for(|is_read| *is_read).await;
    }

    /// Returns a receiver of the newest event's id.
    pub(super) fn newest(&self) -> signal::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Returns at most `most` events as JSON, oldest first: the first ones after an id, or the newest.
    pub(super) fn events(&self, after: Option<u64>, most: usize) -> Vec<Entry> {
        let inner = self.lock();
        match after {
            Some(id) => inner.log.after(id, most).cloned().collect(),
            None => inner.log.newest(most).cloned().collect(),
        }
    }

    /// Returns the history of the last `span_ms` milliseconds in at most `points` steps.
    pub(super) fn history(&self, span_ms: u64, points: usize, legs: &[LegIdentity]) -> Bytes {
        let stretch = self.lock().rings.stretch(unix_ms(), span_ms, points);
        Bytes::from(serde_json::to_vec(&HistoryAnswer::new(&stretch, legs)).unwrap_or_default())
    }

    /// Returns the hidden stall and the process's usage, for the status.
    pub(super) fn figures(&self) -> (HiddenStall, ProcessStatus) {
        let inner = self.lock();
        let process = ProcessStatus {
            cpu_ns: usage::cpu_ns(),
            resident_bytes: usage::resident_bytes(),
            cpu_permille: inner.usage.permille,
        };
        (inner.hidden.figures(unix_ms()), process)
    }

    /// Writes the last records, with the event that the service is `stopped`. There is none in an upgrade,
    /// which the successor reports.
    pub(super) fn end(&self, stopped: Option<Event>) {
        let mut inner = self.lock();
        inner.read();
        inner.stop_waiting();
        let is_handed_over = stopped.is_none();
        if let Some(event) = stopped {
            inner.take(event);
        }
        let batch = inner.take_batch();
        let writer = inner.writer.take();
        self.tell(inner);
        if let Some(writer) = writer {
            writer.end(batch, if is_handed_over { UPGRADE_PATIENCE } else { END_PATIENCE });
        }
    }
}

impl Inner {
    /// Takes over what the writer has read.
    fn read(&mut self) {
        let Some(writer) = &self.writer else { return };
        match writer.read() {
            Some(Read::Kept(kept)) => {
                self.before = kept.before;
                self.watch.told_before(kept.moves_told_ms);
                // Rows recorded meanwhile come after those read.
                let rings = std::mem::replace(&mut self.rings, kept.rings);
                for resolution in [Resolution::Fine, Resolution::Coarse] {
                    rings.rows(resolution).for_each(|row| self.rings.push(resolution, *row));
                }
                self.hidden.restore(&kept.hours);
                if self.log.last_id() == 0 {
                    kept.events.into_iter().for_each(|entry| self.log.keep(entry));
                }
                self.stop_waiting();
            }
            Some(Read::Nothing) => {
                self.writer = None;
                self.stop_waiting();
            }
            None if self.began.elapsed() > READ_PATIENCE && self.waiting.is_some() => {
                tracing::warn!("the earlier history was not read in time; the events start empty");
                self.stop_waiting();
            }
            None => {}
        }
    }

    fn stop_waiting(&mut self) {
        for event in self.waiting.take().into_iter().flatten() {
            self.keep(event);
        }
    }

    fn take(&mut self, event: Event) {
        match &mut self.waiting {
            Some(waiting) if waiting.len() < WAITING_MAX => waiting.push(event),
            Some(_) => {}
            None => self.keep(event),
        }
    }

    /// Keeps an event and has it written at once.
    fn keep(&mut self, event: Event) {
        let Entry { json, .. } = self.log.push(event, unix_ms());
        self.batch.event(&json);
        self.send();
    }

    fn sample(&mut self, snapshot: &Arc<Snapshot>, now_ms: u64) {
        let Inner { sampler, hidden, rings, batch, writer, .. } = self;
        sampler.take(snapshot, now_ms, hidden, |resolution, row| {
            rings.push(resolution, row);
            if writer.is_some() {
                batch.row(resolution, &row);
            }
        });
    }

    fn write(&mut self) {
        if self.batch_since.elapsed() >= WRITE_EVERY {
            self.send();
        }
    }

    fn send(&mut self) {
        self.batch_since = Instant::now();
        let batch = self.take_batch();
        if let Some(writer) = &mut self.writer {
            writer.append(batch);
        }
    }

    /// Returns what the file does not have yet. The hidden stall time goes with every batch: events that
    /// follow each other closely would put it off forever.
    fn take_batch(&mut self) -> Batch {
        if let Some(hour) = self.hidden.newest() {
            self.batch.hour(hour);
        }
        std::mem::take(&mut self.batch)
    }
}

impl Usage {
    fn measure(&mut self) {
        const LEAST: Duration = Duration::from_secs(1);
        let elapsed = self.at.elapsed();
        if elapsed < LEAST {
            return;
        }
        let cpu = usage::cpu_ns();
        self.permille = (cpu - self.cpu) * 1000 / (elapsed.as_nanos() as u64).max(1);
        (self.at, self.cpu) = (Instant::now(), cpu);
    }
}

#[cfg(test)]
mod tests;
