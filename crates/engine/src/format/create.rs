//! The metadata of a leg of a new volume, block by block.

use super::superblock::{Ancestry, Name, Superblock};
use super::{Block, Id, Layout, LegRecord, Membership, RegionEntry, block, lost, page};
use crate::identifiers::{LEGS_MAX, LegIndex};

/// The join epoch of the legs a volume is created with; zero is before every join.
pub const FIRST_JOIN_EPOCH: u64 = 1;

/// A volume that is about to be.
#[derive(Clone, Debug)]
pub struct NewVolume<'a> {
    /// Its id.
    pub id: Id,
    /// Its first generation.
    pub generation: Id,
    /// Its legs' ids, by slot; at most [`LEGS_MAX`].
    pub legs: &'a [Id],
    /// Its name.
    pub name: Name,
    /// Sizes.
    pub layout: Layout,
    /// The block clients see, in bytes.
    pub block_bytes: u32,
    /// Seconds since 1970.
    pub created: u64,
}

impl NewVolume<'_> {
    /// The superblock of the leg in a slot: closed, every leg in, sequence 1, no descriptions.
    pub fn superblock(&self, leg: LegIndex) -> Superblock {
        let mut legs = [LegRecord::default(); LEGS_MAX];
        for (record, id) in legs.iter_mut().zip(self.legs) {
            *record = LegRecord { id: *id, join_epoch: FIRST_JOIN_EPOCH, state: Membership::In };
        }
        Superblock {
            volume_id: self.id,
            name: self.name.clone(),
            layout: self.layout,
            block_bytes: self.block_bytes,
            created: self.created,
            leg,
            sequence: 1,
            generation: self.generation,
            ancestry: Ancestry::default(),
            open: false,
            ledger: None,
            join_epoch: FIRST_JOIN_EPOCH,
            legs,
            descriptions: Default::default(),
        }
    }

    /// Hands out every metadata block of the leg in a slot, as [`blocks`] does: closed, and every
    /// region whole on every leg.
    pub fn blocks(&self, leg: LegIndex, each: impl FnMut(u64, &Block)) {
        let whole = ((1_u16 << self.legs.len()) - 1) as u8;
        blocks(&self.superblock(leg), RegionEntry::new(whole, false, LegIndex(0)), each);
    }
}

/// Hands out every metadata block, with its byte address on the leg, of the leg that
/// `superblock` describes: both slots of the superblock, of an empty lost list and of every
/// page, whose regions all have `entry`. Both slots of a page say the same.
pub fn blocks(superblock: &Superblock, entry: RegionEntry, mut each: impl FnMut(u64, &Block)) {
    let Superblock { volume_id, layout, generation, join_epoch, .. } = superblock;
    let (volume_id, generation, join_epoch) = (*volume_id, *generation, *join_epoch);
    let mut bytes = block::blank();
    let entries = [entry; page::ENTRIES_PER_PAGE];
    for slot in 0..2 {
        superblock.encode(&mut bytes, slot);
        each(Layout::superblock_address(slot), &bytes);
        let address = Layout::lost_address(slot);
        let header = lost::LostHeader { generation, join_epoch };
        lost::encode(&mut bytes, address, volume_id, 1, &header, &[], layout.volume_sectors())
            .expect("an empty list fits");
        each(address, &bytes);
        for page in 0..layout.page_count() {
            let address = layout.page_address(page, slot);
            let header = page::PageHeader { page, generation, join_epoch };
            let entries = &entries[..layout.page_regions(page).len()];
            page::encode(&mut bytes, address, volume_id, 1, &header, entries);
            each(address, &bytes);
        }
    }
}
