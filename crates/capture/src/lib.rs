//! The format of recorded request streams, written by `hemi serve --record` and read by replays
//! and `hemi trace`. `docs/design/capture-format.md` describes every byte.
//!
//! A file is a sequence of blocks. Each has a checksum and can be read without those before it,
//! so a truncated recording is good up to its last whole block.
//!
//! ```
//! use hemi_capture::{Head, Kind, Reader, Record, Writer};
//!
//! let head = Head { volume_bytes: 1 << 30, block_bytes: 512, began: 0, name: "db".into() };
//! let write = Record {
//!     at: 1_000,
//!     latency: 90_000,
//!     start: 8,
//!     sectors: 8,
//!     kind: Kind::Write,
//!     fua: true,
//!     failed: false,
//! };
//! let mut writer = Writer::new(Vec::new(), &head)?;
//! writer.push(&write, 0)?;
//! let bytes = writer.finish(0)?;
//!
//! let mut reader = Reader::new(bytes.as_slice());
//! assert_eq!(reader.head()?.name, "db");
//! assert_eq!(reader.record()?, Some(write));
//! assert_eq!(reader.record()?, None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod block;
mod read;
mod varint;
mod write;

pub use read::{CaptureError, Reader};
pub use write::Writer;

/// Returns true if a file that begins like this is a recording, of whatever version of the format.
pub fn is_recording(begin: &[u8]) -> bool {
    begin.starts_with(b"HEMICAP")
}

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A read.
    Read = 0,
    /// A write.
    Write = 1,
    /// A trim: the contents need not be kept.
    Trim = 2,
    /// A write of zeros.
    WriteZeroes = 3,
    /// A flush: everything answered so far has to become durable.
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
    /// Arrival time, in nanoseconds since [`Head::began`].
    pub at: u64,
    /// Time from arrival to answer, in nanoseconds.
    pub latency: u64,
    /// First sector of 512 bytes; zero for a flush.
    pub start: u64,
    /// Number of sectors; zero for a flush.
    pub sectors: u64,
    /// The operation.
    pub kind: Kind,
    /// True if the request had to be durable when answered (FUA).
    pub fua: bool,
    /// True if it was answered with an error.
    pub failed: bool,
}

/// The header of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Size of the volume in bytes.
    pub volume_bytes: u64,
    /// Smallest request of the volume in bytes.
    pub block_bytes: u32,
    /// Start of the recording, in nanoseconds since 1970.
    pub began: u64,
    /// Name of the volume.
    pub name: String,
}
