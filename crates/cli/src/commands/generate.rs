//! `hemi generate`: shell completions and man pages, for packagers.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Args, CommandFactory as _, Subcommand};

use crate::arguments::Arguments;

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
    /// Write a man page for each command into a directory.
    Man {
        /// The directory; created if it is missing.
        directory: PathBuf,
    },
}

pub(crate) fn run(arguments: &GenerateArgs) -> Result<()> {
    let mut command = Arguments::command();
    match &arguments.what {
        What::Completions { shell } => {
            // Into memory first: the generator panics where the pipe is closed early.
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut command, "hemi", &mut script);
            std::io::Write::write_all(&mut std::io::stdout(), &script)?;
        }
        What::Man { directory } => {
            std::fs::create_dir_all(directory)
                .with_context(|| format!("cannot create {}", directory.display()))?;
            clap_mangen::generate_to(command, directory)
                .with_context(|| format!("cannot write to {}", directory.display()))?;
        }
    }
    Ok(())
}
