//! `hemi config check`: reads and checks a configuration without serving it.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use hemi_server::config::Config;

/// Check a configuration file.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Read and check a configuration; start nothing.
    ///
    /// Reports the first thing that is wrong, with its line or its key, its value and what is
    /// allowed. Does not look at the legs themselves: hemi inspect does.
    #[command(after_help = "\
Examples:
  hemi config check /etc/hemi/db.toml
  hemi config check /etc/hemi/db.toml --set engine.wait.floor=10ms --print")]
    Check {
        /// The file.
        #[arg(value_name = "CONFIG.toml")]
        file: PathBuf,
        /// Lay an assignment over the file, as hemi serve does; may be repeated.
        #[arg(long = "set", value_name = "KEY=VALUE")]
        set: Vec<String>,
        /// Print the effective configuration.
        #[arg(long)]
        print: bool,
    },
}

pub(crate) fn run(arguments: &ConfigArgs) -> Result<()> {
    let What::Check { file, set, print } = &arguments.what;
    let config = Config::load(file, set)?;
    config.check()?;
    let mut out = std::io::stdout().lock();
    if *print {
        out.write_all(config.to_toml().as_bytes())?;
    } else {
        writeln!(out, "{}: {} legs, {} exports: ok", file.display(), config.legs.len(), {
            // Without any, there is the default one.
            config.exports.len().max(1)
        })?;
    }
    Ok(())
}
