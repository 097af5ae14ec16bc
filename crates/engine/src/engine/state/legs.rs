//! The legs, by slot.

use alloc::vec::Vec;
use core::ops::{Deref, Index, IndexMut, Range};

use super::leg::Leg;
use crate::identifiers::LEGS_MAX;

/// All slots, and how many of them have been used.
pub(in crate::engine) struct Legs {
    legs: Vec<Leg>,
    /// One past the highest slot that holds or held a leg since open.
    used: usize,
}

impl Legs {
    /// Takes over the legs there are, in `used` slots.
    pub(in crate::engine) fn new(legs: Vec<Leg>, used: usize) -> Legs {
        debug_assert_eq!(legs.len(), LEGS_MAX);
        Legs { legs, used }
    }

    /// Returns the slots that hold or held a leg since open: the others have nothing, and are not
    /// looked at on the data path.
    pub(in crate::engine) fn slots(&self) -> Range<usize> {
        0..self.used
    }

    /// Returns the legs in these slots.
    pub(in crate::engine) fn in_use(&self) -> &[Leg] {
        &self.legs[..self.used]
    }

    /// Returns the slots that were never used.
    pub(in crate::engine) fn unused(&self) -> &[Leg] {
        &self.legs[self.used..]
    }

    /// Returns the legs that hold a copy, in slot order.
    pub(in crate::engine) fn that_are_in(&self) -> impl Iterator<Item = &Leg> {
        self.in_use().iter().filter(|leg| leg.is_in())
    }

    /// Gives a slot to a leg that joins.
    pub(in crate::engine) fn seat(&mut self, leg: Leg) {
        let slot = leg.index.index();
        self.legs[slot] = leg;
        self.used = self.used.max(slot + 1);
    }

    pub(in crate::engine) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Leg> {
        self.legs.iter_mut()
    }
}

impl Deref for Legs {
    type Target = [Leg];

    fn deref(&self) -> &[Leg] {
        &self.legs
    }
}

impl Index<usize> for Legs {
    type Output = Leg;

    fn index(&self, slot: usize) -> &Leg {
        &self.legs[slot]
    }
}

impl IndexMut<usize> for Legs {
    fn index_mut(&mut self, slot: usize) -> &mut Leg {
        &mut self.legs[slot]
    }
}
