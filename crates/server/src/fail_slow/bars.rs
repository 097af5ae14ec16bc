//! The slowest latencies that a healthy drive of a kind may have under a load.
//!
//! A busier drive answers later. Its latency follows from the number of I/Os in flight and from the time of
//! one of them when they come one after another. So a bar has a latency for an idle drive, and a time for
//! each I/O in flight.

use crate::drive::DriveKind;

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const MB: u64 = 1_000_000;

/// A bound on latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bar {
    /// Latency with nothing else in flight.
    base_ns: u64,
    /// Latency added by each I/O in flight.
    each_ns: u64,
    /// Transfer rate, which adds the time of the bytes themselves.
    bytes_per_s: u64,
}

impl Bar {
    /// Returns the highest median latency allowed with `queue_permille` / 1000 I/Os in flight on average, of
    /// mean size `size` in bytes.
    pub(super) fn allowed_ns(self, queue_permille: u64, size: u64) -> u64 {
        let transfer = u128::from(size) * 1_000_000_000 / u128::from(self.bytes_per_s);
        let queued = u128::from(queue_permille) * (u128::from(self.each_ns) + transfer) / 1000;
        u64::try_from(u128::from(self.base_ns) + transfer + queued).unwrap_or(u64::MAX)
    }
}

const fn bar(base_ns: u64, each_ns: u64, mb_per_s: u64) -> Bar {
    Bar { base_ns, each_ns, bytes_per_s: mb_per_s * MB }
}

/// Returns the bar that no healthy drive of the kind exceeds, whatever it was like before. `None` for kinds
/// that may be anything.
pub(super) fn worst(kind: DriveKind) -> Option<Bar> {
    match kind {
        DriveKind::Hdd => Some(bar(60 * MILLISECOND, 30 * MILLISECOND, 20)),
        DriveKind::Ssd => Some(bar(10 * MILLISECOND, 2 * MILLISECOND, 30)),
        DriveKind::Nvme => Some(bar(2 * MILLISECOND, 250 * MICROSECOND, 60)),
        DriveKind::Network => Some(bar(100 * MILLISECOND, 10 * MILLISECOND, 10)),
        DriveKind::Virtual | DriveKind::Unknown => None,
    }
}

/// Returns the bar up to which a drive of the kind may still be healthy, however fast it was before: a disk
/// that has to seek, or flash that collects garbage or has used up its fast cache.
pub(super) fn doubtful(kind: DriveKind) -> Bar {
    match kind {
        DriveKind::Hdd => bar(30 * MILLISECOND, 16 * MILLISECOND, 60),
        DriveKind::Ssd => bar(2 * MILLISECOND, 600 * MICROSECOND, 80),
        DriveKind::Nvme => bar(150 * MICROSECOND, 60 * MICROSECOND, 200),
        DriveKind::Network => bar(20 * MILLISECOND, MILLISECOND, 50),
        DriveKind::Virtual | DriveKind::Unknown => bar(20 * MILLISECOND, 2 * MILLISECOND, 50),
    }
}

/// Returns the factor by which a drive must have slowed down to be judged.
pub(super) fn slowdown(kind: DriveKind) -> u64 {
    match kind {
        DriveKind::Hdd | DriveKind::Ssd | DriveKind::Nvme | DriveKind::Network => 3,
        // The storage behind it is shared with others.
        DriveKind::Virtual | DriveKind::Unknown => 10,
    }
}

/// Returns the latency above which a single I/O is a stall. A hard disk may retry a sector for seconds.
pub(super) fn stall_ns(kind: DriveKind) -> u64 {
    match kind {
        DriveKind::Hdd => 5_000 * MILLISECOND,
        _ => 900 * MILLISECOND,
    }
}

/// Returns the noun for the kind in a sentence.
pub(super) fn noun(kind: DriveKind) -> &'static str {
    match kind {
        DriveKind::Hdd => "a hard disk",
        DriveKind::Ssd => "a SATA or SAS SSD",
        DriveKind::Nvme => "an NVMe drive",
        DriveKind::Network => "a network volume",
        DriveKind::Virtual | DriveKind::Unknown => "a drive",
    }
}

/// Returns advice on a slow drive of the kind.
pub(super) fn advice(kind: DriveKind) -> &'static str {
    match kind {
        DriveKind::Hdd | DriveKind::Ssd | DriveKind::Nvme => {
            "replace it, or look for what slows it (heat, cable, another user of the drive)"
        }
        DriveKind::Network => {
            "look at its provisioned rate and credits and at the network, or replace it"
        }
        DriveKind::Virtual | DriveKind::Unknown => "look at what is behind it, or replace it",
    }
}
