//! The search for the place that the head reaches first.
//!
//! Places are in order of cylinder, and the search goes outwards from the arm. Two bounds, far
//! cheaper than a positioning time, pass over most places. The arm takes a time to travel: from
//! some distance on no place can be reached within the best time so far, and the search ends.
//! And the platters take a time to turn: a place whose angle passes later than that is not
//! examined.

use hemi_units::Instant;

use super::mechanism::{Arm, Mechanism};
use super::rotation::Angle;

/// A place among others in order of cylinder.
pub(super) trait Spot {
    /// Returns the cylinder.
    fn cylinder(&self) -> u32;
    /// Returns the angle at which an access begins.
    fn angle(&self) -> Angle;
}

/// A search that begins at an arm free at a given time.
pub(super) struct Search<'a> {
    mechanism: &'a Mechanism,
    arm: Arm,
    /// Nanoseconds that each movement to another cylinder takes in addition to the seek.
    settle: u64,
    /// Angle from which [`Search::window`] counts: a little before the one under the heads.
    from: Angle,
    /// Turn of the platters within the longest time of interest.
    window: Angle,
    /// Distance in cylinders from which on nothing is of interest.
    reach: u32,
}

impl<'a> Search<'a> {
    /// Begins a search for what an arm that is free at `now` reaches within `most` nanoseconds.
    /// `writes` is true if all accesses are writes.
    pub(super) fn new(
        mechanism: &'a Mechanism,
        now: Instant,
        arm: Arm,
        writes: bool,
        most: u64,
    ) -> Search<'a> {
        let spindle = &mechanism.spindle;
        let from = spindle.angle(now.0).wrapping_sub(spindle.margin());
        let settle = if writes { mechanism.write_settle() } else { 0 };
        let mut search = Search { mechanism, arm, settle, from, window: 0, reach: 0 };
        search.narrow(most);
        search
    }

    /// Leaves only what is reached within `most` nanoseconds, that time included.
    fn narrow(&mut self, most: u64) {
        let spindle = &self.mechanism.spindle;
        self.window = spindle.turn(most).saturating_add(2 * spindle.margin());
        let later = most.saturating_add(1).saturating_sub(self.settle);
        self.reach = self.mechanism.reach(later);
    }

    /// Calls `weigh` with the index of each of `spots` that may be reached in time, alternately
    /// from above and from below the arm. `weigh` returns the time of the spot if it is the
    /// best so far: from then on, spots that are reached later are not of interest.
    pub(super) fn outwards<S: Spot>(
        mut self,
        spots: &[S],
        mut weigh: impl FnMut(usize) -> Option<u64>,
    ) {
        let middle = spots.partition_point(|spot| spot.cylinder() < self.arm.cylinder);
        let (below, above) = spots.split_at(middle);
        let (mut up, mut down) = (0, below.len());
        loop {
            // The reach only shrinks: a side that has no more spots within it has none later.
            let next_above = above.get(up).filter(|spot| self.reaches(*spot));
            if let Some(spot) = next_above {
                self.examine(spot, middle + up, &mut weigh);
                up += 1;
            }
            let next_below = below.get(down.wrapping_sub(1)).filter(|spot| self.reaches(*spot));
            if let Some(spot) = next_below {
                down -= 1;
                self.examine(spot, down, &mut weigh);
            }
            if next_above.is_none() && next_below.is_none() {
                return;
            }
        }
    }

    /// Returns true if a spot is within reach.
    #[inline]
    fn reaches<S: Spot>(&self, spot: &S) -> bool {
        spot.cylinder().abs_diff(self.arm.cylinder) < self.reach
    }

    /// Weighs a spot within reach unless its angle passes too late.
    #[inline]
    fn examine<S: Spot>(
        &mut self,
        spot: &S,
        index: usize,
        weigh: &mut impl FnMut(usize) -> Option<u64>,
    ) {
        if spot.angle().wrapping_sub(self.from) <= self.window
            && let Some(most) = weigh(index)
        {
            self.narrow(most);
        }
    }
}
