//! The `hemi` command, with one file for each subcommand.
//!
//! `create`, `inspect` and `promote` work on legs that nobody serves. `serve` serves a volume. All
//! others are clients of the served volume's control API. Exit codes are the same for all: 0 done,
//! 1 failed, 2 the command line or configuration is invalid, 3 refused because it could lose data.

use std::process::ExitCode;

use clap::Parser as _;

mod arguments;
mod client;
mod commands;
mod config_file;
mod demo;
mod failure;
mod logging;
mod manual;
mod text;
mod version;

fn main() -> ExitCode {
    // A closed pipe (`hemi status | head`) ends the command as any other, not in a panic.
    let arguments = arguments::Arguments::parse();
    match commands::run(arguments.command) {
        Ok(code) => code,
        Err(error) => failure::report(&error),
    }
}
