//! Where the next unit goes: the open blocks of a lane.

use super::mapping::NONE;

/// Whose units an open block takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// The host's.
    Host,
    /// Those that were collected, where they are kept apart.
    Collected,
    /// The host's, into the SLC cache.
    Cached,
}

/// The open block of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frontier {
    /// The block; [`NONE`] if none is open.
    pub block: u32,
    /// Its next slot, from its first.
    pub next: u32,
    /// How many of its slots are used.
    pub limit: u32,
}

impl Frontier {
    /// No block is open.
    pub const CLOSED: Frontier = Frontier { block: NONE, next: 0, limit: 0 };

    /// Whether a block is open.
    pub fn is_open(&self) -> bool {
        self.block != NONE
    }
}
