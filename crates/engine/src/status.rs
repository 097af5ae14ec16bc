//! A snapshot of the volume for status, metrics and the dashboard.

use alloc::vec::Vec;

use crate::histogram::LatencyHistogram;
use crate::identifiers::{LEGS_MAX, LegIndex};
use crate::io::OutReason;

/// The condition of a leg, worst first wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum LegState {
    /// The slot holds no leg.
    #[default]
    Empty,
    /// Answers and owes nothing old.
    Healthy,
    /// Answers, owes.
    Lagging,
    /// An I/O outlived its wait limit and has not come back.
    Frozen,
    /// Does not answer for a known reason (session lost, device gone).
    Gone,
    /// Durably excluded; draining if it answers.
    Out,
}

impl LegState {
    /// Returns the condition in a word, as status and metrics name it.
    pub fn name(self) -> &'static str {
        match self {
            LegState::Empty => "empty",
            LegState::Healthy => "healthy",
            LegState::Lagging => "lagging",
            LegState::Frozen => "frozen",
            LegState::Gone => "gone",
            LegState::Out => "out",
        }
    }
}

/// One leg, now and since the volume was opened.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LegStatus {
    /// Slot.
    pub leg: u8,
    /// Condition.
    pub state: LegState,
    /// True if it is steadily later than the fastest leg.
    pub slow: bool,
    /// The reason why it is out, if it is.
    pub out_reason: Option<OutReason>,
    /// True if it is out, was not detached, and is of no use: its device is not there, it has been silent for
    /// `out_after`, or its writes keep failing.
    pub dead: bool,
    /// Bytes it lacks (acknowledged, in volume bytes).
    pub owed_bytes: u64,
    /// Bytes among these that are owed as whole regions (rebuild, after a crash, overflow).
    pub owed_region_bytes: u64,
    /// Age of its oldest exact debt, nanoseconds.
    pub owed_age: u64,
    /// I/O in flight.
    pub in_flight: u32,
    /// Age of the oldest I/O in flight, nanoseconds; zero if none is.
    pub oldest_io: u64,
    /// The effective wait limit for a 4 KiB write, nanoseconds.
    pub write_wait_limit: u64,
    /// The effective wait limit for a 4 KiB read, nanoseconds.
    pub read_wait_limit: u64,
    /// The longest of its wait limits, of reads and writes of any size, nanoseconds.
    pub longest_wait_limit: u64,
    /// Read latencies since open.
    pub reads: LatencyHistogram,
    /// Write latencies since open.
    pub writes: LatencyHistogram,
    /// Flush latencies since open.
    pub flushes: LatencyHistogram,
    /// Bytes read from it.
    pub read_bytes: u64,
    /// Bytes written to it.
    pub written_bytes: u64,
    /// Times it froze.
    pub freezes: u64,
    /// Total time frozen, nanoseconds.
    pub frozen_time: u64,
    /// Longest freeze, nanoseconds.
    pub longest_freeze: u64,
    /// Drain I/Os.
    pub drain_ios: u64,
    /// Bytes drained.
    pub drained_bytes: u64,
    /// Bytes it owed after an unclean stop and was found to hold.
    pub compared_bytes: u64,
    /// Metadata pages written.
    pub metadata_writes: u64,
    /// I/O errors.
    pub errors: u64,
    /// Dirty regions whose authority it is.
    pub authority_regions: u32,
}

/// The volume, now and since it was opened.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Status {
    /// Every slot in use.
    pub legs: Vec<LegStatus>,
    /// Acknowledged bytes held by one leg only (an upper bound with three legs or more).
    pub exposure_bytes: u64,
    /// Age of the oldest of them, nanoseconds (an upper bound with three legs or more).
    pub exposure_age: u64,
    /// Highest exposure since open, bytes.
    pub exposure_peak: u64,
    /// The bounds in force.
    pub exposure_bytes_bound: u64,
    /// Age bound, nanoseconds.
    pub exposure_age_bound: u64,
    /// True if writers are being held back.
    pub throttling: bool,
    /// True if every leg is whole and identical.
    pub converged: bool,
    /// Bytes no leg holds any more (EIO until rewritten).
    pub lost_bytes: u64,
    /// Dirty regions, armed ones included: an unclean stop has them compared.
    pub dirty_regions: u32,
    /// Armed regions: dirty, but nothing was written there since every whole leg had flushed it.
    pub armed_regions: u32,
    /// Client requests in the engine.
    pub requests: u32,
    /// Client reads answered.
    pub reads: u64,
    /// Client writes answered, of data.
    pub writes: u64,
    /// Client requests for zeros answered: write-zeroes and trims.
    pub zeroes: u64,
    /// Client flushes answered.
    pub flushes: u64,
    /// Client requests that failed.
    pub failed: u64,
    /// Bytes of client reads answered.
    pub read_bytes: u64,
    /// Bytes of client writes answered, of data.
    pub written_bytes: u64,
    /// Reads hedged.
    pub hedges: u64,
    /// Hedges that answered first.
    pub hedges_won: u64,
    /// Authority moves (regions).
    pub authority_moves: u64,
    /// Intent: regions made dirty.
    pub regions_dirtied: u64,
    /// Regions cleaned.
    pub regions_cleaned: u64,
    /// Bad extents rewritten.
    pub repairs: u64,
    /// Scrub progress: sectors compared of how many; `None` when none runs.
    pub scrub: Option<(u64, u64)>,
    /// Sectors found different by the last or running scrub.
    pub scrub_mismatches: u64,
    /// Sectors in which legs are known to differ now.
    pub different: u64,
    /// Sectors that a leg could not read in the last or running scrub, by whole pieces.
    pub scrub_unreadable: u64,
    /// Client latencies: reads.
    pub client_reads: LatencyHistogram,
    /// Client latencies: writes of data.
    pub client_writes: LatencyHistogram,
    /// Client latencies: write-zeroes and trims, each of which may be the whole volume.
    pub client_zeroes: LatencyHistogram,
    /// Client latencies: flushes.
    pub client_flushes: LatencyHistogram,
}

/// A census of some regions: how many are in which condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionCounts {
    /// All of them.
    pub regions: u32,
    /// Those that a leg decides, being touched, by the leg's slot.
    pub decided: [u32; LEGS_MAX],
    /// Armed ones.
    pub armed: u32,
    /// Those in which a leg lacks something acknowledged.
    pub owed: u32,
}

impl core::ops::AddAssign for RegionCounts {
    fn add_assign(&mut self, other: RegionCounts) {
        self.regions += other.regions;
        self.armed += other.armed;
        self.owed += other.owed;
        for (own, others) in self.decided.iter_mut().zip(other.decided) {
            *own += others;
        }
    }
}

impl RegionCounts {
    /// Returns how many are touched: written to since every whole leg had flushed them.
    pub fn touched(&self) -> u32 {
        self.decided.iter().sum()
    }

    /// Returns the leg that decides the most of them; `None` if none is touched.
    pub fn authority(&self) -> Option<LegIndex> {
        let count = self.decided.into_iter().max().filter(|&count| count > 0)?;
        let leg = self.decided.iter().position(|&of_leg| of_leg == count)?;
        Some(LegIndex(leg as u8))
    }
}
