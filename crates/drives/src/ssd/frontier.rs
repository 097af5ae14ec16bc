//! The open blocks of a lane, which take the next units.

use super::mapping::NONE;

/// The origin of the units in an open block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Units from the host.
    Host,
    /// Collected units, if they are kept apart.
    Collected,
    /// Units from the host, into the SLC cache.
    Cached,
}

/// The open block of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frontier {
    /// The block, or [`NONE`] if none is open.
    pub block: u32,
    /// Next slot, counted from the block's first.
    pub next: u32,
    /// Number of the block's slots that are used.
    pub limit: u32,
}

impl Frontier {
    /// A frontier without an open block.
    pub const CLOSED: Frontier = Frontier { block: NONE, next: 0, limit: 0 };

    /// Returns true if a block is open.
    pub fn is_open(&self) -> bool {
        self.block != NONE
    }
}
