//! Blocking access to a leg's bytes, whatever the kind of leg. Create and inspect use it before
//! or beside an event loop. Tests put drives of their own behind it.

use std::fmt::Debug;
use std::io;

use crate::leg::OpenLeg;
use crate::leg::device::Device;

/// Blocking access to the bytes of a leg.
pub trait BlockingLeg: Debug {
    /// Returns the size in bytes.
    fn size(&self) -> u64;
    /// Reads `into.len()` bytes from `offset`.
    ///
    /// # Errors
    /// Returns the system's error. Reading past the end is one.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
    /// Writes `bytes` to `offset`, both multiples of 4096. The data is durable after
    /// [`BlockingLeg::flush`].
    ///
    /// # Errors
    /// Returns the system's error.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes everything written durable.
    ///
    /// # Errors
    /// Returns the system's error. The durability of the data written is then unknown.
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

impl BlockingLeg for Device {
    fn size(&self) -> u64 {
        Device::size(self)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        Device::read_at(self, offset, into)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        Device::write_at(self, offset, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        Device::flush(self)
    }
}
