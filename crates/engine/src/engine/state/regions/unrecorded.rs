//! Regions of which a leg's own metadata says, or may say, that the leg is not whole there. Were
//! it the only leg left, they would be lost, whatever it holds.
//!
//! A region is among them from the moment it is clean without the leg, until a page that is
//! durable on the leg says that it is dirty or that the leg is whole. A flush of several copies
//! waits for those that were there when the leg had all that the flush covers, but not for those
//! added since: under a steady load it might wait forever. So there are two generations of them,
//! as a grace period of read-copy-update has. The older one only shrinks, and a new one begins
//! when it is empty.

use super::bitmap::Bitmap;

/// The regions of one leg.
#[derive(Clone, Default)]
pub(super) struct Unrecorded {
    /// Those of even generations, and those of odd ones.
    regions: [Bitmap; 2],
    /// The generation of what is added now.
    generation: u64,
}

impl Unrecorded {
    pub(super) fn new(regions: u32) -> Unrecorded {
        Unrecorded { regions: [Bitmap::new(regions), Bitmap::new(regions)], generation: 0 }
    }

    /// Returns the regions of a generation, the current one or the one before.
    fn of(&self, generation: u64) -> &Bitmap {
        &self.regions[(generation & 1) as usize]
    }

    /// Adds a region. One that is there already stays of its generation.
    pub(super) fn insert(&mut self, region: u32) {
        if !self.contains(region) {
            self.regions[(self.generation & 1) as usize].insert(region);
        }
    }

    /// Takes a region out, if it is there.
    pub(super) fn remove(&mut self, region: u32) {
        for regions in &mut self.regions {
            regions.remove(region);
        }
    }

    /// Returns true if a region is among them.
    pub(super) fn contains(&self, region: u32) -> bool {
        self.regions.iter().any(|regions| regions.count() > 0 && regions.get(region))
    }

    /// Returns the first region at or after `from`.
    pub(super) fn next(&self, from: u32) -> Option<u32> {
        self.regions.iter().filter_map(|regions| regions.next(from)).min()
    }

    /// Returns the generation of what is added now.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns true if none is left of this generation or an older one. Asking begins the next
    /// generation as soon as that can be.
    pub(super) fn is_over(&mut self, generation: u64) -> bool {
        let before = self.of(generation + 1).count();
        if self.generation == generation && before == 0 {
            self.generation += 1;
        }
        // With the generation before the current one begun, all before that are over.
        self.generation > generation + 1
            || self.generation == generation + 1 && self.of(generation).count() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Insert(u32),
        Remove(u32),
        /// A flush begins to wait.
        Wait,
        /// All that wait ask.
        Ask,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u32..20).prop_map(Step::Insert),
            4 => (0u32..20).prop_map(Step::Remove),
            1 => Just(Step::Wait),
            2 => Just(Step::Ask),
        ]
    }

    proptest! {
        /// Nobody is let go who waits for a region; and when nothing is left that was there when the
        /// waiting began, asking twice is enough, whatever has been added since.
        #[test]
        fn waits_for_what_was_there(steps in proptest::collection::vec(step(), 0..200)) {
            let mut unrecorded = Unrecorded::new(20);
            let mut there = BTreeSet::new();
            let mut waiting: Vec<(u64, BTreeSet<u32>)> = Vec::new();
            for step in steps {
                match step {
                    Step::Insert(region) => {
                        unrecorded.insert(region);
                        there.insert(region);
                    }
                    Step::Remove(region) => {
                        unrecorded.remove(region);
                        there.remove(&region);
                        waiting.iter_mut().for_each(|(_, left)| {
                            left.remove(&region);
                        });
                    }
                    Step::Wait => waiting.push((unrecorded.generation(), there.clone())),
                    Step::Ask => waiting.retain(|(generation, left)| {
                        let over = unrecorded.is_over(*generation);
                        assert!(!over || left.is_empty(), "{left:?} are waited for");
                        !over
                    }),
                }
                prop_assert_eq!(unrecorded.next(0), there.first().copied());
            }
            for region in there.clone() {
                unrecorded.remove(region);
            }
            for (generation, _) in waiting {
                prop_assert!(unrecorded.is_over(generation));
            }
        }

        /// A steady load adds regions forever, none of which stays: nobody waits forever.
        #[test]
        fn nobody_waits_for_ever(lifetimes in proptest::collection::vec(1usize..10, 100)) {
            let mut unrecorded = Unrecorded::new(100);
            let mut waited_from = None;
            let mut answered = 0;
            for (now, _) in lifetimes.iter().enumerate() {
                unrecorded.insert(now as u32);
                for (begun, lifetime) in lifetimes.iter().enumerate() {
                    if begun + lifetime == now {
                        unrecorded.remove(begun as u32);
                    }
                }
                let (since, generation) =
                    *waited_from.get_or_insert((now, unrecorded.generation()));
                if unrecorded.is_over(generation) {
                    waited_from = None;
                    answered += 1;
                }
                prop_assert!(now - since <= 20);
            }
            prop_assert!(answered > 2);
        }
    }
}
