//! `hemi grow`: extends a volume into room that its legs have gained.
//!
//! Only metadata is written, and only on a closed volume ([`hemi_engine::recovery::grow`]). A served volume
//! is closed for that and reopened in the same process, as in an upgrade. In the new room, one leg's content
//! becomes the volume's: that of the first leg known to read as zeros there, else that of the first leg. The
//! others are filled from it.

use std::fs::File;
use std::io;

use hemi_engine::format::layout::VOLUME_GRAIN;
use hemi_engine::format::{Layout, Membership};
use hemi_engine::identifiers::LegIndex;
use hemi_engine::recovery::{self, GrowthError};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::control::volume::Snapshot;
use crate::create::rounded;
use crate::opening::{self, OpenOptions, OpenedVolume};
use crate::serve::ServeError;
use hemi_io::config::legs::LegSpec;
use hemi_io::leg::OpenLeg;
use hemi_io::probe::{self, Kind, Probe, Storage};
use hemi_units::Size;

/// The size to which a volume grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GrowTo {
    /// The largest size that all legs can hold.
    #[default]
    Max,
    /// A number of bytes, rounded down to a multiple of 4096.
    Bytes(u64),
}

/// The reason why a volume did not grow. Its size is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum GrowError {
    /// The volume cannot be opened.
    #[error(transparent)]
    Open(#[from] ServeError),
    /// The volume cannot have that size, at least not now.
    #[error(transparent)]
    Growth(#[from] GrowthError),
    /// A leg is too small.
    #[error("leg {leg} has {found} bytes, and a volume of {asked} needs {needed}")]
    TooSmall {
        /// The leg.
        leg: String,
        /// Its size in bytes.
        found: u64,
        /// The size asked for.
        asked: u64,
        /// The size it would need in bytes.
        needed: u64,
    },
    /// No leg has gained room.
    #[error("leg {leg} has no room for more than the volume's {bytes} bytes")]
    NoGain {
        /// The leg with the least room.
        leg: String,
        /// The volume's size in bytes.
        bytes: u64,
    },
    /// A write failed.
    #[error("leg {leg}: {source}. The volume opens as it is: run the command again")]
    Write {
        /// The leg.
        leg: String,
        /// The system's error.
        source: io::Error,
    },
}

impl GrowError {
    /// Returns the way out.
    pub fn way_out(&self) -> &'static str {
        match self {
            GrowError::Open(_) => "See the log.",
            GrowError::Growth(GrowthError::NoRoom { .. }) => {
                "Make a larger volume, and copy: the region table lies in front of the data."
            }
            GrowError::Growth(GrowthError::NotLarger { .. }) => "Name a larger size, or max.",
            GrowError::Growth(GrowthError::Layout(_)) => "Name a size that is a multiple of 4096.",
            GrowError::Growth(_) => "Try again then.",
            GrowError::TooSmall { .. } => "Name a smaller size, or grow the leg's device first.",
            GrowError::NoGain { .. } => {
                "Grow that leg's device first: truncate -s for a file, lvextend, the provider's console."
            }
            GrowError::Write { .. } => "hemi inspect shows what the legs hold.",
        }
    }
}

/// A volume that has grown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Grown {
    /// Its name.
    pub volume: String,
    /// Its previous size in bytes.
    pub before_bytes: u64,
    /// Its new size in bytes.
    pub size_bytes: u64,
    /// Slots of the legs that are whole in the new room. The others are filled from them.
    pub whole: Vec<u8>,
}

impl std::fmt::Display for Grown {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (before, after) = (Size(self.before_bytes), Size(self.size_bytes));
        write!(formatter, "volume {:?} has grown from {before} to {after}", self.volume)
    }
}

/// Grows the closed volume that the configuration names.
///
/// # Errors
/// [`GrowError`]. Nothing has been written, except with [`GrowError::Write`].
pub fn grow(config: &Config, to: GrowTo) -> Result<Grown, GrowError> {
    let options = OpenOptions {
        waiting: None,
        scan: config.scan.as_ref(),
        patience: config.wait_for_legs.duration(),
        start_degraded: false,
        ledger: &config.ledger,
        // A closed volume needs no ledger, and none is created.
        settle: true,
        accept_loss: false,
        settled: true,
        file: config.file.as_deref(),
    };
    let opened = opening::open(&config.legs, options)?;
    crate::serve::check(config, &opened)?;
    let before = opened.opening.superblock.layout;
    let bytes = match to {
        GrowTo::Bytes(bytes) => rounded(bytes),
        GrowTo::Max => largest(&opened, &before)?,
    };
    let whole = whole_legs(&opened, &before, bytes);
    let growth = recovery::grow(&opened.opening, bytes, whole)?;
    let needed = growth.layout.leg_bytes();
    if let Some((slot, leg)) = opened.legs.iter().find(|(_, leg)| leg.size() < needed) {
        let (leg, found) = (opened.leg_name(*slot), leg.size());
        return Err(GrowError::TooSmall { leg, found, asked: bytes, needed });
    }
    for step in &growth.steps {
        for write in step {
            let leg = leg_of(&opened, write.leg);
            leg.write_at(write.address, &write.block[..]).map_err(failed(&opened, write.leg))?;
        }
        for (slot, leg) in &opened.legs {
            leg.flush().map_err(failed(&opened, *slot))?;
        }
    }
    Ok(Grown {
        volume: opened.name(),
        before_bytes: before.volume_bytes(),
        size_bytes: bytes,
        whole: (0..8).filter(|slot| whole >> slot & 1 == 1).collect(),
    })
}

/// Checks a request to grow a served volume by what is known of its legs without opening them, so that what
/// cannot be is refused before the volume is closed. A leg of several devices, or elsewhere, is not looked at.
///
/// # Errors
/// [`GrowError`], as [`grow`] returns it.
pub(crate) fn check(snapshot: &Snapshot, to: GrowTo) -> Result<(), GrowError> {
    let identity = &snapshot.identity;
    let layout =
        Layout::new(identity.size_bytes, identity.region_bytes).map_err(GrowthError::from)?;
    let sizes = || {
        snapshot.legs.iter().filter_map(|leg| {
            let Ok(LegSpec::Path(path)) = leg.path.parse() else { return None };
            Some((&leg.name, Storage::of(&std::fs::metadata(path).ok()?)?.size()))
        })
    };
    let bytes = match to {
        GrowTo::Bytes(bytes) => rounded(bytes),
        GrowTo::Max => {
            let Some((leg, least)) = sizes().min_by_key(|(_, size)| *size) else { return Ok(()) };
            return gain(&layout, leg, least).map(drop);
        }
    };
    let needed = recovery::grown(&layout, bytes)?.leg_bytes();
    match sizes().find(|(_, size)| *size < needed) {
        None => Ok(()),
        Some((leg, found)) => {
            let leg = leg.clone();
            Err(GrowError::TooSmall { leg, found, asked: bytes, needed })
        }
    }
}

/// Returns the size that a volume can grow to by its smallest leg.
fn gain(layout: &Layout, leg: &str, least: u64) -> Result<u64, GrowError> {
    let room = least.saturating_sub(layout.data_offset()) / VOLUME_GRAIN * VOLUME_GRAIN;
    let bytes = room.min(recovery::largest(layout));
    if bytes > layout.volume_bytes() {
        return Ok(bytes);
    }
    Err(GrowError::NoGain { leg: leg.to_owned(), bytes: layout.volume_bytes() })
}

fn failed(opened: &OpenedVolume, slot: LegIndex) -> impl FnOnce(io::Error) -> GrowError {
    let leg = opened.leg_name(slot);
    move |source| GrowError::Write { leg, source }
}

/// Returns the leg in a slot.
fn leg_of(opened: &OpenedVolume, slot: LegIndex) -> &OpenLeg {
    let found = opened.legs.iter().find(|(known, _)| *known == slot);
    &found.expect("a volume with an absent leg that is in does not grow").1
}

/// Returns the largest size that all legs and the room for the region table allow.
fn largest(opened: &OpenedVolume, layout: &Layout) -> Result<u64, GrowError> {
    let Some((slot, least)) = opened.legs.iter().min_by_key(|(_, leg)| leg.size()) else {
        return Ok(layout.volume_bytes());
    };
    gain(layout, &opened.leg_name(*slot), least.size())
}

/// Returns the legs whose content in the new room is identical: those known to read as zeros there, else the
/// first leg that is in.
fn whole_legs(opened: &OpenedVolume, before: &Layout, bytes: u64) -> u8 {
    let superblock = &opened.opening.superblock;
    let is_in = |slot: &LegIndex| superblock.legs[slot.index()].state == Membership::In;
    let start = before.data_offset() + before.volume_bytes();
    let end = before.data_offset().saturating_add(bytes);
    let mut whole = 0;
    for known in &opened.identities {
        let slot = LegIndex(known.leg);
        if is_in(&slot) && reads_as_zeros(&known.path, start, end) {
            whole |= slot.bit();
        }
    }
    if whole == 0 {
        let first = opened.legs.iter().map(|(slot, _)| *slot).filter(is_in).min();
        whole = first.map_or(0, LegIndex::bit);
    }
    whole
}

/// Returns true if a leg is a regular file that has never been written in that range.
fn reads_as_zeros(leg: &str, start: u64, end: u64) -> bool {
    let Ok(LegSpec::Path(path)) = leg.parse() else { return false };
    let is_file = Probe::new(&path).is_ok_and(|probe| probe.kind == Kind::File);
    is_file && File::open(&path).is_ok_and(|file| probe::reads_as_zeros(&file, start, end))
}
