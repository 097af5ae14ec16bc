//! Magic numbers and codes.

/// `NBDMAGIC`, the first eight bytes that a server sends.
pub const MAGIC_SERVER: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`, the second eight bytes of a newstyle server and the first of every option.
pub const MAGIC_OPTION: u64 = 0x4948_4156_454f_5054;
/// Second eight bytes of an oldstyle server.
pub const MAGIC_OLDSTYLE: u64 = 0x0000_4202_8186_1253;
/// Begins every option reply.
pub const MAGIC_OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
/// Begins every compact request.
pub const MAGIC_REQUEST: u32 = 0x2560_9513;
/// Begins every extended request.
pub const MAGIC_REQUEST_EXTENDED: u32 = 0x21e4_1c71;
/// Begins every simple reply.
pub const MAGIC_REPLY_SIMPLE: u32 = 0x6744_6698;
/// Begins every structured reply chunk.
pub const MAGIC_REPLY_STRUCTURED: u32 = 0x668e_33ef;
/// Begins every extended reply chunk.
pub const MAGIC_REPLY_EXTENDED: u32 = 0x6e8a_278c;

/// Number of zero bytes after the answer to `NBD_OPT_EXPORT_NAME`, unless both sides agreed to
/// none.
pub const EXPORT_NAME_ZEROES: usize = 124;

/// Options, section "Option types".
pub mod option {
    /// Choose an export and begin transmission. It cannot answer errors.
    pub const EXPORT_NAME: u32 = 1;
    /// End the session.
    pub const ABORT: u32 = 2;
    /// List the exports.
    pub const LIST: u32 = 3;
    /// Continue over TLS.
    pub const STARTTLS: u32 = 5;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Describe an export and begin transmission.
    pub const GO: u32 = 7;
    /// Use structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List meta contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Choose meta contexts.
    pub const SET_META_CONTEXT: u32 = 10;
    /// Use extended headers.
    pub const EXTENDED_HEADERS: u32 = 11;

    /// Returns the option's name for messages.
    pub fn name(option: u32) -> &'static str {
        match option {
            EXPORT_NAME => "EXPORT_NAME",
            ABORT => "ABORT",
            LIST => "LIST",
            STARTTLS => "STARTTLS",
            INFO => "INFO",
            GO => "GO",
            STRUCTURED_REPLY => "STRUCTURED_REPLY",
            LIST_META_CONTEXT => "LIST_META_CONTEXT",
            SET_META_CONTEXT => "SET_META_CONTEXT",
            EXTENDED_HEADERS => "EXTENDED_HEADERS",
            _ => "an unknown option",
        }
    }
}

/// Option reply types, section "Option reply types".
pub mod option_reply {
    /// Accepted, or the end of a list.
    pub const ACK: u32 = 1;
    /// One export.
    pub const SERVER: u32 = 2;
    /// One fact about an export.
    pub const INFO: u32 = 3;
    /// One meta context.
    pub const META_CONTEXT: u32 = 4;
    /// Set in every error.
    pub const ERROR_BIT: u32 = 1 << 31;
    /// Unknown option.
    pub const ERR_UNSUP: u32 = ERROR_BIT + 1;
    /// Forbidden by configuration.
    pub const ERR_POLICY: u32 = ERROR_BIT + 2;
    /// Malformed or out of place.
    pub const ERR_INVALID: u32 = ERROR_BIT + 3;
    /// Not available on this platform.
    pub const ERR_PLATFORM: u32 = ERROR_BIT + 4;
    /// TLS is required first.
    pub const ERR_TLS_REQD: u32 = ERROR_BIT + 5;
    /// No such export.
    pub const ERR_UNKNOWN: u32 = ERROR_BIT + 6;
    /// The server is going away.
    pub const ERR_SHUTDOWN: u32 = ERROR_BIT + 7;
    /// The block sizes have to be requested first.
    pub const ERR_BLOCK_SIZE_REQD: u32 = ERROR_BIT + 8;
    /// Too large to process.
    pub const ERR_TOO_BIG: u32 = ERROR_BIT + 9;
    /// Extended headers are required first, or already in use.
    pub const ERR_EXT_HEADER_REQD: u32 = ERROR_BIT + 10;

    /// Returns the reply's name for messages.
    pub fn name(reply: u32) -> &'static str {
        match reply {
            ACK => "ACK",
            SERVER => "SERVER",
            INFO => "INFO",
            META_CONTEXT => "META_CONTEXT",
            ERR_UNSUP => "ERR_UNSUP",
            ERR_POLICY => "ERR_POLICY",
            ERR_INVALID => "ERR_INVALID",
            ERR_PLATFORM => "ERR_PLATFORM",
            ERR_TLS_REQD => "ERR_TLS_REQD",
            ERR_UNKNOWN => "ERR_UNKNOWN",
            ERR_SHUTDOWN => "ERR_SHUTDOWN",
            ERR_BLOCK_SIZE_REQD => "ERR_BLOCK_SIZE_REQD",
            ERR_TOO_BIG => "ERR_TOO_BIG",
            ERR_EXT_HEADER_REQD => "ERR_EXT_HEADER_REQD",
            _ if reply & ERROR_BIT != 0 => "an unknown error",
            _ => "an unknown reply",
        }
    }
}

/// Information types of `NBD_REP_INFO`.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// Canonical name.
    pub const NAME: u16 = 1;
    /// Text for humans.
    pub const DESCRIPTION: u16 = 2;
    /// Block sizes.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Request types, section "Request types".
pub mod command {
    /// Read.
    pub const READ: u16 = 0;
    /// Write.
    pub const WRITE: u16 = 1;
    /// Disconnect.
    pub const DISC: u16 = 2;
    /// Flush.
    pub const FLUSH: u16 = 3;
    /// Trim.
    pub const TRIM: u16 = 4;
    /// Cache.
    pub const CACHE: u16 = 5;
    /// Write zeroes.
    pub const WRITE_ZEROES: u16 = 6;
    /// Block status.
    pub const BLOCK_STATUS: u16 = 7;

    /// Returns the command's name for messages.
    pub fn name(command: u16) -> &'static str {
        match command {
            READ => "read",
            WRITE => "write",
            DISC => "disconnect",
            FLUSH => "flush",
            TRIM => "trim",
            CACHE => "cache",
            WRITE_ZEROES => "write-zeroes",
            BLOCK_STATUS => "block-status",
            _ => "unknown command",
        }
    }
}

/// Chunk types, section "Structured reply types".
pub mod chunk {
    /// Only the end of the reply.
    pub const NONE: u16 = 0;
    /// Data at an offset.
    pub const OFFSET_DATA: u16 = 1;
    /// Zeros at an offset.
    pub const OFFSET_HOLE: u16 = 2;
    /// Extents, 32-bit.
    pub const BLOCK_STATUS: u16 = 5;
    /// Extents, 64-bit.
    pub const BLOCK_STATUS_EXT: u16 = 6;
    /// Set in every error.
    pub const ERROR_BIT: u16 = 1 << 15;
    /// An error.
    pub const ERROR: u16 = ERROR_BIT + 1;
    /// An error at an offset.
    pub const ERROR_OFFSET: u16 = ERROR_BIT + 2;
}
