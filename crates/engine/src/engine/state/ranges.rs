//! Range locks: no read runs beside an unanswered write that overlaps it, and no two writes do.
//!
//! Every operation enters with its extent. It may run at once unless an earlier one that is still
//! here conflicts with it. Else it waits, and counts those it waits for; each of them counts it
//! down when it leaves. So an operation is looked at when it enters and when it leaves, however
//! many wait behind each other. One dense array is scanned for that: the number of operations is
//! bounded, and a tree that allows overlaps would cost more than it saves. Most operations overlap
//! nothing, and it is not even scanned for those that have their part of the volume to themselves.

use alloc::collections::VecDeque;
use alloc::vec;
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

/// Sectors of a part of the volume, as a power of two: the longest leg I/O of a client's, 1 MiB.
const PART_SHIFT: u32 = 11;
/// Counters of the parts. Parts so far apart share one.
const COUNTERS: usize = 4096;
/// A range over more parts than this is counted apart.
const PARTS_MAX: u64 = 16;

/// Counts the ranges in each part of the volume: a range whose parts have no other overlaps none.
struct Parts {
    counters: Vec<u32>,
    /// Ranges over many parts: they may overlap any other.
    long: usize,
}

impl Parts {
    fn new() -> Parts {
        Parts { counters: vec![0; COUNTERS], long: 0 }
    }

    /// Returns the counters of an extent's parts; `None` if they are too many.
    fn of(extent: Extent) -> Option<impl Iterator<Item = usize>> {
        let last = extent.end.saturating_sub(1).max(extent.start) >> PART_SHIFT;
        let first = extent.start >> PART_SHIFT;
        let parts = (last - first < PARTS_MAX).then_some(first..=last)?;
        Some(parts.map(|part| part as usize % COUNTERS))
    }

    fn add(&mut self, extent: Extent) {
        match Parts::of(extent) {
            Some(parts) => parts.for_each(|part| self.counters[part] += 1),
            None => self.long += 1,
        }
    }

    fn remove(&mut self, extent: Extent) {
        match Parts::of(extent) {
            Some(parts) => parts.for_each(|part| self.counters[part] -= 1),
            None => self.long -= 1,
        }
    }

    /// Returns true if no range that is counted can overlap an extent.
    fn are_free(&self, extent: Extent) -> bool {
        self.long == 0
            && Parts::of(extent).is_some_and(|mut parts| parts.all(|part| self.counters[part] == 0))
    }
}

/// The extents of operations that run or wait for others that overlap them.
pub(crate) struct RangeLocks {
    ranges: Vec<Range>,
    parts: Parts,
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
            parts: Parts::new(),
            arrivals: 0,
            free: VecDeque::with_capacity(capacity),
            freed: Vec::with_capacity(capacity),
            letting_in: false,
        }
    }

    /// Returns true if nothing that is here conflicts with an operation.
    pub(crate) fn is_free(&self, extent: Extent, is_read: bool) -> bool {
        self.parts.are_free(extent)
            || !self.ranges.iter().any(|range| range.conflicts_with(extent, is_read))
    }

    /// Enters an operation. Returns its place, to leave by, and whether it may run now; if not,
    /// [`RangeLocks::next_free`] returns its owner once it may.
    pub(crate) fn enter(&mut self, extent: Extent, is_read: bool, owner: u32) -> (u32, bool) {
        let waits_for = if self.parts.are_free(extent) {
            0
        } else {
            let conflicts = |range: &&Range| range.conflicts_with(extent, is_read);
            self.ranges.iter().filter(conflicts).count() as u32
        };
        self.parts.add(extent);
        self.arrivals += 1;
        self.ranges.push(Range { extent, is_read, owner, arrival: self.arrivals, waits_for });
        (self.ranges.len() as u32 - 1, waits_for == 0)
    }

    /// Takes an operation out. Returns the owner that has its place from now on, if there is one.
    pub(crate) fn leave(&mut self, place: u32) -> Option<u32> {
        let left = self.ranges.swap_remove(place as usize);
        self.parts.remove(left.extent);
        if !self.parts.are_free(left.extent) {
            self.let_go(&left);
        }
        self.ranges.get(place as usize).map(|range| range.owner)
    }

    /// Counts one that has left down in all that waited for it.
    fn let_go(&mut self, left: &Range) {
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
    }

    /// Returns the number of operations that are here.
    pub(crate) fn count(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the owner at a place if it is a write that overlaps an extent.
    pub(crate) fn write_at(&self, place: usize, extent: Extent) -> Option<u32> {
        let range = self.ranges.get(place)?;
        (!range.is_read && range.extent.overlaps(extent)).then_some(range.owner)
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

    /// Lays extents close together, across the borders of parts, in parts that share a counter, and over
    /// many parts.
    fn laid(start: u64, sectors: u64, scale: u8) -> Extent {
        let part = 1 << PART_SHIFT;
        match scale {
            0 => Extent::new(start, sectors),
            1 => Extent::new(part - 20 + start, sectors),
            2 => Extent::new(start * part / 2, sectors * part / 2),
            3 => Extent::new((start % 3) * COUNTERS as u64 * part + start, sectors),
            _ => Extent::new(start * part, sectors * 4 * part),
        }
    }

    proptest! {
        /// Against a list in order of arrival: the same operations run, in the same order.
        #[test]
        fn as_a_list_in_order_of_arrival(
            steps in proptest::collection::vec(
                (0u64..40, 1u64..12, 0u8..5, any::<bool>(), 0usize..8),
                1..120,
            ),
        ) {
            let mut locks = RangeLocks::with_capacity(8);
            let mut places = std::collections::BTreeMap::new();
            let mut known: Vec<Known> = Vec::new();
            for (owner, (start, sectors, scale, is_read, leaves)) in steps.into_iter().enumerate() {
                let (owner, extent) = (owner as u32, laid(start, sectors, scale));
                let alone = !known.iter().any(|other| {
                    extent.overlaps(other.extent) && !(is_read && other.is_read)
                });
                prop_assert_eq!(locks.is_free(extent, is_read), alone);
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
