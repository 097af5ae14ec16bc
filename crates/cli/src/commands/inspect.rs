//! `hemi inspect`: shows the metadata on legs.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use hemi_io::config::legs::LegSpec;
use hemi_server::config::place::Place;
use hemi_server::inspect::{Content, ContentError, inspect_all};
use hemi_server::scan::apart::Scanner;
use hemi_server::scan::udev_properties;

use super::scrub::range::ByteRange;
use super::volume::LedgerArgs;
use crate::failure::{Failure, Kind};

/// Show the metadata on legs, without changing or locking anything.
///
/// For each leg it shows the superblock, with the volume, generations and leg set; the regions
/// that are dirty or not whole; the extents that are lost; and the metadata slots that are torn
/// or damaged. For several legs it also shows how their histories relate. For their volume it shows
/// the ledger, and what the next start makes of it. It also works on legs that are being served;
/// their metadata may change while it is read. Exits with 1 if something named is not a leg, after
/// showing the others.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  hemi inspect /dev/nvme0n1p3 /dev/sdb
  hemi inspect --scan
  hemi inspect --read 4096000+16KiB /dev/sdb | sha256sum
  hemi inspect --json leg0.img | jq '.legs[0].superblock.data_offset'")]
pub(crate) struct InspectArgs {
    /// A leg: a path, stripe:PATH,PATH[,chunk=64K], end:PATH, external:PATH,metadata=PATH, or an
    /// NBD URI.
    #[arg(value_name = "LEG", required_unless_present = "scan")]
    legs: Vec<String>,

    /// List the volumes whose legs are on this machine's block devices, with the legs.
    #[arg(long, conflicts_with_all = ["legs", "ledger"])]
    scan: bool,

    /// Look for legs in this file or directory, too; may be repeated.
    #[arg(long, value_name = "PATH", requires = "scan")]
    scan_in: Vec<PathBuf>,

    /// Print what a rule of udev needs to know of one block device, as KEY=VALUE lines; nothing if it is
    /// no leg and no volume. With end:PATH, nothing if it is no adopted disk.
    #[arg(long, conflicts_with_all = ["scan", "json", "ledger"])]
    udev: bool,

    /// Write a leg's own version of a range of the volume to standard output: START+LENGTH in bytes.
    #[arg(long, value_name = "RANGE", conflicts_with_all = ["scan", "udev", "json", "ledger"])]
    read: Option<ByteRange>,

    #[command(flatten)]
    ledger: LedgerArgs,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &InspectArgs) -> Result<()> {
    if arguments.scan {
        return list(arguments);
    }
    if let Some(range) = arguments.read {
        return read(&arguments.legs, range);
    }
    if arguments.udev {
        return tell_udev(&arguments.legs);
    }
    let inspection = inspect_all(&arguments.legs, &arguments.ledger.place_or(Place::default()))?;
    let mut out = std::io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&inspection)?)?;
    } else {
        write!(out, "{inspection}")?;
    }
    out.flush()?;
    let none: Vec<_> = inspection
        .legs
        .iter()
        .filter(|leg| leg.superblock.is_none() && leg.standby.is_none())
        .map(|leg| leg.path.as_str())
        .collect();
    if none.is_empty() {
        return Ok(());
    }
    let otherwise: Vec<_> =
        inspection.legs.iter().filter_map(|leg| leg.otherwise.as_deref()).collect();
    let way_out = match &otherwise[..] {
        [] => "Check the path; hemi create makes a volume.".to_owned(),
        otherwise => format!("{}.", otherwise.join("; ")),
    };
    Err(Failure::error(
        Kind::Failed,
        format!("no leg of a hemi volume can be read at {}", none.join(", ")),
        way_out,
    ))
}

/// Lists volumes and legs.
fn list(arguments: &InspectArgs) -> Result<()> {
    let scan = Scanner::new(&arguments.scan_in).scan()?;
    let mut out = std::io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&scan)?)?;
    } else {
        write!(out, "{scan}")?;
    }
    out.flush()?;
    Ok(())
}

/// Writes what a leg holds in a range of the volume.
fn read(legs: &[String], range: ByteRange) -> Result<()> {
    let [spec] = legs else {
        return Err(Failure::error(Kind::Usage, "--read takes one leg", ""));
    };
    let failed = |error: ContentError| {
        let what = format!("leg {spec}: {error}");
        Failure::error(Kind::Failed, what, "hemi inspect LEG shows what the leg holds.")
    };
    let content = Content::open(spec).map_err(failed)?;
    let mut out = std::io::stdout().lock();
    content
        .read(range.start, range.length, |piece| out.write_all(piece).map_err(Stop::Out))
        .map_err(|stop| match stop {
            Stop::Leg(error) => failed(error),
            Stop::Out(error) => error.into(),
        })?;
    out.flush()?;
    Ok(())
}

/// The reason why the copying of a range ended early.
enum Stop {
    Leg(ContentError),
    Out(std::io::Error),
}

impl From<ContentError> for Stop {
    fn from(error: ContentError) -> Stop {
        Stop::Leg(error)
    }
}

fn tell_udev(devices: &[String]) -> Result<()> {
    let [device] = devices else {
        return Err(Failure::error(Kind::Usage, "--udev takes one device", ""));
    };
    let device: LegSpec =
        device.parse().map_err(|error| Failure::error(Kind::Usage, format!("{error}"), ""))?;
    let mut out = std::io::stdout().lock();
    for (key, value) in udev_properties(&device) {
        writeln!(out, "{key}={value}")?;
    }
    out.flush()?;
    Ok(())
}
