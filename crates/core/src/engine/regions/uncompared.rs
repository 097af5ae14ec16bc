//! Which regions are uncompared: dirty when the volume was opened, where a leg that was whole has
//! not been compared with the authority since.
//!
//! Such a leg may have all of the region, and nobody knows. If the authority is gone for good by
//! then, that is for the operator to decide: the region is not lost.

use super::Regions;
use crate::planted::{self, Planted};
use crate::units::LegIndex;

impl Regions {
    /// Notes that a leg is to be compared with the authority of a region found dirty.
    pub(super) fn note_uncompared(&mut self, region: u32) {
        let record = self.slot(region).expect("a region found dirty has a record");
        self.active[record].is_uncompared = true;
    }

    /// Notes that a leg holds everything acknowledged in a region in use.
    pub(in crate::engine) fn note_complete(&mut self, record: u32, leg: LegIndex) {
        let decides = self.entry(self.active[record].region).authority() == leg;
        if !decides && !planted::is(Planted::ComparedForgotten) {
            self.active[record].is_uncompared = false;
        }
    }

    /// Returns true if a leg decides a region and no leg that was whole there has been compared with
    /// it since the volume was opened.
    pub(in crate::engine) fn is_uncompared(&self, leg: LegIndex, region: u32) -> bool {
        let uncompared = |record: u32| self.active[record].is_uncompared;
        self.decides(leg, region) && self.slot(region).is_some_and(uncompared)
    }

    /// Counts the uncompared regions that a leg decides.
    pub(in crate::engine) fn uncompared_count(&self, leg: LegIndex) -> u32 {
        let records = self.active.iter();
        let uncompared =
            records.filter(|active| active.is_uncompared && self.decides(leg, active.region));
        uncompared.count() as u32
    }
}
