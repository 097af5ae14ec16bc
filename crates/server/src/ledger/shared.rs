//! Shared memory that the engine stores in.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hemi_engine::format::ledger::LedgerMemory;
use rustix::mm::{MapFlags, ProtFlags};

use super::LedgerFileError;
use super::file::{LedgerFile, failed};
use hemi_units::Size;

/// A ledger's file, mapped and locked in memory. The file's lock goes with it.
#[derive(Debug)]
pub(super) struct SharedMemory {
    base: NonNull<u8>,
    length: usize,
    file: LedgerFile,
}

// SAFETY: the mapping has no thread affinity, and this is its only owner in the process.
unsafe impl Send for SharedMemory {}

impl SharedMemory {
    /// Maps a whole file, locked in memory, and then gives a new file its name.
    pub(super) fn map(file: LedgerFile) -> Result<SharedMemory, LedgerFileError> {
        let no_map = |source| failed(file.path(), "cannot be mapped", source);
        let length = file.descriptor().metadata().map_err(no_map)?.len() as usize;
        // SAFETY: a new shared mapping at an address of the kernel's choice touches no memory that
        // exists. The file is as long as the mapping and, being locked and of mode 0600, is
        // not cut short by anybody.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file.descriptor(),
                0,
            )
        };
        let base = base.map_err(|errno| no_map(errno.into()))?;
        let base = NonNull::new(base.cast::<u8>())
            .ok_or_else(|| no_map(std::io::Error::other("mapped at address zero")))?;
        let mut memory = SharedMemory { base, length, file };
        // SAFETY: the range was mapped just above.
        unsafe { rustix::mm::mlock(base.as_ptr().cast(), length) }.map_err(|errno| {
            LedgerFileError::NotLocked {
                path: memory.file.path().to_owned(),
                bytes: Size(length as u64),
                source: errno.into(),
            }
        })?;
        memory.file.name()?;
        Ok(memory)
    }

    /// Returns the address of a value of `bytes` bytes.
    fn place(&self, at: usize, bytes: usize) -> *mut u8 {
        let inside = at.is_multiple_of(bytes) && at + bytes <= self.length;
        assert!(
            inside,
            "a store at {at} leaves a ledger of {} bytes, or is not aligned",
            self.length
        );
        // SAFETY: the offset was checked against the mapping's length.
        unsafe { self.base.as_ptr().add(at) }
    }
}

impl LedgerMemory for SharedMemory {
    fn store_u32(&mut self, at: usize, value: u32) {
        // SAFETY: the place is mapped, aligned to four bytes, and only used by atomic stores.
        let word = unsafe { AtomicU32::from_ptr(self.place(at, 4).cast()) };
        word.store(value, Ordering::Release);
    }

    fn store_u64(&mut self, at: usize, value: u64) {
        // SAFETY: as above, with eight bytes.
        let word = unsafe { AtomicU64::from_ptr(self.place(at, 8).cast()) };
        word.store(value, Ordering::Release);
    }

    fn retire(&mut self) {
        if let Err(error) = self.file.remove() {
            let path = self.file.path().display();
            tracing::warn!(%path, %error, "the ledger could not be removed");
        }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `map`, and nothing else refers to it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) };
    }
}
