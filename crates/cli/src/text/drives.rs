//! The drives behind the legs, as `hemi status` shows them.

use std::fmt::Write as _;

use hemi_server::control::api::{LegStatus, VolumeStatus};
use hemi_server::drive::{DriveStatus, date};
use hemi_text::Plain;
use hemi_units::prose::bytes;

use super::{WIDTH, wrap};

/// The width of the first column.
const INDENT: usize = 10;

/// Returns each leg's drives, one paragraph per drive. Legs with the same description share one.
pub(super) fn lines(status: &VolumeStatus) -> String {
    let mut said: Vec<(Vec<String>, String)> = Vec::new();
    for leg in &status.legs {
        for drive in &leg.drives {
            let (slot, sentence) = (leg.leg.to_string(), describe(leg, drive));
            match said.iter_mut().find(|(_, known)| *known == sentence) {
                Some((slots, _)) if slots.contains(&slot) => {}
                Some((slots, _)) => slots.push(slot),
                None => said.push((vec![slot], sentence)),
            }
        }
    }
    let mut text = String::new();
    for (slots, sentence) in said {
        let plural = if slots.len() == 1 { "" } else { "s" };
        let sentence = format!("leg{plural} {}: {sentence}", slots.join(", "));
        text.push_str(&paragraph("drive", &sentence));
    }
    text
}

/// Returns the legs that are slower than they should be, one paragraph each.
pub(super) fn verdicts(status: &VolumeStatus) -> String {
    let mut text = String::new();
    for leg in &status.legs {
        if let Some(verdict) = &leg.verdict {
            let (slot, since) = (leg.leg, date(verdict.since_ms));
            let sentence = format!("leg {slot}: {} Since {since}.", Plain(&verdict.text));
            text.push_str(&paragraph("verdict", &sentence));
        }
    }
    text
}

fn paragraph(head: &str, sentence: &str) -> String {
    let mut text = String::new();
    for (index, line) in wrap(sentence, WIDTH - INDENT).iter().enumerate() {
        let start = if index == 0 { head } else { "" };
        let _ = writeln!(text, "{start:<INDENT$}{line}");
    }
    text
}

fn describe(leg: &LegStatus, drive: &DriveStatus) -> String {
    let mut parts = Vec::new();
    let device = drive.device.as_deref().filter(|device| *device != leg.path);
    match (drive.model.as_deref(), device) {
        (Some(model), Some(device)) => parts.push(format!("{} ({})", Plain(model), Plain(device))),
        (Some(word), None) | (None, Some(word)) => parts.push(Plain(word).to_string()),
        (None, None) => {}
    }
    if drive.failing == Some(true) {
        parts.push("SAYS THAT IT FAILS".into());
    }
    parts.extend(drive.temperature_celsius.map(|degrees| format!("{degrees} °C")));
    if let Some(used) = drive.used_permille {
        let mut wear = format!("{} % of its endurance used", f64::from(used) / 10.0);
        if let Some(end) = drive.rated_end_at_ms {
            let _ = write!(wear, ", all of it about {}", date(end));
        }
        parts.push(wear);
    }
    if let Some(errors) = drive.media_errors.filter(|errors| *errors > 0) {
        parts.push(format!("{errors} media errors"));
    }
    parts.extend(drive.written_bytes.map(|written| format!("{} written", bytes(written))));
    if let Some(why) = &drive.why_unknown {
        let since = match drive.read_at_ms {
            Some(at) => format!("as of {}: ", date(at)),
            None => "health not known: ".into(),
        };
        parts.push(format!("{since}{}", Plain(why)));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use hemi_server::fail_slow::{Severity, Verdict};

    use super::*;

    #[test]
    fn a_verdict_says_since_when() {
        let text = "It answers writes in 7 ms: replace it.".to_owned();
        let verdict = Verdict { text, since_ms: 1_735_689_599_999, severity: Severity::Warning };
        let leg = LegStatus { leg: 1, verdict: Some(verdict), ..LegStatus::default() };
        let status = VolumeStatus { legs: vec![leg], ..VolumeStatus::default() };
        assert_eq!(
            verdicts(&status),
            "verdict   leg 1: It answers writes in 7 ms: replace it. Since 2024-12-31.\n"
        );
    }

    #[test]
    fn a_drive_is_a_sentence_that_says_what_is_known() {
        let drive = DriveStatus {
            device: Some("/dev/nvme0n1".into()),
            model: Some("Samsung SSD\x1b[2J 980".into()),
            temperature_celsius: Some(38),
            used_permille: Some(30),
            media_errors: Some(0),
            written_bytes: Some(40 << 40),
            rated_end_at_ms: Some(1_935_689_599_999),
            ..DriveStatus::default()
        };
        let unknown = DriveStatus {
            device: Some("/dev/sdb".into()),
            why_unknown: Some("smartctl (smartmontools) is not installed".into()),
            ..DriveStatus::default()
        };
        let leg = |leg, path: &str, drive| LegStatus {
            leg,
            path: path.into(),
            drives: vec![drive],
            ..LegStatus::default()
        };
        let status = VolumeStatus {
            legs: vec![
                leg(0, "/dev/nvme0n1p3", drive),
                leg(1, "/dev/sdb", unknown.clone()),
                leg(2, "/dev/sdb", unknown),
            ],
            ..VolumeStatus::default()
        };
        assert_eq!(
            lines(&status),
            "drive     leg 0: Samsung SSD\u{FFFD}[2J 980 (/dev/nvme0n1), 38 °C, 3 % of its endurance used, all of it\n\
             \u{20}         about 2031-05-04, 40 TiB written\n\
             drive     legs 1, 2: health not known: smartctl (smartmontools) is not installed\n"
        );
    }
}
