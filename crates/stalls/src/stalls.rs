//! A schedule in force.

use hemi_random::Rng;
use hemi_units::Instant;

use crate::schedule::Schedule;
use crate::share::Share;

/// The kinds of requests that have their own share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A read.
    Read,
    /// A write, or any other request that is not a read.
    Write,
}

/// Counts of one kind of request since the schedule began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Requests that arrived while a phase was in force.
    pub seen: u64,
    /// Those of them that stalled.
    pub stalled: u64,
}

/// The progress of a schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Seed of the draws.
    pub seed: u64,
    /// Phase in force, from 0; `None` before the first and after the last.
    pub phase: Option<usize>,
    /// Number of phases.
    pub phases: usize,
    /// Nanoseconds left of the phase; `None` without an end.
    pub left: Option<u64>,
    /// Reads.
    pub reads: Count,
    /// Writes.
    pub writes: Count,
}

/// A schedule in force, which gives the delay of each request.
#[derive(Clone, Debug)]
pub struct Stalls {
    schedule: Schedule,
    seed: u64,
    began: Instant,
    reads: Count,
    writes: Count,
}

impl Stalls {
    /// Creates a schedule that begins at `began`. The delay of the n-th read (or write) follows
    /// from `seed`, n and its phase.
    pub fn new(schedule: Schedule, seed: u64, began: Instant) -> Stalls {
        Stalls { schedule, seed, began, reads: Count::default(), writes: Count::default() }
    }

    /// Returns the delay in nanoseconds of a request that arrives at `now`; zero if it does not
    /// stall.
    pub fn draw(&mut self, now: Instant, kind: Kind) -> u64 {
        let Some((index, _)) = self.at(now) else { return 0 };
        let phase = self.schedule.phases()[index];
        let (share, count, lane) = match kind {
            Kind::Read => (phase.reads, &mut self.reads, 0),
            Kind::Write => (phase.writes, &mut self.writes, 1),
        };
        let number = count.seen;
        count.seen += 1;
        if share == Share::NONE {
            return 0;
        }
        // Each request has its own stream, so the draws of one do not affect any other.
        let mut rng = Rng::new(self.seed, number.wrapping_mul(2).wrapping_add(lane));
        if !share.drawn(&mut rng) {
            return 0;
        }
        count.stalled += 1;
        phase.delays.draw(&mut rng)
    }

    /// Returns the progress at `now`.
    pub fn progress(&self, now: Instant) -> Progress {
        let at = self.at(now);
        let left = at.filter(|(_, end)| *end != u64::MAX);
        Progress {
            seed: self.seed,
            phase: at.map(|(index, _)| index),
            phases: self.schedule.phases().len(),
            left: left.map(|(_, end)| end - now.since(self.began)),
            reads: self.reads,
            writes: self.writes,
        }
    }

    fn at(&self, now: Instant) -> Option<(usize, u64)> {
        if now < self.began {
            return None;
        }
        self.schedule.at(now.since(self.began))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::delays::Delays;
    use crate::schedule::Phase;

    fn endless(reads: f64, writes: f64) -> Schedule {
        let share = |value| Share::of(value).expect("a share");
        let delays = Delays::Between { least: 1, most: 1 << 40 };
        let (reads, writes) = (share(reads), share(writes));
        Schedule::new(vec![Phase { reads, writes, delays, length: None }]).expect("it is right")
    }

    #[test]
    fn phases_have_their_own_shares_and_delays() {
        let phase = |reads, writes, delay, length| Phase {
            reads,
            writes,
            delays: Delays::Fixed(delay),
            length: Some(length),
        };
        let schedule = Schedule::new(vec![
            phase(Share::ALL, Share::NONE, 7, 10),
            phase(Share::NONE, Share::NONE, 0, 10),
            phase(Share::NONE, Share::ALL, 9, 10),
        ]);
        let mut stalls = Stalls::new(schedule.expect("it is right"), 3, Instant(100));
        for (now, read, write, phase, left) in [
            (99, 0, 0, None, None),
            (100, 7, 0, Some(0), Some(10)),
            (110, 0, 0, Some(1), Some(10)),
            (129, 0, 9, Some(2), Some(1)),
            (130, 0, 0, None, None),
        ] {
            assert_eq!(stalls.draw(Instant(now), Kind::Read), read, "at {now}");
            assert_eq!(stalls.draw(Instant(now), Kind::Write), write, "at {now}");
            let progress = stalls.progress(Instant(now));
            assert_eq!((progress.phase, progress.left), (phase, left), "at {now}");
        }
        let progress = stalls.progress(Instant(130));
        assert_eq!((progress.seed, progress.phases), (3, 3));
        assert_eq!(progress.reads, Count { seen: 3, stalled: 1 });
        assert_eq!(progress.writes, Count { seen: 3, stalled: 1 });
    }

    #[test]
    fn all_and_none_are_exact() {
        let mut stalls = Stalls::new(endless(0.0, 1.0), 1, Instant(0));
        for _ in 0..1000 {
            assert_eq!(stalls.draw(Instant(0), Kind::Read), 0);
            assert_ne!(stalls.draw(Instant(0), Kind::Write), 0);
        }
    }

    proptest! {
        #[test]
        fn the_share_is_met(seed: u64, reads in 0.0_f64..=1.0, writes in 0.0_f64..=1.0) {
            const REQUESTS: u64 = 5000;
            // Rounded to the resolution of a share.
            let step = |share: f64| (share * 1e6).round() / 1e6;
            let (reads, writes) = (step(reads), step(writes));
            let mut stalls = Stalls::new(endless(reads, writes), seed, Instant(0));
            for _ in 0..REQUESTS {
                stalls.draw(Instant(1), Kind::Read);
                stalls.draw(Instant(1), Kind::Write);
            }
            let progress = stalls.progress(Instant(1));
            for (count, share) in [(progress.reads, reads), (progress.writes, writes)] {
                prop_assert_eq!(count.seen, REQUESTS);
                // Seven standard deviations of a binomial distribution, out of the reach of
                // chance.
                let expected = REQUESTS as f64 * share;
                let bound = 7.0 * (expected * (1.0 - share)).sqrt() + 2.0;
                prop_assert!((count.stalled as f64 - expected).abs() <= bound, "{count:?} {share}");
            }
        }

        #[test]
        fn what_a_read_draws_does_not_depend_on_writes(
            seed: u64,
            kinds in prop::collection::vec(any::<bool>(), 1..300),
        ) {
            let mut mixed = Stalls::new(endless(0.5, 0.25), seed, Instant(0));
            let mut reads = Stalls::new(endless(0.5, 0.0), seed, Instant(0));
            for read in kinds {
                if read {
                    let alone = reads.draw(Instant(2), Kind::Read);
                    prop_assert_eq!(mixed.draw(Instant(1), Kind::Read), alone);
                } else {
                    mixed.draw(Instant(1), Kind::Write);
                }
            }
        }
    }
}
