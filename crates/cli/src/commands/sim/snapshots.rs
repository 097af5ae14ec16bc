//! `--snapshots`: preconditioned flash kept from one command to the next.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use hemi_simulate::snapshots::{Notice, Snapshots};
use hemi_simulate::stock::Stock;

use super::progress::Bars;

#[derive(Debug, Args)]
pub(crate) struct SnapshotArgs {
    /// Keep preconditioned flash in this directory, and reuse what is there.
    ///
    /// Results are the same to the byte. Several commands may share a directory at the same time.
    /// You may delete its files at any time.
    #[arg(long = "snapshots", value_name = "DIR")]
    folder: Option<PathBuf>,
}

impl SnapshotArgs {
    /// Returns the source of drives. A drive that is reused or made anew is reported above the
    /// bars.
    pub(crate) fn stock(&self, bars: &Bars) -> Result<Stock> {
        let Some(folder) = &self.folder else { return Ok(Stock::default()) };
        let bars = bars.clone();
        let told = move |of: &str, path: &Path, notice: &Notice| bars.say(&said(of, path, notice));
        let snapshots = Snapshots::open(folder, told);
        let snapshots = snapshots
            .with_context(|| format!("--snapshots: cannot create {}", folder.display()))?;
        Ok(Stock::new(Some(snapshots)))
    }
}

fn said(of: &str, path: &Path, notice: &Notice) -> String {
    let file = path.display();
    match notice {
        Notice::Reused => format!("{of}: snapshot {file} reused"),
        Notice::Kept => format!("{of}: preconditioned, snapshot {file} kept"),
        Notice::Unusable(why) => {
            format!("warning: {file}: {why}; {of} is preconditioned instead, and kept anew")
        }
        Notice::NotKept(why) => format!(
            "warning: {file}: cannot be written: {why}; the results are right, but {of} will be \
             preconditioned again next time"
        ),
    }
}
