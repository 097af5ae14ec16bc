//! The server's end of one connection.
//!
//! ```text
//! loop {
//!     receive into a staging buffer
//!     while let advance = session.advance(staged, &mut output)? {
//!         drop advance.consumed bytes from the front of staged
//!         match advance.event {
//!             NeedMore => break,
//!             Request(write) => take write.payload_length() bytes, from staged and then
//!                               from the socket straight into the write's buffer, then
//!                               session.payload_taken(that many)
//!             Request(other) => perform it, answer with session.style()
//!             ...
//!         }
//!     }
//!     send output
//! }
//! ```
//!
//! The caller handles timeouts. It should drop a client that stays silent in the handshake
//! ([`ServerSession::in_transmission`]).

mod export;
mod options;
mod reply;
mod request;
mod saved;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use zerocopy::IntoBytes;

pub use export::{ConfigError, Export, ServerConfig, TlsMode};
pub use reply::StatusExtent;
pub use request::{Command, ContextSet, ReplyTo, Request};
pub use saved::{FORMAT as SAVED_FORMAT, SavedError};

use crate::codec::wire::{
    BlockStatusPayload, CompactRequest, ExtendedRequest, Greeting, OptionHeader,
};
use crate::codec::{
    ClientFlags, ErrorCode, HandshakeFlags, ReplyStyle, TransmissionFlags, values, values::command,
};
use crate::gather::Gather;
use crate::limits::{CONTEXTS_MAX, DRAIN_BYTES_MAX};
use options::Haggling;
use request::{RawRequest, Rules, Verdict};

/// One step of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advance {
    /// Bytes of the input that were used. The rest has to be passed again.
    pub consumed: usize,
    /// The event they caused.
    pub event: ServerEvent,
}

/// An event of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// All input is used and more is needed.
    NeedMore,
    /// Handshake answers were appended to the output. Continue.
    Reply,
    /// An answer was appended to the output. Once it is sent, begin TLS, then call
    /// [`ServerSession::tls_established`]. Remaining input belongs to TLS.
    StartTls,
    /// The last handshake answer was appended to the output. Requests follow.
    Ready,
    /// A valid request. If it is a write, its payload follows. Take it, then call
    /// [`ServerSession::payload_taken`].
    Request(Request),
    /// A request was refused and the answer appended to the output. Its payload, if any, will
    /// be skipped.
    Refused {
        /// The client's identifier of the request.
        cookie: u64,
        /// The error.
        code: ErrorCode,
    },
    /// The write's payload has still to be taken by the caller.
    Payload {
        /// Bytes left to take.
        remaining: u64,
    },
    /// The client aborts the handshake. Send the output and close.
    Abort,
    /// The client disconnects. Finish the requests in flight and close.
    Disconnect,
}

/// The reason why a session ends at once. The connection has to be closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionEnd {
    /// The client sent flags that this server did not offer.
    #[error("client sent the unknown handshake flags {flags:#x}")]
    UnknownClientFlags {
        /// The flags that were not offered.
        flags: u32,
    },
    /// An option has no magic number.
    #[error("option begins with {magic:#018x} instead of IHAVEOPT")]
    OptionMagic {
        /// The value in its place.
        magic: u64,
    },
    /// An option has too much data.
    #[error("option {option} carries {length} bytes; at most {DRAIN_BYTES_MAX} can be skipped")]
    OptionTooLong {
        /// The option's name.
        option: &'static str,
        /// Bytes announced.
        length: u32,
    },
    /// The handshake does not end.
    #[error(
        "client sent more than {} options without choosing an export",
        crate::limits::OPTIONS_MAX
    )]
    TooManyOptions,
    /// `NBD_OPT_EXPORT_NAME`, which cannot answer errors, was not possible.
    #[error("EXPORT_NAME refused: {reason}")]
    ExportNameRefused {
        /// The reason.
        reason: String,
    },
    /// A request has no magic number.
    #[error("request begins with {magic:#010x} instead of {expected:#010x}")]
    RequestMagic {
        /// The value in its place.
        magic: u32,
        /// The magic number that was negotiated.
        expected: u32,
    },
    /// A payload is too long even to be skipped.
    #[error("{command} carries {length} bytes; at most {DRAIN_BYTES_MAX} can be skipped")]
    PayloadTooLong {
        /// The command's name.
        command: &'static str,
        /// Bytes announced.
        length: u64,
    },
}

/// The position of the session in the byte stream.
#[derive(Debug)]
enum Phase {
    ClientFlags,
    OptionHeader,
    OptionData {
        option: u32,
        length: usize,
    },
    OptionSkip {
        remaining: u64,
    },
    StartTls,
    RequestHeader,
    /// The caller takes a write's payload.
    Payload {
        remaining: u64,
    },
    /// A refused request's payload is skipped.
    Skip {
        remaining: u64,
    },
    /// A block status request's payload is gathered.
    StatusPayload {
        raw: RawRequest,
    },
    Aborted,
    Disconnected,
}

/// The server's end of one connection.
#[derive(Debug)]
pub struct ServerSession {
    config: Arc<ServerConfig>,
    phase: Phase,
    gather: Gather,
    haggling: Haggling,
    /// Index of the chosen export, which is meaningful in transmission.
    export: usize,
    announced: TransmissionFlags,
    style: ReplyStyle,
    contexts: ContextSet,
}

impl ServerSession {
    /// Returns a session with a client that has just connected, and appends the greeting to
    /// `output`.
    pub fn new(config: Arc<ServerConfig>, output: &mut Vec<u8>) -> ServerSession {
        let greeting = Greeting {
            magic: values::MAGIC_SERVER.into(),
            style: values::MAGIC_OPTION.into(),
            flags: HandshakeFlags::KNOWN.0.into(),
        };
        output.extend_from_slice(greeting.as_bytes());
        ServerSession {
            config,
            phase: Phase::ClientFlags,
            gather: Gather::new(),
            haggling: Haggling::new(),
            export: 0,
            announced: TransmissionFlags::NONE,
            style: ReplyStyle::Simple,
            contexts: ContextSet::EMPTY,
        }
    }

    /// Returns a session with a client that knows the first export without a handshake and
    /// expects simple replies. The kernel's client learns of the export by other means.
    pub fn past_handshake(config: Arc<ServerConfig>) -> ServerSession {
        ServerSession {
            announced: config.exports()[0].features | TransmissionFlags::HAS_FLAGS,
            config,
            phase: Phase::RequestHeader,
            gather: Gather::new(),
            haggling: Haggling::new(),
            export: 0,
            style: ReplyStyle::Simple,
            contexts: ContextSet::EMPTY,
        }
    }

    /// Uses bytes from the front of `input`, up to the first event. Appends answers to
    /// `output`. `NeedMore` means that all of `input` was used.
    ///
    /// # Errors
    /// Fails if the client broke the protocol beyond repair. The connection has to be closed.
    pub fn advance(&mut self, input: &[u8], output: &mut Vec<u8>) -> Result<Advance, SessionEnd> {
        let mut consumed = 0;
        loop {
            let rest = &input[consumed..];
            let (used, event) = self.step(rest, output)?;
            consumed += used;
            match event {
                Some(event) => return Ok(Advance { consumed, event }),
                None if consumed == input.len() => {
                    return Ok(Advance { consumed, event: ServerEvent::NeedMore });
                }
                None => {}
            }
        }
    }

    /// Records that `bytes` more of the current write's payload were taken.
    ///
    /// A number above the rest counts as the rest.
    pub fn payload_taken(&mut self, bytes: u64) {
        if let Phase::Payload { remaining } = &mut self.phase {
            *remaining = remaining.saturating_sub(bytes);
            if *remaining == 0 {
                self.phase = Phase::RequestHeader;
            }
        }
    }

    /// Records that TLS is established. All input from here on is the plaintext of TLS.
    /// Everything negotiated before is forgotten, as the protocol requires.
    pub fn tls_established(&mut self) {
        if let Phase::StartTls = self.phase {
            self.haggling.restart_over_tls();
            self.phase = Phase::OptionHeader;
        }
    }

    /// Switches this client to another configuration, to which its TLS certificate entitles it.
    /// Has no effect once an export has been chosen.
    pub fn serve_by(&mut self, config: Arc<ServerConfig>) {
        if !self.in_transmission() {
            self.config = config;
        }
    }

    /// Returns true if the handshake has ended.
    pub fn in_transmission(&self) -> bool {
        matches!(
            self.phase,
            Phase::RequestHeader
                | Phase::Payload { .. }
                | Phase::Skip { .. }
                | Phase::StatusPayload { .. }
                | Phase::Disconnected
        )
    }

    /// Returns the bytes of a write's payload that are still to be taken, or `None` if no
    /// payload comes now.
    pub fn payload_left(&self) -> Option<u64> {
        match self.phase {
            Phase::Payload { remaining } => Some(remaining),
            _ => None,
        }
    }

    /// Returns the framing of replies, which is meaningful in transmission.
    pub fn style(&self) -> ReplyStyle {
        self.style
    }

    /// Returns the chosen export, which is meaningful in transmission.
    pub fn export(&self) -> &Export {
        &self.config.exports()[self.export]
    }

    fn step(
        &mut self,
        input: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<(usize, Option<ServerEvent>), SessionEnd> {
        match self.phase {
            Phase::RequestHeader => self.request_header(input, output),
            Phase::Payload { remaining } => Ok((0, Some(ServerEvent::Payload { remaining }))),
            Phase::Skip { remaining } => {
                let used = skip(input, remaining);
                let remaining = remaining - used as u64;
                self.phase = Phase::Skip { remaining };
                if remaining == 0 {
                    self.phase = Phase::RequestHeader;
                }
                Ok((used, None))
            }
            Phase::StatusPayload { raw } => Ok(self.status_payload(&raw, input, output)),
            Phase::Disconnected => Ok((input.len(), Some(ServerEvent::Disconnect))),
            _ => self.handshake(input, output),
        }
    }

    fn handshake(
        &mut self,
        input: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<(usize, Option<ServerEvent>), SessionEnd> {
        match self.phase {
            Phase::ClientFlags => {
                let (used, flags) = self.gather.take::<4>(input);
                if let Some(flags) = flags {
                    let flags = ClientFlags(u32::from_be_bytes(flags));
                    let unknown = flags.without(ClientFlags::KNOWN);
                    if !unknown.is_empty() {
                        return Err(SessionEnd::UnknownClientFlags { flags: unknown.0 });
                    }
                    self.haggling.no_zeroes = flags.contains(ClientFlags::NO_ZEROES);
                    self.phase = Phase::OptionHeader;
                }
                Ok((used, None))
            }
            Phase::OptionHeader => {
                let (used, header) = self.gather.take::<{ OptionHeader::BYTES }>(input);
                match header {
                    Some(header) => {
                        let header = OptionHeader::parse(&header);
                        Ok((used, self.option_header(&header, output)?))
                    }
                    None => Ok((used, None)),
                }
            }
            Phase::OptionData { option, length } => {
                let used = self.haggling.collect(input, length);
                if !self.haggling.collected(length) {
                    return Ok((used, None));
                }
                Ok((used, Some(self.option(option, output)?)))
            }
            Phase::OptionSkip { remaining } => {
                let used = skip(input, remaining);
                let remaining = remaining - used as u64;
                self.phase = Phase::OptionSkip { remaining };
                if remaining == 0 {
                    self.phase = Phase::OptionHeader;
                }
                Ok((used, None))
            }
            Phase::StartTls => Ok((0, Some(ServerEvent::StartTls))),
            _ => Ok((input.len(), Some(ServerEvent::Abort))),
        }
    }

    fn request_header(
        &mut self,
        input: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<(usize, Option<ServerEvent>), SessionEnd> {
        let (used, raw) = match self.style {
            ReplyStyle::Simple | ReplyStyle::Structured => {
                let (used, header) = self.gather.take::<{ CompactRequest::BYTES }>(input);
                let Some(header) = header else { return Ok((used, None)) };
                let header = CompactRequest::parse(&header);
                expect_magic(header.magic.get(), values::MAGIC_REQUEST)?;
                (used, RawRequest::from_compact(&header))
            }
            ReplyStyle::Extended => {
                let (used, header) = self.gather.take::<{ ExtendedRequest::BYTES }>(input);
                let Some(header) = header else { return Ok((used, None)) };
                let header = ExtendedRequest::parse(&header);
                expect_magic(header.magic.get(), values::MAGIC_REQUEST_EXTENDED)?;
                (used, RawRequest::from_extended(&header))
            }
        };
        if raw.command == command::DISC {
            self.phase = Phase::Disconnected;
            return Ok((used, Some(ServerEvent::Disconnect)));
        }
        if raw.payload > DRAIN_BYTES_MAX {
            let command = command::name(raw.command);
            return Err(SessionEnd::PayloadTooLong { command, length: raw.payload });
        }
        let gatherable = (BlockStatusPayload::BYTES + 4 * CONTEXTS_MAX) as u64;
        if raw.names_contexts()
            && raw.payload <= gatherable
            && self.announced.contains(TransmissionFlags::BLOCK_STATUS_PAYLOAD)
        {
            self.phase = Phase::StatusPayload { raw };
            return Ok((used, None));
        }
        let verdict = if raw.names_contexts() {
            Verdict::Refuse(ErrorCode::Invalid, bad_status_payload(raw.payload))
        } else {
            self.rules().judge(&raw)
        };
        Ok((used, Some(self.conclude(&raw, verdict, raw.payload, output))))
    }

    /// Handles a block status request whose payload names contexts, section "Request types".
    fn status_payload(
        &mut self,
        raw: &RawRequest,
        input: &[u8],
        output: &mut Vec<u8>,
    ) -> (usize, Option<ServerEvent>) {
        // It is at most a few dozen bytes, as `request_header` has checked.
        let length = raw.payload as usize;
        let used = self.gather.fill(input, length);
        let Some(payload) = self.gather.finish(length) else { return (used, None) };
        let parsed = options::parse_status_payload(payload, self.contexts);
        let verdict = match parsed {
            Some((effect_length, contexts)) => {
                let raw = RawRequest { length: effect_length, payload: 0, ..*raw };
                Rules { contexts, ..self.rules() }.judge(&raw)
            }
            None => Verdict::Refuse(ErrorCode::Invalid, bad_status_payload(raw.payload)),
        };
        (used, Some(self.conclude(raw, verdict, 0, output)))
    }

    /// Carries out a verdict while `payload` bytes of the request are still to come.
    fn conclude(
        &mut self,
        raw: &RawRequest,
        verdict: Verdict,
        payload: u64,
        output: &mut Vec<u8>,
    ) -> ServerEvent {
        let to = raw.reply_to();
        self.phase = match payload {
            0 => Phase::RequestHeader,
            remaining => Phase::Skip { remaining },
        };
        match verdict {
            Verdict::Perform(request) => {
                if payload > 0 {
                    self.phase = Phase::Payload { remaining: payload };
                }
                ServerEvent::Request(request)
            }
            Verdict::Nothing => {
                let packet = match raw.command {
                    command::READ => self.style.end(to),
                    _ => self.style.success(to),
                };
                output.extend_from_slice(&packet);
                ServerEvent::Reply
            }
            Verdict::Refuse(code, message) => {
                self.style.error(to, code, &message, output);
                ServerEvent::Refused { cookie: raw.cookie, code }
            }
        }
    }

    fn rules(&self) -> Rules<'_> {
        Rules {
            export: self.export(),
            announced: self.announced,
            style: self.style,
            contexts: self.contexts,
        }
    }
}

fn bad_status_payload(bytes: u64) -> String {
    alloc::format!(
        "block-status payload of {bytes} bytes does not name distinct selected meta contexts"
    )
}

fn expect_magic(magic: u32, expected: u32) -> Result<(), SessionEnd> {
    if magic == expected { Ok(()) } else { Err(SessionEnd::RequestMagic { magic, expected }) }
}

/// Returns the number of bytes of `input` that belong to `remaining` bytes to be skipped.
fn skip(input: &[u8], remaining: u64) -> usize {
    usize::try_from(remaining).map_or(input.len(), |remaining| remaining.min(input.len()))
}
