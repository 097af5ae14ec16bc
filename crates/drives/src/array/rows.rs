//! Sets of rows, and maps keyed by row.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map keyed by row. It is only looked up in, never iterated over, so its order does not
/// matter.
pub(super) type RowMap<T> = HashMap<u64, T, BuildHasherDefault<RowHasher>>;

/// A hasher that spreads row numbers (multiplicative hashing, Knuth volume 3, 6.4).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RowHasher(u64);

impl Hasher for RowHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, row: u64) {
        self.0 = (self.0 ^ row).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(26);
    }
}

/// An ordered set of rows. Each row has a bit, and each group of 64 bits has a summary bit one
/// level up, until one word is left. Every operation takes as many steps as there are levels.
#[derive(Clone, Debug)]
pub(super) struct RowSet {
    levels: Vec<Vec<u64>>,
}

impl RowSet {
    /// Creates an empty set of rows below `rows`.
    pub(super) fn new(rows: u64) -> RowSet {
        let mut levels = Vec::new();
        let mut bits = rows.max(1);
        loop {
            let words = bits.div_ceil(64);
            levels.push(vec![0; words as usize]);
            if words == 1 {
                return RowSet { levels };
            }
            bits = words;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.levels.last().is_none_or(|top| top[0] == 0)
    }

    pub(super) fn insert(&mut self, row: u64) {
        let mut at = row;
        for level in &mut self.levels {
            level[(at / 64) as usize] |= 1 << (at % 64);
            at /= 64;
        }
    }

    pub(super) fn remove(&mut self, row: u64) {
        let mut at = row;
        for level in &mut self.levels {
            let word = &mut level[(at / 64) as usize];
            *word &= !(1 << (at % 64));
            if *word != 0 {
                return;
            }
            at /= 64;
        }
    }

    /// Returns the first row of the set from `from` on, or from the beginning if there is none.
    pub(super) fn next_around(&self, from: u64) -> Option<u64> {
        self.next(from).or_else(|| self.next(0))
    }

    fn next(&self, from: u64) -> Option<u64> {
        let mut at = from;
        for (height, level) in self.levels.iter().enumerate() {
            let word = level.get((at / 64) as usize).copied().unwrap_or(0) & (!0 << (at % 64));
            if word != 0 {
                let mut found = at / 64 * 64 + u64::from(word.trailing_zeros());
                for below in self.levels[..height].iter().rev() {
                    let word = below[found as usize];
                    found = found * 64 + u64::from(word.trailing_zeros());
                }
                return Some(found);
            }
            at = at / 64 + 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::RowSet;

    proptest! {
        #[test]
        fn a_row_set_is_a_set_in_order(
            rows in 1_u64..300_000,
            steps in prop::collection::vec((any::<bool>(), any::<u64>()), 1..200),
        ) {
            let (mut set, mut model) = (RowSet::new(rows), BTreeSet::new());
            for (insert, row) in steps {
                let row = row % rows;
                if insert {
                    set.insert(row);
                    model.insert(row);
                } else {
                    set.remove(row);
                    model.remove(&row);
                }
                prop_assert_eq!(set.is_empty(), model.is_empty());
                for from in [0, row, row + 1, rows - 1, rows] {
                    let next = model.range(from..).next().or_else(|| model.first()).copied();
                    prop_assert_eq!(set.next_around(from), next);
                }
            }
        }
    }
}
