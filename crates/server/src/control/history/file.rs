//! The file in which the history, the events and the hidden stall time outlive the process.
//!
//! It consists of a header and appended records, each with its length and checksum. A file that has grown to
//! [`FILE_BYTES_MAX`] is replaced by a new one with only the records that still count. Reading ends at a
//! truncated or damaged record; the records before it are kept, and the file is rewritten. A file that cannot
//! be opened, or is of another volume or version, is put aside. The log reports either, and the volume is
//! served all the same.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use hemi_engine::format::Id;
use serde::Deserialize;

use super::rings::Resolution;
use super::row::Row;
use crate::control::events::{EVENTS_BYTES_MAX, EVENTS_MAX};
use crate::control::hidden::Hour;
use crate::state;

/// Extension of the file.
pub(crate) const EXTENSION: &str = "history";
/// Extension of a file that was put aside because it could not be used.
const ASIDE: &str = "history.aside";
/// Size in bytes at which the file is rewritten.
pub(crate) const FILE_BYTES_MAX: u64 = 16 << 20;
/// Longest record in bytes.
const RECORD_BYTES_MAX: usize = 16 << 10;
const MAGIC: [u8; 8] = *b"HEMIHIST";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 32;
/// Bytes of a record besides its content: length, kind and checksum.
const FRAME_BYTES: usize = 9;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Fine = 1,
    Coarse = 2,
    Event = 3,
    Hour = 4,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        [Kind::Fine, Kind::Coarse, Kind::Event, Kind::Hour]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }

    fn of_row(resolution: Resolution) -> Kind {
        match resolution {
            Resolution::Fine => Kind::Fine,
            Resolution::Coarse => Kind::Coarse,
        }
    }
}

/// Records to be appended.
#[derive(Debug, Default)]
pub(in crate::control) struct Batch(Vec<u8>);

impl Batch {
    /// Adds a step.
    pub(in crate::control) fn row(&mut self, resolution: Resolution, row: &Row) {
        let mut content = Vec::new();
        row.encode(&mut content);
        self.record(Kind::of_row(resolution), &content);
    }

    /// Adds an event.
    pub(in crate::control) fn event(&mut self, json: &[u8]) {
        self.record(Kind::Event, json);
    }

    /// Adds an hour of hidden stall time. The newest record of each hour counts.
    pub(in crate::control) fn hour(&mut self, hour: Hour) {
        self.record(Kind::Hour, &hour.encode());
    }

    /// Returns true if there is nothing to append.
    pub(in crate::control) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn record(&mut self, kind: Kind, content: &[u8]) {
        // A record that could not be read back is not written.
        if content.len() <= RECORD_BYTES_MAX {
            frame(kind, content, &mut self.0);
        }
    }
}

fn frame(kind: Kind, content: &[u8], into: &mut Vec<u8>) {
    let start = into.len();
    into.extend((content.len() as u32).to_le_bytes());
    into.push(kind as u8);
    into.extend(content);
    let sum = crc32c::crc32c(&into[start..]);
    into.extend(sum.to_le_bytes());
}

/// A record that was kept.
#[derive(Debug)]
pub(in crate::control) enum Kept {
    /// A step of the history.
    Row(Resolution, Box<Row>),
    /// An event's id and JSON.
    Event(u64, Vec<u8>),
    /// An hour of hidden stall time.
    Hour(Hour),
}

/// The open file.
#[derive(Debug)]
pub(in crate::control) struct HistoryFile {
    path: PathBuf,
    volume: Id,
    file: File,
    /// Number of valid bytes. Bytes of a failed append after them are truncated.
    length: u64,
}

impl HistoryFile {
    /// Opens or creates the file of a volume. Passes the records that still count at `now_ms` to `take`,
    /// oldest first, and only the newest of each hour. Also returns a notice if not all of the file could be
    /// read.
    ///
    /// # Errors
    /// Fails if the file cannot be read or created.
    pub(in crate::control) fn open(
        path: &Path,
        volume: Id,
        now_ms: u64,
        mut take: impl FnMut(Kept),
    ) -> io::Result<(HistoryFile, Option<String>)> {
        let found = match state::open(path) {
            Ok(found) => found,
            Err(error) => {
                let reason = format!("it cannot be opened ({error})");
                let notice = put_aside(path, &reason)?;
                return Ok((HistoryFile::begin(path, volume)?, Some(notice)));
            }
        };
        let Some(file) = found else { return Ok((HistoryFile::begin(path, volume)?, None)) };
        let mut reader = Reader::new(&file);
        let mut notice = None;
        if let Err(reason) = reader.header(volume) {
            notice = Some(put_aside(path, &reason)?);
            return Ok((HistoryFile::begin(path, volume)?, notice));
        }
        let keep = Keep::survey(&mut reader, now_ms)?;
        if let Some(reason) = &reader.broken {
            notice = Some(format!(
                "{}: {reason} at byte {}; what comes before it is kept",
                path.display(),
                reader.at
            ));
        }
        let mut reader = Reader::new(&file);
        reader.skip_header()?;
        while let Some((at, kind, content)) = reader.next()? {
            if keep.keeps(at, kind, &content, now_ms)
                && let Some(kept) = decode(kind, content)
            {
                take(kept);
            }
        }
        let length = reader.at;
        let file = std::fs::OpenOptions::new().write(true).read(true).open(path)?;
        let mut file = HistoryFile { path: path.to_owned(), volume, file, length };
        if notice.is_some() || length > FILE_BYTES_MAX / 2 {
            file.renew(now_ms)?;
        }
        Ok((file, notice))
    }

    fn begin(path: &Path, volume: Id) -> io::Result<HistoryFile> {
        let mut file = state::create(path)?;
        file.write_all(&header(volume))?;
        Ok(HistoryFile { path: path.to_owned(), volume, file, length: HEADER_BYTES as u64 })
    }

    /// Appends records, which outlive the process from then on.
    ///
    /// # Errors
    /// Fails if they cannot be written. The file is then unchanged.
    pub(in crate::control) fn append(&mut self, batch: &Batch, now_ms: u64) -> io::Result<()> {
        if self.length + batch.0.len() as u64 > FILE_BYTES_MAX {
            self.renew(now_ms)?;
        }
        self.file.seek(SeekFrom::Start(self.length))?;
        let written = self.file.write_all(&batch.0);
        match written {
            Ok(()) => {
                self.length += batch.0.len() as u64;
                Ok(())
            }
            Err(error) => {
                // If this fails too, the checksum reveals the broken record.
                let _ = self.file.set_len(self.length);
                Err(error)
            }
        }
    }

    /// Writes the records that still count to a new file, which replaces this one.
    fn renew(&mut self, now_ms: u64) -> io::Result<()> {
        let temporary = self.path.with_extension("history.new");
        let mut survey = Reader::new(&self.file);
        survey.skip_header()?;
        let keep = Keep::survey(&mut survey, now_ms)?;
        let mut reader = Reader::new(&self.file);
        reader.skip_header()?;
        let new = state::create(&temporary)?;
        let mut output = BufWriter::new(&new);
        let mut length = HEADER_BYTES as u64;
        output.write_all(&header(self.volume))?;
        let mut record = Vec::new();
        while let Some((at, kind, content)) = reader.next()? {
            if keep.keeps(at, kind, &content, now_ms) {
                record.clear();
                frame(kind, &content, &mut record);
                output.write_all(&record)?;
                length += record.len() as u64;
            }
        }
        output.flush()?;
        drop(output);
        // After a power cut the old file or the new one is there, but never an empty one.
        new.sync_data()?;
        std::fs::rename(&temporary, &self.path)?;
        (self.file, self.length) = (new, length);
        Ok(())
    }
}

/// Moves an unusable file aside, replacing an earlier one. Returns the notice.
fn put_aside(path: &Path, reason: &str) -> io::Result<String> {
    let aside = path.with_extension(ASIDE);
    std::fs::rename(path, &aside)?;
    Ok(format!("{}: {reason}; it is now {}", path.display(), aside.display()))
}

fn header(volume: Id) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..28].copy_from_slice(&volume);
    let sum = crc32c::crc32c(&header[..28]);
    header[28..].copy_from_slice(&sum.to_le_bytes());
    header
}

fn decode(kind: Kind, content: Vec<u8>) -> Option<Kept> {
    match kind {
        Kind::Fine => Row::decode(&content).map(|row| Kept::Row(Resolution::Fine, Box::new(row))),
        Kind::Coarse => {
            Row::decode(&content).map(|row| Kept::Row(Resolution::Coarse, Box::new(row)))
        }
        Kind::Event => event_id(&content).map(|id| Kept::Event(id, content)),
        Kind::Hour => Hour::decode(&content).map(Kept::Hour),
    }
}

fn event_id(json: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct OnlyId {
        id: u64,
    }
    serde_json::from_slice::<OnlyId>(json).ok().map(|event| event.id)
}

/// Reads a file from its beginning up to the first invalid record.
struct Reader<'a> {
    input: BufReader<&'a File>,
    at: u64,
    /// The reason why reading ended before the end of the file.
    broken: Option<&'static str>,
}

impl<'a> Reader<'a> {
    fn new(file: &'a File) -> Reader<'a> {
        Reader { input: BufReader::new(file), at: 0, broken: None }
    }

    fn skip_header(&mut self) -> io::Result<()> {
        self.at = HEADER_BYTES as u64;
        self.input.seek(SeekFrom::Start(self.at)).map(drop)
    }

    /// Reads the header.
    fn header(&mut self, volume: Id) -> Result<(), String> {
        let mut found = [0; HEADER_BYTES];
        self.input.read_exact(&mut found).map_err(|_| "it is too short".to_owned())?;
        self.at = HEADER_BYTES as u64;
        if found == header(volume) {
            return Ok(());
        }
        if found[..8] != MAGIC {
            return Err("it is no history of hemi".into());
        }
        let version = u32::from_le_bytes([found[8], found[9], found[10], found[11]]);
        if version != VERSION {
            return Err(format!("its format is version {version}; this hemi reads {VERSION}"));
        }
        Err("its header is damaged, or it belongs to another volume".into())
    }

    /// Returns the next record and its offset; `None` at the end or at an invalid record.
    fn next(&mut self) -> io::Result<Option<(u64, Kind, Vec<u8>)>> {
        let mut head = [0; 5];
        match self.read(&mut head)? {
            0 => return Ok(None),
            read if read < head.len() => return Ok(self.broke("a record is cut off")),
            _ => {}
        }
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if length > RECORD_BYTES_MAX {
            return Ok(self.broke("a record is damaged"));
        }
        let mut rest = vec![0; length + 4];
        if self.read(&mut rest)? < rest.len() {
            return Ok(self.broke("a record is cut off"));
        }
        let sum = crc32c::crc32c_append(crc32c::crc32c(&head), &rest[..length]);
        let Some(kind) = Kind::of(head[4]).filter(|_| rest[length..] == sum.to_le_bytes()) else {
            return Ok(self.broke("a record is damaged"));
        };
        rest.truncate(length);
        let at = self.at;
        self.at += (length + FRAME_BYTES) as u64;
        Ok(Some((at, kind, rest)))
    }

    fn broke<T>(&mut self, reason: &'static str) -> Option<T> {
        self.broken = Some(reason);
        None
    }

    /// Reads until `into` is full or the file ends. Returns the number of bytes read.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut read = 0;
        while read < into.len() {
            match self.input.read(&mut into[read..]) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }
}

/// The part of a file that still counts.
#[derive(Debug, Default)]
struct Keep {
    /// Offset of the oldest event that is kept.
    first_event: u64,
    /// Offset of the newest record of each hour.
    hours: HashMap<u64, u64>,
}

impl Keep {
    fn survey(reader: &mut Reader<'_>, now_ms: u64) -> io::Result<Keep> {
        let mut keep = Keep::default();
        let mut events: VecDeque<(u64, usize)> = VecDeque::new();
        let mut bytes = 0;
        while let Some((at, kind, content)) = reader.next()? {
            match kind {
                Kind::Event => {
                    bytes += content.len();
                    events.push_back((at, content.len()));
                    while events.len() > EVENTS_MAX || bytes > EVENTS_BYTES_MAX {
                        let Some((_, length)) = events.pop_front() else { break };
                        bytes -= length;
                    }
                }
                Kind::Hour => {
                    if let Some(hour) = Hour::decode(&content) {
                        keep.hours.insert(hour.hour, at);
                    }
                }
                Kind::Fine | Kind::Coarse => {}
            }
        }
        // The newest hour is kept however old it is, because it holds the total.
        let newest = keep.hours.keys().max().copied();
        keep.hours.retain(|&hour, _| {
            Some(hour) == newest || Hour { hour, ..Hour::default() }.is_kept(now_ms)
        });
        keep.first_event = events.front().map_or(u64::MAX, |(at, _)| *at);
        Ok(keep)
    }

    fn keeps(&self, at: u64, kind: Kind, content: &[u8], now_ms: u64) -> bool {
        let is_recent = |resolution: Resolution| {
            let time = content.first_chunk().map(|time| u64::from_le_bytes(*time));
            time.is_some_and(|time| time + resolution.span_ms() > now_ms && time <= now_ms)
        };
        match kind {
            Kind::Fine => is_recent(Resolution::Fine),
            Kind::Coarse => is_recent(Resolution::Coarse),
            Kind::Event => at >= self.first_event,
            Kind::Hour => self.hours.values().any(|&kept| kept == at),
        }
    }
}

#[cfg(test)]
mod tests;
