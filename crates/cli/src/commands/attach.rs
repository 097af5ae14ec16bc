//! `hemi attach` and `hemi detach-device`: a served volume as a block device of this machine.

use std::io::Write as _;

use anyhow::Result;
use clap::Args;
use hemi_server::config::device::DeviceKind;
use hemi_server::control::api::{AttachDevice, Empty, VolumeStatus};
use hemi_server::device::{self, DeviceError};

use crate::client::{Client, Which};
use crate::failure::{Failure, Kind};

/// Make a served volume a block device, /dev/hemi/NAME.
///
/// The kernel's ublk driver creates the device (Linux 6.5 or later), or its NBD client where that
/// is missing. The device stays when hemi serve ends. Its requests then wait, and the next hemi
/// serve of the volume answers them. hemi serve --device attaches the device at the start.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  hemi attach
  hemi attach --volume db && mount /dev/hemi/db /srv/db")]
pub(crate) struct AttachArgs {
    #[command(flatten)]
    which: Which,

    /// The kernel's driver: auto, ublk or nbd.
    #[arg(long, value_name = "DRIVER", default_value = "auto")]
    driver: DeviceKind,
}

/// Remove the block device of a volume.
///
/// The device must not be in use. If nobody serves the volume, name it with --volume; requests
/// that wait for the next hemi serve then fail.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  umount /srv/db && hemi detach-device --volume db")]
pub(crate) struct DetachArgs {
    #[command(flatten)]
    which: Which,

    /// Remove the device of a volume that nobody serves even if it is in use: its users get I/O errors.
    #[arg(long, requires = "volume")]
    force: bool,
}

pub(crate) fn attach(arguments: &AttachArgs) -> Result<()> {
    let client = Client::new(&arguments.which)?;
    client.block_on(async {
        client.post("/v1/device/attach", &AttachDevice { driver: arguments.driver }).await?;
        let status: VolumeStatus = client.get("/v1/status").await?;
        let mut out = std::io::stdout().lock();
        let own = device::link_of(&status.name);
        match (own, status.device) {
            (Some(own), Some(device)) => writeln!(out, "{} is {device}", own.display())?,
            (Some(own), None) => writeln!(out, "{}", own.display())?,
            (None, device) => writeln!(out, "{}", device.unwrap_or_default())?,
        }
        Ok(())
    })
}

pub(crate) fn detach(arguments: &DetachArgs) -> Result<()> {
    match (Client::new(&arguments.which), &arguments.which.volume) {
        (Ok(client), _) => {
            client.block_on(async { client.post("/v1/device/detach", &Empty {}).await })
        }
        (Err(_), Some(name)) => device::remove(name, arguments.force).map_err(failure),
        (Err(error), None) => Err(error),
    }
}

fn failure(error: DeviceError) -> anyhow::Error {
    let kind = match error {
        DeviceError::InUse { .. } | DeviceError::Served { .. } => Kind::Refused,
        _ => Kind::Failed,
    };
    Failure::error(kind, error.to_string(), error.way_out())
}
