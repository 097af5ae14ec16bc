//! `hemi config check`: reads and checks a configuration without serving it.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use hemi_server::config::Config;
use hemi_server::preflight;
use hemi_units::prose::counted;

use crate::failure::{Failure, Kind};

/// Check a configuration file.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Read and check a configuration without starting anything.
    ///
    /// Reports every error in the file with its line and column, the key, its value and the
    /// allowed values. If there is none, reports everything the file needs that this machine lacks: TLS
    /// files, legs, directories for sockets. Takes no lock and changes nothing.
    #[command(after_help = "\
Examples:
  hemi config check /etc/hemi/db.toml
  hemi config check /etc/hemi/db.toml --set engine.wait.floor=10ms --print")]
    Check {
        /// The configuration file.
        #[arg(value_name = "CONFIG.toml")]
        file: PathBuf,
        /// Override a value from the file, as hemi serve does; may be repeated.
        #[arg(long = "set", value_name = "KEY=VALUE")]
        set: Vec<String>,
        /// Also open the legs, read their superblocks and try the ports.
        #[arg(long)]
        probe: bool,
        /// Print the effective configuration.
        #[arg(long)]
        print: bool,
    },
}

pub(crate) fn run(arguments: &ConfigArgs) -> Result<()> {
    let What::Check { file, set, probe, print } = &arguments.what;
    let config = Config::load(file, set)?;
    config.check()?;
    if *print {
        std::io::stdout().write_all(config.to_toml().as_bytes())?;
    }
    let found = if *probe { preflight::probe(&config) } else { preflight::check(&config) };
    let file = file.display();
    for problem in &found {
        eprintln!("{file}: {problem}");
    }
    if !found.is_empty() {
        let what = format!("{file}: {} on this machine", counted(found.len() as u64, "problem"));
        return Err(Failure::error(Kind::Failed, what, "hemi serve would fail here."));
    }
    if !*print {
        // A configuration without exports gets the default one.
        let exports = counted(config.exports.len().max(1) as u64, "export");
        let legs = match (&config.scan, config.legs.len()) {
            (None, count) => counted(count as u64, "leg"),
            (Some(scan), 0) => format!("legs of {:?} looked for", scan.volume),
            (Some(scan), count) => format!("legs of {:?} looked for beside {count}", scan.volume),
        };
        println!("{file}: {legs}, {exports}: ok");
    }
    Ok(())
}
