//! Payload buffers without payload: handles, references and a budget.

use hemi_engine::identifiers::{BufferAt, BufferId};
use hemi_engine::io::Buffers;
use hemi_units::SECTOR_BYTES;
use slab::Slab;

#[derive(Clone, Copy)]
struct Entry {
    references: u32,
    sectors: u32,
}

/// The buffers of one engine. Copies between them do nothing; only their sizes count.
#[derive(Default)]
pub(super) struct Handles {
    entries: Slab<Entry>,
    budget_bytes: u64,
    used_bytes: u64,
}

impl Handles {
    pub(super) fn new(budget_bytes: u64) -> Handles {
        Handles { budget_bytes, ..Handles::default() }
    }

    /// Adds a client's buffer. It is never refused for lack of budget, since the client has it
    /// already.
    pub(super) fn take(&mut self, sectors: u32) -> BufferId {
        self.used_bytes += u64::from(sectors) * SECTOR_BYTES;
        BufferId(self.entries.insert(Entry { references: 1, sectors }) as u32)
    }
}

impl Buffers for Handles {
    fn allocate(&mut self, sectors: u32) -> Option<BufferId> {
        let bytes = u64::from(sectors) * SECTOR_BYTES;
        (self.used_bytes + bytes <= self.budget_bytes).then(|| self.take(sectors))
    }

    fn retain(&mut self, buffer: BufferId) {
        self.entries[buffer.0 as usize].references += 1;
    }

    fn release(&mut self, buffer: BufferId) {
        let entry = &mut self.entries[buffer.0 as usize];
        entry.references -= 1;
        if entry.references == 0 {
            self.used_bytes -= u64::from(entry.sectors) * SECTOR_BYTES;
            self.entries.remove(buffer.0 as usize);
        }
    }

    fn copy(&mut self, _from: BufferAt, _to: BufferAt, _sectors: u32) {}

    fn zero(&mut self, _at: BufferAt, _sectors: u32) {}

    fn equal(&self, _a: BufferAt, _b: BufferAt, _sectors: u32) -> bool {
        true
    }

    fn is_zero(&self, _at: BufferAt, _sectors: u32) -> bool {
        false
    }

    fn free_bytes(&self) -> u64 {
        self.budget_bytes.saturating_sub(self.used_bytes)
    }
}
