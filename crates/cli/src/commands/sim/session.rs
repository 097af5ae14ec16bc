//! `hemi sim session`: a system that stays as it is while steps come in, one after another.

use std::fs;
use std::io::{BufRead as _, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use hemi_model::session::{Session, SessionSpec, Step};
use serde::Serialize;

use crate::failure::{Failure, Kind};

/// Take steps from standard input, and keep the system as each leaves it.
///
/// The file is a spec without a workload and without a sweep. Each line of standard input is
/// a step in JSON; for each, a line of JSON with all that was measured is printed, and so is
/// one that says what there is before the first. Whoever drives it decides after each step
/// what comes next: rounds until they agree, say. It ends with its input.
#[derive(Debug, Args)]
pub(super) struct SessionArgs {
    /// The system, a TOML file.
    #[arg(value_name = "SPEC")]
    spec: PathBuf,

    /// All chance comes from this instead of the spec's seed.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

pub(super) fn run(arguments: &SessionArgs) -> Result<()> {
    let shown = arguments.spec.display().to_string();
    let text =
        fs::read_to_string(&arguments.spec).map_err(|error| usage(format!("{shown}: {error}")))?;
    let spec = SessionSpec::parse(&shown, &text).map_err(|error| usage(error.to_string()))?;
    let folder = arguments.spec.parent().unwrap_or(Path::new(""));
    let mut session = Session::open(&spec, folder, arguments.seed)
        .map_err(|error| usage(format!("{shown}: {error}")))?;
    let mut out = std::io::stdout().lock();
    say(&mut out, &session.opened())?;
    for (number, line) in (1..).zip(std::io::stdin().lock().lines()) {
        let line = line.context("cannot read standard input")?;
        if line.trim().is_empty() {
            continue;
        }
        let step: Step = serde_json::from_str(&line)
            .map_err(|error| usage(format!("standard input, line {number}: {error}")))?;
        let report = session.step(&step, folder);
        let report =
            report.map_err(|error| usage(format!("standard input, line {number}: {error}")))?;
        say(&mut out, &report)?;
    }
    Ok(())
}

/// One line, at once: somebody waits for it.
fn say(out: &mut impl Write, what: &impl Serialize) -> Result<()> {
    writeln!(out, "{}", serde_json::to_string(what)?)?;
    out.flush().map_err(Into::into)
}

fn usage(what: String) -> anyhow::Error {
    let way_out = super::cases::way_out(&what, "session");
    Failure::error(Kind::Usage, what, way_out)
}
