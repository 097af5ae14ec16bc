//! Zipf-distributed numbers, which model the popularity of blocks on real volumes.

use crate::Rng;

/// A generator of ranks 0 to n − 1, where the probability of rank r falls as (r + 1)^(−skew).
///
/// Rejection-inversion (Hörmann and Derflinger, "Rejection-inversion to generate variates from
/// monotone discrete distributions", 1996): exact, no table, on average about 1.1 trials.
#[derive(Clone, Debug)]
pub struct Zipf {
    skew: f64,
    count: f64,
    /// The integral up to the first and up to the last rank, and the distance from a rank
    /// within which a continuous draw is accepted without a further test.
    first: f64,
    last: f64,
    sure: f64,
}

impl Zipf {
    /// Creates a generator of `count` ranks (at least 1). `skew` must be above zero; 0.99 is
    /// customary, 1 is allowed.
    ///
    /// # Panics
    /// Panics if there is no rank to draw, or if the skew is not a positive number.
    pub fn new(count: u64, skew: f64) -> Zipf {
        assert!(count > 0 && skew > 0.0 && skew.is_finite(), "Zipf of {count} with skew {skew}");
        let mut zipf = Zipf { skew, count: count as f64, first: 0.0, last: 0.0, sure: 0.0 };
        zipf.first = zipf.integral(1.5) - 1.0;
        zipf.last = zipf.integral(zipf.count + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    /// Draws a rank.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        loop {
            let u = self.last + rng.unit() * (self.first - self.last);
            let x = self.inverse(u);
            let rank = libm::round(x).clamp(1.0, self.count);
            if rank - x <= self.sure || u >= self.integral(rank + 0.5) - self.density(rank) {
                return rank as u64 - 1;
            }
        }
    }

    fn density(&self, x: f64) -> f64 {
        libm::exp(-self.skew * libm::log(x))
    }

    /// Returns the integral of the density: (x^(1 − skew) − 1) / (1 − skew), or log x if skew
    /// is 1.
    fn integral(&self, x: f64) -> f64 {
        let log = libm::log(x);
        ratio(libm::expm1((1.0 - self.skew) * log), (1.0 - self.skew) * log) * log
    }

    fn inverse(&self, u: f64) -> f64 {
        let t = (u * (1.0 - self.skew)).max(-1.0);
        libm::exp(ratio(libm::log1p(t), t) * u)
    }
}

/// Returns f(t) / t for functions that are close to t near zero.
fn ratio(value: f64, t: f64) -> f64 {
    if t.abs() > 1e-9 { value / t } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::Zipf;
    use crate::Rng;

    #[test]
    fn ranks_come_as_often_as_they_should() {
        for skew in [0.5, 0.99, 1.0, 1.4] {
            let zipf = Zipf::new(50, skew);
            let mut rng = Rng::new(3, 0);
            let mut seen = [0_u32; 50];
            let draws = 400_000;
            for _ in 0..draws {
                seen[zipf.draw(&mut rng) as usize] += 1;
            }
            let weights: Vec<f64> = (1..=50).map(|rank| libm::pow(rank.into(), -skew)).collect();
            let sum: f64 = weights.iter().sum();
            for (rank, weight) in weights.iter().enumerate() {
                let expected = weight / sum * f64::from(draws);
                let off = (f64::from(seen[rank]) - expected).abs();
                assert!(off < 5.0 * libm::sqrt(expected), "skew {skew}, rank {rank}");
            }
        }
    }
}
