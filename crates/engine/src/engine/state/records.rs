//! The engine's records: client requests, the operations they split into, leg I/O.

use crate::engine::state::debt::{Lacked, Since, Source};
use crate::engine::state::regions::metadata::BlockWrite;
use crate::engine::state::slab::{Key, NONE};
use crate::identifiers::{BufferAt, LEGS_MAX};
use hemi_units::{Extent, Instant};

/// How far an operation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Behind an overlapping operation.
    Locked,
    /// Waits for its region's intent to be durable, or for a record to hold it.
    Intent,
    /// Sent to the legs.
    Running,
}

/// One part of a request, within one region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperationState {
    pub(crate) request: u32,
    pub(crate) extent: Extent,
    pub(crate) region: u32,
    pub(crate) source: Source,
    pub(crate) is_read: bool,
    pub(crate) fua: bool,
    pub(crate) stage: Stage,
    pub(crate) started: Instant,
    /// When it was sent to the legs.
    pub(crate) sent: Instant,
    /// It is looked at again at a point in time.
    pub(crate) timed: bool,
    /// Its place among the range locks; [`NONE`] without one.
    pub(crate) lock: u32,
    /// Legs that have it.
    pub(crate) done: u8,
    /// Legs with it in flight.
    pub(crate) in_flight: u8,
    /// Legs that owe it.
    pub(crate) owed: u8,
    /// Legs where it took the place of an acknowledged debt: until it is there, and durable
    /// there, the leg lacks what was acknowledged before.
    pub(crate) carries: u8,
    /// Since when the first of these legs has lacked what was acknowledged before.
    pub(crate) carried_since: Since,
    /// Sectors of it that each leg lacks for that reason.
    pub(crate) carried: [Lacked; LEGS_MAX],
    /// Legs that failed it.
    pub(crate) failed: u8,
    /// Some leg failed it for want of space, and none for another reason.
    pub(crate) no_space: bool,
    /// When the first leg had it (`Policy::Paper`).
    pub(crate) first_done: Option<Instant>,
    /// It rewrites what was lost: the lost list must have forgotten that, durably, before the
    /// acknowledgement.
    pub(crate) rewrites_lost: bool,
    /// Reads: I/O outstanding, and whether any was given up.
    pub(crate) parts: u32,
    pub(crate) given_up: bool,
    /// Reads: given up because no leg that answers has it.
    pub(crate) stalled: bool,
    /// Reads: no leg can serve a part of it.
    pub(crate) unreadable: bool,
    /// Reads: a second leg has been asked.
    pub(crate) hedged: bool,
}

impl OperationState {
    pub(crate) fn new(request: u32, extent: Extent, region: u32, source: Source) -> Self {
        OperationState {
            request,
            extent,
            region,
            source,
            is_read: false,
            fua: false,
            stage: Stage::Locked,
            started: Instant(0),
            sent: Instant(0),
            timed: false,
            lock: NONE,
            done: 0,
            in_flight: 0,
            owed: 0,
            carries: 0,
            carried_since: Since::REBUILD,
            carried: [Lacked::default(); LEGS_MAX],
            failed: 0,
            no_space: false,
            first_done: None,
            rewrites_lost: false,
            parts: 0,
            given_up: false,
            stalled: false,
            unreadable: false,
            hedged: false,
        }
    }
}

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
