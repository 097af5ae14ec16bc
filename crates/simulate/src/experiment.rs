//! One case, from its drives to its report.

use std::path::Path;

use hemi_drives::any::AnyDrive;
use hemi_drives::drive::{Counters, Drive};
use hemi_drives::preset::PresetError;
use hemi_units::{Instant, SECTOR_BYTES};

use crate::described;
use crate::faults::{self, FaultError};
use crate::mirror::MirrorError;
use crate::report::{self, LegsInTime, Report, Summary};
use crate::run::{Run, Watched};
use crate::spec::{Case, SystemSpec};
use crate::stock::Stock;
use crate::system::System;
use hemi_workload::error::WorkloadError;
use hemi_workload::report::{IntervalReport, seconds};

/// The reason why a case cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// A leg cannot be created.
    #[error("system.legs: {0}")]
    Leg(#[from] PresetError),
    /// A fault does not fit its leg.
    #[error("system.faults: {0}")]
    Fault(#[from] FaultError),
    /// The volume cannot be created.
    #[error("system: {0}")]
    System(#[from] MirrorError),
    /// The workload cannot be built.
    #[error("{0}")]
    Workload(WorkloadError),
    /// A step of a session has no end, or did not reach it in time.
    #[error("{0}")]
    Step(String),
    /// The run was told to stop.
    #[error("stopped")]
    Stopped,
}

impl From<WorkloadError> for ExperimentError {
    fn from(error: WorkloadError) -> ExperimentError {
        ExperimentError::Workload(error.within("workload"))
    }
}

impl ExperimentError {
    /// Returns the path of the key in the spec that the error is about; empty if it is about
    /// none.
    pub(crate) fn key(&self) -> String {
        match self {
            ExperimentError::Leg(_) | ExperimentError::System(MirrorError::Legs(_)) => {
                "system.legs".to_owned()
            }
            ExperimentError::Fault(error) => error.key(),
            ExperimentError::System(_) => "system.volume".to_owned(),
            ExperimentError::Workload(error) => error.key().to_owned(),
            ExperimentError::Step(_) | ExperimentError::Stopped => String::new(),
        }
    }
}

/// Creates the legs of a system, in the state that the spec describes.
pub(crate) fn drives(
    system: &SystemSpec,
    folder: &Path,
    seed: u64,
    stock: &Stock,
) -> Result<Vec<AnyDrive>, ExperimentError> {
    let (scale, precondition) = (system.scale, system.precondition);
    let legs = system.legs.iter().enumerate();
    legs.map(|(leg, name)| {
        let seed = seed.wrapping_add(1 + leg as u64);
        let drive = stock.drive(name, folder, scale, precondition, seed)?;
        Ok(faults::lay(&system.faults, leg, drive, seed)?)
    })
    .collect()
}

/// Runs a case; paths in its spec are relative to `folder`. `progress` is called with the
/// virtual time at the end of each interval and returns false to stop.
///
/// # Errors
/// See [`ExperimentError`].
pub fn run(
    case: &Case,
    folder: &Path,
    seed: Option<u64>,
    stock: &Stock,
    progress: impl FnMut(Instant) -> bool,
) -> Result<Report, ExperimentError> {
    let spec = &case.spec;
    let seed = seed.unwrap_or(spec.seed);
    let legs = drives(&spec.system, folder, seed, stock)?;
    let before: Vec<Counters> = legs.iter().map(Drive::counters).collect();
    let volume = spec.system.volume.map_or(0, |size| size.0);
    let system = &spec.system;
    let mut served =
        System::new(system.policy, legs, volume, &system.engine, system.published, seed)?;
    let sectors = match volume {
        0 => served.sectors(),
        bytes => served.sectors().min(bytes / SECTOR_BYTES),
    };
    let mut workload = spec.workload.build(sectors, seed, folder)?;
    let mut run = Run::new(spec.run.interval.0);
    let mut stopped = false;
    let mut progress = progress;
    run.until(Instant(spec.run.limit.0), &mut served, &mut workload, |now| {
        stopped = !progress(now);
        !stopped
    });
    if stopped {
        return Err(ExperimentError::Stopped);
    }
    let count = if matches!(served, System::Single(_)) { 1 } else { before.len() };
    let after = served.leg_counters(count);
    let faulty = !system.faults.is_empty();
    let conditions = faulty.then(|| served.leg_conditions(count));
    let drives = described::legs(system, count, folder)?;
    let mut warnings = described::warnings(system, count, folder)?;
    warnings.extend(workload.lacking());
    let legs = report::legs(LegsInTime {
        drives: &drives,
        before: &before,
        after: &after,
        time: run.now().0,
        conditions: conditions.as_deref(),
    });
    let figures = run.figures();
    let interval = |interval| IntervalReport::of(interval, spec.run.interval.0);
    let mut intervals: Vec<IntervalReport> = figures.intervals.iter().map(interval).collect();
    let (exposure, upkeep) = (served.exposure(), served.upkeep());
    if let Some((last, length)) = figures.part_interval(run.now(), exposure, upkeep) {
        intervals.push(IntervalReport::of(&last, length));
    }
    let seen = intervals.iter().map(|interval| interval.exposure_bytes).max();
    Ok(Report {
        title: spec.title.clone(),
        choices: case.choices.clone(),
        seed,
        scale: system.scale,
        warnings,
        time: seconds(run.now().0),
        measured: seconds(figures.measured()),
        requests: run.requests(),
        failed: faulty.then(|| *run.failed()),
        reads: Summary::of(figures, &figures.reads),
        writes: Summary::of(figures, &figures.writes),
        flushes: Summary::of(figures, &figures.flushes),
        all: Summary::of(figures, &figures.all),
        legs,
        exposure_peak: served.exposure_peak().max(seen.unwrap_or(0)),
        extra: served.extra().into_iter().collect(),
        little: report::little(run.little()),
        intervals,
    })
}
