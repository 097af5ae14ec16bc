//! Payload buffers of sector versions, counted as the server counts its buffers.
//!
//! A sector's payload is one number, its **version**: unique to the request that wrote it, and zero
//! for zeros. A buffer is poisoned once its last reference is gone. An I/O that still used it would
//! put the poison on a disk, where the checker finds it.

use std::collections::BTreeSet;

use hemi_engine::identifiers::{BufferAt, BufferId};
use hemi_engine::io::Buffers;

/// The version that fills buffers without a reference.
pub const POISON: u64 = u64::MAX;
/// The number of size classes: buffers are powers of two of sectors, up to 2^16.
const CLASSES: usize = 17;

struct Entry {
    references: u32,
    class: u8,
    /// The engine allocated it. A client's buffer comes with its request.
    is_engines: bool,
    /// Data of a leg has been read into it, so no debt is paid from it later.
    is_read: bool,
    data: Vec<u64>,
}

/// The buffers of one engine. Memory is never given back, so a run allocates only while it grows.
#[derive(Default)]
pub struct Pool {
    entries: Vec<Entry>,
    free: [Vec<u32>; CLASSES],
    budget_sectors: u64,
    used_sectors: u64,
    in_use: usize,
}

impl Pool {
    /// Forgets all buffers in use and sets the budget, in sectors.
    pub fn reset(&mut self, budget_sectors: u64) {
        self.free.iter_mut().for_each(Vec::clear);
        for (id, entry) in self.entries.iter_mut().enumerate().rev() {
            if entry.references > 0 {
                entry.references = 0;
                entry.data.fill(POISON);
            }
            self.free[usize::from(entry.class)].push(id as u32);
        }
        self.budget_sectors = budget_sectors;
        self.used_sectors = 0;
        self.in_use = 0;
    }

    /// Takes a buffer for a client. It is not counted against the budget: the driver has a bound of
    /// its own.
    pub fn take(&mut self, sectors: u32) -> BufferId {
        self.take_for(sectors, false)
    }

    fn take_for(&mut self, sectors: u32, is_engines: bool) -> BufferId {
        let class = sectors.max(1).next_power_of_two().trailing_zeros() as u8;
        self.used_sectors += 1 << class;
        self.in_use += 1;
        if let Some(id) = self.free[usize::from(class)].pop() {
            let entry = &mut self.entries[id as usize];
            (entry.references, entry.is_engines, entry.is_read) = (1, is_engines, false);
            return BufferId(id);
        }
        let data = vec![POISON; 1 << class];
        self.entries.push(Entry { references: 1, class, is_engines, is_read: false, data });
        BufferId(self.entries.len() as u32 - 1)
    }

    /// Returns true if the engine allocated the buffer, even if for a client's read that starts
    /// over.
    pub fn is_engines(&self, buffer: BufferId) -> bool {
        self.entries[buffer.0 as usize].is_engines
    }

    /// Returns the versions in a part of a buffer.
    pub fn part(&self, at: BufferAt, sectors: u64) -> &[u64] {
        let start = at.offset as usize;
        &self.entries[at.buffer.0 as usize].data[start..start + sectors as usize]
    }

    /// Returns the versions in a part of a buffer, to be changed.
    pub fn part_mut(&mut self, at: BufferAt, sectors: u64) -> &mut [u64] {
        let start = at.offset as usize;
        &mut self.entries[at.buffer.0 as usize].data[start..start + sectors as usize]
    }

    /// Returns a part of a buffer for data that is read from a leg.
    pub fn part_to_read(&mut self, at: BufferAt, sectors: u64) -> &mut [u64] {
        self.entries[at.buffer.0 as usize].is_read = true;
        self.part_mut(at, sectors)
    }

    /// Removes from `versions` those that a write's buffer holds for more than the I/O in flight.
    /// `in_flight` lists the buffer of each I/O. Buffers that were read into are skipped, because
    /// no debt is paid from them.
    pub fn leave_out_kept(&self, versions: &mut BTreeSet<u64>, in_flight: &[BufferId]) {
        for (id, entry) in self.entries.iter().enumerate() {
            let of_io = in_flight.iter().filter(|buffer| buffer.0 as usize == id).count();
            if entry.is_read || entry.references as usize <= of_io {
                continue;
            }
            for version in &entry.data {
                versions.remove(version);
            }
        }
    }

    /// Returns the sectors of memory that `buffers` take together, each buffer counted once.
    pub fn sectors_of(&self, buffers: &BTreeSet<u32>) -> u64 {
        buffers.iter().map(|&id| 1 << self.entries[id as usize].class).sum()
    }

    /// Returns the sectors in use.
    pub fn used_sectors(&self) -> u64 {
        self.used_sectors
    }

    /// Returns the number of buffers in use.
    pub fn in_use(&self) -> usize {
        self.in_use
    }
}

impl Buffers for Pool {
    fn allocate(&mut self, sectors: u32) -> Option<BufferId> {
        let size = u64::from(sectors.max(1).next_power_of_two());
        (self.used_sectors + size <= self.budget_sectors).then(|| self.take_for(sectors, true))
    }

    fn retain(&mut self, buffer: BufferId) {
        let entry = &mut self.entries[buffer.0 as usize];
        assert!(entry.references > 0, "a free buffer was retained");
        entry.references += 1;
    }

    fn release(&mut self, buffer: BufferId) {
        let entry = &mut self.entries[buffer.0 as usize];
        assert!(entry.references > 0, "a free buffer was released");
        entry.references -= 1;
        if entry.references == 0 {
            entry.data.fill(POISON);
            self.used_sectors -= 1 << entry.class;
            self.in_use -= 1;
            self.free[usize::from(entry.class)].push(buffer.0);
        }
    }

    fn copy(&mut self, from: BufferAt, to: BufferAt, sectors: u32) {
        let (from_id, to_id) = (from.buffer.0 as usize, to.buffer.0 as usize);
        let (from_at, to_at) = (from.offset as usize, to.offset as usize);
        let count = sectors as usize;
        if from_id == to_id {
            self.entries[to_id].data.copy_within(from_at..from_at + count, to_at);
            return;
        }
        let (source, target) = self
            .entries
            .get_disjoint_mut([from_id, to_id])
            .map(|[a, b]| (a, b))
            .expect("they differ");
        target.data[to_at..to_at + count].copy_from_slice(&source.data[from_at..from_at + count]);
    }

    fn zero(&mut self, at: BufferAt, sectors: u32) {
        self.part_mut(at, u64::from(sectors)).fill(0);
    }

    fn equal(&self, a: BufferAt, b: BufferAt, sectors: u32) -> bool {
        self.part(a, u64::from(sectors)) == self.part(b, u64::from(sectors))
    }

    fn is_zero(&self, at: BufferAt, sectors: u32) -> bool {
        self.part(at, u64::from(sectors)).iter().all(|&version| version == 0)
    }

    fn free_bytes(&self) -> u64 {
        self.budget_sectors.saturating_sub(self.used_sectors) * 512
    }
}
