//! The server's side of option haggling, section "Fixed newstyle negotiation".

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use zerocopy::IntoBytes;

use super::reply::context_id;
use super::{ContextSet, Export, Phase, ServerEvent, ServerSession, SessionEnd, TlsMode};
use crate::codec::values::{info, option, option_reply};
use crate::codec::wire::{
    ExportNameReply, InfoBlockSize, InfoExport, OptionHeader, OptionReplyHeader,
};
use crate::codec::{Reader, ReplyStyle, Short, TransmissionFlags, cut_text, values};
use crate::limits::{
    CONTEXTS_MAX, DRAIN_BYTES_MAX, OPTION_BYTES_MAX, OPTIONS_MAX, QUERIES_MAX, STRING_BYTES_MAX,
};

/// The options agreed so far.
#[derive(Debug)]
pub(super) struct Haggling {
    pub(super) no_zeroes: bool,
    over_tls: bool,
    structured: bool,
    extended: bool,
    /// The selected contexts and the index of their export.
    selected: Option<(usize, ContextSet)>,
    options: u32,
    data: Vec<u8>,
}

/// A refusal: the reply type and its message.
type Refusal = (u32, String);

impl Haggling {
    pub(super) fn new() -> Haggling {
        Haggling {
            no_zeroes: false,
            over_tls: false,
            structured: false,
            extended: false,
            selected: None,
            options: 0,
            data: Vec::new(),
        }
    }

    /// Returns the state of a handshake that another program began: the agreement on zeroes,
    /// structured replies and extended headers, the selected contexts, the number of options so
    /// far, and the data of the current one.
    pub(super) fn resumed(
        (no_zeroes, structured, extended): (bool, bool, bool),
        selected: Option<(usize, ContextSet)>,
        options: u32,
        data: Vec<u8>,
    ) -> Haggling {
        let new = Haggling::new();
        Haggling { no_zeroes, structured, extended, selected, options, data, ..new }
    }

    /// Returns the agreed options: no zeroes, structured replies, extended headers.
    pub(super) fn agreed(&self) -> (bool, bool, bool) {
        (self.no_zeroes, self.structured, self.extended)
    }

    pub(super) fn selected(&self) -> Option<(usize, ContextSet)> {
        self.selected
    }

    pub(super) fn options(&self) -> u32 {
        self.options
    }

    pub(super) fn data(&self) -> &[u8] {
        &self.data
    }

    pub(super) fn is_over_tls(&self) -> bool {
        self.over_tls
    }

    pub(super) fn restart_over_tls(&mut self) {
        *self = Haggling {
            no_zeroes: self.no_zeroes,
            over_tls: true,
            options: self.options,
            ..Haggling::new()
        };
    }

    /// Takes the missing bytes of the option's data from `input`. Returns their number.
    pub(super) fn collect(&mut self, input: &[u8], length: usize) -> usize {
        let used = (length - self.data.len()).min(input.len());
        self.data.extend_from_slice(&input[..used]);
        used
    }

    pub(super) fn collected(&self, length: usize) -> bool {
        self.data.len() >= length
    }

    fn chunked_replies(&self) -> bool {
        self.structured || self.extended
    }
}

impl ServerSession {
    pub(super) fn option_header(
        &mut self,
        header: &OptionHeader,
        output: &mut Vec<u8>,
    ) -> Result<Option<ServerEvent>, SessionEnd> {
        let magic = header.magic.get();
        if magic != values::MAGIC_OPTION {
            return Err(SessionEnd::OptionMagic { magic });
        }
        self.haggling.options += 1;
        if self.haggling.options > OPTIONS_MAX {
            return Err(SessionEnd::TooManyOptions);
        }
        let (option, length) = (header.option.get(), header.length.get());
        if length > OPTION_BYTES_MAX {
            if option == option::EXPORT_NAME || u64::from(length) > DRAIN_BYTES_MAX {
                return Err(SessionEnd::OptionTooLong { option: option::name(option), length });
            }
            let message = format!("{length} bytes of data; at most {OPTION_BYTES_MAX} are taken");
            let kind = match self.tls_missing() {
                true => option_reply::ERR_TLS_REQD,
                false => option_reply::ERR_TOO_BIG,
            };
            reply(option, kind, message.as_bytes(), output);
            self.phase = Phase::OptionSkip { remaining: u64::from(length) };
            return Ok(Some(ServerEvent::Reply));
        }
        self.haggling.data.clear();
        if length == 0 {
            return self.option(option, output).map(Some);
        }
        self.phase = Phase::OptionData { option, length: length as usize };
        Ok(None)
    }

    /// Answers an option whose data has been collected.
    pub(super) fn option(
        &mut self,
        option: u32,
        output: &mut Vec<u8>,
    ) -> Result<ServerEvent, SessionEnd> {
        self.phase = Phase::OptionHeader;
        let data = core::mem::take(&mut self.haggling.data);
        if option == option::EXPORT_NAME {
            return self.export_name(&data, output);
        }
        let answer = self.answer(option, &data, output);
        // The buffer serves the next option.
        self.haggling.data = data;
        match answer {
            Ok(event) => {
                reply(option, option_reply::ACK, &[], output);
                Ok(event)
            }
            Err((kind, message)) => {
                let message = cut_text(&message);
                reply(option, kind, message.as_bytes(), output);
                Ok(ServerEvent::Reply)
            }
        }
    }

    /// Produces an answer except its final `ACK` or error.
    fn answer(
        &mut self,
        option: u32,
        data: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<ServerEvent, Refusal> {
        if option == option::ABORT {
            self.phase = Phase::Aborted;
            return Ok(ServerEvent::Abort);
        }
        if self.tls_missing() && option != option::STARTTLS {
            return Err((option_reply::ERR_TLS_REQD, "this server requires TLS".into()));
        }
        match option {
            option::STARTTLS => self.start_tls(data),
            option::LIST => self.list(data, output),
            option::INFO | option::GO => self.info(option, data, output),
            option::STRUCTURED_REPLY | option::EXTENDED_HEADERS => self.framing(option, data),
            option::LIST_META_CONTEXT => self.list_contexts(data, output),
            option::SET_META_CONTEXT => self.set_contexts(data, output),
            unknown => Err((option_reply::ERR_UNSUP, format!("unknown option {unknown}"))),
        }
    }

    fn tls_missing(&self) -> bool {
        self.config.tls() == TlsMode::Required && !self.haggling.over_tls
    }

    fn export_name(
        &mut self,
        name: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<ServerEvent, SessionEnd> {
        let refused = |reason| Err(SessionEnd::ExportNameRefused { reason });
        if self.tls_missing() {
            return refused("this server requires TLS".into());
        }
        if self.haggling.extended {
            return refused("extended headers need GO".into());
        }
        let Some(export) = self.config.find(name) else {
            return refused(format!("no export named {:?}", String::from_utf8_lossy(name)));
        };
        self.begin_transmission(export);
        let head =
            ExportNameReply { size: self.export().size.into(), flags: self.announced.0.into() };
        output.extend_from_slice(head.as_bytes());
        if !self.haggling.no_zeroes {
            output.extend_from_slice(&[0; values::EXPORT_NAME_ZEROES]);
        }
        Ok(ServerEvent::Ready)
    }

    fn start_tls(&mut self, data: &[u8]) -> Result<ServerEvent, Refusal> {
        no_data(option::STARTTLS, data)?;
        if self.haggling.over_tls {
            return Err((option_reply::ERR_INVALID, "TLS is already in use".into()));
        }
        if self.config.tls() == TlsMode::Off {
            return Err((option_reply::ERR_POLICY, "this server is configured without TLS".into()));
        }
        self.phase = Phase::StartTls;
        Ok(ServerEvent::StartTls)
    }

    fn list(&mut self, data: &[u8], output: &mut Vec<u8>) -> Result<ServerEvent, Refusal> {
        no_data(option::LIST, data)?;
        let mut entry = Vec::new();
        for export in self.config.exports() {
            entry.clear();
            // It is at most STRING_BYTES_MAX.
            entry.extend_from_slice(&(export.name.len() as u32).to_be_bytes());
            entry.extend_from_slice(export.name.as_bytes());
            entry.extend_from_slice(export.description.as_bytes());
            reply(option::LIST, option_reply::SERVER, &entry, output);
        }
        Ok(ServerEvent::Reply)
    }

    fn info(
        &mut self,
        option: u32,
        data: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<ServerEvent, Refusal> {
        let malformed = |Short| malformed(option, data);
        let mut reader = Reader::new(data);
        let name = string(&mut reader, "export name").map_err(|error| error.of(option, data))?;
        let count = reader.u16().map_err(malformed)?;
        let requests = reader.rest();
        if requests.len() != usize::from(count) * 2 {
            return Err(malformed(Short));
        }
        let asked = |kind: u16| requests.chunks_exact(2).any(|item| item == kind.to_be_bytes());
        let index = self.find(name)?;
        let announced = self.announce(index);
        let export = &self.config.exports()[index];
        let size = export.size.into();
        let head = InfoExport { kind: info::EXPORT.into(), size, flags: announced.0.into() };
        reply(option, option_reply::INFO, head.as_bytes(), output);
        if asked(info::NAME) {
            info_string(option, info::NAME, &export.name, output);
        }
        if asked(info::DESCRIPTION) && !export.description.is_empty() {
            info_string(option, info::DESCRIPTION, &export.description, output);
        }
        if asked(info::BLOCK_SIZE) {
            let block = export.block_size;
            let sizes = InfoBlockSize {
                kind: info::BLOCK_SIZE.into(),
                minimum: block.minimum.into(),
                preferred: block.preferred.into(),
                maximum: block.maximum_payload.into(),
            };
            reply(option, option_reply::INFO, sizes.as_bytes(), output);
        }
        if option == option::INFO {
            return Ok(ServerEvent::Reply);
        }
        self.begin_transmission(index);
        Ok(ServerEvent::Ready)
    }

    fn framing(&mut self, option: u32, data: &[u8]) -> Result<ServerEvent, Refusal> {
        no_data(option, data)?;
        if option == option::EXTENDED_HEADERS {
            if self.haggling.extended {
                return Err((
                    option_reply::ERR_INVALID,
                    "extended headers are already in use".into(),
                ));
            }
            self.haggling.extended = true;
            return Ok(ServerEvent::Reply);
        }
        if self.haggling.extended {
            return Err((
                option_reply::ERR_EXT_HEADER_REQD,
                "extended headers are in use and take precedence".into(),
            ));
        }
        if self.haggling.structured {
            let message = "structured replies are already in use";
            return Err((option_reply::ERR_INVALID, message.into()));
        }
        self.haggling.structured = true;
        Ok(ServerEvent::Reply)
    }

    fn list_contexts(&mut self, data: &[u8], output: &mut Vec<u8>) -> Result<ServerEvent, Refusal> {
        let option = option::LIST_META_CONTEXT;
        let (index, queries) = self.context_queries(option, data)?;
        for (position, context) in self.config.exports()[index].contexts.iter().enumerate() {
            let wanted = |query: &&[u8]| {
                let wildcard = query.ends_with(b":") && context.as_bytes().starts_with(query);
                wildcard || *query == context.as_bytes()
            };
            if queries.is_empty() || queries.iter().any(wanted) {
                meta_context(option, 0, &self.config.exports()[index], position, output);
            }
        }
        Ok(ServerEvent::Reply)
    }

    fn set_contexts(&mut self, data: &[u8], output: &mut Vec<u8>) -> Result<ServerEvent, Refusal> {
        let option = option::SET_META_CONTEXT;
        // A failed selection also replaces the one before it.
        self.haggling.selected = None;
        let (index, queries) = self.context_queries(option, data)?;
        let export = &self.config.exports()[index];
        let mut selected = ContextSet::EMPTY;
        for (position, context) in export.contexts.iter().enumerate() {
            if queries.contains(&context.as_bytes()) {
                selected.insert(position);
                meta_context(option, context_id(position), export, position, output);
            }
        }
        self.haggling.selected = Some((index, selected));
        Ok(ServerEvent::Reply)
    }

    /// Returns the export and the queries of a meta context option.
    fn context_queries<'a>(
        &self,
        option: u32,
        data: &'a [u8],
    ) -> Result<(usize, Vec<&'a [u8]>), Refusal> {
        if !self.haggling.chunked_replies() {
            let message = format!("{} needs structured replies first", option::name(option));
            return Err((option_reply::ERR_INVALID, message));
        }
        let mut reader = Reader::new(data);
        let name = string(&mut reader, "export name").map_err(|error| error.of(option, data))?;
        let count = reader.u32().map_err(|Short| malformed(option, data))?;
        if count > QUERIES_MAX {
            let message = format!("{count} queries; at most {QUERIES_MAX} are taken");
            return Err((option_reply::ERR_TOO_BIG, message));
        }
        let mut queries = Vec::new();
        for _ in 0..count {
            let query = string(&mut reader, "query").map_err(|error| error.of(option, data))?;
            if !query.contains(&b':') {
                let query = String::from_utf8_lossy(query);
                let message = format!("meta context query {query:?} has no namespace and colon");
                return Err((option_reply::ERR_INVALID, message));
            }
            queries.push(query);
        }
        if !reader.rest().is_empty() {
            return Err(malformed(option, data));
        }
        Ok((self.find(name)?, queries))
    }

    fn find(&self, name: &[u8]) -> Result<usize, Refusal> {
        self.config.find(name).ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            (option_reply::ERR_UNKNOWN, format!("no export named {name:?}"))
        })
    }

    /// Returns an export's flags for this client in its current state.
    fn announce(&self, index: usize) -> TransmissionFlags {
        let managed = TransmissionFlags::SEND_DF | TransmissionFlags::BLOCK_STATUS_PAYLOAD;
        let mut flags =
            self.config.exports()[index].features.without(managed) | TransmissionFlags::HAS_FLAGS;
        if self.haggling.chunked_replies() {
            flags = flags | TransmissionFlags::SEND_DF;
        }
        if self.haggling.extended && !self.contexts_for(index).is_empty() {
            flags = flags | TransmissionFlags::BLOCK_STATUS_PAYLOAD;
        }
        flags
    }

    fn contexts_for(&self, index: usize) -> ContextSet {
        match self.haggling.selected {
            Some((selected_for, contexts)) if selected_for == index => contexts,
            _ => ContextSet::EMPTY,
        }
    }

    fn begin_transmission(&mut self, index: usize) {
        self.announced = self.announce(index);
        self.contexts = self.contexts_for(index);
        self.export = index;
        self.style = match (self.haggling.extended, self.haggling.structured) {
            (true, _) => ReplyStyle::Extended,
            (false, true) => ReplyStyle::Structured,
            (false, false) => ReplyStyle::Simple,
        };
        self.haggling.data = Vec::new();
        self.phase = Phase::RequestHeader;
    }
}

/// Returns the effect length and the contexts in a block status payload, if all contexts are
/// among `selected` and none occurs twice.
pub(super) fn parse_status_payload(
    payload: &[u8],
    selected: ContextSet,
) -> Option<(u64, ContextSet)> {
    let mut reader = Reader::new(payload);
    let effect_length = u64::from_be_bytes(reader.array().ok()?);
    let ids = reader.rest();
    if ids.is_empty() || !ids.len().is_multiple_of(4) {
        return None;
    }
    let mut contexts = ContextSet::EMPTY;
    for id in ids.chunks_exact(4) {
        let id = u32::from_be_bytes(id.try_into().ok()?);
        let index = (0..CONTEXTS_MAX).find(|&index| context_id(index) == id)?;
        if !selected.contains(index) || contexts.contains(index) {
            return None;
        }
        contexts.insert(index);
    }
    Some((effect_length, contexts))
}

/// The reason why a string field is not valid.
enum StringError {
    Short,
    Long { what: &'static str, bytes: u32 },
}

impl StringError {
    fn of(self, option: u32, data: &[u8]) -> Refusal {
        match self {
            StringError::Short => malformed(option, data),
            StringError::Long { what, bytes } => (
                option_reply::ERR_INVALID,
                format!("{what} of {bytes} bytes is longer than {STRING_BYTES_MAX}"),
            ),
        }
    }
}

fn string<'a>(reader: &mut Reader<'a>, what: &'static str) -> Result<&'a [u8], StringError> {
    let bytes = reader.u32().map_err(|Short| StringError::Short)?;
    if bytes as usize > STRING_BYTES_MAX {
        return Err(StringError::Long { what, bytes });
    }
    reader.bytes(bytes).map_err(|Short| StringError::Short)
}

fn malformed(option: u32, data: &[u8]) -> Refusal {
    let (name, bytes) = (option::name(option), data.len());
    let message = format!("the fields of {name} do not add up to its {bytes} bytes of data");
    (option_reply::ERR_INVALID, message)
}

fn no_data(option: u32, data: &[u8]) -> Result<(), Refusal> {
    if data.is_empty() {
        return Ok(());
    }
    let (name, bytes) = (option::name(option), data.len());
    Err((option_reply::ERR_INVALID, format!("{name} takes no data, but {bytes} bytes came")))
}

fn reply(option: u32, kind: u32, data: &[u8], output: &mut Vec<u8>) {
    let head = OptionReplyHeader {
        magic: values::MAGIC_OPTION_REPLY.into(),
        option: option.into(),
        kind: kind.into(),
        // It is never more than a few strings.
        length: (data.len() as u32).into(),
    };
    output.extend_from_slice(head.as_bytes());
    output.extend_from_slice(data);
}

fn info_string(option: u32, kind: u16, text: &str, output: &mut Vec<u8>) {
    let mut data = Vec::with_capacity(2 + text.len());
    data.extend_from_slice(&kind.to_be_bytes());
    data.extend_from_slice(text.as_bytes());
    reply(option, option_reply::INFO, &data, output);
}

fn meta_context(option: u32, id: u32, export: &Export, position: usize, output: &mut Vec<u8>) {
    let name = &export.contexts[position];
    let mut data = Vec::with_capacity(4 + name.len());
    data.extend_from_slice(&id.to_be_bytes());
    data.extend_from_slice(name.as_bytes());
    reply(option, option_reply::META_CONTEXT, &data, output);
}
