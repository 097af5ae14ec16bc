//! The arguments that name the volume of a command that opens it itself.

use std::path::{Path, PathBuf};

use clap::Args;
use hemi_io::config::ConfigError;
use hemi_io::config::legs::{LegConfig, LegSpec};
use hemi_server::config::Config;
use hemi_server::config::place::Place;
use hemi_server::config::scan::ScanConfig;

#[derive(Debug, Args)]
pub(crate) struct VolumeArgs {
    /// Read the configuration from this file; flags override it.
    #[arg(value_name = "CONFIG.toml")]
    file: Option<PathBuf>,

    /// A leg: a path, stripe:PATH,PATH[,chunk=64K], end:PATH, external:PATH,metadata=PATH,
    /// nbd://HOST[:PORT]/[EXPORT], or nbd+unix:///[EXPORT]?socket=PATH (nbds, nbds+unix through
    /// TLS). Once for each leg.
    #[arg(long = "leg", value_name = "LEG", conflicts_with = "file")]
    legs: Vec<LegSpec>,

    /// Do not bypass the page cache for the legs named by --leg (for file systems without
    /// O_DIRECT).
    #[arg(long, requires = "legs")]
    no_direct: bool,

    /// Look for the legs of the volume with this name or id, on all block devices of the machine.
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    scan: Option<String>,

    /// Look for legs in this file or directory, too; may be repeated.
    #[arg(long, value_name = "PATH", requires = "scan")]
    scan_in: Vec<PathBuf>,

    #[command(flatten)]
    ledger: LedgerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LedgerArgs {
    /// Place of the ledger: auto, none, or a directory on tmpfs that outlives hemi and its
    /// container [default: auto, the run directory].
    #[arg(long, value_name = "DIRECTORY")]
    ledger: Option<Place>,
}

impl LedgerArgs {
    /// Returns the place that was named, or else this one.
    pub(crate) fn place_or(&self, other: Place) -> Place {
        self.ledger.clone().unwrap_or(other)
    }
}

impl VolumeArgs {
    /// Returns true if a volume is named at all.
    pub(crate) fn is_named(&self) -> bool {
        self.file.is_some() || !self.legs.is_empty() || self.scan.is_some()
    }

    /// Reads the configuration and applies `--set KEY=VALUE` assignments and the flags. The caller
    /// adds its own flags and calls [`Config::check`].
    ///
    /// # Errors
    /// Fails as [`Config::load`] does.
    pub(crate) fn config(&self, set: &[String]) -> Result<Config, ConfigError> {
        let mut config = match &self.file {
            Some(file) => Config::load(file, set)?,
            None => Config::parse("", Path::new("command line"), set)?,
        };
        config.legs.extend(self.legs.iter().cloned().map(|leg| LegConfig {
            direct: leg.is_remote() || !self.no_direct,
            ..LegConfig::new(leg)
        }));
        if let Some(volume) = &self.scan {
            let (volume, places) = (volume.clone(), self.scan_in.clone());
            config.scan = Some(ScanConfig { volume, places });
        }
        if let Some(ledger) = &self.ledger.ledger {
            config.ledger = ledger.clone();
        }
        Ok(config)
    }
}
