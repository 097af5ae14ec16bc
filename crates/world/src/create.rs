//! Creates disks as `hemi create` leaves them: every region whole on every leg, and closed.

use hemi_engine::format::create::NewVolume;
use hemi_engine::format::superblock::Name;
use hemi_engine::format::{Id, Layout};
use hemi_engine::identifiers::LegIndex;

use crate::disk::Disk;

const VOLUME_ID: Id = [7; 16];
const GENERATION: Id = [9; 16];

/// Formats `disk` as leg number `leg` of a new volume of `legs` legs, whose logical block has
/// `block_sectors` sectors.
pub fn format(disk: &mut Disk, layout: Layout, legs: usize, leg: usize, block_sectors: u64) {
    disk.reset(layout.data_offset() as usize, layout.volume_sectors() as usize, 0);
    let ids: Vec<Id> = (1..=legs as u8).map(|id| [id; 16]).collect();
    let volume = NewVolume {
        id: VOLUME_ID,
        generation: GENERATION,
        legs: &ids,
        name: Name::new("simulated").expect("a plain name"),
        layout,
        block_bytes: block_sectors as u32 * 512,
        created: 0,
    };
    volume.blocks(LegIndex(leg as u8), |address, block| disk.write_metadata(address, block, 0xFF));
}
