//! The client's end of one connection.
//!
//! The session keeps account of every request in flight in a table of fixed size, so that
//! each reply is checked against what was asked: a chunk outside the request, a byte sent
//! twice, a success that leaves bytes out, all are errors and never wrong data.
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
//!             Ready => session.export() tells sizes and flags; requests may be submitted
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
//! Time is the caller's: a server that does not answer is for the caller to give up on.

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

/// What a client wants of its server.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Name of the export; empty for the server's default.
    pub export: String,
    /// Whether to insist on TLS. Without, TLS is not used.
    pub tls: bool,
    /// The richest reply style to ask for; a server that lacks it gets the next.
    pub style: ReplyStyle,
    /// Meta contexts to select, as far as the server has them; at most
    /// [`crate::limits::CONTEXTS_MAX`] are asked for.
    pub contexts: Vec<String>,
    /// Most requests in flight, 1 to [`CLIENT_IN_FLIGHT_MAX`]; other values are brought
    /// into this range.
    pub in_flight: usize,
}

impl ClientConfig {
    /// For an export, without TLS or meta contexts, with the best reply style the server
    /// has and 64 requests in flight.
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

/// What the server said of the export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    /// Size in bytes.
    pub size: u64,
    /// What it can do.
    pub flags: TransmissionFlags,
    /// Block sizes; [`BlockSize::UNSPECIFIED`] where the server said nothing.
    pub block_size: BlockSize,
    /// Whether the server stated the block sizes.
    pub block_size_stated: bool,
    /// The server's canonical name, if it gave one.
    pub name: Option<String>,
    /// The server's description, if it gave one.
    pub description: Option<String>,
    /// Meta contexts selected, by their id on this connection.
    pub contexts: Vec<(u32, String)>,
}

/// One step of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advance {
    /// Bytes of the input that were used; the rest is to be given again.
    pub consumed: usize,
    /// What they meant.
    pub event: ClientEvent,
}

/// What a session has to say. `token` is the caller's name for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// All input is used and more is needed.
    NeedMore,
    /// Handshake messages were appended to the output: send them, go on.
    Send,
    /// The server agrees to TLS: begin it, then call [`ClientSession::tls_established`].
    StartTls,
    /// The handshake is over.
    Ready,
    /// Data of a read follows: take it, then call [`ClientSession::payload_taken`].
    Data {
        /// The read.
        token: u64,
        /// Where it belongs, in bytes from the beginning of the request.
        at: u32,
        /// Bytes.
        length: u32,
    },
    /// Part of a read is zeros.
    Hole {
        /// The read.
        token: u64,
        /// Where, in bytes from the beginning of the request.
        at: u32,
        /// Bytes.
        length: u32,
    },
    /// One extent of a block status. A context's extents follow each other from the
    /// request's offset.
    Extent {
        /// The block status.
        token: u64,
        /// Id of the meta context.
        context: u32,
        /// Bytes; can reach past the request.
        length: u64,
        /// Status.
        status: u64,
    },
    /// A request is finished. After an error, [`ClientSession::error_message`] has what
    /// the server said; read data is then not to be used.
    Done {
        /// The request.
        token: u64,
        /// Outcome.
        result: Result<(), ErrorCode>,
    },
    /// Announced data is still the caller's to take.
    Payload {
        /// Bytes left of it.
        remaining: u32,
    },
}

/// Which half of its life a session is in.
#[derive(Debug)]
enum Phase {
    Handshake(Handshake),
    Transmission(Receiving),
    /// An error was reported; nothing more is understood.
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
    /// The request `message` belongs to.
    message_of: Option<SlotIndex>,
    disconnecting: bool,
}

impl ClientSession {
    /// A session with a server that is just being connected to. The server speaks first.
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

    /// Uses bytes from the front of `input`, up to the first event; messages to the server
    /// are appended to `output`. `NeedMore` means that all of `input` was used. Call it
    /// until then, also with empty input: a finished payload can make an event due.
    ///
    /// # Errors
    /// The server refuses, or broke the protocol. Send what is in `output` if that is
    /// possible at once, and close the connection.
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

    /// Tells the session that `bytes` more of the announced data were taken. More than was
    /// left counts as all of it.
    pub fn payload_taken(&mut self, bytes: u32) {
        if let Phase::Transmission(receiving) = &mut self.phase {
            receiving.payload_taken(bytes);
        }
    }

    /// Tells the session that TLS is up: all input and output from here on is TLS's
    /// plaintext. The next messages are appended to `output`.
    pub fn tls_established(&mut self, output: &mut Vec<u8>) {
        if let Phase::Handshake(handshake) = &mut self.phase {
            handshake.tls_established(output);
        }
    }

    /// What the server said of the export; complete once the session is ready.
    pub fn export(&self) -> &ExportInfo {
        &self.export
    }

    /// How replies are framed; meaningful once the session is ready.
    pub fn style(&self) -> ReplyStyle {
        self.style
    }

    /// Whether requests can be submitted.
    pub fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Transmission(_)) && !self.disconnecting
    }

    /// Returns what the server said with the error last reported, as plain text of at most
    /// 256 characters; empty if it said nothing.
    pub fn error_message(&self) -> String {
        Plain(&String::from_utf8_lossy(&self.message)).to_string()
    }

    /// Begins a request: the header to be sent, followed by the payload of a write.
    /// `token` comes back with every event about it.
    ///
    /// # Errors
    /// The export does not offer it, or too many are in flight. Nothing was begun.
    pub fn submit(&mut self, token: u64, request: Request) -> Result<Packet, SubmitError> {
        if !self.is_ready() {
            return Err(SubmitError::NotReady);
        }
        request.check(&self.export)?;
        let cookie = self.in_flight.begin(token, request, self.style).ok_or(SubmitError::Full)?;
        Ok(request.encode(cookie, self.style))
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Tokens of the requests in flight. After a disconnect these are the requests whose
    /// fate is unknown.
    pub fn tokens_in_flight(&self) -> impl Iterator<Item = u64> {
        self.in_flight.tokens()
    }

    /// The message that ends the session. Nothing can be submitted after it; replies to
    /// what is in flight still come.
    pub fn disconnect(&mut self) -> Packet {
        let packet = match self.phase {
            Phase::Transmission(_) => requests::disconnect(self.style),
            Phase::Handshake(_) | Phase::Failed => handshake::abort(),
        };
        self.disconnecting = true;
        packet
    }
}
