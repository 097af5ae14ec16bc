//! `hemi sim`: volumes over modelled drives, in virtual time.

mod cards;
mod cases;
mod import_disksim;
pub(crate) mod json;
mod presets;
pub(crate) mod progress;
mod reproduce;
mod run;
mod session;
pub(crate) mod snapshots;
mod table;
mod values;

pub(crate) use table::time;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Simulate volumes and drives you do not have.
///
/// Runs the engine that serves volumes over models of drives, in virtual time. It shows the
/// latency, throughput, exposure, wear and energy of a pair of drives under a load and a policy.
/// The same seed gives the same result on any machine.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  hemi sim presets
  hemi sim presets gp3
  hemi sim import-disksim disk.parv -o disk.toml
  hemi sim run mirror.toml
  hemi sim reproduce
  hemi sim run mirror.toml --seed 7 --json | jq '.[0].writes.p99'")]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    command: SimCommand,
}

#[derive(Debug, Subcommand)]
enum SimCommand {
    Run(run::RunArgs),
    Session(session::SessionArgs),
    Presets(presets::PresetsArgs),
    ImportDisksim(import_disksim::ImportDisksimArgs),
    Reproduce(reproduce::ReproduceArgs),
}

pub(crate) fn run(arguments: &SimArgs) -> Result<()> {
    match &arguments.command {
        SimCommand::Run(arguments) => run::run(arguments),
        SimCommand::Session(arguments) => session::run(arguments),
        SimCommand::Presets(arguments) => presets::run(arguments),
        SimCommand::ImportDisksim(arguments) => import_disksim::run(arguments),
        SimCommand::Reproduce(arguments) => reproduce::run(arguments),
    }
}
