//! Disks as `hemi create` leaves them: every region whole on every leg, closed.

use hemi_core::format::superblock::{Ancestry, Name};
use hemi_core::format::{Layout, LegRecord, Membership, RegionEntry, Superblock, create};
use hemi_core::units::{LEGS_MAX, LegIndex};

use crate::disk::Disk;
use crate::plan::Shape;

const VOLUME_ID: [u8; 16] = [7; 16];
const GENERATION: [u8; 16] = [9; 16];

/// The layout of a volume of this shape.
fn layout(shape: &Shape) -> Layout {
    Layout::new(shape.volume_bytes, shape.region_bytes).expect("plans draw good sizes only")
}

/// Makes `disk` leg number `leg`.
pub(crate) fn format(disk: &mut Disk, shape: &Shape, leg: usize) {
    let layout = layout(shape);
    disk.reset(layout.data_offset() as usize, layout.volume_sectors() as usize, 0);
    let mut records = [LegRecord::default(); LEGS_MAX];
    for (slot, record) in records.iter_mut().enumerate().take(shape.legs) {
        *record = LegRecord { id: [slot as u8 + 1; 16], join_epoch: 1, state: Membership::In };
    }
    let superblock = Superblock {
        volume_id: VOLUME_ID,
        name: Name::new("simulated").expect("a plain name"),
        layout,
        block_bytes: shape.block_sectors as u32 * 512,
        created: 0,
        leg: LegIndex(leg as u8),
        sequence: 1,
        generation: GENERATION,
        ancestry: Ancestry::default(),
        open: false,
        join_epoch: 1,
        legs: records,
    };
    let whole = ((1u16 << shape.legs) - 1) as u8;
    create::blocks(&superblock, RegionEntry::new(whole, false, LegIndex(0)), |address, block| {
        disk.write_metadata(address, block, 0xFF);
    });
}
