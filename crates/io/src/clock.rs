//! The clocks: a monotonic one for the reactor and the load engine, and the calendar for people.

use std::time::{SystemTime, UNIX_EPOCH};

use hemi_units::Instant;
use rustix::time::{ClockId, clock_gettime};

/// Returns the time on the monotonic clock, in nanoseconds since some point before the process began.
pub fn now() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    Instant(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Returns the time in milliseconds since 1970. A clock before that counts as zero.
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
