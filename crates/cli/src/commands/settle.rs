//! `hemi settle`: brings the legs up to the ledger.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use hemi_server::config::ledger::LedgerPlace;
use hemi_server::config::legs::{LegConfig, LegSpec};
use hemi_server::config::{Config, ConfigError};
use hemi_server::settle::{SettleReport, settle};

use super::serve::failure;
use crate::logging::{self, LogArgs};

/// Bring the legs of a volume up to its ledger.
///
/// While a volume is served, a ledger in memory names the leg that decides each region. It outlives
/// hemi, and not the machine. A volume that was stopped needs none. After a kill, this command
/// writes into the legs what only the ledger says, and removes it. Without it, acknowledged writes
/// that were not flushed may be lost when the machine restarts before the volume is served again.
///
/// The volume must not be served. If the legs rely on no ledger, nothing is written.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  hemi settle /etc/hemi/db.toml
  hemi settle --leg /dev/nvme0n1p3 --leg /dev/sdb")]
pub(crate) struct SettleArgs {
    /// Read the configuration from this file.
    #[arg(value_name = "CONFIG.toml")]
    file: Option<PathBuf>,

    /// A leg, as in hemi serve. Once for each leg.
    #[arg(long = "leg", value_name = "LEG", conflicts_with = "file")]
    legs: Vec<LegSpec>,

    /// Do not bypass the page cache for the legs named by --leg (for file systems without
    /// O_DIRECT).
    #[arg(long, requires = "legs")]
    no_direct: bool,

    /// The directory of the ledger, if it is not the run directory.
    #[arg(long, value_name = "DIRECTORY")]
    ledger: Option<LedgerPlace>,

    /// Print the outcome as JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    log: LogArgs,
}

impl SettleArgs {
    fn config(&self) -> Result<Config, ConfigError> {
        let mut config = match &self.file {
            Some(file) => Config::load(file, &[])?,
            None => Config::parse("", Path::new("command line"), &[])?,
        };
        config.legs.extend(self.legs.iter().cloned().map(|leg| LegConfig {
            direct: leg.is_remote() || !self.no_direct,
            ..LegConfig::new(leg)
        }));
        if let Some(ledger) = &self.ledger {
            config.ledger = ledger.clone();
        }
        config.check()?;
        Ok(config)
    }
}

pub(crate) fn run(arguments: &SettleArgs) -> Result<()> {
    let config = arguments.config()?;
    let _logging = logging::start(&arguments.log).map_err(|what| {
        crate::failure::Failure::error(
            crate::failure::Kind::Usage,
            what,
            "Write for example info or debug.",
        )
    })?;
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
            "The legs of volume {:?} say all that the ledger {} said ({} regions had been written \
             to since they were last flushed).",
            report.volume,
            path.display(),
            report.touched_regions
        ),
    }
}
