//! The stamps of one leg: which I/Os wait to be covered by one, and which is known durable.
//!
//! One stamp is written at a time, and covers every durable I/O that ended before it began;
//! what ends meanwhile waits for the next. So a leg under load pays one small write for many
//! flushes. See [`hemi_engine::format::stamp`].

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

/// Whether stamps are written.
#[derive(Clone, Copy, Debug)]
enum Mode {
    /// Not known yet: the leg has not been read.
    Unknown,
    /// Never: the leg has no superblock, so that nobody could tell the stamps' volume.
    Off,
    On {
        volume: Id,
    },
}

/// See the module.
#[derive(Debug)]
pub(super) struct Stamps {
    mode: Mode,
    progress: Progress,
    /// The highest number used or found.
    number: u64,
    /// The stamp being written, and the I/O that writes it.
    writing: Option<(Stamp, SlotId)>,
    /// I/Os covered by that one, and those that wait for the next.
    covered: Vec<SlotId>,
    waiting: Vec<SlotId>,
    /// The block being written.
    memory: Span,
}

impl Stamps {
    /// Stamps of a driver with this random name.
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

    /// Returns how far the leg is known to have come.
    pub(super) fn progress(&self) -> Progress {
        self.progress
    }

    /// Says whether [`Stamps::begin`] is still to be called.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self.mode, Mode::Unknown)
    }

    /// Begins to write stamps for a leg of this volume, above the one found. Without a volume
    /// none are ever written.
    pub(super) fn begin(&mut self, volume: Option<Id>, found: Option<Stamp>) {
        self.mode = volume.map_or(Mode::Off, |volume| Mode::On { volume });
        self.progress.known = found;
        self.number = found.map_or(0, |found| found.number);
    }

    /// Takes an I/O that ended durably. Returns false if nothing keeps it from being reported.
    pub(super) fn cover(&mut self, operation: SlotId) -> bool {
        let covers = !matches!(self.mode, Mode::Off);
        if covers {
            self.waiting.push(operation);
        }
        covers
    }

    /// Returns the stamp to be written now in the session of this number, if one is due. The
    /// caller names the I/O that writes it with [`Stamps::written_by`].
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

    /// The stamp last returned is written by this I/O.
    pub(super) fn written_by(&mut self, stamp: Stamp, operation: SlotId) {
        self.writing = Some((stamp, operation));
        std::mem::swap(&mut self.covered, &mut self.waiting);
    }

    /// An I/O ended. Says whether it was the one that wrote a stamp; then, if it went well,
    /// the stamp is known from here on, and [`Stamps::take_covered`] has what it covers.
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

    /// Returns an I/O that the stamp just ended covers, until there is none.
    pub(super) fn take_covered(&mut self) -> Option<SlotId> {
        self.covered.pop()
    }

    /// Returns an I/O that no stamp covers yet, until there is none.
    pub(super) fn take_waiting(&mut self) -> Option<SlotId> {
        self.waiting.pop()
    }

    /// The session is lost: nothing waits for a stamp any more.
    pub(super) fn lose(&mut self) {
        self.writing = None;
        self.covered.clear();
        self.waiting.clear();
    }
}
