//! A bitmap over regions with a count of its set bits.

use alloc::vec;
use alloc::vec::Vec;

#[derive(Clone, Default)]
pub(crate) struct Bitmap {
    words: Vec<u64>,
    set: u64,
}

impl Bitmap {
    pub(crate) fn new(bits: u32) -> Bitmap {
        Bitmap { words: vec![0; (bits as usize).div_ceil(64)], set: 0 }
    }

    pub(crate) fn get(&self, bit: u32) -> bool {
        self.words[bit as usize / 64] >> (bit % 64) & 1 == 1
    }

    /// Sets the bit; whether it was clear before.
    pub(crate) fn insert(&mut self, bit: u32) -> bool {
        let word = &mut self.words[bit as usize / 64];
        let fresh = *word >> (bit % 64) & 1 == 0;
        *word |= 1 << (bit % 64);
        self.set += u64::from(fresh);
        fresh
    }

    /// Clears the bit; whether it was set before.
    pub(crate) fn remove(&mut self, bit: u32) -> bool {
        let word = &mut self.words[bit as usize / 64];
        let was = *word >> (bit % 64) & 1 == 1;
        *word &= !(1 << (bit % 64));
        self.set -= u64::from(was);
        was
    }

    /// Sets or clears the bit.
    pub(crate) fn set(&mut self, bit: u32, value: bool) {
        if value {
            self.insert(bit);
        } else {
            self.remove(bit);
        }
    }

    /// Sets all bits that are set in another of the same size.
    pub(crate) fn insert_all(&mut self, other: &Bitmap) {
        if other.set == 0 {
            return;
        }
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            self.set += u64::from((other & !*word).count_ones());
            *word |= other;
        }
    }

    /// Clears all bits.
    pub(crate) fn clear(&mut self) {
        if self.set > 0 {
            self.words.fill(0);
            self.set = 0;
        }
    }

    /// Returns how many bits are set.
    pub(crate) fn count(&self) -> u64 {
        self.set
    }

    /// The first set bit at or after `from`.
    pub(crate) fn next(&self, from: u32) -> Option<u32> {
        if self.set == 0 {
            return None;
        }
        let mut index = from as usize / 64;
        let mut word = *self.words.get(index)? & (u64::MAX << (from % 64));
        loop {
            if word != 0 {
                return Some(index as u32 * 64 + word.trailing_zeros());
            }
            index += 1;
            word = *self.words.get(index)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agrees_with_a_set(steps in proptest::collection::vec((any::<bool>(), 0u32..300), 0..200)) {
            let mut bitmap = Bitmap::new(300);
            let mut model = BTreeSet::new();
            for (insert, bit) in steps {
                if insert {
                    prop_assert_eq!(bitmap.insert(bit), model.insert(bit));
                } else {
                    prop_assert_eq!(bitmap.remove(bit), model.remove(&bit));
                }
                prop_assert_eq!(bitmap.count(), model.len() as u64);
                prop_assert_eq!(bitmap.next(bit), model.range(bit..).next().copied());
            }
        }

        #[test]
        fn sets_what_another_has(one in proptest::collection::btree_set(0u32..200, 0..60),
                                 other in proptest::collection::btree_set(0u32..200, 0..60)) {
            let of = |bits: &BTreeSet<u32>| {
                let mut bitmap = Bitmap::new(200);
                bits.iter().for_each(|&bit| bitmap.set(bit, true));
                bitmap
            };
            let mut bitmap = of(&one);
            bitmap.insert_all(&of(&other));
            prop_assert_eq!(bitmap.count() as usize, one.union(&other).count());
            prop_assert!((0..200).all(|bit| bitmap.get(bit) == one.union(&other).any(|&b| b == bit)));
        }
    }
}
