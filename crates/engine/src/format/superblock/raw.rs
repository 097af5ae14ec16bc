//! The superblock's bytes.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned, transmute_mut};

use crate::format::Id;
use crate::format::block::{BLOCK_BYTES, Block, SECTOR_PAYLOAD_BYTES, Sector};
use crate::format::description::LegDescription;
use crate::format::layout::Layout;
use crate::format::ledger::LedgerMark;
use crate::identifiers::{LEGS_MAX, LegIndex};
use crate::io::OutReason;

use super::{
    ANCESTRY_MAX, Ancestor, Ancestry, FLAG_LEDGER, FLAGS_KNOWN, LegRecord, MAGIC, Membership,
    NAME_BYTES_MAX, Name, Superblock, SuperblockError, VERSION,
};

/// Sectors that hold past generations.
const ANCESTRY_SECTORS: usize = 4;
const ANCESTORS_PER_SECTOR: usize = ANCESTRY_MAX / ANCESTRY_SECTORS;
/// No boot indicator, so that no partition prober takes the sector for a partition table,
/// whatever bytes the checksum puts where a boot sector has its signature.
const NOT_A_PARTITION_TABLE: u8 = 0xFF;

/// The beginning of every sector in use: a superblock's sectors are certified without the
/// volume's id, so they carry it, and sectors of two volumes never pass for one superblock.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHead {
    magic: [u8; 8],
    volume_id: Id,
}
const _: () = assert!(size_of::<RawHead>() == 24);

/// Sector 0.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawIdentity {
    head: RawHead,
    version: U32,
    block_bytes: U32,
    flags_incompatible: U64,
    volume_bytes: U64,
    region_bytes: U64,
    data_offset: U64,
    generation: Id,
    join_epoch: U64,
    created: U64,
    leg: u8,
    open: u8,
    ancestry_count: u8,
    name_bytes: u8,
    reserved: [u8; 4],
    name: [u8; NAME_BYTES_MAX],
    /// The ledger relied on, with the feature that says so. Zeros without it.
    ledger_opening: U64,
    ledger_boot: Id,
    unused: [u8; 254],
    /// Byte 446, where a boot sector has the boot indicator of its first partition.
    guard: u8,
    unused_too: [u8; 49],
}
const _: () = assert!(size_of::<RawIdentity>() == SECTOR_PAYLOAD_BYTES);
const _: () = assert!(core::mem::offset_of!(RawIdentity, name) == 104);
const _: () = assert!(core::mem::offset_of!(RawIdentity, guard) == 446);

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawLeg {
    id: Id,
    join_epoch: U64,
    state: u8,
    reason: u8,
    reserved: [u8; 6],
}
const _: () = assert!(size_of::<RawLeg>() == 32);

/// Sector 1.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawLegs {
    head: RawHead,
    legs: [RawLeg; LEGS_MAX],
    unused: [u8; 216],
}
const _: () = assert!(size_of::<RawLegs>() == SECTOR_PAYLOAD_BYTES);

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawAncestor {
    generation: Id,
    sequence: U64,
}
const _: () = assert!(size_of::<RawAncestor>() == 24);

/// Sectors 3 to 6.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawAncestors {
    head: RawHead,
    ancestors: [RawAncestor; ANCESTORS_PER_SECTOR],
    unused: [u8; 88],
}
const _: () = assert!(size_of::<RawAncestors>() == SECTOR_PAYLOAD_BYTES);

/// Descriptions in each of the two sectors that hold them.
const DESCRIPTIONS_PER_SECTOR: usize = LEGS_MAX / 2;

/// Sectors 2 and 7. Without a head, and zeros where one would be: in sector 2, ext and minix
/// file systems have their two-byte magic numbers there, which random ids would sooner or
/// later imitate. Text does not.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawDescriptions {
    unused: [u8; 64],
    descriptions: [LegDescription; DESCRIPTIONS_PER_SECTOR],
}
const _: () = assert!(size_of::<RawDescriptions>() == SECTOR_PAYLOAD_BYTES);

/// A superblock's block.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawSuperblock {
    identity: Sector<RawIdentity>,
    legs: Sector<RawLegs>,
    descriptions_low: Sector<RawDescriptions>,
    ancestors: [Sector<RawAncestors>; ANCESTRY_SECTORS],
    descriptions_high: Sector<RawDescriptions>,
}
const _: () = assert!(size_of::<RawSuperblock>() == BLOCK_BYTES);

impl RawSuperblock {
    /// Returns true if any sector begins as a superblock's does.
    pub(super) fn has_magic(&self) -> bool {
        self.heads().any(|head| head.magic == MAGIC)
    }

    fn heads(&self) -> impl Iterator<Item = RawHead> + '_ {
        let ancestors = self.ancestors.iter().map(|sector| sector.payload.head);
        [self.identity.payload.head, self.legs.payload.head].into_iter().chain(ancestors)
    }

    /// Takes the fields out of a valid block; their agreement is checked by the caller.
    pub(super) fn parse(&self, sequence: u64) -> Result<Superblock, SuperblockError> {
        let identity = &self.identity.payload;
        if identity.head.magic != MAGIC {
            return Err(SuperblockError::NotHemi);
        }
        let found = identity.version.get();
        if found != VERSION {
            return Err(SuperblockError::Version { found });
        }
        let unknown = identity.flags_incompatible.get() & !FLAGS_KNOWN;
        if unknown != 0 {
            return Err(SuperblockError::Features { unknown });
        }
        if self.heads().any(|head| head != identity.head) {
            return Err(SuperblockError::Damaged { newest: Some(sequence) });
        }
        let layout = Layout::new(identity.volume_bytes.get(), identity.region_bytes.get())?;
        if identity.data_offset.get() != layout.data_offset() {
            let value = identity.data_offset.get();
            return Err(SuperblockError::Field { field: "the data offset", value });
        }
        if identity.open > 1 {
            let value = identity.open.into();
            return Err(SuperblockError::Field { field: "the open mark", value });
        }
        let relies = identity.flags_incompatible.get() & FLAG_LEDGER != 0;
        let opening = identity.ledger_opening.get();
        let mark = LedgerMark { opening, boot: identity.ledger_boot };
        Ok(Superblock {
            volume_id: identity.head.volume_id,
            name: identity.parse_name()?,
            layout,
            block_bytes: identity.block_bytes.get(),
            created: identity.created.get(),
            leg: LegIndex(identity.leg),
            sequence,
            generation: identity.generation,
            ancestry: self.parse_ancestry()?,
            open: identity.open == 1,
            ledger: relies.then_some(mark),
            join_epoch: identity.join_epoch.get(),
            legs: self.parse_legs()?,
            descriptions: self.parse_descriptions(),
        })
    }

    fn parse_descriptions(&self) -> [LegDescription; LEGS_MAX] {
        let sectors = [&self.descriptions_low.payload, &self.descriptions_high.payload];
        let mut descriptions = sectors.iter().flat_map(|sector| sector.descriptions);
        core::array::from_fn(|_| descriptions.next().unwrap_or_default())
    }

    fn parse_ancestry(&self) -> Result<Ancestry, SuperblockError> {
        let count = usize::from(self.identity.payload.ancestry_count);
        if count > ANCESTRY_MAX {
            let value = count as u64;
            return Err(SuperblockError::Field { field: "the number of past generations", value });
        }
        let mut ancestry = Ancestry { count, ..Ancestry::default() };
        let raw = self.ancestors.iter().flat_map(|sector| &sector.payload.ancestors);
        for (ancestor, raw) in ancestry.ancestors[..count].iter_mut().zip(raw) {
            *ancestor = Ancestor { generation: raw.generation, sequence: raw.sequence.get() };
        }
        Ok(ancestry)
    }

    fn parse_legs(&self) -> Result<[LegRecord; LEGS_MAX], SuperblockError> {
        let mut legs = [LegRecord::default(); LEGS_MAX];
        for ((record, raw), leg) in legs.iter_mut().zip(&self.legs.payload.legs).zip(0u8..) {
            let Some(state) = parse_state(raw.state, raw.reason) else {
                return Err(SuperblockError::Leg { leg, problem: "a state that does not exist" });
            };
            *record = LegRecord { id: raw.id, join_epoch: raw.join_epoch.get(), state };
        }
        Ok(legs)
    }
}

impl RawIdentity {
    fn parse_name(&self) -> Result<Name, SuperblockError> {
        let bytes = usize::from(self.name_bytes);
        match self.name.get(..bytes) {
            Some(name) => Ok(Name::from_bytes(name)?),
            None => Err(super::NameError::TooLong { bytes }.into()),
        }
    }
}

fn parse_state(state: u8, reason: u8) -> Option<Membership> {
    Some(match (state, reason) {
        (0, 0) => Membership::Empty,
        (1, 0) => Membership::In,
        (2, 1) => Membership::Out(OutReason::Unresponsive),
        (2, 2) => Membership::Out(OutReason::Removed),
        (2, 3) => Membership::Out(OutReason::WriteErrors),
        (2, 4) => Membership::Out(OutReason::Detached),
        (2, 5) => Membership::Out(OutReason::Joining),
        _ => return None,
    })
}

fn state_bytes(state: Membership) -> (u8, u8) {
    match state {
        Membership::Empty => (0, 0),
        Membership::In => (1, 0),
        Membership::Out(OutReason::Unresponsive) => (2, 1),
        Membership::Out(OutReason::Removed) => (2, 2),
        Membership::Out(OutReason::WriteErrors) => (2, 3),
        Membership::Out(OutReason::Detached) => (2, 4),
        Membership::Out(OutReason::Joining) => (2, 5),
    }
}

/// Fills in everything but the trailers.
pub(super) fn fill(superblock: &Superblock, block: &mut Block) {
    let raw: &mut RawSuperblock = transmute_mut!(block);
    raw.zero();
    let head = RawHead { magic: MAGIC, volume_id: superblock.volume_id };
    fill_identity(superblock, &mut raw.identity.payload);
    raw.identity.payload.head = head;
    raw.legs.payload.head = head;
    for (raw, record) in raw.legs.payload.legs.iter_mut().zip(&superblock.legs) {
        raw.id = record.id;
        raw.join_epoch = U64::new(record.join_epoch);
        (raw.state, raw.reason) = state_bytes(record.state);
    }
    let (low, high) = superblock.descriptions.split_at(DESCRIPTIONS_PER_SECTOR);
    raw.descriptions_low.payload.descriptions.copy_from_slice(low);
    raw.descriptions_high.payload.descriptions.copy_from_slice(high);
    for sector in &mut raw.ancestors {
        sector.payload.head = head;
    }
    let ancestors = raw.ancestors.iter_mut().flat_map(|sector| &mut sector.payload.ancestors);
    for (raw, ancestor) in ancestors.zip(superblock.ancestry.as_slice()) {
        raw.generation = ancestor.generation;
        raw.sequence = U64::new(ancestor.sequence);
    }
}

fn fill_identity(superblock: &Superblock, raw: &mut RawIdentity) {
    raw.version = U32::new(VERSION);
    raw.block_bytes = U32::new(superblock.block_bytes);
    raw.flags_incompatible = U64::ZERO;
    if let Some(mark) = superblock.ledger {
        raw.flags_incompatible = U64::new(FLAG_LEDGER);
        raw.ledger_opening = U64::new(mark.opening);
        raw.ledger_boot = mark.boot;
    }
    raw.volume_bytes = U64::new(superblock.layout.volume_bytes());
    raw.region_bytes = U64::new(superblock.layout.region_bytes());
    raw.data_offset = U64::new(superblock.layout.data_offset());
    raw.generation = superblock.generation;
    raw.join_epoch = U64::new(superblock.join_epoch);
    raw.created = U64::new(superblock.created);
    raw.leg = superblock.leg.0;
    raw.open = superblock.open.into();
    let name = superblock.name.as_str().as_bytes();
    // A name and an ancestry are never longer than their places: their types see to it.
    raw.name_bytes = name.len() as u8;
    raw.ancestry_count = superblock.ancestry.as_slice().len() as u8;
    for (raw, byte) in raw.name.iter_mut().zip(name) {
        *raw = *byte;
    }
    raw.guard = NOT_A_PARTITION_TABLE;
}
