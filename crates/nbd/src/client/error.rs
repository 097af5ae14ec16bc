//! Errors of a server and of the session with it.

use alloc::string::String;

use crate::codec::BlockSizeError;
use crate::limits::{OPTION_REPLIES_MAX, OPTION_REPLY_BYTES_MAX, READ_PIECES_MAX};

/// The error that ended a session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// An error in the handshake.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// An error in transmission.
    #[error("the server broke the NBD protocol: {0}")]
    Reply(#[from] ReplyError),
    /// The session has already ended with an error.
    #[error("this NBD session has failed before")]
    Failed,
}

/// The reason why the handshake failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The peer speaks another protocol.
    #[error("this is not an NBD server: it begins with {magic:#018x} instead of NBDMAGIC")]
    NotNbd {
        /// The first eight bytes it sent.
        magic: u64,
    },
    /// The server uses a style of the protocol that was abandoned long ago.
    #[error(
        "the server speaks NBD's oldstyle or an unknown style ({style:#018x}); newstyle is needed"
    )]
    Style {
        /// The value in place of IHAVEOPT.
        style: u64,
    },
    /// TLS was requested and the server does not have it.
    #[error("TLS is wanted but the server refuses it: {message}")]
    TlsRefused {
        /// The server's message.
        message: String,
    },
    /// The server requires TLS.
    #[error("the server requires TLS: use nbds:// or nbds+unix://")]
    TlsRequired,
    /// The export does not exist.
    #[error("the server has no export named {export:?}: {message}")]
    UnknownExport {
        /// The name requested.
        export: String,
        /// The server's message.
        message: String,
    },
    /// Any other refusal.
    #[error("the server refuses {option}: {reply}: {message}")]
    Refused {
        /// The option's name.
        option: &'static str,
        /// The reply's name.
        reply: &'static str,
        /// The server's message.
        message: String,
    },
    /// An option reply has no magic number.
    #[error("option reply begins with {magic:#018x}")]
    ReplyMagic {
        /// The value in its place.
        magic: u64,
    },
    /// A reply answers an option that was not sent.
    #[error("the server answers option {answered} while {asked} was asked")]
    WrongOption {
        /// The option in the reply.
        answered: u32,
        /// The option that was sent.
        asked: &'static str,
    },
    /// A reply has a type that does not belong to its option, or data of the wrong form.
    #[error("the server answers {option} with {reply} of {length} bytes, which makes no sense")]
    Malformed {
        /// The option's name.
        option: &'static str,
        /// The reply's name.
        reply: &'static str,
        /// Bytes of data in the reply.
        length: usize,
    },
    /// A reply has too much data.
    #[error("option reply of {length} bytes; at most {OPTION_REPLY_BYTES_MAX} make sense")]
    ReplyTooLong {
        /// Bytes announced.
        length: u32,
    },
    /// The replies to an option do not end.
    #[error("more than {OPTION_REPLIES_MAX} replies to {option}")]
    TooManyReplies {
        /// The option's name.
        option: &'static str,
    },
    /// `NBD_OPT_GO` succeeded without `NBD_INFO_EXPORT`.
    #[error("the server accepts the export without stating its size")]
    NoSize,
    /// The export is larger than 2^63 - 1 bytes.
    #[error("the server states an export of {size} bytes, more than 2^63 - 1")]
    Size {
        /// The size stated, in bytes.
        size: u64,
    },
    /// The block sizes break the protocol's rules.
    #[error("the server states impossible block sizes: {0}")]
    BlockSize(#[from] BlockSizeError),
}

/// An invalid reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// A reply has no magic number that was negotiated.
    #[error("a reply begins with {magic:#010x}")]
    Magic {
        /// The value in its place.
        magic: u32,
    },
    /// A reply does not belong to a request in flight.
    #[error("a reply names the cookie {cookie:#x}, which is not in flight")]
    Cookie {
        /// Its cookie.
        cookie: u64,
    },
    /// A reply has a type that its request cannot get.
    #[error("a {command} is answered with chunk type {kind:#06x} (a simple reply counts as 0)")]
    Kind {
        /// The command's name.
        command: &'static str,
        /// The chunk's type.
        kind: u16,
    },
    /// A chunk has a length that does not fit its type.
    #[error("a chunk of type {kind:#06x} has {length} bytes")]
    Length {
        /// The chunk's type.
        kind: u16,
        /// Its length in bytes.
        length: u64,
    },
    /// An extended reply states another offset than its request's.
    #[error("a reply repeats offset {stated}, but the request's is {requested}")]
    Offset {
        /// The offset stated.
        stated: u64,
        /// The request's offset.
        requested: u64,
    },
    /// A chunk lies outside of its request.
    #[error(
        "a chunk covers {length} bytes at {offset}, outside the request for {requested_length} bytes at {requested_offset}"
    )]
    Range {
        /// First byte of the chunk.
        offset: u64,
        /// Length of the chunk in bytes.
        length: u64,
        /// First byte of the request.
        requested_offset: u64,
        /// Length of the request in bytes.
        requested_length: u64,
    },
    /// The same byte was sent twice.
    #[error("two chunks of one reply cover the byte at {offset}")]
    Overlap {
        /// A byte covered twice.
        offset: u64,
    },
    /// A read's reply has too many separate pieces to keep track of.
    #[error("a read's reply comes in more than {READ_PIECES_MAX} separate pieces at once")]
    Fragments,
    /// A read succeeded without all of its data.
    #[error("a read of {wanted} bytes ends well after {got} bytes")]
    Incomplete {
        /// Bytes that arrived.
        got: u64,
        /// Bytes requested.
        wanted: u64,
    },
    /// A block status has an unknown context or one context twice, or one is missing at the
    /// end.
    #[error(
        "a block status answers for meta context {context} wrongly: unknown, repeated or missing"
    )]
    Context {
        /// The context's id, or zero if one is missing.
        context: u32,
    },
    /// An extent is empty, or is a second one where one was requested.
    #[error("a block status states an impossible extent of {length} bytes")]
    Extent {
        /// Its length in bytes.
        length: u64,
    },
    /// An error chunk contains no error.
    #[error("an error chunk states error value 0")]
    NoError,
}
