//! The drives behind the legs: their model, their health, and how long their endurance lasts.
//!
//! A thread of its own ([`watch`]) finds the whole disks behind each local leg ([`disks`]), asks
//! `smartctl` or `nvme` about them ([`smart`]), and publishes what it has learned as [`Drives`].
//! Control reads it. The data path knows nothing of all this, and no data is ever decided by it. A
//! figure that is not known is absent, and [`DriveStatus::why_unknown`] says why.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::control::api::{LegStatus, VolumeStatus};
use crate::fail_slow::Verdict;

mod disks;
mod identity;
mod keep;
mod nvme;
mod pace;
mod smart;
mod tool;
pub(crate) mod watch;
mod wear;

/// The kind of a drive, which says how fast it should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriveKind {
    /// A hard disk.
    Hdd,
    /// Flash behind SATA, SAS or USB.
    Ssd,
    /// Flash behind NVMe.
    Nvme,
    /// A volume of a provider, or another machine's.
    Network,
    /// A disk of a virtual machine, or memory: anything may be behind it.
    Virtual,
    /// Not known.
    #[default]
    Unknown,
}

impl DriveKind {
    /// Returns the name that the API and the metrics have for it.
    pub fn name(self) -> &'static str {
        match self {
            DriveKind::Hdd => "hdd",
            DriveKind::Ssd => "ssd",
            DriveKind::Nvme => "nvme",
            DriveKind::Network => "network",
            DriveKind::Virtual => "virtual",
            DriveKind::Unknown => "unknown",
        }
    }
}

/// One drive. What is not known is `null`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DriveStatus {
    /// Path of the whole disk, as `/dev/nvme0n1`.
    pub device: Option<String>,
    /// Its kind.
    pub kind: DriveKind,
    /// Model.
    pub model: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
    /// Version of its firmware.
    pub firmware: Option<String>,
    /// True of a disk that rotates, as the kernel has it.
    pub rotational: Option<bool>,
    /// Temperature.
    pub temperature_celsius: Option<i32>,
    /// Part of the rated endurance that is used, of a thousand. May exceed 1000.
    pub used_permille: Option<u32>,
    /// Data that the drive could not read or keep, counted over its life.
    pub media_errors: Option<u64>,
    /// Time it was powered on.
    pub power_on_hours: Option<u64>,
    /// Bytes that hosts have written to it in its life.
    pub written_bytes: Option<u64>,
    /// True if the drive says of itself that it fails.
    pub failing: Option<bool>,
    /// Endurance used up in a year at the present rate, of a thousand.
    pub wear_permille_per_year: Option<u32>,
    /// The time at which the rated endurance ends at the present rate of wear.
    pub rated_end_at_ms: Option<u64>,
    /// The reason why no such time is known, where the drive counts its wear.
    pub why_no_rated_end: Option<String>,
    /// The time at which the drive was last asked with success.
    pub read_at_ms: Option<u64>,
    /// The reason why figures are absent or old; `null` if the drive was read at the last try.
    pub why_unknown: Option<String>,
}

impl DriveStatus {
    /// Returns a drive of which nothing is known, for this reason.
    pub(crate) fn unknown(why: impl Into<String>) -> DriveStatus {
        DriveStatus { why_unknown: Some(why.into()), ..DriveStatus::default() }
    }
}

/// The drives of one leg, and the verdict on it.
#[derive(Clone, Debug, Default)]
pub(crate) struct LegDrives {
    /// The leg's spec: another one in the slot has other drives.
    pub(crate) spec: String,
    /// The drives behind it.
    pub(crate) drives: Vec<DriveStatus>,
    /// The judgement that it is slower than it should be.
    pub(crate) verdict: Option<Verdict>,
}

/// The drives of every leg, by slot. The watching thread writes them, and control reads them.
#[derive(Debug, Default)]
pub(crate) struct Drives {
    legs: Mutex<HashMap<u8, LegDrives>>,
    judged: Mutex<Vec<Judged>>,
}

/// A verdict on a leg that has changed: the leg's slot, and the verdict now in force.
pub(crate) type Judged = (u8, Option<Verdict>);

/// Most changes of verdicts that wait to be told. Each leg has one in twelve minutes at most.
const JUDGED_MAX: usize = 64;

impl Drives {
    /// Returns the legs' drives for reading or changing. Nobody holds them for longer than a copy takes.
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<u8, LegDrives>> {
        self.legs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the verdict on a leg has changed.
    fn judge(&self, leg: u8, verdict: Option<Verdict>) {
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        if judged.len() < JUDGED_MAX {
            judged.push((leg, verdict));
        }
    }

    /// Takes the verdicts that have changed since the last call, in order.
    pub(crate) fn take_judged(&self) -> Vec<Judged> {
        std::mem::take(&mut self.judged.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds what is known to a status.
    pub(crate) fn show_in(&self, status: &mut VolumeStatus) {
        let legs = self.lock();
        for leg in &mut status.legs {
            if let Some(known) = legs.get(&leg.leg).filter(|known| known.spec == leg.path) {
                known.show_in(leg);
            }
        }
    }
}

impl LegDrives {
    fn show_in(&self, leg: &mut LegStatus) {
        leg.drive = worst(&self.drives).cloned();
        leg.drives.clone_from(&self.drives);
        leg.verdict.clone_from(&self.verdict);
    }
}

/// Returns the drive that needs attention first: a failing one, else the most worn, else the hottest.
fn worst(drives: &[DriveStatus]) -> Option<&DriveStatus> {
    let rank = |drive: &DriveStatus| {
        (drive.failing == Some(true), drive.used_permille, drive.temperature_celsius)
    };
    // Of equals the first.
    drives.iter().rev().max_by_key(|drive| rank(drive))
}

/// Returns the date of a time in unix milliseconds, as `2031-05-09` (UTC).
pub fn date(unix_ms: u64) -> String {
    // Days of the proleptic Gregorian calendar, in eras of 400 years that begin in March: the leap day is
    // the last of a year.
    const ERA_DAYS: u64 = 146_097;
    let days = unix_ms / 86_400_000 + 719_468;
    let (era, day) = (days / ERA_DAYS, days % ERA_DAYS);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_the_calendars() {
        for (ms, expected) in [
            (0, "1970-01-01"),
            (951_782_400_000, "2000-02-29"),
            (951_868_800_000, "2000-03-01"),
            (1_735_689_599_999, "2024-12-31"),
            (4_107_542_400_000, "2100-03-01"),
        ] {
            assert_eq!(date(ms), expected);
        }
        date(u64::MAX);
    }

    #[test]
    fn a_leg_shows_the_drive_that_needs_attention() {
        let drive = |device: &str, used, temperature, failing| DriveStatus {
            device: Some(device.to_owned()),
            used_permille: used,
            temperature_celsius: temperature,
            failing,
            ..DriveStatus::default()
        };
        let device = |drives: &[DriveStatus]| worst(drives).and_then(|drive| drive.device.clone());
        assert_eq!(device(&[]), None);
        let (a, b) = (drive("a", None, None, None), drive("b", None, None, None));
        assert_eq!(device(&[a.clone(), b]).as_deref(), Some("a"));
        let hot = drive("hot", None, Some(70), Some(false));
        assert_eq!(device(&[a.clone(), hot.clone()]).as_deref(), Some("hot"));
        let worn = drive("worn", Some(900), Some(30), Some(false));
        assert_eq!(device(&[hot.clone(), worn.clone()]).as_deref(), Some("worn"));
        let failing = drive("failing", None, None, Some(true));
        assert_eq!(device(&[failing, worn, hot, a]).as_deref(), Some("failing"));
    }
}
