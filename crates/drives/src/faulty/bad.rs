//! Sectors that cannot be read until they are written again.

use std::collections::BTreeMap;

use hemi_random::Rng;
use hemi_units::{Extent, Instant};

/// Sectors that go bad at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bad {
    /// The time.
    pub at: Instant,
    /// The sectors.
    pub extent: Extent,
    /// Nanoseconds by which the error comes after the drive's usual time: its own attempts.
    pub error_after: u64,
}

impl Bad {
    /// Returns `count` ranges of `sectors` sectors each, scattered over the first `space` sectors of
    /// a drive, which go bad one after another, evenly over `over` nanoseconds from `at` on.
    pub fn scattered(
        (count, sectors, space): (u32, u64, u64),
        at: Instant,
        over: u64,
        error_after: u64,
        seed: u64,
    ) -> Vec<Bad> {
        let mut rng = Rng::new(seed, 0xbad);
        let places = (space / sectors.max(1)).max(1);
        let one = |number: u32| {
            let extent = Extent::new(rng.below(places) * sectors, sectors);
            let later = u128::from(over) * u128::from(number) / u128::from(count);
            Bad { at: at + later as u64, extent, error_after }
        };
        (0..count).map(one).collect()
    }
}

/// All bad sectors of a drive.
#[derive(Clone, Debug, Default)]
pub(super) struct BadSectors {
    /// Those to come, the last first.
    to_come: Vec<Bad>,
    /// Disjoint ranges by their first sector: the end, and the time of the error.
    now: BTreeMap<u64, (u64, u64)>,
}

impl BadSectors {
    pub(super) fn new(mut bad: Vec<Bad>) -> BadSectors {
        // A stable order for those that go bad together.
        bad.sort_by_key(|bad| std::cmp::Reverse(bad.at));
        BadSectors { to_come: bad, now: BTreeMap::new() }
    }

    /// Returns by how much later the error of a read of `extent` at `now` comes, in nanoseconds, or
    /// `None` if it can be read.
    pub(super) fn error_after(&mut self, now: Instant, extent: Extent) -> Option<u64> {
        self.pass(now);
        let (_, &(end, error_after)) = self.now.range(..extent.end).next_back()?;
        (end > extent.start).then_some(error_after)
    }

    /// Makes sectors good again that are written at `now`: the drive takes spare ones in their
    /// place.
    pub(super) fn heal(&mut self, now: Instant, extent: Extent) {
        self.pass(now);
        self.remove(extent);
    }

    /// Lets the sectors go bad whose time has come.
    fn pass(&mut self, now: Instant) {
        while self.to_come.last().is_some_and(|bad| bad.at <= now) {
            let Some(Bad { extent, error_after, .. }) = self.to_come.pop() else { return };
            self.remove(extent);
            self.now.insert(extent.start, (extent.end, error_after));
        }
    }

    fn remove(&mut self, extent: Extent) {
        while let Some((&start, &(end, error_after))) = self.now.range(..extent.end).next_back() {
            if end <= extent.start {
                return;
            }
            self.now.remove(&start);
            if end > extent.end {
                self.now.insert(extent.end, (end, error_after));
            }
            if start < extent.start {
                self.now.insert(start, (extent.start, error_after));
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn scattered_ranges_come_one_after_another() {
        let bad = Bad::scattered((4, 8, 80), Instant(100), 40, 7, 1);
        assert_eq!(bad.iter().map(|bad| bad.at.0).collect::<Vec<_>>(), [100, 110, 120, 130]);
        assert!(bad.iter().all(|bad| bad.extent.end <= 80 && bad.extent.start % 8 == 0));
        assert_eq!(bad, Bad::scattered((4, 8, 80), Instant(100), 40, 7, 1));
        assert_ne!(bad, Bad::scattered((4, 8, 80), Instant(100), 40, 7, 2));
    }

    proptest! {
        /// The ranges behave as single sectors would.
        #[test]
        fn ranges_are_sets_of_sectors(
            bad in prop::collection::vec((0_u64..20, 0_u64..60, 1_u64..12), 0..12),
            writes in prop::collection::vec((0_u64..60, 1_u64..12), 0..30),
        ) {
            let bad: Vec<Bad> = bad
                .into_iter()
                .map(|(at, start, count)| Bad {
                    at: Instant(at),
                    extent: Extent::new(start, count),
                    error_after: 3,
                })
                .collect();
            let mut sectors = [false; 80];
            let mut ranges = BadSectors::new(bad.clone());
            for (now, (start, count)) in (0_u64..).zip(writes) {
                for bad in bad.iter().filter(|bad| bad.at.0 == now) {
                    (bad.extent.start..bad.extent.end).for_each(|at| sectors[at as usize] = true);
                }
                for start in 0..70 {
                    let failed = ranges.error_after(Instant(now), Extent::new(start, 3)).is_some();
                    let expected = sectors[start as usize..][..3].contains(&true);
                    prop_assert_eq!(failed, expected, "{} at {}", start, now);
                }
                ranges.heal(Instant(now), Extent::new(start, count));
                (start..start + count).for_each(|at| sectors[at as usize] = false);
            }
        }
    }
}
