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
            /// Size on the wire in bytes.
            pub const BYTES: usize = $size;

            /// Parses it. Every bit pattern is valid.
            pub fn parse(bytes: &[u8; $size]) -> $name {
                zerocopy::transmute!(*bytes)
            }
        }
    };
}

wire! {
    /// The first message of a newstyle server.
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
    /// The header of an option.
    OptionHeader, 16 {
        /// [`super::values::MAGIC_OPTION`].
        magic: U64,
        /// One of [`super::values::option`].
        option: U32,
        /// Number of bytes of data that follow.
        length: U32,
    }
}

wire! {
    /// The header of an option reply.
    OptionReplyHeader, 20 {
        /// [`super::values::MAGIC_OPTION_REPLY`].
        magic: U64,
        /// The option answered.
        option: U32,
        /// One of [`super::values::option_reply`].
        kind: U32,
        /// Number of bytes of data that follow.
        length: U32,
    }
}

wire! {
    /// The answer to `NBD_OPT_EXPORT_NAME`.
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
        /// Smallest block in bytes.
        minimum: U32,
        /// Preferred block in bytes.
        preferred: U32,
        /// Longest payload in bytes.
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
        /// The client's identifier of the request.
        cookie: U64,
        /// First byte.
        offset: U64,
        /// Length in bytes.
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
        /// The client's identifier of the request.
        cookie: U64,
        /// First byte.
        offset: U64,
        /// Bytes of payload with `PAYLOAD_LEN`, otherwise bytes of the export.
        length: U64,
    }
}

wire! {
    /// A simple reply.
    SimpleReply, 16 {
        /// [`super::values::MAGIC_REPLY_SIMPLE`].
        magic: U32,
        /// Zero or an error value.
        error: U32,
        /// The request's cookie.
        cookie: U64,
    }
}

wire! {
    /// The header of a structured reply chunk.
    StructuredReply, 20 {
        /// [`super::values::MAGIC_REPLY_STRUCTURED`].
        magic: U32,
        /// [`super::ReplyFlags`].
        flags: U16,
        /// One of [`super::values::chunk`].
        kind: U16,
        /// The request's cookie.
        cookie: U64,
        /// Number of bytes that follow.
        length: U32,
    }
}

wire! {
    /// The header of an extended reply chunk.
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
        /// Number of bytes that follow.
        length: U64,
    }
}

wire! {
    /// The fixed part of `NBD_REPLY_TYPE_OFFSET_DATA`, before the data.
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
        /// Number of zeros in bytes.
        size: U32,
    }
}

wire! {
    /// The fixed part of an error chunk, before the message.
    ErrorChunk, 6 {
        /// Error value.
        error: U32,
        /// Length of the message in bytes.
        message_length: U16,
    }
}

wire! {
    /// The fixed part of `NBD_REPLY_TYPE_BLOCK_STATUS`, before the descriptors.
    BlockStatus, 4 {
        /// The meta context's id.
        context: U32,
    }
}

wire! {
    /// One extent of `NBD_REPLY_TYPE_BLOCK_STATUS`.
    BlockDescriptor, 8 {
        /// Length in bytes.
        length: U32,
        /// Status.
        status: U32,
    }
}

wire! {
    /// The fixed part of `NBD_REPLY_TYPE_BLOCK_STATUS_EXT`, before the descriptors.
    BlockStatusExtended, 8 {
        /// The meta context's id.
        context: U32,
        /// Number of descriptors that follow.
        count: U32,
    }
}

wire! {
    /// One extent of `NBD_REPLY_TYPE_BLOCK_STATUS_EXT`.
    BlockDescriptorExtended, 16 {
        /// Length in bytes.
        length: U64,
        /// Status.
        status: U64,
    }
}

wire! {
    /// The fixed part of a block status request's payload, before the context ids.
    BlockStatusPayload, 8 {
        /// Number of bytes of the export that the request covers.
        effect_length: U64,
    }
}
