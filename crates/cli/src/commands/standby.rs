//! `hemi standby`: the drives that wait to take the place of a leg.

use anyhow::Result;
use clap::{Args, Subcommand};
use hemi_server::control::api;

use super::leg::{Change, Keep, Leaving, NewLeg};
use crate::client::{Client, Which};

/// Add and remove standbys: drives that take the place of a leg that is out.
#[derive(Debug, Args)]
pub(crate) struct StandbyArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Make a drive a standby of the volume.
    ///
    /// Devices that are mounted, in use or not empty are refused. --wipe allows overwriting the
    /// content, but never a device that is in use.
    #[command(after_help = "\
Example:
  hemi standby add /dev/sdc --write-config")]
    Add {
        #[command(flatten)]
        new: NewLeg,
        /// Overwrite what is on the drive.
        #[arg(long)]
        wipe: bool,
        #[command(flatten)]
        keep: Keep,
        #[command(flatten)]
        which: Which,
    },
    /// Let go of a standby, and erase its superblock.
    Remove {
        /// Name or path of the standby, as hemi status shows it.
        #[arg(value_name = "STANDBY")]
        standby: String,
        #[command(flatten)]
        keep: Keep,
        #[command(flatten)]
        which: Which,
    },
}

pub(crate) fn run(arguments: &StandbyArgs) -> Result<()> {
    match &arguments.what {
        What::Add { new, wipe, keep, which } => {
            let config = new.config()?;
            let change =
                Change { client: Client::new(which)?, keep: *keep, from: None, to: Some(&config) };
            let request = api::AddStandby { config: config.clone(), wipe: *wipe };
            let done = "standby added; it takes the place of a leg that goes out";
            change.ask("/v1/standbys/add", &request, done)
        }
        What::Remove { standby, keep, which } => {
            let from = Some(Leaving::Standby(standby));
            let change = Change { client: Client::new(which)?, keep: *keep, from, to: None };
            let request = api::RemoveStandby { standby: standby.clone() };
            change.ask("/v1/standbys/remove", &request, "standby removed; the drive is free")
        }
    }
}
