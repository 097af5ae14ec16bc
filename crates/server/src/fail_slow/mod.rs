//! Judges over minutes and hours if a leg is slower than it should be.
//!
//! A freeze is a matter of milliseconds, and the engine acts on it. A drive that has become slow and stays
//! so is a matter for a person: replace it. The verdict here is for that person. It never decides about data.
//!
//! Samples go in, one for each minute, and a [`Verdict`] comes out. Nothing here reads a clock or a drive.
//! A sample with next to no I/O counts neither for nor against a leg. In any other, the usual latency is held
//! against what the [kind](bars) of the drive allows under that load, and against what
//! [this leg](past) took under the same load before. `docs/fail-slow.md` has the method, the
//! thresholds and where they come from.

use std::collections::VecDeque;
use std::fmt;

use hemi_engine::histogram::{LatencyHistogram, bucket_upper_bound};
use serde::{Deserialize, Serialize};

use crate::control::promises::duration;
use crate::drive::DriveKind;

mod bars;
mod past;
#[cfg(test)]
mod tests;

pub(crate) use past::Past;

/// Least I/Os of a kind in a sample for their latency to count.
const COUNT_MIN: u64 = 30;
/// As many are in flight on average where fewer count too: a leg that hardly answers.
const QUEUE_MIN_PERMILLE: u64 = 500;
/// The number of samples that a verdict is found in …
const WINDOW: usize = 20;
/// … and how many of them have to be slow.
const SLOW_MIN: usize = 12;
/// The number of samples that stalls are counted in, and after which a verdict may end.
const HOUR: usize = 60;
/// The number of samples with stalls among them for a verdict.
const STALLS_MIN: usize = 5;
/// Most samples that are slow or have stalls among the last [`HOUR`] for a verdict to end.
const END_MAX: usize = 2;
/// Age of a sample from which it says nothing of now.
const AGE_MAX_MS: u64 = 3 * 3_600_000;

/// I/O of one direction in one sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// The number of I/Os that ended.
    pub(crate) count: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// The sum of their latencies.
    pub(crate) sum_ns: u64,
    /// Their median.
    pub(crate) typical_ns: u64,
    /// The number of those that took longer than a drive of this kind ever should.
    pub(crate) stalled: u64,
}

impl Work {
    /// Returns the I/O between two states of a histogram of a leg of this kind.
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
            // The whole bucket lies above.
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

    /// Returns the mean number of I/Os in flight over `span_ms`, of a thousand (Little's law).
    fn queue_permille(&self, span_ms: u64) -> u64 {
        // Nanoseconds over milliseconds is a millionth.
        (self.sum_ns / 1000).checked_div(span_ms).unwrap_or(0)
    }

    /// Returns the mean size of an I/O in bytes.
    fn size(&self) -> u64 {
        self.bytes.checked_div(self.count).unwrap_or(0)
    }

    /// Returns true if the latency says something of the leg: it did something.
    fn counts(&self, span_ms: u64) -> bool {
        let is_busy = self.count > 0 && self.queue_permille(span_ms) >= QUEUE_MIN_PERMILLE;
        self.typical_ns > 0 && (self.count >= COUNT_MIN || is_busy)
    }
}

/// The I/O of a leg in a minute or so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Its end, in unix milliseconds.
    pub(crate) at_ms: u64,
    /// Its length.
    pub(crate) span_ms: u64,
    /// Reads.
    pub(crate) reads: Work,
    /// Writes.
    pub(crate) writes: Work,
}

/// The weight of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Look after it soon.
    Warning,
}

/// A judgement that a leg is slower than it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// One sentence: what was seen, and what to do.
    pub text: String,
    /// The time of the first slow sample.
    pub since_ms: u64,
    /// Its weight.
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

/// A sample's latency beyond a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Excess {
    direction: Direction,
    typical_ns: u64,
    /// The most that it should be.
    bar_ns: u64,
    /// True if the bar is what the leg itself took before.
    is_own: bool,
}

/// The finding of one sample on a leg.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Finding {
    sample: Sample,
    /// Beyond what the kind allows, else beyond what the leg took before.
    excess: Option<Excess>,
    /// True if it had so much I/O that it counts.
    counts: bool,
}

impl Finding {
    /// Returns true if the leg is slower than it was itself, in a way that its kind allows.
    pub(crate) fn is_slower_than_before(&self) -> bool {
        self.excess.is_some_and(|excess| excess.is_own)
    }

    /// Takes back that the leg is slower than before: another leg of the volume is as well, so it is the
    /// load or the machine.
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
    /// Returns a judge who knows how fast the leg has been.
    pub(crate) fn new(past: Past) -> Judge {
        Judge { past, ..Judge::default() }
    }

    /// Returns how fast the leg has been.
    pub(crate) fn past(&self) -> &Past {
        &self.past
    }

    /// Returns the verdict in force.
    pub(crate) fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    /// Holds a sample against what the kind and the past allow. Changes nothing: [`Judge::take`] takes it in.
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
            // What is beyond the kind is said first.
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

    /// Takes in what was found in a sample. Returns true if the verdict has changed.
    pub(crate) fn take(&mut self, finding: Finding, kind: DriveKind) -> bool {
        let Finding { sample, excess, counts } = finding;
        let stalled = sample.reads.stalled + sample.writes.stalled;
        if !counts && stalled == 0 {
            return false;
        }
        // What is slow is no measure for what comes.
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
        // A clock that was set back makes the others late, not young.
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
        // The one in the middle stands for all.
        slow.sort_by_key(|(_, excess)| excess.typical_ns);
        let (_, Excess { direction, typical_ns, bar_ns, is_own }) = slow[count / 2];
        let (now, bar) = (duration(typical_ns), duration(bar_ns));
        let measure = match is_own {
            true => format!("where it took {bar} under the same load before"),
            false => format!("where {} takes {bar} at the most", bars::noun(kind)),
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
