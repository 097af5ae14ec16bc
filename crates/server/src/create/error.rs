//! Errors of creating a volume.

use std::fmt;
use std::io;
use std::path::PathBuf;

use hemi_engine::format::LayoutError;
use hemi_engine::format::superblock::NameError;
use hemi_engine::identifiers::LEGS_MAX;

use super::{LEGS_MIN, MISSING, Share, twins};
use hemi_io::config::legs::LegSpecError;
use hemi_io::leg::OpenError;
use hemi_io::probe::{Content, ProbeError, Use};
use hemi_io::signature;
use hemi_io::twin::InUse;
use hemi_units::Size;

/// The reason why a volume was not created. Nothing has been changed, with two exceptions:
/// [`CreateError::Write`] leaves legs that hold no volume, and [`CreateError::Folder`] leaves a volume whose
/// files may not survive a power cut.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// There are too few or too many legs.
    #[error(
        "a volume has {LEGS_MIN} to {LEGS_MAX} legs, not {0}; name each with --leg, or a \
         second one that comes later with --leg {MISSING}"
    )]
    LegCount(usize),
    /// Another leg than the second of two is to come later.
    #[error(
        "--leg {MISSING} keeps the place of the second of two legs, and {legs} other legs are named \
         beside {missing} that are missing; name one leg and --leg {MISSING}, and add more later: \
         hemi leg add"
    )]
    Missing {
        /// The number of legs named.
        legs: usize,
        /// The number of legs missing.
        missing: usize,
    },
    /// A leg's name was not understood.
    #[error(transparent)]
    Spec(#[from] LegSpecError),
    /// The size or the region size is not possible.
    #[error(transparent)]
    Layout(LayoutError),
    /// The leg has no room even for the smallest volume.
    #[error(
        "{0} has no room for the smallest volume: metadata takes 2 MiB at least, and 1 MiB more in \
         a file of its own or on a member of a stripe"
    )]
    NoRoom(String),
    /// The size is to be the largest, and a leg has no size yet.
    #[error(
        "{} has no size yet, and the volume is to be as large as its legs can hold; name the size \
         (--size), or make the file first (truncate -s SIZE {})",
        .0.display(), .0.display()
    )]
    SizeOfNothing(PathBuf),
    /// The disk cannot be adopted.
    #[error("{} cannot be adopted: {reason}", path.display())]
    Adopt {
        /// Its path.
        path: PathBuf,
        /// The reason, and the way out.
        reason: String,
    },
    /// `--wipe` names the adopted disk.
    #[error("--wipe {} would destroy what --adopt keeps; leave one of them out", .0.display())]
    WipeAdopted(PathBuf),
    /// `--zero` is used together with `--adopt`.
    #[error("--zero makes all legs zeros, and --adopt takes the volume from a disk; leave one out")]
    ZeroAdopted,
    /// The name is not possible.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The name is a path.
    #[error(
        "--name {0:?} is not possible: the volume's sockets are named after it, so that it may \
         not contain a `/`, nor be `.` or `..`; choose a plain name, for example db-1"
    )]
    PathName(String),
    /// The name can be mistaken for another.
    #[error(
        "the name has the character U+{:04X}, which nobody sees and which can make it read as \
         another; choose a plain name, for example db-1",
        u32::from(*.0)
    )]
    HiddenCharacter(char),
    /// The size of the smallest request is not possible.
    #[error("the block size {asked} is not possible: {reason}")]
    BlockBytes {
        /// The size asked for.
        asked: u32,
        /// The reason.
        reason: String,
    },
    /// A drive is no standby of the volume, or cannot become a leg of it.
    #[error("{path} cannot take the place of a leg as a standby: {reason}")]
    NotStandby {
        /// The drive's spec.
        path: String,
        /// The reason in words.
        reason: String,
    },
    /// `--wipe` names something else than a leg.
    #[error("--wipe {} names none of the legs; name the leg exactly as after --leg", .0.display())]
    WipeWhat(PathBuf),
    /// A path could not be probed.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// Two legs are on the same storage.
    #[error(
        "{} and {} are the same {what}; each leg needs its own", first.display(), second.display()
    )]
    Same {
        /// The first leg's path.
        first: PathBuf,
        /// The second leg's path.
        second: PathBuf,
        /// The kind of storage: file or block device.
        what: &'static str,
    },
    /// The leg's storage is in use by another path, or seems to be.
    #[error("{}", twins::describe(path, used))]
    OtherPath {
        /// The leg, or the member of a stripe.
        path: String,
        /// The storage in use.
        used: InUse,
    },
    /// The leg is in use.
    #[error(
        "{} is in use: {}. Release it first; --wipe does not override this",
        path.display(), List(uses)
    )]
    InUse {
        /// The leg's path.
        path: PathBuf,
        /// Its uses.
        uses: Vec<Use>,
    },
    /// The leg is not empty.
    #[error(
        "{what} is not empty; it holds {}. If that may be destroyed, add --wipe {what}{}",
        List(contents),
        keeping(contents)
    )]
    NotEmpty {
        /// The leg, or the member of a stripe.
        what: String,
        /// Its content.
        contents: Vec<Content>,
    },
    /// The leg is too small.
    #[error(
        "{} has {has} bytes; for a volume of {} it needs {needs}, metadata included: {} bytes \
         more",
        path.display(), Size(*volume), needs - has
    )]
    TooSmall {
        /// The leg's path.
        path: PathBuf,
        /// Its size in bytes.
        has: u64,
        /// The size it needs in bytes.
        needs: u64,
        /// The volume's size in bytes.
        volume: u64,
    },
    /// No part of the leg can be left unused.
    #[error(
        "{} cannot have a spare part: {reason}. Leave --spare out for it: name the legs that are to \
         have one (--spare LEG=20%)",
        path.display()
    )]
    Spare {
        /// The leg, or the member of a stripe.
        path: PathBuf,
        /// The reason, and what to do instead.
        reason: &'static str,
    },
    /// `--spare` leaves too little of the leg.
    #[error(
        "{} has {usable} bytes beside the {share} that --spare leaves unused; for a volume of {} it \
         needs {needs}, metadata included. Make the volume smaller (--size max is the largest), or \
         spare less",
        path.display(), Size(*volume)
    )]
    NoSpare {
        /// The leg's path.
        path: PathBuf,
        /// The share asked for.
        share: Share,
        /// The part that may be used, in bytes.
        usable: u64,
        /// The size it needs in bytes.
        needs: u64,
        /// The volume's size in bytes.
        volume: u64,
    },
    /// `--spare` names something else than a leg.
    #[error("--spare {0} names none of the legs; name the leg exactly as after --leg")]
    SpareWhat(String),
    /// The leg could not be opened or created.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The leg could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The leg as named.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// The directory of a created file could not be flushed.
    #[error(
        "the volume was created, but its files may be gone from {} after a power cut: {source}",
        folder.display()
    )]
    Folder {
        /// The directory.
        folder: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The system returned no random bytes.
    #[error("the system returned no random bytes for the ids: {0}")]
    Random(io::Error),
    /// A write failed half-way.
    #[error("cannot {action} {path}: {source}. No volume was created; the legs may be used again")]
    Write {
        /// The action that failed.
        action: &'static str,
        /// The leg as named.
        path: String,
        /// The system's error.
        source: io::Error,
    },
}

/// Returns advice on keeping the content of a disk that holds a file system or the like.
fn keeping(contents: &[Content]) -> &'static str {
    let is_data = |content: &Content| {
        matches!(content, Content::Signature { .. })
            && !content.is_partition_table()
            && !signature::is_ours(content)
    };
    match contents {
        [content] if is_data(content) => {
            "; if the volume is to hold it, name the disk with --adopt instead of --leg"
        }
        _ => "",
    }
}

/// A list of items formatted as part of a sentence.
struct List<'a, T>(&'a [T]);

impl<T: fmt::Display> fmt::Display for List<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, item) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(formatter, "{separator}{item}")?;
        }
        Ok(())
    }
}
