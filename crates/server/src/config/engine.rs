//! The `[engine]` table: the engine's settings with units, one key for each field of
//! [`hemi_engine::settings::Settings`].

use std::fmt;

use hemi_engine::identifiers::LEGS_MAX;
use hemi_engine::settings::{ExposureMode, FlushCopies, Limits, Policy, Settings};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

use hemi_io::config::ConfigError;
use hemi_io::config::bounds::Bounds;
use hemi_units::{Size, Time};

/// Maximum number of debts held exactly: 105 MB per leg.
const OWED_EXTENTS_LIMIT: u32 = 1_048_576;

/// The `[engine]` table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
pub struct EngineConfig {
    /// The acknowledgement rule: `first`, `paper`, `all` or `write-behind`.
    pub policy: Policy,
    /// Number of legs on which a flush is durable before it is acknowledged: 1 to 8 or `"all"`.
    pub flush_copies: FlushCopiesConfig,
    /// Time after which a dead leg is durably marked out.
    pub out_after: Time,
    /// Data I/O in flight per leg. Writes beyond it become debt.
    pub leg_window: u32,
    /// Payload in flight per leg. Writes beyond it become debt.
    pub leg_window_bytes: Size,
    /// Largest single leg I/O of a drain.
    pub drain_bytes: Size,
    /// Idle time after which a touched region settles.
    pub clean_after: Time,
    /// Bound on the bytes of dirty regions. Idle regions stay armed within it.
    pub resync_bytes: Size,
    /// Client requests that the engine holds at once.
    pub requests_max: u32,
    /// Regions that may be dirty at once.
    pub dirty_regions_max: u32,
    /// Owed extents held exactly, per leg. Beyond it, whole regions are owed. Default: one for each 4 KiB of
    /// the exposure bound, within the allowed range and at least the engine's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owed_extents_max: Option<u32>,
    /// Part of the buffer budget that private copies of debts leave to requests in flight.
    pub copies_reserve: Size,
    /// Share of reads that may be hedged, in thousandths.
    pub hedge_permille: u32,
    /// Margin in percent by which another leg must be expected to be faster to be read from instead.
    pub read_hysteresis_percent: u32,
    /// Policy `paper`: time to wait for the other legs, in thousandths of the first completion's time.
    pub paper_wait_permille: u32,
    /// Policy `write-behind`: the slot of the slow leg.
    pub slow_leg: u32,
    /// Policy `write-behind`: the number of writes that this leg may owe.
    pub write_behind_limit: u32,
    /// Bounds on the data held by one leg only.
    pub exposure: ExposureConfig,
    /// Limits after which an I/O counts as frozen.
    pub wait: WaitConfig,
}

/// The `[engine.exposure]` table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
pub struct ExposureConfig {
    /// The bound in bytes.
    pub bytes: Size,
    /// The bound on the age of the oldest exposed write.
    pub age: Time,
    /// The action at the bound: `throttle` or `fall-behind`.
    pub mode: ExposureMode,
}

/// The `[engine.wait]` table. The wait limit is `multiple` × the leg's own 99.9 % quantile, within `floor`
/// and `ceiling`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
pub struct WaitConfig {
    /// The lowest wait limit.
    pub floor: Time,
    /// The highest wait limit.
    pub ceiling: Time,
    /// The multiple of the quantile.
    pub multiple: u32,
}

/// [`FlushCopies`] as written in the file: a number or `"all"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushCopiesConfig(pub FlushCopies);

impl Serialize for FlushCopiesConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            FlushCopies::All => serializer.serialize_str("all"),
            FlushCopies::Count(count) => serializer.serialize_u8(count),
        }
    }
}

impl<'de> Deserialize<'de> for FlushCopiesConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FlushCopiesConfig, D::Error> {
        struct CountOrAll;
        impl Visitor<'_> for CountOrAll {
            type Value = FlushCopiesConfig;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "a number of legs from 1 to {LEGS_MAX}, or \"all\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<FlushCopiesConfig, E> {
                match text {
                    "all" => Ok(FlushCopiesConfig(FlushCopies::All)),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }
            fn visit_i64<E: de::Error>(self, count: i64) -> Result<FlushCopiesConfig, E> {
                match u8::try_from(count) {
                    Ok(legs) if (1..=LEGS_MAX).contains(&usize::from(legs)) => {
                        Ok(FlushCopiesConfig(FlushCopies::Count(legs)))
                    }
                    _ => Err(E::invalid_value(de::Unexpected::Signed(count), &self)),
                }
            }
            fn visit_u64<E: de::Error>(self, count: u64) -> Result<FlushCopiesConfig, E> {
                // A number too large for `i64` is out of range like any other.
                self.visit_i64(i64::try_from(count).unwrap_or(i64::MAX))
            }
        }
        deserializer.deserialize_any(CountOrAll)
    }
}

impl From<Settings> for EngineConfig {
    fn from(settings: Settings) -> EngineConfig {
        EngineConfig {
            policy: settings.policy,
            flush_copies: FlushCopiesConfig(settings.flush_copies),
            out_after: Time(settings.out_after),
            leg_window: settings.leg_window,
            leg_window_bytes: Size(settings.leg_window_bytes),
            drain_bytes: Size(u64::from(settings.drain_bytes)),
            clean_after: Time(settings.clean_after),
            resync_bytes: Size(settings.resync_bytes),
            requests_max: settings.requests_max,
            dirty_regions_max: settings.dirty_regions_max,
            owed_extents_max: Some(settings.owed_extents_max),
            copies_reserve: Size(settings.copies_reserve),
            hedge_permille: settings.hedge_permille,
            read_hysteresis_percent: settings.read_hysteresis_percent,
            paper_wait_permille: settings.paper_wait_permille,
            slow_leg: u32::from(settings.slow_leg),
            write_behind_limit: settings.write_behind_limit,
            exposure: ExposureConfig {
                bytes: Size(settings.exposure_bytes),
                age: Time(settings.exposure_age),
                mode: settings.exposure_mode,
            },
            wait: WaitConfig {
                floor: Time(settings.wait_floor),
                ceiling: Time(settings.wait_ceiling),
                multiple: settings.wait_multiple,
            },
        }
    }
}

impl Default for EngineConfig {
    fn default() -> EngineConfig {
        let mut config = EngineConfig::from(Settings::default());
        config.owed_extents_max = None;
        config
    }
}

impl Default for ExposureConfig {
    fn default() -> ExposureConfig {
        EngineConfig::default().exposure
    }
}

impl Default for WaitConfig {
    fn default() -> WaitConfig {
        EngineConfig::default().wait
    }
}

impl EngineConfig {
    /// Returns the engine's settings. Values out of range, which [`super::Config::check`] refuses, are
    /// clamped to what the field holds.
    pub fn settings(&self) -> Settings {
        Settings {
            policy: self.policy,
            exposure_mode: self.exposure.mode,
            exposure_bytes: self.exposure.bytes.0,
            exposure_age: self.exposure.age.0,
            out_after: self.out_after.0,
            flush_copies: self.flush_copies.0,
            wait_floor: self.wait.floor.0,
            wait_ceiling: self.wait.ceiling.0,
            wait_multiple: self.wait.multiple,
            paper_wait_permille: self.paper_wait_permille,
            slow_leg: u8::try_from(self.slow_leg).unwrap_or(u8::MAX),
            write_behind_limit: self.write_behind_limit,
            leg_window: self.leg_window,
            leg_window_bytes: self.leg_window_bytes.0,
            drain_bytes: u32::try_from(self.drain_bytes.0).unwrap_or(u32::MAX),
            requests_max: self.requests_max,
            dirty_regions_max: self.dirty_regions_max,
            owed_extents_max: self.owed_extents_max(),
            copies_reserve: self.copies_reserve.0,
            clean_after: self.clean_after.0,
            resync_bytes: self.resync_bytes.0,
            hedge_permille: self.hedge_permille,
            read_hysteresis_percent: self.read_hysteresis_percent,
            limits: Limits::default(),
        }
    }

    /// Returns the bound on exact debts. Its default covers the exposure bound with small writes: beyond it
    /// whole regions are owed, which no other leg can take over before they are paid.
    fn owed_extents_max(&self) -> u32 {
        const SMALL_WRITE: u64 = 4096;
        self.owed_extents_max.unwrap_or_else(|| {
            let all_small = u32::try_from(self.exposure.bytes.0 / SMALL_WRITE).unwrap_or(u32::MAX);
            all_small.clamp(Settings::default().owed_extents_max, OWED_EXTENTS_LIMIT)
        })
    }

    #[rustfmt::skip]
    pub(super) fn bounds(&self, list: &mut Bounds) {
        let default = EngineConfig::default();
        let (exposure, wait) = (&self.exposure, &self.wait);
        list.time("engine.out_after", self.out_after, default.out_after, Time::seconds(1)..=Time::seconds(86_400));
        list.count("engine.leg_window", self.leg_window, default.leg_window, 1..=1024);
        list.size("engine.leg_window_bytes", self.leg_window_bytes, default.leg_window_bytes, Size::kib(64)..=Size::gib(64));
        list.size("engine.drain_bytes", self.drain_bytes, default.drain_bytes, Size::kib(64)..=Size::mib(16));
        list.time("engine.clean_after", self.clean_after, default.clean_after, Time::millis(100)..=Time::seconds(3600));
        list.size("engine.resync_bytes", self.resync_bytes, default.resync_bytes, Size(0)..=Size::gib(1 << 20));
        list.count("engine.requests_max", self.requests_max, default.requests_max, 64..=65_536);
        list.count("engine.dirty_regions_max", self.dirty_regions_max, default.dirty_regions_max, 64..=1_048_576);
        list.count("engine.owed_extents_max", self.owed_extents_max(), default.owed_extents_max(), 1024..=OWED_EXTENTS_LIMIT);
        list.size("engine.copies_reserve", self.copies_reserve, default.copies_reserve, Size::mib(1)..=Size::gib(64));
        list.count("engine.hedge_permille", self.hedge_permille, default.hedge_permille, 0..=1000);
        list.count("engine.read_hysteresis_percent", self.read_hysteresis_percent, default.read_hysteresis_percent, 0..=100);
        list.count("engine.paper_wait_permille", self.paper_wait_permille, default.paper_wait_permille, 1000..=100_000);
        list.count("engine.slow_leg", self.slow_leg, default.slow_leg, 0..=LEGS_MAX as u32 - 1);
        list.count("engine.write_behind_limit", self.write_behind_limit, default.write_behind_limit, 1..=16_383);
        list.size("engine.exposure.bytes", exposure.bytes, default.exposure.bytes, Size::mib(1)..=Size::gib(64));
        list.time("engine.exposure.age", exposure.age, default.exposure.age, Time::millis(100)..=Time::seconds(3600));
        list.time("engine.wait.floor", wait.floor, default.wait.floor, Time::millis(1)..=Time::seconds(10));
        list.time("engine.wait.ceiling", wait.ceiling, default.wait.ceiling, Time::millis(1)..=Time::seconds(60));
        list.count("engine.wait.multiple", wait.multiple, default.wait.multiple, 1..=100);
    }

    pub(super) fn faults(&self, faults: &mut Vec<ConfigError>) {
        /// Legs address 4 KiB blocks, and a drain I/O is a whole number of them.
        const DRAIN_BYTES_STEP: u64 = 4096;
        if self.wait.ceiling < self.wait.floor {
            faults.push(ConfigError::conflict(
                "engine.wait.ceiling",
                format!(
                    "{} is below engine.wait.floor ({}); raise it or lower the floor",
                    self.wait.ceiling, self.wait.floor
                ),
            ));
        }
        if self.out_after <= self.wait.ceiling {
            faults.push(ConfigError::conflict(
                "engine.out_after",
                format!(
                    "{} is not above engine.wait.ceiling ({}): a leg would be out before it \
                     counts as frozen",
                    self.out_after, self.wait.ceiling
                ),
            ));
        }
        if !self.drain_bytes.0.is_multiple_of(DRAIN_BYTES_STEP) {
            faults.push(ConfigError::conflict(
                "engine.drain_bytes",
                format!("{} is not a multiple of {DRAIN_BYTES_STEP} bytes", self.drain_bytes),
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_the_round_trip() {
        let settings = Settings {
            policy: Policy::WriteBehind,
            exposure_mode: ExposureMode::FallBehind,
            exposure_bytes: 2 << 20,
            exposure_age: 3_000_000_000,
            out_after: 4_000_000_000,
            flush_copies: FlushCopies::All,
            wait_floor: 5_000_000,
            wait_ceiling: 6_000_000,
            wait_multiple: 7,
            paper_wait_permille: 1800,
            slow_leg: 2,
            write_behind_limit: 9,
            leg_window: 10,
            leg_window_bytes: 10 << 20,
            drain_bytes: 11 << 16,
            requests_max: 120,
            dirty_regions_max: 130,
            owed_extents_max: 1400,
            copies_reserve: 14 << 20,
            clean_after: 15_000_000_000,
            resync_bytes: 18 << 30,
            hedge_permille: 16,
            read_hysteresis_percent: 17,
            limits: Limits::default(),
        };
        let back = EngineConfig::from(settings).settings();
        assert_eq!(format!("{back:?}"), format!("{settings:?}"));
    }

    #[test]
    fn small_writes_up_to_the_exposure_bound_are_owed_exactly() {
        let with_bound = |bytes| {
            let exposure = ExposureConfig { bytes, ..ExposureConfig::default() };
            EngineConfig { exposure, ..EngineConfig::default() }
        };
        assert_eq!(EngineConfig::default().settings().owed_extents_max, 65_536);
        assert_eq!(with_bound(Size::mib(1)).settings().owed_extents_max, 65_536);
        assert_eq!(with_bound(Size::gib(2)).settings().owed_extents_max, 524_288);
        assert_eq!(with_bound(Size::gib(64)).settings().owed_extents_max, 1_048_576);
        let fewer = EngineConfig { owed_extents_max: Some(2000), ..with_bound(Size::gib(2)) };
        assert_eq!(fewer.settings().owed_extents_max, 2000);
    }
}
