//! The bound on the scale of a drive.
//!
//! A scaled drive has as many lanes as the whole one, each with fewer blocks. What data and the
//! pool of free blocks leave of a lane is its spare, which decides write amplification. Where
//! the spare shrinks to a few blocks, three things show that no large drive has. Victims are
//! chosen among so few blocks that the best is not much better than the others. One block more
//! or less in a lane, and half a block more or less in the pool, which depends on the load, are
//! a large share of the spare. And the data of a lane varies by chance, by more than a small
//! part of its spare. The write buffer, which is not scaled, holds a larger share of the
//! drive's units, so that more writes meet others there, and fewer are programmed.

use super::parameters::Parameters;

/// Fewest spare blocks of a lane with which write amplification and requests per second are
/// those of the whole drive, within about 3 % on every preset (`cargo run --release -p hemi-drives
/// --example scale`). With 2 they are off by up to 4 %, with 1 by up to 8 %, with a quarter of
/// one by up to 27 %.
pub const SPARE_BLOCKS_LEAST: f64 = 4.0;

/// Fewest units in these blocks, for drives of small blocks. Does not apply where a unit fills
/// a block: nothing is copied there.
pub const SPARE_UNITS_LEAST: f64 = 512.0;

/// Largest share of the drive's units that small writes in a full buffer may be of: more of them
/// would meet others of their unit there.
pub const BUFFERED_SHARE_MOST: f64 = 0.01;

/// Size of a small write.
const SMALL_WRITE: u64 = 4096;

impl Parameters {
    /// Returns the blocks of a lane that neither data nor the pool of free blocks takes, at a
    /// scale.
    pub fn spare_blocks(&self, scale: u64) -> f64 {
        let (blocks, pool) = self.blocks();
        let block = (self.lane_page() * u64::from(self.pages_per_block)) as f64;
        let data = self.capacity.0 as f64 / block;
        (blocks - pool - data) / (scale as f64 * f64::from(self.lanes()))
    }

    /// Returns the largest scale at which the drive is as fast as the whole one. At least 1: a
    /// drive that is not scaled is what it is.
    pub fn scale_most(&self) -> u64 {
        let slots = self.shape().slots;
        let units = if slots > 1 { SPARE_UNITS_LEAST / f64::from(slots) } else { 0.0 };
        let by_spare = self.spare_blocks(1) / SPARE_BLOCKS_LEAST.max(units);
        (by_spare.min(BUFFERED_SHARE_MOST / self.buffered_share()) as u64).max(1)
    }

    /// Divides the blocks that each lane frees while the drive is idle, besides those it always
    /// does. A lane of a scaled drive has fewer to spare, and would copy almost full blocks without
    /// end. With a cache of flash, which needs some, at least one is left.
    pub fn divide_background(&mut self, scale: u64) {
        let start = self.collection_start;
        let more = u64::from(self.background_blocks.saturating_sub(start));
        let least = u64::from(self.slc.is_some()).min(more);
        self.background_blocks = start + (more / scale.max(1)).max(least) as u32;
    }

    /// Returns the share of the whole drive's units that small writes in a full buffer are of.
    fn buffered_share(&self) -> f64 {
        let units = self.capacity.0 as f64 / self.mapping_unit.0 as f64;
        let writes = self.buffer.0 as f64 / self.mapping_unit.0.min(SMALL_WRITE) as f64;
        writes / units
    }
}
