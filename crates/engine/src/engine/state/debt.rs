//! The delay queue of one leg: which extents it owes, exactly, and where their data is.
//!
//! Debts are disjoint, ordered by sector for the drain and linked by age for the exposure
//! bound. A debt either keeps its data (a reference to the client's buffer), is zeros, or
//! has no copy and is read from a fresh leg when it is drained. A newer write carves what it
//! covers out of older debts: newer data supersedes queued data.

mod queue;

pub(in crate::engine) use queue::Debts;

use crate::engine::state::slab::{Key, NONE};
use crate::identifiers::BufferAt;
use crate::io::Buffers;
use hemi_units::{Extent, Instant};

/// The place of a debt's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// It is on a fresh leg only.
    Leg,
    /// Nowhere: it is zeros.
    Zero { may_unmap: bool },
    /// In a buffer the debt holds a reference to.
    Buffer(BufferAt),
}

impl Source {
    /// The source of a piece `sectors` into this one.
    pub(crate) fn skip(self, sectors: u64) -> Source {
        match self {
            Source::Buffer(at) => {
                Source::Buffer(BufferAt { buffer: at.buffer, offset: at.offset + sectors as u32 })
            }
            other => other,
        }
    }

    pub(crate) fn retain<B: Buffers>(self, buffers: &mut B) {
        if let Source::Buffer(at) = self {
            buffers.retain(at.buffer);
        }
    }

    pub(crate) fn release<B: Buffers>(self, buffers: &mut B) {
        if let Source::Buffer(at) = self {
            buffers.release(at.buffer);
        }
    }
}

/// The time since which a leg has lacked something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Since {
    /// Time at which its data arrived from a client. Data that has taken the place of older data is
    /// young again: nobody needs the older any more.
    pub(crate) arrived: Instant,
    /// Arrival of the oldest acknowledged write that the leg lacks there, even of one that has been
    /// superseded: a flush may have covered it.
    pub(crate) lacked: Instant,
}

impl Since {
    /// Part of a region taken up because the leg owes all of it (a rebuild, a crash): no new
    /// exposure, and of no age.
    pub(crate) const REBUILD: Since = Since { arrived: Instant::NEVER, lacked: Instant::NEVER };

    pub(crate) fn at(arrived: Instant) -> Since {
        Since { arrived, lacked: arrived }
    }

    pub(crate) fn is_rebuild(self) -> bool {
        self.arrived == Instant::NEVER
    }

    /// Returns true if something older is lacked there.
    fn is_superseding(self) -> bool {
        self.lacked < self.arrived
    }

    /// Joins two: since when the older of both is lacked.
    pub(crate) fn or(self, other: Since) -> Since {
        Since { arrived: self.arrived.min(other.arrived), lacked: self.lacked.min(other.lacked) }
    }

    /// Returns the same, with something acknowledged lacked beneath it for that long.
    pub(crate) fn beneath(self, older: Since) -> Since {
        Since { lacked: self.lacked.min(older.lacked), ..self }
    }
}

/// One owed extent. It never spans two regions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Debt {
    pub(crate) extent: Extent,
    pub(crate) source: Source,
    pub(crate) since: Since,
    /// The operation it belongs to while that is not acknowledged; [`Key::NONE`] after.
    pub(crate) operation: Key,
    /// Not to be tried again before this time (after a failure).
    pub(crate) not_before: Instant,
    /// It rewrites what the leg's medium could not read.
    pub(crate) repair: bool,
    /// The leg may hold it already: it is written only where that differs.
    pub(crate) compare: bool,
    /// The number of times it could not be read from a fresh leg.
    pub(crate) tries: u8,
    /// The round in which no leg that answers was found fresh for it; zero for none.
    waits_since: u32,
    older: u32,
    newer: u32,
}

impl Debt {
    pub(crate) fn new(extent: Extent, source: Source, since: Since, operation: Key) -> Debt {
        let not_before = Instant(0);
        Debt {
            extent,
            source,
            since,
            operation,
            not_before,
            repair: false,
            compare: false,
            tries: 0,
            waits_since: 0,
            older: NONE,
            newer: NONE,
        }
    }

    pub(crate) fn is_acknowledged(&self) -> bool {
        self.operation == Key::NONE
    }

    /// Returns true for a part of a region taken up because the leg owes all of it.
    pub(crate) fn is_rebuild(&self) -> bool {
        self.since.is_rebuild()
    }
}

/// Sectors that a leg lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lacked {
    /// Sectors written since the leg was whole: exposure.
    pub(crate) exact: u64,
    /// Sectors of regions owed as a whole.
    pub(crate) rebuild: u64,
}

impl Lacked {
    /// Returns this many sectors of either kind.
    pub(crate) fn of(is_rebuild: bool, sectors: u64) -> Lacked {
        if is_rebuild {
            Lacked { exact: 0, rebuild: sectors }
        } else {
            Lacked { exact: sectors, rebuild: 0 }
        }
    }

    /// Returns as much as comes to at most `sectors` of each kind together with what is `there`.
    pub(crate) fn beside(self, there: Lacked, sectors: u64) -> Lacked {
        let exact = self.exact.min(sectors - there.exact);
        Lacked { exact, rebuild: self.rebuild.min(sectors - there.rebuild) }
    }
}

impl core::ops::AddAssign for Lacked {
    fn add_assign(&mut self, other: Lacked) {
        self.exact += other.exact;
        self.rebuild += other.rebuild;
    }
}

impl core::ops::SubAssign for Lacked {
    fn sub_assign(&mut self, other: Lacked) {
        self.exact -= other.exact;
        self.rebuild -= other.rebuild;
    }
}

impl core::iter::Sum for Lacked {
    fn sum<I: Iterator<Item = Lacked>>(parts: I) -> Lacked {
        parts.fold(Lacked::default(), |mut sum, part| {
            sum += part;
            sum
        })
    }
}

/// The effect of carving on the bookkeeping of the region.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Carved {
    /// Acknowledged debts gained (by splits) or lost.
    pub(crate) debts: i32,
    /// An acknowledged debt was carved.
    pub(crate) superseded: bool,
    /// Acknowledged sectors carved.
    pub(crate) sectors: Lacked,
    /// Time since which something acknowledged that was carved has been lacked, if anything was.
    pub(crate) since: Option<Since>,
}
