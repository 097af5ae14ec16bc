//! A trace in memory, ready to replay.

use std::io::BufRead;

use hemi_units::{Operation, SECTOR_BYTES};
use serde::Deserialize;

use super::{NAMED, Reader, TraceError};

/// The treatment of requests beyond the end of the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Beyond {
    /// The trace is refused.
    #[default]
    Refuse,
    /// They wrap around to their address modulo the volume's size. A request that would then
    /// cross the end of the volume is truncated there.
    Wrap,
}

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Time in nanoseconds from the first request of the trace.
    pub at: u64,
    /// First sector.
    pub start: u64,
    /// Number of sectors; zero for a flush.
    pub sectors: u32,
    /// The operation.
    pub operation: Operation,
}

/// The requests of a trace, ordered by time.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    file: String,
    entries: Vec<Entry>,
    /// Latency of each entry; empty unless known for all.
    latencies: Vec<u64>,
    lacking: Vec<String>,
    rounded: u64,
    empty: u64,
    wrapped: u64,
}

impl Trace {
    /// Reads all of a trace. If it has several volumes, takes the requests of `volume`, or all for
    /// `*`.
    ///
    /// # Errors
    /// Fails if a line does not parse, if there are several volumes and none is named, or if
    /// nothing is left to replay.
    pub fn from_reader(
        mut reader: Reader<impl BufRead>,
        volume: Option<&str>,
    ) -> Result<Trace, TraceError> {
        let mut trace = Trace { file: reader.file.clone(), ..Trace::default() };
        let mut wanted = Wanted::new(volume);
        while let Some(record) = reader.next() {
            let record = record?;
            if !wanted.has(record.volume, &reader) {
                continue;
            }
            if record.extent.is_empty() && record.operation != Operation::Flush {
                trace.empty += 1;
                continue;
            }
            trace.rounded += u64::from(record.rounded);
            match record.latency {
                Some(latency) if trace.latencies.len() == trace.entries.len() => {
                    trace.latencies.push(latency);
                }
                _ => trace.latencies.clear(),
            }
            trace.entries.push(Entry {
                at: record.at,
                start: record.extent.start,
                sectors: record.extent.sectors() as u32,
                operation: record.operation,
            });
        }
        if volume.is_none() && wanted.known.len() > 1 {
            let names: Vec<&str> = reader.volumes.names.iter().map(String::as_str).collect();
            let more = if names.len() > NAMED { ", …" } else { "" };
            return Err(TraceError::Volumes {
                file: trace.file,
                volumes: format!("{}{more}", names[..names.len().min(NAMED)].join(", ")),
                first: names[0].to_owned(),
            });
        }
        if trace.entries.is_empty() {
            return Err(reader.nothing(volume));
        }
        trace.lacking = reader.lacking();
        trace.begin_at_zero();
        Ok(trace)
    }

    /// Orders the requests by time and moves the first to zero. Some traces are written as
    /// requests end, or by several processors, and are not quite in order.
    fn begin_at_zero(&mut self) {
        if self.latencies.len() == self.entries.len() {
            let mut order: Vec<u32> = (0..self.entries.len() as u32).collect();
            order.sort_by_key(|&index| self.entries[index as usize].at);
            self.latencies = order.iter().map(|&index| self.latencies[index as usize]).collect();
        } else {
            self.latencies = Vec::new();
        }
        self.entries.sort_by_key(|entry| entry.at);
        let first = self.entries.first().map_or(0, |entry| entry.at);
        self.entries.iter_mut().for_each(|entry| entry.at -= first);
        self.entries.shrink_to_fit();
    }

    /// Makes the requests fit a volume of `volume_sectors` sectors.
    ///
    /// # Errors
    /// Fails if a request lies beyond the end and must not wrap, or is longer than the volume.
    pub fn fit(&mut self, volume_sectors: u64, beyond: Beyond) -> Result<(), TraceError> {
        let volume = volume_sectors.saturating_mul(SECTOR_BYTES);
        let file = || self.file.clone();
        if self.end() > volume && beyond == Beyond::Refuse {
            return Err(TraceError::Beyond { file: file(), end: self.end(), volume });
        }
        let longest = self.entries.iter().map(|entry| u64::from(entry.sectors)).max().unwrap_or(0);
        if longest > volume_sectors {
            let length = longest * SECTOR_BYTES;
            return Err(TraceError::Longer { file: file(), length, volume });
        }
        for entry in &mut self.entries {
            let last = volume_sectors - u64::from(entry.sectors);
            if entry.start > last {
                entry.start = (entry.start % volume_sectors).min(last);
                self.wrapped += 1;
            }
        }
        Ok(())
    }

    /// Returns the requests.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the recorded latency of each request in nanoseconds; empty unless the trace has
    /// all of them.
    pub fn latencies(&self) -> &[u64] {
        &self.latencies
    }

    /// Returns what the trace is known to lack, a clause for each reason.
    pub fn lacking(&self) -> &[String] {
        &self.lacking
    }

    /// Returns the name of the file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the end of the furthest request in bytes.
    pub fn end(&self) -> u64 {
        let ends = self.entries.iter().map(|entry| entry.start + u64::from(entry.sectors));
        ends.max().unwrap_or(0) * SECTOR_BYTES
    }

    /// Returns the number of requests rounded outwards to whole sectors.
    pub fn rounded(&self) -> u64 {
        self.rounded
    }

    /// Returns the number of requests of no bytes, which were left out.
    pub fn empty(&self) -> u64 {
        self.empty
    }

    /// Returns the number of requests beyond the end of the volume that were wrapped.
    pub fn wrapped(&self) -> u64 {
        self.wrapped
    }
}

/// The volumes to take; each is looked up only once.
pub(super) struct Wanted<'a> {
    volume: Option<&'a str>,
    known: Vec<bool>,
}

impl<'a> Wanted<'a> {
    /// Returns the volume of this name, or all of them for `None` and `*`.
    pub(super) fn new(volume: Option<&'a str>) -> Wanted<'a> {
        Wanted { volume, known: Vec::new() }
    }

    /// Returns true if the volume of this number is to be taken.
    pub(super) fn has<R: BufRead>(&mut self, number: u32, reader: &Reader<R>) -> bool {
        while self.known.len() <= number as usize {
            let name = reader.volume(self.known.len() as u32);
            self.known.push(match self.volume {
                None | Some("*") => true,
                wanted => name == wanted,
            });
        }
        self.known[number as usize]
    }
}
