//! Statistics of a run: latencies from the intended time, by kind and by interval.

use hdrhistogram::Histogram;
use hemi_units::{Instant, Operation, SECOND};

/// Longest latency kept: an hour. Latencies have three significant digits.
const LONGEST: u64 = 3600 * SECOND;
const DIGITS: u8 = 3;

/// Latencies of one kind of request.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
    /// Bytes requested.
    pub bytes: u64,
    moments: Moments,
}

impl Default for Latencies {
    fn default() -> Latencies {
        let histogram = Histogram::new_with_bounds(1, LONGEST, DIGITS);
        Latencies {
            histogram: histogram.expect("good bounds"),
            bytes: 0,
            moments: Moments::default(),
        }
    }
}

impl Latencies {
    /// Records a latency in nanoseconds and the bytes of the request.
    pub fn record(&mut self, latency: u64, bytes: u64) {
        self.histogram.saturating_record(latency);
        self.bytes += bytes;
        self.moments.add(latency);
    }

    /// Clears all records.
    pub fn clear(&mut self) {
        self.histogram.reset();
        self.bytes = 0;
        self.moments = Moments::default();
    }

    /// Returns the number of requests recorded.
    pub fn count(&self) -> u64 {
        self.moments.count
    }

    /// Returns the latency in nanoseconds that this share (0 to 1) of the requests does not
    /// exceed. It is rounded up to three significant digits but never above the exact maximum;
    /// zero if there are none.
    pub fn quantile(&self, share: f64) -> u64 {
        self.histogram.value_at_quantile(share).min(self.moments.max)
    }

    /// Returns each bucket in use: its highest value in nanoseconds, and its count. The last
    /// bucket's highest value may exceed the exact maximum.
    pub fn buckets(&self) -> Vec<(u64, u64)> {
        let recorded = self.histogram.iter_recorded();
        recorded.map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value())).collect()
    }

    /// Returns the exact moments.
    pub fn moments(&self) -> &Moments {
        &self.moments
    }
}

/// Exact count, mean, standard deviation and maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moments {
    /// Number of latencies.
    pub count: u64,
    /// Largest latency in nanoseconds.
    pub max: u64,
    sum: u128,
    squares: u128,
}

impl Moments {
    /// Adds a latency in nanoseconds.
    pub fn add(&mut self, latency: u64) {
        self.count += 1;
        self.max = self.max.max(latency);
        self.sum += u128::from(latency);
        self.squares += u128::from(latency) * u128::from(latency);
    }

    /// Returns the mean in seconds, or zero if there are none.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 / SECOND as f64 }
    }

    /// Returns the standard deviation of the population in seconds, or zero if there are none.
    pub fn standard_deviation(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        // In integers, since this is the difference of two large numbers.
        let count = u128::from(self.count);
        let spread = self.squares.saturating_mul(count).saturating_sub(self.sum * self.sum);
        libm::sqrt(spread as f64) / self.count as f64 / SECOND as f64
    }
}

/// The statistics of one interval of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Interval {
    /// Start of the interval.
    pub start: Instant,
    /// Latencies of all requests that ended in it.
    pub latencies: Moments,
    /// Latencies of the reads among them.
    pub reads: Moments,
    /// Latencies of the writes among them.
    pub writes: Moments,
    /// Requests that failed in it.
    pub failed: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Acknowledged bytes that only one leg held at the end of the interval.
    pub exposure_bytes: u64,
    /// Age of the oldest of them, in nanoseconds.
    pub exposure_age: u64,
    /// Upkeep during the interval.
    pub upkeep: Upkeep,
}

/// The upkeep of a mirror: work for its guarantees in addition to the client's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Upkeep {
    /// Writes to a clean region, which waited for the page that records it as dirty.
    pub records: u64,
    /// Pages of the region table written, over all legs.
    pub page_writes: u64,
    /// Moves of a region's authority to another leg.
    pub authority_moves: u64,
}

impl Upkeep {
    /// Returns the work done after `earlier`.
    pub fn since(self, earlier: Upkeep) -> Upkeep {
        Upkeep {
            records: self.records - earlier.records,
            page_writes: self.page_writes - earlier.page_writes,
            authority_moves: self.authority_moves - earlier.authority_moves,
        }
    }
}

/// Little's law: the mean number of requests in the system, and the rate times their mean stay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Little {
    /// Mean number of requests in the system, measured by counting them over time.
    pub in_system: f64,
    /// Rate times mean stay, measured by the stay of each request.
    pub rate_by_stay: f64,
}

/// A completed request.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The operation.
    pub operation: Operation,
    /// Bytes read, written or trimmed.
    pub bytes: u64,
    /// Latency in nanoseconds, from the intended time.
    pub latency: u64,
    /// True if the request counts in the statistics.
    pub measured: bool,
}

/// The statistics of one run.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Reads.
    pub reads: Latencies,
    /// Writes.
    pub writes: Latencies,
    /// Flushes.
    pub flushes: Latencies,
    /// All requests, including trims.
    pub all: Latencies,
    /// Completed intervals, oldest first.
    pub intervals: Vec<Interval>,
    interval: Interval,
    /// Upkeep done by the end of the last interval.
    upkeep: Upkeep,
    length: u64,
    /// Issue of the first measured request and end of the last.
    measured: Option<(Instant, Instant)>,
}

impl Figures {
    /// Creates empty statistics from `start` on, with intervals of `length` nanoseconds (at
    /// least 1).
    pub fn new(start: Instant, length: u64) -> Figures {
        Figures {
            reads: Latencies::default(),
            writes: Latencies::default(),
            flushes: Latencies::default(),
            all: Latencies::default(),
            intervals: Vec::new(),
            interval: Interval { start, ..Interval::default() },
            upkeep: Upkeep::default(),
            length: length.max(1),
            measured: None,
        }
    }

    /// Excludes upkeep that was done before.
    #[must_use]
    pub fn after(self, done: Upkeep) -> Figures {
        Figures { upkeep: done, ..self }
    }

    /// Returns the nanoseconds from the issue of the first measured request to the end of the
    /// last.
    pub fn measured(&self) -> u64 {
        self.measured.map_or(0, |(from, until)| until.since(from))
    }

    /// Returns the request rate over the measured time, in requests per second.
    pub fn rate(&self, of: &Latencies) -> f64 {
        per_second(of.count(), self.measured())
    }

    /// Returns the bandwidth over the measured time, in bytes per second.
    pub fn bandwidth(&self, of: &Latencies) -> f64 {
        per_second(of.bytes, self.measured())
    }

    /// Returns the interval that began at `start`: the last completed one, or the current one
    /// with the exposure now and all upkeep so far.
    pub fn interval_at(&self, start: Instant, exposure: (u64, u64), done: Upkeep) -> Interval {
        let over = self.intervals.last().filter(|last| last.start == start);
        over.copied().unwrap_or_else(|| self.current(exposure, done))
    }

    /// Returns the current interval as if it ended now.
    fn current(&self, (exposure_bytes, exposure_age): (u64, u64), done: Upkeep) -> Interval {
        Interval { exposure_bytes, exposure_age, upkeep: done.since(self.upkeep), ..self.interval }
    }

    /// Records the issue of a request to be measured.
    pub fn begin(&mut self, now: Instant) {
        let (from, until) = self.measured.unwrap_or((now, now));
        self.measured = Some((from.min(now), until));
    }

    /// Returns the end of the current interval.
    pub fn interval_end(&self) -> Instant {
        self.interval.start + self.length
    }

    /// Ends the current interval with the exposure now (in bytes, and the age of the oldest in
    /// nanoseconds) and all upkeep so far.
    pub fn next_interval(&mut self, exposure: (u64, u64), done: Upkeep) {
        let start = self.interval_end();
        self.intervals.push(self.current(exposure, done));
        self.upkeep = done;
        self.interval = Interval { start, ..Interval::default() };
    }

    /// Returns the current interval with the exposure now and all upkeep so far, and its length
    /// at `now` in nanoseconds. Returns `None` if no request ended in it, not even by failing.
    pub fn part_interval(
        &self,
        now: Instant,
        exposure: (u64, u64),
        done: Upkeep,
    ) -> Option<(Interval, u64)> {
        let length = now.since(self.interval.start).max(1);
        let any = self.interval.latencies.count > 0 || self.interval.failed > 0;
        any.then(|| (self.current(exposure, done), length))
    }

    /// Records a request that failed at `now`. It has no latency.
    pub fn fail(&mut self, now: Instant, measured: bool) {
        self.interval.failed += 1;
        if let Some((_, until)) = self.measured.as_mut().filter(|_| measured) {
            *until = now;
        }
    }

    /// Records a request that ended at `now`.
    pub fn record(&mut self, now: Instant, ended: Ended) {
        let Ended { operation, bytes, latency, measured } = ended;
        let interval = &mut self.interval;
        interval.latencies.add(latency);
        interval.bytes += bytes;
        match operation {
            Operation::Read => {
                interval.reads.add(latency);
                interval.read_bytes += bytes;
            }
            Operation::Write { .. } => interval.writes.add(latency),
            Operation::Flush | Operation::Trim => {}
        }
        let Some((_, until)) = self.measured.as_mut().filter(|_| measured) else { return };
        *until = now;
        match operation {
            Operation::Read => self.reads.record(latency, bytes),
            Operation::Write { .. } => self.writes.record(latency, bytes),
            Operation::Flush => self.flushes.record(latency, 0),
            Operation::Trim => {}
        }
        self.all.record(latency, bytes);
    }
}

fn per_second(count: u64, nanoseconds: u64) -> f64 {
    if nanoseconds == 0 { 0.0 } else { count as f64 * SECOND as f64 / nanoseconds as f64 }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::{Latencies, Moments};
    use crate::report::Spread;

    #[test]
    fn moments_are_exact() {
        let mut moments = Moments::default();
        for latency in [2, 4, 4, 4, 5, 5, 7, 9] {
            moments.add(latency * 1_000_000_000);
        }
        assert_eq!((moments.mean(), moments.standard_deviation()), (5.0, 2.0));
        assert_eq!(moments.max, 9_000_000_000);
    }

    proptest! {
        #[test]
        fn percentiles_stay_within_the_samples(samples in vec(0..4_000_000_000_000u64, 1..200)) {
            let mut latencies = Latencies::default();
            samples.iter().for_each(|&sample| latencies.record(sample, 0));
            let least = samples.iter().copied().min().map_or(0.0, |least| least as f64 / 1e9);
            let spread = Spread::of(&latencies);
            let Spread { p50, p90, p99, p999, p9999, max, .. } = spread;
            let hour_at_most = least.min(3600.0);
            let rising = [hour_at_most, p50, p90, p99, p999, p9999, max];
            assert!(rising.is_sorted(), "{rising:?}");

            // The same holds for the values a reader of the JSON finds.
            let json = serde_json::to_value(&spread).expect("plain numbers");
            let read = ["p50", "p90", "p99", "p999", "p9999", "max"].map(|key| json[key].as_f64());
            assert!(read.is_sorted() && read[0].is_some(), "{read:?}");
        }
    }
}
