//! The request descriptors of a device's only queue: memory that the kernel writes and hemi
//! reads.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};

use super::abi::{self, DESCRIPTOR_BYTES, Descriptor};
use hemi_io::memory::PAGE_BYTES;

/// The mapping of the descriptors. It keeps the character device open, so the device cannot be
/// deleted before it is dropped.
pub(super) struct Descriptors {
    base: NonNull<u8>,
    length: usize,
    depth: u16,
}

// SAFETY: the mapping has no thread affinity, and is only read.
unsafe impl Send for Descriptors {}

impl Descriptors {
    /// Maps the descriptors of `depth` tags from the character device.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(super) fn map(file: &OwnedFd, depth: u16) -> io::Result<Descriptors> {
        let length = (usize::from(depth) * DESCRIPTOR_BYTES).next_multiple_of(PAGE_BYTES);
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that exists.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ,
                MapFlags::SHARED | MapFlags::POPULATE,
                file,
                abi::DESCRIPTORS_OFFSET,
            )?
        };
        let base = NonNull::new(base.cast::<u8>())
            .ok_or_else(|| io::Error::other("the kernel mapped memory at address zero"))?;
        Ok(Descriptors { base, length, depth })
    }

    /// Returns a tag's descriptor. It describes a request from the fetch's completion to the
    /// commit.
    ///
    /// # Panics
    /// If there is no such tag. Tags come from this process's own table.
    pub(super) fn get(&self, tag: u16) -> Descriptor {
        assert!(tag < self.depth, "tag {tag} of {}", self.depth);
        // SAFETY: the descriptor lies within the mapping, and its fields are aligned, because
        // it begins at a multiple of 24. The kernel does not write the descriptor of a request
        // that it has handed over.
        unsafe {
            let at = self.base.as_ptr().add(usize::from(tag) * DESCRIPTOR_BYTES);
            Descriptor {
                word: at.cast::<u32>().read_volatile(),
                sectors: at.add(4).cast::<u32>().read_volatile(),
                start: at.add(8).cast::<u64>().read_volatile(),
            }
        }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: nothing that was read from the mapping is borrowed.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) };
        if let Err(error) = unmapped {
            tracing::debug!(%error, "request descriptors stay mapped");
        }
    }
}
