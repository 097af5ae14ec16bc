//! How much the SLC cache may hold.
//!
//! Blocks of the cache hold one bit a cell and are programmed faster. The host's data goes
//! there as long as it may grow and the lane has free blocks to spare; then it goes past it,
//! at the speed of the flash behind: the cliff. What it holds is folded (collected) when the
//! drive is idle, or when free blocks run short.

use super::parameters::Parameters;
use super::translation::{Shape, Translation};

/// The cache's bounds.
#[derive(Clone, Debug)]
pub(super) struct SlcCache {
    /// Blocks it may have.
    most: u32,
    /// Free blocks a lane keeps for other things.
    spare: u32,
}

impl SlcCache {
    /// The preset's, scaled with the drive; `None` if it has none.
    pub(super) fn new(of: &Parameters, shape: &Shape) -> Option<SlcCache> {
        let slc = of.slc.as_ref()?;
        let block = u64::from(shape.cached_slots) * of.mapping_unit.0 * u64::from(of.scale);
        let most = (slc.fixed.0 + slc.dynamic.0).div_ceil(block) as u32;
        // The fixed part is made room for in the background; what is beyond it may only take
        // blocks that nothing else needs. Either way a lane that is short of them has none.
        Some(SlcCache { most, spare: of.collection_start })
    }

    /// Whether the host's next page of this lane goes into the cache.
    pub(super) fn takes(&self, translation: &Translation, lane: u32) -> bool {
        translation.cached_blocks() < self.most
            && (translation.free_in(lane) > self.spare
                || translation.has_open(lane, super::frontier::Stream::Cached))
    }
}
