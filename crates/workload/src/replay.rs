//! Replay of a trace, at its own times or as fast as the volume can.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hemi_units::{Extent, Instant, Operation, Time};
use serde::Deserialize;

use super::dependencies::Dependencies;
use super::error::{WorkloadError, check_count};
use super::limit::{self, Limits, Quota};
use super::tags::{MOST_OUTSTANDING, Tags};
use super::traces::TraceError;
use super::traces::format::{Event, FormatSpec, TimeUnit};
use super::traces::load::{Beyond, Trace};
use super::{Demand, Issue, Workload};

/// A `replay` workload.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplaySpec {
    /// The trace's file; relative to the spec's directory.
    pub trace: PathBuf,
    /// How it is written.
    pub format: FormatSpec,
    /// What the times of a `disksim` trace count; needed there and nowhere else.
    #[serde(default)]
    pub time_unit: Option<TimeUnit>,
    /// Which events of a `blkparse` trace are requests (`Q` without one); nowhere else.
    #[serde(default)]
    pub event: Option<Event>,
    /// The volume (disk, device, ASU, file) of the trace to replay, as the trace calls it;
    /// `"*"` takes all of them, laid over one another. Needed where the trace has several.
    #[serde(default)]
    pub volume: Option<String>,
    /// What becomes of requests beyond the end of the volume.
    #[serde(default)]
    pub beyond: Beyond,
    /// When requests are issued.
    #[serde(default)]
    pub pace: Pace,
    /// How many times as fast as recorded, for the timed pace.
    #[serde(default)]
    pub speed: Option<f64>,
    /// How many requests may be outstanding; those beyond wait in the client. Needed for the
    /// fastest pace.
    #[serde(default)]
    pub queue_depth: Option<u32>,
    /// For how long requests are issued; without it, to the trace's end.
    #[serde(default)]
    pub duration: Option<Time>,
    /// How many requests are issued at most.
    #[serde(default)]
    pub requests: Option<u64>,
}

/// When the requests of a trace are issued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// As recorded. Latency counts from the recorded time, whatever waited since.
    #[default]
    Timed,
    /// The next as soon as the queue depth lets it. Latency counts from then.
    Fastest,
    /// When everything is done that was done before it came in the recording, and as long
    /// after that as it came then: a slower volume slows the trace as it would have slowed
    /// who made it. Latency counts from then. For traces that say how long requests took.
    Dependent,
}

/// A replay under way.
#[derive(Clone, Debug)]
pub struct Replay {
    trace: Arc<Trace>,
    position: usize,
    pace: Pace,
    speed: f64,
    begin: Instant,
    /// Until when it has issued what it might.
    latest: Instant,
    queue_depth: u32,
    limits: Limits,
    tags: Tags,
    dependencies: Option<Dependencies>,
    /// By tag, which entry of the trace it is.
    entry_of: Vec<u32>,
}

impl ReplaySpec {
    /// Refuses what does not go together.
    ///
    /// # Errors
    /// The first such thing, by key.
    pub fn check(&self) -> Result<(), WorkloadError> {
        limit::check(self.duration, self.requests)?;
        self.format.check(self.time_unit, self.event)?;
        if let Some(depth) = self.queue_depth {
            check_count("queue_depth", depth.into(), MOST_OUTSTANDING.into())?;
        } else if self.pace == Pace::Fastest {
            let right = "write how many requests are kept under way, as in `queue_depth = 8`";
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

    /// Reads the trace and makes its replay on a volume of so many sectors, from time zero.
    ///
    /// # Errors
    /// What does not go together, and what is wrong with the trace.
    pub fn build(
        &self,
        volume_sectors: u64,
        base_directory: &Path,
    ) -> Result<Replay, WorkloadError> {
        self.check()?;
        let path = base_directory.join(&self.trace);
        let format = self.format.with(self.time_unit, self.event)?;
        let mut trace = Trace::read(&path, format, self.volume.as_deref())?;
        trace.fit(volume_sectors, self.beyond)?;
        if self.pace == Pace::Dependent && trace.latencies().is_empty() {
            return Err(TraceError::NoLatencies { file: trace.file().to_owned() }.into());
        }
        Ok(Replay::new(Arc::new(trace), self))
    }
}

impl Replay {
    /// The replay of a trace that fits the volume.
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

    /// Begins at `at`. Nothing may have been issued yet.
    pub fn begin(&mut self, at: Instant) {
        self.limits.begin(at);
        self.begin = at;
        self.latest = at;
        if let Some(dependencies) = &mut self.dependencies {
            dependencies.begin(at);
        }
    }

    /// See [`super::any::AnyWorkload::cap`].
    pub(super) fn cap(&mut self, under_way: u32) {
        if self.pace != Pace::Fastest {
            self.queue_depth = self.queue_depth.min(under_way);
        }
    }

    /// What the trace asks for.
    pub(super) fn demand(&self) -> Demand {
        self.trace.entries().iter().fold(Demand::default(), |demand, entry| {
            let writes = matches!(entry.operation, Operation::Write { .. } | Operation::Trim);
            demand.and(Demand { writes, longest_sectors: entry.sectors.into() })
        })
    }

    /// From now on this much.
    pub(super) fn grant(&mut self, quota: Quota) {
        self.limits.grant(quota);
    }

    /// The trace.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// When the next request may be issued, as far as time goes; in the past while it waits.
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
