//! What a load found, as others read it.
//!
//! Where a figure means what a simulation's means, it has the same name and unit
//! ([`hemi_workload::report`]): seconds and bytes. A load that was later than its bound has no
//! latencies: they are absent or null, and `refusal` says why.

use hemi_units::SECOND;
use hemi_workload::figures::Latencies;
use hemi_workload::report::{IntervalReport, Spread, seconds};
use serde::Serialize;

use crate::account::{Account, Beside};
use crate::engine::{Ending, Totals};
use crate::rows::error_of;
use crate::target::Target;

/// Of the two sides of Little's law, the largest difference that passes, as a share.
const LITTLE_TOLERANCE: f64 = 0.02;

/// What is known of a load before it begins.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// The spec's title.
    pub title: String,
    /// All chance of the load came from it.
    pub seed: u64,
    /// The command that made it.
    pub command: Vec<String>,
    /// Version of the engine.
    pub version: &'static str,
    /// The kernel's release.
    pub kernel: String,
    /// When it began, which is the zero of its requests' times: seconds since 1970.
    pub began: f64,
    /// What it went to.
    pub target: TargetReport,
    /// Most requests under way.
    pub queue_depth_cap: u32,
    /// How long before its time a request was spun for.
    pub spin: f64,
    /// The bound of the lateness.
    pub lateness_bound: f64,
}

/// A target.
#[derive(Clone, Debug, Serialize)]
pub struct TargetReport {
    /// As it was named.
    pub name: String,
    /// `file`, `block device`, `nbd` or `null`.
    pub kind: &'static str,
    /// Bytes.
    pub size: u64,
    /// The smallest unit it reads and writes, bytes.
    pub block: u32,
    /// Whether the page cache was bypassed; null where that is not ours to say.
    pub direct: Option<bool>,
}

impl TargetReport {
    /// Of a target.
    pub fn of(target: &Target) -> TargetReport {
        TargetReport {
            name: target.name().to_owned(),
            kind: target.kind(),
            size: target.size(),
            block: target.block(),
            direct: target.direct(),
        }
    }
}

/// A load's result.
#[derive(Clone, Debug, Serialize)]
pub struct LoadReport {
    /// How it was made.
    #[serde(flatten)]
    pub setting: Setting,
    /// Why it ended.
    pub ended: Ending,
    /// Whether it ended before the workload was over.
    pub partial: bool,
    /// Why there are no latencies, if there are none.
    pub refusal: Option<String>,
    /// Time of the whole load, and of what was measured.
    pub time: f64,
    /// See `time`.
    pub measured: f64,
    /// Requests issued.
    pub requests: u64,
    /// Requests that ended well, that failed, that were still under way at the end, and that
    /// waited for the cap when the load was stopped and were never issued.
    pub completed: u64,
    /// See `completed`.
    pub failed: u64,
    /// See `completed`.
    pub unfinished: u64,
    /// See `completed`.
    pub dropped: u64,
    /// Requests rounded outwards to the target's blocks.
    pub rounded: u64,
    /// Failures by kind.
    pub errors: Vec<ErrorReport>,
    /// How late the engine itself was: from when a request might have gone to when it went.
    pub lateness: Spread,
    /// From when a request went to when it was seen to be done: latency without the wait for
    /// the cap and without the engine's lateness.
    pub service: Option<Spread>,
    /// Reads.
    pub reads: Kind,
    /// Writes.
    pub writes: Kind,
    /// Flushes.
    pub flushes: Kind,
    /// Everything.
    pub all: Kind,
    /// What the load checked of itself.
    pub audit: Audit,
    /// What it cost.
    pub processor: Processor,
    /// The load, interval by interval.
    pub intervals: Vec<Interval>,
}

/// Failures of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct ErrorReport {
    /// What failed: `read`, `write`, `trim`, `flush`.
    pub operation: &'static str,
    /// How: `media`, `no space`, `gone`, `other`.
    pub error: &'static str,
    /// How often.
    pub count: u64,
    /// When first.
    pub first: f64,
}

/// Rates of one kind of request, and latencies from the intended time.
#[derive(Clone, Debug, Serialize)]
pub struct Kind {
    /// How many.
    pub count: u64,
    /// A second.
    pub iops: f64,
    /// Bytes a second.
    pub bandwidth: f64,
    /// The latencies; absent where they were refused.
    #[serde(flatten)]
    pub latency: Option<Spread>,
}

/// What the load checked of itself.
#[derive(Clone, Debug, Serialize)]
pub struct Audit {
    /// Whether everything below passed.
    pub passed: bool,
    /// Little's law over the whole load: mean number under way, and rate times mean stay.
    pub little: (f64, f64),
    /// Whether the two agree within 2 %. What never ended is in the first alone.
    pub little_holds: bool,
    /// Whether what was issued is what completed, failed and was left unfinished.
    pub counts_hold: bool,
    /// Whether the lateness is within its bound.
    pub lateness_holds: bool,
    /// Times the engine had to wait for its own account; shows as lateness.
    pub account_waits: u64,
}

/// What a load cost in processor time, seconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Processor {
    /// Of the engine's thread, spinning included.
    pub engine: f64,
    /// Of the whole process: with the account, and the kernel's workers for this ring.
    pub process: f64,
    /// Time spent spinning.
    pub spun: f64,
    /// Share of the time the engine's thread was on a processor.
    pub engine_share: f64,
    /// The same without the spinning: what of the generator's ceiling was used.
    pub busy_share: f64,
}

/// One interval.
#[derive(Clone, Debug, Serialize)]
pub struct Interval {
    /// When it began.
    pub start: f64,
    /// Requests that ended well a second.
    pub iops: f64,
    /// Bytes a second.
    pub bandwidth: f64,
    /// Requests that failed.
    pub failed: u64,
    /// Mean latency; this and the other latencies null where they were refused.
    pub mean: Option<f64>,
    /// Standard deviation of latencies.
    pub standard_deviation: Option<f64>,
    /// The longest.
    pub max: Option<f64>,
    /// The latest request.
    pub lateness_max: f64,
    /// The latencies' HDR histogram, as in [`Spread`].
    pub histogram: Option<Vec<(u64, u64)>>,
}

impl LoadReport {
    /// What engine and account have to say; `lateness_bound` and `interval` in nanoseconds,
    /// `process_time` that of the process during the load.
    pub fn new(
        setting: Setting,
        totals: &Totals,
        account: &Account,
        lateness_bound: u64,
        interval: u64,
        process_time: u64,
    ) -> LoadReport {
        let lateness = Spread::of(&account.lateness);
        let late = account.lateness.quantile(0.99);
        let refusal = (late > lateness_bound).then(|| {
            format!(
                "the engine itself was late by {} µs at the 99th percentile, beyond the bound of \
                 {} µs: latencies would be the machine's, not the target's",
                late / 1000,
                lateness_bound / 1000
            )
        });
        let shown = refusal.is_none();
        let kind = |latencies: &Latencies| Kind {
            count: latencies.count(),
            iops: account.figures.rate(latencies),
            bandwidth: account.figures.bandwidth(latencies),
            latency: shown.then(|| Spread::of(latencies)),
        };
        let time = totals.time.max(1) as f64;
        let little = (totals.presence as f64 / time, account.stays as f64 / time);
        let little_holds = (little.0 - little.1).abs() <= LITTLE_TOLERANCE * little.0.max(little.1);
        let failed = account.failed();
        let counts_hold = totals.issued == account.completed + failed + totals.unfinished
            && totals.ended == account.completed + failed;
        let engine = totals.thread_time.min(totals.time) as f64;
        let spun = totals.spun.min(totals.time) as f64;
        LoadReport {
            ended: totals.ending,
            partial: totals.ending != Ending::Finished || totals.unfinished > 0,
            time: seconds(totals.time),
            measured: seconds(account.figures.measured()),
            requests: totals.issued,
            completed: account.completed,
            failed,
            unfinished: totals.unfinished,
            dropped: totals.dropped,
            rounded: totals.rounded,
            errors: errors(account),
            lateness,
            service: shown.then(|| Spread::of(&account.service)),
            reads: kind(&account.figures.reads),
            writes: kind(&account.figures.writes),
            flushes: kind(&account.figures.flushes),
            all: kind(&account.figures.all),
            audit: Audit {
                passed: little_holds && counts_hold && shown,
                little,
                little_holds,
                counts_hold,
                lateness_holds: shown,
                account_waits: totals.waits,
            },
            processor: Processor {
                engine: seconds(totals.thread_time),
                process: seconds(process_time),
                spun: seconds(totals.spun),
                engine_share: engine / time,
                busy_share: (engine - spun).max(0.0) / time,
            },
            intervals: intervals(account, interval, shown),
            refusal,
            setting,
        }
    }
}

fn errors(account: &Account) -> Vec<ErrorReport> {
    let failures = account.failures.iter();
    failures
        .filter_map(|(&(operation, outcome), failures)| {
            let error = error_of(outcome)?;
            let (count, first) = (failures.count, seconds(failures.first));
            Some(ErrorReport { operation, error, count, first })
        })
        .collect()
}

fn intervals(account: &Account, length: u64, shown: bool) -> Vec<Interval> {
    let pairs = account.figures.intervals.iter().zip(&account.beside);
    pairs
        .map(|(interval, beside)| {
            let report = IntervalReport::of(interval, length);
            let Beside { failed, lateness_max, histogram } = beside;
            Interval {
                start: report.start,
                iops: report.iops,
                bandwidth: report.bandwidth,
                failed: *failed,
                mean: shown.then_some(report.mean),
                standard_deviation: shown.then_some(report.standard_deviation),
                max: shown.then_some(report.max),
                lateness_max: *lateness_max as f64 / SECOND as f64,
                histogram: shown.then(|| histogram.clone()),
            }
        })
        .collect()
}
