//! Bit rot in metadata at rest: one bit of one block of one leg.
//!
//! Recovery may refuse to open, or open with everything: never open with something missing.

use hemi_core::format::{BLOCK_BYTES, Layout};

use super::World;

/// A bit that flipped, so that it can be put back.
pub struct Flip {
    leg: usize,
    address: usize,
    before: Vec<u8>,
    after: Vec<u8>,
}

impl World {
    /// Flips a bit of a block that has been written.
    pub fn rot(&mut self) -> Option<Flip> {
        let leg = self.random.below(self.disks.len() as u64) as usize;
        let layout = Layout::new(self.shape.volume_bytes, self.shape.region_bytes).ok()?;
        let slot = self.random.below(2) as u8;
        let address = match self.random.below(4) {
            0 => Layout::superblock_address(slot),
            1 => Layout::lost_address(slot),
            _ => layout.page_address(0, slot),
        } as usize;
        let bit = self.random.below(BLOCK_BYTES as u64 * 8) as usize;
        let block = &mut self.disks[leg].metadata[address..address + BLOCK_BYTES];
        if block.iter().all(|&byte| byte == 0) {
            return None;
        }
        let before = block.to_vec();
        block[bit / 8] ^= 1 << (bit % 8);
        let after = block.to_vec();
        Some(Flip { leg, address, before, after })
    }

    /// Puts a flipped bit back, unless the block has been written since.
    pub fn heal_rot(&mut self, flip: &Flip) {
        let end = flip.address + BLOCK_BYTES;
        let block = &mut self.disks[flip.leg].metadata[flip.address..end];
        if *block == flip.after[..] {
            block.copy_from_slice(&flip.before);
        }
    }
}
