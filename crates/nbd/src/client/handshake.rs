//! The client's side of option haggling, section "Fixed newstyle negotiation".

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use hemi_text::Plain;
use zerocopy::IntoBytes;

use super::replies::Receiving;
use super::{ClientConfig, ClientEvent, ClientSession, ExportInfo, HandshakeError, Phase};
use crate::codec::values::{info, option, option_reply};
use crate::codec::wire::{
    ExportNameReply, Greeting, InfoBlockSize, InfoExport, OptionHeader, OptionReplyHeader,
};
use crate::codec::{
    BlockSize, ClientFlags, HandshakeFlags, Packet, Reader, ReplyStyle, TransmissionFlags,
    cut_text, values,
};
use crate::limits::{CONTEXTS_MAX, OPTION_REPLIES_MAX, OPTION_REPLY_BYTES_MAX};

/// The progress of the handshake.
#[derive(Debug)]
enum Step {
    Greeting,
    /// The option `asked` was sent, and its replies come.
    Reply,
    /// The data of a reply comes.
    ReplyData {
        kind: u32,
        length: usize,
    },
    StartTls,
    ExportName,
    /// The zeros after the answer to `EXPORT_NAME`.
    Zeroes {
        remaining: usize,
    },
}

/// The client's side of the handshake.
#[derive(Debug)]
pub(super) struct Handshake {
    config: ClientConfig,
    step: Step,
    asked: u32,
    replies: u32,
    data: Vec<u8>,
    no_zeroes: bool,
    style: ReplyStyle,
    sized: bool,
}

type StepResult = Result<(usize, Option<ClientEvent>), HandshakeError>;

impl Handshake {
    pub(super) fn new(config: ClientConfig) -> Handshake {
        Handshake {
            config,
            step: Step::Greeting,
            asked: 0,
            replies: 0,
            data: Vec::new(),
            no_zeroes: false,
            style: ReplyStyle::Simple,
            sized: false,
        }
    }

    pub(super) fn tls_established(&mut self, output: &mut Vec<u8>) {
        if let Step::StartTls = self.step {
            self.ask_framing(output);
        }
    }

    fn ask(&mut self, option: u32, data: &[u8], output: &mut Vec<u8>) {
        push_option(option, data, output);
        self.asked = option;
        self.replies = 0;
        self.step = if option == option::EXPORT_NAME { Step::ExportName } else { Step::Reply };
    }

    fn ask_framing(&mut self, output: &mut Vec<u8>) {
        match self.config.style {
            ReplyStyle::Extended => self.ask(option::EXTENDED_HEADERS, &[], output),
            ReplyStyle::Structured => self.ask(option::STRUCTURED_REPLY, &[], output),
            ReplyStyle::Simple => self.ask_go(output),
        }
    }

    /// Requests the meta contexts, once the framing is settled.
    fn ask_contexts(&mut self, output: &mut Vec<u8>) {
        if self.config.contexts.is_empty() || self.style == ReplyStyle::Simple {
            return self.ask_go(output);
        }
        let contexts = &self.config.contexts[..self.config.contexts.len().min(CONTEXTS_MAX)];
        let mut data = Vec::new();
        push_string(&self.config.export, &mut data);
        data.extend_from_slice(&(contexts.len() as u32).to_be_bytes());
        contexts.iter().for_each(|context| push_string(context, &mut data));
        self.ask(option::SET_META_CONTEXT, &data, output);
    }

    fn ask_go(&mut self, output: &mut Vec<u8>) {
        let wanted = [info::NAME, info::DESCRIPTION, info::BLOCK_SIZE];
        let mut data = Vec::new();
        push_string(&self.config.export, &mut data);
        data.extend_from_slice(&(wanted.len() as u16).to_be_bytes());
        wanted.iter().for_each(|kind| data.extend_from_slice(&kind.to_be_bytes()));
        self.ask(option::GO, &data, output);
    }

    fn ask_export_name(&mut self, output: &mut Vec<u8>) {
        let name = String::from(cut_text(&self.config.export));
        self.ask(option::EXPORT_NAME, name.as_bytes(), output);
    }

    fn greeted(
        &mut self,
        greeting: &Greeting,
        output: &mut Vec<u8>,
    ) -> Result<ClientEvent, HandshakeError> {
        let (magic, style) = (greeting.magic.get(), greeting.style.get());
        if magic != values::MAGIC_SERVER {
            return Err(HandshakeError::NotNbd { magic });
        }
        if style != values::MAGIC_OPTION {
            return Err(HandshakeError::Style { style });
        }
        let offered = HandshakeFlags(greeting.flags.get());
        let fixed = offered.contains(HandshakeFlags::FIXED_NEWSTYLE);
        self.no_zeroes = offered.contains(HandshakeFlags::NO_ZEROES);
        let mut flags = ClientFlags::NONE;
        if fixed {
            flags = flags | ClientFlags::FIXED_NEWSTYLE;
        }
        if self.no_zeroes {
            flags = flags | ClientFlags::NO_ZEROES;
        }
        output.extend_from_slice(&flags.0.to_be_bytes());
        match (fixed, self.config.tls) {
            (true, true) => self.ask(option::STARTTLS, &[], output),
            (true, false) => self.ask_framing(output),
            (false, true) => {
                let message = "it speaks newstyle without options".into();
                return Err(HandshakeError::TlsRefused { message });
            }
            (false, false) => self.ask_export_name(output),
        }
        Ok(ClientEvent::Send)
    }

    fn reply_header(&mut self, header: &OptionReplyHeader) -> Result<usize, HandshakeError> {
        let magic = header.magic.get();
        if magic != values::MAGIC_OPTION_REPLY {
            return Err(HandshakeError::ReplyMagic { magic });
        }
        let answered = header.option.get();
        let asked = option::name(self.asked);
        if answered != self.asked {
            return Err(HandshakeError::WrongOption { answered, asked });
        }
        let length = header.length.get();
        if length > OPTION_REPLY_BYTES_MAX {
            return Err(HandshakeError::ReplyTooLong { length });
        }
        self.replies += 1;
        if self.replies > OPTION_REPLIES_MAX {
            return Err(HandshakeError::TooManyReplies { option: asked });
        }
        self.data.clear();
        self.step = Step::ReplyData { kind: header.kind.get(), length: length as usize };
        Ok(length as usize)
    }

    /// Handles a reply whose data is complete.
    fn reply(
        &mut self,
        kind: u32,
        export: &mut ExportInfo,
        output: &mut Vec<u8>,
    ) -> Result<Option<ClientEvent>, HandshakeError> {
        self.step = Step::Reply;
        if kind & option_reply::ERROR_BIT != 0 {
            if self.asked == option::SET_META_CONTEXT {
                export.contexts.clear();
            }
            return self.refused(kind, output).map(Some);
        }
        match (self.asked, kind) {
            (option::GO, option_reply::INFO) => self.information(export)?,
            (option::SET_META_CONTEXT, option_reply::META_CONTEXT) => self.context(export)?,
            (_, option_reply::ACK) => return self.acknowledged(output).map(Some),
            _ => return Err(self.malformed(kind)),
        }
        Ok(None)
    }

    fn acknowledged(&mut self, output: &mut Vec<u8>) -> Result<ClientEvent, HandshakeError> {
        match self.asked {
            option::STARTTLS => {
                self.step = Step::StartTls;
                return Ok(ClientEvent::StartTls);
            }
            option::EXTENDED_HEADERS => {
                self.style = ReplyStyle::Extended;
                self.ask_contexts(output);
            }
            option::STRUCTURED_REPLY => {
                self.style = ReplyStyle::Structured;
                self.ask_contexts(output);
            }
            option::SET_META_CONTEXT => self.ask_go(output),
            _ if self.sized => return Ok(ClientEvent::Ready),
            _ => return Err(HandshakeError::NoSize),
        }
        Ok(ClientEvent::Send)
    }

    fn refused(&mut self, kind: u32, output: &mut Vec<u8>) -> Result<ClientEvent, HandshakeError> {
        let message = Plain(&String::from_utf8_lossy(&self.data)).to_string();
        let error = match (self.asked, kind) {
            (option::STARTTLS, _) => HandshakeError::TlsRefused { message },
            (_, option_reply::ERR_TLS_REQD) => HandshakeError::TlsRequired,
            (option::GO, option_reply::ERR_UNKNOWN) => {
                HandshakeError::UnknownExport { export: self.config.export.clone(), message }
            }
            (_, option_reply::ERR_SHUTDOWN) => self.refusal(kind, message),
            (option::EXTENDED_HEADERS, _) => {
                self.ask(option::STRUCTURED_REPLY, &[], output);
                return Ok(ClientEvent::Send);
            }
            (option::STRUCTURED_REPLY | option::SET_META_CONTEXT, _) => {
                self.ask_go(output);
                return Ok(ClientEvent::Send);
            }
            (option::GO, option_reply::ERR_UNSUP) if self.style != ReplyStyle::Extended => {
                self.ask_export_name(output);
                return Ok(ClientEvent::Send);
            }
            _ => self.refusal(kind, message),
        };
        // A refused client leaves with an ABORT, section "Termination of the session".
        push_option(option::ABORT, &[], output);
        Err(error)
    }

    fn refusal(&self, kind: u32, message: String) -> HandshakeError {
        let (option, reply) = (option::name(self.asked), option_reply::name(kind));
        HandshakeError::Refused { option, reply, message }
    }

    fn malformed(&self, kind: u32) -> HandshakeError {
        HandshakeError::Malformed {
            option: option::name(self.asked),
            reply: option_reply::name(kind),
            length: self.data.len(),
        }
    }

    fn information(&mut self, export: &mut ExportInfo) -> Result<(), HandshakeError> {
        let malformed = self.malformed(option_reply::INFO);
        let Some((kind, text)) = self.data.split_first_chunk::<2>() else {
            return Err(malformed);
        };
        match u16::from_be_bytes(*kind) {
            info::EXPORT => {
                let data = self.data.as_slice().try_into().map_err(|_| malformed)?;
                let wire = InfoExport::parse(data);
                set_size(export, wire.size.get(), wire.flags.get())?;
                self.sized = true;
            }
            info::BLOCK_SIZE => {
                let data = self.data.as_slice().try_into().map_err(|_| malformed)?;
                let wire = InfoBlockSize::parse(data);
                let stated = BlockSize {
                    minimum: wire.minimum.get(),
                    preferred: wire.preferred.get(),
                    maximum_payload: wire.maximum.get(),
                };
                stated.validate()?;
                export.block_size = stated;
                export.block_size_stated = true;
            }
            info::NAME => export.name = Some(text_of(text)),
            info::DESCRIPTION => export.description = Some(text_of(text)),
            // Unknown information must be ignored.
            _ => {}
        }
        Ok(())
    }

    fn context(&mut self, export: &mut ExportInfo) -> Result<(), HandshakeError> {
        let malformed = self.malformed(option_reply::META_CONTEXT);
        let mut reader = Reader::new(&self.data);
        let Ok(id) = reader.u32() else { return Err(malformed) };
        let name = text_of(reader.rest());
        let known = export.contexts.iter().any(|(other, _)| *other == id);
        if known || !self.config.contexts.contains(&name) || export.contexts.len() == CONTEXTS_MAX {
            return Err(malformed);
        }
        export.contexts.push((id, name));
        Ok(())
    }
}

impl ClientSession {
    pub(super) fn handshake(&mut self, input: &[u8], output: &mut Vec<u8>) -> StepResult {
        let Phase::Handshake(handshake) = &mut self.phase else { return Ok((0, None)) };
        let (used, event) = match handshake.step {
            Step::Greeting => {
                let (used, greeting) = self.gather.take::<{ Greeting::BYTES }>(input);
                let event = greeting
                    .map(|greeting| handshake.greeted(&Greeting::parse(&greeting), output))
                    .transpose()?;
                (used, event)
            }
            Step::Reply => {
                let (used, header) = self.gather.take::<{ OptionReplyHeader::BYTES }>(input);
                let Some(header) = header else { return Ok((used, None)) };
                match handshake.reply_header(&OptionReplyHeader::parse(&header))? {
                    // Nothing more of this reply will come to trigger the next step.
                    0 => self.reply_complete(used, output)?,
                    _ => (used, None),
                }
            }
            Step::ReplyData { length, .. } => {
                let used = (length - handshake.data.len()).min(input.len());
                handshake.data.extend_from_slice(&input[..used]);
                if handshake.data.len() < length {
                    return Ok((used, None));
                }
                self.reply_complete(used, output)?
            }
            Step::StartTls => (0, Some(ClientEvent::StartTls)),
            Step::ExportName => {
                let (used, reply) = self.gather.take::<{ ExportNameReply::BYTES }>(input);
                let Some(reply) = reply else { return Ok((used, None)) };
                let reply = ExportNameReply::parse(&reply);
                set_size(&mut self.export, reply.size.get(), reply.flags.get())?;
                if handshake.no_zeroes {
                    (used, Some(ClientEvent::Ready))
                } else {
                    handshake.step = Step::Zeroes { remaining: values::EXPORT_NAME_ZEROES };
                    (used, None)
                }
            }
            Step::Zeroes { remaining } => {
                let used = remaining.min(input.len());
                handshake.step = Step::Zeroes { remaining: remaining - used };
                (used, (used == remaining).then_some(ClientEvent::Ready))
            }
        };
        if event == Some(ClientEvent::Ready) {
            self.begin_transmission();
        }
        Ok((used, event))
    }

    fn reply_complete(&mut self, used: usize, output: &mut Vec<u8>) -> StepResult {
        let Phase::Handshake(handshake) = &mut self.phase else { return Ok((used, None)) };
        let Step::ReplyData { kind, .. } = handshake.step else { return Ok((used, None)) };
        Ok((used, handshake.reply(kind, &mut self.export, output)?))
    }

    fn begin_transmission(&mut self) {
        if let Phase::Handshake(handshake) = &self.phase {
            self.style = handshake.style;
        }
        // DF is meaningless without chunks, whatever the server announces.
        if self.style == ReplyStyle::Simple {
            self.export.flags = self.export.flags.without(TransmissionFlags::SEND_DF);
        }
        self.phase = Phase::Transmission(Receiving::new());
    }
}

/// Returns the message that ends a session in the handshake.
pub(super) fn abort() -> Packet {
    Packet::of(&option_header(option::ABORT, 0))
}

fn set_size(export: &mut ExportInfo, size: u64, flags: u16) -> Result<(), HandshakeError> {
    if size > i64::MAX as u64 {
        return Err(HandshakeError::Size { size });
    }
    export.size = size;
    export.flags = TransmissionFlags(flags);
    Ok(())
}

fn text_of(bytes: &[u8]) -> String {
    String::from(cut_text(&String::from_utf8_lossy(bytes)))
}

fn option_header(option: u32, length: usize) -> OptionHeader {
    OptionHeader {
        magic: values::MAGIC_OPTION.into(),
        option: option.into(),
        // The data is a few strings of at most STRING_BYTES_MAX.
        length: (length as u32).into(),
    }
}

fn push_option(option: u32, data: &[u8], output: &mut Vec<u8>) {
    output.extend_from_slice(option_header(option, data.len()).as_bytes());
    output.extend_from_slice(data);
}

fn push_string(text: &str, data: &mut Vec<u8>) {
    let text = cut_text(text);
    data.extend_from_slice(&(text.len() as u32).to_be_bytes());
    data.extend_from_slice(text.as_bytes());
}
