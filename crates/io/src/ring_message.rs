//! Scatter and gather lists for sockets, in the kernel's layout.

use std::mem::ManuallyDrop;

use crate::memory::Span;

/// Maximum number of pieces of a message: header and payload of 32 replies. The kernel's own
/// limit (UIO_MAXIOV) is 1024.
pub const PIECES_MAX: usize = 64;

struct Inner {
    header: libc::msghdr,
    vectors: [libc::iovec; PIECES_MAX],
    first: usize,
    end: usize,
}

/// An ordered list of spans to send from or receive into with one call.
///
/// Its memory is never freed, since a call in flight reads it. So make one per connection slot
/// and reuse it.
pub struct Gather {
    inner: ManuallyDrop<Box<Inner>>,
}

// SAFETY: the pointers inside lead to spans, which are `Send`.
unsafe impl Send for Gather {}

impl Gather {
    /// Creates an empty list.
    pub fn new() -> Gather {
        let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: all-zero bytes are a valid `msghdr`: null pointers and zero lengths.
        let header = unsafe { std::mem::zeroed() };
        let inner = Inner { header, vectors: [empty; PIECES_MAX], first: 0, end: 0 };
        Gather { inner: ManuallyDrop::new(Box::new(inner)) }
    }

    /// Removes every piece.
    pub fn clear(&mut self) {
        self.inner.first = 0;
        self.inner.end = 0;
    }

    /// Returns the number of pieces that can still be added.
    pub fn room(&self) -> usize {
        PIECES_MAX - self.inner.end
    }

    /// Returns true if no byte is left.
    pub fn is_empty(&self) -> bool {
        self.inner.first == self.inner.end
    }

    /// Returns the number of bytes left.
    pub fn length(&self) -> usize {
        let Inner { vectors, first, end, .. } = &**self.inner;
        vectors[*first..*end].iter().map(|vector| vector.iov_len).sum()
    }

    /// Appends a copy of the bytes left to `into`.
    ///
    /// # Safety
    /// Nobody writes to the pieces meanwhile, and their memory has been filled.
    pub unsafe fn append_to(&self, into: &mut Vec<u8>) {
        let Inner { vectors, first, end, .. } = &**self.inner;
        for vector in &vectors[*first..*end] {
            // SAFETY: a piece belongs to a span, which stays mapped. The caller guarantees the
            // rest.
            let piece = unsafe {
                std::slice::from_raw_parts(
                    vector.iov_base.cast::<u8>().cast_const(),
                    vector.iov_len,
                )
            };
            into.extend_from_slice(piece);
        }
    }

    /// Adds a piece. An empty one is left out. A list queued for sending takes more pieces
    /// until the ring submits it ([`crate::ring::Ring::submissions`]).
    ///
    /// # Panics
    /// If there is no space. The caller checks first.
    pub fn push(&mut self, span: Span) {
        if span.is_empty() {
            return;
        }
        assert!(self.room() > 0, "a message of more than {PIECES_MAX} pieces");
        let end = self.inner.end;
        self.inner.vectors[end] =
            libc::iovec { iov_base: span.address().cast(), iov_len: span.length() };
        self.inner.end += 1;
        self.message();
    }

    /// Drops the first `count` bytes, which the socket has taken or delivered.
    pub fn advance(&mut self, mut count: usize) {
        let inner = &mut **self.inner;
        while count > 0 && inner.first < inner.end {
            let vector = &mut inner.vectors[inner.first];
            if count < vector.iov_len {
                vector.iov_base = vector.iov_base.wrapping_byte_add(count);
                vector.iov_len -= count;
                return;
            }
            count -= vector.iov_len;
            inner.first += 1;
        }
        debug_assert_eq!(count, 0, "a socket took more than it was given");
    }

    /// Returns the list in the kernel's layout. The pointer is valid forever, its content until
    /// the next change.
    pub(crate) fn message(&mut self) -> *mut libc::msghdr {
        let inner = &mut **self.inner;
        inner.header.msg_iov = inner.vectors[inner.first..].as_mut_ptr();
        inner.header.msg_iovlen = (inner.end - inner.first) as _;
        &raw mut inner.header
    }
}

impl Default for Gather {
    fn default() -> Gather {
        Gather::new()
    }
}

impl std::fmt::Debug for Gather {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gather").field("bytes", &self.length()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Mapping;

    #[test]
    fn advancing_cuts_pieces_at_any_byte() {
        let mapping = Mapping::new(4096, false).unwrap();
        let mut gather = Gather::new();
        gather.push(mapping.span(0, 10));
        gather.push(mapping.span(50, 0));
        gather.push(mapping.span(100, 20));
        assert_eq!(gather.length(), 30);
        assert_eq!(gather.room(), PIECES_MAX - 2);
        gather.advance(3);
        assert_eq!(gather.length(), 27);
        gather.advance(8);
        assert_eq!(gather.length(), 19);
        let first = gather.inner.vectors[gather.inner.first];
        assert_eq!(first.iov_base as usize, mapping.span(101, 1).address() as usize);
        gather.advance(19);
        assert!(gather.is_empty());
        gather.clear();
        assert_eq!(gather.room(), PIECES_MAX);
    }
}
