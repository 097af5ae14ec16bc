//! `hemi sim session`: keeps a system's state while steps come in, one after another.

use std::io::{BufRead as _, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use hemi_simulate::session::{Session, SessionSpec, Step};
use serde::Serialize;

use crate::failure::{Failure, Kind};

/// Run steps from standard input, and keep the system's state between them.
///
/// The file is a spec without a workload and without a sweep. Each line of standard input is a
/// step in JSON. The first line of output describes the system in JSON. Then each step prints
/// one line of JSON with its measurements, so that the caller can choose the next step by them,
/// for example to repeat rounds until they agree. The session ends with its input.
#[derive(Debug, Args)]
pub(super) struct SessionArgs {
    /// The system, a TOML file.
    #[arg(value_name = "SPEC")]
    spec: PathBuf,

    /// Seed for all randomness, instead of the spec's.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

pub(super) fn run(arguments: &SessionArgs) -> Result<()> {
    let shown = arguments.spec.display().to_string();
    let text =
        hemi_text::read(&arguments.spec).map_err(|error| usage(format!("{shown}: {error}")))?;
    let spec = SessionSpec::parse(&shown, &text).map_err(|error| usage(error.to_string()))?;
    let folder = arguments.spec.parent().unwrap_or(Path::new(""));
    let mut session = Session::open(&spec, folder, arguments.seed)
        .map_err(|error| usage(format!("{}: {error}", spec.place(&error))))?;
    let opened = session.opened();
    super::cases::warn(opened.warnings.iter().map(String::as_str));
    let mut out = std::io::stdout().lock();
    say(&mut out, &opened)?;
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
        super::cases::warn(report.warnings.iter().map(String::as_str));
        say(&mut out, &report)?;
    }
    Ok(())
}

/// Writes one line and flushes it, because the caller waits for it.
fn say(out: &mut impl Write, what: &impl Serialize) -> Result<()> {
    writeln!(out, "{}", serde_json::to_string(what)?)?;
    out.flush().map_err(Into::into)
}

fn usage(what: String) -> anyhow::Error {
    let way_out = super::cases::way_out(&what, "session");
    Failure::error(Kind::Usage, what, way_out)
}
