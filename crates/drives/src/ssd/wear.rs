//! Program/erase cycles, as a drive of full capacity has them.
//!
//! A model whose capacity is divided by a scale has fewer blocks at the same rate of writes, so a
//! run erases each of them more often than a real drive's. A run's erases are therefore those of
//! all blocks of the full capacity. Preconditioning writes a multiple of the capacity, so a drive of
//! full capacity would have had as many times more of its erases.

use super::Ssd;

impl Ssd {
    /// Counts the erases so far as those of the drive's life before the run.
    pub(super) fn begin_life_of_run(&mut self) {
        self.erases_before = self.translation.work().erases;
    }

    /// Returns the cycles of a block on average.
    pub(super) fn mean_cycles(&self) -> f64 {
        let in_run = (self.translation.work().erases - self.erases_before) as f64;
        let before = self.erases_before as f64 * f64::from(self.parameters.scale);
        let (blocks, _) = self.parameters.blocks();
        (before + in_run) / blocks
    }

    /// Returns the cycles of the block that has been erased `most` times. How far it is ahead of
    /// the others depends on wear levelling, not on the number of blocks.
    pub(super) fn most_cycles(&self, most: u64) -> f64 {
        let blocks = f64::from(self.translation.shape().blocks);
        let mean = self.translation.work().erases as f64 / blocks;
        self.mean_cycles() + (most as f64 - mean).max(0.0)
    }
}
