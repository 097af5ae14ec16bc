//! A census of the regions, for who wants to draw them.

use core::ops::Range;

use super::Engine;
use crate::identifiers::LEGS_MAX;
use crate::io::Buffers;
use crate::status::RegionCounts;

impl<B: Buffers> Engine<B> {
    /// Returns how many regions the volume has.
    pub fn region_count(&self) -> u32 {
        self.regions.count()
    }

    /// Counts the regions of a range by their condition. The work is proportional to the range, some
    /// nanoseconds a region: a driver takes a large volume in parts.
    pub fn census(&self, regions: Range<u32>) -> RegionCounts {
        let end = regions.end.min(self.regions.count());
        let mut counts = RegionCounts::default();
        for region in regions.start.min(end)..end {
            counts.regions += 1;
            if self.regions.is_touched(region) {
                let authority = self.regions.entry(region).authority();
                counts.decided[authority.index()] += 1;
            } else if self.regions.is_armed(region) {
                counts.armed += 1;
            }
            let lacks = |leg: usize| {
                self.legs[leg].is_member()
                    && !self.regions.is_complete(self.legs[leg].index, region)
            };
            counts.owed += u32::from((0..LEGS_MAX).any(lacks));
        }
        counts
    }
}
