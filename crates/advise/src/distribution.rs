//! Distributions of latencies, exact and by rank.

use serde::Serialize;

/// Normal deviate of a two-sided interval of 95 %.
const DEVIATE: f64 = 1.96;

/// A distribution of latencies in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Distribution {
    /// Number of requests.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Lower end of the 95 % interval of the 99.9th percentile, by rank, if requests were
    /// independent. Those of a burst are not, so the true interval is wider.
    pub p999_low: f64,
    /// Upper end of that interval.
    pub p999_high: f64,
    /// Longest.
    pub max: f64,
}

impl Distribution {
    /// Returns the distribution of latencies in nanoseconds, or `None` if there are none.
    pub fn of(latencies: impl Iterator<Item = u64>) -> Option<Distribution> {
        let mut sorted: Vec<u64> = latencies.collect();
        sorted.sort_unstable();
        let count = sorted.len();
        let last = *sorted.last()?;
        let sum: u128 = sorted.iter().map(|&latency| u128::from(latency)).sum();
        let share = |share: f64| sorted[rank(count, share)];
        let around = DEVIATE * libm::sqrt(count as f64 * 0.999 * 0.001);
        let at = |rank: f64| sorted[(rank.max(1.0) as usize - 1).min(count - 1)];
        let middle = libm::ceil(count as f64 * 0.999);
        Some(Distribution {
            count: count as u64,
            mean: sum as f64 / count as f64 / 1e9,
            p50: seconds(share(0.5)),
            p99: seconds(share(0.99)),
            p999: seconds(share(0.999)),
            p999_low: seconds(at(libm::floor(middle - around))),
            p999_high: seconds(at(libm::ceil(middle + around))),
            max: seconds(last),
        })
    }
}

/// Returns the index of the value that `share` of `count` sorted values do not exceed.
pub(crate) fn rank(count: usize, share: f64) -> usize {
    let rank = libm::ceil(share * count as f64).max(1.0) as usize;
    rank.min(count) - 1
}

/// Converts nanoseconds to seconds.
pub(crate) fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::Distribution;

    #[test]
    fn percentiles_are_exact_values_of_the_sample() {
        let all = Distribution::of((1..=10_000).map(|n| n * 1_000_000)).unwrap();
        assert_eq!((all.p50, all.p99, all.p999, all.max), (5.0, 9.9, 9.99, 10.0));
        // 10,000 requests: rank 9,990 plus or minus 1.96 * sqrt(9.99) = 6.2.
        assert_eq!((all.p999_low, all.p999_high), (9.983, 9.997));
        assert!((all.mean - 5.0005).abs() < 1e-9);
        let one = Distribution::of([7].into_iter()).unwrap();
        assert_eq!((one.p50, one.p999, one.p999_high, one.max), (7e-9, 7e-9, 7e-9, 7e-9));
        assert_eq!(Distribution::of(std::iter::empty()), None);
    }
}
