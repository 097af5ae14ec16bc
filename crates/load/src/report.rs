//! The results of a load, as other programs read them.
//!
//! A figure that means the same as a simulation's has the same name and unit
//! ([`hemi_workload::report`]): seconds and bytes. A load whose lateness exceeded its bound has no
//! latencies: they are absent or null, and `refusal` gives the reason.

use hemi_units::SECOND;
use hemi_workload::figures::Latencies;
use hemi_workload::report::{IntervalReport, Spread, seconds};
use serde::Serialize;

use crate::account::{Account, Beside};
use crate::engine::{Ending, Totals};
use crate::rows::error_of;
use crate::target::Target;

/// The largest difference between the two sides of Little's law that passes, as a share.
const LITTLE_TOLERANCE: f64 = 0.02;

/// The facts of a load that are known before it begins.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// The spec's title.
    pub title: String,
    /// The seed of everything random in the load.
    pub seed: u64,
    /// The command line.
    pub command: Vec<String>,
    /// The version of the engine.
    pub version: &'static str,
    /// The kernel's release.
    pub kernel: String,
    /// The time at which it began, which is the zero of its requests' times, in seconds since 1970.
    pub began: f64,
    /// The target.
    pub target: TargetReport,
    /// Clauses that say what the replayed traces are known to lack.
    pub warnings: Vec<String>,
    /// The most requests in flight.
    pub queue_depth_cap: u32,
    /// The time before a request's intended time for which the engine spun.
    pub spin: f64,
    /// The bound of the lateness.
    pub lateness_bound: f64,
}

/// The target of a load.
#[derive(Clone, Debug, Serialize)]
pub struct TargetReport {
    /// The name it was given.
    pub name: String,
    /// `file`, `block device`, `nbd` or `null`.
    pub kind: &'static str,
    /// The size in bytes.
    pub size: u64,
    /// The smallest unit it reads and writes, in bytes.
    pub block: u32,
    /// True if the page cache was bypassed, or null where the load does not control that.
    pub direct: Option<bool>,
}

impl TargetReport {
    /// Describes a target.
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
    /// The circumstances of the load.
    #[serde(flatten)]
    pub setting: Setting,
    /// The reason why it ended.
    pub ended: Ending,
    /// True if it ended before the workload was over.
    pub partial: bool,
    /// The reason why there are no latencies, if they were refused.
    pub refusal: Option<String>,
    /// The time of the whole load.
    pub time: f64,
    /// The time of the part that was measured.
    pub measured: f64,
    /// Requests issued.
    pub requests: u64,
    /// Requests that succeeded.
    pub completed: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests that were still in flight at the end.
    pub unfinished: u64,
    /// Requests that waited for the cap when the load was stopped, and were never issued.
    pub dropped: u64,
    /// Requests rounded outwards to the target's blocks.
    pub rounded: u64,
    /// Failures by kind.
    pub errors: Vec<ErrorReport>,
    /// The engine's own lateness: from when a request might have been issued to when it was.
    pub lateness: Spread,
    /// The time from when a request was issued to when it was seen to be done: latency without the
    /// wait for the cap and without the engine's lateness.
    pub service: Option<Spread>,
    /// Reads.
    pub reads: Kind,
    /// Writes.
    pub writes: Kind,
    /// Flushes.
    pub flushes: Kind,
    /// All requests.
    pub all: Kind,
    /// The load's checks of itself.
    pub audit: Audit,
    /// The cost in processor time.
    pub processor: Processor,
    /// The load, interval by interval.
    pub intervals: Vec<Interval>,
}

/// Failures of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct ErrorReport {
    /// The operation that failed: `read`, `write`, `trim`, `flush`.
    pub operation: &'static str,
    /// The error: `media`, `no space`, `gone`, `other`.
    pub error: &'static str,
    /// The number of failures.
    pub count: u64,
    /// The time of the first.
    pub first: f64,
}

/// The rates of one kind of request, and its latencies from the intended time.
#[derive(Clone, Debug, Serialize)]
pub struct Kind {
    /// The number of requests.
    pub count: u64,
    /// Requests per second.
    pub iops: f64,
    /// Bytes per second.
    pub bandwidth: f64,
    /// The latencies, absent where they were refused.
    #[serde(flatten)]
    pub latency: Option<Spread>,
}

/// The load's checks of itself.
#[derive(Clone, Debug, Serialize)]
pub struct Audit {
    /// True if every check passed.
    pub passed: bool,
    /// Little's law over the whole load: the mean number in flight, and the rate times the mean
    /// stay.
    pub little: (f64, f64),
    /// True if the two agree within 2 %. Requests that never ended count only in the first.
    pub little_holds: bool,
    /// True if the requests issued equal the sum of those that completed, failed and were left
    /// unfinished.
    pub counts_hold: bool,
    /// True if the lateness is within its bound.
    pub lateness_holds: bool,
    /// The number of times the engine had to wait for its own account, which shows as lateness.
    pub account_waits: u64,
}

/// The cost of a load in processor time, in seconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Processor {
    /// The time of the engine's thread, spinning included.
    pub engine: f64,
    /// The time of the whole process, with the account and the kernel's workers for this ring.
    pub process: f64,
    /// The time spent spinning.
    pub spun: f64,
    /// The share of the time that the engine's thread was on a processor.
    pub engine_share: f64,
    /// The same without the spinning: the used share of the generator's capacity.
    pub busy_share: f64,
}

/// An interval of the load.
#[derive(Clone, Debug, Serialize)]
pub struct Interval {
    /// The time at which it began.
    pub start: f64,
    /// Requests that succeeded, per second.
    pub iops: f64,
    /// Bytes per second.
    pub bandwidth: f64,
    /// Requests that failed.
    pub failed: u64,
    /// The mean latency. This and the other latencies are null where they were refused.
    pub mean: Option<f64>,
    /// The standard deviation of latencies.
    pub standard_deviation: Option<f64>,
    /// The longest latency.
    pub max: Option<f64>,
    /// The highest lateness of a request.
    pub lateness_max: f64,
    /// The latencies' HDR histogram, as in [`Spread`].
    pub histogram: Option<Vec<(u64, u64)>>,
}

impl LoadReport {
    /// Combines the counts of engine and account into a report. `lateness_bound` and `interval` are
    /// in nanoseconds, as is `process_time`, the processor time of the process during the load.
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
