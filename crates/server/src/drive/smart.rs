//! Parses the output of `smartctl --json` (smartmontools 7.0 and later).
//!
//! Figures defined by a standard are taken as they are: NVMe's health log, ATA's device statistics and SCSI's
//! log pages. A vendor's attribute is taken only if its name, from smartctl's drive database, tells its
//! meaning and unit.

use serde::Deserialize;
use serde_json::Value;

use super::DriveStatus;
use super::identity::plain;

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

#[derive(Deserialize, Default)]
#[serde(default)]
struct Output {
    smartctl: Smartctl,
    model_name: Option<String>,
    scsi_model_name: Option<String>,
    serial_number: Option<String>,
    firmware_version: Option<String>,
    scsi_revision: Option<String>,
    logical_block_size: Option<u64>,
    smart_status: Option<Passed>,
    temperature: Option<Temperature>,
    power_on_time: Option<Hours>,
    endurance_used: Option<Endurance>,
    nvme_smart_health_information_log: Option<NvmeLog>,
    ata_smart_attributes: Option<Table<Attribute>>,
    ata_device_statistics: Option<Pages>,
    scsi_percentage_used_endurance_indicator: Option<u32>,
    scsi_error_counter_log: Option<ScsiErrors>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Smartctl {
    messages: Vec<Message>,
}

#[derive(Deserialize)]
struct Message {
    string: String,
}

#[derive(Deserialize)]
struct Passed {
    passed: Option<bool>,
}

#[derive(Deserialize)]
struct Temperature {
    current: Option<i32>,
}

#[derive(Deserialize)]
struct Hours {
    hours: Option<u64>,
}

#[derive(Deserialize)]
struct Endurance {
    current_percent: Option<u32>,
}

#[derive(Deserialize)]
struct NvmeLog {
    percentage_used: Option<u32>,
    data_units_written: Option<u64>,
    media_errors: Option<u64>,
}

#[derive(Deserialize)]
struct Table<T> {
    #[serde(default = "Vec::new")]
    table: Vec<T>,
}

#[derive(Deserialize)]
struct Attribute {
    name: String,
    value: Option<u32>,
    raw: Option<Raw>,
}

#[derive(Deserialize)]
struct Raw {
    value: Option<u64>,
}

#[derive(Deserialize)]
struct Pages {
    #[serde(default)]
    pages: Vec<Table<Statistic>>,
}

#[derive(Deserialize)]
struct Statistic {
    name: String,
    value: Option<i64>,
    flags: Option<StatisticFlags>,
}

#[derive(Deserialize)]
struct StatisticFlags {
    valid: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ScsiErrors {
    read: Option<ScsiCounters>,
    write: Option<ScsiCounters>,
    verify: Option<ScsiCounters>,
}

#[derive(Deserialize)]
struct ScsiCounters {
    total_uncorrected_errors: Option<u64>,
    /// A decimal number as text.
    gigabytes_processed: Option<Value>,
}

/// Parses smartctl's output, given its exit code.
pub(super) fn read(output: &[u8], code: u8) -> Reading {
    let Ok(output) = serde_json::from_slice::<Output>(output) else {
        return Reading::Nothing(match code {
            1 => {
                "smartctl is older than 7.0, which cannot write JSON, or refuses its options".into()
            }
            _ => format!("smartctl, which exited {code}, wrote no JSON that is understood"),
        });
    };
    let message = output.smartctl.messages.iter().map(|message| message.string.as_str());
    let sleeps = |text: &str| text.contains("STANDBY") || text.contains("SLEEP");
    if code == ASLEEP || (code == 2 && message.clone().any(sleeps)) {
        return Reading::Asleep;
    }
    let figures = output.figures();
    let knows = figures.temperature_celsius.is_some()
        || figures.used_permille.is_some()
        || figures.power_on_hours.is_some()
        || figures.media_errors.is_some()
        || figures.written_bytes.is_some()
        || figures.failing.is_some();
    if knows {
        return Reading::Figures(Box::new(figures));
    }
    let words: Vec<String> = message.filter_map(plain_sentence).collect();
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
        let attributes = self.ata_smart_attributes.as_ref().map_or(&[][..], |list| &list.table[..]);
        let raw = |wanted: &str| {
            let found = attributes.iter().find(|attribute| attribute.name == wanted)?;
            found.raw.as_ref()?.value
        };
        let statistic = |wanted: &str| self.statistic(wanted);
        let nvme = self.nvme_smart_health_information_log.as_ref();
        let percent = nvme
            .and_then(|log| log.percentage_used)
            .or(self.scsi_percentage_used_endurance_indicator)
            .or_else(|| {
                let indicator = statistic("Percentage Used Endurance Indicator")?;
                u32::try_from(indicator).ok()
            })
            .or_else(|| self.endurance_used.as_ref()?.current_percent)
            .or_else(|| {
                let mut known = attributes.iter();
                let left = known.find(|it| ENDURANCE_LEFT.contains(&it.name.as_str()))?.value?;
                100_u32.checked_sub(left)
            });
        let block = self.logical_block_size.unwrap_or(512);
        let written = nvme
            .and_then(|log| Some(log.data_units_written?.saturating_mul(NVME_UNIT_BYTES)))
            .or_else(|| Some(statistic("Logical Sectors Written")?.saturating_mul(block)))
            .or_else(|| {
                let mut units = WRITTEN.iter();
                units.find_map(|(name, unit)| Some(raw(name)?.saturating_mul(*unit)))
            })
            .or_else(|| self.scsi_error_counter_log.as_ref()?.write.as_ref()?.processed_bytes());
        let media_errors = nvme
            .and_then(|log| log.media_errors)
            .or_else(|| statistic("Number of Reported Uncorrectable Errors"))
            .or_else(|| raw("Reported_Uncorrect"))
            .or_else(|| self.scsi_error_counter_log.as_ref()?.uncorrected());
        let word = |text: &Option<String>| text.as_deref().and_then(plain);
        DriveStatus {
            model: word(&self.model_name).or_else(|| word(&self.scsi_model_name)),
            serial: word(&self.serial_number),
            firmware: word(&self.firmware_version).or_else(|| word(&self.scsi_revision)),
            temperature_celsius: self.temperature.as_ref().and_then(|it| it.current),
            used_permille: percent.map(|percent| percent.saturating_mul(10)),
            media_errors,
            power_on_hours: self.power_on_time.as_ref().and_then(|time| time.hours),
            written_bytes: written,
            failing: self
                .smart_status
                .as_ref()
                .and_then(|status| status.passed)
                .map(|passed| !passed),
            ..DriveStatus::default()
        }
    }

    fn statistic(&self, wanted: &str) -> Option<u64> {
        let mut all =
            self.ata_device_statistics.as_ref()?.pages.iter().flat_map(|page| &page.table);
        let found = all.find(|statistic| statistic.name == wanted)?;
        let is_valid = found.flags.as_ref().and_then(|flags| flags.valid) != Some(false);
        found.value.filter(|_| is_valid).and_then(|value| value.try_into().ok())
    }
}

impl ScsiErrors {
    fn uncorrected(&self) -> Option<u64> {
        let kinds = [&self.read, &self.write, &self.verify];
        let counts = kinds.into_iter().filter_map(|it| it.as_ref()?.total_uncorrected_errors);
        counts.reduce(u64::saturating_add)
    }
}

impl ScsiCounters {
    fn processed_bytes(&self) -> Option<u64> {
        let gigabytes = match self.gigabytes_processed.as_ref()? {
            Value::String(text) => text.trim().parse::<f64>().ok()?,
            number => number.as_f64()?,
        };
        // The conversion saturates a float that is out of range and maps NaN to zero.
        (gigabytes.is_finite() && gigabytes >= 0.0).then_some((gigabytes * 1e9) as u64)
    }
}

#[cfg(test)]
mod tests;
