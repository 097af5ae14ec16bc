//! A split virtqueue (virtio 1.2, 2.7). The guest offers requests in it and gets them back.
//!
//! The guest may write to any part of it at any time and in any order, except for the device's
//! own parts. So each value is read once, checked and then used. An invalid value ends the
//! connection.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering, fence};

use super::abi::{self, DESCRIPTOR_BYTES};
use super::memory::{GuestMemory, Segment};
use super::{Broken, CHAIN_MAX, QUEUE_SIZE_MAX};

/// Flag by which the guest wants no calls (`VIRTQ_AVAIL_F_NO_INTERRUPT`) and the device no
/// kicks (`VIRTQ_USED_F_NO_NOTIFY`).
const QUIET: u16 = 1;

/// The front end's addresses of the three parts of a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QueueAddresses {
    pub(super) descriptors: u64,
    pub(super) available: u64,
    pub(super) used: u64,
}

/// The places of a queue's three parts in hemi's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuePlaces {
    descriptors: NonNull<u8>,
    available: NonNull<u8>,
    used: NonNull<u8>,
}

// SAFETY: addresses of shared memory, which has no thread affinity. Their owner also has the
// memory.
unsafe impl Send for QueuePlaces {}

impl QueuePlaces {
    /// Finds a queue of `size` entries.
    ///
    /// # Errors
    /// Returns a message if the size is invalid, or if a part is not in guest memory or not
    /// aligned.
    pub(super) fn find(
        memory: &GuestMemory,
        addresses: &QueueAddresses,
        size: u16,
    ) -> Result<QueuePlaces, String> {
        if !size.is_power_of_two() || size > QUEUE_SIZE_MAX {
            return Err(format!(
                "a queue of {size} entries; it has a power of two, at most {QUEUE_SIZE_MAX}"
            ));
        }
        let part = |name: &str, address: u64, length: u64, align: usize| {
            let found = memory.ring(address, length);
            let aligned = found.filter(|at| (at.as_ptr() as usize).is_multiple_of(align));
            aligned.ok_or_else(|| {
                format!("the {name} ring at {address:#x} of {length} bytes is not in guest memory")
            })
        };
        let entries = u64::from(size);
        Ok(QueuePlaces {
            descriptors: part(
                "descriptor",
                addresses.descriptors,
                DESCRIPTOR_BYTES * entries,
                DESCRIPTOR_BYTES as usize,
            )?,
            available: part("available", addresses.available, 6 + 2 * entries, 2)?,
            used: part("used", addresses.used, 6 + 8 * entries, 4)?,
        })
    }

    /// Returns the used ring's index, which counts the chains given back.
    pub(super) fn used_index(&self) -> u16 {
        u16::from_le(at_u16(self.used, 2).load(Ordering::Acquire))
    }
}

/// Returns a two-byte number in a ring. The ring lasts as long as its memory does.
fn at_u16<'a>(part: NonNull<u8>, offset: usize) -> &'a AtomicU16 {
    // SAFETY: the part begins at an even address and is longer than `offset + 1`, as `find` has
    // checked for every offset that a queue of its size uses. Atomics may be shared with other
    // processes.
    unsafe { AtomicU16::from_ptr(part.as_ptr().add(offset).cast()) }
}

/// A descriptor.
#[derive(Clone, Copy, Debug)]
struct Descriptor {
    address: u64,
    length: u32,
    flags: u16,
    next: u16,
}

impl Descriptor {
    fn from_bytes(bytes: [u8; DESCRIPTOR_BYTES as usize]) -> Descriptor {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = bytes;
        Descriptor {
            address: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            length: u32::from_le_bytes([i, j, k, l]),
            flags: u16::from_le_bytes([m, n]),
            next: u16::from_le_bytes([o, p]),
        }
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// A table of descriptors: the queue's own, or one in guest memory that a descriptor refers to.
#[derive(Clone, Copy, Debug)]
enum Table {
    Queue,
    Indirect(Segment),
}

/// The device's side of a queue.
#[derive(Debug)]
pub(crate) struct SplitQueue {
    places: QueuePlaces,
    size: u16,
    has_event_index: bool,
    has_indirect: bool,
    /// The next entry of the available ring to take.
    next_available: u16,
    /// The next entry of the used ring to fill (`next_used`), and the index that the guest sees
    /// (`published`).
    next_used: u16,
    published: u16,
    /// The index at the last check whether the guest wants a call. `None` before the first
    /// check.
    looked_at: Option<u16>,
}

impl SplitQueue {
    /// Takes over a queue. `used` entries have been given back, and `taken` are still to be
    /// given back. `features` are those of the connection.
    pub(super) fn new(
        places: QueuePlaces,
        size: u16,
        features: u64,
        used: u16,
        taken: u16,
    ) -> SplitQueue {
        SplitQueue {
            places,
            size,
            has_event_index: features & abi::EVENT_INDEX != 0,
            has_indirect: features & abi::INDIRECT != 0,
            next_available: used.wrapping_add(taken),
            next_used: used,
            published: used,
            looked_at: None,
        }
    }

    /// Returns the number of its entries.
    pub(crate) fn size(&self) -> u16 {
        self.size
    }

    /// Returns the next entry of the available ring to take.
    pub(crate) fn next_available(&self) -> u16 {
        self.next_available
    }

    /// Moves the queue to other memory.
    pub(crate) fn set_places(&mut self, places: QueuePlaces) {
        self.places = places;
    }

    /// Returns the head of the next chain that the guest offers, if there is one.
    ///
    /// # Errors
    /// Returns [`Broken::Ahead`] or [`Broken::Head`].
    pub(crate) fn peek(&self) -> Result<Option<u16>, Broken> {
        let index = u16::from_le(at_u16(self.places.available, 2).load(Ordering::Acquire));
        let entries = index.wrapping_sub(self.next_available);
        if entries == 0 {
            return Ok(None);
        }
        if entries > self.size {
            return Err(Broken::Ahead { entries, size: self.size });
        }
        let slot = usize::from(self.next_available % self.size);
        let head = at_u16(self.places.available, 4 + 2 * slot).load(Ordering::Relaxed);
        let head = u16::from_le(head);
        if head < self.size { Ok(Some(head)) } else { Err(Broken::Head { head, size: self.size }) }
    }

    /// Takes the chain that [`SplitQueue::peek`] returned.
    pub(crate) fn take(&mut self) {
        self.next_available = self.next_available.wrapping_add(1);
    }

    /// Reads a chain into `segments`. Those that the device reads come before those that it
    /// writes.
    ///
    /// # Errors
    /// Returns [`Broken`] if the chain breaks a rule.
    pub(crate) fn chain(
        &self,
        memory: &GuestMemory,
        head: u16,
        segments: &mut Vec<Segment>,
    ) -> Result<(), Broken> {
        segments.clear();
        let (mut table, mut size, mut next) = (Table::Queue, u32::from(self.size), u32::from(head));
        for _ in 0..=CHAIN_MAX {
            if next >= size {
                return Err(Broken::Next { next, size });
            }
            let descriptor = self.descriptor(memory, table, next)?;
            let writable = descriptor.has(abi::DESCRIPTOR_WRITE);
            let Descriptor { address, length, .. } = descriptor;
            let segment = Segment { address, length, writable };
            if !memory.contains(&segment) {
                return Err(Broken::NoMemory { address });
            }
            if descriptor.has(abi::DESCRIPTOR_INDIRECT) {
                let entries = length / DESCRIPTOR_BYTES as u32;
                let fits = entries > 0 && length.is_multiple_of(DESCRIPTOR_BYTES as u32);
                let alone = !descriptor.has(abi::DESCRIPTOR_NEXT);
                if !(self.has_indirect && matches!(table, Table::Queue) && fits && alone) {
                    return Err(Broken::Indirect { length });
                }
                (table, size, next) = (Table::Indirect(segment), entries, 0);
                continue;
            }
            if !writable && segments.last().is_some_and(|last| last.writable) {
                return Err(Broken::Order);
            }
            if length > 0 {
                segments.push(segment);
            }
            if !descriptor.has(abi::DESCRIPTOR_NEXT) {
                return Ok(());
            }
            next = u32::from(descriptor.next);
        }
        Err(Broken::Long)
    }

    fn descriptor(
        &self,
        memory: &GuestMemory,
        table: Table,
        index: u32,
    ) -> Result<Descriptor, Broken> {
        let offset = u64::from(index) * DESCRIPTOR_BYTES;
        let bytes = match table {
            Table::Indirect(segment) => memory.read(&[segment], offset)?,
            Table::Queue => {
                let at = self.places.descriptors.as_ptr().wrapping_add(offset as usize);
                // SAFETY: `index` is less than the queue's size, so the descriptor lies within its table.
                unsafe { at.cast::<[u8; DESCRIPTOR_BYTES as usize]>().read_volatile() }
            }
        };
        Ok(Descriptor::from_bytes(bytes))
    }

    /// Gives a chain back with `written` bytes written into it. The guest sees it once it is
    /// published.
    pub(crate) fn give_back(&mut self, head: u16, written: u32) {
        let slot = usize::from(self.next_used % self.size);
        let at = self.places.used.as_ptr().wrapping_add(4 + 8 * slot).cast::<u32>();
        // SAFETY: the slot lies within the used ring, which is aligned to four bytes.
        unsafe {
            at.write_volatile(u32::from(head).to_le());
            at.add(1).write_volatile(written.to_le());
        }
        self.next_used = self.next_used.wrapping_add(1);
    }

    /// Returns true if a chain has been given back that the guest does not see yet.
    pub(crate) fn has_unpublished(&self) -> bool {
        self.next_used != self.published
    }

    /// Makes the chains given back visible to the guest. Returns the used ring's index.
    pub(crate) fn publish(&mut self) -> u16 {
        at_u16(self.places.used, 2).store(self.next_used.to_le(), Ordering::Release);
        self.published = self.next_used;
        self.published
    }

    /// Returns true if the guest wants a call for the chains published since the last check.
    pub(crate) fn wants_call(&mut self) -> bool {
        // The published index becomes visible before the guest's wish is read. Otherwise
        // neither side might notice the other.
        fence(Ordering::SeqCst);
        let Some(before) = self.looked_at.replace(self.published) else { return true };
        if !self.has_event_index {
            let flags = u16::from_le(at_u16(self.places.available, 0).load(Ordering::Relaxed));
            return flags & QUIET == 0;
        }
        let event = at_u16(self.places.available, 4 + 2 * usize::from(self.size));
        let event = u16::from_le(event.load(Ordering::Relaxed));
        let (now, new) = (self.published, self.published.wrapping_sub(before));
        now.wrapping_sub(event).wrapping_sub(1) < new
    }

    /// Asks the guest for a kick when it offers more requests. Returns true if it has offered
    /// more meanwhile.
    ///
    /// # Errors
    /// Returns those of [`SplitQueue::peek`].
    pub(crate) fn ask_for_kick(&self) -> Result<bool, Broken> {
        if self.has_event_index {
            let event = at_u16(self.places.used, 4 + 8 * usize::from(self.size));
            event.store(self.next_available.to_le(), Ordering::Relaxed);
        } else {
            at_u16(self.places.used, 0).store(0, Ordering::Relaxed);
        }
        // The wish becomes visible before the index is read again. Otherwise a kick might be
        // missed.
        fence(Ordering::SeqCst);
        Ok(self.peek()?.is_some())
    }
}

#[cfg(test)]
mod tests;
