//! Sessions: a system keeps its state from step to step, as a drive on a bench does.
//!
//! An [`experiment`](crate::experiment) is fixed by its spec. In a session the next step may
//! depend on earlier results: a test method runs rounds until they agree, and then measures the
//! drive in the state these rounds left it in.

use std::path::Path;

use hemi_drives::drive::{Counters, Drive, Failed};
use hemi_text::Places;
use hemi_units::{Instant, SECOND, SECTOR_BYTES, Time};
use serde::{Deserialize, Serialize};

use crate::described::{self, Described};
use crate::experiment::{self, ExperimentError};
use crate::report::{self, LegReport, LegsInTime, Summary};
use crate::run::{Run, Watched as _};
use crate::spec::{self, SpecError, SystemSpec};
use crate::stock::Stock;
use crate::system::{PolicyName, System};
use hemi_workload::figures::{Interval, Moments};
use hemi_workload::report::{IntervalReport, seconds};
use hemi_workload::spec::WorkloadSpec;
use hemi_workload::{Issue, RunSpec, Workload};

/// The file of a session: a spec without a workload.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionSpec {
    /// Title of the session.
    pub title: String,
    /// Seed of all randomness, unless a step has its own.
    #[serde(default)]
    pub seed: u64,
    /// System that serves the requests.
    pub system: SystemSpec,
    /// Length of the intervals, and the longest virtual time of one step.
    #[serde(default)]
    pub run: RunSpec,
    /// The places of its keys.
    #[serde(skip)]
    places: Places,
}

impl SessionSpec {
    /// Reads a file's text; errors call it `file`.
    ///
    /// # Errors
    /// See [`SpecError`].
    pub fn parse(file: &str, text: &str) -> Result<SessionSpec, SpecError> {
        let mut spec: SessionSpec = toml::from_str(text).map_err(|error: toml::de::Error| {
            SpecError::Wrong { file: file.to_owned(), problem: error.to_string() }
        })?;
        spec.places = Places::new(file, text);
        spec::check_system(&spec.system, &spec.run, |key| spec.places.of(key))?;
        Ok(spec)
    }

    /// Returns the place in the file that an error of [`Session::open`] is about, as in
    /// `pair.toml:7:1`.
    pub fn place(&self, error: &ExperimentError) -> String {
        self.places.of(&error.key())
    }
}

/// One step: either a workload or an idle time.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Name of the step, returned with its results.
    pub name: String,
    /// Seed of the step; derived from the session's seed and the step's number if absent.
    #[serde(default)]
    pub seed: Option<u64>,
    /// Time without requests. The drive may use it.
    #[serde(default)]
    pub idle: Option<Time>,
    /// Workload, which must have an end.
    #[serde(default)]
    pub workload: Option<WorkloadSpec>,
}

/// The description of the system, given before the first step.
#[derive(Clone, Debug, Serialize)]
pub struct Opened {
    /// The spec's title.
    pub title: String,
    /// The session's seed.
    pub seed: u64,
    /// Size of the volume in bytes.
    pub bytes: u64,
    /// See [`report::Report::scale`].
    pub scale: u64,
    /// Presets of the legs, each with the divisor of its flash capacity.
    pub legs: Vec<(String, u64)>,
    /// For each leg, the classes of requests that its model is not validated for.
    pub not_validated: Vec<Vec<&'static str>>,
    /// See [`report::Report::warnings`].
    pub warnings: Vec<String>,
}

/// The results of a step. Times are in seconds on the session's clock, sizes in bytes.
#[derive(Clone, Debug, Serialize)]
pub struct StepReport {
    /// The step's name.
    pub name: String,
    /// Seed of the step.
    pub seed: u64,
    /// Start time.
    pub start: f64,
    /// Duration until the last request was done.
    pub time: f64,
    /// Time from the first measured request to the end of the last.
    pub measured: f64,
    /// Clauses that say what the traces that it replayed are known to lack.
    pub warnings: Vec<String>,
    /// Requests issued.
    pub requests: u64,
    /// Those of them that failed; absent if the spec has no faults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<Failed>,
    /// Reads.
    pub reads: Summary,
    /// Writes.
    pub writes: Summary,
    /// Flushes.
    pub flushes: Summary,
    /// All requests.
    pub all: Summary,
    /// Report of each leg for this step.
    pub legs: Vec<LegReport>,
    /// Highest exposure at the end of an interval.
    pub exposure_peak: u64,
    /// Little's law over the step.
    pub little: (f64, f64),
    /// The step, interval by interval; the last interval may be shorter than the others.
    pub intervals: Vec<StepInterval>,
}

/// One interval of a step.
#[derive(Clone, Debug, Serialize)]
pub struct StepInterval {
    /// All requests.
    #[serde(flatten)]
    pub all: IntervalReport,
    /// Length of the interval.
    pub length: f64,
    /// Reads.
    pub reads: OperationInterval,
    /// Writes.
    pub writes: OperationInterval,
    /// Figures of each leg.
    pub legs: Vec<LegInterval>,
}

/// One kind of request in one interval.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct OperationInterval {
    /// Number of requests that ended.
    pub count: u64,
    /// Bytes of those requests.
    pub bytes: u64,
    /// Mean latency.
    pub mean: f64,
    /// Standard deviation of latencies.
    pub standard_deviation: f64,
    /// Longest latency.
    pub max: f64,
}

/// One leg in one interval.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LegInterval {
    /// Requests the leg completed.
    pub requests: u64,
    /// Bytes read from the leg.
    pub read_bytes: u64,
    /// Bytes written to the leg.
    pub written_bytes: u64,
    /// Share of the time the leg had work.
    pub busy: f64,
    /// Flash pages programmed for each page the host wrote.
    pub write_amplification: f64,
    /// Energy in joules.
    pub energy: f64,
}

/// An open session.
pub struct Session {
    system: System,
    legs: Vec<Described>,
    warnings: Vec<String>,
    /// True if the spec has faults.
    faulty: bool,
    title: String,
    scale: u64,
    seed: u64,
    sectors: u64,
    run: RunSpec,
    steps: u64,
    now: Instant,
}

impl Session {
    /// Opens the system of a spec at time zero; paths in the spec are relative to `folder`.
    ///
    /// # Errors
    /// See [`ExperimentError`].
    pub fn open(
        spec: &SessionSpec,
        folder: &Path,
        seed: Option<u64>,
    ) -> Result<Session, ExperimentError> {
        let SessionSpec { system, run, .. } = spec;
        let seed = seed.unwrap_or(spec.seed);
        let legs = experiment::drives(system, folder, seed, &Stock::default())?;
        let count = if system.policy == PolicyName::Single { 1 } else { legs.len() };
        let volume = system.volume.map_or(0, |size| size.0);
        let served =
            System::new(system.policy, legs, volume, &system.engine, system.published, seed)?;
        let sectors = match volume {
            0 => served.sectors(),
            bytes => served.sectors().min(bytes / SECTOR_BYTES),
        };
        Ok(Session {
            system: served,
            legs: described::legs(system, count, folder)?,
            warnings: described::warnings(system, count, folder)?,
            faulty: !system.faults.is_empty(),
            title: spec.title.clone(),
            scale: system.scale,
            seed,
            sectors,
            run: *run,
            steps: 0,
            now: Instant(0),
        })
    }

    /// Returns the description of the system.
    pub fn opened(&self) -> Opened {
        Opened {
            title: self.title.clone(),
            seed: self.seed,
            bytes: self.sectors * SECTOR_BYTES,
            scale: self.scale,
            legs: self.legs.iter().map(|leg| (leg.preset.clone(), leg.flash_scale)).collect(),
            not_validated: self.legs.iter().map(|leg| leg.not_validated.clone()).collect(),
            warnings: self.warnings.clone(),
        }
    }

    /// Runs the next step; paths in it are relative to `folder`. The system keeps the state the
    /// step leaves, and no request of the step stays in flight.
    ///
    /// # Errors
    /// See [`ExperimentError`]. A step refused before it began changes nothing.
    pub fn step(&mut self, step: &Step, folder: &Path) -> Result<StepReport, ExperimentError> {
        let seed = step.seed.unwrap_or_else(|| self.seed.wrapping_add(self.steps << 32));
        let refuse = |what: &str| Err(ExperimentError::Step(format!("{}: {what}", step.name)));
        let (mut workload, end) = match (&step.workload, step.idle) {
            (Some(spec), None) if !spec.ends() => {
                return refuse(
                    "the workload has no end: give it a duration or a number of requests",
                );
            }
            (Some(spec), None) => {
                let mut workload = spec.build(self.sectors, seed, folder)?;
                workload.begin(self.now);
                (Asks::Workload(Box::new(workload)), self.now + self.run.limit.0)
            }
            (None, Some(idle)) => (Asks::Nothing, self.now + idle.0),
            _ => return refuse("a step has either `workload` or `idle`"),
        };
        self.steps += 1;
        let warnings = match &workload {
            Asks::Workload(workload) => workload.lacking(),
            Asks::Nothing => Vec::new(),
        };
        let mut run = Run::starting(self.now, self.run.interval.0, self.system.upkeep());
        let before = self.system.leg_counters(self.legs.len());
        let intervals = self.intervals(&mut run, &mut workload, end);
        if run.under_way() > 0 {
            let limit = seconds(self.run.limit.0);
            return refuse(&format!("not at its end after run.limit, {limit} s of virtual time"));
        }
        let time = run.now().since(self.now);
        let after = self.system.leg_counters(self.legs.len());
        let conditions = self.faulty.then(|| self.system.leg_conditions(self.legs.len()));
        let start = std::mem::replace(&mut self.now, run.now());
        let figures = run.figures();
        let exposed = intervals.iter().map(|interval| interval.all.exposure_bytes).max();
        Ok(StepReport {
            name: step.name.clone(),
            seed,
            start: seconds(start.0),
            time: seconds(time),
            measured: seconds(figures.measured()),
            warnings,
            requests: run.requests(),
            failed: self.faulty.then(|| *run.failed()),
            reads: Summary::of(figures, &figures.reads),
            writes: Summary::of(figures, &figures.writes),
            flushes: Summary::of(figures, &figures.flushes),
            all: Summary::of(figures, &figures.all),
            legs: report::legs(LegsInTime {
                drives: &self.legs,
                before: &before,
                after: &after,
                time,
                conditions: conditions.as_deref(),
            }),
            exposure_peak: exposed.unwrap_or(0),
            little: report::little(run.little()),
            intervals,
        })
    }

    /// Runs a step in intervals and records the counters of the legs for each.
    fn intervals(&mut self, run: &mut Run, asks: &mut Asks, end: Instant) -> Vec<StepInterval> {
        let mut intervals = Vec::new();
        let mut before = self.system.leg_counters(self.legs.len());
        loop {
            let from = run.now();
            let until = (from + self.run.interval.0).min(end);
            run.until(until, &mut self.system, asks, |_| true);
            let length = run.now().since(from);
            let over =
                run.now() < until || until == end || (asks.is_over() && run.under_way() == 0);
            let counters = self.system.leg_counters(self.legs.len());
            let legs = counters.iter().zip(&before);
            let legs = legs.map(|(now, before)| leg_interval(&now.since(before), length)).collect();
            before = counters;
            // The interval that `until` closed, or left open because the step ended within it.
            let exposure = self.system.exposure();
            let interval = run.figures().interval_at(from, exposure, self.system.upkeep());
            if length > 0 {
                intervals.push(step_interval(&interval, length, legs));
            }
            if over {
                return intervals;
            }
        }
    }
}

fn step_interval(interval: &Interval, length: u64, legs: Vec<LegInterval>) -> StepInterval {
    StepInterval {
        all: IntervalReport::of(interval, length),
        length: seconds(length),
        reads: operation(&interval.reads, interval.read_bytes),
        writes: operation(&interval.writes, interval.bytes - interval.read_bytes),
        legs,
    }
}

fn operation(moments: &Moments, bytes: u64) -> OperationInterval {
    OperationInterval {
        count: moments.count,
        bytes,
        mean: moments.mean(),
        standard_deviation: moments.standard_deviation(),
        max: moments.max as f64 / SECOND as f64,
    }
}

fn leg_interval(counters: &Counters, length: u64) -> LegInterval {
    LegInterval {
        requests: counters.reads + counters.writes + counters.flushes,
        read_bytes: counters.read_bytes,
        written_bytes: counters.written_bytes,
        busy: counters.busy as f64 / length.max(1) as f64,
        write_amplification: counters.write_amplification(),
        energy: counters.energy,
    }
}

/// The requests of a step.
enum Asks {
    Workload(Box<hemi_workload::any::AnyWorkload>),
    Nothing,
}

impl Workload for Asks {
    fn next_event(&self) -> Instant {
        match self {
            Asks::Workload(workload) => workload.next_event(),
            Asks::Nothing => Instant::NEVER,
        }
    }

    fn advance(&mut self, now: Instant, issues: &mut Vec<Issue>) {
        if let Asks::Workload(workload) = self {
            workload.advance(now, issues);
        }
    }

    fn completed(&mut self, now: Instant, tag: u32, issues: &mut Vec<Issue>) {
        if let Asks::Workload(workload) = self {
            workload.completed(now, tag, issues);
        }
    }

    fn is_over(&self) -> bool {
        match self {
            Asks::Workload(workload) => workload.is_over(),
            // An idle step ends by the clock.
            Asks::Nothing => false,
        }
    }

    fn measured(&self, tag: u32) -> bool {
        match self {
            Asks::Workload(workload) => workload.measured(tag),
            Asks::Nothing => false,
        }
    }
}
