//! The volume's own record: what the next superblock says.

use crate::format::superblock::Ancestor;
use crate::format::{BLOCK_BYTES, Id, LedgerMark, LegDescription, Membership, Superblock};
use crate::identifiers::{LEGS_MAX, LegIndex};
use crate::io::{LegTraits, OutReason};
use hemi_units::{Instant, SECTOR_BYTES};

/// The superblock as it is to be written, and where new ids come from.
pub(in crate::engine) struct VolumeRecord {
    superblock: Superblock,
    entropy: u64,
}

impl VolumeRecord {
    /// Takes over what recovery found, and what the driver says of the legs that are there.
    pub(in crate::engine) fn new(
        mut superblock: Superblock,
        traits: &[LegTraits; LEGS_MAX],
        entropy: u64,
    ) -> VolumeRecord {
        for (known, leg) in superblock.descriptions.iter_mut().zip(traits) {
            if !leg.description.is_empty() {
                *known = leg.description;
            }
        }
        VolumeRecord { superblock, entropy }
    }

    pub(in crate::engine) fn id(&self) -> Id {
        self.superblock.volume_id
    }

    pub(in crate::engine) fn generation(&self) -> Id {
        self.superblock.generation
    }

    pub(in crate::engine) fn join_epoch(&self) -> u64 {
        self.superblock.join_epoch
    }

    /// Returns the ledger that is relied on, if one is.
    pub(in crate::engine) fn ledger(&self) -> Option<LedgerMark> {
        self.superblock.ledger
    }

    /// Returns the smallest request, in sectors.
    pub(in crate::engine) fn block_sectors(&self) -> u64 {
        u64::from(self.superblock.block_bytes) / SECTOR_BYTES
    }

    pub(in crate::engine) fn region_bytes(&self) -> u64 {
        self.superblock.layout.region_bytes()
    }

    /// Returns the generation now and those before it.
    pub(in crate::engine) fn generations(&self) -> impl Iterator<Item = Id> {
        let past = self.superblock.ancestry.as_slice().iter().map(|past| past.generation);
        core::iter::once(self.superblock.generation).chain(past)
    }

    /// Returns the ids of the legs in the set.
    pub(in crate::engine) fn leg_ids(&self) -> impl Iterator<Item = Id> {
        let members = self.superblock.legs.iter().filter(|leg| leg.state != Membership::Empty);
        members.map(|leg| leg.id)
    }

    /// Returns true if a leg is in by this record, which may be ahead of what is in effect.
    pub(in crate::engine) fn is_in(&self, leg: LegIndex) -> bool {
        self.superblock.legs[leg.index()].state == Membership::In
    }

    /// Returns the legs that are in by this record.
    pub(in crate::engine) fn legs_in(&self) -> impl Iterator<Item = LegIndex> {
        (0..LEGS_MAX as u8).map(LegIndex).filter(|&leg| self.is_in(leg))
    }

    /// Says that the volume is served, and which ledger is relied on.
    pub(in crate::engine) fn open(&mut self, ledger: Option<LedgerMark>) {
        self.superblock.open = true;
        self.superblock.ledger = ledger;
    }

    /// Says that no ledger is relied on any more and, if it is clean, that the volume is closed.
    pub(in crate::engine) fn close(&mut self, is_clean: bool) {
        self.superblock.open = !is_clean;
        self.superblock.ledger = None;
    }

    /// Says whether a leg takes part.
    pub(in crate::engine) fn mark(&mut self, leg: LegIndex, membership: Membership) {
        self.superblock.legs[leg.index()].state = membership;
    }

    /// Gives a slot to a leg that joins, and is out until it has drained. Returns its join epoch.
    pub(in crate::engine) fn join(
        &mut self,
        leg: LegIndex,
        id: Id,
        description: LegDescription,
    ) -> u64 {
        self.superblock.join_epoch += 1;
        let record = &mut self.superblock.legs[leg.index()];
        record.id = id;
        record.join_epoch = self.superblock.join_epoch;
        record.state = Membership::Out(OutReason::Joining);
        self.superblock.descriptions[leg.index()] = description;
        self.superblock.join_epoch
    }

    /// Frees a leg's slot.
    pub(in crate::engine) fn remove(&mut self, leg: LegIndex) {
        self.superblock.legs[leg.index()] = Default::default();
        self.superblock.descriptions[leg.index()] = Default::default();
    }

    /// Begins a new random generation; the present one, which ends with the superblock of this
    /// sequence, becomes history. The generations of the superblocks `held` stay in it.
    pub(in crate::engine) fn begin_generation(
        &mut self,
        sequence: u64,
        held: &[u64],
        now: Instant,
    ) {
        let past = Ancestor { generation: self.superblock.generation, sequence };
        self.superblock.ancestry.push(past, held);
        self.superblock.generation = self.random_id(now);
    }

    /// Returns an id from the entropy the driver gave (SplitMix64 steps).
    pub(in crate::engine) fn random_id(&mut self, now: Instant) -> Id {
        let mut id = Id::default();
        for half in id.chunks_mut(8) {
            self.entropy = self.entropy.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = self.entropy ^ now.0.rotate_left(32);
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            half.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes());
        }
        if id == Id::default() { self.random_id(now) } else { id }
    }

    /// Fills the image of the superblock that goes to a slot of a leg.
    pub(in crate::engine) fn encode(
        &mut self,
        leg: LegIndex,
        sequence: u64,
        image: &mut [u8; BLOCK_BYTES],
        slot: u8,
    ) {
        self.superblock.leg = leg;
        self.superblock.sequence = sequence;
        self.superblock.encode(image, slot);
    }
}
