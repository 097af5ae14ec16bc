//! Judges over minutes and hours whether a leg is slower than it should be.
//!
//! A freeze is a matter of milliseconds, and the engine acts on it. A drive that has become slow and stays
//! slow is a matter for a person, who should replace it. The verdict here is for that person and never
//! decides about data.
//!
//! Samples go in, one a minute, and a [`Verdict`] comes out. Nothing here reads a clock or a drive. A sample
//! with hardly any I/O counts neither for nor against a leg. In any other sample the median latency is
//! compared with the bar for the drive's [kind](bars) under that load, and with the leg's own [past](past)
//! under the same load. `docs/fail-slow.md` has the method, the thresholds and their sources.

use std::collections::VecDeque;
use std::fmt;

use hemi_engine::histogram::{LatencyHistogram, bucket_upper_bound};
use serde::{Deserialize, Serialize};

use crate::drive::DriveKind;
use hemi_units::prose::duration;

mod bars;
mod past;
#[cfg(test)]
mod tests;

pub(crate) use past::Past;

/// Minimum number of I/Os of one direction in a sample for their latency to count.
const COUNT_MIN: u64 = 30;
/// Mean number of I/Os in flight, in thousandths, from which fewer I/Os count too: a leg that hardly answers.
const QUEUE_MIN_PERMILLE: u64 = 500;
/// Number of recent samples that decide a verdict.
const WINDOW: usize = 20;
/// Number of slow samples among the last [`WINDOW`] for a verdict.
const SLOW_MIN: usize = 12;
/// Number of recent samples in which stalls are counted, and that must be good for a verdict to end.
const HOUR: usize = 60;
/// Number of samples with stalls among the last [`HOUR`] for a verdict.
const STALLS_MIN: usize = 5;
/// Maximum number of slow or stalled samples among the last [`HOUR`] for a verdict to end.
const END_MAX: usize = 2;
/// Age in milliseconds beyond which a sample no longer counts.
const AGE_MAX_MS: u64 = 3 * 3_600_000;

/// The I/O of one direction in one sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// The number of completed I/Os.
    pub(crate) count: u64,
    /// Their total size in bytes.
    pub(crate) bytes: u64,
    /// The sum of their latencies in nanoseconds.
    pub(crate) sum_ns: u64,
    /// Their median latency in nanoseconds.
    pub(crate) typical_ns: u64,
    /// The number of I/Os that took longer than any should on a drive of this kind.
    pub(crate) stalled: u64,
}

impl Work {
    /// Returns the I/O between two states of the histogram of a leg of this kind.
    pub(crate) fn between(
        base: &LatencyHistogram,
        now: &LatencyHistogram,
        bytes: u64,
        kind: DriveKind,
    ) -> Work {
        let since = now.since(base);
        let stall = bars::stall_ns(kind);
        let counts = since.buckets().iter().enumerate();
        let stalled = counts.filter(|(bucket, _)| {
            // Only buckets that lie above the limit as a whole count.
            bucket.checked_sub(1).is_some_and(|below| bucket_upper_bound(below) >= stall)
        });
        Work {
            count: since.count(),
            bytes,
            sum_ns: since.sum(),
            typical_ns: since.quantile(500),
            stalled: stalled.map(|(_, count)| count).sum(),
        }
    }

    /// Returns the mean number of I/Os in flight over `span_ms`, in thousandths (Little's law).
    fn queue_permille(&self, span_ms: u64) -> u64 {
        // Nanoseconds divided by milliseconds are millionths.
        (self.sum_ns / 1000).checked_div(span_ms).unwrap_or(0)
    }

    /// Returns the mean size of an I/O in bytes.
    fn size(&self) -> u64 {
        self.bytes.checked_div(self.count).unwrap_or(0)
    }

    /// Returns true if the leg did enough for its latency to count.
    fn counts(&self, span_ms: u64) -> bool {
        let is_busy = self.count > 0 && self.queue_permille(span_ms) >= QUEUE_MIN_PERMILLE;
        self.typical_ns > 0 && (self.count >= COUNT_MIN || is_busy)
    }
}

/// The I/O of a leg over about a minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Its end, in milliseconds since 1970.
    pub(crate) at_ms: u64,
    /// Its length in milliseconds.
    pub(crate) span_ms: u64,
    /// Reads.
    pub(crate) reads: Work,
    /// Writes.
    pub(crate) writes: Work,
}

/// The severity of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// The leg needs attention soon.
    Warning,
}

/// A verdict that a leg is slower than it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// One sentence with the observation and the advice.
    pub text: String,
    /// Time of the first slow sample, in milliseconds since 1970.
    pub since_ms: u64,
    /// Its severity.
    pub severity: Severity,
}

/// The direction of I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Reads,
    Writes,
}

impl fmt::Display for Direction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Direction::Reads => "reads",
            Direction::Writes => "writes",
        })
    }
}

/// A sample's latency above a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Excess {
    direction: Direction,
    typical_ns: u64,
    /// The bar, in nanoseconds.
    bar_ns: u64,
    /// True if the bar is the leg's own past latency.
    is_own: bool,
}

/// The finding on one sample of a leg.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Finding {
    sample: Sample,
    /// The excess over the bar of the kind, else over the leg's own past.
    excess: Option<Excess>,
    /// True if it had enough I/O to count.
    counts: bool,
}

impl Finding {
    /// Returns true if the leg is slower than it was itself, but not slower than its kind allows.
    pub(crate) fn is_slower_than_before(&self) -> bool {
        self.excess.is_some_and(|excess| excess.is_own)
    }

    /// Withdraws the finding that the leg is slower than before, because another leg of the volume is slower
    /// as well. The cause is then the load or the machine.
    pub(crate) fn excuse(&mut self) {
        if self.is_slower_than_before() {
            self.excess = None;
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    at_ms: u64,
    excess: Option<Excess>,
    stalled: u64,
}

/// The judge of one leg.
#[derive(Clone, Debug, Default)]
pub(crate) struct Judge {
    past: Past,
    seen: VecDeque<Seen>,
    verdict: Option<Verdict>,
}

impl Judge {
    /// Returns a judge that knows the leg's past pace.
    pub(crate) fn new(past: Past) -> Judge {
        Judge { past, ..Judge::default() }
    }

    /// Returns the leg's past pace.
    pub(crate) fn past(&self) -> &Past {
        &self.past
    }

    /// Returns the verdict in force.
    pub(crate) fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    /// Compares a sample with the bars of the kind and of the leg's past. Changes nothing; [`Judge::take`]
    /// records the finding.
    pub(crate) fn look(&self, sample: Sample, kind: DriveKind) -> Finding {
        let mut finding = Finding { sample, ..Finding::default() };
        for (direction, work) in
            [(Direction::Reads, sample.reads), (Direction::Writes, sample.writes)]
        {
            if !work.counts(sample.span_ms) {
                continue;
            }
            finding.counts = true;
            let excess = self.excess(direction, &work, sample.span_ms, kind);
            // An excess over the kind's bar is reported first.
            if finding.excess.is_none_or(|known| known.is_own) {
                finding.excess = excess.or(finding.excess);
            }
        }
        finding
    }

    fn excess(
        &self,
        direction: Direction,
        work: &Work,
        span_ms: u64,
        kind: DriveKind,
    ) -> Option<Excess> {
        let typical_ns = work.typical_ns;
        let excess = |bar_ns, is_own| Excess { direction, typical_ns, bar_ns, is_own };
        let (queue, size) = (work.queue_permille(span_ms), work.size());
        let worst = bars::worst(kind).map(|bar| bar.allowed_ns(queue, size));
        if let Some(bar) = worst.filter(|bar| typical_ns > *bar) {
            return Some(excess(bar, false));
        }
        let doubtful = bars::doubtful(kind).allowed_ns(queue, size);
        let before = self.past.typical_ns(direction == Direction::Writes, work, span_ms)?;
        let is_slower = typical_ns >= before.saturating_mul(bars::slowdown(kind));
        (is_slower && typical_ns > doubtful).then(|| excess(before, true))
    }

    /// Records the finding on a sample. Returns true if the verdict has changed.
    pub(crate) fn take(&mut self, finding: Finding, kind: DriveKind) -> bool {
        let Finding { sample, excess, counts } = finding;
        let stalled = sample.reads.stalled + sample.writes.stalled;
        if !counts && stalled == 0 {
            return false;
        }
        // Slow samples must not raise the bar for later ones.
        if excess.is_none() && stalled == 0 {
            for (is_write, work) in [(false, sample.reads), (true, sample.writes)] {
                if work.counts(sample.span_ms) {
                    self.past.learn(is_write, &work, sample.span_ms);
                }
            }
        }
        if self.seen.len() == HOUR {
            self.seen.pop_front();
        }
        self.seen.push_back(Seen { at_ms: sample.at_ms, excess, stalled });
        // If the clock was set back, the other samples count as too old, not as new.
        while self.seen.front().is_some_and(|seen| sample.at_ms.abs_diff(seen.at_ms) > AGE_MAX_MS) {
            self.seen.pop_front();
        }
        match &self.verdict {
            None => {
                self.verdict = self.slowness(kind).or_else(|| self.stalling(kind));
                self.verdict.is_some()
            }
            Some(_) if self.is_over() => {
                self.verdict = None;
                true
            }
            Some(_) => false,
        }
    }

    fn is_over(&self) -> bool {
        let bad = self.seen.iter().filter(|seen| seen.excess.is_some() || seen.stalled > 0);
        self.seen.len() == HOUR && bad.count() <= END_MAX
    }

    fn slowness(&self, kind: DriveKind) -> Option<Verdict> {
        let recent = self.seen.iter().skip(self.seen.len().saturating_sub(WINDOW));
        let total = recent.clone().count();
        let mut slow: Vec<(u64, Excess)> =
            recent.filter_map(|seen| Some((seen.at_ms, seen.excess?))).collect();
        if slow.len() < SLOW_MIN {
            return None;
        }
        let since_ms = slow[0].0;
        let count = slow.len();
        // The median sample stands for all.
        slow.sort_by_key(|(_, excess)| excess.typical_ns);
        let (_, Excess { direction, typical_ns, bar_ns, is_own }) = slow[count / 2];
        let (now, bar) = (duration(typical_ns), duration(bar_ns));
        let measure = match is_own {
            true => format!("where it took {bar} under the same load before"),
            false => format!("where {} takes {bar} at most", bars::noun(kind)),
        };
        let text = format!(
            "It answers {direction} in {now}, {measure} ({count} of the last {total} minutes with \
             I/O): {}.",
            bars::advice(kind)
        );
        Some(Verdict { text, since_ms, severity: Severity::Warning })
    }

    fn stalling(&self, kind: DriveKind) -> Option<Verdict> {
        let with: Vec<&Seen> = self.seen.iter().filter(|seen| seen.stalled > 0).collect();
        if with.len() < STALLS_MIN {
            return None;
        }
        let total: u64 = with.iter().map(|seen| seen.stalled).sum();
        let text = format!(
            "{total} of its I/Os took longer than {}, in {} of the last {} minutes with I/O: {}.",
            duration(bars::stall_ns(kind)),
            with.len(),
            self.seen.len(),
            bars::advice(kind)
        );
        Some(Verdict { text, since_ms: with[0].at_ms, severity: Severity::Warning })
    }
}
