//! `hemi settle`: brings the legs up to the ledger.

use hemi_units::prose::counted;
use std::io::Write as _;

use anyhow::Result;
use clap::Args;
use hemi_server::settle::{SettleReport, settle};

use super::serve::failure;
use super::volume::VolumeArgs;
use crate::logging::{self, LogArgs};

/// Bring the legs of a volume up to its ledger.
///
/// While a volume is served, a ledger in memory names the leg that decides each region. It survives
/// hemi, but not a restart of the machine. A volume that was stopped needs none, unless hemi serve
/// said that it stays. After a kill, this command writes to the legs what only the ledger records,
/// and removes the ledger. Without it, acknowledged writes that were not flushed may be lost when
/// the machine restarts before the volume is served again.
///
/// The volume must not be served. If the legs rely on no ledger, nothing is written.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  hemi settle /etc/hemi/db.toml
  hemi settle --leg /dev/nvme0n1p3 --leg /dev/sdb")]
pub(crate) struct SettleArgs {
    #[command(flatten)]
    volume: VolumeArgs,

    /// Print the outcome as JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    log: LogArgs,
}

pub(crate) fn run(arguments: &SettleArgs) -> Result<()> {
    let config = arguments.volume.config(&[])?;
    config.check()?;
    let _logging = logging::start(&arguments.log)?;
    let report = settle(&config).map_err(failure)?;
    let mut out = std::io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        writeln!(out, "{}", told(&report))?;
    }
    Ok(())
}

fn told(report: &SettleReport) -> String {
    match &report.ledger {
        None => format!("The legs of volume {:?} rely on no ledger.", report.volume),
        Some(path) => format!(
            "The legs of volume {:?} say all that the ledger {} said ({} had been written \
             to since they were last flushed).",
            report.volume,
            path.display(),
            counted(report.touched_regions, "region")
        ),
    }
}
