//! The engine's records: client requests, the operations they split into, leg I/O.

use crate::engine::state::debt::{Since, Source};
use crate::engine::state::regions::metadata::BlockWrite;
use crate::engine::state::slab::{Key, NONE};
use crate::identifiers::BufferAt;
use hemi_units::{Extent, Instant};

/// What a leg I/O is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// A client's read (part of an operation); stale once given up.
    Read {
        operation: Key,
    },
    /// A second read of the same, into a buffer of its own.
    Hedge {
        operation: Key,
    },
    /// A write: a client's, or a debt being paid. Acknowledged once the key is stale.
    Write {
        operation: Key,
        since: Since,
        drain: bool,
        repair: bool,
        /// Sectors written along that the leg did not owe.
        gaps: u32,
    },
    /// The read half of paying a debt without a copy. The range is held on `target`.
    DrainRead {
        target: u8,
        since: Since,
        repair: bool,
        tries: u8,
        /// Reads what the target holds as well, and writes only where that differs.
        compare: bool,
    },
    /// The second read of such a debt, on the leg that owes it, to be held against the data that
    /// was read `from` another.
    Compare {
        reference: BufferAt,
        from: u8,
        since: Since,
    },
    /// The read half of paying several debts with one write, gaps included. The range is held
    /// on `target`; debts in it from before `started` are the ones to pay.
    Sieve {
        target: u8,
        started: Instant,
    },
    /// A debt's read that was given up because its leg fell silent. If it ends well all the same
    /// and this is still the debt, it pays it.
    LateRead {
        target: u8,
        debt: Key,
    },
    /// A read given up: only its buffer matters.
    Abandoned,
    Flush,
    Metadata(BlockWrite),
    Scrub,
}

/// A leg I/O in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Io {
    pub(crate) leg: u8,
    pub(crate) purpose: Purpose,
    /// Volume sectors (leg sectors for metadata).
    pub(crate) extent: Extent,
    pub(crate) source: Source,
    pub(crate) submitted: Instant,
    pub(crate) older: u32,
    pub(crate) newer: u32,
}

impl Io {
    pub(crate) fn new(leg: u8, purpose: Purpose, extent: Extent, source: Source) -> Io {
        let submitted = Instant(0);
        Io { leg, purpose, extent, source, submitted, older: NONE, newer: NONE }
    }

    /// Sectors of a buffer it holds.
    pub(crate) fn payload_sectors(&self) -> u64 {
        self.buffer().map_or(0, |_| self.extent.sectors())
    }

    pub(crate) fn buffer(&self) -> Option<BufferAt> {
        match self.source {
            Source::Buffer(at) => Some(at),
            _ => None,
        }
    }
}
