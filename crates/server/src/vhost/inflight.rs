//! The inflight region: a list of the requests that a queue has taken and not given back. The
//! front end keeps its memory, so that it outlives hemi (vhost-user: "Inflight I/O tracking",
//! split virtqueues).
//!
//! A request is marked before it is done, and its mark is cleared after the guest has seen its
//! answer. So a killed server leaves a list of requests that may or may not have been done. The
//! next server does them again in the order in which they were taken.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering, fence};

use rustix::fs::{MemfdFlags, SealFlags};

use super::fault::SharedMapping;
use super::{Broken, QUEUE_SIZE_MAX, QUEUES_MAX, memory};

/// The only existing version.
const VERSION: u16 = 1;
/// Alignment of a queue's part in bytes.
const ALIGNMENT: u64 = 64;
/// Size of the head before a queue's entries, in bytes.
const HEAD_BYTES: u64 = 16;
/// Size of an entry in bytes.
const ENTRY_BYTES: u64 = 16;

const AT_VERSION: usize = 8;
const AT_ENTRIES: usize = 10;
const AT_LAST_BATCH: usize = 12;
const AT_USED: usize = 14;
const ENTRY_NEXT: usize = 6;
const ENTRY_COUNTER: usize = 8;

/// The memory of all queues of a connection.
#[derive(Clone, Debug)]
pub(super) struct InflightRegion {
    mapping: Arc<SharedMapping>,
    offset: u64,
    queues: u16,
    size: u16,
}

/// Returns the size of a queue's part in bytes.
fn part_bytes(size: u16) -> u64 {
    (HEAD_BYTES + ENTRY_BYTES * u64::from(size)).next_multiple_of(ALIGNMENT)
}

/// Checks the numbers in a front end's message. Returns the number of bytes they need.
fn bytes_for(queues: u16, size: u16) -> Result<u64, String> {
    if queues == 0 || queues > QUEUES_MAX || size == 0 || size > QUEUE_SIZE_MAX {
        return Err(format!("an inflight region of {queues} queues of {size} entries"));
    }
    Ok(u64::from(queues) * part_bytes(size))
}

/// Creates the memory for `queues` queues of `size` entries. Its size cannot be changed.
///
/// # Errors
/// Returns a message if the numbers are too large, or the system's error.
pub(super) fn create(queues: u16, size: u16) -> Result<(File, u64), String> {
    let bytes = bytes_for(queues, size)?;
    let make = || -> rustix::io::Result<OwnedFd> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("hemi-inflight", flags)?;
        rustix::fs::ftruncate(&file, bytes)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(file)
    };
    let file = make().map_err(|error| format!("cannot make an inflight region: {error}"))?;
    Ok((file.into(), bytes))
}

impl InflightRegion {
    /// Takes over the memory of `queues` queues of `size` entries, which is `bytes` long and
    /// begins at `offset` of a file.
    ///
    /// # Errors
    /// Returns a message that names the error.
    pub(super) fn open(
        file: &File,
        offset: u64,
        bytes: u64,
        queues: u16,
        size: u16,
    ) -> Result<InflightRegion, String> {
        let needed = bytes_for(queues, size)?;
        let end = offset.checked_add(needed).filter(|_| offset.is_multiple_of(ALIGNMENT));
        let end = end.filter(|_| needed <= bytes).ok_or_else(|| {
            format!("the inflight region has {bytes} bytes at {offset}, {needed} are needed")
        })?;
        let mapping =
            memory::map(file, end).map_err(|reason| format!("the inflight region {reason}"))?;
        Ok(InflightRegion { mapping: Arc::new(mapping), offset, queues, size })
    }

    /// Returns the part of a queue with `entries` entries, or `None` if it has none.
    ///
    /// # Errors
    /// Returns a message if the part has fewer entries, or a version that hemi does not know.
    pub(super) fn queue(&self, index: u16, entries: u16) -> Result<Option<InflightQueue>, String> {
        if index >= self.queues {
            return Ok(None);
        }
        if entries > self.size {
            return Err(format!(
                "a queue of {entries} entries, and {} in the inflight region",
                self.size
            ));
        }
        let offset = self.offset + u64::from(index) * part_bytes(self.size);
        debug_assert!(offset + part_bytes(self.size) <= self.mapping.length() as u64);
        // SAFETY: the part lies within the mapping, as `open` has checked.
        let base = unsafe { self.mapping.base().add(offset as usize) };
        let queue = InflightQueue {
            base,
            entries,
            counter: 0,
            batch: Vec::with_capacity(usize::from(entries)),
            mapping: Arc::clone(&self.mapping),
        };
        match queue.u16_at(AT_VERSION).load(Ordering::Acquire) {
            VERSION => {}
            0 => {
                queue.u16_at(AT_ENTRIES).store(self.size, Ordering::Relaxed);
                queue.u16_at(AT_VERSION).store(VERSION, Ordering::Release);
            }
            other => return Err(format!("the inflight region is of version {other}")),
        }
        Ok(Some(queue))
    }
}

/// A queue's part of the region.
#[derive(Debug)]
pub(crate) struct InflightQueue {
    base: NonNull<u8>,
    /// The number of entries that the queue uses.
    entries: u16,
    /// The number of the next request to be taken.
    counter: u64,
    /// The requests that the next publication gives back.
    batch: Vec<u16>,
    /// The mapping that keeps the memory.
    mapping: Arc<SharedMapping>,
}

// SAFETY: shared memory without thread affinity. The owner of this is its only user here.
unsafe impl Send for InflightQueue {}

impl InflightQueue {
    fn u16_at(&self, offset: usize) -> &AtomicU16 {
        // SAFETY: the offset is even and in the head, which begins at a multiple of 64.
        unsafe { AtomicU16::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    fn entry(&self, head: u16) -> *mut u8 {
        assert!(head < self.entries, "entry {head} of {}", self.entries);
        let offset = (HEAD_BYTES + ENTRY_BYTES * u64::from(head)) as usize;
        // SAFETY: the entry lies within the queue's part.
        unsafe { self.base.as_ptr().add(offset) }
    }

    fn mark(&self, head: u16) -> &AtomicU8 {
        // SAFETY: it is the first byte of an entry.
        unsafe { AtomicU8::from_ptr(self.entry(head)) }
    }

    fn next(&self, head: u16) -> &AtomicU16 {
        // SAFETY: the entry is aligned to 16 bytes, and longer.
        unsafe { AtomicU16::from_ptr(self.entry(head).add(ENTRY_NEXT).cast()) }
    }

    fn number(&self, head: u16) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.entry(head).add(ENTRY_COUNTER).cast()) }
    }

    /// Returns true if the region's file was truncated.
    pub(crate) fn is_broken(&self) -> bool {
        self.mapping.is_broken()
    }

    /// Brings the region in line with the used ring and returns the requests that have to be
    /// done again, in order. A server may have been killed after the guest saw an answer and
    /// before its mark was cleared.
    ///
    /// # Errors
    /// Returns [`Broken::Inflight`] if no server can have left such a region.
    pub(super) fn recover(&mut self, used: u16) -> Result<Vec<u16>, Broken> {
        let behind = used.wrapping_sub(self.u16_at(AT_USED).load(Ordering::Acquire));
        if behind > 0 && behind <= self.entries {
            let mut head = self.u16_at(AT_LAST_BATCH).load(Ordering::Relaxed);
            for _ in 0..behind {
                if head >= self.entries {
                    return Err(Broken::Inflight { head });
                }
                self.mark(head).store(0, Ordering::Release);
                head = self.next(head).load(Ordering::Relaxed);
            }
        }
        self.u16_at(AT_USED).store(used, Ordering::Release);
        let mut left: Vec<(u64, u16)> = (0..self.entries)
            .filter(|head| self.mark(*head).load(Ordering::Relaxed) != 0)
            .map(|head| (self.number(head).load(Ordering::Relaxed), head))
            .collect();
        left.sort_unstable();
        self.counter = left.last().map_or(0, |(number, _)| number.wrapping_add(1));
        Ok(left.into_iter().map(|(_, head)| head).collect())
    }

    /// Marks a request as taken before anything is done for it.
    pub(crate) fn take(&mut self, head: u16) {
        self.number(head).store(self.counter, Ordering::Relaxed);
        self.counter = self.counter.wrapping_add(1);
        self.mark(head).store(1, Ordering::Release);
        // The mark is stored before any effect of the request.
        fence(Ordering::SeqCst);
    }

    /// Adds a request that is given back to the batch, before the used ring's index changes.
    pub(crate) fn give_back(&mut self, head: u16) {
        let last = self.u16_at(AT_LAST_BATCH);
        self.next(head).store(last.load(Ordering::Relaxed), Ordering::Relaxed);
        last.store(head, Ordering::Release);
        self.batch.push(head);
    }

    /// Clears the marks of the batch, once the guest can see the used ring's index `used`.
    pub(crate) fn published(&mut self, used: u16) {
        fence(Ordering::SeqCst);
        for head in &self.batch {
            self.mark(*head).store(0, Ordering::Release);
        }
        self.batch.clear();
        self.u16_at(AT_USED).store(used, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
