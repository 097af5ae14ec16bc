//! The commands that an operator may give a running engine.

use crate::identifiers::LegIndex;
use crate::io::LegTraits;
use crate::settings::Settings;
use hemi_units::Extent;

/// The extents that a scrub rewrites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubRepair {
    /// None.
    Nothing,
    /// Those that a leg cannot read: others hold their content. Differences are left, since nobody
    /// knows which leg is right.
    Unreadable,
    /// Those that a leg cannot read, and those that differ from this leg.
    From(LegIndex),
}

/// A control command. Its outcome arrives as [`crate::io::Action::CommandDone`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Make the leg whole if it can be, mark it out durably on the others, close its
    /// superblock, and use it no more.
    Detach {
        /// The leg.
        leg: LegIndex,
    },
    /// A leg has been put into this slot, which is empty or whose leg is out and does not answer: it
    /// joins with nothing and drains everything. The leg that was there is forgotten in the same step.
    Join {
        /// The slot.
        leg: LegIndex,
        /// The new leg's random id.
        id: [u8; 16],
        /// The driver's knowledge of it.
        traits: LegTraits,
    },
    /// Forget a leg that is out or detached: its slot becomes empty.
    Remove {
        /// The leg.
        leg: LegIndex,
    },
    /// Compare all legs, extent by extent under a range lock.
    Scrub {
        /// The extents to rewrite.
        repair: ScrubRepair,
        /// The part of the volume.
        extent: Extent,
    },
    /// Write all metadata of a leg again: it was found to be lost there.
    RewriteMetadata {
        /// The leg.
        leg: LegIndex,
    },
    /// Stop a running scrub.
    ScrubStop,
    /// Go on with these settings in place of those in use.
    ///
    /// A bound that comes to lie below what is held already takes nothing back: writers wait
    /// until what is held has fallen below it.
    Configure {
        /// The new settings. Those that bound memory have to be as they are.
        settings: Settings,
    },
    /// Stop taking requests, drain until `drain_until`, flush, mark every whole leg and
    /// close the superblocks.
    Close {
        /// Give up draining at this time; what is still owed is recorded.
        drain_until: hemi_units::Instant,
    },
}

/// The reason why a command was refused or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum CommandError {
    /// The slot holds no leg.
    #[error("no leg in that slot")]
    NoSuchLeg,
    /// The slot is in use.
    #[error("that slot holds a leg already")]
    SlotInUse,
    /// No other leg is complete: detaching or removing this one would lose data.
    #[error("no other leg holds everything yet")]
    LastCompleteLeg,
    /// There is no other leg, or all others are out for good: detaching this one would leave
    /// the volume with nothing.
    #[error("the volume has no other leg in use")]
    OnlyLeg,
    /// No other leg can record that this one is out: writes of their metadata keep failing.
    #[error("no other leg can record it: their metadata cannot be written")]
    Unrecorded,
    /// The leg is still in: detach it first.
    #[error("the leg is in use; detach it first")]
    LegInUse,
    /// An I/O of the slot's leg is still in flight, or a read for it on another leg is. It may
    /// still land, and must find the leg it was for.
    #[error("an I/O of the leg in that slot is still in flight")]
    IoInFlight,
    /// Another command of the kind is running.
    #[error("another such command is still running")]
    Busy,
    /// The setting cannot change while the engine runs.
    #[error("{0} cannot change while the volume is served")]
    FixedSetting(&'static str),
    /// No engine can run with the setting.
    #[error("no volume can be served with this {0}")]
    BadSetting(&'static str),
    /// The volume is closing.
    #[error("the volume is closing")]
    Closing,
    /// Legs differ, or one cannot read an extent, and it was not rewritten.
    #[error("scrub found differences")]
    Mismatches,
}
