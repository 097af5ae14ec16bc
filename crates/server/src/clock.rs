//! The clock of the reactor and of the load engine.

use hemi_core::units::Instant;
use rustix::time::{ClockId, clock_gettime};

/// Now, on the monotonic clock: nanoseconds since some point before the process began.
pub fn now() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    Instant(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
