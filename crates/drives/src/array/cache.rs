//! The write-back cache: the blocks of rows it holds, and the choice of the next row to
//! destage.

use std::collections::VecDeque;

use hemi_units::SECTOR_BYTES;

use super::layout::{Layout, Run};
use super::parameters::{BLOCK_BYTES, Cache};
use super::rows::{RowMap, RowSet};
use super::slab::Slab;

/// Sectors of a block. A write of less than a block counts as the whole block.
const BLOCK: u64 = BLOCK_BYTES / SECTOR_BYTES;

/// The cached blocks of one row: a bit for each block, twice.
#[derive(Clone, Debug, Default)]
struct Held {
    /// Blocks that are not in flight to the members yet.
    dirty: Vec<u64>,
    /// Blocks in flight to the members.
    flying: Vec<u64>,
    dirty_count: u64,
    flying_count: u64,
    /// Epoch (between two flushes) in which the row became dirty, and that of the blocks in
    /// flight.
    epoch: u64,
    flying_epoch: u64,
}

/// The cache.
#[derive(Clone, Debug)]
pub(super) struct WriteCache {
    /// Maximum number of blocks held, and the number held now.
    capacity: u64,
    used: u64,
    /// Blocks held that are in flight.
    flying: u64,
    /// Number of blocks not in flight above which rows are destaged even if they are not full.
    threshold: u64,
    row_blocks: u64,
    rows: RowMap<u32>,
    held: Slab<Held>,
    /// Rows that may be destaged: dirty, with nothing in flight. `full` holds the full ones.
    ready: RowSet,
    full: RowSet,
    /// Position of destaging, which goes through the rows in order.
    cursor: u64,
    /// Rows dirty or in flight, by epoch; the first entry is for epoch `oldest`.
    epochs: VecDeque<u64>,
    oldest: u64,
}

impl WriteCache {
    pub(super) fn new(parameters: &Cache, layout: &Layout) -> WriteCache {
        let capacity = parameters.size.0 / BLOCK_BYTES;
        WriteCache {
            capacity,
            used: 0,
            flying: 0,
            threshold: (capacity as f64 * parameters.destage_from) as u64,
            row_blocks: layout.row_sectors() / BLOCK,
            rows: RowMap::default(),
            held: Slab::new(),
            ready: RowSet::new(layout.rows),
            full: RowSet::new(layout.rows),
            cursor: 0,
            epochs: VecDeque::from([0]),
            oldest: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Adds sectors `start` to `end` of the row's data as far as there is room. Returns the
    /// sector up to which they were added.
    pub(super) fn insert(&mut self, row: u64, start: u64, end: u64) -> u64 {
        let words = self.row_blocks.div_ceil(64) as usize;
        let place = match self.rows.get(&row) {
            Some(&place) => place,
            None if self.used == self.capacity => return start,
            None => {
                let place = self.held.take(Held::default);
                let held = &mut self.held[place];
                held.dirty.resize(words, 0);
                held.flying.resize(words, 0);
                self.rows.insert(row, place);
                place
            }
        };
        let held = &mut self.held[place];
        let was_clean = held.dirty_count == 0;
        let mut reached = end;
        for block in start / BLOCK..end.div_ceil(BLOCK) {
            let (word, bit) = ((block / 64) as usize, 1 << (block % 64));
            if held.dirty[word] & bit != 0 {
                continue;
            }
            if self.used == self.capacity {
                reached = start.max(block * BLOCK);
                break;
            }
            held.dirty[word] |= bit;
            held.dirty_count += 1;
            self.used += 1;
        }
        if held.dirty_count > 0 {
            if was_clean {
                held.epoch = self.oldest + self.epochs.len() as u64 - 1;
                if let Some(rows) = self.epochs.back_mut() {
                    *rows += 1;
                }
            }
            self.make_ready(row, place);
        }
        reached
    }

    fn make_ready(&mut self, row: u64, place: u32) {
        let held = &self.held[place];
        if held.flying_count == 0 && held.dirty_count > 0 {
            self.ready.insert(row);
            if held.dirty_count == self.row_blocks {
                self.full.insert(row);
            }
        }
    }

    /// Returns true if the cache holds all of sectors `start` to `end` of the row's data.
    pub(super) fn holds(&self, row: u64, start: u64, end: u64) -> bool {
        let Some(&place) = self.rows.get(&row) else { return false };
        let held = &self.held[place];
        (start / BLOCK..end.div_ceil(BLOCK)).all(|block| {
            let word = (block / 64) as usize;
            (held.dirty[word] | held.flying[word]) & (1 << (block % 64)) != 0
        })
    }

    /// Forgets the dirty blocks of these sectors, because a write bypasses the cache.
    pub(super) fn forget(&mut self, row: u64, start: u64, end: u64) {
        let Some(&place) = self.rows.get(&row) else { return };
        let held = &mut self.held[place];
        let before = held.dirty_count;
        // Only whole blocks: the rest of a partly written block has to be kept.
        for block in start.div_ceil(BLOCK)..end / BLOCK {
            let (word, bit) = ((block / 64) as usize, 1 << (block % 64));
            if held.dirty[word] & bit != 0 {
                held.dirty[word] &= !bit;
                held.dirty_count -= 1;
                self.used -= 1;
            }
        }
        let emptied = before > 0 && held.dirty_count == 0;
        if held.dirty_count < self.row_blocks {
            self.full.remove(row);
        }
        if emptied {
            let epoch = held.epoch;
            self.ready.remove(row);
            self.left(epoch);
            self.drop_if_empty(row, place);
        }
    }

    /// Returns the row to destage next: a full one or, if `urgent` or if the cache is above its
    /// threshold, any.
    pub(super) fn next_row(&self, urgent: bool) -> Option<u64> {
        let full = self.full.next_around(self.cursor);
        let any = urgent || self.used - self.flying > self.threshold;
        full.or_else(|| if any { self.ready.next_around(self.cursor) } else { None })
    }

    /// Returns true if some row could be destaged.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Marks the row from [`WriteCache::next_row`] as in flight and puts its dirty runs into
    /// `runs`.
    pub(super) fn send(&mut self, row: u64, layout: &Layout, runs: &mut Vec<Run>) {
        runs.clear();
        let Some(&place) = self.rows.get(&row) else { return };
        let held = &mut self.held[place];
        std::mem::swap(&mut held.dirty, &mut held.flying);
        held.flying_count = std::mem::take(&mut held.dirty_count);
        held.flying_epoch = held.epoch;
        self.flying += held.flying_count;
        self.ready.remove(row);
        self.full.remove(row);
        self.cursor = row + 1;
        let mut block = 0;
        while let Some(first) = next_bit(&held.flying, block, true) {
            let end = next_bit(&held.flying, first, false).unwrap_or(self.row_blocks);
            let end = end.min(self.row_blocks);
            layout.runs_of(first * BLOCK, end * BLOCK, |run| runs.push(run));
            block = end;
        }
    }

    /// Marks the row in flight as written to the members.
    pub(super) fn arrived(&mut self, row: u64) {
        let Some(&place) = self.rows.get(&row) else { return };
        let held = &mut self.held[place];
        held.flying.fill(0);
        let blocks = std::mem::take(&mut held.flying_count);
        self.used -= blocks;
        self.flying -= blocks;
        let epoch = held.flying_epoch;
        self.left(epoch);
        self.make_ready(row, place);
        self.drop_if_empty(row, place);
    }

    fn drop_if_empty(&mut self, row: u64, place: u32) {
        let held = &self.held[place];
        if held.dirty_count + held.flying_count == 0 {
            self.rows.remove(&row);
            self.held.free(place);
        }
    }

    /// Counts a row of `epoch` as written to the members.
    fn left(&mut self, epoch: u64) {
        self.epochs[(epoch - self.oldest) as usize] -= 1;
        while self.epochs.len() > 1 && self.epochs[0] == 0 {
            self.epochs.pop_front();
            self.oldest += 1;
        }
    }

    /// Ends the current epoch for a flush and returns it. Blocks dirtied from now on belong to
    /// the next.
    pub(super) fn close_epoch(&mut self) -> u64 {
        let epoch = self.oldest + self.epochs.len() as u64 - 1;
        self.epochs.push_back(0);
        while self.epochs.len() > 1 && self.epochs[0] == 0 {
            self.epochs.pop_front();
            self.oldest += 1;
        }
        epoch
    }

    /// Returns true if everything of `epoch` and of earlier epochs is on the members.
    pub(super) fn is_past(&self, epoch: u64) -> bool {
        epoch < self.oldest
    }

    #[cfg(test)]
    fn used(&self) -> u64 {
        self.used
    }
}

/// Returns the first block from `from` on whose bit equals `set`.
fn next_bit(words: &[u64], from: u64, set: bool) -> Option<u64> {
    let mut at = from;
    while let Some(&word) = words.get((at / 64) as usize) {
        let word = (if set { word } else { !word }) & (!0 << (at % 64));
        if word != 0 {
            return Some(at / 64 * 64 + u64::from(word.trailing_zeros()));
        }
        at = (at / 64 + 1) * 64;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::super::parameters::{Cache, Level};
    use super::{Layout, WriteCache};
    use hemi_units::{Size, Time};

    fn layout() -> Layout {
        // A row has 3 chunks of data of 16 KiB: 12 blocks.
        Layout::new(Level::Raid5, 4, 32, 32 * 20)
    }

    fn cache(blocks: u64) -> WriteCache {
        let parameters = Cache {
            size: Size(blocks * 4096),
            protected: false,
            destage_from: 0.5,
            destage_depth: 4,
            linger: Time(0),
        };
        WriteCache::new(&parameters, &layout())
    }

    #[test]
    fn full_rows_go_first_and_then_in_order_from_where_it_was() {
        let (layout, mut cache) = (layout(), cache(64));
        for row in [3, 9, 1] {
            assert_eq!(cache.insert(row, 0, 8), 8);
        }
        assert_eq!(cache.next_row(false), None);
        cache.insert(5, 0, 96);
        assert_eq!(cache.next_row(false), Some(5));
        let mut runs = Vec::new();
        cache.send(5, &layout, &mut runs);
        assert_eq!(runs.len(), 3);
        let mut order = Vec::new();
        while let Some(row) = cache.next_row(true) {
            cache.send(row, &layout, &mut runs);
            order.push(row);
        }
        assert_eq!(order, [9, 1, 3]);
    }

    #[test]
    fn what_does_not_fit_waits() {
        let mut cache = cache(16);
        assert_eq!(cache.insert(0, 0, 96), 96);
        assert_eq!(cache.insert(1, 8, 96), 40);
        assert_eq!(cache.insert(1, 40, 96), 40);
        assert_eq!(cache.insert(2, 3, 96), 3);
        // Overwriting cached blocks needs no room.
        assert_eq!(cache.insert(0, 0, 96), 96);
        let row = cache.next_row(false).unwrap();
        cache.send(row, &layout(), &mut Vec::new());
        assert!(cache.holds(row, 0, 96));
        cache.arrived(row);
        assert!(!cache.holds(row, 0, 8));
        assert_eq!(cache.insert(2, 3, 96), 96);
    }

    proptest! {
        #[test]
        fn the_cache_is_a_set_of_blocks(
            steps in prop::collection::vec((0_u8..5, 0_u64..20, 0_u64..96, 1_u64..96), 1..300),
        ) {
            let (layout, mut cache) = (layout(), cache(40));
            let mut dirty: BTreeSet<(u64, u64)> = BTreeSet::new();
            let mut flying: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
            let mut closed: Vec<(u64, BTreeSet<(u64, u64)>)> = Vec::new();
            let mut runs = Vec::new();
            for (step, row, start, length) in steps {
                let end = (start + length).min(96);
                match step {
                    0 | 1 => {
                        let reached = cache.insert(row, start, end);
                        if reached > start {
                            dirty.extend((start / 8..reached.div_ceil(8)).map(|b| (row, b)));
                        }
                    }
                    2 => if let Some(row) = cache.next_row(true) {
                        cache.send(row, &layout, &mut runs);
                        let blocks: BTreeSet<u64> = runs
                            .iter()
                            .flat_map(|run| {
                                let first = run.index as u64 * 4;
                                first + run.start / 8..first + run.end / 8
                            })
                            .collect();
                        let expected: BTreeSet<u64> =
                            dirty.iter().filter(|b| b.0 == row).map(|b| b.1).collect();
                        prop_assert_eq!(&blocks, &expected);
                        dirty.retain(|block| block.0 != row);
                        prop_assert!(flying.insert(row, blocks).is_none());
                    },
                    3 => if let Some((row, blocks)) = flying.pop_first() {
                        cache.arrived(row);
                        for (_, waits) in &mut closed {
                            for &block in &blocks {
                                waits.remove(&(row, block));
                            }
                        }
                    },
                    _ if row % 2 == 0 => {
                        cache.forget(row, start, end);
                        for block in start.div_ceil(8)..end / 8 {
                            dirty.remove(&(row, block));
                            for (_, waits) in &mut closed {
                                let flies = flying.get(&row).is_some_and(|f| f.contains(&block));
                                if !flies {
                                    waits.remove(&(row, block));
                                }
                            }
                        }
                    }
                    _ => {
                        let mut waits = dirty.clone();
                        for (&row, blocks) in &flying {
                            waits.extend(blocks.iter().map(|&block| (row, block)));
                        }
                        closed.push((cache.close_epoch(), waits));
                    }
                }
                let flies: usize = flying.values().map(BTreeSet::len).sum();
                prop_assert_eq!(cache.used() as usize, dirty.len() + flies);
                prop_assert!(cache.used() <= 40);
                prop_assert_eq!(cache.is_empty(), cache.used() == 0);
                // A flush never passes before the blocks that were dirty when it arrived are
                // written.
                for (epoch, waits) in &closed {
                    prop_assert!(!cache.is_past(*epoch) || waits.is_empty());
                }
            }
            // Every flush passes in the end.
            let epoch = cache.close_epoch();
            while let Some((row, _)) = flying.pop_first() {
                cache.arrived(row);
            }
            while let Some(row) = cache.next_row(true) {
                cache.send(row, &layout, &mut runs);
                cache.arrived(row);
            }
            prop_assert!(cache.is_past(epoch) && cache.is_empty());
        }
    }
}
