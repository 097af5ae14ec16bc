//! The load of a trace: its requests, sped up or multiplied, with their classes and totals.

use std::sync::Arc;

use hemi_units::{Operation, SECOND, SECTOR_BYTES};
use hemi_workload::traces::load::{Entry, Trace};

use crate::classes::Classes;
use crate::error::AdviseError;

/// Largest factor by which arrivals may be faster or slower.
pub const MOST_SCALE: f64 = 1000.0;
/// Largest number of tenants.
pub const MOST_TENANTS: u32 = 1000;
/// Largest number of requests that tenants may add up to.
pub const MOST_REQUESTS: u64 = 200_000_000;

/// Alignment of the tenants' address ranges in sectors: a gibibyte.
const TENANT_ALIGNMENT: u64 = (1 << 30) / SECTOR_BYTES;

/// The changes made to a trace before it is replayed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Factor by which requests arrive faster than recorded.
    pub scale: f64,
    /// Number of copies of the trace that run at once.
    pub tenants: u32,
}

impl Default for Change {
    fn default() -> Change {
        Change { scale: 1.0, tenants: 1 }
    }
}

/// The requests that every candidate serves.
#[derive(Clone, Debug)]
pub struct Load {
    /// Name of the trace's file.
    pub file: String,
    /// Requests, ordered by time.
    pub entries: Arc<[Entry]>,
    /// Class of each request.
    pub classes: Classes,
    /// Time of the last request in nanoseconds; the first is at zero.
    pub duration: u64,
    /// End of the furthest request in bytes.
    pub end: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Assumptions behind the changes, in sentences.
    pub assumptions: Vec<String>,
    /// Facts about the trace that limit what it can tell, in sentences.
    pub cautions: Vec<String>,
}

impl Load {
    /// Returns the load of a trace after a change.
    ///
    /// # Errors
    /// Fails if the change is impossible or the trace takes no time.
    pub fn of(trace: &Trace, change: Change) -> Result<Load, AdviseError> {
        let Change { scale, tenants } = change;
        if !(1.0 / MOST_SCALE..=MOST_SCALE).contains(&scale) {
            let right = format!("a factor from {} to {MOST_SCALE}", 1.0 / MOST_SCALE);
            return Err(AdviseError::option("--scale", scale, right));
        }
        if !(1..=MOST_TENANTS).contains(&tenants) {
            let right = format!("a number from 1 to {MOST_TENANTS}");
            return Err(AdviseError::option("--tenants", tenants, right));
        }
        let count = trace.entries().len() as u64 * u64::from(tenants);
        if count > MOST_REQUESTS {
            let right = format!("at most {MOST_REQUESTS} requests in all; these are {count}");
            return Err(AdviseError::option("--tenants", tenants, right));
        }
        let last = trace.entries().last().map_or(0, |entry| entry.at);
        if last == 0 {
            return Err(AdviseError::NoTime { file: trace.file().to_owned() });
        }
        let mut entries = trace.entries().to_vec();
        for entry in &mut entries {
            entry.at = faster(entry.at, scale);
        }
        let duration = faster(last, scale).max(1);
        if tenants > 1 {
            entries = multiplied(&entries, tenants, duration, trace.end() / SECTOR_BYTES);
        }
        Ok(Load::summed(trace, change, entries, duration))
    }

    fn summed(trace: &Trace, change: Change, entries: Vec<Entry>, duration: u64) -> Load {
        let mut load = Load {
            file: trace.file().to_owned(),
            classes: Classes::of(&entries),
            entries: entries.into(),
            duration,
            end: 0,
            reads: 0,
            writes: 0,
            read_bytes: 0,
            written_bytes: 0,
            assumptions: assumptions(change),
            cautions: cautions(trace),
        };
        for entry in load.entries.iter() {
            let bytes = u64::from(entry.sectors) * SECTOR_BYTES;
            load.end = load.end.max(entry.start * SECTOR_BYTES + bytes);
            match entry.operation {
                Operation::Read => {
                    load.reads += 1;
                    load.read_bytes += bytes;
                }
                Operation::Write { .. } => {
                    load.writes += 1;
                    load.written_bytes += bytes;
                }
                Operation::Flush | Operation::Trim => {}
            }
        }
        load
    }

    /// Returns the number of requests.
    pub fn requests(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Returns the duration in seconds.
    pub fn seconds(&self) -> f64 {
        self.duration as f64 / SECOND as f64
    }

    /// Returns the most bytes that are written within `length` nanoseconds.
    pub fn most_written(&self, length: u64) -> u64 {
        let written = |entry: &Entry| match entry.operation {
            Operation::Write { .. } => u64::from(entry.sectors) * SECTOR_BYTES,
            _ => 0,
        };
        let (mut most, mut within, mut from) = (0, 0, 0);
        for entry in self.entries.iter() {
            within += written(entry);
            while self.entries[from].at + length <= entry.at {
                within -= written(&self.entries[from]);
                from += 1;
            }
            most = most.max(within);
        }
        most
    }

    /// Returns the start of the busiest `length` nanoseconds: those with the most requests.
    pub fn busiest(&self, length: u64) -> u64 {
        let (mut best, mut most, mut from) = (0, 0, 0);
        for (index, entry) in self.entries.iter().enumerate() {
            while self.entries[from].at + length <= entry.at {
                from += 1;
            }
            if index - from + 1 > most {
                most = index - from + 1;
                best = self.entries[from].at;
            }
        }
        best
    }
}

fn faster(at: u64, scale: f64) -> u64 {
    if scale == 1.0 { at } else { libm::round(at as f64 / scale) as u64 }
}

/// Returns the requests of `tenants` copies: each on addresses of its own, and each as much later
/// than the one before as divides the duration evenly. What would come after the end comes at the
/// beginning.
fn multiplied(entries: &[Entry], tenants: u32, duration: u64, end: u64) -> Vec<Entry> {
    let range = end.next_multiple_of(TENANT_ALIGNMENT);
    let round = u128::from(duration) + 1;
    let mut all = Vec::with_capacity(entries.len() * tenants as usize);
    for tenant in 0..tenants {
        let shift = u128::from(duration) * u128::from(tenant) / u128::from(tenants);
        all.extend(entries.iter().map(|entry| Entry {
            at: ((u128::from(entry.at) + shift) % round) as u64,
            start: entry.start + range * u64::from(tenant),
            ..*entry
        }));
    }
    all.sort_by_key(|entry| entry.at);
    all
}

fn assumptions(change: Change) -> Vec<String> {
    let mut said = Vec::new();
    if change.scale != 1.0 {
        said.push(format!(
            "Arrivals are {} times as fast as recorded: every gap between requests shrinks alike, \
             and what is asked for stays the same.",
            change.scale
        ));
    }
    if change.tenants > 1 {
        said.push(format!(
            "{} tenants do the same on addresses of their own, each later than the one before by \
             an even share of the trace; what would come after its end comes at its beginning. \
             Tenants whose peaks coincide are worse.",
            change.tenants
        ));
    }
    said
}

fn cautions(trace: &Trace) -> Vec<String> {
    let mut said: Vec<String> = trace.lacking().iter().map(|what| format!("{what}.")).collect();
    if trace.entries().iter().all(|entry| entry.at.is_multiple_of(SECOND)) {
        said.push(
            "The trace's times are whole seconds: all requests of a second arrive at once, and wait \
             for one another longer than the real ones did."
                .into(),
        );
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn faster_arrivals_keep_the_order_and_say_so() {
        let trace = testing::trace(&[(0, 0, 8, "W"), (1000, 8, 8, "R"), (3000, 16, 8, "W")]);
        let load = Load::of(&trace, Change { scale: 2.0, tenants: 1 }).unwrap();
        let times: Vec<u64> = load.entries.iter().map(|entry| entry.at).collect();
        assert_eq!(times, [0, 500, 1500]);
        assert_eq!((load.reads, load.writes, load.written_bytes), (1, 2, 8192));
        assert!(load.assumptions[0].contains("2 times as fast"));
    }

    #[test]
    fn times_in_whole_seconds_are_said() {
        let said = |at| {
            let trace = testing::trace(&[(0, 0, 8, "W"), (at, 8, 8, "R")]);
            Load::of(&trace, Change::default()).unwrap().cautions.join(" ")
        };
        assert!(said(2 * SECOND).contains("times are whole seconds"));
        assert_eq!(said(2 * SECOND + 1), "");
    }

    #[test]
    fn tenants_have_their_own_addresses_and_times() {
        let trace = testing::trace(&[(0, 0, 8, "W"), (1000, 8, 8, "W")]);
        let load = Load::of(&trace, Change { scale: 1.0, tenants: 2 }).unwrap();
        let all: Vec<(u64, u64)> = load.entries.iter().map(|e| (e.at, e.start)).collect();
        let second = TENANT_ALIGNMENT;
        assert_eq!(all, [(0, 0), (499, second + 8), (500, second), (1000, 8)]);
        assert_eq!(load.duration, 1000);
    }

    #[test]
    fn impossible_changes_are_refused_by_name() {
        let trace = testing::trace(&[(0, 0, 8, "W"), (1000, 8, 8, "W")]);
        for (scale, tenants, part) in
            [(0.0, 1, "--scale"), (f64::NAN, 1, "--scale"), (1.0, 0, "--tenants")]
        {
            let error = Load::of(&trace, Change { scale, tenants }).unwrap_err().to_string();
            assert!(error.starts_with(part), "{error}");
        }
        let still = testing::trace(&[(0, 0, 8, "W"), (0, 8, 8, "W")]);
        let error = Load::of(&still, Change::default()).unwrap_err().to_string();
        assert!(error.contains("same time"), "{error}");
    }

    #[test]
    fn the_busiest_part_has_the_most_requests() {
        let trace = testing::trace(&[
            (0, 0, 8, "R"),
            (10_000, 0, 8, "R"),
            (10_400, 0, 8, "R"),
            (10_900, 0, 8, "R"),
            (30_000, 0, 8, "R"),
        ]);
        assert_eq!(Load::of(&trace, Change::default()).unwrap().busiest(1000), 10_000);
    }
}
