//! The bytes of a read that have arrived.

use crate::limits::READ_PIECES_MAX;

/// Up to [`READ_PIECES_MAX`] separate pieces in ascending order, each `start..end` in bytes
/// from the beginning of the request. No two touch each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coverage {
    pieces: [(u32, u32); READ_PIECES_MAX],
    count: usize,
}

/// The reason why a piece cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CoverageError {
    /// This byte has arrived before.
    Overlap { at: u32 },
    /// There would be too many separate pieces.
    Full,
}

impl Coverage {
    pub(super) const EMPTY: Coverage = Coverage { pieces: [(0, 0); READ_PIECES_MAX], count: 0 };

    /// Adds `start..end`, which is not empty.
    pub(super) fn add(&mut self, start: u32, end: u32) -> Result<(), CoverageError> {
        let pieces = &self.pieces[..self.count];
        let next = pieces.partition_point(|piece| piece.1 < start);
        // `next` is the first piece that ends at `start` or later.
        let joins_left = pieces.get(next).is_some_and(|piece| piece.1 == start);
        let right = if joins_left { next + 1 } else { next };
        if let Some(piece) = pieces.get(right)
            && piece.0 < end
        {
            return Err(CoverageError::Overlap { at: piece.0.max(start) });
        }
        let joins_right = pieces.get(right).is_some_and(|piece| piece.0 == end);
        match (joins_left, joins_right) {
            (true, true) => {
                self.pieces[next].1 = self.pieces[right].1;
                self.pieces.copy_within(right + 1..self.count, right);
                self.count -= 1;
            }
            (true, false) => self.pieces[next].1 = end,
            (false, true) => self.pieces[right].0 = start,
            (false, false) => {
                if self.count == READ_PIECES_MAX {
                    return Err(CoverageError::Full);
                }
                self.pieces.copy_within(next..self.count, next + 1);
                self.pieces[next] = (start, end);
                self.count += 1;
            }
        }
        Ok(())
    }

    /// Returns the number of bytes that have arrived.
    pub(super) fn bytes(&self) -> u64 {
        self.pieces[..self.count].iter().map(|piece| u64::from(piece.1 - piece.0)).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    use super::*;

    proptest! {
        /// Compares the coverage with a set of bytes.
        #[test]
        fn agrees_with_a_set(pieces in proptest::collection::vec((0_u32..40, 1_u32..10), 0..30)) {
            let mut coverage = Coverage::EMPTY;
            let mut set = BTreeSet::new();
            for (start, length) in pieces {
                let bytes: Vec<u32> = (start..start + length).collect();
                let first_taken = bytes.iter().find(|byte| set.contains(*byte));
                match coverage.add(start, start + length) {
                    Ok(()) => {
                        prop_assert_eq!(first_taken, None);
                        set.extend(bytes);
                    }
                    Err(CoverageError::Overlap { at }) => {
                        prop_assert_eq!(first_taken, Some(&at));
                    }
                    Err(CoverageError::Full) => {
                        prop_assert_eq!(first_taken, None);
                        let runs = set.iter().filter(|&&byte| !set.contains(&(byte + 1))).count();
                        prop_assert_eq!(runs, READ_PIECES_MAX);
                    }
                }
                prop_assert_eq!(coverage.bytes(), set.len() as u64);
            }
        }
    }
}
