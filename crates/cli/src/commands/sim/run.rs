//! `hemi sim run`: runs the cases of a spec, all of them or one.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use hemi_simulate::spec::{self, Case, Values};
use hemi_simulate::tables;
use serde::Serialize;

use super::cases::{run_all, usage};
use super::json::JsonArgs;
use super::snapshots::SnapshotArgs;
use super::table;
use crate::failure::{Failure, Kind};

/// Run the experiment in a file.
///
/// A spec names a system (one drive, or legs under a policy), a workload and a sweep. Every
/// combination of the values in its [sweep] is a case. Cases are independent and run on all
/// cores. --list lists them, and --case runs one of them, so that any scheduler can spread them
/// over machines.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// The experiment, a TOML file.
    #[arg(value_name = "SPEC")]
    spec: PathBuf,

    /// Seed for all randomness, instead of the spec's.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Run only this case, numbered from 0; its result is the same to the byte.
    #[arg(long, value_name = "N")]
    case: Option<usize>,

    /// Run nothing; list the cases with their numbers, seeds and swept values.
    #[arg(long, conflicts_with_all = ["parquet", "jobs", "folder"])]
    list: bool,

    /// Cases run at a time [default: the number of cores].
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,

    #[command(flatten)]
    json: JsonArgs,

    /// Also write cases.parquet, intervals.parquet and latencies.parquet into this directory.
    #[arg(long, value_name = "OUT")]
    parquet: Option<PathBuf>,

    #[command(flatten)]
    snapshots: SnapshotArgs,
}

pub(super) fn run(arguments: &RunArgs) -> Result<()> {
    let (mut cases, folder) =
        spec::load(&arguments.spec).map_err(|error| usage(error.to_string()))?;
    if let Some(number) = arguments.case {
        let count = cases.len();
        if number >= count {
            let right = match count {
                1 => "Give 0, or leave it out.".to_owned(),
                _ => format!("Give a number from 0 to {}; --list says what they are.", count - 1),
            };
            let cases = if count == 1 { "case" } else { "cases" };
            let what = format!("--case {number}: the spec has {count} {cases}");
            return Err(Failure::error(Kind::Usage, what, right));
        }
        cases = vec![cases.swap_remove(number)];
    }
    if arguments.list {
        return list(arguments, &cases);
    }
    let RunArgs { seed, jobs, snapshots, .. } = arguments;
    let reports = run_all(&cases, &folder, *seed, *jobs, snapshots)?;
    if let Some(out) = &arguments.parquet {
        tables::write(out, &reports).context("cannot write the tables")?;
    }
    if arguments.json.write(&reports)? {
        return Ok(());
    }
    print(&table::cases(&reports))
}

/// A case as it is listed.
#[derive(Serialize)]
struct Listed<'c> {
    case: usize,
    seed: u64,
    values: &'c Values,
}

fn list(arguments: &RunArgs, cases: &[Case]) -> Result<()> {
    let seed = |case: &Case| arguments.seed.unwrap_or(case.spec.seed);
    let listed = |case| {
        let &Case { number, ref values, .. } = case;
        Listed { case: number, seed: seed(case), values }
    };
    let all: Vec<Listed<'_>> = cases.iter().map(listed).collect();
    if arguments.json.write(&all)? {
        return Ok(());
    }
    print(&table::listed(cases, seed))
}

fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    write!(out, "{text}")?;
    out.flush().map_err(Into::into)
}
