//! The superblock: which volume a leg belongs to, with which other legs, and its history.
//!
//! Each leg has two slots, written in turn, so that one is always intact. A field that is
//! out of range or contradicts another is refused by name: a superblock that decodes is
//! consistent in itself. Whether it is the newest of its volume is for the engine to say.

use alloc::string::String;

use crate::identifiers::{LEGS_MAX, LegIndex};
use crate::io::OutReason;

use super::Id;
use super::block::{self, Block, BlockState, Kind};
use super::description::LegDescription;
use super::layout::{Layout, LayoutError};
use super::ledger::LedgerMark;
use super::standby::Standby;

mod raw;

use raw::RawSuperblock;

/// The first bytes of every leg.
pub const MAGIC: [u8; 8] = *b"HEMIVOL\0";
/// The format version this code reads and writes. A reader refuses every other.
pub const VERSION: u32 = 1;
/// An incompatible feature: the volume was opened relying on a ledger, without which its regions
/// are not recovered as they were.
pub const FLAG_LEDGER: u64 = 1;
/// Incompatible features this code knows. A reader refuses a superblock that names others.
pub const FLAGS_KNOWN: u64 = FLAG_LEDGER;
/// Longest volume name, in bytes of UTF-8.
pub const NAME_BYTES_MAX: usize = 64;
/// Most past generations kept.
pub const ANCESTRY_MAX: usize = 64;

/// A volume's name: at most [`NAME_BYTES_MAX`] bytes of UTF-8 without control characters;
/// may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Name(String);

/// The reason why a text cannot be a volume's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Too long.
    #[error("the name has {bytes} bytes, more than 64")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// A control character, which has no business in a log or on a terminal.
    #[error("the name has a control character (byte {position})")]
    Control {
        /// Its place, in bytes from the beginning.
        position: usize,
    },
    /// Not UTF-8.
    #[error("the name is not UTF-8 (byte {position})")]
    NotUtf8 {
        /// Its place, in bytes from the beginning.
        position: usize,
    },
}

impl Name {
    /// Checks and takes a name.
    ///
    /// # Errors
    /// See [`NameError`].
    pub fn new(text: &str) -> Result<Name, NameError> {
        if text.len() > NAME_BYTES_MAX {
            return Err(NameError::TooLong { bytes: text.len() });
        }
        match text.char_indices().find(|(_, character)| character.is_control()) {
            Some((position, _)) => Err(NameError::Control { position }),
            None => Ok(Name(text.into())),
        }
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Name, NameError> {
        let text = core::str::from_utf8(bytes)
            .map_err(|error| NameError::NotUtf8 { position: error.valid_up_to() })?;
        Name::new(text)
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A generation the volume went through before its present one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ancestor {
    /// The generation.
    pub generation: Id,
    /// The superblock sequence at which the next one took over.
    pub sequence: u64,
}

/// The latest past generations, newest first, and older ones that a leg may still be of:
/// [`ANCESTRY_MAX`] in all.
///
/// Two legs whose present generations are each in the other's past, or in neither's, went
/// different ways: a fork.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ancestry {
    ancestors: [Ancestor; ANCESTRY_MAX],
    count: usize,
}

impl Default for Ancestry {
    fn default() -> Ancestry {
        Ancestry { ancestors: [Ancestor::default(); ANCESTRY_MAX], count: 0 }
    }
}

impl Ancestry {
    /// Puts a generation that has just become past before all others. When there are too many, the
    /// oldest falls off of which none of the superblocks `held` is, by their sequences; if there is
    /// none such, the oldest of all.
    pub fn push(&mut self, ancestor: Ancestor, held: &[u64]) {
        if self.count == ANCESTRY_MAX {
            let needed = |&at: &usize| held.iter().any(|&sequence| self.is_of(at, sequence));
            let falls = (0..self.count).rev().find(|at| !needed(at)).unwrap_or(self.count - 1);
            self.ancestors[falls..self.count].rotate_left(1);
            self.count -= 1;
        }
        self.count += 1;
        self.ancestors[..self.count].rotate_right(1);
        self.ancestors[0] = ancestor;
    }

    /// Returns true if a superblock of this sequence is of the past generation at `at`.
    fn is_of(&self, at: usize, sequence: u64) -> bool {
        let before = self.as_slice().get(at + 1).map(|older| older.sequence);
        before.is_none_or(|before| sequence > before) && sequence <= self.ancestors[at].sequence
    }

    /// The past generations, newest first.
    pub fn as_slice(&self) -> &[Ancestor] {
        &self.ancestors[..self.count]
    }

    /// The entry for a generation, if it is a past one that is still kept.
    pub fn find(&self, generation: Id) -> Option<Ancestor> {
        self.as_slice().iter().find(|ancestor| ancestor.generation == generation).copied()
    }
}

/// The state of a slot of the leg set: empty, or a leg that may decide, or one that may not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Membership {
    /// The slot is free.
    #[default]
    Empty,
    /// The leg is part of the volume.
    In,
    /// The leg is durably excluded until it has drained.
    Out(OutReason),
}

/// One slot of the leg set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LegRecord {
    /// The leg's random id; zeros in an empty slot only.
    pub id: Id,
    /// The epoch in which it joined, or was found to have missed a clean close. Metadata written in an
    /// earlier join epoch says nothing about it.
    pub join_epoch: u64,
    /// Its part in the volume.
    pub state: Membership,
}

/// A superblock. See the module's page; fields marked *set at creation* never change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The volume's random id, not zeros. *Set at creation.*
    pub volume_id: Id,
    /// The name that people call the volume by. *Set at creation.*
    pub name: Name,
    /// The places of everything, with the volume's size and region size. *Set at creation.*
    pub layout: Layout,
    /// The smallest request, in bytes: 512 or 4096. *Set at creation.*
    pub block_bytes: u32,
    /// Time of the volume's creation, in seconds since 1970. *Set at creation.*
    pub created: u64,
    /// The leg that this superblock is on. Its slot in `legs` is not empty.
    pub leg: LegIndex,
    /// The block's sequence: the newest of a volume's superblocks of one generation has the
    /// highest.
    pub sequence: u64,
    /// The random id of the present generation, not zeros.
    pub generation: Id,
    /// The generations before.
    pub ancestry: Ancestry,
    /// True if the volume is being served, or was when hemi was killed.
    pub open: bool,
    /// The ledger that is relied on, if one is. Only an open volume relies on one.
    pub ledger: Option<LedgerMark>,
    /// The volume's highest join epoch.
    pub join_epoch: u64,
    /// The leg set, by slot.
    pub legs: [LegRecord; LEGS_MAX],
    /// The legs' devices as last seen, by slot. For people only: nothing is decided by them.
    pub descriptions: [LegDescription; LEGS_MAX],
}

/// The reason why a slot holds no superblock to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuperblockError {
    /// All zeros.
    #[error("there is no hemi superblock (only zeros)")]
    Blank,
    /// Something else.
    #[error("there is no hemi superblock")]
    NotHemi,
    /// A standby's superblock: the drive waits to become a leg.
    #[error("it is a standby of a volume, and no leg of it")]
    Standby,
    /// A write that was cut in two, hence never durable: to be ignored.
    #[error("the superblock's last write (sequence {newest}) was interrupted")]
    Torn {
        /// The highest sequence seen.
        newest: u64,
    },
    /// A hemi superblock, but damaged.
    #[error("the hemi superblock is damaged")]
    Damaged {
        /// The highest sequence among its valid sectors.
        newest: Option<u64>,
    },
    /// Written by another version.
    #[error(
        "the format version is {found}, this version of hemi knows {VERSION}; use a newer hemi"
    )]
    Version {
        /// The version found.
        found: u32,
    },
    /// Written with features this version does not have.
    #[error(
        "the format has features {unknown:#x} that this version of hemi lacks; use a newer hemi"
    )]
    Features {
        /// The bits that are not known.
        unknown: u64,
    },
    /// The sizes make no layout.
    #[error("the superblock contradicts itself: {0}")]
    Layout(#[from] LayoutError),
    /// The name is not one.
    #[error("the superblock contradicts itself: {0}")]
    Name(#[from] NameError),
    /// A field has a value it cannot have.
    #[error("the superblock contradicts itself: {field} is {value}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A leg's record contradicts the rest.
    #[error("the superblock contradicts itself: the record of leg {leg} has {problem}")]
    Leg {
        /// The slot.
        leg: u8,
        /// The problem, in words.
        problem: &'static str,
    },
}

impl Superblock {
    /// Fills in and seals the superblock for one slot.
    ///
    /// The caller keeps to the rules [`Superblock::check`] states; in debug builds a breach
    /// panics, in others the leg will refuse to open.
    pub fn encode(&self, block: &mut Block, slot: u8) {
        debug_assert_eq!(self.check(), Ok(()), "an inconsistent superblock is being written");
        raw::fill(self, block);
        let address = Layout::superblock_address(slot);
        block::seal(block, Kind::SUPERBLOCK, address, Id::default(), self.sequence);
    }

    /// Judges and decodes a slot.
    ///
    /// # Errors
    /// See [`SuperblockError`].
    pub fn decode(block: &Block, slot: u8) -> Result<Superblock, SuperblockError> {
        let address = Layout::superblock_address(slot);
        let state = block::open(block, Kind::SUPERBLOCK, address, Id::default());
        let raw: &RawSuperblock = zerocopy::transmute_ref!(block);
        let sequence = match state {
            BlockState::Valid { sequence } => sequence,
            BlockState::Blank => return Err(SuperblockError::Blank),
            BlockState::Torn { newest } => return Err(SuperblockError::Torn { newest }),
            BlockState::Damaged { newest: None } if !raw.has_magic() => {
                return Err(SuperblockError::NotHemi);
            }
            BlockState::Damaged { newest: None } if Standby::decode(block, slot).is_some() => {
                return Err(SuperblockError::Standby);
            }
            BlockState::Damaged { newest } => return Err(SuperblockError::Damaged { newest }),
        };
        let superblock = raw.parse(sequence)?;
        superblock.check()?;
        Ok(superblock)
    }

    /// The record of the leg this superblock is on.
    pub fn own_record(&self) -> LegRecord {
        self.legs.get(self.leg.index()).copied().unwrap_or_default()
    }

    /// Checks that the fields agree with each other: the block size is 512 or 4096; ids are not
    /// zeros; only an open volume relies on a ledger; this leg's slot is not empty; empty slots are all zeros; no id is there twice;
    /// no leg joined after the volume's highest join epoch, which is below
    /// [`block::SEQUENCE_END`].
    ///
    /// # Errors
    /// The first field that does not agree.
    pub fn check(&self) -> Result<(), SuperblockError> {
        let field = |field, value| Err(SuperblockError::Field { field, value });
        if self.block_bytes != 512 && self.block_bytes != 4096 {
            return field("the block size", self.block_bytes.into());
        }
        if self.volume_id == Id::default() {
            return field("the volume id", 0);
        }
        if self.generation == Id::default() {
            return field("the generation", 0);
        }
        if self.leg.index() >= LEGS_MAX {
            return field("the leg's slot", self.leg.0.into());
        }
        if let Some(mark) = self.ledger
            && (mark.opening == 0 || mark.boot == Id::default() || !self.open)
        {
            return field("the opening of the ledger", mark.opening);
        }
        if self.join_epoch >= block::SEQUENCE_END {
            return field("the join epoch", self.join_epoch);
        }
        if self.ancestry.as_slice().iter().any(|ancestor| ancestor.generation == Id::default()) {
            return field("a past generation", 0);
        }
        for (record, leg) in self.legs.iter().zip(0u8..) {
            if let Some(problem) = self.problem_of(record, leg) {
                return Err(SuperblockError::Leg { leg, problem });
            }
        }
        Ok(())
    }

    fn problem_of(&self, record: &LegRecord, leg: u8) -> Option<&'static str> {
        if record.state == Membership::Empty {
            if leg == self.leg.0 {
                return Some("no leg, though this superblock is that leg's");
            }
            return (*record != LegRecord::default()).then_some("an id or epoch but no leg");
        }
        if record.id == Id::default() {
            return Some("no id");
        }
        if record.join_epoch > self.join_epoch {
            return Some("a join epoch beyond the volume's");
        }
        let twice = self.legs.iter().filter(|other| other.id == record.id).count() > 1;
        twice.then_some("the id of another leg")
    }
}
