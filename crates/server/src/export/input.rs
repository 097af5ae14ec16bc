//! The receiving side of a connection. It receives many requests with one call, and large
//! payloads straight into their buffers.

use std::io;

use hemi_engine::identifiers::{BufferAt, BufferId};

use super::ExportContext;
use super::pace::Sample;
use hemi_io::memory::{Mapping, Span};
use hemi_io::ring::{RingFile, Tag};
use hemi_io::ring_message::Gather;
use hemi_io::slots::SlotId;
use hemi_io::tls::Tls;

/// Bytes received at once beside a payload's own buffer, enough for some dozens of small
/// writes.
const STAGING_BYTES: usize = 128 << 10;

/// Received bytes that have not been used yet.
#[derive(Debug)]
struct Area {
    memory: Mapping,
    start: usize,
    end: usize,
}

impl Area {
    fn new() -> io::Result<Area> {
        Ok(Area { memory: Mapping::new(STAGING_BYTES, false)?, start: 0, end: 0 })
    }

    fn used(&self) -> Span {
        self.memory.span(self.start, self.end - self.start)
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

/// Memory for receiving, which one connection after another uses.
#[derive(Debug)]
pub(super) struct InputMemory {
    wire: Area,
    /// Plaintext, once a connection has used TLS.
    plain: Option<Area>,
    gather: Gather,
}

impl InputMemory {
    pub(super) fn new() -> io::Result<InputMemory> {
        Ok(InputMemory { wire: Area::new()?, plain: None, gather: Gather::new() })
    }
}

/// The part of a write that is being received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filling {
    pub(super) buffer: BufferId,
    /// Length in bytes.
    pub(super) length: u64,
    pub(super) filled: u64,
}

impl Filling {
    /// Appends its received bytes to `into`. No receive may be in flight.
    pub(super) fn append_to(&self, cx: &ExportContext<'_>, into: &mut Vec<u8>) {
        let at = BufferAt { buffer: self.buffer, offset: 0 };
        let sectors = (self.length / hemi_units::SECTOR_BYTES) as u32;
        let whole = cx.engine.buffers().span(at, sectors);
        into.extend_from_slice(&whole.slice(0, self.filled as usize).to_vec());
    }

    fn rest(&self, cx: &ExportContext<'_>) -> Span {
        let at = BufferAt { buffer: self.buffer, offset: 0 };
        let sectors = (self.length / hemi_units::SECTOR_BYTES) as u32;
        let whole = cx.engine.buffers().span(at, sectors);
        whole.slice(self.filled as usize, (self.length - self.filled) as usize)
    }
}

/// The state of a connection's input.
#[derive(Clone, Copy, Debug)]
pub(super) enum Intake {
    /// A header comes next.
    Idle,
    /// A request waits to be admitted.
    Admitting(hemi_nbd::server::Request),
    /// A read's parts are being submitted, from this byte on.
    Reading { request: SlotId, next: u64 },
    /// A write's parts are being received and submitted, from this byte on.
    Writing { request: SlotId, next: u64, part: Option<Filling> },
}

/// The receiving side of a connection.
#[derive(Debug)]
pub(super) struct Input {
    memory: InputMemory,
    /// True if received bytes are TLS.
    secure: bool,
    pub(super) intake: Intake,
    /// True while a receive is in the ring.
    pub(super) busy: bool,
    /// Payload received since the connection began, in bytes.
    taken: u64,
    /// Bytes that a predecessor had received. Those from `carried_used` on are not used yet.
    carried: Vec<u8>,
    carried_used: usize,
}

impl Input {
    pub(super) fn new(memory: InputMemory) -> Input {
        Input {
            memory,
            secure: false,
            intake: Intake::Idle,
            busy: false,
            taken: 0,
            carried: Vec::new(),
            carried_used: 0,
        }
    }

    /// Puts the bytes that a predecessor had received before those still to come.
    pub(super) fn carry(&mut self, bytes: Vec<u8>) {
        (self.carried, self.carried_used) = (bytes, 0);
    }

    /// Stages more of the bytes that a predecessor had received, once all staged bytes are
    /// used. Returns false if none of them is left.
    pub(super) fn refill(&mut self) -> bool {
        let rest = &self.carried[self.carried_used..];
        if rest.is_empty() {
            return false;
        }
        let wire = &mut self.memory.wire;
        debug_assert!(wire.is_empty() && !self.busy);
        let count = rest.len().min(STAGING_BYTES);
        wire.memory.span(0, count).copy_from(&rest[..count]);
        (wire.start, wire.end) = (0, count);
        self.carried_used += count;
        if self.carried_used == self.carried.len() {
            (self.carried, self.carried_used) = (Vec::new(), 0);
        }
        true
    }

    /// Appends received but unused bytes to `into`. No receive may be in flight, and the
    /// connection may not use TLS.
    pub(super) fn append_unused(&mut self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.staged().to_vec());
        into.extend_from_slice(&self.carried[self.carried_used..]);
    }

    /// Returns the payload bytes that the client has sent, and the number missing from the
    /// payload being received.
    pub(super) fn sample(&self) -> Sample {
        let pending = match self.intake {
            Intake::Writing { part: Some(part), .. } => part.length - part.filled,
            _ => 0,
        };
        Sample { moved: self.taken, pending }
    }

    /// Treats everything received as TLS from here on, including bytes that are already staged.
    pub(super) fn secure(&mut self) -> io::Result<()> {
        if self.memory.plain.is_none() {
            self.memory.plain = Some(Area::new()?);
        }
        self.secure = true;
        Ok(())
    }

    fn source(&mut self) -> &mut Area {
        match &mut self.memory.plain {
            Some(plain) if self.secure => plain,
            _ => &mut self.memory.wire,
        }
    }

    /// Returns the received bytes that have not been used yet, decrypted if need be.
    pub(super) fn staged(&mut self) -> Span {
        self.source().used()
    }

    /// Marks the first `count` staged bytes as used.
    pub(super) fn consume(&mut self, count: usize) {
        self.source().start += count;
    }

    /// Decrypts more of the received bytes once all staged bytes are used. Returns true if
    /// something is staged now.
    ///
    /// # Errors
    /// Fails if the peer broke TLS or was not admitted.
    pub(super) fn decrypt(&mut self, tls: &mut Tls) -> Result<bool, rustls::Error> {
        let InputMemory { wire, plain: Some(plain), .. } = &mut self.memory else {
            return Ok(false);
        };
        (plain.start, plain.end) = (0, 0);
        loop {
            let mut room = plain.memory.span(plain.end, STAGING_BYTES - plain.end);
            // SAFETY: the kernel never has this area, and no other span of it is in use.
            let count = tls.plaintext(unsafe { room.bytes_mut() });
            plain.end += count;
            if plain.end == STAGING_BYTES {
                return Ok(true);
            }
            if count > 0 {
                continue;
            }
            let rest = wire.used();
            // SAFETY: no receive is in flight, so the kernel does not have this area.
            let used = if wire.is_empty() { 0 } else { tls.take(unsafe { rest.bytes() })? };
            wire.start += used;
            if used == 0 {
                return Ok(!plain.is_empty());
            }
        }
    }

    /// Submits a receive: into the part being filled, then into the staging area.
    pub(super) fn receive(&mut self, cx: &mut ExportContext<'_>, file: RingFile, tag: Tag) {
        let InputMemory { wire, gather, .. } = &mut self.memory;
        debug_assert!(!self.busy && wire.is_empty());
        (wire.start, wire.end) = (0, 0);
        self.busy = true;
        let staging = wire.memory.whole();
        match self.intake {
            Intake::Writing { part: Some(part), .. } if !self.secure => {
                gather.clear();
                gather.push(part.rest(cx));
                gather.push(staging);
                cx.ring.receive_gathered(file, gather, tag);
            }
            _ => cx.ring.receive(file, staging, tag),
        }
    }

    /// Handles the arrival of `count` bytes.
    pub(super) fn received(&mut self, count: usize) {
        self.busy = false;
        let mut rest = count as u64;
        if let Intake::Writing { part: Some(part), .. } = &mut self.intake
            && !self.secure
        {
            let direct = rest.min(part.length - part.filled);
            part.filled += direct;
            self.taken += direct;
            rest -= direct;
        }
        self.memory.wire.end = rest as usize;
    }

    /// Copies staged bytes into the part being filled. Returns their number.
    pub(super) fn fill(&mut self, cx: &ExportContext<'_>, part: &mut Filling) -> u64 {
        let staged = self.staged();
        let room = part.rest(cx);
        let count = staged.length().min(room.length());
        room.copy_from_span(staged.slice(0, count));
        self.consume(count);
        part.filled += count as u64;
        self.taken += count as u64;
        count as u64
    }

    /// Returns the memory for the next connection, without any of this one's bytes.
    pub(super) fn into_memory(self) -> InputMemory {
        let mut memory = self.memory;
        (memory.wire.start, memory.wire.end) = (0, 0);
        if let Some(plain) = &mut memory.plain {
            (plain.start, plain.end) = (0, 0);
        }
        memory
    }
}
