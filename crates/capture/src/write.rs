//! Writer of recordings.

use std::io::{self, Write};

use crate::block::{BlockKind, Header, PAYLOAD_MAX, encode};
use crate::{Head, Kind, Record, varint};

/// Maximum size of a record in bytes.
const RECORD_MAX: usize = 1 + 4 * 10;
/// Maximum number of bytes stored of a volume's name.
const NAME_MAX: usize = 1 << 10;

/// A writer of a recording, one block at a time.
#[derive(Debug)]
pub struct Writer<W> {
    into: W,
    payload: Vec<u8>,
    records: u32,
    blocks: u64,
    /// Arrival time and end sector of the block's last record.
    at: u64,
    end: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a recording.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn new(into: W, head: &Head) -> io::Result<Writer<W>> {
        let mut writer = Writer {
            into,
            payload: Vec::with_capacity(PAYLOAD_MAX),
            records: 0,
            blocks: 0,
            at: 0,
            end: 0,
        };
        let mut length = head.name.len().min(NAME_MAX);
        while !head.name.is_char_boundary(length) {
            length -= 1;
        }
        writer.payload.extend(head.volume_bytes.to_le_bytes());
        writer.payload.extend(head.began.to_le_bytes());
        writer.payload.extend(head.block_bytes.to_le_bytes());
        writer.payload.extend((length as u32).to_le_bytes());
        writer.payload.extend(&head.name.as_bytes()[..length]);
        writer.block(BlockKind::Beginning, 0)?;
        Ok(writer)
    }

    /// Adds a record; `dropped` is the number of requests not recorded so far.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn push(&mut self, record: &Record, dropped: u64) -> io::Result<()> {
        if self.payload.len() + RECORD_MAX > PAYLOAD_MAX {
            self.flush(dropped)?;
        }
        let bits = record.kind as u8 | u8::from(record.fua) << 3 | u8::from(record.failed) << 4;
        self.payload.push(bits);
        varint::put(varint::difference(self.at, record.at), &mut self.payload);
        varint::put(record.latency, &mut self.payload);
        self.at = record.at;
        if record.kind != Kind::Flush {
            varint::put(varint::difference(self.end, record.start), &mut self.payload);
            varint::put(record.sectors, &mut self.payload);
            self.end = record.start.wrapping_add(record.sectors);
        }
        self.records += 1;
        Ok(())
    }

    /// Writes the records added so far, so that they survive from now on.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn flush(&mut self, dropped: u64) -> io::Result<()> {
        if self.records == 0 { Ok(()) } else { self.block(BlockKind::Records, dropped) }
    }

    /// Ends the recording cleanly and returns the destination.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn finish(mut self, dropped: u64) -> io::Result<W> {
        self.flush(dropped)?;
        self.block(BlockKind::End, dropped)?;
        Ok(self.into)
    }

    fn block(&mut self, kind: BlockKind, dropped: u64) -> io::Result<()> {
        let payload = self.payload.len() as u32;
        let header = Header { kind, payload, records: self.records, number: self.blocks, dropped };
        self.into.write_all(&encode(header, &self.payload))?;
        self.payload.clear();
        self.blocks += 1;
        (self.records, self.at, self.end) = (0, 0, 0);
        Ok(())
    }
}
