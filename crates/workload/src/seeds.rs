//! Seeds of the random streams.
//!
//! Every thread of every part of a workload has its own streams, identified by its place in the
//! spec. Adding a thread, a part or a phase after the present ones changes none of their
//! streams.

use hemi_random::Rng;

/// The seed of a workload or a part of one.
#[derive(Clone, Copy, Debug)]
pub struct Seeds(u64);

/// The purpose of a thread's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Requests.
    Requests = 0,
    /// Times.
    Times = 1,
    /// The seed of a part.
    Part = 2,
}

impl Seeds {
    /// Returns the seed of a run.
    pub fn new(seed: u64) -> Seeds {
        Seeds(seed)
    }

    /// Returns the seed of part or phase `index`.
    #[must_use]
    pub fn part(self, index: u64) -> Seeds {
        Seeds(self.stream(Purpose::Part, index).draw())
    }

    /// Returns a thread's stream for a purpose.
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
