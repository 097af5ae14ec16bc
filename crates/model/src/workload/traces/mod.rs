//! Recorded requests: readers for the formats traces are published in.
//!
//! A [`Reader`] goes through a trace line by line and keeps none of it. Times are nanoseconds
//! on the trace's own clock; [`load`] makes a [`load::Trace`] of them that begins at zero.

use std::fmt::{self, Write};
use std::io::{self, BufRead};

use hemi_core::units::{Extent, SECTOR_BYTES};
use hemi_drives::drive::Operation;
use serde::Deserialize;

use self::fields::Wrong;
use super::error::WorkloadError;

mod alibaba;
mod blkparse;
mod disksim;
mod fields;
mod fio_iolog;
pub mod load;
mod msr;
mod spc;
mod tencent;
#[cfg(test)]
mod tests;

/// Longest line a trace may have, bytes: beyond that it is no trace.
const LONGEST_LINE: u64 = 1 << 16;

/// What is wrong with a trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read.
    #[error("{file}: {error}")]
    Read {
        /// The file.
        file: String,
        /// Why not.
        error: io::Error,
    },
    /// A line that does not parse.
    #[error("{file}, line {line}: {field} is `{value}`: {right}")]
    Line {
        /// The file.
        file: String,
        /// The line, from 1.
        line: u64,
        /// The field.
        field: &'static str,
        /// What it holds.
        value: String,
        /// What would be right.
        right: &'static str,
    },
    /// Several volumes, and none named.
    #[error(
        "{file} has the volumes {volumes}: write which to replay, as in `volume = \"{first}\"`, or \
         `volume = \"*\"` for all of them laid over one another"
    )]
    Volumes {
        /// The file.
        file: String,
        /// Some of them.
        volumes: String,
        /// The first.
        first: String,
    },
    /// Nothing to replay.
    #[error("{file} has no request{of}: {right}")]
    Nothing {
        /// The file.
        file: String,
        /// Of which volume.
        of: String,
        /// What would be right.
        right: String,
    },
    /// It does not fit the volume.
    #[error(
        "{file} has requests up to {end} B, and the volume has {volume} B: give it a larger \
         volume, or write `beyond = \"wrap\"` to have them at their address modulo its size"
    )]
    Beyond {
        /// The file.
        file: String,
        /// Where the furthest request ends, bytes.
        end: u64,
        /// The volume's size, bytes.
        volume: u64,
    },
    /// One request alone does not fit the volume.
    #[error(
        "{file} has a request of {length} B, and the volume has {volume} B: give it a larger volume"
    )]
    Longer {
        /// The file.
        file: String,
        /// The request's length, bytes.
        length: u64,
        /// The volume's size, bytes.
        volume: u64,
    },
}

/// A format, as specs name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FormatSpec {
    /// MSR Cambridge: `timestamp,host,disk,Read|Write,offset,size,response`, in bytes and
    /// units of 100 ns.
    Msr,
    /// SPC, as of UMass: `ASU,LBA,size,R|W,time`, in blocks of 512 bytes, bytes and seconds.
    Spc,
    /// Alibaba 2020: `device,R|W,offset,length,timestamp`, in bytes and microseconds.
    Alibaba,
    /// Tencent CBS: `timestamp,offset,size,0|1,volume`, in seconds and sectors; 1 writes.
    Tencent,
    /// DiskSim's and MQSim's ASCII: `time device block count flags`, in sectors; bit 0 of the
    /// flags reads. What the time counts has to be said.
    #[serde(alias = "mqsim")]
    Disksim,
    /// The text blkparse writes by default.
    Blkparse,
    /// What fio writes with `write_iolog`, version 2 or 3.
    FioIolog,
}

/// What times count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeUnit {
    /// Milliseconds.
    Ms,
    /// Microseconds.
    Us,
    /// Nanoseconds.
    Ns,
}

/// Which of a request's events stands for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Event {
    /// When it was queued: what the applications asked for.
    #[default]
    #[serde(rename = "Q")]
    Queue,
    /// When it was given to the driver: what the device was asked for.
    #[serde(rename = "D")]
    Dispatch,
}

/// A format with all that has to be known to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// [`FormatSpec::Msr`].
    Msr,
    /// [`FormatSpec::Spc`].
    Spc,
    /// [`FormatSpec::Alibaba`].
    Alibaba,
    /// [`FormatSpec::Tencent`].
    Tencent,
    /// [`FormatSpec::Disksim`].
    Disksim(TimeUnit),
    /// [`FormatSpec::Blkparse`].
    Blkparse(Event),
    /// [`FormatSpec::FioIolog`].
    FioIolog,
}

impl FormatSpec {
    /// Refuses what does not belong to the format.
    pub(crate) fn check(
        self,
        time_unit: Option<TimeUnit>,
        event: Option<Event>,
    ) -> Result<(), WorkloadError> {
        self.with(time_unit, event).map(drop)
    }

    /// The format with what was said of it.
    ///
    /// # Errors
    /// Where something is missing or does not belong to it.
    pub fn with(
        self,
        time_unit: Option<TimeUnit>,
        event: Option<Event>,
    ) -> Result<Format, WorkloadError> {
        if let (Some(unit), true) = (time_unit, self != FormatSpec::Disksim) {
            let value = format!("{unit:?}").to_lowercase();
            let right = "leave it out: only disksim traces leave their unit open";
            return Err(WorkloadError::new("time_unit", value, right));
        }
        if let (Some(event), true) = (event, self != FormatSpec::Blkparse) {
            let right = "leave it out: only blkparse has several events for a request";
            return Err(WorkloadError::new("event", format!("{event:?}"), right));
        }
        Ok(match self {
            FormatSpec::Msr => Format::Msr,
            FormatSpec::Spc => Format::Spc,
            FormatSpec::Alibaba => Format::Alibaba,
            FormatSpec::Tencent => Format::Tencent,
            FormatSpec::Disksim => Format::Disksim(time_unit.ok_or_else(|| {
                let right =
                    "write what the trace's times count: ms (DiskSim's), us or ns (MQSim's)";
                WorkloadError::new("time_unit", "none", right)
            })?),
            FormatSpec::Blkparse => Format::Blkparse(event.unwrap_or_default()),
            FormatSpec::FioIolog => Format::FioIolog,
        })
    }
}

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

/// Reads a trace.
pub struct Reader<R> {
    source: R,
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

    /// The next line's, or what is wrong with it.
    fn line(&mut self) -> Result<Said, TraceError> {
        self.buffer.clear();
        let mut limited = io::Read::take(&mut self.source, LONGEST_LINE);
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
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Result<Record, TraceError>> {
        if let Some(record) = self.pending.take() {
            return Some(Ok(record));
        }
        while !self.ended {
            match self.line() {
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
