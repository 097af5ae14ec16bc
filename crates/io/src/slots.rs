//! A table of things in flight, named by slot and generation.
//!
//! The kernel hands back a 64-bit word with every completion. The generation of a slot changes
//! whenever the slot is freed, so a word that names a past operation finds nothing instead of
//! another operation.

/// Bits of a slot number.
pub const SLOT_BITS: u32 = 24;
/// Bits of a generation.
pub const GENERATION_BITS: u32 = 24;

/// A slot and its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotId {
    /// Index in the table.
    pub slot: u32,
    /// The slot's generation.
    pub generation: u32,
}

impl SlotId {
    /// Returns the id as the low 48 bits of a word.
    pub fn to_bits(self) -> u64 {
        u64::from(self.slot) << GENERATION_BITS | u64::from(self.generation)
    }

    /// Returns the id in the low 48 bits of a word.
    pub fn from_bits(bits: u64) -> SlotId {
        let mask = |bits: u32| (1_u64 << bits) - 1;
        SlotId {
            slot: (bits >> GENERATION_BITS & mask(SLOT_BITS)) as u32,
            generation: (bits & mask(GENERATION_BITS)) as u32,
        }
    }
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// The table. It allocates only if more things are in flight than ever before.
#[derive(Debug)]
pub struct SlotTable<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> SlotTable<T> {
    /// Returns a table with room for `capacity` things before it has to grow.
    pub fn with_capacity(capacity: usize) -> SlotTable<T> {
        let mut table =
            SlotTable { slots: Vec::with_capacity(capacity), free: Vec::with_capacity(capacity) };
        for slot in 0..capacity as u32 {
            table.slots.push(Slot { generation: 0, value: None });
            table.free.push(slot);
        }
        table.free.reverse();
        table
    }

    /// Returns the number of things it holds.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns true if it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Stores `value` and returns its id.
    ///
    /// # Panics
    /// If 2^24 things are in flight. Every caller's own bound is far below that.
    pub fn insert(&mut self, value: T) -> SlotId {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                let slot = self.slots.len() as u32;
                assert!(slot < 1 << SLOT_BITS, "more than 2^{SLOT_BITS} operations in flight");
                self.slots.push(Slot { generation: 0, value: None });
                slot
            }
        };
        let entry = &mut self.slots[slot as usize];
        entry.value = Some(value);
        SlotId { slot, generation: entry.generation }
    }

    /// Returns the thing that `id` names, unless it has been removed.
    pub fn get(&self, id: SlotId) -> Option<&T> {
        let entry = self.slots.get(id.slot as usize)?;
        if entry.generation == id.generation { entry.value.as_ref() } else { None }
    }

    /// Returns the thing that `id` names, unless it has been removed.
    pub fn get_mut(&mut self, id: SlotId) -> Option<&mut T> {
        let entry = self.slots.get_mut(id.slot as usize)?;
        if entry.generation == id.generation { entry.value.as_mut() } else { None }
    }

    /// Removes and returns the thing that `id` names.
    pub fn remove(&mut self, id: SlotId) -> Option<T> {
        let entry = self.slots.get_mut(id.slot as usize)?;
        if entry.generation != id.generation {
            return None;
        }
        let value = entry.value.take()?;
        entry.generation = (entry.generation + 1) & ((1 << GENERATION_BITS) - 1);
        self.free.push(id.slot);
        Some(value)
    }

    /// Removes everything for which `keep` returns false, in slot order.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        for slot in 0..self.slots.len() as u32 {
            let entry = &self.slots[slot as usize];
            let id = SlotId { slot, generation: entry.generation };
            if entry.value.as_ref().is_some_and(|value| !keep(value)) {
                self.remove(id);
            }
        }
    }

    /// Iterates over all things with their ids, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (SlotId, &T)> {
        self.slots.iter().enumerate().filter_map(|(slot, entry)| {
            let id = SlotId { slot: slot as u32, generation: entry.generation };
            entry.value.as_ref().map(|value| (id, value))
        })
    }

    /// Like [`SlotTable::iter`], but mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (SlotId, &mut T)> {
        self.slots.iter_mut().enumerate().filter_map(|(slot, entry)| {
            let id = SlotId { slot: slot as u32, generation: entry.generation };
            entry.value.as_mut().map(|value| (id, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_name_finds_nothing() {
        let mut table = SlotTable::with_capacity(1);
        let first = table.insert('a');
        assert_eq!(table.remove(first), Some('a'));
        assert_eq!(table.remove(first), None);
        let second = table.insert('b');
        assert_eq!(second.slot, first.slot);
        assert_eq!(table.get(first), None);
        assert_eq!(table.get_mut(second), Some(&mut 'b'));
        let third = table.insert('c');
        assert_ne!(third.slot, second.slot);
        assert_eq!(table.len(), 2);
        assert_eq!(table.iter().map(|(_, value)| *value).collect::<String>(), "bc");
        table.retain(|value| *value == 'c');
        assert_eq!((table.get(second), table.get(third)), (None, Some(&'c')));
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn names_survive_the_word() {
        let id = SlotId { slot: (1 << SLOT_BITS) - 1, generation: 0x00AB_CDEF };
        assert_eq!(SlotId::from_bits(id.to_bits()), id);
        assert_eq!(SlotId::from_bits(id.to_bits() | 0xFFFF << 48), id);
    }
}
