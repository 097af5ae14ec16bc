//! `hemi sim import-disksim`: makes a preset of a disk described for DiskSim.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use hemi_drives::disksim::{drive, preset};
use hemi_simulate::aside;

use super::presets::print;
use crate::failure::{Failure, Kind};

/// Make a preset of a disk described for DiskSim.
///
/// Reads DiskSim 4.0's description of a disk, as its extraction tools write it, and prints a
/// preset with the same parameters, each with the file and the block it comes from. Values that
/// have no effect in hemi's model are listed on standard error.
#[derive(Debug, Args)]
pub(super) struct ImportDisksimArgs {
    /// The description (.diskspecs), or a parameter file with the disk's bus (.parv). The files
    /// it names are looked for beside it.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Title of the preset [default: the name in the description].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Write the preset into this file, which appears only once it is complete.
    #[arg(short, long, value_name = "PRESET")]
    out: Option<PathBuf>,
}

pub(super) fn run(arguments: &ImportDisksimArgs) -> Result<()> {
    let ImportDisksimArgs { file, name, out } = arguments;
    let description = drive::load_file(file).map_err(|error| {
        let way_out = "Give the .diskspecs or .parv file of a disk; the files that it names have \
                       to be beside it.";
        Failure::error(Kind::Usage, error.to_string(), way_out)
    })?;
    let mut errors = std::io::stderr().lock();
    for ignored in &description.ignored {
        writeln!(errors, "ignored: {ignored}")?;
    }
    let text = preset::text(&description, name.as_deref())?;
    match out {
        Some(path) => aside::write(path, text.as_bytes())
            .with_context(|| format!("cannot write {}", path.display())),
        None => print(&text),
    }
}
