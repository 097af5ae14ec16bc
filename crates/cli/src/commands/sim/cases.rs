//! The cases of specs, on all cores.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use hemi_simulate::experiment::{self, ExperimentError};
use hemi_simulate::parallel;
use hemi_simulate::report::Report;
use hemi_simulate::spec::Case;
use hemi_workload::report::seconds;

use super::progress::Bars;
use super::snapshots::SnapshotArgs;
use crate::failure::{Failure, Kind};

/// Runs cases of a spec in parallel, and returns the reports in the order of the cases.
/// Errors name the place in the spec's file.
pub(super) fn run_all(
    cases: &[Case],
    folder: &Path,
    seed: Option<u64>,
    jobs: Option<usize>,
    snapshots: &SnapshotArgs,
) -> Result<Vec<Report>> {
    let bars = Bars::new(cases.len(), "cases");
    let stock = snapshots.stock(&bars)?;
    let stop = AtomicBool::new(false);
    let results = parallel::each(cases, jobs, |case| {
        if stop.load(Ordering::Relaxed) {
            return Err(ExperimentError::Stopped);
        }
        let bar = bars.one(name(case));
        let result = experiment::run(case, folder, seed, &stock, |now| {
            bar.set_message(format!("at {:.0} s", seconds(now.0)));
            bar.tick();
            !stop.load(Ordering::Relaxed)
        });
        bars.end(&bar);
        if result.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        result
    });
    bars.clear();
    let mut reports = Vec::with_capacity(cases.len());
    let mut stopped = false;
    for (case, result) in cases.iter().zip(results) {
        match result {
            Ok(report) => reports.push(report),
            // Another case failed, whose error is the one to show.
            Err(ExperimentError::Stopped) => stopped = true,
            Err(error) => return Err(usage(format!("{}: {error}", case.place(&error)))),
        }
    }
    debug_assert!(!stopped, "only an error stops the others");
    let warnings = reports.iter().flat_map(|report| &report.warnings);
    warn(warnings.map(String::as_str));
    Ok(reports)
}

/// Prints each warning once on standard error.
pub(super) fn warn<'w>(warnings: impl Iterator<Item = &'w str>) {
    let mut said: Vec<&str> = Vec::new();
    for warning in warnings {
        if !said.contains(&warning) {
            eprintln!("warning: {warning}");
            said.push(warning);
        }
    }
}

fn name(case: &Case) -> String {
    let choices = case.choices.iter().map(|(key, value)| format!("{key} = {value}"));
    choices.collect::<Vec<_>>().join(", ")
}

/// Returns the failure for an invalid spec, or for something invalid that it names.
pub(super) fn usage(what: String) -> anyhow::Error {
    let way_out = way_out(&what, "run");
    Failure::error(Kind::Usage, what, way_out)
}

/// Returns the hint that follows a mistake in a spec of `hemi sim COMMAND`.
pub(super) fn way_out(what: &str, command: &str) -> String {
    if what.contains("no preset is named") {
        "hemi sim presets lists the drives.".to_owned()
    } else if what.contains("workload") || what.contains("access") {
        format!("docs/commands/sim.md has every form of a workload; see hemi help sim {command}.")
    } else {
        format!("hemi help sim {command} tells more.")
    }
}
