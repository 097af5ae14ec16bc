//! Every knob and bound of the engine, with its unit, default and reason.

use crate::units::{MILLISECOND, SECOND};

/// Which acknowledgement rule a volume uses. All keep every promise but P4, which only
/// `First` keeps in full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Policy {
    /// Acknowledge at the first safe completion; a leg is frozen against its own history.
    #[default]
    First,
    /// As `First`, but every other leg is waited for until 1.3 × the first completion
    /// (Byun 2010), then owed.
    Paper,
    /// A plain mirror: acknowledge when every leg has it.
    All,
    /// Linux md's write-behind: the leg [`Settings::slow_leg`] may owe up to
    /// [`Settings::write_behind_limit`] writes; every other leg, and every flush on all
    /// legs, is waited for.
    WriteBehind,
}

/// What happens when exposure reaches its bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum ExposureMode {
    /// Slow writers gradually from half the bound; never exceed it.
    #[default]
    Throttle,
    /// Let exposure grow; memory stays bounded.
    FallBehind,
}

/// How many legs must have made a flush durable before it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushCopies {
    /// This many (1 to 8); fewer if fewer legs are in.
    Count(u8),
    /// Every leg that is not out.
    All,
}

/// The engine's settings. Times are nanoseconds, sizes bytes.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Acknowledgement rule.
    pub policy: Policy,
    /// At the exposure bound.
    pub exposure_mode: ExposureMode,
    /// Exposure bound in bytes, a good many blocks. Default 64 MiB.
    pub exposure_bytes: u64,
    /// Exposure bound in age. Default 5 s.
    pub exposure_age: u64,
    /// A leg dead for this long is durably marked out. Default 60 s.
    pub out_after: u64,
    /// Flush durability. Default 1.
    pub flush_copies: FlushCopies,
    /// Lowest wait limit, below which no I/O counts as frozen. Default 20 ms: above a
    /// loaded SSD's usual collection pause, below what a database notices.
    pub wait_floor: u64,
    /// Highest wait limit. Default 1 s.
    pub wait_ceiling: u64,
    /// The wait limit is this many times the leg's own 99.9 % quantile. Default 3.
    pub wait_multiple: u32,
    /// `Policy::Paper`: per mille of the first completion to wait for the others.
    /// Default 1300.
    pub paper_wait_permille: u32,
    /// `Policy::WriteBehind`: the slot of the slow leg. Default 1.
    pub slow_leg: u8,
    /// `Policy::WriteBehind`: how many writes that leg may owe. Default 256, md's own.
    pub write_behind_limit: u32,
    /// Data I/O in flight per leg before further writes become debt. Default 64.
    pub leg_window: u32,
    /// Payload of these, in bytes, from which on further writes become debt as well and drains
    /// wait: what a leg that freezes can hold of the buffer budget, the first aside. Default
    /// 32 MiB.
    pub leg_window_bytes: u64,
    /// Largest single leg I/O of a drain, in bytes. Default 1 MiB.
    pub drain_bytes: u32,
    /// Client requests the engine holds at once. Default 4096.
    pub requests_max: u32,
    /// Regions that may be dirty at once, beside those requests under way need; bounds the
    /// copying after a crash. Default 16384.
    pub dirty_regions_max: u32,
    /// Owed extents held exactly, per leg; beyond, whole regions are owed. Default 65536.
    pub owed_extents_max: u32,
    /// Buffer budget that debts' private copies leave to requests under way, in bytes: below
    /// it, new debts keep no copy. Default 64 MiB.
    pub copies_reserve: u64,
    /// A dirty region untouched for this long is cleaned. Default 5 s.
    pub clean_after: u64,
    /// Share of reads that may be hedged, per mille. Default 20.
    pub hedge_permille: u32,
    /// Read from another leg only where it is expected to be this much better, per cent.
    /// Default 12 (hysteresis against flapping between like legs).
    pub read_hysteresis_percent: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            policy: Policy::First,
            exposure_mode: ExposureMode::Throttle,
            exposure_bytes: 64 << 20,
            exposure_age: 5 * SECOND,
            out_after: 60 * SECOND,
            flush_copies: FlushCopies::Count(1),
            wait_floor: 20 * MILLISECOND,
            wait_ceiling: SECOND,
            wait_multiple: 3,
            paper_wait_permille: 1300,
            slow_leg: 1,
            write_behind_limit: 256,
            leg_window: 64,
            leg_window_bytes: 32 << 20,
            drain_bytes: 1 << 20,
            requests_max: 4096,
            dirty_regions_max: 16384,
            owed_extents_max: 65536,
            copies_reserve: 64 << 20,
            clean_after: 5 * SECOND,
            hedge_permille: 20,
            read_hysteresis_percent: 12,
        }
    }
}
