//! Payload buffers of sector versions, counted as the server counts its buffers: in powers of two.
//!
//! A buffer is poisoned once its last reference is gone. An I/O that still used it would put the
//! poison on a disk, where a checker finds it. (A debug build says so at once.)

use std::collections::BTreeSet;

use hemi_engine::identifiers::{BufferAt, BufferId};
use hemi_engine::io::{Buffers, Operation};
use hemi_units::Extent;

/// The version that fills buffers without a reference.
pub const POISON: u64 = u64::MAX;
/// The number of size classes: buffers are powers of two of sectors, up to 2^16.
const CLASSES: usize = 17;

struct Entry {
    references: u32,
    class: u8,
    /// The sectors that it is counted as.
    counted: u32,
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
    /// A buffer is counted as the sectors asked for, not as those of its class.
    counts_exactly: bool,
}

impl Pool {
    /// Creates the buffers of a test that accounts for every sector: each is counted as the sectors
    /// asked for.
    pub fn exact(budget_sectors: u64) -> Pool {
        Pool { budget_sectors, counts_exactly: true, ..Pool::default() }
    }

    fn counted(&self, sectors: u32) -> u32 {
        if self.counts_exactly { sectors } else { sectors.max(1).next_power_of_two() }
    }

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

    /// Takes the buffer that a client's request comes with, if its operation needs one. That of a
    /// write is filled with its version. It is not counted against the budget: the driver has a
    /// bound of its own.
    pub fn take_for(
        &mut self,
        operation: Operation,
        extent: Extent,
        version: u64,
    ) -> Option<BufferId> {
        if !matches!(operation, Operation::Read | Operation::Write) {
            return None;
        }
        let buffer = self.take(extent.sectors() as u32, false);
        if operation == Operation::Write {
            self.part_mut(BufferAt { buffer, offset: 0 }, extent.sectors()).fill(version);
        }
        Some(buffer)
    }

    fn take(&mut self, sectors: u32, is_engines: bool) -> BufferId {
        let class = sectors.max(1).next_power_of_two().trailing_zeros() as u8;
        let counted = self.counted(sectors);
        self.used_sectors += u64::from(counted);
        self.in_use += 1;
        if let Some(id) = self.free[usize::from(class)].pop() {
            let entry = &mut self.entries[id as usize];
            (entry.references, entry.is_engines, entry.is_read) = (1, is_engines, false);
            entry.counted = counted;
            return BufferId(id);
        }
        let data = vec![POISON; 1 << class];
        let (references, is_read) = (1, false);
        self.entries.push(Entry { references, class, counted, is_engines, is_read, data });
        BufferId(self.entries.len() as u32 - 1)
    }

    /// Returns true if the engine allocated the buffer, even if for a client's read that starts
    /// over.
    pub fn is_engines(&self, buffer: BufferId) -> bool {
        self.entries[buffer.0 as usize].is_engines
    }

    /// Returns the versions in a part of a buffer.
    pub fn part(&self, at: BufferAt, sectors: u64) -> &[u64] {
        let (entry, start) = (&self.entries[at.buffer.0 as usize], at.offset as usize);
        debug_assert!(entry.references > 0, "a free buffer is used");
        &entry.data[start..start + sectors as usize]
    }

    /// Returns the versions in a part of a buffer, to be changed.
    pub fn part_mut(&mut self, at: BufferAt, sectors: u64) -> &mut [u64] {
        let (entry, start) = (&mut self.entries[at.buffer.0 as usize], at.offset as usize);
        debug_assert!(entry.references > 0, "a free buffer is used");
        &mut entry.data[start..start + sectors as usize]
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
        buffers.iter().map(|&id| u64::from(self.entries[id as usize].counted)).sum()
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
        let size = u64::from(self.counted(sectors));
        (self.used_sectors + size <= self.budget_sectors).then(|| self.take(sectors, true))
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
            self.used_sectors -= u64::from(entry.counted);
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
        debug_assert!(source.references > 0 && target.references > 0, "a free buffer is used");
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
