//! Traces: readers for the formats in which recorded requests are published.
//!
//! A [`Reader`] goes through a trace line by line and keeps nothing. Times are nanoseconds on
//! the trace's own clock; [`load`] builds a [`load::Trace`] that begins at zero.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::io::{self, BufRead};

use hemi_units::{Extent, Operation, SECTOR_BYTES};

pub use self::detect::detect;
pub use self::error::TraceError;
use self::fields::Wrong;
use self::format::Format;

mod alibaba;
mod blkparse;
mod capture;
mod compressed;
pub mod convert;
mod csv;
mod detect;
mod disksim;
mod error;
mod fields;
mod fio_iolog;
pub mod format;
mod header;
pub mod load;
mod msr;
mod spc;
mod tencent;
#[cfg(test)]
mod tests;
mod vscsi;
mod vscsi_text;

/// Maximum number of volumes named in an error.
const NAMED: usize = 8;

/// Longest line of a trace in bytes: a longer line means it is not a trace.
const LONGEST_LINE: u64 = 1 << 16;

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Time in nanoseconds on the trace's clock.
    pub at: u64,
    /// Number of the volume; see [`Reader::volume`].
    pub volume: u32,
    /// The operation.
    pub operation: Operation,
    /// The sectors, rounded outwards: fewer than 2^32. Empty for a flush and for a request of no bytes.
    pub extent: Extent,
    /// True if the sectors had to be rounded.
    pub rounded: bool,
    /// Latency in nanoseconds, if the format has it.
    pub latency: Option<u64>,
}

/// The contents of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Nothing,
    One(Record),
    /// Two requests, one after the other.
    Two(Record, Record),
    /// The rest of the file is not part of the trace.
    End,
}

/// The volumes seen so far, by number.
#[derive(Clone, Debug, Default)]
struct Volumes {
    names: Vec<String>,
    numbers: std::collections::BTreeMap<String, u32>,
    last: u32,
    written: String,
}

impl Volumes {
    /// Returns the number of the volume of this name; allocates only for new ones.
    fn number(&mut self, name: fmt::Arguments<'_>) -> u32 {
        self.written.clear();
        // Writing to a string does not fail.
        let _ = self.written.write_fmt(name);
        if self.names.get(self.last as usize) != Some(&self.written) {
            self.last = match self.numbers.get(&self.written) {
                Some(&number) => number,
                None => {
                    let number = self.names.len() as u32;
                    self.numbers.insert(self.written.clone(), number);
                    self.names.push(self.written.clone());
                    number
                }
            };
        }
        self.last
    }
}

/// The state that some formats keep from line to line.
#[derive(Debug, Default)]
struct State {
    /// True once a line was read.
    begun: bool,
    blkparse: blkparse::State,
    iolog: fio_iolog::State,
    csv: csv::State,
}

/// The source of a reader.
enum Source<R> {
    /// Lines of text.
    Lines(R),
    /// hemi's own recordings.
    Capture(hemi_capture::Reader<R>),
    /// vSCSI records.
    Vscsi(vscsi::Records<R>),
}

/// A reader of traces.
pub struct Reader<R> {
    source: Source<R>,
    file: String,
    format: Format,
    state: State,
    /// The lines or records read so far.
    line: u64,
    buffer: Vec<u8>,
    volumes: Volumes,
    /// Second request of the last line.
    pending: Option<Record>,
    ended: bool,
}

impl<R: BufRead> Reader<R> {
    /// Creates a reader of a source in a format; errors call it `file`.
    pub fn new(source: R, file: impl Into<String>, format: Format) -> Reader<R> {
        let source = match format {
            Format::Hemi => Source::Capture(hemi_capture::Reader::new(source)),
            Format::Vscsi => Source::Vscsi(vscsi::Records::new(source)),
            _ => Source::Lines(source),
        };
        Reader {
            source,
            file: file.into(),
            format,
            state: State::default(),
            line: 0,
            buffer: Vec::new(),
            volumes: Volumes::default(),
            pending: None,
            ended: false,
        }
    }

    /// Returns the name of a volume, or `None` for a number no record had.
    pub fn volume(&self, number: u32) -> Option<&str> {
        self.volumes.names.get(number as usize).map(String::as_str)
    }

    /// Returns the format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns what the trace is known to lack, a clause for each reason, once it was read to its
    /// end. Only hemi's own recordings tell.
    pub fn lacking(&self) -> Vec<String> {
        self.lacks().iter().map(|lacks| format!("{} {lacks}", self.file)).collect()
    }

    /// Returns the clauses of [`Reader::lacking`] without their subject.
    fn lacks(&self) -> Vec<String> {
        let Source::Capture(capture) = &self.source else { return Vec::new() };
        let mut lacks = Vec::new();
        if capture.is_cut() {
            let why = "hemi was killed or could not write it, or it was not copied whole";
            lacks.push(format!("has no end: {why}; later requests are missing"));
        }
        let why = "the recorder could not keep up, and the real load was higher";
        match capture.dropped() {
            0 => {}
            1 => lacks.push(format!("lacks 1 request: {why}")),
            count => lacks.push(format!("lacks {count} requests: {why}")),
        }
        lacks
    }

    /// Returns the contents of the next line or record.
    fn next_said(&mut self) -> Result<Said, TraceError> {
        match &mut self.source {
            Source::Lines(_) => self.line(),
            Source::Capture(capture) => {
                self.line += 1;
                capture::next(capture, &mut self.volumes)
                    .map_err(|error| TraceError::Capture { file: self.file.clone(), error })
            }
            Source::Vscsi(records) => {
                self.line += 1;
                let said = records
                    .next(&mut self.volumes)
                    .map_err(|error| TraceError::Read { file: self.file.clone(), error })?;
                said.map_err(|wrong| self.wrong(wrong))
            }
        }
    }

    /// Returns the record, or an error if it is longer than an [`load::Entry`] can be.
    fn bounded(&mut self, record: Record) -> Result<Record, TraceError> {
        if u32::try_from(record.extent.sectors()).is_ok() {
            return Ok(record);
        }
        self.ended = true;
        let value = format!("{} B", record.extent.bytes());
        Err(self.wrong(Wrong { field: "length", value, right: "write a request below 2 TiB" }))
    }

    /// Returns the error for a trace without requests, of the volume if one is named.
    fn nothing(&self, volume: Option<&str>) -> TraceError {
        let names = &self.volumes.names;
        let (of, right) = match volume {
            Some(volume) if !names.is_empty() => {
                let known = names[..names.len().min(NAMED)].join(", ");
                (format!(" of the volume `{volume}`"), format!("write one it has, as {known}"))
            }
            _ => match self.lacks().first() {
                Some(lacks) => (String::new(), format!("it {lacks}")),
                None => (String::new(), "give it one with requests; check the format".to_owned()),
            },
        };
        TraceError::Nothing { file: self.file.clone(), of, right }
    }

    /// Returns the error for a field of the line or record read last.
    fn wrong(&self, Wrong { field, value, right }: Wrong) -> TraceError {
        let unit = match self.source {
            Source::Lines(_) => "line",
            Source::Capture(_) | Source::Vscsi(_) => "record",
        };
        TraceError::Field { file: self.file.clone(), unit, number: self.line, field, value, right }
    }

    /// Returns the contents of the next line.
    fn line(&mut self) -> Result<Said, TraceError> {
        self.buffer.clear();
        let Source::Lines(source) = &mut self.source else { return Ok(Said::End) };
        let mut limited = io::Read::take(source, LONGEST_LINE);
        let length = limited
            .read_until(b'\n', &mut self.buffer)
            .map_err(|error| TraceError::Read { file: self.file.clone(), error })?;
        self.line += 1;
        if length == 0 {
            return Ok(Said::End);
        }
        let said = if length as u64 == LONGEST_LINE {
            Err(Wrong::new("line", "", "no line of a trace has 64 KiB; check the format"))
        } else {
            let line = String::from_utf8_lossy(&self.buffer);
            if matches!(line, Cow::Owned(_)) && !self.format.has_any_bytes() {
                Err(Wrong::new("line", "", "write text in UTF-8; is the file compressed?"))
            } else {
                let line = if self.line == 1 { without_mark(&line) } else { &line };
                parse(self.format, &mut self.state, &mut self.volumes, line.trim())
            }
        };
        said.map_err(|wrong| self.wrong(wrong))
    }
}

/// Returns a text without the byte order mark at its beginning.
fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

fn parse(
    format: Format,
    state: &mut State,
    volumes: &mut Volumes,
    line: &str,
) -> Result<Said, Wrong> {
    if line.is_empty() {
        return Ok(Said::Nothing);
    }
    if !std::mem::replace(&mut state.begun, true)
        && let Some(columns) = header::columns(format)
        && columns.are_named(line)?
    {
        return Ok(Said::Nothing);
    }
    match format {
        Format::Msr => msr::parse(line, volumes),
        Format::Spc => spc::parse(line, volumes),
        Format::Alibaba => alibaba::parse(line, volumes),
        Format::Tencent => tencent::parse(line, volumes),
        Format::Disksim(unit) => disksim::parse(line, unit, volumes),
        Format::Blkparse(event) => state.blkparse.parse(line, event, volumes),
        Format::FioIolog => state.iolog.parse(line, volumes),
        Format::Csv(unit) => state.csv.parse(line, unit, volumes),
        // These formats have no lines.
        Format::Hemi | Format::Vscsi => Ok(Said::End),
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Result<Record, TraceError>> {
        if let Some(record) = self.pending.take() {
            return Some(self.bounded(record));
        }
        while !self.ended {
            match self.next_said() {
                Ok(Said::Nothing) => {}
                Ok(Said::One(record)) => return Some(self.bounded(record)),
                Ok(Said::Two(first, second)) => {
                    self.pending = Some(second);
                    return Some(self.bounded(first));
                }
                Ok(Said::End) => self.ended = true,
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

/// Returns the extent of `length` bytes from `offset`, rounded outwards to sectors, and whether
/// rounding changed it. Returns `None` if the rounded end exceeds 64 bits.
fn extent_of_bytes(offset: u64, length: u64) -> Option<(Extent, bool)> {
    let end = offset.checked_add(length)?;
    end.checked_next_multiple_of(SECTOR_BYTES)?;
    if length == 0 {
        return Some((Extent::default(), false));
    }
    let extent = Extent { start: offset / SECTOR_BYTES, end: end.div_ceil(SECTOR_BYTES) };
    let rounded = !offset.is_multiple_of(SECTOR_BYTES) || !end.is_multiple_of(SECTOR_BYTES);
    Some((extent, rounded))
}

/// Returns the extent of `count` sectors from `start`, or `None` if its end in bytes exceeds 64
/// bits.
fn extent_of_sectors(start: u64, count: u64) -> Option<Extent> {
    let end = start.checked_add(count)?;
    end.checked_mul(SECTOR_BYTES)?;
    Some(if count == 0 { Extent::default() } else { Extent { start, end } })
}
