//! The client's end of one connection.
//!
//! The session keeps every request in flight in a table of fixed size, so that each reply is
//! checked against its request. A chunk outside of the request, a byte sent twice, or a success
//! that leaves bytes out is an error and never wrong data.
//!
//! ```text
//! connect; session = ClientSession::new(config)
//! loop {
//!     receive into a staging buffer
//!     loop {
//!         let advance = session.advance(staged, &mut output)?
//!         drop advance.consumed bytes from the front of staged
//!         match advance.event {
//!             NeedMore => break,
//!             Ready => session.export() has sizes and flags, and requests may be submitted
//!             Data { token, at, length } => take length bytes, from staged and then from
//!                 the socket, into the request's buffer from `at`; session.payload_taken
//!             Hole { token, at, length } => zero that part of the request's buffer
//!             Done { token, result } => the request is finished
//!             ...
//!         }
//!     }
//!     send output
//! }
//! ```
//!
//! The caller measures time and gives up on a server that does not answer.

mod coverage;
mod error;
mod handshake;
mod replies;
mod requests;

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use hemi_text::Plain;

pub use error::{ClientError, HandshakeError, ReplyError};
pub use requests::{Command, Request, SubmitError};

use crate::codec::{BlockSize, ErrorCode, Packet, ReplyStyle, TransmissionFlags};
use crate::gather::Gather;
use crate::limits::CLIENT_IN_FLIGHT_MAX;
use handshake::Handshake;
use replies::Receiving;
use requests::{InFlight, SlotIndex};

/// The settings of a client.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Name of the export, or empty for the server's default.
    pub export: String,
    /// True to require TLS. Otherwise TLS is not used.
    pub tls: bool,
    /// The richest reply style to request. A server that lacks it gets the next one.
    pub style: ReplyStyle,
    /// Meta contexts to select, as far as the server has them. At most
    /// [`crate::limits::CONTEXTS_MAX`] are requested.
    pub contexts: Vec<String>,
    /// Maximum number of requests in flight, 1 to [`CLIENT_IN_FLIGHT_MAX`]. Other values are
    /// brought into this range.
    pub in_flight: usize,
}

impl ClientConfig {
    /// Returns the settings for an export: no TLS, no meta contexts, the best reply style the
    /// server has, and 64 requests in flight.
    pub fn new(export: impl Into<String>) -> ClientConfig {
        ClientConfig {
            export: export.into(),
            tls: false,
            style: ReplyStyle::Extended,
            contexts: Vec::new(),
            in_flight: 64,
        }
    }
}

/// The server's description of the export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    /// Size in bytes.
    pub size: u64,
    /// Features of the export.
    pub flags: TransmissionFlags,
    /// Block sizes, or [`BlockSize::UNSPECIFIED`] if the server stated none.
    pub block_size: BlockSize,
    /// True if the server stated the block sizes.
    pub block_size_stated: bool,
    /// The server's canonical name, if it gave one.
    pub name: Option<String>,
    /// The server's description, if it gave one.
    pub description: Option<String>,
    /// Selected meta contexts with their ids on this connection.
    pub contexts: Vec<(u32, String)>,
}

/// One step of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advance {
    /// Bytes of the input that were used. The rest has to be passed again.
    pub consumed: usize,
    /// The event they caused.
    pub event: ClientEvent,
}

/// An event of a session. `token` is the caller's identifier of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// All input is used and more is needed.
    NeedMore,
    /// Handshake messages were appended to the output. Send them and continue.
    Send,
    /// The server agrees to TLS. Begin it, then call [`ClientSession::tls_established`].
    StartTls,
    /// The handshake has ended.
    Ready,
    /// Data of a read follows. Take it, then call [`ClientSession::payload_taken`].
    Data {
        /// The read.
        token: u64,
        /// The data's offset in bytes from the beginning of the request.
        at: u32,
        /// Number of bytes.
        length: u32,
    },
    /// A part of a read is zeros.
    Hole {
        /// The read.
        token: u64,
        /// The part's offset in bytes from the beginning of the request.
        at: u32,
        /// Number of bytes.
        length: u32,
    },
    /// One extent of a block status. A context's extents follow each other from the
    /// request's offset.
    Extent {
        /// The block status.
        token: u64,
        /// Id of the meta context.
        context: u32,
        /// Length in bytes, which can reach past the request.
        length: u64,
        /// Status.
        status: u64,
    },
    /// A request has ended. After an error [`ClientSession::error_message`] returns the
    /// server's message, and data already read must not be used.
    Done {
        /// The request.
        token: u64,
        /// Its result.
        result: Result<(), ErrorCode>,
    },
    /// Announced data has still to be taken by the caller.
    Payload {
        /// Bytes left to take.
        remaining: u32,
    },
}

/// The phase of a session.
#[derive(Debug)]
enum Phase {
    Handshake(Handshake),
    Transmission(Receiving),
    /// An error was reported, and nothing more can be parsed.
    Failed,
}

/// The client's end of one connection.
#[derive(Debug)]
pub struct ClientSession {
    phase: Phase,
    gather: Gather,
    export: ExportInfo,
    style: ReplyStyle,
    in_flight: InFlight,
    message: Vec<u8>,
    /// The request that `message` belongs to.
    message_of: Option<SlotIndex>,
    disconnecting: bool,
}

impl ClientSession {
    /// Returns a session with a server that is just being connected to. The server sends first.
    pub fn new(config: ClientConfig) -> ClientSession {
        ClientSession {
            in_flight: InFlight::new(config.in_flight.clamp(1, CLIENT_IN_FLIGHT_MAX)),
            phase: Phase::Handshake(Handshake::new(config)),
            gather: Gather::new(),
            export: ExportInfo {
                size: 0,
                flags: TransmissionFlags::NONE,
                block_size: BlockSize::UNSPECIFIED,
                block_size_stated: false,
                name: None,
                description: None,
                contexts: Vec::new(),
            },
            style: ReplyStyle::Simple,
            message: Vec::new(),
            message_of: None,
            disconnecting: false,
        }
    }

    /// Uses bytes from the front of `input`, up to the first event. Appends messages to the
    /// server to `output`. `NeedMore` means that all of `input` was used. Call it until then,
    /// also with empty input, because the end of a payload can make an event due.
    ///
    /// # Errors
    /// Fails if the server refuses or broke the protocol. Send the output if that is possible
    /// at once, and close the connection.
    pub fn advance(&mut self, input: &[u8], output: &mut Vec<u8>) -> Result<Advance, ClientError> {
        let mut consumed = 0;
        loop {
            let rest = &input[consumed..];
            let step = match &self.phase {
                Phase::Handshake(_) => self.handshake(rest, output).map_err(ClientError::from),
                Phase::Transmission(_) => self.receive(rest).map_err(ClientError::from),
                Phase::Failed => Err(ClientError::Failed),
            };
            let (used, event) = step.inspect_err(|_| self.phase = Phase::Failed)?;
            consumed += used;
            match event {
                Some(event) => return Ok(Advance { consumed, event }),
                None if consumed == input.len() && !self.event_due() => {
                    return Ok(Advance { consumed, event: ClientEvent::NeedMore });
                }
                None => {}
            }
        }
    }

    fn event_due(&self) -> bool {
        match &self.phase {
            Phase::Transmission(receiving) => receiving.event_due(),
            Phase::Handshake(_) | Phase::Failed => false,
        }
    }

    /// Records that `bytes` more of the announced data were taken. A number above the rest
    /// counts as the rest.
    pub fn payload_taken(&mut self, bytes: u32) {
        if let Phase::Transmission(receiving) = &mut self.phase {
            receiving.payload_taken(bytes);
        }
    }

    /// Records that TLS is established. All input and output from here on is the plaintext of
    /// TLS. Appends the next messages to `output`.
    pub fn tls_established(&mut self, output: &mut Vec<u8>) {
        if let Phase::Handshake(handshake) = &mut self.phase {
            handshake.tls_established(output);
        }
    }

    /// Returns the server's description of the export, which is complete once the session is
    /// ready.
    pub fn export(&self) -> &ExportInfo {
        &self.export
    }

    /// Returns the framing of replies, which is meaningful once the session is ready.
    pub fn style(&self) -> ReplyStyle {
        self.style
    }

    /// Returns true if requests can be submitted.
    pub fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Transmission(_)) && !self.disconnecting
    }

    /// Returns the server's message with the error last reported, as plain text of at most 256
    /// characters. Empty if there was none.
    pub fn error_message(&self) -> String {
        Plain(&String::from_utf8_lossy(&self.message)).to_string()
    }

    /// Begins a request. Returns its header, which is sent before the payload of a write. Every
    /// event about the request has its `token`.
    ///
    /// # Errors
    /// Fails if the export does not offer it or too many are in flight. Nothing was begun then.
    pub fn submit(&mut self, token: u64, request: Request) -> Result<Packet, SubmitError> {
        if !self.is_ready() {
            return Err(SubmitError::NotReady);
        }
        request.check(&self.export)?;
        let cookie = self.in_flight.begin(token, request, self.style).ok_or(SubmitError::Full)?;
        Ok(request.encode(cookie, self.style))
    }

    /// Returns the number of requests in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Returns the tokens of the requests in flight. After a disconnect these are the requests
    /// whose fate is unknown.
    pub fn tokens_in_flight(&self) -> impl Iterator<Item = u64> {
        self.in_flight.tokens()
    }

    /// Returns the message that ends the session. Nothing can be submitted after it. Replies to
    /// requests in flight still come.
    pub fn disconnect(&mut self) -> Packet {
        let packet = match self.phase {
            Phase::Transmission(_) => requests::disconnect(self.style),
            Phase::Handshake(_) | Phase::Failed => handshake::abort(),
        };
        self.disconnecting = true;
        packet
    }
}
