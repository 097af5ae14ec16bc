//! Recording a volume's requests (`hemi serve --record`).
//!
//! The reactor's side ([`Recorder`]) fills fixed lists of plain records and hands them over
//! whole, without allocating or locking per request. The other side is a thread that writes
//! them as [`hemi_capture`] blocks. If it falls behind by all lists, or cannot write, requests
//! are counted instead of recorded, and the file contains their number.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use hemi_capture::{Head, Kind, Record, Writer};
use hemi_units::{Instant, SECTOR_BYTES};

use hemi_io::clock;

/// Number of records per list.
const RECORDS: usize = 2048;
/// Number of lists. The file is behind by at most all of them, 7 MiB.
const LISTS: usize = 64;

/// A request that was answered.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// The time it was admitted.
    pub arrived: Instant,
    /// Its kind.
    pub kind: Kind,
    /// First byte in the volume.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// True if it had to be durable when answered.
    pub fua: bool,
    /// True if it failed.
    pub failed: bool,
}

/// The reactor's side. When dropped, it hands over the rest and ends the recording.
#[derive(Debug)]
pub struct Recorder {
    began: Instant,
    records: Vec<Record>,
    full: SyncSender<Vec<Record>>,
    empty: Receiver<Vec<Record>>,
    dropped: Arc<AtomicU64>,
}

/// The file's side.
#[derive(Debug)]
pub struct Recording {
    thread: JoinHandle<()>,
}

/// Begins a recording in a file that does not exist yet.
///
/// # Errors
/// Fails if the file exists, or cannot be created or written.
pub fn begin(
    path: &Path,
    name: &str,
    volume_bytes: u64,
    block_bytes: u32,
) -> io::Result<(Recorder, Recording)> {
    let file = File::options().write(true).create_new(true).open(path)?;
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let began = u64::try_from(began.as_nanos()).unwrap_or(u64::MAX);
    let head = Head { volume_bytes, block_bytes, began, name: name.to_owned() };
    let writer = Writer::new(file, &head)?;
    let (full_in, full_out) = sync_channel::<Vec<Record>>(LISTS);
    let (empty_in, empty_out) = sync_channel(LISTS);
    for _ in 1..LISTS {
        // The channel has space for all of them.
        let _ = empty_in.send(Vec::with_capacity(RECORDS));
    }
    let dropped = Arc::new(AtomicU64::new(0));
    let recorder = Recorder {
        began: clock::now(),
        records: Vec::with_capacity(RECORDS),
        full: full_in,
        empty: empty_out,
        dropped: Arc::clone(&dropped),
    };
    let path = path.to_owned();
    let thread = std::thread::Builder::new().name("hemi-record".into()).spawn(move || {
        if let Err(error) = write(writer, &full_out, &empty_in, &dropped) {
            let path = path.display();
            tracing::error!(%path, %error, "the recording ends here; the volume is still served");
        }
    })?;
    Ok((recorder, Recording { thread }))
}

/// Writes lists until the reactor's side is dropped.
fn write(
    mut writer: Writer<File>,
    full: &Receiver<Vec<Record>>,
    empty: &SyncSender<Vec<Record>>,
    dropped: &AtomicU64,
) -> io::Result<()> {
    while let Ok(mut records) = full.recv() {
        let missed = dropped.load(Ordering::Relaxed);
        for record in records.drain(..) {
            writer.push(&record, missed)?;
        }
        // From now on the records handed over so far are safe, whatever happens.
        writer.flush(missed)?;
        let _ = empty.send(records);
    }
    writer.finish(dropped.load(Ordering::Relaxed))?.sync_all()
}

impl Recorder {
    /// Records an answered request.
    pub fn push(&mut self, now: Instant, answered: &Answered) {
        if self.records.len() == RECORDS {
            self.hand_over();
        }
        if self.records.len() == RECORDS {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let flush = answered.kind == Kind::Flush;
        self.records.push(Record {
            at: answered.arrived.since(self.began),
            latency: now.since(answered.arrived),
            start: if flush { 0 } else { answered.offset / SECTOR_BYTES },
            sectors: if flush { 0 } else { answered.bytes / SECTOR_BYTES },
            kind: answered.kind,
            fua: answered.fua,
            failed: answered.failed,
        });
    }

    /// Hands over the current list unless the file is behind by all lists.
    pub fn hand_over(&mut self) {
        if self.records.is_empty() {
            return;
        }
        let Ok(next) = self.empty.try_recv() else { return };
        let full = std::mem::replace(&mut self.records, next);
        let count = full.len() as u64;
        if self.full.try_send(full).is_err() {
            // The file could not be written. Its thread has logged that.
            self.dropped.fetch_add(count, Ordering::Relaxed);
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // The channel has space for every list.
        let _ = self.full.send(std::mem::take(&mut self.records));
    }
}

impl Recording {
    /// Waits until everything is written. The recorder must have been dropped.
    pub fn join(self) {
        if self.thread.join().is_err() {
            tracing::error!("the recording's thread panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hemi_capture::Reader;

    fn answered(offset: u64) -> Answered {
        let (kind, bytes) = (Kind::Write, 4096);
        Answered { arrived: clock::now(), kind, offset, bytes, fua: false, failed: false }
    }

    #[test]
    fn what_is_recorded_or_counted_is_everything() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("record");
        let (mut recorder, recording) = begin(&path, "db", 1 << 30, 512).expect("a recording");
        let count = (LISTS * RECORDS * 2) as u64;
        for number in 0..count {
            recorder.push(clock::now(), &answered(number * 512));
        }
        drop(recorder);
        recording.join();
        let mut reader = Reader::new(File::open(&path).expect("it is there"));
        let mut seen = 0;
        let mut last = None;
        while let Some(record) = reader.record().expect("whole") {
            assert!(last.is_none_or(|last| last < record.start));
            last = Some(record.start);
            seen += 1;
        }
        assert_eq!((seen + reader.dropped(), reader.is_cut()), (count, false));
        assert!(begin(&path, "db", 1 << 30, 512).is_err(), "a recording is never overwritten");
    }

    #[test]
    fn a_full_disk_ends_the_recording_and_nothing_else() {
        let (full_in, full_out) = sync_channel::<Vec<Record>>(LISTS);
        let (empty_in, empty_out) = sync_channel(LISTS);
        let _ = empty_in.send(Vec::with_capacity(RECORDS));
        drop((full_out, empty_in));
        let dropped = Arc::new(AtomicU64::new(0));
        let mut recorder = Recorder {
            began: clock::now(),
            records: Vec::with_capacity(RECORDS),
            full: full_in,
            empty: empty_out,
            dropped: Arc::clone(&dropped),
        };
        for number in 0..3 * RECORDS as u64 {
            recorder.push(clock::now(), &answered(number));
        }
        assert_eq!(dropped.load(Ordering::Relaxed), 2 * RECORDS as u64);
    }
}
