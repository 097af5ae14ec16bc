//! Prometheus metrics, encoded from a snapshot on request.
//!
//! Nothing is counted twice: every figure is the engine's own, read at the scrape. `docs/metrics.md` lists
//! them, and a test compares the two.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use hemi_engine::histogram::{BUCKETS, LatencyHistogram, bucket_upper_bound};
use hemi_engine::settings::Policy;
use hemi_engine::status::{LegState, LegStatus};
use hemi_units::SECTOR_BYTES;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::api::VolumeStatus;
use super::health::{Condition, Health};
use super::hidden::HiddenStall;
use super::routes::refuse;
use super::volume::{Phase, Refusal, RefusalKind, Snapshot};
use crate::drive::{Drives, LegDrives};
use format::Format;
use hemi_io::probe::hex;

mod drives;
pub(super) mod format;
pub mod merged;

/// Encodes the metrics as OpenMetrics text.
///
/// # Errors
///
/// None in practice: writing to a string fails only if an encoder has a bug.
pub(super) fn render(
    snapshot: Arc<Snapshot>,
    judged: VolumeStatus,
    drives: &Drives,
    hidden: HiddenStall,
) -> Result<String, fmt::Error> {
    let volume = (Cow::Borrowed("volume"), Cow::Owned(snapshot.identity.name.clone()));
    let mut registry = Registry::with_prefix_and_labels("hemi", [volume].into_iter());
    registry.register_collector(Box::new(SnapshotCollector {
        snapshot,
        judged,
        drives: drives.lock().clone(),
        hidden,
        now: Instant::now(),
    }));
    let mut text = String::with_capacity(32 << 10);
    encode(&mut text, &registry)?;
    Ok(text)
}

/// Answers a scrape with metrics that are encoded as OpenMetrics, in the format that it asks for.
pub(super) fn answer(headers: &HeaderMap, encoded: Result<String, fmt::Error>) -> Response {
    let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let format = Format::asked(accept);
    match encoded {
        Ok(text) => {
            let about = [(header::CONTENT_TYPE, format.content_type()), (header::VARY, "accept")];
            (about, format.of(text)).into_response()
        }
        Err(error) => refuse(Refusal::new(
            RefusalKind::Failed,
            format!("the metrics could not be encoded: {error}"),
            "Report it: this is a defect of hemi.",
        )),
    }
}

#[derive(Debug)]
struct SnapshotCollector {
    snapshot: Arc<Snapshot>,
    judged: VolumeStatus,
    drives: HashMap<u8, LegDrives>,
    hidden: HiddenStall,
    now: Instant,
}

type Labels = Vec<(&'static str, String)>;

/// One of several histograms with the same name, with its labels.
type Labelled<'a> = (Labels, &'a LatencyHistogram);

impl Collector for SnapshotCollector {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let mut out = Out { encoder };
        self.volume(&mut out)?;
        self.clients(&mut out)?;
        self.engine(&mut out)?;
        self.legs(&mut out)?;
        self.leg_latencies(&mut out)?;
        self.drives(&mut out)
    }
}

impl SnapshotCollector {
    #[rustfmt::skip]
    fn volume(&self, out: &mut Out<'_>) -> fmt::Result {
        let Snapshot { status, identity, phase, opened, taken, buffers, .. } = &*self.snapshot;
        let seconds = |since: &Instant| self.now.saturating_duration_since(*since).as_secs_f64();
        out.info("volume", "The volume and the version that serves it", &vec![
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("id", hex(identity.id)),
            ("policy", policy_name(self.judged.policy).to_owned()),
        ])?;
        out.gauge("size_bytes", "Size of the volume", identity.size_bytes as f64)?;
        out.gauge("serving", "1 while clients are served", flag(*phase == Phase::Serving))?;
        out.gauge("healthy", "1 while the volume is healthy", flag(self.judged.health == Health::Healthy))?;
        out.gauge("degraded", "1 while clients are served, but something is at risk or lost", flag(self.judged.degraded))?;
        self.conditions(out)?;
        out.gauge("one_copy_bytes", "Bytes on one leg only, for any reason", self.judged.one_copy_bytes as f64)?;
        out.gauge("different_bytes", "Bytes in which legs are known to differ", self.judged.scrub.different_bytes as f64)?;
        out.gauge("ledger", "1 while a ledger is kept", flag(identity.ledger.path.is_some()))?;
        out.gauge("converged", "1 while every leg is whole and no difference is known", flag(self.judged.converged))?;
        out.gauge("uptime_seconds", "Time since the volume was opened", seconds(opened))?;
        out.gauge("snapshot_age_seconds", "Age of these figures; grows if the data path is stuck", seconds(taken))?;
        out.gauge("exposure_bytes", "Acknowledged bytes held by one leg only", status.exposure_bytes as f64)?;
        out.gauge("exposure_age_seconds", "Age of the oldest of them", as_seconds(status.exposure_age))?;
        out.gauge("exposure_peak_bytes", "Highest exposure since open", status.exposure_peak as f64)?;
        out.gauge("exposure_bound_bytes", "Bound on exposure in bytes", status.exposure_bytes_bound as f64)?;
        out.gauge("exposure_bound_age_seconds", "Bound on exposure in age", as_seconds(status.exposure_age_bound))?;
        out.gauge("throttling", "1 while writers are held back", flag(status.throttling))?;
        out.gauge("lost_bytes", "Acknowledged bytes no leg holds any more", status.lost_bytes as f64)?;
        out.gauge("buffer_budget_bytes", "Budget of payload memory", buffers.budget_bytes as f64)?;
        out.gauge("buffer_used_bytes", "Payload memory in use", buffers.used_bytes as f64)
    }

    fn conditions(&self, out: &mut Out<'_>) -> fmt::Result {
        let holds = |condition| match condition {
            Condition::NotOpen => self.judged.phase != Phase::Serving,
            other => self.judged.risks.iter().any(|risk| risk.condition == other),
        };
        out.family("condition", "1 while the condition holds", MetricType::Gauge, |family| {
            for condition in Condition::ALL {
                let labels: Labels = vec![("condition", condition.name().to_owned())];
                family.encode_family(&labels)?.encode_gauge(&flag(holds(condition)))?;
            }
            Ok(())
        })
    }

    #[rustfmt::skip]
    fn clients(&self, out: &mut Out<'_>) -> fmt::Result {
        let Snapshot { status, connections, .. } = &*self.snapshot;
        out.gauge("connections", "Open client connections", connections.open as f64)?;
        out.counter("connections_accepted", "Client connections accepted", connections.accepted)?;
        out.counter("connections_refused", "Client connections turned away", connections.refused)?;
        out.gauge("requests_in_flight", "Client requests in flight", f64::from(status.requests))?;
        out.counter("requests_failed", "Client requests answered with an error", status.failed)?;
        out.counter("stall_hidden_seconds", "Time that legs did not answer while clients were served", as_seconds(self.hidden.total_ns))?;
        let operation = |name: &str| vec![("operation", name.to_owned())];
        out.histograms("request_seconds", "Latency of client requests, from receipt to acknowledgement", &[
            (operation("read"), &status.client_reads),
            (operation("write"), &status.client_writes),
            (operation("zero"), &status.client_zeroes),
            (operation("flush"), &status.client_flushes),
        ])
    }

    #[rustfmt::skip]
    fn engine(&self, out: &mut Out<'_>) -> fmt::Result {
        let status = &self.snapshot.status;
        let (done, total) = status.scrub.unwrap_or_default();
        out.gauge("dirty_regions", "Dirty regions", f64::from(status.dirty_regions))?;
        out.gauge("armed_regions", "Armed regions", f64::from(status.armed_regions))?;
        out.counter("regions_dirtied", "Regions made dirty", status.regions_dirtied)?;
        out.counter("regions_cleaned", "Regions cleaned", status.regions_cleaned)?;
        out.counter("authority_moves", "Regions whose authority moved to another leg", status.authority_moves)?;
        out.counter("hedges", "Reads sent to a second leg", status.hedges)?;
        out.counter("hedges_won", "Hedges that answered first", status.hedges_won)?;
        out.counter("repairs", "Bad extents rewritten from another leg", status.repairs)?;
        out.gauge("scrub_running", "1 while a scrub runs", flag(status.scrub.is_some()))?;
        out.gauge("scrub_compared_bytes", "Bytes compared by the running scrub", (done * SECTOR_BYTES) as f64)?;
        out.gauge("scrub_size_bytes", "Bytes the running scrub will compare", (total * SECTOR_BYTES) as f64)?;
        out.gauge("scrub_mismatched_bytes", "Bytes found different by the last or running scrub", (status.scrub_mismatches * SECTOR_BYTES) as f64)
    }

    #[rustfmt::skip]
    fn legs(&self, out: &mut Out<'_>) -> fmt::Result {
        const STATES: [LegState; 5] = [
            LegState::Healthy,
            LegState::Lagging,
            LegState::Frozen,
            LegState::Gone,
            LegState::Out,
        ];
        out.family("leg_state", "1 for the state the leg is in", MetricType::Gauge, |family| {
            for leg in self.present() {
                for state in STATES {
                    let mut labels = self.labels(leg);
                    labels.push(("state", state.name().to_owned()));
                    family.encode_family(&labels)?.encode_gauge(&flag(leg.state == state))?;
                }
            }
            Ok(())
        })?;
        self.leg_gauge(out, "leg_slow", "1 while the leg is steadily later than the fastest", |leg| flag(leg.slow))?;
        self.leg_gauge(out, "leg_owed_bytes", "Acknowledged bytes the leg lacks", |leg| leg.owed_bytes as f64)?;
        self.leg_gauge(out, "leg_owed_region_bytes", "Of these, bytes owed as whole regions", |leg| leg.owed_region_bytes as f64)?;
        self.leg_gauge(out, "leg_owed_age_seconds", "Age of the leg's oldest exact debt", |leg| as_seconds(leg.owed_age))?;
        self.leg_gauge(out, "leg_in_flight", "I/O in flight", |leg| f64::from(leg.in_flight))?;
        self.leg_gauge(out, "leg_read_wait_limit_seconds", "Wait limit of a 4 KiB read", |leg| as_seconds(leg.read_wait_limit))?;
        self.leg_gauge(out, "leg_write_wait_limit_seconds", "Wait limit of a 4 KiB write", |leg| as_seconds(leg.write_wait_limit))?;
        self.leg_gauge(out, "leg_authority_regions", "Dirty regions whose authority the leg is", |leg| f64::from(leg.authority_regions))?;
        self.leg_gauge(out, "leg_longest_freeze_seconds", "Longest freeze since open", |leg| as_seconds(leg.longest_freeze))?;
        self.leg_counter(out, "leg_freezes", "Times the leg froze", |leg| leg.freezes as f64)?;
        self.leg_counter(out, "leg_frozen_seconds", "Time the leg was frozen", |leg| as_seconds(leg.frozen_time))?;
        self.leg_counter(out, "leg_read_bytes", "Bytes read from the leg", |leg| leg.read_bytes as f64)?;
        self.leg_counter(out, "leg_written_bytes", "Bytes written to the leg", |leg| leg.written_bytes as f64)?;
        self.leg_counter(out, "leg_drain_ios", "Drain I/Os", |leg| leg.drain_ios as f64)?;
        self.leg_counter(out, "leg_drained_bytes", "Bytes drained", |leg| leg.drained_bytes as f64)?;
        self.leg_counter(out, "leg_compared_bytes", "Bytes compared after an unclean stop and found equal", |leg| leg.compared_bytes as f64)?;
        self.leg_counter(out, "leg_metadata_writes", "Metadata pages written", |leg| leg.metadata_writes as f64)?;
        self.leg_counter(out, "leg_errors", "Failed I/Os", |leg| leg.errors as f64)
    }

    fn leg_latencies(&self, out: &mut Out<'_>) -> fmt::Result {
        let mut histograms: Vec<Labelled<'_>> = Vec::new();
        for leg in self.present() {
            for (operation, histogram) in
                [("read", &leg.reads), ("write", &leg.writes), ("flush", &leg.flushes)]
            {
                let mut labels = self.labels(leg);
                labels.push(("operation", operation.to_owned()));
                histograms.push((labels, histogram));
            }
        }
        out.histograms("leg_io_seconds", "Latency of leg I/O", &histograms)
    }

    fn present(&self) -> impl Iterator<Item = &LegStatus> {
        self.snapshot.status.legs.iter().filter(|leg| leg.state != LegState::Empty)
    }

    fn labels(&self, leg: &LegStatus) -> Labels {
        let name = self
            .snapshot
            .legs
            .iter()
            .find(|identity| identity.leg == leg.leg)
            .map_or_else(String::new, |identity| identity.name.clone());
        vec![("leg", leg.leg.to_string()), ("name", name)]
    }

    fn leg_gauge(
        &self,
        out: &mut Out<'_>,
        name: &str,
        help: &str,
        value: fn(&LegStatus) -> f64,
    ) -> fmt::Result {
        out.family(name, help, MetricType::Gauge, |family| {
            for leg in self.present() {
                family.encode_family(&self.labels(leg))?.encode_gauge(&value(leg))?;
            }
            Ok(())
        })
    }

    fn leg_counter(
        &self,
        out: &mut Out<'_>,
        name: &str,
        help: &str,
        value: fn(&LegStatus) -> f64,
    ) -> fmt::Result {
        out.family(name, help, MetricType::Counter, |family| {
            for leg in self.present() {
                let labels = self.labels(leg);
                family.encode_family(&labels)?.encode_counter(&value(leg), NO_EXEMPLAR)?;
            }
            Ok(())
        })
    }
}

const NO_EXEMPLAR: Option<&prometheus_client::metrics::exemplar::Exemplar<NoLabelSet, f64>> = None;

/// The encoder, with one call for each metric.
struct Out<'a> {
    encoder: DescriptorEncoder<'a>,
}

impl Out<'_> {
    fn family(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        fill: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        fill(&mut self.encoder.encode_descriptor(name, help, None, kind)?)
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.family(name, help, MetricType::Gauge, |metric| metric.encode_gauge(&value))
    }

    fn counter(&mut self, name: &str, help: &str, value: impl EncodeCounterValue) -> fmt::Result {
        self.family(name, help, MetricType::Counter, |metric| {
            metric.encode_counter(&value, NO_EXEMPLAR)
        })
    }

    fn info(&mut self, name: &str, help: &str, labels: &Labels) -> fmt::Result {
        self.family(name, help, MetricType::Info, |metric| metric.encode_info(labels))
    }

    fn histograms(&mut self, name: &str, help: &str, all: &[Labelled<'_>]) -> fmt::Result {
        self.family(name, help, MetricType::Histogram, |family| {
            for (labels, histogram) in all {
                let no_exemplars = None::<&std::collections::HashMap<_, _>>;
                family.encode_family(labels)?.encode_histogram::<NoLabelSet>(
                    as_seconds(histogram.sum()),
                    histogram.count(),
                    &octaves(histogram),
                    no_exemplars,
                )?;
            }
            Ok(())
        })
    }
}

/// Joins the engine's buckets into one for each power of two. That is a third of the lines, and enough for
/// the quantiles of a dashboard.
fn octaves(histogram: &LatencyHistogram) -> Vec<(f64, u64)> {
    const STEPS: usize = 4;
    let mut octaves: Vec<(f64, u64)> = histogram
        .buckets()
        .chunks(STEPS)
        .enumerate()
        .map(|(octave, counts)| {
            let last = (octave * STEPS + STEPS - 1).min(BUCKETS - 1);
            (as_seconds(bucket_upper_bound(last)), counts.iter().sum())
        })
        .collect();
    // The last one also holds everything above it.
    if let Some(last) = octaves.last_mut() {
        last.0 = f64::INFINITY;
    }
    octaves
}

fn as_seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

fn flag(set: bool) -> f64 {
    f64::from(u8::from(set))
}

/// Returns the policy's name in the configuration.
fn policy_name(policy: Policy) -> &'static str {
    match policy {
        Policy::First => "first",
        Policy::Paper => "paper",
        Policy::All => "all",
        Policy::WriteBehind => "write-behind",
    }
}

#[cfg(test)]
mod tests {
    use hemi_engine::status::Status;

    use super::super::api::Risk;
    use super::super::volume::{Identity, LegIdentity};
    use super::*;
    use crate::drive::DriveStatus;

    fn rendered() -> String {
        let mut leg =
            LegStatus { leg: 1, state: LegState::Frozen, freezes: 3, ..Default::default() };
        leg.frozen_time = 2_500_000_000;
        leg.writes.record(3_000);
        leg.writes.record(3_000_000);
        let identity = Identity { name: "db".into(), size_bytes: 1 << 30, ..Default::default() };
        let legs = vec![LegIdentity { leg: 1, name: "h\"dd".into(), path: "/dev/sdb".into() }];
        let mut snapshot = Snapshot::opening(identity, legs);
        snapshot.phase = Phase::Serving;
        snapshot.status = Status {
            legs: vec![LegStatus::default(), leg],
            exposure_bytes: 4096,
            authority_moves: 7,
            ..Default::default()
        };
        let drives = Drives::default();
        let drive = DriveStatus {
            device: Some("/dev/sdb".into()),
            model: Some("ST4000".into()),
            temperature_celsius: Some(31),
            used_permille: Some(125),
            media_errors: Some(2),
            ..DriveStatus::default()
        };
        // A leg that was in the slot before says nothing about this one.
        for (slot, spec) in [(1, "/dev/sdb"), (0, "/dev/sda")] {
            let drives_of_leg = vec![drive.clone(), DriveStatus::unknown("a remote leg")];
            drives.lock().insert(
                slot,
                LegDrives { spec: spec.into(), drives: drives_of_leg, verdict: None },
            );
        }
        let hidden = HiddenStall { total_ns: 1_500_000_000, ..HiddenStall::default() };
        let judged = VolumeStatus {
            phase: Phase::Serving,
            health: Health::Degraded,
            risks: vec![Risk {
                promise: "P1".into(),
                condition: Condition::SoleLeg,
                brief: String::new(),
                text: String::new(),
                advice: None,
            }],
            one_copy_bytes: 1 << 20,
            ..VolumeStatus::default()
        };
        render(Arc::new(snapshot), judged, &drives, hidden)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn figures_are_those_of_the_snapshot() {
        let text = rendered();
        for line in [
            "hemi_serving{volume=\"db\"} 1.0",
            "hemi_healthy{volume=\"db\"} 0.0",
            "hemi_condition{volume=\"db\",condition=\"sole-leg\"} 1.0",
            "hemi_condition{volume=\"db\",condition=\"lost\"} 0.0",
            "hemi_condition{volume=\"db\",condition=\"not-open\"} 0.0",
            "hemi_one_copy_bytes{volume=\"db\"} 1048576.0",
            "hemi_exposure_bytes{volume=\"db\"} 4096.0",
            "hemi_authority_moves_total{volume=\"db\"} 7",
            "hemi_stall_hidden_seconds_total{volume=\"db\"} 1.5",
            "hemi_leg_state{volume=\"db\",leg=\"1\",name=\"h\\\"dd\",state=\"frozen\"} 1.0",
            "hemi_leg_state{volume=\"db\",leg=\"1\",name=\"h\\\"dd\",state=\"healthy\"} 0.0",
            "hemi_leg_freezes_total{volume=\"db\",leg=\"1\",name=\"h\\\"dd\"} 3.0",
            "hemi_leg_frozen_seconds_total{volume=\"db\",leg=\"1\",name=\"h\\\"dd\"} 2.5",
            "hemi_drive_info{volume=\"db\",leg=\"1\",name=\"h\\\"dd\",device=\"/dev/sdb\",kind=\"unknown\",model=\"ST4000\",serial=\"\",firmware=\"\"} 1",
            "hemi_drive_temperature_celsius{volume=\"db\",leg=\"1\",name=\"h\\\"dd\",device=\"/dev/sdb\"} 31.0",
            "hemi_drive_endurance_used_ratio{volume=\"db\",leg=\"1\",name=\"h\\\"dd\",device=\"/dev/sdb\"} 0.125",
            "hemi_drive_media_errors_total{volume=\"db\",leg=\"1\",name=\"h\\\"dd\",device=\"/dev/sdb\"} 2.0",
        ] {
            assert!(text.lines().any(|found| found == line), "no line {line} in\n{text}");
        }
        assert!(!text.contains("leg=\"0\""), "an empty slot has no metrics:\n{text}");
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn histograms_accumulate_to_their_count() {
        let text = rendered();
        let of_writes: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("hemi_leg_io_seconds") && line.contains("\"write\""))
            .collect();
        let ends = |part: &str| {
            of_writes
                .iter()
                .find(|line| line.contains(part))
                .and_then(|line| line.rsplit(' ').next())
        };
        assert_eq!(ends("le=\"0.000004095\""), Some("1"), "{of_writes:#?}");
        assert_eq!(ends("le=\"+Inf\""), Some("2"));
        assert_eq!(ends("_count"), Some("2"));
        assert_eq!(ends("_sum"), Some("0.003003"));
    }

    #[test]
    fn the_documentation_lists_every_metric() {
        let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
        let listed = std::fs::read_to_string(&page).expect("docs/metrics.md is in the tree");
        let up = merged::up(&[]).unwrap_or_else(|error| panic!("{error}"));
        let text = rendered() + &up;
        let mut count = 0;
        for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let (name, kind) = line.split_once(' ').expect("a TYPE line has a name and a kind");
            let shown = match kind {
                "counter" => format!("{name}_total"),
                "info" => format!("{name}_info"),
                _ => name.to_owned(),
            };
            let row = format!("| `{shown}` | {kind} |");
            assert!(listed.contains(&row), "docs/metrics.md lacks the row beginning: {row}");
            count += 1;
        }
        let rows = listed.lines().filter(|line| line.starts_with("| `hemi_")).count();
        assert_eq!(rows, count, "docs/metrics.md lists a metric that does not exist");
    }
}
