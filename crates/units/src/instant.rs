//! Points on a monotonic clock, and the nanoseconds between them.

use core::ops::{Add, Sub};

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
