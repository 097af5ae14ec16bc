//! Names of legs, buffers and leg I/O.
//!
//! One type per thing, so that a leg never passes for a buffer.

/// Most legs a volume can have; leg sets are 8-bit masks on disk and in memory.
pub const LEGS_MAX: usize = 8;

/// A leg's slot in the volume: 0 to [`LEGS_MAX`] − 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LegIndex(pub u8);

impl LegIndex {
    /// The slot as an array index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The slot's bit in a leg mask.
    pub fn bit(self) -> u8 {
        1 << self.0
    }
}

/// Names a payload buffer of the driver's; the engine never sees its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId(pub u32);

/// A place in a buffer: `offset` sectors in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferAt {
    /// The buffer.
    pub buffer: BufferId,
    /// Sectors from its beginning.
    pub offset: u32,
}

/// Names one leg I/O from its [`crate::io::LegIo`] to its completion.
///
/// Holds a slot and that slot's generation, so that a late or repeated completion is
/// recognised and refused rather than taken for another I/O's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoId(pub u64);
