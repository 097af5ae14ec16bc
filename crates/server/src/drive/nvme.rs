//! Parses the output of `nvme smart-log -o json`, which is used if smartctl is not installed.

use serde_json::Value;

use super::DriveStatus;
use super::json::{self, whole};
use super::smart::Reading;

/// The program.
pub(super) const PROGRAM: &str = "nvme";
/// Bytes in one NVMe data unit.
const UNIT_BYTES: u64 = 512_000;
/// Zero degrees Celsius in whole kelvins, the log's unit.
const ZERO_CELSIUS: i64 = 273;
/// Bit of the critical warnings for degraded reliability.
const DEGRADED: u64 = 1 << 2;
/// Bit of the critical warnings for a drive that has become read-only.
const READ_ONLY: u64 = 1 << 3;

/// Returns the program's arguments for a device.
pub(super) fn arguments(device: &str) -> [&str; 4] {
    ["smart-log", "-o", "json", device]
}

/// Parses the program's output, given its exit code.
pub(super) fn read(output: &[u8], code: u8) -> Reading {
    let Some(log) = json::object(output) else {
        return Reading::Nothing(format!(
            "nvme, which exited {code}, wrote no JSON that is understood; smartctl \
             (smartmontools) tells why"
        ));
    };
    let number = |names: &[&str]| names.iter().find_map(|name| whole(log.get(*name)?));
    let warning = match log.get("critical_warning") {
        // Newer versions list the bits by name.
        Some(Value::Object(spelled)) => whole(spelled.get("value").unwrap_or(&Value::Null)),
        Some(plain) => whole(plain),
        None => None,
    };
    let kelvin = number(&["temperature"]).and_then(|kelvin| i64::try_from(kelvin).ok());
    let used = number(&["percent_used", "percentage_used"]);
    let figures = DriveStatus {
        temperature_celsius: kelvin.and_then(|kelvin| (kelvin - ZERO_CELSIUS).try_into().ok()),
        used_permille: used.and_then(|percent| u32::try_from(percent.saturating_mul(10)).ok()),
        media_errors: number(&["media_errors"]),
        power_on_hours: number(&["power_on_hours"]),
        written_bytes: number(&["data_units_written"]).map(|it| it.saturating_mul(UNIT_BYTES)),
        failing: warning.map(|bits| bits & (DEGRADED | READ_ONLY) != 0),
        ..DriveStatus::default()
    };
    match figures.has_figures() {
        true => Reading::Figures(Box::new(figures)),
        false => Reading::Nothing("nvme: the health log has no figure that is understood".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_writing_are_read() {
        let old = br#"{"critical_warning":0,"temperature":311,"avail_spare":100,"percent_used":3,
            "data_units_written":81234567,"power_on_hours":9876,"media_errors":0}"#;
        let new = br#"{"critical_warning":{"value":4},"temperature":311,"percent_used":3,
            "data_units_written":"81,234,567","power_on_hours":"9876","media_errors":"0"}"#;
        let (Reading::Figures(old), Reading::Figures(new)) = (read(old, 0), read(new, 0)) else {
            panic!("both are logs");
        };
        assert_eq!(old.temperature_celsius, Some(38));
        assert_eq!(old.used_permille, Some(30));
        assert_eq!(old.written_bytes, Some(81_234_567 * 512_000));
        assert_eq!((old.failing, new.failing), (Some(false), Some(true)));
        assert_eq!(DriveStatus { failing: old.failing, ..*new }, *old);
    }

    #[test]
    fn an_odd_value_costs_that_value_alone() {
        let odd = br#"{"critical_warning":{"value":4},"temperature":null,"percent_used":"a few",
            "data_units_written":36893488147419103232,"power_on_hours":[],"media_errors":-1}"#;
        let Reading::Figures(drive) = read(odd, 0) else { panic!("it says that it fails") };
        assert_eq!(*drive, DriveStatus { failing: Some(true), ..DriveStatus::default() });
    }

    #[test]
    fn what_is_no_log_is_told() {
        assert!(
            matches!(read(b"Permission denied", 1), Reading::Nothing(why) if why.contains("exited 1"))
        );
        assert!(matches!(read(b"{}", 0), Reading::Nothing(_)));
    }
}
