//! The past pace of a leg, by load.
//!
//! Each direction and each power of two of load has a histogram of the samples' median latencies. The
//! expected latency is the lowest of the medians at the current load and at higher ones, because the drive has
//! carried those loads at that latency. Loads that it never had say nothing.

use serde::{Deserialize, Serialize};

use super::Work;

/// Number of powers of two of load, from one I/O per second.
const LOADS: usize = 24;
/// Bytes that count as one more I/O.
const LOAD_BYTES: u64 = 64 << 10;
/// Minimum number of samples for an expectation.
const SAMPLES_MIN: u64 = 30;
/// Number of samples of a load at which all counts are halved, so that old ones fade: a week of minutes.
const SAMPLES_MAX: u64 = 7 * 24 * 60;
/// Number of steps in each power of two of latency.
const STEPS: u32 = 4;
/// Number of steps of latency, from 1 µs to a minute.
const LATENCIES: usize = 26 * STEPS as usize;

/// The samples of one direction and load.
#[derive(Clone, Debug, Default)]
struct Loads {
    counts: Vec<u16>,
}

/// The past pace of a leg.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Vec<[u16; 4]>", into = "Vec<[u16; 4]>")]
pub(crate) struct Past {
    /// Histograms of reads, then of writes.
    directions: [[Loads; LOADS]; 2],
}

/// Returns the power of two of a load per second, where each I/O and each 64 KiB count as one.
fn load_of(work: &Work, span_ms: u64) -> usize {
    let units = u128::from(work.count) + u128::from(work.bytes / LOAD_BYTES);
    let per_second = units * 1000 / u128::from(span_ms.max(1));
    (per_second.checked_ilog2().unwrap_or(0) as usize).min(LOADS - 1)
}

/// Returns the step that contains a latency.
fn step_of(latency_ns: u64) -> usize {
    // Units of a quarter of a microsecond give the first power of two all of its steps.
    let scaled = (latency_ns / 250).max(u64::from(STEPS));
    let octave = scaled.ilog2() - STEPS.ilog2();
    let step = (scaled >> octave) as u32 - STEPS;
    ((octave * STEPS + step) as usize).min(LATENCIES - 1)
}

/// Returns the highest latency of a step.
fn end_of(step: usize) -> u64 {
    let (octave, step) = (step as u32 / STEPS, step as u32 % STEPS);
    (u64::from(STEPS + step + 1) << octave) * 250
}

impl Loads {
    fn total(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }

    fn add(&mut self, step: usize) {
        self.counts.resize(LATENCIES, 0);
        self.counts[step] = self.counts[step].saturating_add(1);
        if self.total() >= SAMPLES_MAX {
            self.counts.iter_mut().for_each(|count| *count /= 2);
        }
    }

    fn median(&self) -> Option<u64> {
        let total = self.total();
        if total < SAMPLES_MIN {
            return None;
        }
        let mut seen = 0;
        let step = self.counts.iter().position(|count| {
            seen += u64::from(*count);
            2 * seen >= total
        });
        step.map(end_of)
    }
}

impl Past {
    /// Adds a sample of a healthy leg.
    pub(super) fn learn(&mut self, is_write: bool, work: &Work, span_ms: u64) {
        self.directions[usize::from(is_write)][load_of(work, span_ms)]
            .add(step_of(work.typical_ns));
    }

    /// Returns the lowest median latency of the leg at this load or a higher one; `None` if it never had such
    /// a load for long enough.
    pub(super) fn typical_ns(&self, is_write: bool, work: &Work, span_ms: u64) -> Option<u64> {
        let loads = &self.directions[usize::from(is_write)][load_of(work, span_ms)..];
        loads.iter().filter_map(Loads::median).min()
    }
}

impl From<Past> for Vec<[u16; 4]> {
    /// Lists direction, load, step and count of all entries that are not zero.
    fn from(past: Past) -> Vec<[u16; 4]> {
        let mut list = Vec::new();
        for (direction, loads) in (0..).zip(&past.directions) {
            for (load, steps) in (0..).zip(loads) {
                let counts = (0..).zip(&steps.counts).filter(|(_, count)| **count > 0);
                list.extend(counts.map(|(step, count)| [direction, load, step, *count]));
            }
        }
        list
    }
}

impl From<Vec<[u16; 4]>> for Past {
    /// Ignores entries that are out of range.
    fn from(list: Vec<[u16; 4]>) -> Past {
        let mut past = Past::default();
        for [direction, load, step, count] in list {
            let loads = past.directions.get_mut(usize::from(direction));
            let steps = loads.and_then(|loads| loads.get_mut(usize::from(load)));
            if let Some(steps) = steps.filter(|_| usize::from(step) < LATENCIES) {
                steps.counts.resize(LATENCIES, 0);
                steps.counts[usize::from(step)] = count;
            }
        }
        past
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn work(count: u64, typical_ns: u64) -> Work {
        Work { count, bytes: 4096 * count, sum_ns: count * typical_ns, typical_ns, stalled: 0 }
    }

    #[test]
    fn steps_tile_the_range() {
        for step in 0..LATENCIES - 1 {
            assert_eq!(step_of(end_of(step) - 250), step);
            assert_eq!(step_of(end_of(step)), step + 1);
        }
        assert_eq!((step_of(0), step_of(u64::MAX)), (0, LATENCIES - 1));
    }

    #[test]
    fn only_loads_that_it_had_say_something() {
        let mut past = Past::default();
        for _ in 0..SAMPLES_MIN {
            past.learn(false, &work(60_000, 100_000), 60_000);
        }
        let expected = |count| past.typical_ns(false, &work(count, 1), 60_000);
        assert!(expected(60_000).is_some_and(|latency| (100_000..=128_000).contains(&latency)));
        assert_eq!(expected(100), expected(60_000), "a lower load");
        assert_eq!(expected(600_000), None, "a higher load");
        assert_eq!(past.typical_ns(true, &work(60_000, 1), 60_000), None, "writes");
    }

    proptest! {
        #[test]
        fn it_is_kept_as_it_is(
            samples in prop::collection::vec((any::<bool>(), 0..10_000_000_u64, any::<u64>()), 0..300),
            damaged in prop::collection::vec(any::<[u16; 4]>(), 0..20),
        ) {
            let mut past = Past::default();
            for (is_write, count, latency) in samples {
                let work = Work { typical_ns: latency, ..work(count, 0) };
                past.learn(is_write, &work, 60_000);
            }
            let text = serde_json::to_string(&past).expect("it can be written");
            let again: Past = serde_json::from_str(&text).expect("it can be read");
            prop_assert_eq!(Vec::from(again), Vec::from(past));
            let mut past = Past::from(damaged);
            past.learn(true, &work(1, 1), 0);
            let _ = past.typical_ns(true, &work(1, 1), 0);
        }
    }
}
