//! Serialization of a session for the program that continues its connection.
//!
//! A server that is replaced by another program hands the connection's socket over, and with it
//! the options agreed with the client and the position in the stream. The bytes begin with
//! [`FORMAT`]. Integers are little-endian. A session over TLS cannot continue elsewhere,
//! because its keys are not in the bytes.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::options::Haggling;
use super::request::RawRequest;
use super::{Command, ContextSet, Phase, Request, ServerConfig, ServerSession};
use crate::codec::wire::BlockStatusPayload;
use crate::codec::{CommandFlags, ReplyStyle, TransmissionFlags};
use crate::gather::Gather;
use crate::limits::{CONTEXTS_MAX, DRAIN_BYTES_MAX, OPTION_BYTES_MAX};

/// The format of saved sessions and requests.
pub const FORMAT: u8 = 1;

/// Longest payload of a block status request that is gathered, in bytes.
const STATUS_PAYLOAD_MAX: u64 = (BlockStatusPayload::BYTES + 4 * CONTEXTS_MAX) as u64;

/// An error in restoring a session or request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SavedError {
    /// The bytes have another format.
    #[error("a saved session of format {0}; this program reads {FORMAT}")]
    Format(u8),
    /// The bytes end early, continue after the end, or contain an invalid value.
    #[error("a saved session is damaged: {0}")]
    Damaged(&'static str),
    /// The chosen export is no longer offered.
    #[error("a saved session is of export {0}, which is not offered any more")]
    NoExport(u32),
}

impl ServerSession {
    /// Appends the session to `into`. Returns false and appends nothing if it cannot continue
    /// elsewhere, because the client has disconnected or TLS is being negotiated.
    pub fn save(&self, into: &mut Vec<u8>) -> bool {
        let phase: (u8, u64, u64) = match self.phase {
            Phase::ClientFlags => (0, 0, 0),
            Phase::OptionHeader => (1, 0, 0),
            Phase::OptionData { option, length } => (2, option.into(), length as u64),
            Phase::OptionSkip { remaining } => (3, remaining, 0),
            Phase::RequestHeader => (4, 0, 0),
            Phase::Payload { remaining } => (5, remaining, 0),
            Phase::Skip { remaining } => (6, remaining, 0),
            Phase::StatusPayload { .. } => (7, 0, 0),
            Phase::Disconnected => (8, 0, 0),
            Phase::StartTls | Phase::Aborted => return false,
        };
        if self.haggling.is_over_tls() {
            return false;
        }
        into.push(FORMAT);
        into.push(phase.0);
        put(into, phase.1);
        put(into, phase.2);
        if let Phase::StatusPayload { raw } = &self.phase {
            into.extend_from_slice(&raw.flags.0.to_le_bytes());
            into.extend_from_slice(&raw.command.to_le_bytes());
            for value in [raw.cookie, raw.offset, raw.length, raw.payload] {
                put(into, value);
            }
        }
        into.extend_from_slice(&(self.export as u32).to_le_bytes());
        into.extend_from_slice(&self.announced.0.to_le_bytes());
        into.push(match self.style {
            ReplyStyle::Simple => 0,
            ReplyStyle::Structured => 1,
            ReplyStyle::Extended => 2,
        });
        into.push(self.contexts.bits());
        into.push(self.gather.bytes().len() as u8);
        into.extend_from_slice(self.gather.bytes());
        // The rest of the last option is irrelevant once the next begins.
        let has_data = matches!(self.phase, Phase::OptionData { .. });
        self.haggling.save(has_data, into);
        true
    }

    /// Returns the session saved by [`ServerSession::save`], with the configuration `config`.
    ///
    /// # Errors
    /// Returns a [`SavedError`].
    pub fn restore(config: Arc<ServerConfig>, saved: &[u8]) -> Result<ServerSession, SavedError> {
        let mut from = Source::new(saved)?;
        let (phase, first, second) = (from.byte()?, from.long()?, from.long()?);
        let phase = match phase {
            0 => Phase::ClientFlags,
            1 => Phase::OptionHeader,
            2 => {
                let option = u32::try_from(first).map_err(|_| SavedError::Damaged("an option"))?;
                let length = at_most(second, OPTION_BYTES_MAX.into(), "an option's length")?;
                Phase::OptionData { option, length: length as usize }
            }
            3 => Phase::OptionSkip { remaining: at_most(first, DRAIN_BYTES_MAX, "a skip")? },
            4 => Phase::RequestHeader,
            5 => Phase::Payload { remaining: at_most(first, DRAIN_BYTES_MAX, "a payload")? },
            6 => Phase::Skip { remaining: at_most(first, DRAIN_BYTES_MAX, "a skip")? },
            7 => Phase::StatusPayload {
                raw: RawRequest {
                    flags: CommandFlags(from.short()?),
                    command: from.short()?,
                    cookie: from.long()?,
                    offset: from.long()?,
                    length: from.long()?,
                    payload: at_most(from.long()?, STATUS_PAYLOAD_MAX, "a status request")?,
                },
            },
            8 => Phase::Disconnected,
            _ => return Err(SavedError::Damaged("a phase")),
        };
        let export = from.word()?;
        let Some(offered) = config.exports().get(export as usize) else {
            return Err(SavedError::NoExport(export));
        };
        let contexts_offered = offered.contexts.len();
        let announced = TransmissionFlags(from.short()?);
        let style = match from.byte()? {
            0 => ReplyStyle::Simple,
            1 => ReplyStyle::Structured,
            2 => ReplyStyle::Extended,
            _ => return Err(SavedError::Damaged("a reply style")),
        };
        let contexts = from.contexts(contexts_offered)?;
        let length = from.byte()?;
        let gather =
            Gather::of(from.take(length.into())?).ok_or(SavedError::Damaged("a header"))?;
        let haggling = Haggling::restore(&mut from, &config)?;
        from.end()?;
        if let Phase::OptionData { length, .. } = phase
            && haggling.data().len() > length
        {
            return Err(SavedError::Damaged("an option's data"));
        }
        let export = export as usize;
        Ok(ServerSession { config, phase, gather, haggling, export, announced, style, contexts })
    }
}

impl Request {
    /// Appends the request to `into`.
    pub fn save(&self, into: &mut Vec<u8>) {
        let (kind, flags, contexts) = match self.command {
            Command::Read { unfragmented } => (0, u8::from(unfragmented) << 1, 0),
            Command::Write => (1, 0, 0),
            Command::Flush => (2, 0, 0),
            Command::Trim => (3, 0, 0),
            Command::Cache => (4, 0, 0),
            Command::WriteZeroes { no_hole, fast } => {
                (5, u8::from(no_hole) << 1 | u8::from(fast) << 2, 0)
            }
            Command::BlockStatus { one, contexts } => (6, u8::from(one) << 1, contexts.bits()),
        };
        into.extend_from_slice(&[FORMAT, kind, flags | u8::from(self.fua), contexts]);
        for value in [self.offset, self.length, self.cookie] {
            put(into, value);
        }
    }

    /// Returns the request saved by [`Request::save`].
    ///
    /// # Errors
    /// Returns a [`SavedError`]. It is not checked that the request fits an export.
    pub fn restore(saved: &[u8]) -> Result<Request, SavedError> {
        let mut from = Source::new(saved)?;
        let (kind, flags) = (from.byte()?, from.byte()?);
        let contexts = from.contexts(8)?;
        let is_set = |bit: u8| flags >> bit & 1 == 1;
        let command = match kind {
            0 => Command::Read { unfragmented: is_set(1) },
            1 => Command::Write,
            2 => Command::Flush,
            3 => Command::Trim,
            4 => Command::Cache,
            5 => Command::WriteZeroes { no_hole: is_set(1), fast: is_set(2) },
            6 => Command::BlockStatus { one: is_set(1), contexts },
            _ => return Err(SavedError::Damaged("a command")),
        };
        let (offset, length, cookie) = (from.long()?, from.long()?, from.long()?);
        from.end()?;
        Ok(Request { command, fua: is_set(0), offset, length, cookie })
    }
}

fn put(into: &mut Vec<u8>, value: u64) {
    into.extend_from_slice(&value.to_le_bytes());
}

fn at_most(value: u64, most: u64, what: &'static str) -> Result<u64, SavedError> {
    if value <= most { Ok(value) } else { Err(SavedError::Damaged(what)) }
}

/// Saved bytes, taken from the front.
pub(super) struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    fn new(saved: &'a [u8]) -> Result<Source<'a>, SavedError> {
        let mut source = Source(saved);
        match source.byte()? {
            FORMAT => Ok(source),
            other => Err(SavedError::Format(other)),
        }
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], SavedError> {
        let (front, rest) =
            self.0.split_at_checked(count).ok_or(SavedError::Damaged("it ends early"))?;
        self.0 = rest;
        Ok(front)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], SavedError> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    pub(super) fn byte(&mut self) -> Result<u8, SavedError> {
        self.array().map(|[byte]| byte)
    }

    fn short(&mut self) -> Result<u16, SavedError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn word(&mut self) -> Result<u32, SavedError> {
        self.array().map(u32::from_le_bytes)
    }

    fn long(&mut self) -> Result<u64, SavedError> {
        self.array().map(u64::from_le_bytes)
    }

    /// Takes a set of contexts of an export that offers `offered`.
    pub(super) fn contexts(&mut self, offered: usize) -> Result<ContextSet, SavedError> {
        let contexts = ContextSet::of(self.byte()?);
        if contexts.indices().any(|index| index >= offered) {
            return Err(SavedError::Damaged("a meta context"));
        }
        Ok(contexts)
    }

    fn end(&self) -> Result<(), SavedError> {
        if self.0.is_empty() { Ok(()) } else { Err(SavedError::Damaged("it goes on too long")) }
    }
}

impl Haggling {
    fn save(&self, has_data: bool, into: &mut Vec<u8>) {
        let (no_zeroes, structured, extended) = self.agreed();
        let selected = self.selected();
        let flags = u8::from(no_zeroes)
            | u8::from(structured) << 1
            | u8::from(extended) << 2
            | u8::from(selected.is_some()) << 3;
        into.push(flags);
        if let Some((export, contexts)) = selected {
            into.extend_from_slice(&(export as u32).to_le_bytes());
            into.push(contexts.bits());
        }
        into.extend_from_slice(&self.options().to_le_bytes());
        let data = if has_data { self.data() } else { &[] };
        into.extend_from_slice(&(data.len() as u32).to_le_bytes());
        into.extend_from_slice(data);
    }

    fn restore(from: &mut Source<'_>, config: &ServerConfig) -> Result<Haggling, SavedError> {
        let flags = from.byte()?;
        let is_set = |bit: u8| flags >> bit & 1 == 1;
        let selected = if is_set(3) {
            let export = from.word()?;
            let offered =
                config.exports().get(export as usize).ok_or(SavedError::NoExport(export))?;
            Some((export as usize, from.contexts(offered.contexts.len())?))
        } else {
            None
        };
        let options = from.word()?;
        let length = from.word()?;
        at_most(length.into(), OPTION_BYTES_MAX.into(), "an option's data")?;
        let data = from.take(length as usize)?.to_vec();
        let agreed = (is_set(0), is_set(1), is_set(2));
        Ok(Haggling::resumed(agreed, selected, options, data))
    }
}
