//! A device opened for serving: its requests, and the way to and from their payload.
//!
//! Payload is copied by `pread` and `pwrite` on the character device (`UBLK_F_USER_COPY`): once,
//! between the client's pages and the arena, whose buffer then serves every leg and every debt. They
//! only copy memory and never wait, so the reactor calls them itself. As io_uring entries they would go
//! to a thread each: the driver has no way to say that they do not block.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use hemi_engine::io::Operation;

use super::abi::{self, Descriptor};
use super::descriptors::Descriptors;
use hemi_io::memory::Span;

/// A device whose requests this process is to serve.
pub struct OpenDevice {
    file: OwnedFd,
    depth: u16,
    /// None before [`OpenDevice::map`].
    descriptors: Option<Descriptors>,
    path: String,
    sectors: u64,
}

impl OpenDevice {
    /// Takes the character device of a block device at `path` of so many sectors, whose queue has so many
    /// tags.
    pub(super) fn new(file: OwnedFd, depth: u16, path: String, sectors: u64) -> OpenDevice {
        OpenDevice { file, depth, descriptors: None, path, sectors }
    }

    /// Maps the requests' descriptors. All tags have been fetched by then, because from here on the driver
    /// keeps this process's memory in mind: it forgets that of a server that was killed only if its queue
    /// was ready, and would refuse any other server's mapping for ever.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn map(&mut self) -> io::Result<()> {
        self.descriptors = Some(Descriptors::map(&self.file, self.depth)?);
        Ok(())
    }

    /// Returns the character device.
    pub(crate) fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Gives the character device back, the descriptors unmapped.
    pub(crate) fn into_file(self) -> OwnedFd {
        self.file
    }

    /// Returns the path of the block device.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Returns how many requests it has in flight at most.
    pub(crate) fn depth(&self) -> u16 {
        self.depth
    }

    /// Returns what a tag's request asks for; `None` if it is of a kind that hemi has not offered, or
    /// leaves the device.
    pub(crate) fn request(&self, tag: u16) -> Option<(Operation, Descriptor)> {
        let descriptor = self.descriptors.as_ref()?.get(tag);
        let operation = descriptor.operation()?;
        let fits = |end: u64| end <= self.sectors;
        let end = descriptor.start.checked_add(u64::from(descriptor.sectors));
        (descriptor.sectors == 0 || end.is_some_and(fits)).then_some((operation, descriptor))
    }

    /// Copies a write's payload from its client into `span`, which is as long.
    ///
    /// # Errors
    /// The system's: the request is not the server's any more.
    pub(crate) fn copy_in(&self, tag: u16, span: Span) -> io::Result<()> {
        self.copy(tag, span, |file, span, at| {
            // SAFETY: the span stays mapped for ever, and nobody else uses a buffer being filled.
            unsafe { libc::pread64(file, span.address().cast(), span.length(), at) }
        })
    }

    /// Copies a read's payload from `span`, which is as long, to its client.
    ///
    /// # Errors
    /// Those of [`OpenDevice::copy_in`].
    pub(crate) fn copy_out(&self, tag: u16, span: Span) -> io::Result<()> {
        self.copy(tag, span, |file, span, at| {
            // SAFETY: the span stays mapped for ever.
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
