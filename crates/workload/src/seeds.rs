//! Which random numbers are whose.
//!
//! Every thread of every part of a workload has streams of its own, named by its place in the
//! spec. Another thread, another part or another phase after the present ones changes none of
//! theirs.

use hemi_random::Rng;

/// The seed of a workload or a part of one.
#[derive(Clone, Copy, Debug)]
pub struct Seeds(u64);

/// What a thread draws a stream for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// What it asks for.
    Requests = 0,
    /// When.
    Times = 1,
    /// The seed of a part.
    Part = 2,
}

impl Seeds {
    /// That of a run.
    pub fn new(seed: u64) -> Seeds {
        Seeds(seed)
    }

    /// That of the `index`-th part or phase.
    #[must_use]
    pub fn part(self, index: u64) -> Seeds {
        Seeds(self.stream(Purpose::Part, index).draw())
    }

    /// A thread's stream for a purpose.
    pub fn stream(self, purpose: Purpose, thread: u64) -> Rng {
        Rng::new(self.0, thread * 4 + purpose as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::{Purpose, Seeds};
    use std::collections::BTreeSet;

    #[test]
    fn streams_differ() {
        let seeds = Seeds::new(42);
        let mut seen = BTreeSet::new();
        for index in 0..100 {
            for purpose in [Purpose::Requests, Purpose::Times] {
                assert!(seen.insert(seeds.stream(purpose, index).draw()));
                assert!(seen.insert(seeds.part(index).stream(purpose, 0).draw()));
            }
        }
    }
}
