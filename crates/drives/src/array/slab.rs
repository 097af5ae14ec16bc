//! Numbered slots that are reused, so that a busy array does not allocate.

use std::ops::{Index, IndexMut};

/// Values in numbered slots. A freed slot keeps its value, and the value's allocations, for the
/// next user.
#[derive(Clone, Debug)]
pub(super) struct Slab<T> {
    places: Vec<T>,
    free: Vec<u32>,
}

/// The index of no slot.
pub(super) const NONE: u32 = u32::MAX;

impl<T> Slab<T> {
    pub(super) fn new() -> Slab<T> {
        Slab { places: Vec::new(), free: Vec::new() }
    }

    /// Returns a free slot, still holding its last value, or a new one with `blank`.
    pub(super) fn take(&mut self, blank: impl FnOnce() -> T) -> u32 {
        if let Some(place) = self.free.pop() {
            return place;
        }
        self.places.push(blank());
        (self.places.len() - 1) as u32
    }

    pub(super) fn free(&mut self, place: u32) {
        self.free.push(place);
    }

    /// Returns the number of slots in use.
    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;
    fn index(&self, place: u32) -> &T {
        &self.places[place as usize]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, place: u32) -> &mut T {
        &mut self.places[place as usize]
    }
}
