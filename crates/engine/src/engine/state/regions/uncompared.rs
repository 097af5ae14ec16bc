//! The uncompared regions: dirty when the volume was opened, where a leg that was whole has
//! not been compared with the authority since.
//!
//! Such a leg may have all of the region, and nobody knows. If the authority is gone for good by
//! then, that is for the operator to decide: the region is not lost. For the same reason the leg
//! keeps its bit, and the region does not settle without it, unless writers wait for that.

use super::Regions;
use crate::identifiers::LegIndex;
use crate::planted::{self, Planted};

impl Regions {
    /// Notes that a leg holds everything acknowledged in a region in use.
    pub(in crate::engine) fn note_complete(&mut self, record: u32, leg: LegIndex) {
        let region = self.active[record].region;
        let decides = self.entry(region).authority() == leg;
        if !decides && self.is_uncompared(region) && !planted::is(Planted::ComparedForgotten) {
            self.uncompared.remove(region);
        }
    }

    /// Notes that a region settles: a leg that has not been compared by then owes all of it from now on,
    /// and what the others have is durable there.
    pub(super) fn note_settled(&mut self, region: u32) {
        self.uncompared.remove(region);
    }

    /// Returns true if no leg that was whole in a region has been compared with its authority since
    /// the volume was opened, but might be.
    pub(in crate::engine) fn is_uncompared(&self, region: u32) -> bool {
        self.uncompared.count() > 0 && self.uncompared.get(region)
    }

    /// Returns true if an uncompared region waits with its authority for a leg.
    pub(in crate::engine) fn waits_to_compare(&self, region: u32, leg: LegIndex) -> bool {
        self.is_uncompared(region)
            && self.entry(region).is_whole(leg)
            && !planted::is(Planted::UncomparedSettled)
    }

    /// Counts the uncompared regions that nobody but a leg is known to have.
    pub(in crate::engine) fn uncompared_count(&self, leg: LegIndex) -> u32 {
        let mut next = self.uncompared.next(0);
        let uncompared = core::iter::from_fn(|| {
            let region = next?;
            next = self.uncompared.next(region + 1);
            Some(region)
        });
        uncompared.filter(|&region| self.entry(region).authority() == leg).count() as u32
    }
}
