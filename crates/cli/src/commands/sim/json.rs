//! `--json`: JSON to standard output, or to a file that appears whole or not at all.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use hemi_simulate::aside;
use serde::Serialize;

/// The name that stands for standard output.
const STANDARD_OUTPUT: &str = "-";

#[derive(Debug, Args)]
pub(crate) struct JsonArgs {
    /// Print the result as JSON, with times in seconds and sizes in bytes, or write it to a file.
    ///
    /// The file appears only once it is complete. Without OUT, or with `-`, the JSON goes to
    /// standard output.
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = STANDARD_OUTPUT)]
    json: Option<PathBuf>,
}

impl JsonArgs {
    /// Writes the value as JSON if that is wanted. Returns true if it was.
    pub(crate) fn write(&self, value: &impl Serialize) -> Result<bool> {
        let Some(path) = &self.json else { return Ok(false) };
        let mut text = serde_json::to_string_pretty(value)?;
        text.push('\n');
        if path.as_os_str() == STANDARD_OUTPUT {
            let mut out = std::io::stdout().lock();
            out.write_all(text.as_bytes())?;
            out.flush()?;
        } else {
            into(path, &text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(true)
    }
}

fn into(path: &Path, text: &str) -> std::io::Result<()> {
    // A device or a pipe is written to. Only a file can be replaced by another.
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return fs::write(path, text);
    }
    aside::write(path, text.as_bytes())
}
