//! Recorded requests: readers for the formats traces are published in.
//!
//! A [`Reader`] goes through a trace line by line and keeps none of it. Times are nanoseconds
//! on the trace's own clock; [`load`] makes a [`load::Trace`] of them that begins at zero.

use std::fmt::{self, Write};
use std::io::{self, BufRead};

use hemi_units::{Extent, Operation, SECTOR_BYTES};

pub use self::error::TraceError;
use self::fields::Wrong;
use self::format::Format;

mod alibaba;
mod blkparse;
mod capture;
pub mod convert;
mod disksim;
mod error;
mod fields;
mod fio_iolog;
pub mod format;
pub mod load;
mod msr;
mod spc;
mod tencent;
#[cfg(test)]
mod tests;

/// Longest line a trace may have, bytes: beyond that it is no trace.
const LONGEST_LINE: u64 = 1 << 16;

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Nanoseconds on the trace's clock.
    pub at: u64,
    /// The volume, by [`Reader::volume`].
    pub volume: u32,
    /// What was done.
    pub operation: Operation,
    /// Where, rounded outwards to whole sectors. Empty for a flush, and for a request of no
    /// bytes.
    pub extent: Extent,
    /// Whether it had to be rounded.
    pub rounded: bool,
    /// How long it took, nanoseconds, where the format says.
    pub latency: Option<u64>,
}

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Nothing,
    One(Record),
    /// One after the other.
    Two(Record, Record),
    /// What follows is no trace any more.
    End,
}

/// The volumes seen, by number.
#[derive(Clone, Debug, Default)]
struct Volumes {
    names: Vec<String>,
    numbers: std::collections::BTreeMap<String, u32>,
    last: u32,
    written: String,
}

impl Volumes {
    /// The number of the volume of this name; allocates only for new ones.
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

/// What a reader reads.
enum Source<R> {
    /// Lines of text.
    Lines(R),
    /// hemi's own recordings.
    Capture(hemi_capture::Reader<R>),
}

/// Reads a trace.
pub struct Reader<R> {
    source: Source<R>,
    file: String,
    format: Format,
    iolog: fio_iolog::State,
    line: u64,
    buffer: Vec<u8>,
    volumes: Volumes,
    /// The second request of the last line.
    pending: Option<Record>,
    ended: bool,
}

impl<R: BufRead> Reader<R> {
    /// Of a source in a format; errors name `file`.
    pub fn new(source: R, file: impl Into<String>, format: Format) -> Reader<R> {
        let source = match format {
            Format::Hemi => Source::Capture(hemi_capture::Reader::new(source)),
            _ => Source::Lines(source),
        };
        Reader {
            source,
            file: file.into(),
            format,
            iolog: fio_iolog::State::default(),
            line: 0,
            buffer: Vec::new(),
            volumes: Volumes::default(),
            pending: None,
            ended: false,
        }
    }

    /// The name of a volume; `None` for a number no record had.
    pub fn volume(&self, number: u32) -> Option<&str> {
        self.volumes.names.get(number as usize).map(String::as_str)
    }

    /// Where the reader is, from 1: the line, or the record of a recording.
    pub fn position(&self) -> u64 {
        self.line
    }

    /// Requests that the recorder could not keep up with, as far as it has been read; only
    /// hemi's own recordings say.
    pub fn dropped(&self) -> u64 {
        match &self.source {
            Source::Lines(_) => 0,
            Source::Capture(capture) => capture.dropped(),
        }
    }

    /// Whether the recording ends in the middle, which only hemi's own say.
    pub fn is_cut(&self) -> bool {
        matches!(&self.source, Source::Capture(capture) if capture.is_cut())
    }

    /// What comes next, or what is wrong with it.
    fn next_said(&mut self) -> Result<Said, TraceError> {
        match &mut self.source {
            Source::Lines(_) => self.line(),
            Source::Capture(capture) => {
                self.line += 1;
                capture::next(capture, &mut self.volumes)
                    .map_err(|error| TraceError::Capture { file: self.file.clone(), error })
            }
        }
    }

    /// The next line's, or what is wrong with it.
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
            match std::str::from_utf8(&self.buffer) {
                Ok(line) => parse(self.format, &mut self.iolog, &mut self.volumes, line.trim()),
                Err(_) => Err(Wrong::new("line", "", "write text; is the file compressed?")),
            }
        };
        said.map_err(|Wrong { field, value, right }| TraceError::Line {
            file: self.file.clone(),
            line: self.line,
            field,
            value,
            right,
        })
    }
}

fn parse(
    format: Format,
    iolog: &mut fio_iolog::State,
    volumes: &mut Volumes,
    line: &str,
) -> Result<Said, Wrong> {
    if line.is_empty() {
        return Ok(Said::Nothing);
    }
    match format {
        Format::Msr => msr::parse(line, volumes),
        Format::Spc => spc::parse(line, volumes),
        Format::Alibaba => alibaba::parse(line, volumes),
        Format::Tencent => tencent::parse(line, volumes),
        Format::Disksim(unit) => disksim::parse(line, unit, volumes),
        Format::Blkparse(event) => blkparse::parse(line, event, volumes),
        Format::FioIolog => iolog.parse(line, volumes),
        // Not of lines.
        Format::Hemi => Ok(Said::End),
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Result<Record, TraceError>> {
        if let Some(record) = self.pending.take() {
            return Some(Ok(record));
        }
        while !self.ended {
            match self.next_said() {
                Ok(Said::Nothing) => {}
                Ok(Said::One(record)) => return Some(Ok(record)),
                Ok(Said::Two(first, second)) => {
                    self.pending = Some(second);
                    return Some(Ok(first));
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

/// The extent of `length` bytes from `offset`, rounded outwards to sectors, and whether that
/// changed it; `None` beyond what bytes can be counted.
fn extent_of_bytes(offset: u64, length: u64) -> Option<(Extent, bool)> {
    let end = offset.checked_add(length)?;
    if length == 0 {
        return Some((Extent::default(), false));
    }
    let extent = Extent { start: offset / SECTOR_BYTES, end: end.div_ceil(SECTOR_BYTES) };
    let rounded = !offset.is_multiple_of(SECTOR_BYTES) || !end.is_multiple_of(SECTOR_BYTES);
    Some((extent, rounded))
}

/// The extent of `count` sectors from `start`; `None` beyond what bytes can be counted.
fn extent_of_sectors(start: u64, count: u64) -> Option<Extent> {
    let end = start.checked_add(count)?;
    end.checked_mul(SECTOR_BYTES)?;
    Some(if count == 0 { Extent::default() } else { Extent { start, end } })
}
