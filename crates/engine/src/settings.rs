//! Every knob and bound of the engine, with its unit, default and reason.

use crate::command::CommandError;
use crate::identifiers::LEGS_MAX;
use hemi_units::{MILLISECOND, SECOND};

/// The acknowledgement rule of a volume. All keep every promise but P4, which only
/// `First` keeps in full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Policy {
    /// Acknowledge at the first safe completion; a leg is frozen against its own history.
    #[default]
    First,
    /// The rule of `First`, but every other leg is waited for until 1.3 × the first completion
    /// (Byun 2010), then owed.
    Paper,
    /// A plain mirror: acknowledge when every leg has it.
    All,
    /// Linux md's write-behind: the leg [`Settings::slow_leg`] may owe up to
    /// [`Settings::write_behind_limit`] writes; every other leg, and every flush on all
    /// legs, is waited for.
    WriteBehind,
}

/// The behaviour when exposure reaches its bound.
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

/// The number of legs that must have made a flush durable before it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushCopies {
    /// This many (1 to 8); fewer if fewer legs are in.
    Count(u8),
    /// Every leg that is not out.
    All,
}

/// The engine's settings. Times are nanoseconds, sizes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Acknowledgement rule.
    pub policy: Policy,
    /// Behaviour at the exposure bound.
    pub exposure_mode: ExposureMode,
    /// Exposure bound in bytes, a good many blocks. Default 256 MiB.
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
    /// Regions that may be dirty at once, beside those that requests in flight need; bounds the memory
    /// that records of them take. Default 65536.
    pub dirty_regions_max: u32,
    /// Bytes of dirty regions, at most, for idle ones to stay dirty and others to be armed beside
    /// them: what an unclean stop may have compared. With 0 a region becomes clean when it is idle,
    /// and a write to it pays for a record again. Default 64 GiB.
    pub resync_bytes: u64,
    /// Owed extents held exactly, per leg; beyond, whole regions are owed. Default 65536.
    pub owed_extents_max: u32,
    /// Buffer budget that debts' private copies leave to requests in flight, in bytes: below
    /// it, new debts keep no copy. Default 64 MiB.
    pub copies_reserve: u64,
    /// A touched region idle for this long settles. Default 5 s.
    pub clean_after: u64,
    /// Share of reads that may be hedged, per mille. Default 20.
    pub hedge_permille: u32,
    /// Read from another leg only where it is expected to be this much better, per cent.
    /// Default 12 (hysteresis against flapping between like legs).
    pub read_hysteresis_percent: u32,
    /// Work done in one go. No volume needs other than the defaults.
    pub limits: Limits,
}

/// Bounds of the work the engine does in one go, and of what it keeps for work in progress.
///
/// The defaults suit every volume, so the server does not offer them. They are settings for the
/// simulator: it draws tiny ones, so that the small volumes it tests end every batch in the
/// middle and run out of everything. Each may be as low as 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Operations of one request in flight at once; a larger request goes in steps. Default 16.
    pub operations_per_request: u32,
    /// Operations in flight at once beside one for each request. Default 1024.
    pub operations_more: u32,
    /// Largest leg I/O of a client's, in bytes, a multiple of the block; a longer request is
    /// split. Default 1 MiB.
    pub operation_bytes: u64,
    /// Region records beside `dirty_regions_max`, for each request. Default 2.
    pub records_per_request: u32,
    /// Region records looked at per tick for authority to return to a better leg. Default 4096.
    pub returns_per_tick: usize,
    /// Regions looked at for cleaning at each tick, and in one go for whether they depend on a leg that
    /// is to be marked out. Default 2048.
    pub cleans_per_tick: usize,
    /// Regions made whole for a leg at each tick. Default 8192.
    pub heals_per_tick: usize,
    /// Regions waiting for another authority whose debts are looked for first. Default 8.
    pub moves_looked_at: usize,
    /// Moves of authority tried with each input. Default 64.
    pub moves_per_input: usize,
    /// Room for debts that a leg needs to take up a region it owes as a whole: newer writes may
    /// cut it into this many before it is drained. Default 64.
    pub region_pieces: usize,
    /// Steps of a drain's sweep past debts that cannot go yet, before it gives up for now.
    /// Default 64.
    pub sweep_skips: usize,
    /// Debts looked at, the oldest first, for one that can go. Default 32.
    pub oldest_looked_at: usize,
    /// Debts looked at, among those somebody waits for, for one that can go. Default 256.
    pub urgent_looked_at: usize,
    /// Reads and writes in flight for each owing leg that span what it does not owe. Default 16:
    /// enough to keep the leg busy, and what a region that is waited for may have to wait behind.
    pub sieves: u32,
    /// Metadata writes in flight to one leg. Default 32.
    pub metadata_writes: usize,
    /// Metadata writes in flight to one leg of content nobody waits for. Default 4.
    pub lazy_writes: u32,
    /// Bytes a scrub compares at once, a multiple of the block. Default 256 KiB.
    pub scrub_bytes: u64,
    /// Pieces a scrub passes over at once before other work gets a turn. Default 256.
    pub scrub_pieces: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            operations_per_request: 16,
            operations_more: 1024,
            operation_bytes: 1 << 20,
            records_per_request: 2,
            returns_per_tick: 4096,
            cleans_per_tick: 2048,
            heals_per_tick: 8192,
            moves_looked_at: 8,
            moves_per_input: 64,
            region_pieces: 64,
            sweep_skips: 64,
            oldest_looked_at: 32,
            urgent_looked_at: 256,
            sieves: 16,
            metadata_writes: 32,
            lazy_writes: 4,
            scrub_bytes: 256 << 10,
            scrub_pieces: 256,
        }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            policy: Policy::First,
            exposure_mode: ExposureMode::Throttle,
            exposure_bytes: 256 << 20,
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
            dirty_regions_max: 65536,
            resync_bytes: 64 << 30,
            owed_extents_max: 65536,
            copies_reserve: 64 << 20,
            clean_after: 5 * SECOND,
            hedge_permille: 20,
            read_hysteresis_percent: 12,
            limits: Limits::default(),
        }
    }
}

impl Settings {
    /// Smallest exposure bound that a running engine takes, bytes.
    const EXPOSURE_MIN: u64 = 64 << 10;
    /// A drain's largest I/O is a whole number of these, bytes.
    const DRAIN_STEP: u32 = 4096;

    /// Returns these settings for a driver with a buffer budget of `bytes` and this many legs. The reserve
    /// for requests is at most half of the budget, so that a small one still has room for copies of
    /// debts. The bytes in flight to all legs are at most a quarter, so that frozen legs leave
    /// buffers for clients.
    pub fn within_buffers(self, bytes: u64, legs: usize) -> Settings {
        let leg_window_bytes = bytes / 4 / legs.max(1) as u64;
        Settings {
            copies_reserve: self.copies_reserve.min(bytes / 2),
            leg_window_bytes: self.leg_window_bytes.min(leg_window_bytes),
            ..self
        }
    }

    /// Returns `wanted`, if a running engine can go on with it from these settings.
    ///
    /// Settings that bound memory cannot change: it is taken at the start.
    ///
    /// # Errors
    /// [`CommandError::FixedSetting`] names the first setting that differs and cannot change;
    /// [`CommandError::BadSetting`] the first that no engine can run with.
    pub(crate) fn change(&self, wanted: &Settings) -> Result<Settings, CommandError> {
        // Field by field: one that is added has to be placed here.
        let Settings {
            policy: _,
            exposure_mode: _,
            exposure_bytes,
            exposure_age: _,
            out_after: _,
            flush_copies: _,
            wait_floor,
            wait_ceiling,
            wait_multiple: _,
            paper_wait_permille: _,
            slow_leg,
            write_behind_limit: _,
            leg_window,
            leg_window_bytes: _,
            drain_bytes,
            requests_max,
            dirty_regions_max,
            resync_bytes,
            owed_extents_max,
            copies_reserve: _,
            clean_after: _,
            hedge_permille: _,
            read_hysteresis_percent: _,
            limits,
        } = *wanted;
        let fixed = [
            ("leg_window", leg_window == self.leg_window),
            ("requests_max", requests_max == self.requests_max),
            ("dirty_regions_max", dirty_regions_max == self.dirty_regions_max),
            ("resync_bytes", resync_bytes == self.resync_bytes),
            ("owed_extents_max", owed_extents_max == self.owed_extents_max),
            ("limits", limits == self.limits),
        ];
        if let Some((name, _)) = fixed.into_iter().find(|(_, same)| !same) {
            return Err(CommandError::FixedSetting(name));
        }
        let drains = drain_bytes > 0 && drain_bytes % Settings::DRAIN_STEP == 0;
        let good = [
            ("exposure_bytes", exposure_bytes >= Settings::EXPOSURE_MIN),
            ("wait_ceiling", wait_ceiling >= wait_floor),
            ("slow_leg", usize::from(slow_leg) < LEGS_MAX),
            ("drain_bytes", drains),
        ];
        match good.into_iter().find(|(_, good)| !good) {
            Some((name, _)) => Err(CommandError::BadSetting(name)),
            None => Ok(*wanted),
        }
    }
}
