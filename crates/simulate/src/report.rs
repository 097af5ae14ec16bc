//! Results of a run: the figures of one case, ready for JSON.

use std::collections::BTreeMap;

use hemi_drives::drive::{Counters, Failed};
use serde::Serialize;

use crate::described::Described;
use hemi_workload::figures::{Figures, Latencies, Little};
use hemi_workload::report::{IntervalReport, Spread, seconds};

use crate::mirror::LegCondition;

/// The result of one case. Times are in seconds, sizes in bytes.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The spec's title.
    pub title: String,
    /// The sweep's choices, as `key = value`.
    pub choices: Vec<(String, String)>,
    /// Seed of all randomness in the run.
    pub seed: u64,
    /// `system.scale`, which divides the capacity of flash in addition to the preset's own
    /// scale.
    pub scale: u64,
    /// Reasons why the figures may not be those of the drives, each with the way out, and what the
    /// replayed traces lack.
    pub warnings: Vec<String>,
    /// Virtual time of the whole run.
    pub time: f64,
    /// Virtual time of the measured part.
    pub measured: f64,
    /// Requests issued in the whole run.
    pub requests: u64,
    /// Those of them that failed; absent if the spec has no faults. They count in no latency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<Failed>,
    /// Reads.
    pub reads: Summary,
    /// Writes.
    pub writes: Summary,
    /// Flushes.
    pub flushes: Summary,
    /// All requests.
    pub all: Summary,
    /// The legs, or the only drive.
    pub legs: Vec<LegReport>,
    /// Highest exposure at the end of an interval or by the engine's own account.
    pub exposure_peak: u64,
    /// Little's law over the whole run: mean number in the system, and rate times mean stay.
    pub little: (f64, f64),
    /// Additional figures of the system, by name.
    pub extra: BTreeMap<&'static str, f64>,
    /// The run, interval by interval. The last interval may be shorter.
    pub intervals: Vec<IntervalReport>,
}

/// Latencies of one kind of request, from the intended time.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Number of requests.
    pub count: u64,
    /// Requests per second.
    pub iops: f64,
    /// Bytes per second.
    pub bandwidth: f64,
    /// Distribution of the latencies.
    #[serde(flatten)]
    pub latency: Spread,
}

/// The report of one drive of the system.
#[derive(Clone, Debug, Serialize)]
pub struct LegReport {
    /// The drive.
    #[serde(flatten)]
    pub drive: Described,
    /// Share of the bytes read from all legs.
    pub read_share: f64,
    /// Share of the bytes written to all legs.
    pub write_share: f64,
    /// Reads the leg was given.
    pub reads: u64,
    /// Writes the leg was given.
    pub writes: u64,
    /// Flushes the leg was given.
    pub flushes: u64,
    /// Bytes read from the leg.
    pub read_bytes: u64,
    /// Bytes written to the leg.
    pub written_bytes: u64,
    /// Share of the time the drive had work.
    pub busy: f64,
    /// Flash pages programmed for each page the host wrote.
    pub write_amplification: f64,
    /// Flash blocks erased in the run.
    pub erases: u64,
    /// Erases of the least erased block, over the drive's whole life.
    pub erases_least: u64,
    /// Erases of the most erased block, over the drive's whole life.
    pub erases_most: u64,
    /// Joules used in the run.
    pub energy: f64,
    /// Wear of its flash; absent if nothing is known of its rating, or the spec has no faults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wear: Option<WearReport>,
    /// Failures and condition; absent if the spec has no faults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<LegHealth>,
}

/// The wear of a leg's flash, as a drive of full capacity has it. (The model's blocks are erased
/// more often if its capacity is scaled; `erases` counts those.)
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WearReport {
    /// Program/erase cycles that a block is rated for.
    pub rated_cycles: u32,
    /// Cycles of a block on average, over the drive's whole life.
    pub cycles_mean: f64,
    /// Cycles of the most erased block.
    pub cycles_max: f64,
    /// Share of the rated cycles used: mean by rated.
    pub used: f64,
    /// Seconds from the end of the run until the mean reaches the rated cycles, if the flash goes
    /// on to be erased as fast as in the run. `None` if nothing was erased.
    pub lasts: Option<f64>,
}

impl WearReport {
    /// Returns the wear after a run of `time` nanoseconds that began with `before` cycles, or `None`
    /// without a rating.
    pub fn of(now: &Counters, before: f64, time: u64) -> Option<WearReport> {
        let rated = f64::from(now.rated_cycles);
        let per_second = (now.cycles - before) / seconds(time.max(1));
        let left = (rated - now.cycles).max(0.0);
        (now.rated_cycles > 0).then(|| WearReport {
            rated_cycles: now.rated_cycles,
            cycles_mean: now.cycles,
            cycles_max: now.cycles_most,
            used: now.cycles / rated,
            lasts: (per_second > 0.0).then(|| left / per_second),
        })
    }
}

/// The failures and the condition of a leg under faults.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LegHealth {
    /// Requests that it failed, metadata and rebuilds of a mirror included.
    pub failed: Failed,
    /// Members of its array that the array goes on without; left out if there are none.
    #[serde(skip_serializing_if = "is_zero")]
    pub members_out: u64,
    /// Its condition in a mirror of the engine; absent for any other system.
    #[serde(flatten)]
    pub condition: Option<LegCondition>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Summary {
    /// Summarizes the latencies of a run.
    pub fn of(figures: &Figures, latencies: &Latencies) -> Summary {
        Summary {
            count: latencies.count(),
            iops: figures.rate(latencies),
            bandwidth: figures.bandwidth(latencies),
            latency: Spread::of(latencies),
        }
    }
}

/// A part of a run, seen from the legs.
#[derive(Clone, Copy, Debug)]
pub struct LegsInTime<'a> {
    /// Drives of the legs.
    pub drives: &'a [Described],
    /// The legs' counters at the beginning.
    pub before: &'a [Counters],
    /// The legs' counters at the end.
    pub after: &'a [Counters],
    /// Length in nanoseconds.
    pub time: u64,
    /// Conditions of the legs in a mirror; `None` if the spec has no faults.
    pub conditions: Option<&'a [Option<LegCondition>]>,
}

/// Returns the legs' reports.
pub fn legs(of: LegsInTime<'_>) -> Vec<LegReport> {
    let LegsInTime { drives, before, after, time, conditions } = of;
    let counters: Vec<Counters> =
        after.iter().zip(before).map(|(now, before)| now.since(before)).collect();
    let counters = &counters;
    let total = |of: fn(&Counters) -> u64| counters.iter().map(of).sum::<u64>();
    let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    let (read, written) = (total(|leg| leg.read_bytes), total(|leg| leg.written_bytes));
    let report = |(index, (drive, leg)): (usize, (&Described, &Counters))| LegReport {
        drive: drive.clone(),
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
        wear: conditions.and_then(|_| WearReport::of(leg, before[index].cycles, time)),
        health: conditions.map(|of| LegHealth {
            failed: leg.failed,
            members_out: leg.members_out,
            condition: of[index],
        }),
    };
    drives.iter().zip(counters).enumerate().map(report).collect()
}

/// Returns Little's law in the form of the report.
pub fn little(little: Little) -> (f64, f64) {
    (little.in_system, little.rate_by_stay)
}
