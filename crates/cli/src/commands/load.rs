//! `hemi load`: a workload on a real target, in real time.

mod table;

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use hemi_io::leg::nbd::CONNECTIONS_MAX;
use hemi_load::account::Progress;
use hemi_load::engine::{Ending, Stop};
use hemi_load::report::LoadReport;
use hemi_load::run::{self, Job, LoadError, QUEUE_DEPTH_CAP_DEFAULT};
use hemi_load::spec;
use hemi_load::target::{TargetError, TargetOptions, TargetSpec};
use hemi_units::Time;
use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::{Failure, Kind};

/// The time between two updates of the progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// Measure a file, a device or an NBD export under a workload.
///
/// Runs the workloads of hemi sim in real time, through io_uring: closed and open loops,
/// checkpoint bursts, phases, trace replays. Latency counts from the intended time of a request,
/// and so includes every wait. Every result reports the lateness of the engine itself. A load
/// whose lateness exceeds the bound reports no latency.
///
/// A load that writes refuses a target that is in use. It also refuses a target that is not
/// empty, unless --wipe names it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  hemi load mix.toml --target /dev/nvme0n1 --wipe /dev/nvme0n1 --json mix.json
  hemi load trace.toml --target nbd+unix:///?socket=/run/hemi/db.nbd --queue-depth-cap 8
  hemi load mix.toml --target null")]
pub(crate) struct LoadArgs {
    /// The load, a TOML file: title, seed and a [workload] as for hemi sim.
    #[arg(value_name = "SPEC")]
    spec: PathBuf,

    /// Target to measure: a path, nbd://HOST[:PORT]/[EXPORT], nbd+unix:///[EXPORT]?socket=PATH
    /// (nbds, nbds+unix through TLS), or null (or null:SIZE) for the engine by itself.
    #[arg(long, value_name = "TARGET")]
    target: String,

    /// Seed for all randomness, instead of the spec's.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Bypass the page cache (the default for files and devices).
    #[arg(long, conflicts_with = "buffered")]
    direct: bool,

    /// Go through the page cache.
    #[arg(long)]
    buffered: bool,

    /// Most requests in flight; further ones wait, and their wait is part of their latency.
    #[arg(long, value_name = "N", default_value_t = QUEUE_DEPTH_CAP_DEFAULT,
          value_parser = clap::value_parser!(u32).range(1..=65536))]
    queue_depth_cap: u32,

    /// Report no latency if the engine's lateness at the 99th percentile exceeds this.
    #[arg(long, value_name = "DURATION", default_value = "1ms")]
    lateness_bound: Time,

    /// Time before a request is due to poll the clock instead of sleeping. A longer time is more
    /// exact and costs processor time.
    #[arg(long, value_name = "DURATION", default_value = "200us")]
    spin: Time,

    /// Connections to an NBD export that lets them share its cache.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u8).range(1..=i64::from(CONNECTIONS_MAX)))]
    connections: u8,

    /// Overwrite the data on the target; PATH must repeat the target exactly.
    #[arg(long, value_name = "PATH")]
    wipe: Option<PathBuf>,

    /// Write every request to this Parquet file: intended, issued and completed time.
    #[arg(long, value_name = "OUT")]
    records: Option<PathBuf>,

    /// Write the result to this file as JSON; - for standard output.
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
}

pub(crate) fn run(arguments: &LoadArgs) -> Result<()> {
    let job = job(arguments)?;
    let stop = Arc::new(Stop::default());
    listen_for_signals(&stop).context("cannot listen for signals")?;
    let progress = Progress::default();
    let report = watched(&progress, || run::run(&job, &stop, &progress)).map_err(refused)?;
    super::trace::warn(&report.setting.warnings);
    write(arguments, &report)?;
    verdict(&report)
}

fn job(arguments: &LoadArgs) -> Result<Job> {
    let usage = |what: String| Failure::error(Kind::Usage, what, "hemi help load tells more.");
    let (spec, folder) = spec::load(&arguments.spec).map_err(|error| usage(error.to_string()))?;
    let parsed: TargetSpec =
        arguments.target.parse().map_err(|error| usage(format!("--target {error}")))?;
    Ok(Job {
        spec,
        folder,
        target: TargetOptions {
            name: arguments.target.clone(),
            spec: parsed,
            direct: !arguments.buffered,
            connections: arguments.connections,
            wipe: arguments.wipe.clone(),
        },
        seed: arguments.seed,
        queue_depth_cap: arguments.queue_depth_cap,
        lateness_bound: arguments.lateness_bound.0,
        spin: arguments.spin.0,
        records: arguments.records.clone(),
        command: std::env::args().collect(),
        version: env!("CARGO_PKG_VERSION"),
    })
}

/// Stops issuing at the first INT or TERM, and ends at once at the second.
fn listen_for_signals(stop: &Arc<Stop>) -> std::io::Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    let stop = Arc::clone(stop);
    std::thread::Builder::new()
        .name("hemi-signals".into())
        .spawn(move || signals.forever().for_each(|_| stop.ask()))
        .map(drop)
}

/// Shows the progress on a terminal while `work` runs.
fn watched<T>(progress: &Progress, work: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("a good template"));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let time = progress.time.load(Ordering::Relaxed) as f64 / 1e9;
                let ended = progress.ended.load(Ordering::Relaxed);
                bar.set_message(format!("{ended} requests in {time:.0} s"));
                bar.tick();
                std::thread::sleep(PROGRESS_INTERVAL);
            }
        });
        let result = work();
        over.store(true, Ordering::Relaxed);
        bar.finish_and_clear();
        result
    })
}

/// Chooses the exit code: protection of data differs from a failure, and from a wrong request.
fn refused(error: LoadError) -> anyhow::Error {
    let (kind, hint) = match &error {
        LoadError::Target(TargetError::InUse { .. } | TargetError::NotEmpty { .. }) => {
            (Kind::Refused, "")
        }
        LoadError::Target(
            TargetError::WipeWhat { .. }
            | TargetError::Missing(_)
            | TargetError::Empty(_)
            | TargetError::NotStorage { .. },
        ) => (Kind::Usage, ""),
        LoadError::Target(TargetError::Open(open)) if is_no_direct(open) => {
            (Kind::Failed, "Give --buffered to go through the page cache.")
        }
        LoadError::Workload { .. } | LoadError::Longest { .. } => {
            (Kind::Usage, "hemi help load tells more.")
        }
        _ => return error.into(),
    };
    Failure::error(kind, error.to_string(), hint)
}

fn is_no_direct(error: &hemi_io::leg::OpenError) -> bool {
    matches!(error, hemi_io::leg::OpenError::NoDirect { .. })
}

fn write(arguments: &LoadArgs, report: &LoadReport) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match &arguments.json {
        Some(path) if path.as_os_str() == "-" => {
            writeln!(out, "{}", serde_json::to_string_pretty(report)?)?;
        }
        Some(path) => {
            let text = serde_json::to_string_pretty(report)? + "\n";
            std::fs::write(path, text)
                .with_context(|| format!("cannot write {}", path.display()))?;
            write!(out, "{}", table::report(report))?;
        }
        None => write!(out, "{}", table::report(report))?,
    }
    out.flush().map_err(Into::into)
}

/// Fails if the result is not what was asked for, although it has been written.
fn verdict(report: &LoadReport) -> Result<()> {
    if let Some(refusal) = &report.refusal {
        let hint = "Give the load a quieter machine or more --spin; or, if so much is no matter \
                    here, a larger --lateness-bound.";
        return Err(Failure::error(Kind::Failed, format!("no latencies: {refusal}"), hint));
    }
    let what = match report.ended {
        Ending::Finished | Ending::Limit if report.unfinished == 0 => return Ok(()),
        Ending::Finished | Ending::Limit | Ending::Stopped => "it was stopped",
        Ending::TargetGone => "the target went away",
    };
    let (issued, left) = (report.requests, report.unfinished);
    let what = format!(
        "the result is partial: {what} after {issued} requests, of which {left} never ended"
    );
    Err(Failure::error(Kind::Failed, what, ""))
}
