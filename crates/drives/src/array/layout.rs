//! The map from an array's sectors to its members' sectors.
//!
//! Chunks are distributed row by row. In RAID-5 the parity moves back by one member each row
//! and the data begins behind it ("left-symmetric"), so that neighbouring chunks lie on
//! different members across rows too. RAID-6 keeps the second parity behind the first.

use std::ops::Range;

use hemi_units::Extent;

use super::parameters::Level;

/// A range of sectors on one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) member: usize,
    pub(super) extent: Extent,
}

/// Part of one chunk of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Index of the data chunk in the row.
    pub(super) index: usize,
    /// First sector within the chunk.
    pub(super) start: u64,
    /// One past the last sector.
    pub(super) end: u64,
}

/// The map of an array.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    level: Level,
    members: usize,
    /// Sectors of a chunk.
    pub(super) chunk: u64,
    /// Chunks of data in a row.
    pub(super) data: usize,
    /// Rows of the array.
    pub(super) rows: u64,
}

impl Layout {
    /// Creates the map for members of `member_sectors` sectors. A rest smaller than a chunk
    /// stays unused on each member.
    pub(super) fn new(level: Level, members: usize, chunk: u64, member_sectors: u64) -> Layout {
        let data = level.data(members);
        Layout { level, members, chunk, data, rows: member_sectors / chunk }
    }

    /// Returns the size of the array's data in sectors.
    pub(super) fn sectors(&self) -> u64 {
        self.rows * self.row_sectors()
    }

    /// Returns the number of data sectors in a row.
    pub(super) fn row_sectors(&self) -> u64 {
        self.chunk * self.data as u64
    }

    /// Returns the number of members that hold each chunk of data.
    pub(super) fn copies(&self) -> usize {
        match self.level {
            Level::Raid1 => self.members,
            Level::Raid10 => 2,
            Level::Raid0 | Level::Raid5 | Level::Raid6 => 1,
        }
    }

    /// Returns the number of parity chunks in a row.
    pub(super) fn parity(&self) -> usize {
        self.level.parity()
    }

    /// Returns the member that holds parity number `which` of the row.
    pub(super) fn parity_member(&self, row: u64, which: usize) -> usize {
        let last = self.members - 1;
        (last - (row % self.members as u64) as usize + which) % self.members
    }

    /// Returns the members that hold the row's parities, in order.
    pub(super) fn parities_of(&self, row: u64) -> impl Iterator<Item = usize> {
        let layout = *self;
        (0..layout.parity()).map(move |which| layout.parity_member(row, which))
    }

    /// Returns the members that give all data of a row with parity, without those that are
    /// `out`: the data's own first, then as many parities as are needed. There are fewer than
    /// [`Layout::data`] if too many are out.
    pub(super) fn left_of(
        &self,
        row: u64,
        out: impl Fn(usize) -> bool,
    ) -> impl Iterator<Item = usize> {
        let layout = *self;
        let data = (0..layout.data).map(move |index| layout.data_member(row, index));
        data.chain(self.parities_of(row)).filter(move |&member| !out(member)).take(layout.data)
    }

    /// Returns the members that hold copies of the same data as `member`, itself included: all
    /// with parity, where each can be computed from the others.
    pub(super) fn group_of(&self, member: usize) -> Range<usize> {
        match self.level {
            Level::Raid0 => member..member + 1,
            Level::Raid10 => member / 2 * 2..member / 2 * 2 + 2,
            Level::Raid1 | Level::Raid5 | Level::Raid6 => 0..self.members,
        }
    }

    /// Returns the number of members of a group that the array can go on without.
    pub(super) fn spare(&self) -> usize {
        if self.parity() > 0 { self.parity() } else { self.copies() - 1 }
    }

    /// Returns the first member that holds chunk `index` of the row. The [`Layout::copies`] are
    /// on that member and those behind it.
    pub(super) fn data_member(&self, row: u64, index: usize) -> usize {
        match self.level {
            Level::Raid0 => index,
            Level::Raid1 => 0,
            Level::Raid10 => 2 * index,
            Level::Raid5 | Level::Raid6 => {
                (self.parity_member(row, 0) + self.parity() + index) % self.members
            }
        }
    }

    /// Maps the sectors `start` to `end` of a chunk in the row to the member's sectors.
    pub(super) fn on_member(&self, row: u64, start: u64, end: u64) -> Extent {
        Extent { start: row * self.chunk + start, end: row * self.chunk + end }
    }

    /// Splits `extent` at row boundaries. Calls `each` with the row and the start and end
    /// sector within the row's data.
    pub(super) fn rows_of(&self, extent: Extent, mut each: impl FnMut(u64, u64, u64)) {
        let width = self.row_sectors();
        let mut at = extent.start;
        while at < extent.end {
            let row = at / width;
            let end = extent.end.min((row + 1) * width);
            each(row, at - row * width, end - row * width);
            at = end;
        }
    }

    /// Splits sectors `start` to `end` of a row's data at chunk boundaries and calls `each`
    /// with every part.
    pub(super) fn runs_of(&self, start: u64, end: u64, mut each: impl FnMut(Run)) {
        let mut at = start;
        while at < end {
            let index = at / self.chunk;
            let until = end.min((index + 1) * self.chunk);
            let before = index * self.chunk;
            each(Run { index: index as usize, start: at - before, end: until - before });
            at = until;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{Layout, Level};

    fn layouts() -> impl Strategy<Value = Layout> {
        (0_usize..5, 4_usize..9, 1_u64..5, 0_u64..70).prop_map(|(level, members, chunk, rest)| {
            let levels = [Level::Raid0, Level::Raid1, Level::Raid5, Level::Raid6, Level::Raid10];
            let level = levels[level];
            let members = if level == Level::Raid10 { members & !1 } else { members };
            Layout::new(level, members, chunk * 8, chunk * 8 * 30 + rest)
        })
    }

    proptest! {
        #[test]
        fn every_sector_has_its_own_place_on_each_of_its_copies(layout in layouts()) {
            let mut places = BTreeMap::new();
            let whole = hemi_units::Extent::new(0, layout.sectors());
            layout.rows_of(whole, |row, start, end| layout.runs_of(start, end, |run| {
                for copy in 0..layout.copies() {
                    let member = layout.data_member(row, run.index) + copy;
                    assert!(member < layout.members);
                    let on = layout.on_member(row, run.start, run.end);
                    for sector in on.start..on.end {
                        assert_eq!(places.insert((member, sector), false), None);
                    }
                }
            }));
            for row in 0..layout.rows {
                for which in 0..layout.parity() {
                    let on = layout.on_member(row, 0, layout.chunk);
                    for sector in on.start..on.end {
                        let member = layout.parity_member(row, which);
                        assert_eq!(places.insert((member, sector), true), None);
                    }
                }
            }
            // No space is left over between them: data and parity fill the members.
            let used = layout.members as u64 * layout.rows * layout.chunk;
            prop_assert_eq!(places.len() as u64, used);
            let kept = layout.sectors() * layout.copies() as u64;
            let parity = layout.parity() as u64 * layout.rows * layout.chunk;
            prop_assert_eq!(kept + parity, used);
        }

        #[test]
        fn parity_rotates_over_all_members(
            raid6: bool,
            members in 4_usize..12,
            from in 0_u64..1_000_000,
        ) {
            let level = if raid6 { Level::Raid6 } else { Level::Raid5 };
            let layout = Layout::new(level, members, 128, u64::MAX / 2);
            for which in 0..layout.parity() {
                let mut met = vec![0; members];
                for row in from..from + 3 * members as u64 {
                    met[layout.parity_member(row, which)] += 1;
                }
                prop_assert_eq!(met, vec![3; members]);
            }
        }

        #[test]
        fn any_consecutive_chunks_keep_all_members_busy(members in 3_usize..12, from in 0_u64..10_000) {
            let layout = Layout::new(Level::Raid5, members, 8, u64::MAX / 2);
            let mut met = vec![false; members];
            for chunk in from..from + members as u64 {
                let (row, index) = (chunk / layout.data as u64, chunk % layout.data as u64);
                met[layout.data_member(row, index as usize)] = true;
            }
            prop_assert!(met.iter().all(|&met| met));
        }
    }
}
