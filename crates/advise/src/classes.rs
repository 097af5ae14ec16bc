//! Classes of requests: operation, size and pattern.

use std::collections::BTreeMap;
use std::sync::Arc;

use hemi_units::{Operation, SECTOR_BYTES, Size};
use hemi_workload::traces::load::Entry;
use serde::Serialize;

/// Number of recent ends of requests that a sequential one may follow.
const STREAMS: usize = 16;

/// A class of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Class {
    /// The kind of operation.
    pub kind: Kind,
    /// Bytes, rounded up to a power of two; zero without data.
    pub bytes: u64,
    /// True if the request begins where a recent one ended.
    pub sequential: bool,
}

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Reads.
    Read,
    /// Writes, with FUA or without.
    Write,
    /// Flushes.
    Flush,
    /// Trims.
    Trim,
}

impl Kind {
    /// Returns the kind of an operation.
    pub fn of(operation: Operation) -> Kind {
        match operation {
            Operation::Read => Kind::Read,
            Operation::Write { .. } => Kind::Write,
            Operation::Flush => Kind::Flush,
            Operation::Trim => Kind::Trim,
        }
    }

    /// Returns the name of several such requests.
    pub fn plural(self) -> &'static str {
        match self {
            Kind::Read => "reads",
            Kind::Write => "writes",
            Kind::Flush => "flushes",
            Kind::Trim => "trims",
        }
    }
}

impl std::fmt::Display for Class {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = self.kind.plural();
        if self.kind == Kind::Flush {
            return formatter.write_str(kind);
        }
        let pattern = if self.sequential { "sequential" } else { "random" };
        write!(formatter, "{pattern} {kind} of {}", Size(self.bytes))
    }
}

/// The class of every request of a load.
#[derive(Clone, Debug)]
pub struct Classes {
    known: Vec<Class>,
    of: Arc<[u16]>,
}

impl Classes {
    /// Classifies requests.
    pub fn of(entries: &[Entry]) -> Classes {
        let mut numbers: BTreeMap<Class, u16> = BTreeMap::new();
        let mut known = Vec::new();
        let mut ends = [u64::MAX; STREAMS];
        let mut oldest = 0;
        let class = |entry: &Entry| {
            let followed = ends.iter().position(|&end| end == entry.start);
            let kind = Kind::of(entry.operation);
            if kind != Kind::Flush {
                let slot = followed.unwrap_or(oldest);
                if followed.is_none() {
                    oldest = (oldest + 1) % STREAMS;
                }
                ends[slot] = entry.start + u64::from(entry.sectors);
            }
            let bytes = u64::from(entry.sectors) * SECTOR_BYTES;
            let bytes = if bytes == 0 { 0 } else { bytes.next_power_of_two() };
            let sequential = followed.is_some() && kind != Kind::Flush;
            let class = Class { kind, bytes, sequential };
            // Sizes are powers of two below 2^41, so there are never more than a few hundred.
            *numbers.entry(class).or_insert_with(|| {
                known.push(class);
                (known.len() - 1) as u16
            })
        };
        let of = entries.iter().map(class).collect();
        Classes { known, of }
    }

    /// Returns the class with the most time above `above` nanoseconds, and its share of all
    /// such time. Returns `None` if no request took longer.
    pub fn deciding(&self, latencies: &[u64], above: u64) -> Option<(Class, f64)> {
        let mut beyond = vec![0_u128; self.known.len()];
        for (&class, &latency) in self.of.iter().zip(latencies) {
            beyond[usize::from(class)] += u128::from(latency.saturating_sub(above));
        }
        let all: u128 = beyond.iter().sum();
        let (class, &most) = (0..).zip(&beyond).max_by_key(|&(class, most)| {
            // Of equals the one that came first.
            (*most, std::cmp::Reverse::<usize>(class))
        })?;
        (most > 0).then(|| (self.known[class], most as f64 / all as f64))
    }

    /// Returns the classes with the number of requests of each, the most first.
    pub fn counts(&self) -> Vec<(Class, u64)> {
        let mut counts = vec![0; self.known.len()];
        for &class in self.of.iter() {
            counts[usize::from(class)] += 1;
        }
        let mut all: Vec<(Class, u64)> = self.known.iter().copied().zip(counts).collect();
        all.sort_by_key(|&(class, count)| (std::cmp::Reverse(count), class));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn requests_are_told_apart_by_kind_size_and_pattern() {
        let trace = testing::trace(&[
            (0, 0, 8, "W"),
            (1, 8, 8, "W"),
            (2, 500, 9, "R"),
            (3, 16, 8, "W"),
            (4, 9000, 8, "W"),
        ]);
        let classes = Classes::of(trace.entries());
        let said: Vec<(String, u64)> =
            classes.counts().iter().map(|(class, count)| (class.to_string(), *count)).collect();
        let expected = [
            ("random writes of 4KiB", 2),
            ("sequential writes of 4KiB", 2),
            ("random reads of 8KiB", 1),
        ];
        let expected = expected.map(|(class, count)| (class.to_owned(), count));
        let mut sorted = said.clone();
        sorted.sort();
        let mut wanted = expected.to_vec();
        wanted.sort();
        assert_eq!(sorted, wanted);
    }

    #[test]
    fn the_class_with_most_of_the_excess_decides() {
        let trace = testing::trace(&[(0, 0, 8, "W"), (1, 5000, 8, "R"), (2, 9000, 8, "W")]);
        let classes = Classes::of(trace.entries());
        let (class, share) = classes.deciding(&[150, 400, 120], 100).unwrap();
        assert_eq!(class.kind, Kind::Read);
        assert!((share - 300.0 / 370.0).abs() < 1e-12);
        assert!(classes.deciding(&[150, 400, 120], 400).is_none());
    }
}
