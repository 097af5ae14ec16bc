//! `hemi standby`: the drives that wait to take the place of a leg.

use std::io::Write as _;

use anyhow::Result;
use clap::{Args, Subcommand};
use hemi_io::config::legs::LegSpec;
use hemi_server::control::api::{self, VolumeStatus};

use super::leg::{Keep, NewLeg, is_found_by_scan};
use crate::client::{Client, Which};
use crate::config_file::{Keeping, leg_entry};

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
            let client = Client::new(which)?;
            let config = new.config()?;
            let status: VolumeStatus = client.block_on(client.get("/v1/status"))?;
            let file = status.config_file.as_deref();
            let keeping = Keeping::prepare(file, keep.write_config, |file| {
                if file.scans() && is_found_by_scan(&config.path) {
                    return Ok(());
                }
                file.add_leg(&config)
            })?;
            let request = api::AddStandby { config: config.clone(), wipe: *wipe };
            client.block_on(client.post("/v1/standbys/add", &request))?;
            writeln!(
                std::io::stdout(),
                "standby added; it takes the place of a leg that goes out"
            )?;
            keeping.finish(&format!("with {} among the legs", leg_entry(&config)))
        }
        What::Remove { standby, keep, which } => {
            let client = Client::new(which)?;
            let status: VolumeStatus = client.block_on(client.get("/v1/status"))?;
            let mut known = status.standbys.iter();
            let known = known.find(|one| one.name == *standby || one.path == *standby);
            let path = known.map_or(standby, |known| &known.path);
            let spec = path.parse::<LegSpec>().ok();
            let file = status.config_file.as_deref();
            let keeping = Keeping::prepare(file, keep.write_config, |file| match &spec {
                Some(spec) => file.remove_leg(spec),
                None => Ok(()),
            })?;
            let request = api::RemoveStandby { standby: standby.clone() };
            client.block_on(client.post("/v1/standbys/remove", &request))?;
            writeln!(std::io::stdout(), "standby removed; the drive is free")?;
            keeping.finish(&format!("without {path} among the legs"))
        }
    }
}
