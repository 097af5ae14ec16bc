//! Buffers of version numbers, counted as the server counts its buffers.

use std::collections::BTreeMap;

use hemi_engine::identifiers::{BufferAt, BufferId};
use hemi_engine::io::Buffers;

pub struct Memory {
    buffers: BTreeMap<u32, (u32, Vec<u64>)>,
    next: u32,
    sectors_max: u64,
    sectors: u64,
}

impl Memory {
    pub fn new(sectors_max: u64) -> Memory {
        Memory { buffers: BTreeMap::new(), next: 0, sectors_max, sectors: 0 }
    }

    /// Takes a client's buffer. The driver's own bound is not under test.
    pub fn take(&mut self, sectors: u32) -> BufferId {
        let id = self.next;
        self.next += 1;
        self.sectors += u64::from(sectors);
        self.buffers.insert(id, (1, vec![u64::MAX; sectors as usize]));
        BufferId(id)
    }

    pub fn snapshot(&self, at: BufferAt, sectors: u64) -> Vec<u64> {
        let (_, data) = &self.buffers[&at.buffer.0];
        data[at.offset as usize..at.offset as usize + sectors as usize].to_vec()
    }

    pub fn fill(&mut self, at: BufferAt, versions: &[u64]) {
        let (_, data) = self.buffers.get_mut(&at.buffer.0).expect("a buffer in use");
        data[at.offset as usize..at.offset as usize + versions.len()].copy_from_slice(versions);
    }

    pub fn sectors(&self) -> u64 {
        self.sectors
    }
}

impl Buffers for Memory {
    fn allocate(&mut self, sectors: u32) -> Option<BufferId> {
        (self.sectors + u64::from(sectors) <= self.sectors_max).then(|| self.take(sectors))
    }

    fn retain(&mut self, buffer: BufferId) {
        self.buffers.get_mut(&buffer.0).expect("a buffer in use").0 += 1;
    }

    fn release(&mut self, buffer: BufferId) {
        let entry = self.buffers.get_mut(&buffer.0).expect("a buffer in use");
        entry.0 -= 1;
        if entry.0 == 0 {
            self.sectors -= entry.1.len() as u64;
            self.buffers.remove(&buffer.0);
        }
    }

    fn copy(&mut self, from: BufferAt, to: BufferAt, sectors: u32) {
        let data = self.snapshot(from, u64::from(sectors));
        self.fill(to, &data);
    }

    fn zero(&mut self, at: BufferAt, sectors: u32) {
        self.fill(at, &vec![0; sectors as usize]);
    }

    fn equal(&self, a: BufferAt, b: BufferAt, sectors: u32) -> bool {
        self.snapshot(a, u64::from(sectors)) == self.snapshot(b, u64::from(sectors))
    }

    fn is_zero(&self, at: BufferAt, sectors: u32) -> bool {
        self.snapshot(at, u64::from(sectors)).iter().all(|&version| version == 0)
    }

    fn free_bytes(&self) -> u64 {
        self.sectors_max.saturating_sub(self.sectors) * 512
    }
}
