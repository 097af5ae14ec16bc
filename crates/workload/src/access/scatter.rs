//! A fixed permutation, so that popular blocks do not all lie at the beginning.

/// A bijection of 0 … n − 1. It combines multiplications by odd numbers and shifted exclusive
/// ors, each a bijection of the next power of two, and repeats them until the result is below n
/// (at most twice on average). It does not depend on the seed, so that the hot blocks of one
/// run are those of the next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scatter {
    count: u64,
    mask: u64,
    shift: u32,
}

impl Scatter {
    /// Creates a permutation of `count` numbers, at least one.
    pub(crate) fn new(count: u64) -> Scatter {
        let bits = u64::BITS - (count - 1).leading_zeros();
        let mask = u64::MAX.checked_shr(u64::BITS - bits).unwrap_or(0);
        // A shift of at least one, so that its inverse exists.
        Scatter { count, mask, shift: bits.div_ceil(2).max(1) }
    }

    /// Returns the image of `number`, which must be below the count.
    pub(crate) fn of(&self, number: u64) -> u64 {
        let mut x = number;
        loop {
            x = x.wrapping_mul(0x9E37_79B9_7F4A_7C15) & self.mask;
            x ^= x >> self.shift;
            x = x.wrapping_mul(0xD1B5_4A32_D192_ED03).wrapping_add(0x2545_F491_4F6C_DD1D)
                & self.mask;
            x ^= x >> self.shift;
            x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9) & self.mask;
            if x < self.count {
                return x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Scatter;

    #[test]
    fn every_number_has_its_place() {
        for count in (1..=130).chain([1000, 1023, 1024, 1025, 10_007]) {
            let scatter = Scatter::new(count);
            let mut seen = vec![false; count as usize];
            for number in 0..count {
                let place = scatter.of(number) as usize;
                assert!(!std::mem::replace(&mut seen[place], true), "{count}: {number}");
            }
        }
    }

    #[test]
    fn the_first_numbers_are_all_over() {
        let scatter = Scatter::new(1_000_000_007);
        let mut tenths = [0; 10];
        (0..1000).for_each(|rank| tenths[(scatter.of(rank) / 100_000_001) as usize] += 1);
        // Binomial: 100 each, standard deviation 9.5.
        assert!(tenths.iter().all(|n| (60..140).contains(n)), "{tenths:?}");
    }

    #[test]
    fn the_largest_volume_can_be_scattered() {
        assert!(Scatter::new(u64::MAX).of(u64::MAX - 1) < u64::MAX);
    }
}
