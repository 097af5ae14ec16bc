//! Units and small identifiers: times, sector ranges, legs, buffers.
//!
//! One type per thing, so that a byte never passes for a sector nor a leg for a buffer.

use core::ops::{Add, Sub};

/// Bytes in a sector: the unit of every extent, whatever a leg's own block size.
pub const SECTOR_BYTES: u64 = 512;

/// Most legs a volume can have; leg sets are 8-bit masks on disk and in memory.
pub const LEGS_MAX: usize = 8;

/// A point on the driver's monotonic clock, in nanoseconds.
///
/// The engine never reads a clock: every input carries one of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// Later than every real time; "no deadline".
    pub const NEVER: Instant = Instant(u64::MAX);

    /// Nanoseconds from `earlier` to `self`, zero if `earlier` is later.
    pub fn since(self, earlier: Instant) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<u64> for Instant {
    type Output = Instant;
    fn add(self, nanoseconds: u64) -> Instant {
        Instant(self.0.saturating_add(nanoseconds))
    }
}

impl Sub<u64> for Instant {
    type Output = Instant;
    fn sub(self, nanoseconds: u64) -> Instant {
        Instant(self.0.saturating_sub(nanoseconds))
    }
}

/// Nanoseconds in a microsecond.
pub const MICROSECOND: u64 = 1_000;
/// Nanoseconds in a millisecond.
pub const MILLISECOND: u64 = 1_000_000;
/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;

/// A leg's slot in the volume: 0 to [`LEGS_MAX`] − 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LegIndex(pub u8);

impl LegIndex {
    /// The slot as an array index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The slot's bit in a leg mask.
    pub fn bit(self) -> u8 {
        1 << self.0
    }
}

/// A range of sectors, `start` inclusive to `end` exclusive. Never wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// First sector.
    pub start: u64,
    /// One past the last sector.
    pub end: u64,
}

impl Extent {
    /// The extent of `count` sectors from `start`.
    pub fn new(start: u64, count: u64) -> Extent {
        Extent { start, end: start + count }
    }

    /// Length in sectors.
    pub fn sectors(self) -> u64 {
        self.end - self.start
    }

    /// Length in bytes.
    pub fn bytes(self) -> u64 {
        self.sectors() * SECTOR_BYTES
    }

    /// Whether it holds no sector.
    pub fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// Whether the two share a sector.
    pub fn overlaps(self, other: Extent) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Whether `other` lies wholly within.
    pub fn contains(self, other: Extent) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// The sectors both hold; empty (with `start >= end`) if none.
    pub fn intersection(self, other: Extent) -> Extent {
        Extent { start: self.start.max(other.start), end: self.end.min(other.end) }
    }
}

/// Names a payload buffer of the driver's; the engine never sees its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId(pub u32);

/// A place in a buffer: `offset` sectors in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferAt {
    /// The buffer.
    pub buffer: BufferId,
    /// Sectors from its beginning.
    pub offset: u32,
}

/// Names one leg I/O from its [`crate::io::LegIo`] to its completion.
///
/// Holds a slot and that slot's generation, so that a late or repeated completion is
/// recognised and refused rather than taken for another I/O's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoId(pub u64);
