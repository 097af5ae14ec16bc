//! Latencies and intervals in the units of reports: seconds and bytes.

use hemi_units::SECOND;
use serde::Serialize;

use crate::figures::{Interval, Latencies};

/// The distribution of latencies, in seconds.
#[derive(Clone, Debug, Serialize)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Standard deviation of the population.
    pub standard_deviation: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// 99.99th percentile.
    pub p9999: f64,
    /// Maximum.
    pub max: f64,
    /// HDR histogram: highest nanoseconds of each non-empty bucket, and its count.
    pub histogram: Vec<(u64, u64)>,
}

/// The report of one interval.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct IntervalReport {
    /// Start in seconds.
    pub start: f64,
    /// Requests completed per second.
    pub iops: f64,
    /// Requests that failed; absent if none did.
    #[serde(skip_serializing_if = "is_zero")]
    pub failed: u64,
    /// Bytes per second.
    pub bandwidth: f64,
    /// Mean latency in seconds.
    pub mean: f64,
    /// Standard deviation of the latencies in seconds.
    pub standard_deviation: f64,
    /// Longest latency in seconds.
    pub max: f64,
    /// Exposed bytes at the end of the interval.
    pub exposure_bytes: u64,
    /// Age of the oldest exposed bytes in seconds.
    pub exposure_age: f64,
    /// Writes in 1,000 that waited for the record of a clean region.
    pub records_per_1000_writes: f64,
    /// Pages of the region table written per 1,000 writes, over all legs.
    pub page_writes_per_1000_writes: f64,
    /// Moves of authority per 1,000 writes.
    pub moves_per_1000_writes: f64,
}

impl Spread {
    /// Returns the distribution of the recorded latencies.
    pub fn of(latencies: &Latencies) -> Spread {
        let quantile = |share| seconds(latencies.quantile(share));
        let moments = latencies.moments();
        Spread {
            mean: moments.mean(),
            standard_deviation: moments.standard_deviation(),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            p9999: quantile(0.9999),
            max: seconds(moments.max),
            histogram: latencies.buckets(),
        }
    }
}

impl IntervalReport {
    /// Returns the report of an interval of `length` nanoseconds.
    pub fn of(interval: &Interval, length: u64) -> IntervalReport {
        let a_second = SECOND as f64 / length as f64;
        let thousands = interval.writes.count.max(1) as f64 / 1e3;
        let for_1000_writes = |count: u64| count as f64 / thousands;
        IntervalReport {
            start: seconds(interval.start.0),
            iops: interval.latencies.count as f64 * a_second,
            failed: interval.failed,
            bandwidth: interval.bytes as f64 * a_second,
            mean: interval.latencies.mean(),
            standard_deviation: interval.latencies.standard_deviation(),
            max: seconds(interval.latencies.max),
            exposure_bytes: interval.exposure_bytes,
            exposure_age: seconds(interval.exposure_age),
            records_per_1000_writes: for_1000_writes(interval.upkeep.records),
            page_writes_per_1000_writes: for_1000_writes(interval.upkeep.page_writes),
            moves_per_1000_writes: for_1000_writes(interval.upkeep.authority_moves),
        }
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Converts nanoseconds to seconds.
pub fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / SECOND as f64
}
