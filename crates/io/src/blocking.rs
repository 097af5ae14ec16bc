//! Blocking access to a leg's bytes, whatever the leg is made of: what create and inspect
//! need before or beside any event loop. Tests put drives of their own behind it.

use std::fmt::Debug;
use std::io;

use crate::leg::OpenLeg;

/// A leg's bytes, read and written by waiting for them.
pub trait BlockingLeg: Debug {
    /// Size in bytes.
    fn size(&self) -> u64;
    /// Reads `into.len()` bytes from `offset`.
    ///
    /// # Errors
    /// The system's; reading past the end is one.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
    /// Writes `bytes` to `offset`, both multiples of 4096. Durable after
    /// [`BlockingLeg::flush`].
    ///
    /// # Errors
    /// The system's.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes everything written durable.
    ///
    /// # Errors
    /// The system's; what was written is then of unknown durability.
    fn flush(&self) -> io::Result<()>;
}

impl BlockingLeg for OpenLeg {
    fn size(&self) -> u64 {
        OpenLeg::size(self)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        OpenLeg::read_at(self, offset, into)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        OpenLeg::write_at(self, offset, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        OpenLeg::flush(self)
    }
}
