//! The page-mapped table: where each unit lies, and whose each slot is.
//!
//! A *unit* is what the table maps (4 KiB mostly), a *slot* a place on flash that holds one.
//! Both are counted from 0 in 32 bits, so that a table of 256 million units takes 2 GB.

/// No unit, no slot, no block.
pub const NONE: u32 = u32::MAX;

/// The table in both directions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    slot_of: Vec<u32>,
    unit_in: Vec<u32>,
}

impl Mapping {
    /// Nothing is mapped. Neither number may reach [`NONE`].
    pub fn new(units: u32, slots: u32) -> Mapping {
        Mapping { slot_of: vec![NONE; units as usize], unit_in: vec![NONE; slots as usize] }
    }

    /// How many units there are.
    pub fn units(&self) -> u32 {
        self.slot_of.len() as u32
    }

    /// Where the unit lies; [`NONE`] if it was never written, or trimmed.
    pub fn slot_of(&self, unit: u32) -> u32 {
        self.slot_of[unit as usize]
    }

    /// The unit whose newest copy is in the slot; [`NONE`] if the slot is free or its content
    /// outdated.
    pub fn unit_in(&self, slot: u32) -> u32 {
        self.unit_in[slot as usize]
    }

    /// The unit lies in `slot` from now on. Returns the slot where it lay ([`NONE`] if
    /// nowhere), which is outdated now.
    pub fn assign(&mut self, unit: u32, slot: u32) -> u32 {
        let old = self.clear(unit);
        self.slot_of[unit as usize] = slot;
        self.unit_in[slot as usize] = unit;
        old
    }

    /// The unit lies nowhere from now on. Returns where it lay.
    pub fn clear(&mut self, unit: u32) -> u32 {
        let old = std::mem::replace(&mut self.slot_of[unit as usize], NONE);
        if old != NONE {
            self.unit_in[old as usize] = NONE;
        }
        old
    }
}
