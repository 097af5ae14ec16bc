//! Shared memory for simulators: it outlives the engine that stores in it.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::LedgerMemory;

/// Memory that outlives the engine, as shared memory outlives a process. Clones are the same memory.
#[derive(Clone, Debug, Default)]
pub struct SimulatedMemory {
    words: Arc<[AtomicU32]>,
    /// Stores that take effect before it is as if the process had been killed.
    stores_left: Arc<AtomicU64>,
    retired: Arc<AtomicU32>,
}

impl SimulatedMemory {
    /// Creates memory of `bytes` bytes, all zeros.
    pub fn new(bytes: usize) -> SimulatedMemory {
        SimulatedMemory {
            words: (0..bytes / 4).map(|_| AtomicU32::new(0)).collect(),
            stores_left: Arc::new(AtomicU64::new(u64::MAX)),
            retired: Arc::default(),
        }
    }

    /// Makes memory that holds these bytes.
    pub fn of_bytes(bytes: &[u8]) -> SimulatedMemory {
        let memory = SimulatedMemory::new(bytes.len());
        for (word, bytes) in memory.words.iter().zip(bytes.chunks_exact(4)) {
            let value = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            word.store(value, Ordering::Relaxed);
        }
        memory
    }

    /// Returns what it holds.
    pub fn bytes(&self) -> Vec<u8> {
        let words = self.words.iter().map(|word| word.load(Ordering::Relaxed));
        words.flat_map(u32::to_le_bytes).collect()
    }

    /// Kills the process after this many more stores: none takes effect from then on.
    pub fn stop_after(&self, stores: u64) {
        self.stores_left.store(stores, Ordering::Relaxed);
    }

    /// Returns true if stores have been left out.
    pub fn has_stopped(&self) -> bool {
        self.stores_left.load(Ordering::Relaxed) == 0
    }

    /// Returns true if no superblock relies on it any more.
    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed) != 0
    }

    /// Counts a store. Returns false if it comes after the process was killed.
    fn takes_effect(&self) -> bool {
        let left = self.stores_left.load(Ordering::Relaxed);
        self.stores_left.store(left.saturating_sub(1), Ordering::Relaxed);
        left > 0
    }
}

impl LedgerMemory for SimulatedMemory {
    fn store_u32(&mut self, at: usize, value: u32) {
        if self.takes_effect() {
            self.words[at / 4].store(value, Ordering::Relaxed);
        }
    }

    fn store_u64(&mut self, at: usize, value: u64) {
        if self.takes_effect() {
            self.words[at / 4].store(value as u32, Ordering::Relaxed);
            self.words[at / 4 + 1].store((value >> 32) as u32, Ordering::Relaxed);
        }
    }

    fn retire(&mut self) {
        if self.stores_left.load(Ordering::Relaxed) > 0 {
            self.retired.store(1, Ordering::Relaxed);
        }
    }
}
