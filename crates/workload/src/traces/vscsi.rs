//! The vSCSI traces of CloudPhysics: what virtual machines asked of a virtual disk, in VMware ESX.
//!
//! A file is a sequence of records without a header. Numbers are little-endian, the length is in
//! bytes, the address in 512-byte sectors, and the time in microseconds. A command is a SCSI
//! operation code. A file holds one virtual disk, which is called `disk`.
//!
//! | field | bytes | version 1 (32 bytes) at | version 2 (40 bytes) at |
//! | --- | --- | --- | --- |
//! | command | 2 | 12 | 0 |
//! | version, in the upper byte | 2 | 14 | 2 |
//! | serial number | 4 | 0 | 4 |
//! | length | 4 | 4 | 8 |
//! | parts in memory | 4 | 8 | 12 |
//! | address | 8 | 16 | 16 |
//! | time | 8 | 24 | 24 |
//! | response time | 8 | | 32 |
//!
//! The layouts are those of libCacheSim's reader, which does not use the response time. It is taken
//! to be in microseconds, as the time is. VMware's vscsiStats prints the fields of version 1 with
//! their units.

use std::io::Read;

use hemi_units::{Extent, MICROSECOND, Operation, SECTOR_BYTES};

use super::fields::{TOO_LARGE, Wrong};
use super::{Record, Said, Volumes, extent_of_bytes};

/// Records that have to agree for a file to be recognised.
const RECOGNISED: usize = 8;

/// The version of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One = 1,
    Two = 2,
}

impl Version {
    /// Returns the bytes of a record.
    fn record_bytes(self) -> usize {
        match self {
            Version::One => 32,
            Version::Two => 40,
        }
    }

    /// Returns true if a record has this version's number where this version has it.
    fn is_in(self, record: &[u8]) -> bool {
        let at = match self {
            Version::One => 14,
            Version::Two => 2,
        };
        record[at + 1] == self as u8
    }
}

/// Returns the version of which all whole records in `begin` are, if there is exactly one.
fn version_of(begin: &[u8]) -> Option<Version> {
    let fits = |version: Version| {
        let mut records = begin.chunks_exact(version.record_bytes()).take(RECOGNISED).peekable();
        records.peek().is_some() && records.all(|record| version.is_in(record))
    };
    match (fits(Version::One), fits(Version::Two)) {
        (true, false) => Some(Version::One),
        (false, true) => Some(Version::Two),
        _ => None,
    }
}

/// Returns true if a file that begins like this is a vSCSI trace.
pub(super) fn is_one(begin: &[u8]) -> bool {
    version_of(begin).is_some()
}

/// The records of a file.
pub(super) struct Records<R> {
    source: R,
    version: Option<Version>,
    /// Bytes that were read to find the version and are not used yet.
    begin: Vec<u8>,
}

impl<R: Read> Records<R> {
    /// Creates a reader of a file; nothing is read yet.
    pub(super) fn new(source: R) -> Records<R> {
        Records { source, version: None, begin: Vec::new() }
    }

    /// Returns the contents of the next record.
    pub(super) fn next(&mut self, volumes: &mut Volumes) -> std::io::Result<Result<Said, Wrong>> {
        let version = match self.version {
            Some(version) => version,
            None => {
                let most = (RECOGNISED * Version::Two.record_bytes()) as u64;
                self.source.by_ref().take(most).read_to_end(&mut self.begin)?;
                let Some(version) = version_of(&self.begin) else {
                    let right = "give a vSCSI trace, whose records are all of version 1 or 2; \
                                 one of text is of the format csv";
                    return Ok(Err(Wrong::new("version", "", right)));
                };
                *self.version.insert(version)
            }
        };
        let mut record = [0; 40];
        let record = &mut record[..version.record_bytes()];
        let known = record.len().min(self.begin.len());
        record[..known].copy_from_slice(&self.begin[..known]);
        self.begin.drain(..known);
        let mut length = known;
        while length < record.len() {
            match self.source.read(&mut record[length..]) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(match length {
            0 => Ok(Said::End),
            length if length < record.len() => {
                let right = "the file ends within the record; cut it there, or get it again";
                Err(Wrong::new("length", &format!("{length} B"), right))
            }
            _ => parse(record, version, volumes),
        })
    }
}

/// Returns the little-endian number of `count` bytes at `at`.
fn number(record: &[u8], at: usize, count: usize) -> u64 {
    record[at..at + count].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

fn parse(record: &[u8], version: Version, volumes: &mut Volumes) -> Result<Said, Wrong> {
    let (command, length) = match version {
        Version::One => (number(record, 12, 2), number(record, 4, 4)),
        Version::Two => (number(record, 0, 2), number(record, 8, 4)),
    };
    if !version.is_in(record) {
        let right = "the records before are of another version; the file is damaged from here on";
        let found = if version == Version::One { record[15] } else { record[3] };
        return Err(Wrong::new("version", &found.to_string(), right));
    }
    let Some(operation) = operation_of(command) else { return Ok(Said::Nothing) };
    let address = number(record, 16, 8);
    let (extent, rounded) = if operation == Operation::Flush {
        (Extent::default(), false)
    } else {
        let offset = address.checked_mul(SECTOR_BYTES);
        offset.and_then(|offset| extent_of_bytes(offset, length)).ok_or_else(|| {
            let right = "an address has to be, with the length, below 2^64 B";
            Wrong::new("address", &address.to_string(), right)
        })?
    };
    let nanoseconds = |field, at| {
        let time = number(record, at, 8);
        time.checked_mul(MICROSECOND).ok_or_else(|| Wrong::new(field, &time.to_string(), TOO_LARGE))
    };
    let at = nanoseconds("time", 24)?;
    let latency = match version {
        Version::One => None,
        Version::Two => Some(nanoseconds("response time", 32)?),
    };
    let volume = volumes.number(format_args!("disk"));
    Ok(Said::One(Record { at, volume, operation, extent, rounded, latency }))
}

/// Returns the operation of a SCSI operation code (SBC-4, table 33), or `None` if it moves no data of
/// the disk or, as UNMAP and WRITE SAME do, names its sectors elsewhere than in the record.
pub(super) fn operation_of(command: u64) -> Option<Operation> {
    match command {
        // READ (6), (10), (12), (16).
        0x08 | 0x28 | 0xA8 | 0x88 => Some(Operation::Read),
        // WRITE and WRITE AND VERIFY.
        0x0A | 0x2A | 0xAA | 0x8A | 0x2E | 0xAE | 0x8E => Some(Operation::Write { fua: false }),
        // SYNCHRONIZE CACHE (10), (16).
        0x35 | 0x91 => Some(Operation::Flush),
        _ => None,
    }
}
