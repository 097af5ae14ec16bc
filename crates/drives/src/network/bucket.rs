//! Token buckets, which enforce a volume's rates.

use hemi_units::{Instant, SECOND};

/// Tokens that fill at a steady rate up to a depth. They are counted in billionths, so that a
/// nanosecond's worth of any rate is a whole number.
///
/// A cost above the depth passes once the bucket is full and leaves a debt, which is paid
/// before anything else passes. In any window the bucket passes at most its depth, the tokens
/// filled in that window, and one such debt.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    /// Tokens per second.
    rate: u64,
    /// Maximum number of tokens held, in billionths.
    depth: i128,
    /// Tokens held at `at`, in billionths; negative in debt.
    level: i128,
    at: Instant,
}

/// Billionths in a token.
const TOKEN: i128 = SECOND as i128;

impl Bucket {
    /// Creates a full bucket. The rate must not be zero; a depth of less than one token counts
    /// as one.
    pub(super) fn new(rate: u64, depth: u64) -> Bucket {
        let depth = i128::from(depth.max(1)) * TOKEN;
        Bucket { rate, depth, level: depth, at: Instant(0) }
    }

    fn level(&self, now: Instant) -> i128 {
        let filled = i128::from(now.since(self.at)) * i128::from(self.rate);
        (self.level + filled).min(self.depth)
    }

    /// Returns the time, not before `now`, at which `cost` tokens may be taken.
    pub(super) fn ready(&self, now: Instant, cost: u64) -> Instant {
        let missing = (i128::from(cost) * TOKEN).min(self.depth) - self.level(now);
        if cost == 0 || missing <= 0 {
            return now;
        }
        // Hardly ever does it take a division of 128 bits, which is slow.
        let wait = match u64::try_from(missing) {
            Ok(missing) => missing.div_ceil(self.rate),
            Err(_) => {
                let wait = (missing as u128).div_ceil(u128::from(self.rate));
                u64::try_from(wait).unwrap_or(u64::MAX)
            }
        };
        now + wait
    }

    /// Takes `cost` tokens at `now`.
    pub(super) fn take(&mut self, now: Instant, cost: u64) {
        self.level = self.level(now) - i128::from(cost) * TOKEN;
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use hemi_units::{Instant, SECOND};
    use proptest::prelude::*;

    use super::Bucket;

    #[test]
    fn a_full_bucket_lets_its_depth_pass_at_once_then_its_rate() {
        let mut bucket = Bucket::new(1000, 10);
        let now = Instant(5 * SECOND);
        for _ in 0..10 {
            assert_eq!(bucket.ready(now, 1), now);
            bucket.take(now, 1);
        }
        assert_eq!(bucket.ready(now, 1), now + SECOND / 1000);
    }

    #[test]
    fn a_cost_above_the_depth_passes_and_is_paid_back() {
        let mut bucket = Bucket::new(100, 10);
        assert_eq!(bucket.ready(Instant(0), 60), Instant(0));
        bucket.take(Instant(0), 60);
        // The bucket is 50 in debt, and one more is to be taken: 51 tokens at 100 per second.
        assert_eq!(bucket.ready(Instant(0), 1), Instant(SECOND / 100 * 51));
    }

    proptest! {
        #[test]
        fn no_window_passes_more_than_depth_rate_and_one_debt(
            rate in 1_u64..1_000_000,
            depth in 1_u64..1000,
            demands in prop::collection::vec((0_u64..50_000_000, 1_u64..2000), 2..200),
        ) {
            let mut bucket = Bucket::new(rate, depth);
            let mut now = Instant(0);
            let mut taken = Vec::new();
            for (pause, cost) in demands {
                now = bucket.ready(now + pause, cost);
                bucket.take(now, cost);
                taken.push((now, cost));
            }
            for first in 0..taken.len() {
                let mut sum = 0;
                for &(at, cost) in &taken[first..] {
                    // The last cost may leave a debt; everything before it was covered.
                    let window = u128::from(at.since(taken[first].0));
                    let filled = window * u128::from(rate) / u128::from(SECOND) + 1;
                    prop_assert!(sum + u128::from(cost.min(depth)) <= u128::from(depth) + filled);
                    sum += u128::from(cost);
                }
            }
        }
    }
}
