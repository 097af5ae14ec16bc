//! The stamps of one leg: the I/Os that wait to be covered by one, and the newest one known to
//! be durable.
//!
//! One stamp is written at a time. It covers every durable I/O that ended before its write
//! began, and I/Os that end meanwhile wait for the next. So a leg under load pays one small
//! write for many flushes. See [`hemi_engine::format::stamp`].

use hemi_engine::format::block::{self, BLOCK_BYTES};
use hemi_engine::format::stamp::Progress;
use hemi_engine::format::{Id, Layout, Stamp};

use crate::memory::{Mapping, Span};
use crate::slots::SlotId;

/// A stamp to be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct NextStamp {
    pub(super) stamp: Stamp,
    /// First byte on the leg.
    pub(super) offset: u64,
    pub(super) data: Span,
}

/// The state of writing stamps.
#[derive(Clone, Copy, Debug)]
enum Mode {
    /// Not known yet, because the leg has not been read.
    Unknown,
    /// Never, because the leg has no superblock to tell the stamps' volume.
    Off,
    On {
        volume: Id,
    },
}

/// The stamps of a leg (see the module).
#[derive(Debug)]
pub(super) struct Stamps {
    mode: Mode,
    progress: Progress,
    /// The highest number used or found so far.
    number: u64,
    /// The stamp being written, and the I/O that writes it.
    writing: Option<(Stamp, SlotId)>,
    /// I/Os covered by that stamp (`covered`) and I/Os that wait for the next (`waiting`).
    covered: Vec<SlotId>,
    waiting: Vec<SlotId>,
    /// The block being written.
    memory: Span,
}

impl Stamps {
    /// Creates the stamps of a driver. `writer` is its random name.
    pub(super) fn new(writer: Id, capacity: usize) -> std::io::Result<Stamps> {
        Ok(Stamps {
            mode: Mode::Unknown,
            progress: Progress { known: None, writer },
            number: 0,
            writing: None,
            covered: Vec::with_capacity(capacity),
            waiting: Vec::with_capacity(capacity),
            memory: Mapping::new(BLOCK_BYTES, false)?.whole(),
        })
    }

    /// Returns the newest stamp known to be on the leg.
    pub(super) fn progress(&self) -> Progress {
        self.progress
    }

    /// Returns true if [`Stamps::begin`] is still to be called.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self.mode, Mode::Unknown)
    }

    /// Begins to write stamps for a leg of this volume, with numbers above that of the stamp
    /// found. Without a volume no stamp is ever written.
    pub(super) fn begin(&mut self, volume: Option<Id>, found: Option<Stamp>) {
        self.mode = volume.map_or(Mode::Off, |volume| Mode::On { volume });
        self.progress.known = found;
        self.number = found.map_or(0, |found| found.number);
    }

    /// Takes an I/O that ended durably. Returns false if it can be reported without a stamp.
    pub(super) fn cover(&mut self, operation: SlotId) -> bool {
        let covers = !matches!(self.mode, Mode::Off);
        if covers {
            self.waiting.push(operation);
        }
        covers
    }

    /// Returns the stamp to be written now in this session, if one is due. The caller passes
    /// the I/O that writes it to [`Stamps::written_by`].
    pub(super) fn next(&mut self, session: u64) -> Option<NextStamp> {
        let Mode::On { volume } = self.mode else { return None };
        if self.writing.is_some() || self.waiting.is_empty() {
            return None;
        }
        self.number += 1;
        let stamp = Stamp { writer: self.progress.writer, number: self.number };
        let slot = stamp.slot(session);
        let mut block = block::blank();
        stamp.encode(&mut block, slot, volume);
        self.memory.copy_from(&block);
        let offset = Layout::stamp_address(slot);
        Some(NextStamp { stamp, offset, data: self.memory })
    }

    /// Remembers the I/O that writes the stamp last returned.
    pub(super) fn written_by(&mut self, stamp: Stamp, operation: SlotId) {
        self.writing = Some((stamp, operation));
        std::mem::swap(&mut self.covered, &mut self.waiting);
    }

    /// Handles the end of an I/O. Returns true if it wrote a stamp. If it succeeded, the stamp
    /// is known from here on. [`Stamps::take_covered`] then returns the I/Os it covers.
    pub(super) fn ended(&mut self, operation: SlotId, is_ok: bool) -> bool {
        let Some((stamp, writing)) = self.writing else { return false };
        if writing != operation {
            return false;
        }
        self.writing = None;
        if is_ok {
            self.progress.known = Some(stamp);
        }
        true
    }

    /// Returns the next I/O covered by the stamp whose write has just ended.
    pub(super) fn take_covered(&mut self) -> Option<SlotId> {
        self.covered.pop()
    }

    /// Returns the next I/O that no stamp covers yet.
    pub(super) fn take_waiting(&mut self) -> Option<SlotId> {
        self.waiting.pop()
    }

    /// Drops all I/Os that wait for a stamp, because the session is lost.
    pub(super) fn lose(&mut self) {
        self.writing = None;
        self.covered.clear();
        self.waiting.clear();
    }
}
