//! The simulators' only source of randomness: xoshiro256** (Blackman and Vigna), seeded by
//! SplitMix64, and the distributions drawn from it. It is implemented here so that no
//! dependency's upgrade ever changes a run.
//!
//! **Never change this**: a seed in the torture's `regressions.txt` names a run only as long as
//! these numbers stay the same. Logarithms and the like are libm's, in software, because the
//! platforms' own differ in the last bit.
#![forbid(unsafe_code)]

pub mod zipf;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

/// Runs one SplitMix64 step: advances `state` and returns its next number.
pub fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Rng {
    /// Creates the stream of a seed; each value of `stream` gives a different one.
    pub fn new(seed: u64, stream: u64) -> Rng {
        let mut at = seed ^ stream.wrapping_mul(0xD134_2543_DE82_EF95);
        let state = [(); 4].map(|()| split_mix(&mut at));
        Rng { state }
    }

    /// Returns the state of the stream, for [`Rng::from_state`].
    pub fn state(&self) -> [u64; 4] {
        self.state
    }

    /// Creates a stream that continues from a saved state.
    pub fn from_state(state: [u64; 4]) -> Rng {
        Rng { state }
    }

    /// Returns the next number.
    pub fn draw(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Returns a number below `bound`, which must not be zero. (Multiply-shift; the bias is
    /// below 2⁻³² for the bounds used here.)
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns true once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns a number of 53 bits from 0 (included) to 1 (excluded).
    pub fn unit(&mut self) -> f64 {
        (self.draw() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// Draws from the exponential distribution with this mean: the times between Poisson
    /// arrivals.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        // 1 − u is never zero.
        -mean * libm::log(1.0 - self.unit())
    }

    /// Draws from the normal distribution with mean 0 and standard deviation 1 (Box and Muller,
    /// the cosine only, so that every call draws the same number of times).
    pub fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.unit()));
        radius * libm::cos(core::f64::consts::TAU * self.unit())
    }

    /// Draws from the log-normal distribution with this median; `sigma` is the standard
    /// deviation of the logarithm.
    pub fn log_normal(&mut self, median: f64, sigma: f64) -> f64 {
        median * libm::exp(sigma * self.normal())
    }

    /// Returns one of the values in `from`.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn the_streams_never_change() {
        let mut first = Rng::new(0, 0);
        assert_eq!(first.draw(), 11_091_344_671_253_066_420);
        let mut other = Rng::new(7, 3);
        let drawn: Vec<u64> = (0..4).map(|_| other.below(1000)).collect();
        assert_eq!(drawn.len(), 4);
        assert_ne!(Rng::new(7, 3).draw(), Rng::new(7, 4).draw());
    }

    #[test]
    fn a_stream_goes_on_from_where_it_was() {
        let mut stream = Rng::new(5, 1);
        stream.draw();
        let mut other = Rng::from_state(stream.state());
        assert_eq!([(); 8].map(|()| stream.draw()), [(); 8].map(|()| other.draw()));
    }

    #[test]
    fn distributions_have_their_moments() {
        let mut rng = Rng::new(1, 0);
        let n = 200_000;
        let mean = |draw: &mut dyn FnMut() -> f64| (0..n).map(|_| draw()).sum::<f64>() / n as f64;
        assert!((mean(&mut || rng.unit()) - 0.5).abs() < 0.005);
        assert!((mean(&mut || rng.exponential(3.0)) - 3.0).abs() < 0.05);
        assert!(mean(&mut || rng.normal()).abs() < 0.02);
        assert!((mean(&mut || rng.normal().powi(2)) - 1.0).abs() < 0.03);
        // The mean of a log-normal is its median times e^(sigma²/2).
        assert!((mean(&mut || rng.log_normal(2.0, 0.5)) - 2.0 * 1.133_148).abs() < 0.03);
    }
}
