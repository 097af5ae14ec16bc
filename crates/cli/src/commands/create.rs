//! `hemi create`: formats legs into a new volume.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use hemi_server::create::{Adopt, CreateError, CreateOptions, LEGS_MIN, Spare, VolumeSize, create};
use hemi_units::Size;

use crate::failure::{Failure, Kind};

/// Format legs into a new volume.
///
/// hemi examines every leg before it changes any. Legs that are mounted, partitioned, held by
/// another program or not empty are refused. --wipe allows destroying the content of the leg it
/// names, but never a leg that is in use. A file that does not exist is created, as large as
/// needed.
///
/// Each leg needs room for the volume and hemi's metadata, which takes at least 2 MiB and, for
/// large volumes, less than a thousandth of the volume. The data area is a plain disk image at
/// an aligned offset.
///
/// --adopt makes a leg of a disk that has data, which stays where it is. hemi's metadata goes
/// behind it, where its file system must have left room, or elsewhere (--metadata).
///
/// --leg missing, beside one other leg, makes a volume whose second leg comes later, while it is
/// served (hemi leg add). Until then all data is on one drive.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  hemi create --size 10G --leg /dev/nvme0n1p3 --leg /dev/sdb --name db
  hemi create --size 1T --leg stripe:/dev/nvme0n1,/dev/nvme1n1 --leg nbd://storage/db
  hemi create --leg /dev/nvme0n1p3 --leg /dev/sdb
  hemi create --adopt /dev/sdb1 --leg /dev/nvme0n1p3 --name home
  hemi create --size 1G --leg a.img --leg b.img --wipe b.img
  hemi create --size 1T --leg /dev/sdb --leg missing --name home")]
pub(crate) struct CreateArgs {
    /// Size of the volume, rounded down to a multiple of 4096 bytes; or `max`, the largest that all
    /// legs can hold [default: max; with --adopt, the largest that the adopted disk can hold].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    size: Option<VolumeSize>,

    /// Take the volume's content from this disk, and make it the first leg without moving a byte.
    /// The other legs are filled from it when the volume is served.
    #[arg(long, value_name = "PATH")]
    adopt: Option<PathBuf>,

    /// Keep the metadata of an adopted disk in this file or device [default: at the end of the
    /// disk]. A file that does not exist is created.
    #[arg(long, value_name = "PATH", requires = "adopt")]
    metadata: Option<PathBuf>,

    /// A leg: a path, stripe:PATH,PATH[,chunk=64K], end:PATH, external:PATH,metadata=PATH,
    /// nbd://HOST[:PORT]/[EXPORT], or nbd+unix:///[EXPORT]?socket=PATH (nbds, nbds+unix through
    /// TLS). Twice or more; the first gets slot 0. One of two may be `missing`, to be added later
    /// (hemi leg add).
    #[arg(long = "leg", value_name = "LEG", required = true)]
    legs: Vec<String>,

    /// Name of the volume: at most 64 bytes, without `/`.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    name: String,

    /// Granularity of persistent metadata, a power of two, 64KiB or more [default: depends on
    /// the volume's size].
    #[arg(long, value_name = "SIZE")]
    region_size: Option<Size>,

    /// Smallest request clients may send, 512 or 4096 [default: the largest block size of the
    /// legs].
    #[arg(long, value_name = "SIZE")]
    block_size: Option<Size>,

    /// Destroy what is on this leg, named as after --leg, or on this member of a stripe; may
    /// be repeated.
    #[arg(long, value_name = "PATH")]
    wipe: Vec<PathBuf>,

    /// Write zeros over legs not known to be zero, so that all start identical; otherwise they
    /// are filled from the first leg when the volume is served.
    #[arg(long)]
    zero: bool,

    /// Discard each leg's drive first, and leave this share of it unused, for example 20%, so that
    /// its flash has room to collect garbage. LEG=SHARE is for one leg, named as after --leg. May be
    /// repeated.
    #[arg(long, value_name = "[LEG=]SHARE")]
    spare: Vec<Spare>,

    /// Reserve the space of files that are created, instead of leaving them sparse.
    #[arg(long)]
    reserve: bool,

    /// Do not bypass the page cache (for file systems without O_DIRECT).
    #[arg(long)]
    no_direct: bool,

    /// Print the new volume as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &CreateArgs) -> Result<()> {
    let block_bytes = match arguments.block_size {
        None => None,
        Some(size) => Some(u32::try_from(size.0).map_err(|_| {
            Failure::error(
                Kind::Usage,
                format!("--block-size {size} is not possible"),
                "Use 512 or 4096.",
            )
        })?),
    };
    let adopt =
        arguments.adopt.clone().map(|path| Adopt { path, metadata: arguments.metadata.clone() });
    let options = CreateOptions {
        size: arguments.size.unwrap_or(match adopt {
            Some(_) => VolumeSize::First,
            None => VolumeSize::Max,
        }),
        adopt,
        legs: arguments.legs.clone(),
        name: arguments.name.clone(),
        region_bytes: arguments.region_size.map(|size| size.0),
        block_bytes,
        wipe: arguments.wipe.clone(),
        reserve: arguments.reserve,
        cached: arguments.no_direct,
        zero: arguments.zero,
        spare: arguments.spare.clone(),
    };
    let created = create(&options).map_err(refused)?;
    let mut out = std::io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&created)?)?;
    } else {
        let legs: Vec<String> =
            created.legs.iter().map(|leg| format!("--leg {}", leg.path)).collect();
        writeln!(out, "{created}Serve it: hemi serve {}", legs.join(" "))?;
        if legs.len() < LEGS_MIN {
            writeln!(out, "Then add the missing leg: hemi leg add LEG")?;
        }
    }
    Ok(())
}

fn size(text: &str) -> Result<VolumeSize, String> {
    if text == "max" {
        return Ok(VolumeSize::Max);
    }
    text.parse::<Size>()
        .map(|size| VolumeSize::Bytes(size.0))
        .map_err(|error| format!("{error}; or write max, for the largest that all legs can hold"))
}

/// Chooses the exit code: protection of data differs from a failure, and from a wrong request.
fn refused(error: CreateError) -> anyhow::Error {
    let kind = match &error {
        CreateError::InUse { .. }
        | CreateError::NotEmpty { .. }
        | CreateError::Same { .. }
        | CreateError::OtherPath { .. }
        | CreateError::Adopt { .. }
        | CreateError::Spare { .. } => Kind::Refused,
        CreateError::LegCount(_)
        | CreateError::Missing { .. }
        | CreateError::Spec(_)
        | CreateError::Layout(_)
        | CreateError::Name(_)
        | CreateError::PathName(_)
        | CreateError::BlockBytes { .. }
        | CreateError::SizeOfNothing(_)
        | CreateError::WipeAdopted(_)
        | CreateError::ZeroAdopted
        | CreateError::WipeWhat(_)
        | CreateError::SpareWhat(_) => Kind::Usage,
        _ => return error.into(),
    };
    Failure::error(kind, error.to_string(), "")
}
