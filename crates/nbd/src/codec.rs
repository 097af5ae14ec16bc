//! The wire format: magic numbers, flags, codes and the layout of every structure.
//!
//! All integers are big-endian. Layouts are `zerocopy` structures whose sizes are asserted.
//! Golden-byte tests pin each of them.

mod error_code;
mod flags;
mod packet;
mod reader;
pub mod values;
pub mod wire;

pub use error_code::ErrorCode;
pub use flags::{ClientFlags, CommandFlags, HandshakeFlags, ReplyFlags, TransmissionFlags};
pub use packet::{PACKET_BYTES_MAX, Packet};
pub(crate) use reader::{Reader, Short};

/// The meta context that every NBD tool knows. It reports which extents are allocated and which
/// read as zeros. Section "The `base:` metadata namespace".
pub const CONTEXT_BASE_ALLOCATION: &str = "base:allocation";

/// hemi's own meta context. The status of an extent is the number of legs that hold its newest
/// acknowledged data. 1 means that losing one leg loses the extent. 0 means that it is lost and
/// reads fail with `EIO` until it is rewritten.
pub const CONTEXT_HEMI_COPIES: &str = "hemi:copies";

/// `base:allocation`: the extent is a hole, and a later write may fail with `ENOSPC`.
pub const STATE_HOLE: u64 = 1;
/// `base:allocation`: the extent reads as zeros.
pub const STATE_ZERO: u64 = 2;

/// The framing of replies, fixed when the transmission phase begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyStyle {
    /// 16-byte replies. Only reads carry a payload, and errors carry no message.
    Simple,
    /// 20-byte chunks, `NBD_OPT_STRUCTURED_REPLY`.
    Structured,
    /// 32-byte requests and replies with 64-bit lengths, `NBD_OPT_EXTENDED_HEADERS`.
    Extended,
}

/// Block sizes of an export, in bytes. Section "Size constraints".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSize {
    /// Every offset and length must be a multiple of this. A power of two, at most 64 KiB.
    pub minimum: u32,
    /// Requests below this size or alignment are slower. A power of two, at least
    /// `minimum` and 512.
    pub preferred: u32,
    /// Longest payload of one request, at least `preferred`.
    pub maximum_payload: u32,
}

impl BlockSize {
    /// The sizes that both sides assume if nothing was negotiated.
    pub const UNSPECIFIED: BlockSize = BlockSize {
        minimum: 1,
        preferred: 4096,
        maximum_payload: crate::limits::PAYLOAD_BYTES_DEFAULT,
    };

    /// Checks the protocol's rules for the three sizes against each other.
    ///
    /// # Errors
    /// Returns the rule that is broken, with the values.
    pub fn validate(self) -> Result<(), BlockSizeError> {
        let BlockSize { minimum, preferred, maximum_payload } = self;
        if !minimum.is_power_of_two() || minimum > crate::limits::MINIMUM_BLOCK_MAX {
            return Err(BlockSizeError::Minimum { minimum });
        }
        if !preferred.is_power_of_two() || preferred < minimum.max(512) {
            return Err(BlockSizeError::Preferred { preferred, least: minimum.max(512) });
        }
        if maximum_payload < preferred {
            return Err(BlockSizeError::Maximum { maximum: maximum_payload, preferred });
        }
        Ok(())
    }
}

/// A rule of section "Size constraints" that block sizes break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockSizeError {
    /// The minimum is not a power of two up to 64 KiB.
    #[error("minimum block size {minimum} is not a power of two between 1 and 65536")]
    Minimum {
        /// The minimum given.
        minimum: u32,
    },
    /// The preferred size is not a power of two, or too small.
    #[error("preferred block size {preferred} is not a power of two of at least {least}")]
    Preferred {
        /// The preferred size given.
        preferred: u32,
        /// Smallest size allowed with this minimum.
        least: u32,
    },
    /// The maximum is below the preferred size.
    #[error("maximum payload {maximum} is smaller than the preferred block size {preferred}")]
    Maximum {
        /// The maximum given.
        maximum: u32,
        /// The preferred size given.
        preferred: u32,
    },
}

/// Returns the longest prefix of a text that fits into a string on the wire.
pub(crate) fn cut_text(text: &str) -> &str {
    let mut end = text.len().min(crate::limits::STRING_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
