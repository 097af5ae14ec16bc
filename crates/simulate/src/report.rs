//! What a run found, as others read it: figures of one case, ready for JSON.

use std::collections::BTreeMap;

use hemi_drives::drive::Counters;
use serde::Serialize;

use hemi_workload::figures::{Figures, Latencies, Little};
use hemi_workload::report::{IntervalReport, Spread};

/// One case's result. Times are seconds, sizes bytes.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The spec's title.
    pub title: String,
    /// What the sweep chose, `key = value`.
    pub choices: Vec<(String, String)>,
    /// All chance of the run came from it.
    pub seed: u64,
    /// `system.scale`: divides the capacity of flash further than its preset does.
    pub scale: u64,
    /// Virtual time of the whole run, and of what was measured.
    pub time: f64,
    /// See `time`.
    pub measured: f64,
    /// Requests issued in the whole run.
    pub requests: u64,
    /// Reads.
    pub reads: Summary,
    /// Writes.
    pub writes: Summary,
    /// Flushes.
    pub flushes: Summary,
    /// Everything.
    pub all: Summary,
    /// The legs, or the one drive.
    pub legs: Vec<LegReport>,
    /// Highest exposure seen at the end of an interval, and of the engine's own account.
    pub exposure_peak: u64,
    /// Little's law over the whole run: mean number in the system, and rate times mean stay.
    pub little: (f64, f64),
    /// What the system knows of itself besides, by name.
    pub extra: BTreeMap<&'static str, f64>,
    /// The run, interval by interval. The last one is as long as the run still went on.
    pub intervals: Vec<IntervalReport>,
}

/// Latencies of one kind of request, from the intended time.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// How many.
    pub count: u64,
    /// A second.
    pub iops: f64,
    /// Bytes a second.
    pub bandwidth: f64,
    /// How long they took.
    #[serde(flatten)]
    pub latency: Spread,
}

/// One drive of the system.
#[derive(Clone, Debug, Serialize)]
pub struct LegReport {
    /// Its preset.
    pub preset: String,
    /// By how much the capacity of its flash is divided in all, its preset's own scale
    /// included; rates are unchanged.
    pub flash_scale: u64,
    /// Its share of the bytes that legs read, and wrote.
    pub read_share: f64,
    /// See `read_share`.
    pub write_share: f64,
    /// Requests it was given.
    pub reads: u64,
    /// See `reads`.
    pub writes: u64,
    /// See `reads`.
    pub flushes: u64,
    /// Bytes read from it.
    pub read_bytes: u64,
    /// Bytes written to it.
    pub written_bytes: u64,
    /// Share of the time it had something to do.
    pub busy: f64,
    /// Flash pages programmed for each the host wrote.
    pub write_amplification: f64,
    /// Flash blocks erased in the run, and of its whole life the block erased least and most.
    pub erases: u64,
    /// See `erases`.
    pub erases_least: u64,
    /// See `erases`.
    pub erases_most: u64,
    /// Joules used in the run.
    pub energy: f64,
}

impl Summary {
    /// Of what a run measured.
    pub fn of(figures: &Figures, latencies: &Latencies) -> Summary {
        Summary {
            count: latencies.count(),
            iops: figures.rate(latencies),
            bandwidth: figures.bandwidth(latencies),
            latency: Spread::of(latencies),
        }
    }
}

/// The legs' reports: presets, with the scale of their flash, and what each did in `time`
/// nanoseconds.
pub fn legs(presets: &[(String, u64)], counters: &[Counters], time: u64) -> Vec<LegReport> {
    let total = |of: fn(&Counters) -> u64| counters.iter().map(of).sum::<u64>();
    let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    let (read, written) = (total(|leg| leg.read_bytes), total(|leg| leg.written_bytes));
    let report = |((preset, flash_scale), leg): (&(String, u64), &Counters)| LegReport {
        preset: preset.clone(),
        flash_scale: *flash_scale,
        read_share: share(leg.read_bytes, read),
        write_share: share(leg.written_bytes, written),
        reads: leg.reads,
        writes: leg.writes,
        flushes: leg.flushes,
        read_bytes: leg.read_bytes,
        written_bytes: leg.written_bytes,
        busy: share(leg.busy, time),
        write_amplification: leg.write_amplification(),
        erases: leg.erases,
        erases_least: leg.erases_least,
        erases_most: leg.erases_most,
        energy: leg.energy,
    };
    presets.iter().zip(counters).map(report).collect()
}

/// Little's law as the report has it.
pub fn little(little: Little) -> (f64, f64) {
    (little.in_system, little.rate_by_stay)
}
