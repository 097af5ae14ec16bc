//! Latencies and intervals as reports print them: seconds and bytes.

use hemi_units::SECOND;
use serde::Serialize;

use crate::figures::{Interval, Latencies};

/// How times are spread.
#[derive(Clone, Debug, Serialize)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Standard deviation of the population.
    pub standard_deviation: f64,
    /// Median.
    pub p50: f64,
    /// 90 % are no longer.
    pub p90: f64,
    /// 99 %.
    pub p99: f64,
    /// 99.9 %.
    pub p999: f64,
    /// 99.99 %.
    pub p9999: f64,
    /// The longest.
    pub max: f64,
    /// The HDR histogram: highest nanoseconds of each bucket that holds any, and how many.
    pub histogram: Vec<(u64, u64)>,
}

/// One interval.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct IntervalReport {
    /// When it began.
    pub start: f64,
    /// Requests that ended a second.
    pub iops: f64,
    /// Bytes a second.
    pub bandwidth: f64,
    /// Mean latency.
    pub mean: f64,
    /// Standard deviation of latencies.
    pub standard_deviation: f64,
    /// The longest.
    pub max: f64,
    /// Exposure at its end.
    pub exposure_bytes: u64,
    /// Age of what is exposed.
    pub exposure_age: f64,
    /// Writes that had to wait for the record of a clean region, for 1,000 of its writes.
    pub records_per_1000_writes: f64,
    /// Pages of the region table written, all legs together, for 1,000 of its writes.
    pub page_writes_per_1000_writes: f64,
    /// Moves of authority for 1,000 of its writes.
    pub moves_per_1000_writes: f64,
}

impl Spread {
    /// Of what was recorded.
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
    /// Makes the report of an interval of `length` nanoseconds.
    pub fn of(interval: &Interval, length: u64) -> IntervalReport {
        let a_second = SECOND as f64 / length as f64;
        let thousands = interval.writes.count.max(1) as f64 / 1e3;
        let for_1000_writes = |count: u64| count as f64 / thousands;
        IntervalReport {
            start: seconds(interval.start.0),
            iops: interval.latencies.count as f64 * a_second,
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

/// Nanoseconds as seconds.
pub fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / SECOND as f64
}
