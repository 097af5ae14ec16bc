//! `hemi generate`: shell completions and man pages, for packagers.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, CommandFactory as _, Subcommand};

use crate::arguments::Arguments;
use crate::manual;

/// Write shell completions or man pages.
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct GenerateArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Write a shell's completions to standard output.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write hemi's man pages into a directory.
    Man {
        /// The pages that they are made from.
        #[arg(long, value_name = "DIR", default_value = "docs")]
        docs: PathBuf,
        /// Directory in which these pages are installed.
        #[arg(long, value_name = "DIR", default_value = "/usr/share/doc/hemi")]
        installed: String,
        /// The date that they bear, as in 2026-11-26.
        #[arg(long, default_value = "")]
        date: String,
        /// The directory; created if it is missing.
        directory: PathBuf,
    },
}

pub(crate) fn run(arguments: &GenerateArgs) -> Result<()> {
    let mut command = Arguments::command();
    match &arguments.what {
        What::Completions { shell } => {
            // Into memory first: the generator panics if the pipe is closed early.
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut command, "hemi", &mut script);
            std::io::Write::write_all(&mut std::io::stdout(), &script)?;
        }
        What::Man { docs, installed, date, directory } => {
            let commands = command.get_subcommands().filter(|nested| !nested.is_hide_set());
            let names: Vec<&str> = commands.map(clap::Command::get_name).collect();
            manual::write(&manual::Source { docs, installed, date }, directory, &names)?;
        }
    }
    Ok(())
}
