//! Runs a load from its spec to its report.

use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::time::{SystemTime, UNIX_EPOCH};

use hemi_io::ring::{Ring, RingError};
use hemi_units::SECTOR_BYTES;
use hemi_workload::error::WorkloadError;
use hemi_workload::table::TableError;

use crate::account::{Account, Progress};
use crate::backend::Backend;
use crate::buffers::{Buffers, LONGEST_BYTES};
use crate::engine::{Engine, EngineOptions, Stop, process_time};
use crate::report::{LoadReport, Setting, TargetReport};
use crate::rows::RowsFile;
use crate::segments::segments;
use crate::spec::LoadSpec;
use crate::target::{Target, TargetError, TargetOptions};

/// The default bound of the lateness at its 99th percentile, in nanoseconds.
pub const LATENESS_BOUND_DEFAULT: u64 = 1_000_000;
/// The default time for which the engine spins before a request, in nanoseconds: the time to wake a
/// sleeper on a busy machine.
pub const SPIN_DEFAULT: u64 = 200_000;

/// The default for the most requests in flight: more than any device queues.
pub const QUEUE_DEPTH_CAP_DEFAULT: u32 = 4096;

/// A load to be run.
#[derive(Clone, Debug)]
pub struct Job {
    /// The spec.
    pub spec: LoadSpec,
    /// The directory that paths in the spec are relative to.
    pub folder: PathBuf,
    /// The target.
    pub target: TargetOptions,
    /// The seed that replaces the spec's, if any.
    pub seed: Option<u64>,
    /// The most requests in flight, by default [`QUEUE_DEPTH_CAP_DEFAULT`].
    pub queue_depth_cap: u32,
    /// The bound of the lateness in nanoseconds, by default [`LATENESS_BOUND_DEFAULT`].
    pub lateness_bound: u64,
    /// The time to spin in nanoseconds, by default [`SPIN_DEFAULT`].
    pub spin: u64,
    /// The file that every request is written to, if any.
    pub records: Option<PathBuf>,
    /// The command line, for the report.
    pub command: Vec<String>,
    /// The version of the program, for the report.
    pub version: &'static str,
}

/// The reason why a load was not run, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The target cannot be used.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The workload cannot be built.
    #[error("{place}: {error}")]
    Workload {
        /// The file, line and column.
        place: String,
        /// The error, with its key.
        error: WorkloadError,
    },
    /// The longest request is too long.
    #[error(
        "{place}: workload: its longest request has {bytes} bytes; a load issues up to \
         {LONGEST_BYTES}: write smaller requests"
    )]
    Longest {
        /// The file, line and column of the workload.
        place: String,
        /// Length of the longest request in bytes.
        bytes: u64,
    },
    /// The ring cannot be created.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// Memory, a thread or the running ring failed.
    #[error("the load engine failed: {0}")]
    Engine(#[from] std::io::Error),
    /// The requests' file cannot be written.
    #[error("the records could not be written: {0}")]
    Rows(#[from] TableError),
}

/// Runs a load on this thread, and its account on another.
///
/// # Errors
/// Fails as [`LoadError`] says. Only with [`LoadError::Engine`] and [`LoadError::Rows`] may the
/// target have been written to.
pub fn run(job: &Job, stop: &Stop, progress: &Progress) -> Result<LoadReport, LoadError> {
    let spec = &job.spec;
    let seed = job.seed.unwrap_or(spec.seed);
    let target = Target::look(job.target.clone())?;
    let sectors = target.size() / SECTOR_BYTES;
    let mut workload = spec.workload.build(sectors, seed, &job.folder).map_err(|error| {
        let error = error.within("workload");
        LoadError::Workload { place: spec.places.of(error.key()), error }
    })?;
    let warnings = workload.lacking();
    workload.cap(job.queue_depth_cap);
    let demand = workload.demand();
    // Rounding outwards can add a block at either end.
    let longest = demand.longest_sectors * SECTOR_BYTES + 2 * u64::from(target.block());
    if longest > LONGEST_BYTES {
        let bytes = demand.longest_sectors * SECTOR_BYTES;
        return Err(LoadError::Longest { place: spec.places.of("workload"), bytes });
    }
    let target = if demand.writes { target.for_writing()? } else { target };
    let file = job.records.as_deref().map(RowsFile::create).transpose()?;

    let options = EngineOptions {
        queue_depth_cap: job.queue_depth_cap,
        spin: job.spin,
        limit: spec.run.limit.0,
        block: target.block(),
    };
    let shown = TargetReport::of(&target);
    let mut backend = Backend::new(Ring::new()?, target.into_opened())?;
    let buffers = Buffers::new(backend.ring(), longest, demand.writes, seed)?;
    let interval = spec.run.interval.0;
    let (filler, drain) = segments();
    let (began, begun) = sync_channel(1);
    let before = process_time();
    let (totals, account) = std::thread::scope(|scope| {
        let reader = std::thread::Builder::new().name("hemi-account".into());
        let reader = reader.spawn_scoped(scope, move || {
            let mut account = Account::new(interval, file);
            let _ = began.send(());
            let taken = drain.run(|rows| account.take(rows, progress));
            if taken.is_err() {
                stop.ask();
            }
            taken.and_then(|()| account.finish()).map(|()| account)
        })?;
        // The account allocates its memory before the first request.
        let _ = begun.recv();
        let totals = Engine::new(options, workload, backend, buffers, filler).run(stop)?;
        let account = reader
            .join()
            .map_err(|_| std::io::Error::other("the thread of the account panicked"))??;
        Ok::<_, LoadError>((totals, account))
    })?;
    let spent = process_time() - before;
    let setting = Setting { warnings, ..setting(job, seed, shown, totals.began) };
    Ok(LoadReport::new(setting, &totals, &account, job.lateness_bound, interval, spent))
}

fn setting(job: &Job, seed: u64, target: TargetReport, began: SystemTime) -> Setting {
    let seconds = |nanoseconds| hemi_workload::report::seconds(nanoseconds);
    let kernel = std::fs::read_to_string(Path::new("/proc/sys/kernel/osrelease"));
    let began = began.duration_since(UNIX_EPOCH).unwrap_or_default();
    Setting {
        title: job.spec.title.clone(),
        seed,
        command: job.command.clone(),
        version: job.version,
        kernel: kernel.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned()),
        began: began.as_secs_f64(),
        target,
        warnings: Vec::new(),
        queue_depth_cap: job.queue_depth_cap,
        spin: seconds(job.spin),
        lateness_bound: seconds(job.lateness_bound),
    }
}
