//! The page-mapped table: the slot of each unit, and the unit in each slot.
//!
//! A *unit* is what the table maps (usually 4 KiB), and a *slot* is a place on flash that holds
//! one. Both are counted from 0 in 32 bits, so that a table of 256 million units takes 2 GB.

use std::hint::black_box;
use std::ops::Range;

/// The value for no unit, no slot or no block.
pub const NONE: u32 = u32::MAX;

/// Entries that are fetched together, see [`Mapping::fetch`].
pub const AHEAD: u32 = 64;

/// Entries of a cache line.
const LINE: usize = 64 / size_of::<u32>();

/// The table in both directions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    slot_of: Vec<u32>,
    unit_in: Vec<u32>,
}

impl Mapping {
    /// Creates an empty table. Neither number may reach [`NONE`].
    pub fn new(units: u32, slots: u32) -> Mapping {
        Mapping { slot_of: vec![NONE; units as usize], unit_in: vec![NONE; slots as usize] }
    }

    /// Returns the number of units.
    pub fn units(&self) -> u32 {
        self.slot_of.len() as u32
    }

    /// Returns the slot of the unit, or [`NONE`] if it was never written or was trimmed.
    pub fn slot_of(&self, unit: u32) -> u32 {
        self.slot_of[unit as usize]
    }

    /// Returns the unit whose newest copy is in the slot, or [`NONE`] if the slot is free or
    /// outdated.
    pub fn unit_in(&self, slot: u32) -> u32 {
        self.unit_in[slot as usize]
    }

    /// Fetches the entries of units that are soon written or moved, and those of their slots. The table is
    /// many times as large as a processor's caches, and the processor waits for entries one after the
    /// other where they are first read by whatever changes them. Here it waits for all of them at once.
    pub fn fetch(&self, units: &[u32]) {
        let slots = units.iter().filter_map(|&unit| self.slot_of.get(unit as usize));
        let found = slots.filter_map(|&slot| self.unit_in.get(slot as usize));
        black_box(found.fold(0, |all, &unit| all ^ unit));
    }

    /// Does as [`Mapping::fetch`] for the units in these slots, and fetches as many slots behind them.
    pub fn fetch_in(&self, slots: Range<u32>) {
        let units = &self.unit_in[slots.start as usize..slots.end as usize];
        let found = units.iter().filter_map(|&unit| self.slot_of.get(unit as usize));
        let next = self.unit_in[slots.end as usize..].iter().take(units.len()).step_by(LINE);
        black_box(found.chain(next).fold(0, |all, &slot| all ^ slot));
    }

    /// Maps the unit to `slot`. Returns its previous slot ([`NONE`] if it had none), which is
    /// now outdated.
    pub fn assign(&mut self, unit: u32, slot: u32) -> u32 {
        let old = self.clear(unit);
        self.slot_of[unit as usize] = slot;
        self.unit_in[slot as usize] = unit;
        old
    }

    /// Moves the unit that is in slot `from` to slot `to`, which is free. Unlike [`Mapping::assign`] it
    /// reads nothing of the unit's entry, which is rarely in a cache: collection would wait for it
    /// with each unit.
    pub fn relocate(&mut self, unit: u32, from: u32, to: u32) {
        debug_assert_eq!(self.slot_of[unit as usize], from, "a unit is where the table says");
        self.slot_of[unit as usize] = to;
        self.unit_in[from as usize] = NONE;
        self.unit_in[to as usize] = unit;
    }

    /// Unmaps the unit. Returns its previous slot.
    pub fn clear(&mut self, unit: u32) -> u32 {
        let old = std::mem::replace(&mut self.slot_of[unit as usize], NONE);
        if old != NONE {
            self.unit_in[old as usize] = NONE;
        }
        old
    }
}
