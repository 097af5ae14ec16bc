//! The drives behind the legs: model, health, and the expected end of their endurance.
//!
//! A thread of its own ([`watch`]) finds the whole disks behind each local leg ([`disks`]), queries them with
//! `smartctl` or `nvme` ([`smart`]), and publishes the results as [`Drives`]. Control reads them. The data
//! path does not use them, and they never decide about data. An unknown figure is absent, and
//! [`DriveStatus::why_unknown`] gives the reason.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::control::api::{LegStatus, VolumeStatus};
use crate::fail_slow::Verdict;

mod disks;
mod identity;
mod json;
mod keep;
mod nvme;
mod pace;
mod smart;
mod tool;
pub(crate) mod watch;
mod wear;

/// The kind of a drive, which determines how fast it should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriveKind {
    /// A hard disk.
    Hdd,
    /// Flash behind SATA, SAS or USB.
    Ssd,
    /// Flash behind NVMe.
    Nvme,
    /// A volume served by a cloud provider or another machine.
    Network,
    /// A disk of a virtual machine, or memory. Anything may be behind it.
    Virtual,
    /// An unknown kind.
    #[default]
    Unknown,
}

impl DriveKind {
    /// Returns its name in the API and the metrics.
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

/// One drive. Unknown figures are `null`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DriveStatus {
    /// Path of the whole disk, such as `/dev/nvme0n1`.
    pub device: Option<String>,
    /// Its kind.
    pub kind: DriveKind,
    /// Its model.
    pub model: Option<String>,
    /// Its serial number.
    pub serial: Option<String>,
    /// Its firmware version.
    pub firmware: Option<String>,
    /// True if the disk rotates, according to the kernel.
    pub rotational: Option<bool>,
    /// Its temperature in degrees Celsius.
    pub temperature_celsius: Option<i32>,
    /// Part of the rated endurance used, in thousandths. It may exceed 1000.
    pub used_permille: Option<u32>,
    /// Errors in which the drive could not read or keep data, over its lifetime.
    pub media_errors: Option<u64>,
    /// Time powered on, in hours.
    pub power_on_hours: Option<u64>,
    /// Bytes that hosts have written to it over its lifetime.
    pub written_bytes: Option<u64>,
    /// True if the drive reports that it is failing.
    pub failing: Option<bool>,
    /// Endurance used in a year at the current rate, in thousandths.
    pub wear_permille_per_year: Option<u32>,
    /// Time at which the rated endurance ends at the current rate of wear, in milliseconds since 1970.
    pub rated_end_at_ms: Option<u64>,
    /// The reason why this time is unknown, if the drive counts its wear.
    pub why_no_rated_end: Option<String>,
    /// Time at which the drive was last read successfully, in milliseconds since 1970.
    pub read_at_ms: Option<u64>,
    /// The reason why figures are absent or old; `null` if the last attempt to read the drive succeeded.
    pub why_unknown: Option<String>,
}

impl DriveStatus {
    /// Returns true if it has a figure that the drive itself told.
    fn has_figures(&self) -> bool {
        self.temperature_celsius.is_some()
            || self.used_permille.is_some()
            || self.power_on_hours.is_some()
            || self.media_errors.is_some()
            || self.written_bytes.is_some()
            || self.failing.is_some()
    }
}

impl DriveStatus {
    /// Returns a drive whose figures are all unknown, for this reason.
    pub(crate) fn unknown(why: impl Into<String>) -> DriveStatus {
        DriveStatus { why_unknown: Some(why.into()), ..DriveStatus::default() }
    }
}

/// The drives of one leg, and the verdict on it.
#[derive(Clone, Debug, Default)]
pub(crate) struct LegDrives {
    /// The leg's spec. Another leg in the slot has other drives.
    pub(crate) spec: String,
    /// The drives behind it.
    pub(crate) drives: Vec<DriveStatus>,
    /// The verdict that it is slower than it should be.
    pub(crate) verdict: Option<Verdict>,
}

/// The drives of every leg, by slot. The watching thread writes them and control reads them.
#[derive(Debug, Default)]
pub(crate) struct Drives {
    legs: Mutex<HashMap<u8, LegDrives>>,
    judged: Mutex<Vec<Judged>>,
}

/// A changed verdict: the leg's slot, and the verdict now in force.
pub(crate) type Judged = (u8, Option<Verdict>);

/// Maximum number of changed verdicts that wait to be reported. Each leg has one in twelve minutes at most.
const JUDGED_MAX: usize = 64;

impl Drives {
    /// Locks the legs' drives for reading or changing. No caller may hold the lock for longer than a copy
    /// takes.
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<u8, LegDrives>> {
        self.legs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the verdict on a leg has changed.
    fn judge(&self, leg: u8, verdict: Option<Verdict>) {
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        if judged.len() < JUDGED_MAX {
            judged.push((leg, verdict));
        }
    }

    /// Takes the verdicts that changed since the last call, in order.
    pub(crate) fn take_judged(&self) -> Vec<Judged> {
        std::mem::take(&mut self.judged.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds the drives and verdicts to a status.
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

/// Returns the drive that most needs attention: a failing one, else the most worn, else the hottest.
fn worst(drives: &[DriveStatus]) -> Option<&DriveStatus> {
    let rank = |drive: &DriveStatus| {
        (drive.failing == Some(true), drive.used_permille, drive.temperature_celsius)
    };
    // Of equals, the first is chosen.
    drives.iter().rev().max_by_key(|drive| rank(drive))
}

/// Formats a time in milliseconds since 1970 as a date, such as `2031-05-09` (UTC).
pub fn date(unix_ms: u64) -> String {
    // Days of the proleptic Gregorian calendar, in eras of 400 years that begin in March, so that the leap
    // day is the last of a year.
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
