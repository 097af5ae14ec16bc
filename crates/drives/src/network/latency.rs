//! The time a request spends in the network and at the store.

use hemi_random::Rng;
use serde::Deserialize;

use crate::parameter::{ParameterError, require};
use hemi_units::Time;

/// A log-normal body, sometimes replaced by a draw from a Pareto tail.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// Median of the body; above zero.
    pub median: Time,
    /// Standard deviation of the body's natural logarithm, 0 to 3.
    pub sigma: f64,
    /// The tail; without one every latency comes from the body.
    pub tail: Option<Tail>,
}

/// Requests that meet a slow server, a retransmission or a retry. A Pareto distribution: the
/// share that lasts longer than `t` is `(from / t) ^ exponent`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tail {
    /// Share of all requests that come from the tail, 0 to 1.
    pub share: f64,
    /// Least latency of the tail.
    pub from: Time,
    /// Rate at which the tail thins out, 0.5 to 10. Below 1 it has a mean only because of
    /// `longest`.
    pub exponent: f64,
    /// Longest latency of the tail, for example the client's own timeout.
    pub longest: Time,
}

impl Latency {
    /// Returns an error naming the parameter below `name` if the latency is impossible.
    pub(super) fn check(&self, name: &str) -> Result<(), ParameterError> {
        let path = |key: &str| format!("{name}.{key}");
        require(self.median.0 > 0, &path("median"), "0", "a median latency is above zero")?;
        let sigma = (0.0..=3.0).contains(&self.sigma);
        require(sigma, &path("sigma"), self.sigma, "a number from 0 to 3")?;
        let Some(tail) = self.tail else { return Ok(()) };
        let path = |key: &str| format!("{name}.tail.{key}");
        let share = (0.0..=1.0).contains(&tail.share);
        require(share, &path("share"), tail.share, "a share from 0 to 1")?;
        let exponent = (0.5..=10.0).contains(&tail.exponent);
        require(exponent, &path("exponent"), tail.exponent, "a number from 0.5 to 10")?;
        require(tail.from.0 > 0, &path("from"), "0", "the tail begins above zero")?;
        let longest = tail.longest >= tail.from;
        require(longest, &path("longest"), "below `from`", "the tail ends after it begins")
    }

    /// Draws a latency in nanoseconds. The number of draws does not depend on the result.
    pub(super) fn draw(&self, rng: &mut Rng) -> u64 {
        let choice = rng.unit();
        let body = rng.log_normal(self.median.0 as f64, self.sigma);
        match self.tail {
            Some(tail) if choice < tail.share => {
                // If `choice` is below the share, `choice` over the share is uniform again.
                let survivors = 1.0 - choice / tail.share;
                let nanoseconds = tail.from.0 as f64 * libm::pow(survivors, -1.0 / tail.exponent);
                (nanoseconds as u64).min(tail.longest.0)
            }
            _ => body as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use hemi_random::Rng;
    use hemi_units::{MICROSECOND, MILLISECOND, Time};

    use super::{Latency, Tail};

    fn drawn(latency: &Latency, n: usize) -> Vec<u64> {
        let mut rng = Rng::new(3, 0);
        let mut all: Vec<u64> = (0..n).map(|_| latency.draw(&mut rng)).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn the_body_has_its_median_and_its_spread() {
        let latency = Latency { median: Time(500 * MICROSECOND), sigma: 0.4, tail: None };
        let all = drawn(&latency, 100_000);
        let quantile = |q: f64| all[(q * all.len() as f64) as usize] as f64;
        assert!((quantile(0.5) / 500e3 - 1.0).abs() < 0.01);
        // One standard deviation above the median: e^0.4.
        assert!((quantile(0.841_345) / 500e3 / 1.491_825 - 1.0).abs() < 0.01);
    }

    #[test]
    fn the_tail_is_a_pareto_and_ends() {
        let tail = Tail {
            share: 0.1,
            from: Time(10 * MILLISECOND),
            exponent: 2.0,
            longest: Time(200 * MILLISECOND),
        };
        let latency = Latency { median: Time(500 * MICROSECOND), sigma: 0.2, tail: Some(tail) };
        let all = drawn(&latency, 1_000_000);
        let above = |ms: u64| all.iter().filter(|&&l| l > ms * MILLISECOND).count() as f64 / 1e6;
        assert!((above(9) - 0.1).abs() < 0.001);
        assert!((above(20) - 0.1 / 4.0).abs() < 0.001);
        assert!((above(50) - 0.1 / 25.0).abs() < 0.0004);
        assert_eq!(all[all.len() - 1], 200 * MILLISECOND);
    }
}
