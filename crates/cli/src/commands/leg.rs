//! `hemi leg`: the legs of a served volume.

use std::io::Write as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::builder::RangedI64ValueParser;
use clap::{Args, Subcommand};
use hemi_engine::identifiers::LEGS_MAX;
use hemi_io::config::legs::{LegConfig, LegSpec};
use hemi_io::leg::nbd::CONNECTIONS_MAX;
use hemi_server::control::api::{self, VolumeStatus};
use hemi_server::create::Share;
use hemi_units::Time;

use crate::client::{Client, Which};
use crate::config_file::{Keeping, leg_entry};
use crate::text;

/// List and change the legs of a served volume.
#[derive(Debug, Args)]
pub(crate) struct LegArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List the legs.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        which: Which,
    },
    /// Put a new, empty leg into a free slot and fill it in the background.
    ///
    /// Devices that are mounted, in use or not empty are refused. --wipe allows overwriting the
    /// content, but never a device that is in use.
    #[command(after_help = "\
Examples:
  hemi leg add /dev/sdc
  hemi leg add nbd://storage/db --name remote --quarantine 30s
  hemi leg add old.img --wipe --slot 2")]
    Add {
        #[command(flatten)]
        new: NewLeg,
        /// Slot, 0 to 7 [default: the first free one].
        #[arg(long, value_name = "N", value_parser = slot())]
        slot: Option<u8>,
        /// Overwrite what is on the new leg.
        #[arg(long)]
        wipe: bool,
        /// Discard the new leg's drive first, and leave this share of it unused, for example 20%.
        #[arg(long, value_name = "SHARE")]
        spare: Option<Share>,
        #[command(flatten)]
        keep: Keep,
        #[command(flatten)]
        which: Which,
    },
    /// Forget a leg that is out or detached, and free its slot.
    Remove {
        /// Slot of the leg.
        #[arg(value_name = "N", value_parser = slot())]
        leg: u8,
        #[command(flatten)]
        keep: Keep,
        #[command(flatten)]
        which: Which,
    },
    /// Put a new leg into the slot of a leg that is out, detached or gone.
    #[command(after_help = "\
Example, for a drive that died:
  hemi leg replace 1 /dev/sdd")]
    Replace {
        /// Slot of the leg to replace.
        #[arg(value_name = "N", value_parser = slot())]
        leg: u8,
        #[command(flatten)]
        new: NewLeg,
        /// Overwrite what is on the new leg.
        #[arg(long)]
        wipe: bool,
        /// Discard the new leg's drive first, and leave this share of it unused, for example 20%.
        #[arg(long, value_name = "SHARE")]
        spare: Option<Share>,
        #[command(flatten)]
        keep: Keep,
        #[command(flatten)]
        which: Which,
    },
    /// Drain a leg, make it whole, close it and release it.
    ///
    /// Its data area is then a plain disk image that can be used without hemi, at the offset that
    /// hemi inspect shows. Refused if no other leg holds everything.
    Detach {
        /// Slot of the leg.
        #[arg(value_name = "N", value_parser = slot())]
        leg: u8,
        #[command(flatten)]
        keep: Keep,
        #[command(flatten)]
        which: Which,
    },
    /// Take back a leg that was detached or gone, and refill it from the other legs.
    ///
    /// The leg must be of this volume. Because a detached leg may have been used without hemi
    /// since, it is overwritten only with --wipe.
    Attach {
        #[command(flatten)]
        new: NewLeg,
        /// Overwrite a leg that was detached.
        #[arg(long)]
        wipe: bool,
        #[command(flatten)]
        keep: Keep,
        #[command(flatten)]
        which: Which,
    },
}

/// Returns the parser of a leg's slot, with the bounds that the server has.
pub(crate) fn slot() -> RangedI64ValueParser<u8> {
    clap::value_parser!(u8).range(..=LEGS_MAX as i64 - 1)
}

#[derive(Clone, Copy, Debug, Args)]
pub(super) struct Keep {
    /// Write the change into the configuration file that the volume was started from; without it,
    /// the lines to change are printed.
    #[arg(long)]
    write_config: bool,
}

#[derive(Clone, Debug, Args)]
pub(super) struct NewLeg {
    /// The leg: a path, stripe:PATH,PATH[,chunk=64K], end:PATH, external:PATH,metadata=PATH,
    /// nbd://HOST[:PORT]/[EXPORT], or nbd+unix:///[EXPORT]?socket=PATH (nbds, nbds+unix through
    /// TLS).
    #[arg(value_name = "LEG")]
    spec: LegSpec,

    /// Name of the leg in status, logs and metrics [default: the spec].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Remote legs: how long its writes may still land after a session is lost.
    #[arg(long, value_name = "DURATION")]
    quarantine: Option<Time>,

    /// Remote legs: connections to use, if the export says that they share one cache.
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u8).range(1..=i64::from(CONNECTIONS_MAX)))]
    connections: Option<u8>,

    /// Local legs: do not bypass the page cache (for file systems without O_DIRECT).
    #[arg(long)]
    no_direct: bool,
}

impl NewLeg {
    /// Returns the leg's configuration as sent to the server, which may run in another directory.
    pub(super) fn config(&self) -> Result<LegConfig> {
        let spec = self.spec.absolute().with_context(|| format!("where is {}?", self.spec))?;
        let mut config = LegConfig::new(spec);
        config.name.clone_from(&self.name);
        config.quarantine = self.quarantine;
        config.connections = self.connections;
        config.direct = !self.no_direct;
        Ok(config)
    }
}

pub(crate) fn run(arguments: &LegArgs) -> Result<()> {
    match &arguments.what {
        What::List { json, which } => list(*json, which),
        What::Add { new, slot, wipe, spare, keep, which } => {
            let config = new.config()?;
            let change =
                Change { client: Client::new(which)?, keep: *keep, from: None, to: Some(&config) };
            let request =
                api::AddLeg { leg: *slot, config: config.clone(), wipe: *wipe, spare: *spare };
            change.ask("/v1/legs/add", &request, "leg added; it is being filled")
        }
        What::Remove { leg, keep, which } => {
            let change = Change {
                client: Client::new(which)?,
                keep: *keep,
                from: Some(Leaving::Leg(*leg)),
                to: None,
            };
            change.ask("/v1/legs/remove", &api::OneLeg { leg: *leg }, "leg removed")
        }
        What::Replace { leg, new, wipe, spare, keep, which } => {
            let config = new.config()?;
            let from = Some(Leaving::Leg(*leg));
            let change =
                Change { client: Client::new(which)?, keep: *keep, from, to: Some(&config) };
            let request =
                api::ReplaceLeg { leg: *leg, config: config.clone(), wipe: *wipe, spare: *spare };
            change.ask("/v1/legs/replace", &request, "leg replaced; it is being filled")
        }
        What::Detach { leg, keep, which } => {
            let change = Change {
                client: Client::new(which)?,
                keep: *keep,
                from: Some(Leaving::Leg(*leg)),
                to: None,
            };
            change.ask("/v1/legs/detach", &api::OneLeg { leg: *leg }, "leg detached")
        }
        What::Attach { new, wipe, keep, which } => {
            let config = new.config()?;
            let change =
                Change { client: Client::new(which)?, keep: *keep, from: None, to: Some(&config) };
            let request = api::AttachLeg { config: config.clone(), wipe: *wipe };
            change.ask("/v1/legs/attach", &request, "leg attached; it is being filled")
        }
    }
}

fn list(json: bool, which: &Which) -> Result<()> {
    let client = Client::new(which)?;
    let mut out = std::io::stdout().lock();
    if json {
        let legs: serde_json::Value = client.block_on(client.get("/v1/legs"))?;
        writeln!(out, "{legs:#}")?;
    } else {
        let status: VolumeStatus = client.block_on(client.get("/v1/status"))?;
        out.write_all(text::leg_table(&status).as_bytes())?;
    }
    Ok(())
}

/// A change of a volume's legs, and of the configuration file that makes it permanent.
pub(super) struct Change<'a> {
    pub(super) client: Client,
    pub(super) keep: Keep,
    /// The drive that leaves.
    pub(super) from: Option<Leaving<'a>>,
    /// The drive that joins.
    pub(super) to: Option<&'a LegConfig>,
}

/// A drive that leaves.
pub(super) enum Leaving<'a> {
    /// The leg in a slot.
    Leg(u8),
    /// The standby of this name or path.
    Standby(&'a str),
}

impl Leaving<'_> {
    /// Returns its spec, if the volume has it.
    fn spec(&self, status: &VolumeStatus) -> Option<LegSpec> {
        let path = match *self {
            Leaving::Leg(slot) => &status.legs.iter().find(|leg| leg.leg == slot)?.path,
            Leaving::Standby(named) => {
                let mut known = status.standbys.iter();
                &known.find(|one| one.name == named || one.path == named)?.path
            }
        };
        path.parse().ok()
    }
}

impl Change<'_> {
    /// Asks for the change, says that it is `done`, and keeps it in the file.
    pub(super) fn ask(
        &self,
        path: &str,
        request: &impl serde::Serialize,
        done: &str,
    ) -> Result<()> {
        let client = &self.client;
        let status: VolumeStatus = client.block_on(client.get("/v1/status"))?;
        let from = self.from.as_ref().and_then(|leaving| leaving.spec(&status));
        let file = status.config_file.as_deref();
        let keeping = Keeping::prepare(file, self.keep.write_config, |file| {
            match (&from, self.to) {
                // A scan finds it as it finds the others.
                (from, Some(to)) if file.scans() && is_found_by_scan(&to.path) => {
                    from.as_ref().map_or(Ok(()), |from| file.remove_leg(from))
                }
                (Some(from), Some(to)) => file.replace_leg(from, to),
                (Some(from), None) => file.remove_leg(from),
                (None, Some(to)) => file.add_leg(to),
                (None, None) => Ok(()),
            }
        })?;
        client.block_on(client.post(path, request))?;
        writeln!(std::io::stdout(), "{done}")?;
        let otherwise = match (&from, self.to) {
            (Some(from), Some(to)) => format!("with the leg {} in place of {from}", leg_entry(to)),
            (Some(from), None) => format!("without the leg {from}"),
            (None, Some(to)) => format!("with the leg {}, too", leg_entry(to)),
            // Its place is unknown: no start names it.
            (None, None) => return Ok(()),
        };
        keeping.finish(&otherwise)
    }
}

/// Returns true if a start that looks for legs finds this one by itself: a block device, or a
/// remote leg, which the others know.
fn is_found_by_scan(leg: &LegSpec) -> bool {
    let is_device = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
    };
    leg.is_remote() || leg.paths().iter().all(is_device)
}
