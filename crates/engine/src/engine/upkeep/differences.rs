//! The extents in which legs are known to differ, until they are given the same content.
//!
//! A scrub finds them. They stay known while nobody decides which leg is right, and the driver keeps them
//! over restarts. A leg that is given an extent, by a client, a drain or a repair, differs there no more.

use alloc::vec::Vec;

use crate::identifiers::{LEGS_MAX, LegIndex};
use hemi_units::Extent;

/// Most extents kept. Those beyond it are counted only, until a scrub of the whole volume.
pub const DIFFERENCES_MAX: usize = 4096;

/// An extent in which a leg differs from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// The extent, in volume sectors.
    pub extent: Extent,
    /// The leg that was found to differ: from the one named right, or else from the authority or the
    /// first leg. It need not be the wrong one.
    pub leg: LegIndex,
}

/// The known differences.
#[derive(Debug, Default)]
pub struct Differences {
    /// Extents by leg and start, without overlaps within a leg.
    known: [Vec<Extent>; LEGS_MAX],
    count: usize,
    /// Sectors found for which there was no room: before the running scrub, and by it.
    uncounted: [u64; 2],
    version: u64,
}

impl Differences {
    /// Returns the differences, by leg and start.
    pub fn iter(&self) -> impl Iterator<Item = Difference> {
        (0..).zip(&self.known).flat_map(|(leg, known)| {
            known.iter().map(move |&extent| Difference { extent, leg: LegIndex(leg) })
        })
    }

    /// Returns true if no listed difference is known.
    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns true if a leg is known to differ somewhere in an extent.
    pub(in crate::engine) fn has(&self, leg: LegIndex, extent: Extent) -> bool {
        let known = &self.known[leg.index()];
        let at = known.partition_point(|other| other.end <= extent.start);
        known.get(at).is_some_and(|other| other.start < extent.end)
    }

    /// Returns the sectors that were found and for which there was no room.
    pub fn uncounted(&self) -> u64 {
        self.uncounted.iter().sum()
    }

    /// Returns a number that changes with the differences.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the sectors in which legs differ. A sector counts once for the leg in which most differ.
    pub fn sectors(&self) -> u64 {
        let of_leg = |known: &Vec<Extent>| known.iter().map(|extent| extent.sectors()).sum();
        self.uncounted() + self.known.iter().map(of_leg).max().unwrap_or(0)
    }

    /// Takes a difference that a scrub has found, or that was known before the start.
    pub(in crate::engine) fn add(&mut self, difference: Difference) {
        let Difference { extent, leg } = difference;
        if extent.is_empty() {
            return;
        }
        self.remove(leg, extent);
        self.version += 1;
        let known = &mut self.known[leg.index()];
        let at = known.partition_point(|other| other.start < extent.start);
        if at > 0 && known[at - 1].end == extent.start {
            known[at - 1].end = extent.end;
        } else if self.count < DIFFERENCES_MAX {
            known.insert(at, extent);
            self.count += 1;
        } else {
            self.uncounted[1] += extent.sectors();
        }
    }

    /// Takes sectors for which there was no room before the start.
    pub(in crate::engine) fn add_uncounted(&mut self, sectors: u64) {
        self.uncounted[0] += sectors;
        self.version += 1;
    }

    /// Notes that a leg has been given an extent. Where there are only two legs, the other is like it.
    pub(in crate::engine) fn note_given(&mut self, leg: LegIndex, extent: Extent, are_two: bool) {
        if !are_two {
            return self.remove(leg, extent);
        }
        for leg in 0..LEGS_MAX as u8 {
            self.remove(LegIndex(leg), extent);
        }
    }

    /// Forgets what is known of a leg that leaves its slot.
    pub(in crate::engine) fn forget_leg(&mut self, leg: LegIndex) {
        self.remove(leg, Extent { start: 0, end: u64::MAX });
    }

    /// Forgets all: nothing is left to differ from.
    pub(in crate::engine) fn clear(&mut self) {
        *self = Differences { version: self.version + 1, ..Differences::default() };
    }

    /// Begins a scrub.
    pub(super) fn scrub_begins(&mut self) {
        self.uncounted = [self.uncounted(), 0];
    }

    /// Notes that a leg has been compared with others. What differs there is added after this.
    pub(super) fn note_compared(&mut self, leg: LegIndex, piece: Extent) {
        self.remove(leg, piece);
    }

    /// Ends a scrub. One that has compared every leg everywhere has found all that differs.
    pub(super) fn scrub_ends(&mut self, compared_all: bool) {
        if compared_all {
            self.uncounted[0] = 0;
            self.version += 1;
        }
    }

    fn remove(&mut self, leg: LegIndex, extent: Extent) {
        let known = &mut self.known[leg.index()];
        let mut at = known.partition_point(|other| other.end <= extent.start);
        while let Some(&other) = known.get(at) {
            if other.start >= extent.end {
                return;
            }
            self.version += 1;
            let before = Extent { end: extent.start.max(other.start), ..other };
            let after = Extent { start: extent.end.min(other.end), ..other };
            match (before.is_empty(), after.is_empty()) {
                (true, true) => {
                    known.remove(at);
                    self.count -= 1;
                }
                (false, true) => {
                    known[at] = before;
                    at += 1;
                }
                (true, false) => known[at] = after,
                // Without room for both, it is known too long.
                (false, false) if self.count == DIFFERENCES_MAX => return,
                (false, false) => {
                    known[at] = before;
                    known.insert(at + 1, after);
                    self.count += 1;
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    const A: LegIndex = LegIndex(0);
    const B: LegIndex = LegIndex(1);
    const ALL: Extent = Extent { start: 0, end: 1000 };

    fn extent(start: u64, end: u64) -> Extent {
        Extent { start, end }
    }

    fn known(extents: &[(u64, u64)]) -> Differences {
        let mut differences = Differences::default();
        for &(start, end) in extents {
            differences.add(Difference { extent: extent(start, end), leg: B });
        }
        differences
    }

    fn listed(differences: &Differences) -> Vec<(u64, u64)> {
        differences.iter().map(|one| (one.extent.start, one.extent.end)).collect()
    }

    #[test]
    fn what_is_given_is_known_no_more() {
        let mut differences = known(&[(8, 16), (16, 24), (40, 48)]);
        assert_eq!(listed(&differences), [(8, 24), (40, 48)], "neighbours are one");
        differences.note_given(B, extent(12, 20), true);
        assert_eq!(listed(&differences), [(8, 12), (20, 24), (40, 48)]);
        differences.note_given(A, extent(0, 12), false);
        assert_eq!(listed(&differences).len(), 3, "of three legs another was given it");
        differences.note_given(A, extent(0, 21), true);
        assert_eq!(listed(&differences), [(21, 24), (40, 48)]);
        assert_eq!(differences.sectors(), 11);
        differences.forget_leg(B);
        assert_eq!((listed(&differences), differences.sectors()), (vec![], 0));
    }

    #[test]
    fn a_scrub_replaces_what_it_has_compared() {
        let mut differences = known(&[(8, 16), (40, 48), (80, 88), (120, 128)]);
        differences.scrub_begins();
        for piece in [extent(0, 32), extent(64, 100)] {
            differences.note_compared(A, piece);
            differences.note_compared(B, piece);
            if piece.start == 0 {
                differences.add(Difference { extent: extent(8, 12), leg: B });
            }
        }
        differences.scrub_ends(false);
        assert_eq!(listed(&differences), [(8, 12), (40, 48), (120, 128)]);
        differences.note_compared(A, ALL);
        assert_eq!(listed(&differences).len(), 3, "the other leg was not compared");
    }

    #[test]
    fn what_there_is_no_room_for_counts_until_the_whole_volume_is_scrubbed() {
        let mut differences = known(&[]);
        for at in 0..DIFFERENCES_MAX as u64 + 3 {
            differences.add(Difference { extent: extent(16 * at, 16 * at + 8), leg: B });
        }
        assert_eq!(differences.iter().count(), DIFFERENCES_MAX);
        assert_eq!(differences.uncounted(), 24);
        differences.note_given(B, extent(2, 4), true);
        assert_eq!(
            differences.iter().count(),
            DIFFERENCES_MAX,
            "there is no room to cut it in two"
        );
        differences.scrub_begins();
        differences.scrub_ends(false);
        assert_eq!(differences.uncounted(), 24, "it compared a part of the volume");
        let end = 16 * (DIFFERENCES_MAX as u64 + 3);
        differences.scrub_begins();
        differences.note_compared(B, extent(0, end));
        differences.scrub_ends(true);
        assert_eq!((differences.iter().count(), differences.uncounted()), (0, 0));
    }
}
