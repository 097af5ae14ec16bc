//! `hemi sim run`: the cases of a spec, on all cores.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context as _, Result};
use clap::Args;
use hemi_model::experiment;
use hemi_model::report::{Report, seconds};
use hemi_model::spec::{self, Case};
use hemi_model::stock::Stock;
use hemi_model::tables;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::table;
use crate::failure::{Failure, Kind};

/// Run the experiment in a file.
///
/// A spec says what serves (one drive, or legs under a policy), what is asked of it, and what
/// is swept: every combination of the values in its [sweep] is a case. Cases are independent
/// and run on all cores; with --case one of them is run by itself, so that any scheduler can
/// spread them over machines.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// The experiment, a TOML file.
    #[arg(value_name = "SPEC")]
    spec: PathBuf,

    /// All chance comes from this instead of the spec's seed.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Run only this case, numbered from 0.
    #[arg(long, value_name = "N")]
    case: Option<usize>,

    /// Cases run at a time; as many as there are cores if left out.
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,

    /// Print everything measured as JSON, a list of cases.
    #[arg(long)]
    json: bool,

    /// Also write cases.parquet, intervals.parquet and latencies.parquet into this folder.
    #[arg(long, value_name = "OUT")]
    parquet: Option<PathBuf>,
}

pub(super) fn run(arguments: &RunArgs) -> Result<()> {
    let (mut cases, folder) =
        spec::load(&arguments.spec).map_err(|error| usage(error.to_string()))?;
    if let Some(number) = arguments.case {
        let count = cases.len();
        if number >= count {
            return Err(Failure::error(
                Kind::Usage,
                format!("--case {number}: the spec has {count} cases"),
                format!("Give a number from 0 to {}.", count - 1),
            ));
        }
        cases = vec![cases.swap_remove(number)];
    }
    let reports = run_all(&cases, &folder, arguments.seed, arguments.jobs)?;
    if let Some(out) = &arguments.parquet {
        tables::write(out, &reports).context("cannot write the tables")?;
    }
    let mut out = std::io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&reports)?)?;
    } else {
        write!(out, "{}", table::cases(&reports))?;
    }
    out.flush().map_err(Into::into)
}

/// Runs cases side by side; reports in the order of the cases.
pub(super) fn run_all(
    cases: &[Case],
    folder: &Path,
    seed: Option<u64>,
    jobs: Option<usize>,
) -> Result<Vec<Report>> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let jobs = jobs.unwrap_or(cores).clamp(1, cases.len().max(1));
    let bars = Bars::new(cases.len());
    let stock = Stock::default();
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let results: Vec<Mutex<Option<Result<Report, experiment::ExperimentError>>>> =
        cases.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(number) else { return };
                    let bar = bars.case(case);
                    let result = experiment::run(case, folder, seed, &stock, |now| {
                        bar.set_message(format!("{:.0} s", seconds(now.0)));
                        bar.tick();
                        !stop.load(Ordering::Relaxed)
                    });
                    bar.finish_and_clear();
                    bars.all.inc(1);
                    if result.is_err() {
                        stop.store(true, Ordering::Relaxed);
                    }
                    let mut slot = results[number].lock().expect("nobody panics while it is held");
                    *slot = Some(result);
                }
            });
        }
    });
    bars.all.finish_and_clear();
    let mut reports = Vec::with_capacity(cases.len());
    let mut stopped = false;
    for result in results {
        match result.into_inner().expect("nobody panicked while it was held") {
            Some(Ok(report)) => reports.push(report),
            // Another case failed; that one's error is the one to show.
            Some(Err(experiment::ExperimentError::Stopped)) | None => stopped = true,
            Some(Err(error)) => return Err(usage(error.to_string())),
        }
    }
    debug_assert!(!stopped, "only an error stops the others");
    Ok(reports)
}

fn usage(what: String) -> anyhow::Error {
    Failure::error(
        Kind::Usage,
        what,
        "hemi sim presets lists drives; hemi help sim run tells more.",
    )
}

/// What a person who waits sees; nothing where nobody looks.
struct Bars {
    many: MultiProgress,
    all: ProgressBar,
}

impl Bars {
    fn new(cases: usize) -> Bars {
        let many = MultiProgress::new();
        if !std::io::stderr().is_terminal() {
            many.set_draw_target(ProgressDrawTarget::hidden());
        }
        let all = many.add(ProgressBar::new(cases as u64));
        let style = ProgressStyle::with_template("{bar:30} {pos} of {len} cases, {elapsed}");
        all.set_style(style.expect("a good template"));
        Bars { many, all }
    }

    fn case(&self, case: &Case) -> ProgressBar {
        let bar = self.many.add(ProgressBar::new_spinner());
        let style = ProgressStyle::with_template("{spinner} {prefix} at {msg}");
        bar.set_style(style.expect("a good template"));
        let choices = case.choices.iter().map(|(key, value)| format!("{key} = {value}"));
        bar.set_prefix(choices.collect::<Vec<_>>().join(", "));
        bar
    }
}
