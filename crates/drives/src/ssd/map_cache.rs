//! The part of the mapping table in memory, if memory does not hold all of it.
//!
//! The table is on flash in pages of 4 KiB, each for 1,024 units. The cache replaces pages by
//! second chance (CLOCK).

/// Units mapped by a page of the table.
const PAGE_UNITS: u32 = 1024;

/// The cost of looking up a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    /// The page was in memory.
    Hit,
    /// A page has to be read.
    Miss {
        /// True if the evicted page had changed and has to be programmed first.
        written: bool,
    },
}

/// Pages in memory.
#[derive(Clone, Debug)]
pub(super) struct MapCache {
    /// For each page of the table: 0 if absent, else its flags.
    flags: Vec<u8>,
    ring: Vec<u32>,
    most: usize,
    hand: usize,
}

const PRESENT: u8 = 1;
const USED: u8 = 2;
const CHANGED: u8 = 4;

impl MapCache {
    /// Creates a cache of `bytes` bytes for a table of `units` units.
    pub(super) fn new(bytes: u64, units: u32) -> MapCache {
        let pages = units.div_ceil(PAGE_UNITS) as usize;
        let most = ((bytes / 4096) as usize).clamp(1, pages);
        MapCache { flags: vec![0; pages], ring: Vec::with_capacity(most), most, hand: 0 }
    }

    /// Looks the unit up; `changes` is true if its entry is about to change.
    pub(super) fn look_up(&mut self, unit: u32, changes: bool) -> Lookup {
        let page = unit / PAGE_UNITS;
        let flags = &mut self.flags[page as usize];
        let new = USED | if changes { CHANGED } else { 0 };
        if *flags != 0 {
            *flags |= new;
            return Lookup::Hit;
        }
        *flags = PRESENT | new;
        if self.ring.len() < self.most {
            self.ring.push(page);
            return Lookup::Miss { written: false };
        }
        loop {
            let old = &mut self.flags[self.ring[self.hand] as usize];
            if *old & USED != 0 {
                *old &= !USED;
                self.hand = (self.hand + 1) % self.most;
                continue;
            }
            let written = *old & CHANGED != 0;
            *old = 0;
            self.ring[self.hand] = page;
            self.hand = (self.hand + 1) % self.most;
            return Lookup::Miss { written };
        }
    }
}
