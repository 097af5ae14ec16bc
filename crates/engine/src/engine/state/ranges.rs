//! Range locks: no read runs beside an unanswered write that overlaps it, and no two writes do.
//!
//! Every operation enters with its extent. It may run at once unless an earlier one that is still
//! here conflicts with it. Else it waits, and counts those it waits for; each of them counts it
//! down when it leaves. So an operation is looked at when it enters and when it leaves, however
//! many wait behind each other. One dense array is scanned for that: the number of operations is
//! bounded, and a tree that allows overlaps would cost more than it saves.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::planted::{self, Planted};
use hemi_units::Extent;

/// One extent that is locked or waited for.
#[derive(Clone, Copy, Debug)]
struct Range {
    extent: Extent,
    is_read: bool,
    owner: u32,
    /// Its place in the order of arrival.
    arrival: u64,
    /// Earlier ones that conflict with it and have not left.
    waits_for: u32,
}

impl Range {
    fn conflicts_with(&self, extent: Extent, is_read: bool) -> bool {
        let shares = match (self.is_read, is_read) {
            (true, true) => true,
            (false, false) => planted::is(Planted::WritesSideBySide),
            _ => planted::is(Planted::ReadBesideWrite),
        };
        self.extent.overlaps(extent) && !shares
    }
}

/// The extents of operations that run or wait for others that overlap them.
pub(crate) struct RangeLocks {
    ranges: Vec<Range>,
    arrivals: u64,
    /// Owners that may run now and have not been told yet, in order of arrival.
    free: VecDeque<u32>,
    /// Places of ranges that have left, in the form of `free`, until they are in order.
    freed: Vec<(u64, u32)>,
    /// Owners that had to wait are being started.
    letting_in: bool,
}

impl RangeLocks {
    pub(crate) fn with_capacity(capacity: usize) -> RangeLocks {
        RangeLocks {
            ranges: Vec::with_capacity(capacity),
            arrivals: 0,
            free: VecDeque::with_capacity(capacity),
            freed: Vec::with_capacity(capacity),
            letting_in: false,
        }
    }

    /// Returns true if nothing that is here conflicts with an operation.
    pub(crate) fn is_free(&self, extent: Extent, is_read: bool) -> bool {
        !self.ranges.iter().any(|range| range.conflicts_with(extent, is_read))
    }

    /// Enters an operation. Returns its place, to leave by, and whether it may run now; if not,
    /// [`RangeLocks::next_free`] returns its owner once it may.
    pub(crate) fn enter(&mut self, extent: Extent, is_read: bool, owner: u32) -> (u32, bool) {
        let earlier = self.ranges.iter().filter(|range| range.conflicts_with(extent, is_read));
        let waits_for = earlier.count() as u32;
        self.arrivals += 1;
        self.ranges.push(Range { extent, is_read, owner, arrival: self.arrivals, waits_for });
        (self.ranges.len() as u32 - 1, waits_for == 0)
    }

    /// Takes an operation out. Returns the owner that has its place from now on, if there is one.
    pub(crate) fn leave(&mut self, place: u32) -> Option<u32> {
        let left = self.ranges.swap_remove(place as usize);
        for range in &mut self.ranges {
            if range.arrival > left.arrival && range.conflicts_with(left.extent, left.is_read) {
                range.waits_for -= 1;
                if range.waits_for == 0 {
                    self.freed.push((range.arrival, range.owner));
                }
            }
        }
        self.freed.sort_unstable();
        self.free.extend(self.freed.drain(..).map(|(_, owner)| owner));
        self.ranges.get(place as usize).map(|range| range.owner)
    }

    /// Returns true if somebody waits for the one at a place.
    pub(crate) fn is_waited_for(&self, place: u32) -> bool {
        let held = &self.ranges[place as usize];
        let waits = |range: &Range| {
            range.arrival > held.arrival && range.conflicts_with(held.extent, held.is_read)
        };
        self.ranges.iter().any(waits)
    }

    /// Begins to start those that had to wait. Returns false if that is being done already.
    pub(crate) fn begin_letting_in(&mut self) -> bool {
        !core::mem::replace(&mut self.letting_in, true)
    }

    /// Notes that all of them have been started.
    pub(crate) fn end_letting_in(&mut self) {
        self.letting_in = false;
    }

    /// Returns the next owner that had to wait and may run now.
    pub(crate) fn next_free(&mut self) -> Option<u32> {
        self.free.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// One operation as a plain list knows it.
    #[derive(Clone, Copy)]
    struct Known {
        extent: Extent,
        is_read: bool,
        owner: u32,
        runs: bool,
    }

    fn conflict(a: &Known, b: &Known) -> bool {
        a.extent.overlaps(b.extent) && !(a.is_read && b.is_read)
    }

    /// Those that wait and that nothing before them conflicts with, in order of arrival.
    fn let_run(known: &mut [Known]) -> Vec<u32> {
        let mut free = Vec::new();
        for at in 0..known.len() {
            let behind = known[..at].iter().any(|earlier| conflict(earlier, &known[at]));
            if !known[at].runs && !behind {
                known[at].runs = true;
                free.push(known[at].owner);
            }
        }
        free
    }

    proptest! {
        /// Against a list in order of arrival: the same operations run, in the same order.
        #[test]
        fn as_a_list_in_order_of_arrival(
            steps in proptest::collection::vec((0u64..40, 1u64..12, any::<bool>(), 0usize..8), 1..120),
        ) {
            let mut locks = RangeLocks::with_capacity(8);
            let mut places = std::collections::BTreeMap::new();
            let mut known: Vec<Known> = Vec::new();
            for (owner, (start, sectors, is_read, leaves)) in steps.into_iter().enumerate() {
                let (owner, extent) = (owner as u32, Extent::new(start, sectors));
                let (place, runs) = locks.enter(extent, is_read, owner);
                places.insert(owner, place);
                known.push(Known { extent, is_read, owner, runs: false });
                let expected = let_run(&mut known);
                prop_assert_eq!(runs, expected == [owner]);
                if leaves < known.len() && known[leaves].runs {
                    let left = known.remove(leaves);
                    let place = places.remove(&left.owner).expect("it has entered");
                    if let Some(moved) = locks.leave(place) {
                        places.insert(moved, place);
                    }
                    let freed: Vec<u32> = core::iter::from_fn(|| locks.next_free()).collect();
                    prop_assert_eq!(freed, let_run(&mut known));
                }
            }
        }
    }
}
