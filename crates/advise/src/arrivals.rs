//! The requests of a load as a workload, which keeps the latency of each.
//!
//! Requests arrive at their own times whatever the drives do (an open loop), so a drive that
//! cannot keep up has a queue that grows. A client that waits for answers would have slowed down;
//! the trace does not tell which of its requests waited for others.

use std::sync::Arc;

use hemi_units::{Extent, Instant};
use hemi_workload::traces::load::Entry;
use hemi_workload::{Issue, Workload};

/// The latency of a request that has no answer yet.
const UNANSWERED: u64 = u64::MAX;

/// The arrivals of a load.
pub(crate) struct Arrivals {
    entries: Arc<[Entry]>,
    position: usize,
    /// Request of each tag.
    asked: Vec<u32>,
    free: Vec<u32>,
    latencies: Vec<u64>,
    done: usize,
}

impl Arrivals {
    /// Creates the arrivals, the first at time zero.
    pub(crate) fn new(entries: Arc<[Entry]>) -> Arrivals {
        let latencies = vec![UNANSWERED; entries.len()];
        Arrivals { entries, position: 0, asked: Vec::new(), free: Vec::new(), latencies, done: 0 }
    }

    /// Returns the latency of each request in nanoseconds; of one without an answer, the time it
    /// has waited `now`.
    pub(crate) fn into_latencies(self, now: Instant) -> Vec<u64> {
        let mut latencies = self.latencies;
        for (latency, entry) in latencies.iter_mut().zip(self.entries.iter()) {
            if *latency == UNANSWERED {
                *latency = now.0.saturating_sub(entry.at);
            }
        }
        latencies
    }
}

impl Workload for Arrivals {
    fn next_event(&self) -> Instant {
        self.entries.get(self.position).map_or(Instant::NEVER, |entry| Instant(entry.at))
    }

    fn advance(&mut self, now: Instant, issues: &mut Vec<Issue>) {
        while let Some(entry) = self.entries.get(self.position)
            && entry.at <= now.0
        {
            let tag = self.free.pop().unwrap_or_else(|| {
                self.asked.push(0);
                (self.asked.len() - 1) as u32
            });
            self.asked[tag as usize] = self.position as u32;
            self.position += 1;
            let extent = Extent::new(entry.start, entry.sectors.into());
            let intended = Instant(entry.at);
            issues.push(Issue { tag, operation: entry.operation, extent, intended });
        }
    }

    fn completed(&mut self, now: Instant, tag: u32, _issues: &mut Vec<Issue>) {
        let request = self.asked[tag as usize] as usize;
        self.latencies[request] = now.since(Instant(self.entries[request].at));
        self.done += 1;
        self.free.push(tag);
    }

    fn is_over(&self) -> bool {
        self.done == self.entries.len()
    }
}
