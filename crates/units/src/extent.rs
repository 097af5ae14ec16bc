//! Ranges of sectors.

/// Bytes in a sector: the unit of every extent, whatever a leg's own block size.
pub const SECTOR_BYTES: u64 = 512;

/// A range of sectors, `start` inclusive to `end` exclusive. Never wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// First sector.
    pub start: u64,
    /// One past the last sector.
    pub end: u64,
}

impl Extent {
    /// Returns the extent of `count` sectors from `start`.
    pub fn new(start: u64, count: u64) -> Extent {
        Extent { start, end: start + count }
    }

    /// Returns the length in sectors.
    pub fn sectors(self) -> u64 {
        self.end - self.start
    }

    /// Returns the length in bytes.
    pub fn bytes(self) -> u64 {
        self.sectors() * SECTOR_BYTES
    }

    /// Returns true if it holds no sector.
    pub fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// Returns true if the two share a sector.
    pub fn overlaps(self, other: Extent) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Returns true if `other` lies wholly within.
    pub fn contains(self, other: Extent) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// Returns the sectors that both hold, empty (with `start >= end`) if none.
    pub fn intersection(self, other: Extent) -> Extent {
        Extent { start: self.start.max(other.start), end: self.end.min(other.end) }
    }
}
