//! The metadata of a leg of a new volume, block by block.

use super::superblock::Superblock;
use super::{Block, Layout, RegionEntry, block, lost, page};

/// Hands out every metadata block, with its byte address on the leg, of the leg that
/// `superblock` describes: both slots of the superblock, of an empty lost list and of every
/// page, whose regions all have `entry`. Both slots of a page say the same.
pub fn blocks(superblock: &Superblock, entry: RegionEntry, mut each: impl FnMut(u64, &Block)) {
    let Superblock { volume_id, layout, generation, join_epoch, .. } = superblock;
    let (volume_id, generation, join_epoch) = (*volume_id, *generation, *join_epoch);
    let mut bytes = block::blank();
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
            let entries = core::iter::repeat_n(entry, layout.page_regions(page).len());
            page::encode(&mut bytes, address, volume_id, 1, &header, entries);
            each(address, &bytes);
        }
    }
}
