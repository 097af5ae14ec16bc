//! The format of recorded request streams: what `hemi serve --record` writes and what replays
//! and `hemi trace` read. `docs/design/capture-format.md` has every byte.
//!
//! A file is a sequence of blocks. Each has a checksum and can be read without those before
//! it, so that a recording is good up to its last whole block wherever it was cut.
#![forbid(unsafe_code)]

mod block;
mod read;
mod varint;
mod write;

pub use read::{CaptureError, Reader};
pub use write::Writer;

/// What a request asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// To read.
    Read = 0,
    /// To write.
    Write = 1,
    /// That the content be no longer kept.
    Trim = 2,
    /// To make it zeros.
    WriteZeroes = 3,
    /// To make all that was answered durable.
    Flush = 4,
}

impl Kind {
    fn from_bits(bits: u8) -> Option<Kind> {
        [Kind::Read, Kind::Write, Kind::Trim, Kind::WriteZeroes, Kind::Flush]
            .into_iter()
            .find(|kind| *kind as u8 == bits)
    }
}

/// One request, recorded when it was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it arrived: nanoseconds since [`Head::began`].
    pub at: u64,
    /// How long it took to be answered, nanoseconds.
    pub latency: u64,
    /// First sector of 512 bytes; zero for a flush.
    pub start: u64,
    /// Sectors; zero for a flush.
    pub sectors: u64,
    /// What it asked for.
    pub kind: Kind,
    /// Whether it was to be durable when answered (FUA).
    pub fua: bool,
    /// Whether it was answered with an error.
    pub failed: bool,
}

/// What a recording is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The volume's size, bytes.
    pub volume_bytes: u64,
    /// The volume's smallest request, bytes.
    pub block_bytes: u32,
    /// When the recording began: nanoseconds since 1970.
    pub began: u64,
    /// The volume's name.
    pub name: String,
}
