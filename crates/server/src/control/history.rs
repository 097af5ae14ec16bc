//! A short memory of snapshots. It supplies recent latencies, and the time since when a leg has
//! been in its state. The modules below keep the last 24 hours.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hemi_engine::histogram::LatencyHistogram;
use hemi_engine::io::OutReason;
use hemi_engine::status::LegState;
use hemi_units::SECTOR_BYTES;

use super::api::{Latencies, Latency};
use super::progress::Pace;
use super::volume::Snapshot;

pub(super) mod answer;
pub(super) mod file;
pub(super) mod rings;
pub(super) mod row;
pub(super) mod sampler;

/// Interval between two samples.
pub const SAMPLE_EVERY: Duration = Duration::from_millis(500);
/// Span that "recent" covers.
pub const RECENT: Duration = Duration::from_secs(10);

/// Snapshots of the last [`RECENT`], and the time at which each leg's state began.
#[derive(Debug, Default)]
pub struct History {
    samples: VecDeque<Arc<Snapshot>>,
    states: HashMap<u8, StateSince>,
    /// The drains of legs that owe something, by slot.
    drains: HashMap<u8, Pace>,
    /// The running scrub.
    scrub: Option<Pace>,
}

#[derive(Clone, Copy, Debug)]
struct StateSince {
    state: LegState,
    out_reason: Option<OutReason>,
    freezes: u64,
    /// `None` if since the volume was opened.
    since: Option<Instant>,
}

impl History {
    /// Adds a snapshot and forgets those older than [`RECENT`].
    pub fn sample(&mut self, snapshot: Arc<Snapshot>) {
        for leg in &snapshot.status.legs {
            let since = (!self.samples.is_empty()).then_some(snapshot.taken);
            let (state, out_reason, freezes) = (leg.state, leg.out_reason, leg.freezes);
            let fresh = StateSince { state, out_reason, freezes, since };
            let known = self.states.entry(leg.leg).or_insert(fresh);
            // A leg that thawed and froze again between two samples began a new state, and so did
            // one that is now out for another reason.
            if (known.state, known.out_reason, known.freezes) != (state, out_reason, freezes) {
                *known = fresh;
            }
        }
        self.sample_work(&snapshot);
        // The oldest sample kept is the newest one older than the span, so that the whole span is
        // covered.
        while self
            .samples
            .get(1)
            .is_some_and(|next| snapshot.taken.saturating_duration_since(next.taken) >= RECENT)
        {
            self.samples.pop_front();
        }
        self.samples.push_back(snapshot);
    }

    /// Returns the time that the leg has been in its state; `None` if since the volume was opened.
    pub fn state_age(&self, leg: u8, state: LegState, now: Instant) -> Option<Duration> {
        let known = self.states.get(&leg)?;
        if known.state != state {
            return Some(Duration::ZERO);
        }
        known.since.map(|since| now.saturating_duration_since(since))
    }

    fn sample_work(&mut self, snapshot: &Snapshot) {
        let now = snapshot.taken;
        for leg in &snapshot.status.legs {
            let paid = leg.drained_bytes + leg.compared_bytes;
            if leg.owed_bytes == 0 || leg.state == LegState::Empty {
                self.drains.remove(&leg.leg);
                continue;
            }
            let begin = || Pace::begin(now, leg.owed_bytes, paid);
            let pace = self.drains.entry(leg.leg).or_insert_with(begin);
            pace.note(now, leg.owed_bytes, paid);
        }
        self.scrub = snapshot.status.scrub.map(|(done, total)| {
            let (done, left) = (done * SECTOR_BYTES, total.saturating_sub(done) * SECTOR_BYTES);
            let mut pace = match self.scrub {
                // The drain began anew.
                Some(pace) if pace.left() >= left => pace,
                _ => Pace::begin(now, left, done),
            };
            pace.note(now, left, done);
            pace
        });
    }

    /// Returns the drain of a leg, if it owed something at the last sample.
    pub fn drain(&self, leg: u8) -> Option<&Pace> {
        self.drains.get(&leg)
    }

    /// Returns the running scrub, if one ran at the last sample.
    pub fn scrub(&self) -> Option<&Pace> {
        self.scrub.as_ref()
    }

    /// Returns the snapshot from which "recent" is counted.
    pub fn base(&self) -> Option<&Arc<Snapshot>> {
        self.samples.front()
    }
}

/// Returns a histogram's figures since the volume was opened and since `base`.
pub fn latencies(now: &LatencyHistogram, base: Option<&LatencyHistogram>) -> Latencies {
    let total = figures(now);
    let recent = base.map_or(total, |base| figures(&now.since(base)));
    Latencies { recent, total }
}

fn figures(histogram: &LatencyHistogram) -> Latency {
    Latency {
        count: histogram.count(),
        mean_ns: histogram.mean(),
        p50_ns: histogram.quantile(500),
        p99_ns: histogram.quantile(990),
        p999_ns: histogram.quantile(999),
        max_ns: histogram.max(),
    }
}

#[cfg(test)]
mod tests {
    use hemi_engine::status::{LegStatus, Status};

    use super::super::volume::Identity;
    use super::*;

    fn snapshot(taken: Instant, state: LegState, freezes: u64) -> Arc<Snapshot> {
        let mut snapshot = Snapshot::opening(Identity::default(), Vec::new());
        snapshot.taken = taken;
        snapshot.status = Status {
            legs: vec![LegStatus { state, freezes, ..Default::default() }],
            ..Default::default()
        };
        Arc::new(snapshot)
    }

    #[test]
    fn a_state_is_as_old_as_its_first_sample() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut history = History::default();
        history.sample(snapshot(at(0), LegState::Healthy, 0));
        history.sample(snapshot(at(1), LegState::Healthy, 0));
        assert_eq!(history.state_age(0, LegState::Healthy, at(2)), None, "since it was opened");
        history.sample(snapshot(at(2), LegState::Frozen, 1));
        history.sample(snapshot(at(3), LegState::Frozen, 1));
        let age = |history: &History| history.state_age(0, LegState::Frozen, at(5));
        assert_eq!(age(&history), Some(Duration::from_secs(3)));
        history.sample(snapshot(at(4), LegState::Frozen, 2));
        assert_eq!(age(&history), Some(Duration::from_secs(1)), "it froze anew");
    }

    #[test]
    fn recent_is_what_was_counted_since() {
        let mut histogram = LatencyHistogram::default();
        for _ in 0..1000 {
            histogram.record(1_000_000_000);
        }
        let base = histogram.clone();
        for _ in 0..100 {
            histogram.record(50_000);
        }
        let figures = latencies(&histogram, Some(&base));
        assert_eq!((figures.recent.count, figures.total.count), (100, 1100));
        assert_eq!(figures.recent.mean_ns, 50_000);
        assert!((50_000..=62_500).contains(&figures.recent.p99_ns), "{figures:?}");
        assert_eq!(figures.total.p99_ns, 1_000_000_000);
        assert_eq!(latencies(&base, Some(&base)).recent, Latency::default());
    }

    #[test]
    fn the_memory_covers_the_span_and_no_more() {
        let start = Instant::now();
        let mut history = History::default();
        for step in 0..100 {
            history.sample(snapshot(start + SAMPLE_EVERY * step, LegState::Healthy, 0));
        }
        let now = start + SAMPLE_EVERY * 99;
        let span = history.base().map(|base| now - base.taken);
        assert!(span.is_some_and(|span| span >= RECENT && span <= RECENT + SAMPLE_EVERY));
    }
}
