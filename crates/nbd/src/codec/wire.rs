//! Layout of every structure on the wire.

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

macro_rules! wire {
    ($(#[$doc:meta])* $name:ident, $size:literal { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $kind,)*
        }
        const _: () = assert!(size_of::<$name>() == $size);

        impl $name {
            /// Bytes on the wire.
            pub const BYTES: usize = $size;

            /// From its bytes; every bit pattern is one.
            pub fn parse(bytes: &[u8; $size]) -> $name {
                zerocopy::transmute!(*bytes)
            }
        }
    };
}

wire! {
    /// What a newstyle server sends first.
    Greeting, 18 {
        /// [`super::values::MAGIC_SERVER`].
        magic: U64,
        /// [`super::values::MAGIC_OPTION`].
        style: U64,
        /// [`super::HandshakeFlags`].
        flags: U16,
    }
}

wire! {
    /// Begins every option.
    OptionHeader, 16 {
        /// [`super::values::MAGIC_OPTION`].
        magic: U64,
        /// One of [`super::values::option`].
        option: U32,
        /// Bytes of data that follow.
        length: U32,
    }
}

wire! {
    /// Begins every option reply.
    OptionReplyHeader, 20 {
        /// [`super::values::MAGIC_OPTION_REPLY`].
        magic: U64,
        /// The option answered.
        option: U32,
        /// One of [`super::values::option_reply`].
        kind: U32,
        /// Bytes of data that follow.
        length: U32,
    }
}

wire! {
    /// Answer to `NBD_OPT_EXPORT_NAME`.
    ExportNameReply, 10 {
        /// Size of the export in bytes.
        size: U64,
        /// [`super::TransmissionFlags`].
        flags: U16,
    }
}

wire! {
    /// `NBD_INFO_EXPORT`.
    InfoExport, 12 {
        /// [`super::values::info::EXPORT`].
        kind: U16,
        /// Size of the export in bytes.
        size: U64,
        /// [`super::TransmissionFlags`].
        flags: U16,
    }
}

wire! {
    /// `NBD_INFO_BLOCK_SIZE`.
    InfoBlockSize, 14 {
        /// [`super::values::info::BLOCK_SIZE`].
        kind: U16,
        /// Smallest block.
        minimum: U32,
        /// Preferred block.
        preferred: U32,
        /// Longest payload.
        maximum: U32,
    }
}

wire! {
    /// A request without extended headers.
    CompactRequest, 28 {
        /// [`super::values::MAGIC_REQUEST`].
        magic: U32,
        /// [`super::CommandFlags`].
        flags: U16,
        /// One of [`super::values::command`].
        command: U16,
        /// The client's name for the request.
        cookie: U64,
        /// First byte.
        offset: U64,
        /// Bytes.
        length: U32,
    }
}

wire! {
    /// A request with extended headers.
    ExtendedRequest, 32 {
        /// [`super::values::MAGIC_REQUEST_EXTENDED`].
        magic: U32,
        /// [`super::CommandFlags`].
        flags: U16,
        /// One of [`super::values::command`].
        command: U16,
        /// The client's name for the request.
        cookie: U64,
        /// First byte.
        offset: U64,
        /// Bytes of payload with `PAYLOAD_LEN`, else bytes of the export.
        length: U64,
    }
}

wire! {
    /// A simple reply.
    SimpleReply, 16 {
        /// [`super::values::MAGIC_REPLY_SIMPLE`].
        magic: U32,
        /// Zero, or an error value.
        error: U32,
        /// The request's cookie.
        cookie: U64,
    }
}

wire! {
    /// Begins a structured reply chunk.
    StructuredReply, 20 {
        /// [`super::values::MAGIC_REPLY_STRUCTURED`].
        magic: U32,
        /// [`super::ReplyFlags`].
        flags: U16,
        /// One of [`super::values::chunk`].
        kind: U16,
        /// The request's cookie.
        cookie: U64,
        /// Bytes that follow.
        length: U32,
    }
}

wire! {
    /// Begins an extended reply chunk.
    ExtendedReply, 32 {
        /// [`super::values::MAGIC_REPLY_EXTENDED`].
        magic: U32,
        /// [`super::ReplyFlags`].
        flags: U16,
        /// One of [`super::values::chunk`].
        kind: U16,
        /// The request's cookie.
        cookie: U64,
        /// The request's offset.
        offset: U64,
        /// Bytes that follow.
        length: U64,
    }
}

wire! {
    /// Fixed part of `NBD_REPLY_TYPE_OFFSET_DATA`; the data follows.
    OffsetData, 8 {
        /// First byte of the data in the export.
        offset: U64,
    }
}

wire! {
    /// `NBD_REPLY_TYPE_OFFSET_HOLE`.
    OffsetHole, 12 {
        /// First byte of the hole in the export.
        offset: U64,
        /// Bytes of zeros.
        size: U32,
    }
}

wire! {
    /// Fixed part of an error chunk; the message follows.
    ErrorChunk, 6 {
        /// Error value.
        error: U32,
        /// Bytes of message.
        message_length: U16,
    }
}

wire! {
    /// Fixed part of `NBD_REPLY_TYPE_BLOCK_STATUS`; descriptors follow.
    BlockStatus, 4 {
        /// The meta context's id.
        context: U32,
    }
}

wire! {
    /// One extent of `NBD_REPLY_TYPE_BLOCK_STATUS`.
    BlockDescriptor, 8 {
        /// Bytes.
        length: U32,
        /// Status.
        status: U32,
    }
}

wire! {
    /// Fixed part of `NBD_REPLY_TYPE_BLOCK_STATUS_EXT`; descriptors follow.
    BlockStatusExtended, 8 {
        /// The meta context's id.
        context: U32,
        /// How many descriptors follow.
        count: U32,
    }
}

wire! {
    /// One extent of `NBD_REPLY_TYPE_BLOCK_STATUS_EXT`.
    BlockDescriptorExtended, 16 {
        /// Bytes.
        length: U64,
        /// Status.
        status: U64,
    }
}

wire! {
    /// Fixed part of a block status request's payload; context ids follow.
    BlockStatusPayload, 8 {
        /// Bytes of the export asked about.
        effect_length: U64,
    }
}
