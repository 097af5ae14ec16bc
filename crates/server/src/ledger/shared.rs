//! Shared memory that the engine stores in.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hemi_core::format::ledger::LedgerMemory;
use rustix::mm::{MapFlags, ProtFlags};

use super::LedgerFileError;
use super::file::is_at;
use crate::config::units::Size;

/// A ledger's file, mapped and locked in memory. The file's lock goes with it.
#[derive(Debug)]
pub(super) struct SharedMemory {
    base: NonNull<u8>,
    length: usize,
    file: File,
    path: PathBuf,
}

// SAFETY: the mapping has no thread affinity, and this is its only owner in the process.
unsafe impl Send for SharedMemory {}

impl SharedMemory {
    /// Maps a file whole and locks it in memory. `path` is where it is, or will be.
    pub(super) fn map(file: File, path: &Path) -> Result<SharedMemory, LedgerFileError> {
        let failed = |source| LedgerFileError::File {
            path: path.to_owned(),
            what: "cannot be mapped",
            source,
        };
        let length = file.metadata().map_err(failed)?.len() as usize;
        // SAFETY: a new shared mapping at an address of the kernel's choice touches no memory that
        // exists. The file is as long as the mapping and, being locked and of mode 0600, is
        // not cut short by anybody.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )
        };
        let base = base.map_err(|errno| failed(errno.into()))?;
        let base = NonNull::new(base.cast::<u8>())
            .ok_or_else(|| failed(std::io::Error::other("mapped at address zero")))?;
        let memory = SharedMemory { base, length, file, path: path.to_owned() };
        // SAFETY: the range was mapped just above.
        unsafe { rustix::mm::mlock(base.as_ptr().cast(), length) }.map_err(|errno| {
            LedgerFileError::NotLocked {
                path: path.to_owned(),
                bytes: Size(length as u64),
                source: errno.into(),
            }
        })?;
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
        // Never another's that has taken its place.
        if self.file.metadata().is_ok_and(|own| is_at(&self.path, &own))
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "the ledger could not be removed");
        }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `map`, and nothing else refers to it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) };
    }
}
