//! The part of the table that is in memory, where not all of it is.
//!
//! The table lies on flash in pages of 4 KiB, 1,024 units each; the cache replaces them by
//! second chance (CLOCK).

/// Units a page of the table maps.
const PAGE_UNITS: u32 = 1024;

/// What looking up a unit cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    /// It was in memory.
    Hit,
    /// A page has to be read; `written` if a changed one has to be programmed first.
    Miss {
        /// Whether the page that made place had changed.
        written: bool,
    },
}

/// Pages in memory.
#[derive(Clone, Debug)]
pub(super) struct MapCache {
    /// Of each page of the table: 0 absent, or its flags.
    flags: Vec<u8>,
    ring: Vec<u32>,
    most: usize,
    hand: usize,
}

const PRESENT: u8 = 1;
const USED: u8 = 2;
const CHANGED: u8 = 4;

impl MapCache {
    /// Of so many bytes, for a table of so many units.
    pub(super) fn new(bytes: u64, units: u32) -> MapCache {
        let pages = units.div_ceil(PAGE_UNITS) as usize;
        let most = ((bytes / 4096) as usize).clamp(1, pages);
        MapCache { flags: vec![0; pages], ring: Vec::with_capacity(most), most, hand: 0 }
    }

    /// Looks the unit up, to change it or not.
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
