//! Encoding of replies.
//!
//! A read's success is a [`Packet`] followed by the payload, sent together by a gather send.
//! All other replies are complete as encoded.

use alloc::vec::Vec;

use zerocopy::IntoBytes;

use super::ReplyTo;
use crate::codec::wire::{
    BlockDescriptor, BlockDescriptorExtended, BlockStatus, BlockStatusExtended, ErrorChunk,
    ExtendedReply, OffsetData, OffsetHole, SimpleReply, StructuredReply,
};
use crate::codec::{ErrorCode, Packet, ReplyFlags, ReplyStyle, cut_text, values, values::chunk};

/// A run of bytes with one status in one meta context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusExtent {
    /// Length in bytes, not zero. A multiple of the minimum block size.
    pub length: u64,
    /// The status, whose meaning depends on the context. At most 32 bits without extended
    /// headers.
    pub status: u64,
}

impl ReplyStyle {
    /// Returns the header of a successful read's data: `length` bytes from `offset` of the
    /// export, which have to be sent right after it. `done` ends the reply.
    ///
    /// With [`ReplyStyle::Simple`] a read has exactly one such header for all of its data.
    pub fn read_data(self, to: ReplyTo, offset: u64, length: u32, done: bool) -> Packet {
        let tail = OffsetData { offset: offset.into() };
        let bytes = length as usize + OffsetData::BYTES;
        match self {
            ReplyStyle::Simple => simple(to, 0),
            ReplyStyle::Structured => {
                Packet::of_two(&structured(to, chunk::OFFSET_DATA, bytes, done), &tail)
            }
            ReplyStyle::Extended => {
                Packet::of_two(&extended(to, chunk::OFFSET_DATA, bytes, done), &tail)
            }
        }
    }

    /// Returns a read's answer that `length` bytes from `offset` of the export are zeros,
    /// without payload. Returns `None` with [`ReplyStyle::Simple`], which cannot express it.
    pub fn read_hole(self, to: ReplyTo, offset: u64, length: u32, done: bool) -> Option<Packet> {
        let tail = OffsetHole { offset: offset.into(), size: length.into() };
        let kind = chunk::OFFSET_HOLE;
        match self {
            ReplyStyle::Simple => None,
            ReplyStyle::Structured => {
                Some(Packet::of_two(&structured(to, kind, OffsetHole::BYTES, done), &tail))
            }
            ReplyStyle::Extended => {
                Some(Packet::of_two(&extended(to, kind, OffsetHole::BYTES, done), &tail))
            }
        }
    }

    /// Returns the success of a request without a payload: any but reads and block status. It
    /// also ends a structured read whose last chunk did not end it.
    pub fn success(self, to: ReplyTo) -> Packet {
        match self {
            ReplyStyle::Simple | ReplyStyle::Structured => simple(to, 0),
            ReplyStyle::Extended => Packet::of(&extended(to, chunk::NONE, 0, true)),
        }
    }

    /// Returns the end of a reply that had chunks before, or of an empty read.
    pub fn end(self, to: ReplyTo) -> Packet {
        match self {
            ReplyStyle::Structured => Packet::of(&structured(to, chunk::NONE, 0, true)),
            ReplyStyle::Simple | ReplyStyle::Extended => self.success(to),
        }
    }

    /// Appends a failure, with a message for humans if the style can carry one (cut to 4096
    /// bytes). It ends the reply.
    pub fn error(self, to: ReplyTo, code: ErrorCode, message: &str, output: &mut Vec<u8>) {
        self.error_chunk(to, code, message, None, output);
    }

    /// Appends a failure like [`ReplyStyle::error`] with the first byte of the export that
    /// failed. For every request except a flush.
    pub fn error_at(
        self,
        to: ReplyTo,
        code: ErrorCode,
        message: &str,
        offset: u64,
        output: &mut Vec<u8>,
    ) {
        self.error_chunk(to, code, message, Some(offset), output);
    }

    fn error_chunk(
        self,
        to: ReplyTo,
        code: ErrorCode,
        message: &str,
        offset: Option<u64>,
        output: &mut Vec<u8>,
    ) {
        let message = cut_text(message);
        let kind = if offset.is_some() { chunk::ERROR_OFFSET } else { chunk::ERROR };
        let bytes = ErrorChunk::BYTES + message.len() + offset.map_or(0, |_| 8);
        match self {
            ReplyStyle::Simple => {
                output.extend_from_slice(&simple(to, code.to_wire()));
                return;
            }
            ReplyStyle::Structured => {
                output.extend_from_slice(structured(to, kind, bytes, true).as_bytes());
            }
            ReplyStyle::Extended => {
                output.extend_from_slice(extended(to, kind, bytes, true).as_bytes());
            }
        }
        // It is at most STRING_BYTES_MAX, so the cast cannot lose anything.
        let message_length = (message.len() as u16).into();
        let head = ErrorChunk { error: code.to_wire().into(), message_length };
        output.extend_from_slice(head.as_bytes());
        output.extend_from_slice(message.as_bytes());
        if let Some(offset) = offset {
            output.extend_from_slice(&offset.to_be_bytes());
        }
    }

    /// Appends one context's chunk of a block status reply. It has at least one extent, and the
    /// extents follow each other from the request's offset. `context` is its index in the
    /// export, and `done` ends the reply. Without extended headers an extent longer than 32
    /// bits is cut to the largest multiple of 64 KiB below, and the extents after it are left
    /// out, which the protocol allows.
    ///
    /// Block status needs structured or extended replies. With [`ReplyStyle::Simple`] nothing
    /// is appended.
    pub fn block_status(
        self,
        to: ReplyTo,
        context: usize,
        extents: &[StatusExtent],
        done: bool,
        output: &mut Vec<u8>,
    ) {
        let id = context_id(context);
        match self {
            ReplyStyle::Simple => {}
            ReplyStyle::Structured => {
                let long = extents.iter().position(|extent| extent.length > EXTENT_32_MAX);
                let extents = &extents[..long.map_or(extents.len(), |index| index + 1)];
                let bytes = BlockStatus::BYTES + extents.len() * BlockDescriptor::BYTES;
                let head = structured(to, chunk::BLOCK_STATUS, bytes, done);
                output.extend_from_slice(head.as_bytes());
                output.extend_from_slice(BlockStatus { context: id.into() }.as_bytes());
                for extent in extents {
                    // The length was cut to 32 bits above. Contexts with wider status need
                    // extended headers.
                    let length = extent.length.min(EXTENT_32_MAX) as u32;
                    let status = extent.status.min(u64::from(u32::MAX)) as u32;
                    let wire = BlockDescriptor { length: length.into(), status: status.into() };
                    output.extend_from_slice(wire.as_bytes());
                }
            }
            ReplyStyle::Extended => {
                let bytes =
                    BlockStatusExtended::BYTES + extents.len() * BlockDescriptorExtended::BYTES;
                let head = extended(to, chunk::BLOCK_STATUS_EXT, bytes, done);
                output.extend_from_slice(head.as_bytes());
                let count = (extents.len() as u32).into();
                let head = BlockStatusExtended { context: id.into(), count };
                output.extend_from_slice(head.as_bytes());
                for extent in extents {
                    let (length, status) = (extent.length.into(), extent.status.into());
                    let wire = BlockDescriptorExtended { length, status };
                    output.extend_from_slice(wire.as_bytes());
                }
            }
        }
    }
}

/// Longest extent that a 32-bit descriptor can have in whole blocks of any legal size.
const EXTENT_32_MAX: u64 = (u32::MAX - 0xffff) as u64;

/// Returns a context's id on the wire.
pub(super) fn context_id(index: usize) -> u32 {
    // The index is below CONTEXTS_MAX.
    index as u32 + 1
}

fn simple(to: ReplyTo, error: u32) -> Packet {
    Packet::of(&SimpleReply {
        magic: values::MAGIC_REPLY_SIMPLE.into(),
        error: error.into(),
        cookie: to.cookie.into(),
    })
}

fn flags(done: bool) -> u16 {
    if done { ReplyFlags::DONE.0 } else { 0 }
}

fn structured(to: ReplyTo, kind: u16, bytes: usize, done: bool) -> StructuredReply {
    StructuredReply {
        magic: values::MAGIC_REPLY_STRUCTURED.into(),
        flags: flags(done).into(),
        kind: kind.into(),
        cookie: to.cookie.into(),
        length: (bytes as u32).into(),
    }
}

fn extended(to: ReplyTo, kind: u16, bytes: usize, done: bool) -> ExtendedReply {
    ExtendedReply {
        magic: values::MAGIC_REPLY_EXTENDED.into(),
        flags: flags(done).into(),
        kind: kind.into(),
        cookie: to.cookie.into(),
        offset: to.offset.into(),
        length: (bytes as u64).into(),
    }
}
