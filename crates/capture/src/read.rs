//! Reader of recordings.

use std::io::{self, Read};

use crate::block::{BlockKind, HEADER_BYTES, Header, decode};
use crate::{Head, Kind, Record, varint};

/// The reason why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file cannot be read.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// The file does not begin like a recording.
    #[error("it does not begin like a hemi recording (version 1): check the format")]
    NotOne,
    /// A block is damaged and further data follows it.
    #[error("block {0} is damaged; truncate the file there to keep the blocks before it")]
    Damaged(u64),
}

/// A reader of a recording.
#[derive(Debug)]
pub struct Reader<R> {
    from: R,
    head: Option<Head>,
    payload: Vec<u8>,
    /// Bytes of the payload that have been read.
    used: usize,
    records: u32,
    blocks: u64,
    at: u64,
    end: u64,
    dropped: u64,
    /// Set at the end of the recording; true if it was ended cleanly.
    over: Option<bool>,
}

impl<R: Read> Reader<R> {
    /// Creates a reader of a file; nothing is read yet.
    pub fn new(from: R) -> Reader<R> {
        Reader {
            from,
            head: None,
            payload: Vec::new(),
            used: 0,
            records: 0,
            blocks: 0,
            at: 0,
            end: 0,
            dropped: 0,
            over: None,
        }
    }

    /// Returns the header of the recording.
    ///
    /// # Errors
    /// See [`CaptureError`].
    pub fn head(&mut self) -> Result<&Head, CaptureError> {
        if self.head.is_none() {
            let header = self.block()?.ok_or(CaptureError::NotOne)?;
            let head = (header.kind == BlockKind::Beginning).then(|| head_of(&self.payload));
            let head = head.flatten().ok_or(CaptureError::NotOne)?;
            self.payload.clear();
            self.head = Some(head);
        }
        self.head.as_ref().ok_or(CaptureError::NotOne)
    }

    /// Returns the next record, in the order of the answers.
    ///
    /// # Errors
    /// See [`CaptureError`].
    pub fn record(&mut self) -> Result<Option<Record>, CaptureError> {
        self.head()?;
        while self.records == 0 {
            if self.used != self.payload.len() {
                return Err(CaptureError::Damaged(self.blocks - 1));
            }
            if self.over.is_some() {
                return Ok(None);
            }
            let Some(header) = self.block()? else {
                self.over = Some(false);
                return Ok(None);
            };
            self.dropped = header.dropped;
            match header.kind {
                BlockKind::Records => self.records = header.records,
                BlockKind::End => self.over = Some(true),
                BlockKind::Beginning => return Err(CaptureError::Damaged(header.number)),
            }
        }
        self.records -= 1;
        let mut rest = &self.payload[self.used..];
        let before = rest.len();
        let record = record_of(&mut rest, &mut self.at, &mut self.end);
        self.used += before - rest.len();
        record.map(Some).ok_or(CaptureError::Damaged(self.blocks - 1))
    }

    /// Returns the number of requests that were not recorded, as far as the file has been read.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns true if the recording is truncated: it was read to its end, without an end
    /// block.
    pub fn is_cut(&self) -> bool {
        self.over == Some(false)
    }

    /// Reads the next block and its payload. Returns `None` if the file ends or is truncated.
    fn block(&mut self) -> Result<Option<Header>, CaptureError> {
        let number = self.blocks;
        let wrong = if number == 0 { CaptureError::NotOne } else { CaptureError::Damaged(number) };
        let mut bytes = [0; HEADER_BYTES];
        if !fill(&mut self.from, &mut bytes)? {
            return Ok(None);
        }
        let Some((header, checksum)) = decode(&bytes).filter(|(header, _)| header.number == number)
        else {
            return Err(wrong);
        };
        self.payload.resize(header.payload as usize, 0);
        self.used = 0;
        (self.at, self.end) = (0, 0);
        if !fill(&mut self.from, &mut self.payload)? {
            self.payload.clear();
            return Ok(None);
        }
        let found = crc32c::crc32c_append(crc32c::crc32c(&bytes[12..]), &self.payload);
        if found != checksum {
            // The last block may have been in flight when the machine stopped.
            self.payload.clear();
            let last = !fill(&mut self.from, &mut [0])?;
            return if last && number > 0 { Ok(None) } else { Err(wrong) };
        }
        self.blocks += 1;
        Ok(Some(header))
    }
}

/// Fills the buffer; returns false if the file ends before.
fn fill(from: &mut impl Read, into: &mut [u8]) -> io::Result<bool> {
    match from.read_exact(into) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn head_of(payload: &[u8]) -> Option<Head> {
    let (volume, rest) = payload.split_first_chunk::<8>()?;
    let (began, rest) = rest.split_first_chunk::<8>()?;
    let (block, rest) = rest.split_first_chunk::<4>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let name = rest.get(..u32::from_le_bytes(*length) as usize)?;
    Some(Head {
        volume_bytes: u64::from_le_bytes(*volume),
        block_bytes: u32::from_le_bytes(*block),
        began: u64::from_le_bytes(*began),
        name: String::from_utf8_lossy(name).into_owned(),
    })
}

fn record_of(from: &mut &[u8], at: &mut u64, end: &mut u64) -> Option<Record> {
    let (&bits, rest) = from.split_first()?;
    *from = rest;
    if bits & 0xE0 != 0 {
        return None;
    }
    let kind = Kind::from_bits(bits & 7)?;
    *at = varint::apply(*at, varint::take(from)?);
    let latency = varint::take(from)?;
    let (mut start, mut sectors) = (0, 0);
    if kind != Kind::Flush {
        start = varint::apply(*end, varint::take(from)?);
        sectors = varint::take(from)?;
        *end = start.checked_add(sectors)?;
        // The end of a request in bytes must fit 64 bits.
        end.checked_mul(512)?;
    }
    let (fua, failed) = (bits & 8 != 0, bits & 16 != 0);
    Some(Record { at: *at, latency, start, sectors, kind, fua, failed })
}
