//! The processor time and memory of this process.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Processor and memory usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// Processor time of all threads since the process began.
    pub cpu_ns: u64,
    /// Resident memory in bytes, buffers included.
    pub resident_bytes: u64,
    /// Processor time over the last second, in thousandths of one processor.
    pub cpu_permille: u64,
}

/// Returns the processor time of this process since it began, in nanoseconds.
pub(super) fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the resident memory of this process in bytes; zero if the system does not tell.
pub(super) fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_works_takes_time_and_memory() {
        let before = cpu_ns();
        let mut sum = 0_u64;
        while cpu_ns() < before + 1_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(cpu_ns() > before && sum > 0);
        assert!(resident_bytes() > 1 << 20, "a test takes more than a megabyte");
    }
}
