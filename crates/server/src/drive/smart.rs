//! Parses the output of `smartctl --json` (smartmontools 7.0 and later).
//!
//! Figures defined by a standard are taken as they are: NVMe's health log, ATA's device statistics and SCSI's
//! log pages. A vendor's attribute is taken only if its name, from smartctl's drive database, tells its
//! meaning and unit.

use serde_json::Value;

use super::identity::plain;
use super::{DriveStatus, json};

/// The program.
pub(super) const PROGRAM: &str = "smartctl";
/// The exit code that smartctl is told to return if a drive sleeps. No other error sets both of these bits.
pub(super) const ASLEEP: u8 = 3;
/// Attributes whose normalised value is the endurance left, in percent.
const ENDURANCE_LEFT: [&str; 5] = [
    "Percent_Lifetime_Remain",
    "Percent_Life_Remaining",
    "Remaining_Lifetime_Perc",
    "SSD_Life_Left",
    "Media_Wearout_Indicator",
];
/// Attributes that count written data, with the unit of their raw value in bytes.
const WRITTEN: [(&str, u64); 6] = [
    ("Host_Writes_32MiB", 32 << 20),
    ("Host_Writes_GiB", 1 << 30),
    ("Lifetime_Writes_GiB", 1 << 30),
    ("Total_Writes_GiB", 1 << 30),
    ("Host_Writes_MiB", 1 << 20),
    ("Total_LBAs_Written", 512),
];
/// Bytes in one NVMe data unit.
const NVME_UNIT_BYTES: u64 = 512_000;

/// Returns smartctl's arguments for a device. A sleeping disk is not woken.
pub(super) fn arguments(device: &str) -> [&str; 9] {
    ["--json=c", "-n", "standby,3", "-i", "-H", "-A", "-l", "devstat", device]
}

/// The result of parsing a program's output.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// The figures, with the drive's identity if the output has it.
    Figures(Box<DriveStatus>),
    /// The drive sleeps.
    Asleep,
    /// No figures, for this reason.
    Nothing(String),
}

/// smartctl's output.
struct Output(Value);

/// Parses smartctl's output, given its exit code.
pub(super) fn read(output: &[u8], code: u8) -> Reading {
    let Some(output) = json::object(output).map(Output) else {
        return Reading::Nothing(match code {
            1 => {
                "smartctl is older than 7.0, which cannot write JSON, or refuses its options".into()
            }
            _ => format!("smartctl, which exited {code}, wrote no JSON that is understood"),
        });
    };
    let messages = output.list("/smartctl/messages").iter();
    let messages = messages.filter_map(|message| message.get("string")?.as_str());
    let sleeps = |text: &str| text.contains("STANDBY") || text.contains("SLEEP");
    if code == ASLEEP || (code == 2 && messages.clone().any(sleeps)) {
        return Reading::Asleep;
    }
    let figures = output.figures();
    if figures.has_figures() {
        return Reading::Figures(Box::new(figures));
    }
    let words: Vec<String> = messages.filter_map(plain_sentence).collect();
    Reading::Nothing(match words.is_empty() {
        true => "smartctl found no health data: the drive or its controller has none".into(),
        false => explain(&words.join("; ")),
    })
}

fn plain_sentence(text: &str) -> Option<String> {
    // A program's text is made plain like a drive's, but may be longer.
    let text = hemi_text::Plain(text.trim()).to_string();
    (!text.is_empty()).then_some(text)
}

/// Adds the way out to smartctl's message, if one is known.
fn explain(words: &str) -> String {
    let way_out = if words.contains("Permission denied") || words.contains("not permitted") {
        "; hemi needs to be root with the capabilities CAP_SYS_RAWIO and CAP_SYS_ADMIN for it \
         (packaging/drive-health.conf)"
    } else if words.contains("Unknown USB bridge") {
        "; the USB bridge does not pass health data on"
    } else {
        ""
    };
    format!("smartctl: {words}{way_out}")
}

impl Output {
    fn figures(&self) -> DriveStatus {
        let percent = self
            .number("/nvme_smart_health_information_log/percentage_used")
            .or_else(|| self.number("/scsi_percentage_used_endurance_indicator"))
            .or_else(|| self.statistic("Percentage Used Endurance Indicator"))
            .or_else(|| self.number("/endurance_used/current_percent"))
            .or_else(|| {
                let known = self.list("/ata_smart_attributes/table").iter().filter(|entry| {
                    let name = entry.get("name").and_then(Value::as_str);
                    name.is_some_and(|name| ENDURANCE_LEFT.contains(&name))
                });
                100_u64.checked_sub(known.filter_map(|it| json::whole(it.get("value")?)).next()?)
            });
        let raw = |name: &str| self.attribute(name, "/raw/value");
        let block = self.number("/logical_block_size").unwrap_or(512);
        let written = self
            .number("/nvme_smart_health_information_log/data_units_written")
            .map(|units| units.saturating_mul(NVME_UNIT_BYTES))
            .or_else(|| Some(self.statistic("Logical Sectors Written")?.saturating_mul(block)))
            .or_else(|| {
                let mut units = WRITTEN.iter();
                units.find_map(|(name, unit)| Some(raw(name)?.saturating_mul(*unit)))
            })
            .or_else(|| self.scsi_written());
        let media_errors = self
            .number("/nvme_smart_health_information_log/media_errors")
            .or_else(|| self.statistic("Number of Reported Uncorrectable Errors"))
            .or_else(|| raw("Reported_Uncorrect"))
            .or_else(|| self.scsi_uncorrected());
        let temperature = self.0.pointer("/temperature/current").and_then(Value::as_i64);
        DriveStatus {
            model: self.word("model_name").or_else(|| self.word("scsi_model_name")),
            serial: self.word("serial_number"),
            firmware: self.word("firmware_version").or_else(|| self.word("scsi_revision")),
            temperature_celsius: temperature.and_then(|celsius| celsius.try_into().ok()),
            used_permille: percent.and_then(|it| it.saturating_mul(10).try_into().ok()),
            media_errors,
            power_on_hours: self.number("/power_on_time/hours"),
            written_bytes: written,
            failing: self.0.pointer("/smart_status/passed").and_then(Value::as_bool).map(|it| !it),
            ..DriveStatus::default()
        }
    }

    /// Returns the number at a JSON pointer.
    fn number(&self, pointer: &str) -> Option<u64> {
        json::whole(self.0.pointer(pointer)?)
    }

    /// Returns the list at a JSON pointer, empty if there is none.
    fn list(&self, pointer: &str) -> &[Value] {
        self.0.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    fn word(&self, key: &str) -> Option<String> {
        plain(self.0.get(key)?.as_str()?)
    }

    /// Returns a number of the ATA attribute of this name.
    fn attribute(&self, name: &str, pointer: &str) -> Option<u64> {
        json::whole(named(self.list("/ata_smart_attributes/table"), name)?.pointer(pointer)?)
    }

    /// Returns the ATA device statistic of this name, if the drive marks it as valid.
    fn statistic(&self, name: &str) -> Option<u64> {
        let pages = self.list("/ata_device_statistics/pages").iter();
        let tables = pages.filter_map(|page| page.get("table")?.as_array());
        let found = tables.filter_map(|table| named(table, name)).next()?;
        let is_valid = found.pointer("/flags/valid").and_then(Value::as_bool) != Some(false);
        json::whole(found.get("value")?).filter(|_| is_valid)
    }

    fn scsi_uncorrected(&self) -> Option<u64> {
        let of =
            |kind| self.number(&format!("/scsi_error_counter_log/{kind}/total_uncorrected_errors"));
        ["read", "write", "verify"].into_iter().filter_map(of).reduce(u64::saturating_add)
    }

    fn scsi_written(&self) -> Option<u64> {
        // A decimal number as text.
        let gigabytes = match self.0.pointer("/scsi_error_counter_log/write/gigabytes_processed")? {
            Value::String(text) => text.trim().parse::<f64>().ok()?,
            number => number.as_f64()?,
        };
        // The conversion saturates a float that is out of range and maps NaN to zero.
        (gigabytes.is_finite() && gigabytes >= 0.0).then_some((gigabytes * 1e9) as u64)
    }
}

/// Returns the entry of this name in a list.
fn named<'a>(list: &'a [Value], name: &str) -> Option<&'a Value> {
    list.iter().find(|entry| entry.get("name").and_then(Value::as_str) == Some(name))
}

#[cfg(test)]
mod tests;
