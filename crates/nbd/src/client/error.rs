//! What can go wrong with a server.

use alloc::string::String;

use crate::codec::BlockSizeError;
use crate::limits::{OPTION_REPLIES_MAX, OPTION_REPLY_BYTES_MAX, READ_PIECES_MAX};

/// Why a session ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// In the handshake.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// In transmission.
    #[error("the server broke the NBD protocol: {0}")]
    Reply(#[from] ReplyError),
    /// The session has already ended with an error.
    #[error("this NBD session has failed before")]
    Failed,
}

/// Why the handshake failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The peer speaks another protocol.
    #[error("this is not an NBD server: it begins with {magic:#018x} instead of NBDMAGIC")]
    NotNbd {
        /// What it begins with.
        magic: u64,
    },
    /// The server speaks a style of the protocol that was given up long ago.
    #[error(
        "the server speaks NBD's oldstyle or an unknown style ({style:#018x}); newstyle is needed"
    )]
    Style {
        /// What stands in place of IHAVEOPT.
        style: u64,
    },
    /// TLS was asked for and the server has none.
    #[error("TLS is wanted but the server refuses it: {message}")]
    TlsRefused {
        /// What the server said.
        message: String,
    },
    /// The server insists on TLS.
    #[error("the server requires TLS: use nbds:// or nbds+unix://")]
    TlsRequired,
    /// No such export.
    #[error("the server has no export named {export:?}: {message}")]
    UnknownExport {
        /// The name asked for.
        export: String,
        /// What the server said.
        message: String,
    },
    /// Any other refusal.
    #[error("the server refuses {option}: {reply}: {message}")]
    Refused {
        /// The option's name.
        option: &'static str,
        /// The reply's name.
        reply: &'static str,
        /// What the server said.
        message: String,
    },
    /// An option reply without its magic number.
    #[error("option reply begins with {magic:#018x}")]
    ReplyMagic {
        /// What it begins with.
        magic: u64,
    },
    /// A reply to an option that was not asked.
    #[error("the server answers option {answered} while {asked} was asked")]
    WrongOption {
        /// The option answered.
        answered: u32,
        /// The option asked.
        asked: &'static str,
    },
    /// A reply of a type that does not belong to its option, or data of the wrong shape.
    #[error("the server answers {option} with {reply} of {length} bytes, which makes no sense")]
    Malformed {
        /// The option's name.
        option: &'static str,
        /// The reply's name.
        reply: &'static str,
        /// Bytes of data.
        length: usize,
    },
    /// Too much data in one reply.
    #[error("option reply of {length} bytes; at most {OPTION_REPLY_BYTES_MAX} make sense")]
    ReplyTooLong {
        /// Bytes announced.
        length: u32,
    },
    /// Replies without end.
    #[error("more than {OPTION_REPLIES_MAX} replies to {option}")]
    TooManyReplies {
        /// The option's name.
        option: &'static str,
    },
    /// `NBD_OPT_GO` succeeded without `NBD_INFO_EXPORT`.
    #[error("the server accepts the export without stating its size")]
    NoSize,
    /// Larger than 2^63 - 1 bytes.
    #[error("the server states an export of {size} bytes, more than 2^63 - 1")]
    Size {
        /// The size stated.
        size: u64,
    },
    /// Block sizes that break the protocol's rules.
    #[error("the server states impossible block sizes: {0}")]
    BlockSize(#[from] BlockSizeError),
}

/// A reply that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// A reply without a magic number that was negotiated.
    #[error("a reply begins with {magic:#010x}")]
    Magic {
        /// What it begins with.
        magic: u32,
    },
    /// A reply to nothing.
    #[error("a reply names the cookie {cookie:#x}, which is not in flight")]
    Cookie {
        /// The cookie.
        cookie: u64,
    },
    /// A reply of a type the request cannot have.
    #[error("a {command} is answered with chunk type {kind:#06x} (a simple reply counts as 0)")]
    Kind {
        /// The command's name.
        command: &'static str,
        /// The chunk's type.
        kind: u16,
    },
    /// A chunk whose length does not fit its type.
    #[error("a chunk of type {kind:#06x} has {length} bytes")]
    Length {
        /// The chunk's type.
        kind: u16,
        /// Its length.
        length: u64,
    },
    /// An extended reply repeats another offset than the request's.
    #[error("a reply repeats offset {stated}, but the request's is {requested}")]
    Offset {
        /// The offset stated.
        stated: u64,
        /// The request's.
        requested: u64,
    },
    /// Content or an error outside the request.
    #[error(
        "a chunk covers {length} bytes at {offset}, outside the request for {requested_length} bytes at {requested_offset}"
    )]
    Range {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// The request's first byte.
        requested_offset: u64,
        /// The request's bytes.
        requested_length: u64,
    },
    /// The same byte twice.
    #[error("two chunks of one reply cover the byte at {offset}")]
    Overlap {
        /// A byte covered twice.
        offset: u64,
    },
    /// More pieces than are kept account of.
    #[error("a read's reply comes in more than {READ_PIECES_MAX} separate pieces at once")]
    Fragments,
    /// Success without all the data.
    #[error("a read of {wanted} bytes ends well after {got} bytes")]
    Incomplete {
        /// Bytes that came.
        got: u64,
        /// Bytes asked for.
        wanted: u64,
    },
    /// A block status for an unknown context, or two for one, or none at the end.
    #[error(
        "a block status answers for meta context {context} wrongly: unknown, repeated or missing"
    )]
    Context {
        /// The context's id; zero if one is missing.
        context: u32,
    },
    /// An extent of no bytes, or a second one where one was asked for.
    #[error("a block status states an impossible extent of {length} bytes")]
    Extent {
        /// Its length.
        length: u64,
    },
    /// An error chunk that states no error.
    #[error("an error chunk states error value 0")]
    NoError,
}
