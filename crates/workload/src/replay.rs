//! Replay of a trace, at its own times or as fast as the volume can.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hemi_units::{Extent, Instant, Operation, Time};
use serde::Deserialize;

use super::dependencies::Dependencies;
use super::error::{WorkloadError, check_count};
use super::limit::{self, Limits, Quota};
use super::tags::{MOST_OUTSTANDING, Tags};
use super::traces::format::{Event, FormatSpec, Reading, TimeUnit};
use super::traces::load::{Beyond, Trace};
use super::traces::{Reader, TraceError};
use super::{Demand, Issue, Workload};

/// A `replay` workload.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplaySpec {
    /// The trace's file, plain or compressed by gzip, relative to the spec's directory.
    pub trace: PathBuf,
    /// Format of the trace; recognised if absent.
    #[serde(default)]
    pub format: Option<FormatSpec>,
    /// Unit of time of a `disksim` trace, where it is required, and of the column `at` in a `csv`
    /// trace; allowed nowhere else.
    #[serde(default)]
    pub time_unit: Option<TimeUnit>,
    /// Events of a `blkparse` trace that are requests (`Q` if absent); allowed nowhere else.
    #[serde(default)]
    pub event: Option<Event>,
    /// The volume (disk, device, ASU, file) of the trace to replay, by its name in the trace;
    /// `"*"` takes all of them, merged. Required if the trace has several.
    #[serde(default)]
    pub volume: Option<String>,
    /// Treatment of requests beyond the end of the volume.
    #[serde(default)]
    pub beyond: Beyond,
    /// Pace of the requests.
    #[serde(default)]
    pub pace: Pace,
    /// Factor by which the timed pace is faster than the recording.
    #[serde(default)]
    pub speed: Option<f64>,
    /// Maximum number of requests in flight; later ones wait in the client. Required for the
    /// fastest pace.
    #[serde(default)]
    pub queue_depth: Option<u32>,
    /// Time for which requests are issued; to the trace's end if absent.
    #[serde(default)]
    pub duration: Option<Time>,
    /// Maximum number of requests to issue.
    #[serde(default)]
    pub requests: Option<u64>,
}

/// The pace at which the requests of a trace are issued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// Requests go at the recorded times. Latency counts from the recorded time, including any wait.
    #[default]
    Timed,
    /// Requests go as soon as the queue depth allows. Latency counts from then.
    Fastest,
    /// After all requests that were done before it in the recording, with the recorded delay. A
    /// slower volume slows the trace as it would have slowed its client. Latency counts from
    /// then. Requires a trace that records latencies.
    Dependent,
}

/// A running replay.
#[derive(Clone, Debug)]
pub struct Replay {
    trace: Arc<Trace>,
    position: usize,
    pace: Pace,
    speed: f64,
    begin: Instant,
    /// Time until which due requests have been issued.
    latest: Instant,
    queue_depth: u32,
    limits: Limits,
    tags: Tags,
    dependencies: Option<Dependencies>,
    /// Entry of the trace for each tag.
    entry_of: Vec<u32>,
}

impl ReplaySpec {
    /// Returns an error if the keys do not fit together.
    ///
    /// # Errors
    /// Fails at the first such key, naming it.
    pub fn check(&self) -> Result<(), WorkloadError> {
        limit::check(self.duration, self.requests)?;
        if let Some(format) = self.format {
            format.with(self.time_unit, self.event)?;
        }
        if let Some(depth) = self.queue_depth {
            check_count("queue_depth", depth.into(), MOST_OUTSTANDING.into())?;
        } else if self.pace == Pace::Fastest {
            let right = "write how many requests are kept in flight, as in `queue_depth = 8`";
            return Err(WorkloadError::new("queue_depth", "none", right));
        }
        if let Some(speed) = self.speed {
            if self.pace != Pace::Timed {
                let right = "leave it out, or write `pace = \"timed\"`";
                return Err(WorkloadError::new("speed", speed, right));
            }
            if !(1e-6..=1e6).contains(&speed) {
                let right = "write a number from 0.000001 to 1000000; 2 is twice as fast";
                return Err(WorkloadError::new("speed", speed, right));
            }
        }
        Ok(())
    }

    /// Reads the trace and builds its replay on a volume of `volume_sectors` sectors, beginning
    /// at time zero.
    ///
    /// # Errors
    /// Fails if the keys do not fit together, or if the trace is bad.
    pub fn build(
        &self,
        volume_sectors: u64,
        base_directory: &Path,
    ) -> Result<Replay, WorkloadError> {
        self.check()?;
        let path = base_directory.join(&self.trace);
        let reading = Reading { format: self.format, time_unit: self.time_unit, event: self.event };
        let reader = Reader::open(&path, reading)?;
        let mut trace = Trace::from_reader(reader, self.volume.as_deref())?;
        trace.fit(volume_sectors, self.beyond)?;
        if self.pace == Pace::Dependent && trace.latencies().is_empty() {
            return Err(TraceError::NoLatencies { file: trace.file().to_owned() }.into());
        }
        Ok(Replay::new(Arc::new(trace), self))
    }
}

impl Replay {
    /// Creates the replay of a trace that fits the volume.
    pub fn new(trace: Arc<Trace>, spec: &ReplaySpec) -> Replay {
        let dependencies = (spec.pace == Pace::Dependent).then(|| Dependencies::of(&trace));
        Replay {
            dependencies,
            entry_of: Vec::new(),
            trace,
            position: 0,
            pace: spec.pace,
            speed: spec.speed.unwrap_or(1.0),
            begin: Instant(0),
            latest: Instant(0),
            queue_depth: spec.queue_depth.unwrap_or(MOST_OUTSTANDING),
            limits: Limits::new(spec.duration, spec.requests),
            tags: Tags::default(),
        }
    }

    /// Begins at `at`. Must be called before anything is issued.
    pub fn begin(&mut self, at: Instant) {
        self.limits.begin(at);
        self.begin = at;
        self.latest = at;
        if let Some(dependencies) = &mut self.dependencies {
            dependencies.begin(at);
        }
    }

    /// Caps the requests in flight; see [`super::any::AnyWorkload::cap`].
    pub(super) fn cap(&mut self, under_way: u32) {
        if self.pace != Pace::Fastest {
            self.queue_depth = self.queue_depth.min(under_way);
        }
    }

    /// Returns the demand of the trace.
    pub(super) fn demand(&self) -> Demand {
        self.trace.entries().iter().fold(Demand::default(), |demand, entry| {
            let writes = matches!(entry.operation, Operation::Write { .. } | Operation::Trim);
            demand.and(Demand { writes, longest_sectors: entry.sectors.into() })
        })
    }

    /// Grants `quota` from now on.
    pub(super) fn grant(&mut self, quota: Quota) {
        self.limits.grant(quota);
    }

    /// Returns the trace.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Returns the time at which the next request is due; in the past while it waits for a
    /// slot.
    fn due(&self) -> Instant {
        match (self.trace.entries().get(self.position), self.pace) {
            (None, _) => Instant::NEVER,
            (Some(_), Pace::Fastest) => self.latest,
            (Some(entry), Pace::Dependent) => {
                let dependencies = self.dependencies.as_ref();
                dependencies.map_or(Instant::NEVER, |known| known.due(self.position, entry.at))
            }
            (Some(entry), Pace::Timed) if self.speed == 1.0 => self.begin + entry.at,
            (Some(entry), Pace::Timed) => {
                self.begin + libm::round(entry.at as f64 / self.speed) as u64
            }
        }
    }

    fn issue(&mut self, now: Instant, issues: &mut Vec<Issue>) {
        self.latest = self.latest.max(now);
        while self.tags.outstanding() < self.queue_depth {
            let due = self.due();
            let intended = if self.pace == Pace::Fastest { now } else { due };
            if due > now || !self.limits.allow(intended) {
                return;
            }
            let entry = self.trace.entries()[self.position];
            let tag = self.tags.take();
            if let Some(dependencies) = &mut self.dependencies {
                let slot = tag as usize;
                self.entry_of.resize(self.entry_of.len().max(slot + 1), 0);
                self.entry_of[slot] = self.position as u32;
                dependencies.look(self.position + 1);
            }
            self.position += 1;
            self.limits.spend(1);
            let extent = Extent::new(entry.start, entry.sectors.into());
            issues.push(Issue { tag, operation: entry.operation, extent, intended });
        }
    }
}

impl Workload for Replay {
    fn next_event(&self) -> Instant {
        let due = self.due();
        if self.tags.outstanding() < self.queue_depth && self.limits.allow(due) {
            due
        } else {
            Instant::NEVER
        }
    }

    fn advance(&mut self, now: Instant, issues: &mut Vec<Issue>) {
        self.issue(now, issues);
    }

    fn completed(&mut self, now: Instant, tag: u32, issues: &mut Vec<Issue>) {
        self.tags.give(tag);
        if let Some(dependencies) = &mut self.dependencies {
            dependencies.done(self.entry_of[tag as usize], now, self.position);
        }
        self.issue(now, issues);
    }

    fn is_over(&self) -> bool {
        self.tags.outstanding() == 0
            && (self.position == self.trace.entries().len() || !self.limits.allow(self.due()))
    }
}

#[cfg(test)]
mod tests;
