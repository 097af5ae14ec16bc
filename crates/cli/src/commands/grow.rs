//! `hemi grow`: lets a volume take up the room that its legs have gained.

use std::io::Write as _;

use anyhow::Result;
use clap::Args;
use hemi_server::control::api::{self, VolumeStatus};
use hemi_server::grow::{GrowError, GrowTo, grow};
use hemi_units::Size;
use hemi_units::prose::duration;

use super::upgrade::{SERVE_TIME, served};
use super::volume::VolumeArgs;
use crate::client::{Client, Which};
use crate::failure::{Failure, Kind};

/// Let a volume take up the room that its legs have gained.
///
/// Grow the legs first: the files, logical volumes or cloud disks. A served volume (--volume) is
/// closed and reopened as in hemi upgrade: clients see a pause, and its block device gets the new
/// size. A volume that is not served is named by its configuration or its legs. Then grow the file
/// systems on it with their own tools (resize2fs, xfs_growfs).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  hemi grow --volume db && resize2fs /dev/hemi/db
  hemi grow /etc/hemi/db.toml --size 2TiB")]
pub(crate) struct GrowArgs {
    #[command(flatten)]
    which: Which,

    #[command(flatten)]
    closed: VolumeArgs,

    /// The size to grow to, rounded down to a multiple of 4096 bytes, or max.
    #[arg(long, value_name = "SIZE", default_value = "max", value_parser = size)]
    size: GrowTo,

    /// Cut clients off that cannot be kept: those that use TLS.
    #[arg(long)]
    force: bool,
}

fn size(text: &str) -> Result<GrowTo, String> {
    if text == "max" {
        return Ok(GrowTo::Max);
    }
    text.parse::<Size>().map(|size| GrowTo::Bytes(size.0)).map_err(|error| error.to_string())
}

pub(crate) fn run(arguments: &GrowArgs) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if arguments.closed.is_named() {
        let config = arguments.closed.config(&[])?;
        config.check()?;
        let grown = grow(&config, arguments.size).map_err(failure)?;
        writeln!(out, "{grown}{}", rounded(arguments.size, grown.size_bytes))?;
        return Ok(());
    }
    let client = Client::new(&arguments.which)?;
    let request = api::Grow { to: arguments.size, force: arguments.force };
    client.block_on(async {
        let before: VolumeStatus = client.get("/v1/status").await?;
        client.post("/v1/grow", &request).await?;
        let after = served(&client, &before, SERVE_TIME).await?;
        let report = after.taken_over.clone().unwrap_or_default();
        if let Some(reason) = report.not_grown {
            let what = format!("volume {} has not grown, and is served as before", after.name);
            return Err(Failure::error(Kind::Failed, what, &reason));
        }
        let (name, pause) = (&after.name, duration(report.pause_ns));
        let (old, new) = (Size(before.size_bytes), Size(after.size_bytes));
        let rounded = rounded(arguments.size, new.0);
        writeln!(
            out,
            "volume {name} has grown from {old} to {new}{rounded}; clients waited {pause}"
        )?;
        Ok(())
    })
}

/// Says so if the size is less than was asked for.
fn rounded(asked: GrowTo, size_bytes: u64) -> String {
    match asked {
        GrowTo::Bytes(asked) if asked != size_bytes => {
            format!(" ({} rounded down to a multiple of 4096 bytes)", Size(asked))
        }
        _ => String::new(),
    }
}

fn failure(error: GrowError) -> anyhow::Error {
    match error {
        GrowError::Open(error) => super::serve::failure(error),
        error => Failure::error(Kind::Failed, error.to_string(), error.way_out()),
    }
}
