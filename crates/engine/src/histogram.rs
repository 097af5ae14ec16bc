//! A small log-linear latency histogram: the engine's memory of how fast a leg is.
//!
//! HDR-like (four linear steps in each power of two, so a quantile is at most 25 % high),
//! fixed in size, integer only and `no_std`: reporting tools use full HDR histograms; this
//! one has to live in the data path and give the same answer on every machine.

/// Linear steps in each power of two.
const STEPS: usize = 4;
/// Powers of two covered, from 1 µs (2^10 ns) to over 500 s.
const OCTAVES: usize = 30;
/// 2^10 ns: everything faster falls in the first bucket.
const SHIFT: u32 = 10;

/// Number of buckets.
pub const BUCKETS: usize = STEPS * OCTAVES;

/// Counts of latencies by log-linear bucket.
#[derive(Clone, Debug)]
pub struct LatencyHistogram {
    counts: [u64; BUCKETS],
    total: u64,
    sum: u64,
    max: u64,
}

impl Default for LatencyHistogram {
    fn default() -> LatencyHistogram {
        LatencyHistogram { counts: [0; BUCKETS], total: 0, sum: 0, max: 0 }
    }
}

fn bucket_of(nanoseconds: u64) -> usize {
    let scaled = nanoseconds >> SHIFT;
    if scaled < STEPS as u64 {
        return scaled as usize;
    }
    let octave = 63 - scaled.leading_zeros() as usize;
    let step = ((scaled >> (octave - 2)) & 3) as usize;
    ((octave - 1) * STEPS + step).min(BUCKETS - 1)
}

/// The highest latency (nanoseconds) that falls in a bucket.
pub fn bucket_upper_bound(bucket: usize) -> u64 {
    if bucket < STEPS {
        return ((bucket as u64 + 1) << SHIFT) - 1;
    }
    let octave = bucket / STEPS + 1;
    let step = (bucket % STEPS) as u64;
    (((STEPS as u64 + step + 1) << (octave - 2)) << SHIFT) - 1
}

impl LatencyHistogram {
    /// Counts one latency.
    pub fn record(&mut self, nanoseconds: u64) {
        self.counts[bucket_of(nanoseconds)] += 1;
        self.total += 1;
        self.sum = self.sum.saturating_add(nanoseconds);
        self.max = self.max.max(nanoseconds);
    }

    /// Returns the number counted.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// Their sum, nanoseconds, saturating.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The largest, nanoseconds.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Their mean, nanoseconds; zero when empty.
    pub fn mean(&self) -> u64 {
        self.sum.checked_div(self.total).unwrap_or(0)
    }

    /// The latency that `per_mille` thousandths of the counts do not exceed (rounded up to
    /// its bucket's end, never above the maximum); zero when empty.
    pub fn quantile(&self, per_mille: u64) -> u64 {
        if self.total == 0 {
            return 0;
        }
        let rank = (self.total * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return bucket_upper_bound(bucket).min(self.max);
            }
        }
        self.max
    }

    /// Count in each bucket, see [`bucket_upper_bound`].
    pub fn buckets(&self) -> &[u64; BUCKETS] {
        &self.counts
    }

    /// Adds another histogram's counts.
    pub fn merge(&mut self, other: &LatencyHistogram) {
        for (own, others) in self.counts.iter_mut().zip(&other.counts) {
            *own += others;
        }
        self.total += other.total;
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// Returns the latencies counted since `base`, an earlier state of this histogram.
    ///
    /// The maximum is exact if the slowest latency of all is among them. Otherwise it is the
    /// upper bound of the highest bucket in use.
    pub fn since(&self, base: &LatencyHistogram) -> LatencyHistogram {
        let mut since = LatencyHistogram::default();
        for (count, (new, old)) in since.counts.iter_mut().zip(self.counts.iter().zip(&base.counts))
        {
            *count = new.saturating_sub(*old);
            since.total += *count;
        }
        since.sum = self.sum.saturating_sub(base.sum);
        since.max = since.highest_bound().min(self.max);
        since
    }

    /// Halves every count, so that old latencies fade.
    pub fn fade(&mut self) {
        self.total = 0;
        for count in &mut self.counts {
            *count /= 2;
            self.total += *count;
        }
        self.sum /= 2;
        self.max = self.highest_bound().min(self.max);
    }

    /// Returns the upper bound of the highest bucket in use; zero when empty.
    fn highest_bound(&self) -> u64 {
        self.counts.iter().rposition(|&count| count > 0).map_or(0, bucket_upper_bound)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for LatencyHistogram {
    /// Serialises the figures a person reads, in nanoseconds.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut fields = serializer.serialize_struct("LatencyHistogram", 6)?;
        fields.serialize_field("count", &self.total)?;
        fields.serialize_field("mean", &self.mean())?;
        fields.serialize_field("p50", &self.quantile(500))?;
        fields.serialize_field("p99", &self.quantile(990))?;
        fields.serialize_field("p999", &self.quantile(999))?;
        fields.serialize_field("max", &self.max)?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_tile_the_range() {
        for bucket in 0..BUCKETS - 1 {
            let end = bucket_upper_bound(bucket);
            assert_eq!(bucket_of(end), bucket, "end of bucket {bucket}");
            assert_eq!(bucket_of(end + 1), bucket + 1, "after bucket {bucket}");
        }
    }

    #[test]
    fn quantiles_are_within_a_step() {
        let mut histogram = LatencyHistogram::default();
        for latency in 1..=100_000u64 {
            histogram.record(latency * 1000);
        }
        for (per_mille, exact) in [(500, 50_000_000u64), (990, 99_000_000), (999, 99_900_000)] {
            let got = histogram.quantile(per_mille);
            assert!(got >= exact && got <= exact * 5 / 4, "{per_mille}: {got} against {exact}");
        }
    }

    #[test]
    fn fading_halves_and_forgets() {
        let mut histogram = LatencyHistogram::default();
        histogram.record(50_000_000);
        for _ in 0..10 {
            histogram.record(20_000);
        }
        histogram.fade();
        assert_eq!(histogram.count(), 5);
        assert!(histogram.max() < 50_000_000);
    }

    fn of(samples: &[u64]) -> LatencyHistogram {
        let mut histogram = LatencyHistogram::default();
        samples.iter().for_each(|&sample| histogram.record(sample));
        histogram
    }

    /// Fails unless the quantiles rise from the least sample to the greatest.
    fn check_order(histogram: &LatencyHistogram, samples: &[u64]) {
        let least = samples.iter().copied().min().unwrap_or(0);
        let greatest = samples.iter().copied().max().unwrap_or(0);
        let quantiles = [1, 500, 900, 990, 999, 1000].map(|share| histogram.quantile(share));
        assert!(quantiles.is_sorted(), "{quantiles:?}");
        assert!(least <= quantiles[0], "{quantiles:?} below {least}");
        assert!(quantiles[5] <= histogram.max(), "{quantiles:?} above {}", histogram.max());
        assert!(histogram.max() <= greatest, "{} above {greatest}", histogram.max());
    }

    proptest! {
        #[test]
        fn quantiles_stay_within_the_samples(
            early in vec(0..1_000_000_000_000u64, 0..50),
            late in vec(0..1_000_000_000_000u64, 1..50),
        ) {
            let all = [early.clone(), late.clone()].concat();
            let (base, mut merged) = (of(&early), of(&early));
            merged.merge(&of(&late));
            check_order(&merged, &all);
            assert_eq!(merged.max(), all.iter().copied().max().unwrap_or(0), "exact");
            check_order(&base, &early);

            // The latest alone: their maximum is known to its bucket, and never above all.
            let since = merged.since(&base);
            assert_eq!(since.count(), late.len() as u64);
            assert!(since.quantile(1000) <= since.max() && since.max() <= merged.max());
            assert!(since.max() >= late.iter().copied().max().unwrap_or(0));

            merged.fade();
            if merged.count() > 0 {
                check_order(&merged, &all);
            }
        }
    }
}
