//! Pending completions, in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hemi_units::Instant;

/// The kind of request that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Read,
    Write,
    Flush,
    Trim,
}

/// A pending completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    pub(super) at: Instant,
    pub(super) tag: u64,
    pub(super) kind: Kind,
    pub(super) bytes: u64,
}

/// Completion time, sequence number, tag, kind, bytes.
type Entry = (Instant, u64, u64, Kind, u64);

/// All pending completions. Those at the same time keep the order in which they were pushed.
#[derive(Clone, Debug, Default)]
pub(super) struct Endings {
    heap: BinaryHeap<Reverse<Entry>>,
    count: u64,
}

impl Endings {
    pub(super) fn push(&mut self, ending: Ending) {
        self.count += 1;
        let Ending { at, tag, kind, bytes } = ending;
        self.heap.push(Reverse((at, self.count, tag, kind, bytes)));
    }

    /// Returns the time of the first completion, or never if there is none.
    pub(super) fn next(&self) -> Instant {
        self.heap.peek().map_or(Instant::NEVER, |Reverse(first)| first.0)
    }

    pub(super) fn pop(&mut self) -> Option<Ending> {
        let Reverse((at, _, tag, kind, bytes)) = self.heap.pop()?;
        Some(Ending { at, tag, kind, bytes })
    }
}
