//! Metrics of the drives behind the legs.

use std::fmt;

use hemi_engine::status::LegStatus;
use prometheus_client::metrics::MetricType;

use super::{Labels, NO_EXEMPLAR, Out, SnapshotCollector, flag};
use crate::drive::{DriveStatus, LegDrives};

impl SnapshotCollector {
    /// Encodes the drives' figures. An unknown figure has no metric.
    #[rustfmt::skip]
    pub(super) fn drives(&self, out: &mut Out<'_>) -> fmt::Result {
        self.fail_slow(out)?;
        self.drive_info(out)?;
        self.drive_gauge(out, "drive_known", "1 if the drive told its health at the last question", |drive| Some(flag(drive.why_unknown.is_none())))?;
        self.drive_gauge(out, "drive_read_timestamp_seconds", "Time at which the drive was last asked with success", |drive| drive.read_at_ms.map(as_timestamp))?;
        self.drive_gauge(out, "drive_failing", "1 if the drive says that it fails", |drive| drive.failing.map(flag))?;
        self.drive_gauge(out, "drive_temperature_celsius", "Temperature", |drive| drive.temperature_celsius.map(f64::from))?;
        self.drive_gauge(out, "drive_endurance_used_ratio", "Part of the rated endurance that is used", |drive| drive.used_permille.map(as_ratio))?;
        self.drive_gauge(out, "drive_endurance_used_per_year_ratio", "Part of the rated endurance that is used in a year at the present rate", |drive| drive.wear_permille_per_year.map(as_ratio))?;
        self.drive_gauge(out, "drive_endurance_end_timestamp_seconds", "Time at which the rated endurance ends at the present rate", |drive| drive.rated_end_at_ms.map(as_timestamp))?;
        self.drive_counter(out, "drive_media_errors", "Data that the drive could not read or keep", |drive| drive.media_errors.map(|count| count as f64))?;
        self.drive_counter(out, "drive_power_on_seconds", "Time the drive was powered on", |drive| drive.power_on_hours.map(|hours| hours as f64 * 3600.0))?;
        self.drive_counter(out, "drive_written_bytes", "Bytes written to the drive in its life, by all its hosts", |drive| drive.written_bytes.map(|bytes| bytes as f64))
    }

    fn fail_slow(&self, out: &mut Out<'_>) -> fmt::Result {
        let help = "1 while the leg is judged slower than it should be";
        out.family("leg_fail_slow", help, MetricType::Gauge, |family| {
            for leg in self.present() {
                let is_slow = self.known_of(leg).is_some_and(|known| known.verdict.is_some());
                family.encode_family(&self.labels(leg))?.encode_gauge(&flag(is_slow))?;
            }
            Ok(())
        })
    }

    fn drive_info(&self, out: &mut Out<'_>) -> fmt::Result {
        let word = |text: &Option<String>| text.clone().unwrap_or_default();
        out.family("drive", "A drive behind a leg", MetricType::Info, |family| {
            for (mut labels, drive) in self.known_drives() {
                labels.push(("kind", drive.kind.name().to_owned()));
                labels.push(("model", word(&drive.model)));
                labels.push(("serial", word(&drive.serial)));
                labels.push(("firmware", word(&drive.firmware)));
                family.encode_info(&labels)?;
            }
            Ok(())
        })
    }

    fn drive_gauge(
        &self,
        out: &mut Out<'_>,
        name: &str,
        help: &str,
        value: fn(&DriveStatus) -> Option<f64>,
    ) -> fmt::Result {
        out.family(name, help, MetricType::Gauge, |family| {
            for (labels, drive) in self.known_drives() {
                if let Some(value) = value(drive) {
                    family.encode_family(&labels)?.encode_gauge(&value)?;
                }
            }
            Ok(())
        })
    }

    fn drive_counter(
        &self,
        out: &mut Out<'_>,
        name: &str,
        help: &str,
        value: fn(&DriveStatus) -> Option<f64>,
    ) -> fmt::Result {
        out.family(name, help, MetricType::Counter, |family| {
            for (labels, drive) in self.known_drives() {
                if let Some(value) = value(drive) {
                    family.encode_family(&labels)?.encode_counter(&value, NO_EXEMPLAR)?;
                }
            }
            Ok(())
        })
    }

    /// Returns the drives and the verdict of the leg in a slot.
    fn known_of(&self, leg: &LegStatus) -> Option<&LegDrives> {
        let mut identities = self.snapshot.legs.iter();
        let identity = identities.find(|identity| identity.leg == leg.leg)?;
        self.drives.get(&leg.leg).filter(|known| known.spec == identity.path)
    }

    /// Iterates over all drives that have a device on this machine, with their labels.
    fn known_drives(&self) -> impl Iterator<Item = (Labels, &DriveStatus)> {
        self.present().flat_map(|leg| {
            let drives = self.known_of(leg).map_or(&[][..], |known| &known.drives[..]);
            drives.iter().filter_map(|drive| {
                let mut labels = self.labels(leg);
                labels.push(("device", drive.device.clone()?));
                Some((labels, drive))
            })
        })
    }
}

fn as_ratio(permille: u32) -> f64 {
    f64::from(permille) / 1000.0
}

fn as_timestamp(unix_ms: u64) -> f64 {
    unix_ms as f64 / 1000.0
}
