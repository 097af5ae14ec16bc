//! The simulator's only source of chance: xoshiro256** (Blackman and Vigna), seeded by
//! SplitMix64, written out here so that no dependency's upgrade ever changes a run.
//!
//! **Never to change**: a seed in `regressions.txt` names a run only as long as these
//! numbers come out the same.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

/// One SplitMix64 step: advances `state` and returns its next number.
pub fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Rng {
    /// The stream of a seed; each `stream` of one seed is another.
    pub fn new(seed: u64, stream: u64) -> Rng {
        let mut at = seed ^ stream.wrapping_mul(0xD134_2543_DE82_EF95);
        let state = [(); 4].map(|()| split_mix(&mut at));
        Rng { state }
    }

    /// The next number.
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

    /// A number below `bound`, which must not be zero. (Multiply-shift; the bias is below
    /// 2⁻³² for the bounds used here.)
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// Yes once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of these.
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
}
