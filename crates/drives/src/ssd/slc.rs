//! The size of the SLC cache.
//!
//! Blocks of the cache hold one bit a cell and are programmed faster. Host data goes there
//! while the cache may grow and the lane has free blocks to spare. After that it bypasses the
//! cache, at the speed of the flash behind it: the cliff. The cache is folded (collected) when
//! the drive is idle, or when free blocks run short.

use super::parameters::Parameters;
use super::translation::{Shape, Translation};

/// The cache's bounds.
#[derive(Clone, Debug)]
pub(super) struct SlcCache {
    /// Maximum number of blocks of the cache.
    most: u32,
    /// Free blocks a lane keeps for other uses.
    spare: u32,
}

impl SlcCache {
    /// Returns the preset's cache, scaled with the drive, or `None` if it has none.
    pub(super) fn new(of: &Parameters, shape: &Shape) -> Option<SlcCache> {
        let slc = of.slc.as_ref()?;
        let block = u64::from(shape.cached_slots) * of.mapping_unit.0 * u64::from(of.scale);
        let most = (slc.fixed.0 + slc.dynamic.0).div_ceil(block) as u32;
        // Room for the fixed part is made in the background; the dynamic part may only take
        // blocks that nothing else needs. In both cases a lane short of free blocks has no
        // cache.
        Some(SlcCache { most, spare: of.collection_start })
    }

    /// Returns true if the host's next page on this lane goes into the cache.
    pub(super) fn takes(&self, translation: &Translation, lane: u32) -> bool {
        translation.cached_blocks() < self.most
            && (translation.free_in(lane) > self.spare
                || translation.has_open(lane, super::frontier::Stream::Cached))
    }
}
