//! What a connection receives: many requests with one call, and large payloads straight into
//! their buffers.

use std::io;

use hemi_core::units::{BufferAt, BufferId, Instant};

use super::ExportContext;
use crate::memory::{Mapping, Span};
use crate::ring::{RingFile, Tag};
use crate::ring_message::Gather;
use crate::slots::SlotId;

/// Bytes received at once beside a payload's own buffer: some dozens of small writes.
const STAGING_BYTES: usize = 128 << 10;

/// Memory for receiving, reused by connection after connection.
#[derive(Debug)]
pub(super) struct InputMemory {
    staging: Mapping,
    gather: Gather,
}

impl InputMemory {
    pub(super) fn new() -> io::Result<InputMemory> {
        Ok(InputMemory { staging: Mapping::new(STAGING_BYTES, false)?, gather: Gather::new() })
    }
}

/// The part of a write that is being received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filling {
    pub(super) buffer: BufferId,
    /// Bytes.
    pub(super) length: u64,
    pub(super) filled: u64,
}

impl Filling {
    fn rest(&self, cx: &ExportContext<'_>) -> Span {
        let at = BufferAt { buffer: self.buffer, offset: 0 };
        let sectors = (self.length / hemi_core::units::SECTOR_BYTES) as u32;
        let whole = cx.engine.buffers().span(at, sectors);
        whole.slice(self.filled as usize, (self.length - self.filled) as usize)
    }
}

/// What the connection is in the middle of.
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

/// A connection's incoming side.
#[derive(Debug)]
pub(super) struct Input {
    memory: InputMemory,
    start: usize,
    end: usize,
    pub(super) intake: Intake,
    /// Whether a receive is in the ring.
    pub(super) busy: bool,
    /// When something last came.
    pub(super) progress: Instant,
}

impl Input {
    pub(super) fn new(memory: InputMemory, now: Instant) -> Input {
        Input { memory, start: 0, end: 0, intake: Intake::Idle, busy: false, progress: now }
    }

    /// Received and not yet used.
    pub(super) fn staged(&self) -> Span {
        self.memory.staging.span(self.start, self.end - self.start)
    }

    /// Marks the first `count` staged bytes as used.
    pub(super) fn consume(&mut self, count: usize) {
        self.start += count;
    }

    /// Submits a receive: into the part being filled, then into the staging area.
    pub(super) fn receive(&mut self, cx: &mut ExportContext<'_>, file: RingFile, tag: Tag) {
        debug_assert!(!self.busy && self.start == self.end);
        (self.start, self.end) = (0, 0);
        self.busy = true;
        let staging = self.memory.staging.whole();
        match self.intake {
            Intake::Writing { part: Some(part), .. } => {
                self.memory.gather.clear();
                self.memory.gather.push(part.rest(cx));
                self.memory.gather.push(staging);
                cx.ring.receive_gathered(file, &mut self.memory.gather, tag);
            }
            _ => cx.ring.receive(file, staging, tag),
        }
    }

    /// `count` bytes came.
    pub(super) fn received(&mut self, now: Instant, count: usize) {
        self.busy = false;
        self.progress = now;
        let mut rest = count as u64;
        if let Intake::Writing { part: Some(part), .. } = &mut self.intake {
            let direct = rest.min(part.length - part.filled);
            part.filled += direct;
            rest -= direct;
        }
        self.end = rest as usize;
    }

    /// Copies staged bytes into the part being filled; how many.
    pub(super) fn fill(&mut self, cx: &ExportContext<'_>, part: &mut Filling) -> u64 {
        let staged = self.staged();
        let room = part.rest(cx);
        let count = staged.length().min(room.length());
        room.copy_from(staged.slice(0, count).bytes());
        self.consume(count);
        part.filled += count as u64;
        count as u64
    }

    pub(super) fn into_memory(self) -> InputMemory {
        self.memory
    }
}
