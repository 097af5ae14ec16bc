//! Fixed-capacity storage: everything the engine keeps per request, operation and I/O lives
//! in a slab allocated at open, so that the data path never touches the allocator.

use alloc::vec::Vec;

/// "No slot": the end of a list, or nothing linked.
pub(crate) const NONE: u32 = u32::MAX;

/// A slot together with its generation: stale once the slot has been freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl Key {
    pub(crate) const NONE: Key = Key { slot: NONE, generation: 0 };

    pub(crate) fn to_u64(self) -> u64 {
        (u64::from(self.generation) << 32) | u64::from(self.slot)
    }

    pub(crate) fn from_u64(value: u64) -> Key {
        Key { slot: value as u32, generation: (value >> 32) as u32 }
    }
}

struct Slot<T> {
    generation: u32,
    used: bool,
    value: T,
}

/// A slab of `T` with a free list. Its memory is reserved at once and touched as it is first used, so
/// that an engine with room for much opens quickly.
pub(crate) struct Slab<T> {
    /// Slots that have been in use.
    slots: Vec<Slot<T>>,
    /// Those of them that are free.
    free: Vec<u32>,
    capacity: u32,
}

impl<T> Slab<T> {
    pub(crate) fn new(capacity: u32) -> Slab<T> {
        let slots = Vec::with_capacity(capacity as usize);
        Slab { slots, free: Vec::with_capacity(capacity as usize), capacity }
    }

    /// Stores a value; `None` when full.
    pub(crate) fn insert(&mut self, value: T) -> Option<Key> {
        let Some(slot) = self.free.pop() else {
            let slot = self.slots.len() as u32;
            if slot == self.capacity {
                return None;
            }
            self.slots.push(Slot { generation: 0, used: true, value });
            return Some(Key { slot, generation: 0 });
        };
        let entry = &mut self.slots[slot as usize];
        entry.used = true;
        entry.value = value;
        Some(Key { slot, generation: entry.generation })
    }

    /// Frees a slot; its key goes stale.
    pub(crate) fn remove(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        debug_assert!(entry.used, "slab slot freed twice");
        entry.used = false;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(slot);
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let entry = self.slots.get(key.slot as usize)?;
        (entry.used && entry.generation == key.generation).then_some(&entry.value)
    }

    pub(crate) fn is_live(&self, key: Key) -> bool {
        self.get(key).is_some()
    }

    pub(crate) fn key(&self, slot: u32) -> Key {
        Key { slot, generation: self.slots[slot as usize].generation }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn free_slots(&self) -> usize {
        self.capacity() - self.len()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// The slots in use, in slot order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slots.iter().enumerate().filter(|(_, s)| s.used).map(|(i, s)| (i as u32, &s.value))
    }

    pub(crate) fn is_used(&self, slot: u32) -> bool {
        self.slots.get(slot as usize).is_some_and(|s| s.used)
    }
}

impl<T> core::ops::Index<u32> for Slab<T> {
    type Output = T;
    fn index(&self, slot: u32) -> &T {
        debug_assert!(self.slots[slot as usize].used, "slab slot {slot} is free");
        &self.slots[slot as usize].value
    }
}

impl<T> core::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, slot: u32) -> &mut T {
        debug_assert!(self.slots[slot as usize].used, "slab slot {slot} is free");
        &mut self.slots[slot as usize].value
    }
}
