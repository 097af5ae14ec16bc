//! Shared memory whose file another process may truncate.
//!
//! An access to a page beyond the end of its file raises SIGBUS, which by default ends the
//! process. Here it only ends a connection. The handler puts private memory in place of the
//! whole mapping and marks it as broken. The interrupted code goes on with meaningless bytes
//! and then checks the mark.

use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Maximum number of mappings of all connections together.
pub const MAPPINGS_MAX: usize = 1024;

/// A mapping as the handler knows it. `start` is zero if the place is free, and one while it is
/// being filled.
struct Place {
    start: AtomicUsize,
    end: AtomicUsize,
    broken: AtomicBool,
}

const RESERVED: usize = 1;

static PLACES: [Place; MAPPINGS_MAX] = [const {
    Place { start: AtomicUsize::new(0), end: AtomicUsize::new(0), broken: AtomicBool::new(false) }
}; MAPPINGS_MAX];

static INSTALL: Once = Once::new();
/// The previous action of SIGBUS, for addresses that are not ours. It is set once, before the handler is
/// installed.
static mut BEFORE: std::mem::MaybeUninit<libc::sigaction> = std::mem::MaybeUninit::uninit();

/// Shared memory of a file.
#[derive(Debug)]
pub(crate) struct SharedMapping {
    base: NonNull<u8>,
    length: usize,
    place: usize,
}

// SAFETY: plain memory without thread affinity. Its users copy bytes and hold no references.
unsafe impl Send for SharedMapping {}
// SAFETY: as above.
unsafe impl Sync for SharedMapping {}

impl SharedMapping {
    /// Maps `length` bytes from the beginning of a file for reading and writing. `page` is the
    /// size of the file's pages.
    ///
    /// # Errors
    /// Returns the system's error, or an error if there are [`MAPPINGS_MAX`] mappings already.
    pub(crate) fn new(file: &File, length: usize, page: usize) -> io::Result<SharedMapping> {
        install();
        let length = length.max(1).next_multiple_of(page);
        let place = PLACES
            .iter()
            .position(|place| {
                let free =
                    place.start.compare_exchange(0, RESERVED, Ordering::AcqRel, Ordering::Relaxed);
                free.is_ok()
            })
            .ok_or_else(|| io::Error::other("too much shared memory is in use"))?;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that exists.
        let mapped = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                file,
                0,
            )
        };
        let base = match mapped.map(|base| NonNull::new(base.cast::<u8>())) {
            Ok(Some(base)) => base,
            failed => {
                PLACES[place].start.store(0, Ordering::Release);
                let zero = io::Error::other("the kernel mapped memory at address zero");
                return Err(failed.err().map_or(zero, io::Error::from));
            }
        };
        // SAFETY: the range was mapped just above, and neither advice changes its content.
        let _ = unsafe { rustix::mm::madvise(base.as_ptr().cast(), length, Advice::LinuxDontFork) };
        // SAFETY: as above.
        let _ = unsafe { rustix::mm::madvise(base.as_ptr().cast(), length, Advice::LinuxDontDump) };
        let start = base.as_ptr() as usize;
        PLACES[place].broken.store(false, Ordering::Relaxed);
        PLACES[place].end.store(start + length, Ordering::Relaxed);
        PLACES[place].start.store(start, Ordering::Release);
        Ok(SharedMapping { base, length, place })
    }

    /// Returns the address of its first byte.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns its length in bytes.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Returns true if the file was truncated and its memory was replaced.
    pub(crate) fn is_broken(&self) -> bool {
        PLACES[self.place].broken.load(Ordering::Relaxed)
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        PLACES[self.place].start.store(RESERVED, Ordering::Release);
        // SAFETY: nobody holds a reference into it, and its owner is being dropped.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) };
        if let Err(error) = unmapped {
            tracing::debug!(%error, "shared memory stays mapped");
        }
        PLACES[self.place].start.store(0, Ordering::Release);
    }
}

/// Installs the handler of SIGBUS.
fn install() {
    INSTALL.call_once(|| {
        // SAFETY: an action of zeros is a valid one, and all fields that matter are set.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        // SAFETY: both point to valid actions. The old one is written only here, before the
        // handler reads it.
        let result = unsafe {
            let before = &raw mut BEFORE;
            libc::sigaction(libc::SIGBUS, std::ptr::null(), before.cast::<libc::sigaction>());
            libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut())
        };
        if result != 0 {
            let error = io::Error::last_os_error();
            tracing::warn!(%error, "a guest's memory that is cut short would end this process");
        }
    });
}

/// Handles a SIGBUS. It is async-signal-safe.
extern "C" fn handle(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid `info`, and SIGBUS carries an address.
    let address = unsafe { (*info).si_addr() } as usize;
    for place in &PLACES {
        let start = place.start.load(Ordering::Acquire);
        let end = place.end.load(Ordering::Relaxed);
        if start <= RESERVED || !(start..end).contains(&address) {
            continue;
        }
        place.broken.store(true, Ordering::Relaxed);
        // SAFETY: the range is that of one of our mappings and still belongs to its owner.
        let replaced = unsafe {
            libc::mmap(
                start as *mut libc::c_void,
                end - start,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if replaced != libc::MAP_FAILED {
            return;
        }
        break;
    }
    // The address is not ours, so restore the old action. The access is repeated and takes that
    // action.
    // SAFETY: the old action was set before the handler was.
    unsafe {
        let before = &raw const BEFORE;
        libc::sigaction(libc::SIGBUS, before.cast::<libc::sigaction>(), std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hemi_io::memory::PAGE_BYTES;

    #[test]
    fn memory_that_is_cut_short_breaks_its_mapping_only() {
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        let other = tempfile::tempfile_in("/dev/shm").unwrap();
        for file in [&file, &other] {
            file.set_len(8 * PAGE_BYTES as u64).unwrap();
        }
        let mapping = SharedMapping::new(&file, 8 * PAGE_BYTES, PAGE_BYTES).unwrap();
        let whole = SharedMapping::new(&other, 8 * PAGE_BYTES, PAGE_BYTES).unwrap();
        let last = |mapping: &SharedMapping| {
            // SAFETY: the byte lies within the mapping.
            unsafe { mapping.base().add(7 * PAGE_BYTES).read_volatile() }
        };
        // SAFETY: as above.
        unsafe { mapping.base().add(7 * PAGE_BYTES).write_volatile(7) };
        assert_eq!((last(&mapping), mapping.is_broken()), (7, false));
        file.set_len(PAGE_BYTES as u64).unwrap();
        assert_eq!(last(&mapping), 0);
        assert!(mapping.is_broken() && !whole.is_broken());
        let place = mapping.place;
        drop(mapping);
        assert_eq!(PLACES[place].start.load(Ordering::Relaxed), 0, "its place is free again");
    }
}
