//! A device opened for serving: its requests and the transfer of their payload.
//!
//! Payload is copied by `pread` and `pwrite` on the character device (`UBLK_F_USER_COPY`). It
//! is copied once, between the client's pages and the arena, whose buffer then serves every leg
//! and every debt. The calls only copy memory and never wait, so the reactor makes them itself.
//! As io_uring entries they would go to a thread each, because the driver cannot indicate that
//! they do not block.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use hemi_engine::io::Operation;

use super::abi::{self, Descriptor};
use super::descriptors::Descriptors;
use hemi_io::memory::Span;

/// A device whose requests this process serves.
pub struct OpenDevice {
    file: OwnedFd,
    depth: u16,
    /// `None` before [`OpenDevice::map`].
    descriptors: Option<Descriptors>,
    path: String,
    sectors: u64,
}

impl OpenDevice {
    /// Creates an open device from the character device `file`, the path of the block device,
    /// its size in `sectors`, and the number of tags of its queue (`depth`).
    pub(super) fn new(file: OwnedFd, depth: u16, path: String, sectors: u64) -> OpenDevice {
        OpenDevice { file, depth, descriptors: None, path, sectors }
    }

    /// Maps the requests' descriptors. All tags must have been fetched by then, because from
    /// here on the driver remembers this process's memory. It forgets that of a killed server
    /// only if its queue was ready, and would otherwise refuse any other server's mapping
    /// forever.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(crate) fn map(&mut self) -> io::Result<()> {
        self.descriptors = Some(Descriptors::map(&self.file, self.depth)?);
        Ok(())
    }

    /// Returns the character device.
    pub(crate) fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Unmaps the descriptors and returns the character device.
    pub(crate) fn into_file(self) -> OwnedFd {
        self.file
    }

    /// Returns the path of the block device.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Returns the maximum number of requests in flight.
    pub(crate) fn depth(&self) -> u16 {
        self.depth
    }

    /// Returns the operation and descriptor of a tag's request, or `None` if hemi does not
    /// offer that kind of request or it exceeds the device.
    pub(crate) fn request(&self, tag: u16) -> Option<(Operation, Descriptor)> {
        let descriptor = self.descriptors.as_ref()?.get(tag);
        let operation = descriptor.operation()?;
        let fits = |end: u64| end <= self.sectors;
        let end = descriptor.start.checked_add(u64::from(descriptor.sectors));
        (descriptor.sectors == 0 || end.is_some_and(fits)).then_some((operation, descriptor))
    }

    /// Copies a write's payload from its client into `span`, which has the same length.
    ///
    /// # Errors
    /// Returns the system's error if the request is no longer the server's.
    pub(crate) fn copy_in(&self, tag: u16, span: Span) -> io::Result<()> {
        self.copy(tag, span, |file, span, at| {
            // SAFETY: the span stays mapped forever, and nobody else uses a buffer that is
            // being filled.
            unsafe { libc::pread64(file, span.address().cast(), span.length(), at) }
        })
    }

    /// Copies a read's payload from `span`, which has the same length, to its client.
    ///
    /// # Errors
    /// Returns those of [`OpenDevice::copy_in`].
    pub(crate) fn copy_out(&self, tag: u16, span: Span) -> io::Result<()> {
        self.copy(tag, span, |file, span, at| {
            // SAFETY: the span stays mapped forever.
            unsafe { libc::pwrite64(file, span.address().cast(), span.length(), at) }
        })
    }

    fn copy(
        &self,
        tag: u16,
        span: Span,
        move_some: impl Fn(i32, Span, i64) -> isize,
    ) -> io::Result<()> {
        let mut done = 0;
        while done < span.length() {
            let rest = span.slice(done, span.length() - done);
            let at = abi::payload_at(tag) + done as u64;
            match move_some(self.file.as_raw_fd(), rest, at as i64) {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                moved @ 1.. => done += moved as usize,
                _ => return Err(io::Error::last_os_error()),
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for OpenDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenDevice").field("path", &self.path).finish_non_exhaustive()
    }
}
