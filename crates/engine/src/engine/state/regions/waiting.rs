//! Operations that wait for their region's metadata or authority, by region.

use alloc::vec;
use alloc::vec::Vec;

use super::Regions;
use crate::engine::state::slab::NONE;

/// Not the end of a list, but in none.
const FREE: u32 = NONE - 1;

/// The lists, by operation. Each record has the newest of its own.
pub(super) struct Waiting {
    /// The next older operation that waits in the same region.
    next: Vec<u32>,
    /// Records with operations waiting.
    records: Vec<u32>,
}

impl Waiting {
    pub(super) fn new(operations_max: u32, records_max: usize) -> Waiting {
        let next = vec![FREE; operations_max as usize];
        Waiting { next, records: Vec::with_capacity(records_max) }
    }

    fn leaves(&mut self, record: u32) {
        if let Some(place) = self.records.iter().position(|&r| r == record) {
            self.records.swap_remove(place);
        }
    }
}

impl Regions {
    /// Puts an operation among those to be looked at again when its region's metadata gets
    /// further.
    pub(in crate::engine) fn wait(&mut self, operation: u32, record: u32) {
        if self.waiting.next[operation as usize] != FREE {
            return;
        }
        let head = self.active[record].waiting;
        if head == NONE {
            self.waiting.records.push(record);
        }
        self.waiting.next[operation as usize] = head;
        self.active[record].waiting = operation;
    }

    /// Takes an operation out, if it waits.
    pub(in crate::engine) fn stop_waiting(&mut self, operation: u32, record: u32) {
        let next = core::mem::replace(&mut self.waiting.next[operation as usize], FREE);
        if next == FREE {
            return;
        }
        let mut at = self.active[record].waiting;
        if at == operation {
            self.active[record].waiting = next;
            if next == NONE {
                self.waiting.leaves(record);
            }
            return;
        }
        while at != NONE {
            let after = self.waiting.next[at as usize];
            if after == operation {
                self.waiting.next[at as usize] = next;
                return;
            }
            at = after;
        }
    }

    /// Empties the list of a record. Returns the operation that has waited longest;
    /// [`Regions::next_waiter`] has the others.
    pub(in crate::engine) fn take_waiting(&mut self, record: u32) -> Option<u32> {
        let mut at = core::mem::replace(&mut self.active[record].waiting, NONE);
        if at == NONE {
            return None;
        }
        self.waiting.leaves(record);
        // The list is newest first; operations go on in the order they came.
        let mut reversed = NONE;
        while at != NONE {
            let next = core::mem::replace(&mut self.waiting.next[at as usize], reversed);
            reversed = at;
            at = next;
        }
        Some(reversed)
    }

    /// Lets go of an operation of a list that was taken. Returns the one that came after it.
    pub(in crate::engine) fn next_waiter(&mut self, operation: u32) -> Option<u32> {
        let next = core::mem::replace(&mut self.waiting.next[operation as usize], FREE);
        debug_assert!(next != FREE, "operation {operation} ended while its list was taken");
        (next < FREE).then_some(next)
    }

    /// Returns the operations that wait in a region, the newest first.
    pub(in crate::engine) fn waiters(&self, record: u32) -> impl Iterator<Item = u32> {
        let mut at = self.active[record].waiting;
        core::iter::from_fn(move || {
            let operation = (at != NONE).then_some(at)?;
            at = self.waiting.next[operation as usize];
            Some(operation)
        })
    }

    /// Returns true if an operation waits in the region.
    pub(in crate::engine) fn has_waiters(&self, record: u32) -> bool {
        self.active[record].waiting != NONE
    }

    /// Counts the records with operations waiting.
    pub(in crate::engine) fn waiting_count(&self) -> usize {
        self.waiting.records.len()
    }

    /// Returns one of the records with operations waiting. Taking a list puts the last of these
    /// in its place: who goes down from the end meets each of them.
    pub(in crate::engine) fn waiting_record(&self, place: usize) -> Option<u32> {
        self.waiting.records.get(place).copied()
    }
}
