//! Memory that the kernel may read or write at any time.
//!
//! An I/O on a frozen drive can land long after everybody has given it up, so memory that was
//! ever handed to the kernel is never unmapped. A [`Mapping`] lives until the process ends. All
//! mappings are created at start or grow to a stated bound, so nothing leaks over time.

use std::io;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Alignment of every mapping and of everything carved from one. A page satisfies every drive's
/// O_DIRECT memory alignment.
pub const PAGE_BYTES: usize = 4096;

/// Registration of a [`Span`] that lies in no registered buffer.
pub const NOT_REGISTERED: u16 = u16::MAX;

/// Anonymous, page-aligned, zero-filled memory that is never unmapped.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    length: usize,
    registration: u16,
}

// SAFETY: a mapping is plain memory without thread affinity. Access goes through the one owner
// of the mapping or of the spans handed out.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `length` bytes, rounded up to whole pages. With `huge` the kernel is asked for huge
    /// pages, which make registration and address translation cheaper. It may decline.
    pub fn new(length: usize, huge: bool) -> io::Result<Mapping> {
        let length = length.max(1).next_multiple_of(PAGE_BYTES);
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches
        // no memory that exists.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        let base = NonNull::new(base.cast::<u8>())
            .ok_or_else(|| io::Error::other("the kernel mapped memory at address zero"))?;
        if huge {
            // SAFETY: the range was mapped just above, and the advice does not change content.
            let advised =
                unsafe { rustix::mm::madvise(base.as_ptr().cast(), length, Advice::LinuxHugepage) };
            if let Err(error) = advised {
                tracing::debug!(%error, "no huge pages for the buffer arena");
            }
        }
        // SAFETY: as above. A forked child must not share pages the kernel writes into.
        let _ = unsafe { rustix::mm::madvise(base.as_ptr().cast(), length, Advice::LinuxDontFork) };
        Ok(Mapping { base, length, registration: NOT_REGISTERED })
    }

    /// Returns the length in bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Returns the span of the whole mapping.
    pub fn whole(&self) -> Span {
        Span { base: self.base, length: self.length, registration: self.registration }
    }

    /// Returns the span of `length` bytes from `offset`.
    ///
    /// # Panics
    /// If the range does not lie within the mapping. The owner's arithmetic is then wrong, and
    /// going on would let a drive overwrite foreign memory.
    #[inline]
    pub fn span(&self, offset: usize, length: usize) -> Span {
        self.whole().slice(offset, length)
    }

    /// Records the index of the registered buffer that this mapping is. Spans taken from now on
    /// carry it.
    pub fn set_registration(&mut self, registration: u16) {
        self.registration = registration;
    }
}

/// A range of a [`Mapping`], free to copy and to hand to the kernel.
///
/// Holding a span does not protect its content: whoever reuses the range decides that. The
/// memory itself stays mapped forever, so a late I/O can at worst overwrite or read reused
/// bytes and never touches an unmapped address.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    base: NonNull<u8>,
    length: usize,
    registration: u16,
}

// SAFETY: see `Mapping`.
unsafe impl Send for Span {}

impl Span {
    /// Returns the length in bytes.
    #[inline]
    pub fn length(&self) -> usize {
        self.length
    }

    /// Returns true if it has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Has the kernel allocate those pages of the span that it has not allocated yet. The
    /// content of the others stays. Without this call it allocates each page at the first
    /// touch, and all of them when the mapping is registered. The span must begin at a page.
    ///
    /// # Errors
    /// Fails without enough memory and on kernels before 5.14.
    pub fn populate(&self) -> io::Result<()> {
        // SAFETY: a mapping is never unmapped, and the advice changes no content.
        let made = unsafe {
            rustix::mm::madvise(self.address().cast(), self.length, Advice::LinuxPopulateWrite)
        };
        Ok(made?)
    }

    /// Returns its address.
    #[inline]
    pub fn address(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Returns the index of the registered buffer it lies in, if any.
    #[inline]
    pub fn registered(&self) -> Option<u16> {
        (self.registration != NOT_REGISTERED).then_some(self.registration)
    }

    /// Returns the part of `length` bytes from `offset`.
    ///
    /// # Panics
    /// If the range does not lie within the span.
    #[inline]
    pub fn slice(&self, offset: usize, length: usize) -> Span {
        let inside = offset.checked_add(length).is_some_and(|end| end <= self.length);
        assert!(inside, "range {offset}+{length} leaves a span of {} bytes", self.length);
        // SAFETY: `offset` is at most the span's length, so the result points into the
        // mapping or one past its end.
        let base = unsafe { self.base.add(offset) };
        Span { base, length, registration: self.registration }
    }

    /// Returns its bytes.
    ///
    /// # Safety
    /// While they are borrowed, nobody may write them: neither the kernel, nor anybody through
    /// a copy of the span or another span of the same range.
    #[inline]
    pub unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: the range is mapped forever and initialised (anonymous memory is zero). The
        // caller guarantees that nobody writes it.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.length) }
    }

    /// Returns a copy of its bytes. Bytes written meanwhile may be in the copy, or not, or in
    /// part.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut copy = vec![0; self.length];
        // SAFETY: both have the same length, and the copy is memory of its own.
        unsafe { std::ptr::copy_nonoverlapping(self.base.as_ptr(), copy.as_mut_ptr(), self.length) }
        copy
    }

    /// Returns its bytes, to be filled.
    ///
    /// # Safety
    /// While they are borrowed, nobody else may read or write them: neither the kernel, nor
    /// anybody through a copy of the span or another span of the same range.
    #[inline]
    pub unsafe fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the range is mapped forever and initialised (anonymous memory is zero). The
        // caller guarantees that nobody else uses it.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.length) }
    }

    /// Copies the content of another span, which may overlap, to the beginning of this one.
    ///
    /// # Panics
    /// If `from` is longer than the span.
    #[inline]
    pub fn copy_from_span(&self, from: Span) {
        assert!(from.length <= self.length, "{} bytes into a span of {}", from.length, self.length);
        // SAFETY: the length was checked, and `copy` allows the two to overlap.
        unsafe { std::ptr::copy(from.base.as_ptr(), self.base.as_ptr(), from.length) }
    }

    /// Copies `from` to the beginning of the span.
    ///
    /// # Panics
    /// If `from` is longer than the span.
    #[inline]
    pub fn copy_from(&self, from: &[u8]) {
        assert!(from.len() <= self.length, "{} bytes into a span of {}", from.len(), self.length);
        // SAFETY: the length was checked. `copy` allows `from` to lie in the span itself.
        unsafe { std::ptr::copy(from.as_ptr(), self.base.as_ptr(), from.len()) }
    }

    /// Fills the span with zeros.
    pub fn zero(&self) {
        // SAFETY: the range is mapped forever.
        unsafe { std::ptr::write_bytes(self.base.as_ptr(), 0, self.length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_what_was_copied() {
        let mapping = Mapping::new(10_000, true).unwrap();
        assert_eq!(mapping.length(), 12_288);
        let span = mapping.span(4096, 4096);
        assert!(span.to_vec().iter().all(|byte| *byte == 0));
        span.slice(100, 5).copy_from(b"hello");
        assert_eq!(&span.to_vec()[98..107], b"\0\0hello\0\0");
        span.zero();
        assert!(span.to_vec().iter().all(|byte| *byte == 0));
        assert_eq!(span.address() as usize % PAGE_BYTES, 0);
    }

    #[test]
    #[should_panic(expected = "leaves a span")]
    fn a_span_past_the_end_is_refused() {
        let mapping = Mapping::new(4096, false).unwrap();
        let _ = mapping.span(4000, 97);
    }
}
