//! Replies, each checked against its request.

use super::coverage::CoverageError;
use super::requests::{Command, Slot, SlotIndex};
use super::{ClientEvent, ClientSession, Phase, ReplyError};
use crate::codec::values::{self, chunk};
use crate::codec::wire::{
    BlockDescriptor, BlockDescriptorExtended, BlockStatus, BlockStatusExtended, ErrorChunk,
    ExtendedReply, OffsetData, OffsetHole, SimpleReply, StructuredReply,
};
use crate::codec::{ErrorCode, ReplyFlags, ReplyStyle};
use crate::limits::{STATUS_EXTENTS_MAX, STRING_BYTES_MAX};

/// Maximum number of bytes of fields that an error chunk may have besides its message.
const ERROR_FIELDS_MAX: u64 = 1024;

/// A chunk whose header has arrived.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    slot: SlotIndex,
    kind: u16,
    /// Bytes of it that have not been used yet.
    length: u64,
    done: bool,
}

/// The position of the session in the byte stream.
#[derive(Clone, Copy, Debug)]
enum Step {
    Header,
    DataOffset(Chunk),
    /// The caller takes data.
    Payload {
        slot: SlotIndex,
        remaining: u32,
        done: bool,
    },
    Hole(Chunk),
    StatusContext(Chunk),
    StatusExtents {
        chunk: Chunk,
        context: u32,
        first: bool,
    },
    ErrorFields(Chunk),
    ErrorMessage {
        chunk: Chunk,
        message: u16,
    },
    ErrorOffset(Chunk),
    /// The rest of an error chunk is skipped.
    Skip(Chunk),
    /// A chunk has ended.
    Ended {
        slot: SlotIndex,
        done: bool,
    },
}

/// The state of reply parsing.
#[derive(Debug)]
pub(super) struct Receiving {
    step: Step,
}

type StepResult = Result<(usize, Option<ClientEvent>), ReplyError>;

impl Receiving {
    pub(super) fn new() -> Receiving {
        Receiving { step: Step::Header }
    }

    /// Returns true if an event is due without further input.
    pub(super) fn event_due(&self) -> bool {
        matches!(self.step, Step::Ended { done: true, .. })
    }

    pub(super) fn payload_taken(&mut self, bytes: u32) {
        if let Step::Payload { slot, remaining, done } = &mut self.step {
            *remaining = remaining.saturating_sub(bytes);
            if *remaining == 0 {
                self.step = Step::Ended { slot: *slot, done: *done };
            }
        }
    }
}

impl ClientSession {
    pub(super) fn receive(&mut self, input: &[u8]) -> StepResult {
        let Phase::Transmission(receiving) = &self.phase else { return Ok((0, None)) };
        match receiving.step {
            Step::Header => self.header(input),
            Step::DataOffset(chunk) => self.data_offset(chunk, input),
            Step::Payload { remaining, .. } => Ok((0, Some(ClientEvent::Payload { remaining }))),
            Step::Hole(chunk) => self.hole(chunk, input),
            Step::StatusContext(chunk) => self.status_context(chunk, input),
            Step::StatusExtents { chunk, context, first } => {
                self.status_extent(chunk, context, first, input)
            }
            Step::ErrorFields(chunk) => self.error_fields(chunk, input),
            Step::ErrorMessage { chunk, message } => Ok(self.error_text(chunk, message, input)),
            Step::ErrorOffset(chunk) => self.error_offset(chunk, input),
            Step::Skip(mut chunk) => {
                let used = usize::try_from(chunk.length)
                    .map_or(input.len(), |length| length.min(input.len()));
                chunk.length -= used as u64;
                self.go(if chunk.length == 0 { ended(chunk) } else { Step::Skip(chunk) });
                Ok((used, None))
            }
            Step::Ended { slot, done } => {
                self.go(Step::Header);
                if !done {
                    return Ok((0, None));
                }
                self.finish(slot).map(|event| (0, Some(event)))
            }
        }
    }

    fn go(&mut self, step: Step) {
        self.phase = Phase::Transmission(Receiving { step });
    }

    fn header(&mut self, input: &[u8]) -> StepResult {
        match self.style {
            ReplyStyle::Simple => {
                let (used, header) = self.gather.take::<{ SimpleReply::BYTES }>(input);
                match header {
                    Some(header) => self.simple(used, &SimpleReply::parse(&header)),
                    None => Ok((used, None)),
                }
            }
            ReplyStyle::Structured => self.simple_or_structured(input),
            ReplyStyle::Extended => {
                let (used, header) = self.gather.take::<{ ExtendedReply::BYTES }>(input);
                match header {
                    Some(header) => self.extended(used, &ExtendedReply::parse(&header)),
                    None => Ok((used, None)),
                }
            }
        }
    }

    /// Parses a header whose length depends on the magic number, with structured replies.
    fn simple_or_structured(&mut self, input: &[u8]) -> StepResult {
        let mut used = self.gather.fill(input, SimpleReply::BYTES);
        let Some(magic) = self.gather.bytes().first_chunk::<4>() else { return Ok((used, None)) };
        match u32::from_be_bytes(*magic) {
            values::MAGIC_REPLY_SIMPLE => {
                let (more, header) = self.gather.take::<{ SimpleReply::BYTES }>(&input[used..]);
                used += more;
                match header {
                    Some(header) => self.simple(used, &SimpleReply::parse(&header)),
                    None => Ok((used, None)),
                }
            }
            values::MAGIC_REPLY_STRUCTURED => {
                let (more, header) = self.gather.take::<{ StructuredReply::BYTES }>(&input[used..]);
                used += more;
                let Some(header) = header else { return Ok((used, None)) };
                let header = StructuredReply::parse(&header);
                let (flags, kind) = (header.flags.get(), header.kind.get());
                let length = u64::from(header.length.get());
                self.chunk(used, header.cookie.get(), kind, length, flags)
            }
            magic => Err(ReplyError::Magic { magic }),
        }
    }

    fn simple(&mut self, used: usize, header: &SimpleReply) -> StepResult {
        let magic = header.magic.get();
        if magic != values::MAGIC_REPLY_SIMPLE {
            return Err(ReplyError::Magic { magic });
        }
        let index = self.find(header.cookie.get())?;
        let style = self.style;
        let slot = self.in_flight.slot(index);
        let command = slot.request.command;
        let is_read = matches!(command, Command::Read { .. });
        let is_status = matches!(command, Command::BlockStatus { .. });
        let error = ErrorCode::from_wire(header.error.get());
        if (is_read && style != ReplyStyle::Simple) || (is_status && error.is_none()) {
            return Err(ReplyError::Kind { command: command.name(), kind: 0 });
        }
        if let Some(code) = error {
            slot.error = Some(code);
            self.begin_message(index);
        } else if is_read {
            // It is at most the maximum payload, which has 32 bits.
            let length = slot.request.length as u32;
            let token = slot.token;
            cover(slot, slot.request.offset, u64::from(length))?;
            self.go(Step::Payload { slot: index, remaining: length, done: true });
            return Ok((used, Some(ClientEvent::Data { token, at: 0, length })));
        }
        self.finish(index).map(|event| (used, Some(event)))
    }

    fn extended(&mut self, used: usize, header: &ExtendedReply) -> StepResult {
        let magic = header.magic.get();
        if magic != values::MAGIC_REPLY_EXTENDED {
            return Err(ReplyError::Magic { magic });
        }
        let index = self.find(header.cookie.get())?;
        let (stated, requested) = (header.offset.get(), self.in_flight.slot(index).request.offset);
        if stated != requested {
            return Err(ReplyError::Offset { stated, requested });
        }
        let (kind, length, flags) = (header.kind.get(), header.length.get(), header.flags.get());
        self.chunk(used, header.cookie.get(), kind, length, flags)
    }

    /// Begins a structured or extended chunk.
    fn chunk(
        &mut self,
        used: usize,
        cookie: u64,
        kind: u16,
        length: u64,
        flags: u16,
    ) -> StepResult {
        let slot = self.find(cookie)?;
        let done = ReplyFlags(flags).contains(ReplyFlags::DONE);
        let chunk = Chunk { slot, kind, length, done };
        let command = self.in_flight.slot(slot).request.command;
        let is_read = matches!(command, Command::Read { .. });
        let is_status = matches!(command, Command::BlockStatus { .. });
        let extended = self.style == ReplyStyle::Extended;
        let (belongs, fits, step) = match kind {
            chunk::NONE => (true, length == 0 && done, ended(chunk)),
            chunk::OFFSET_DATA => (is_read, length > 8, Step::DataOffset(chunk)),
            chunk::OFFSET_HOLE => (is_read, length == 12, Step::Hole(chunk)),
            chunk::BLOCK_STATUS => {
                (is_status && !extended, status_fits(length, 4, 8), Step::StatusContext(chunk))
            }
            chunk::BLOCK_STATUS_EXT => {
                (is_status && extended, status_fits(length, 8, 16), Step::StatusContext(chunk))
            }
            kind if kind & chunk::ERROR_BIT != 0 => {
                let least = if kind == chunk::ERROR_OFFSET { 14 } else { 6 };
                let most = STRING_BYTES_MAX as u64 + ERROR_FIELDS_MAX;
                (true, (least..=most).contains(&length), Step::ErrorFields(chunk))
            }
            _ => (false, false, Step::Header),
        };
        if !belongs {
            return Err(ReplyError::Kind { command: command.name(), kind });
        }
        if !fits {
            return Err(ReplyError::Length { kind, length });
        }
        self.go(step);
        Ok((used, None))
    }

    fn data_offset(&mut self, chunk: Chunk, input: &[u8]) -> StepResult {
        let (used, fields) = self.gather.take::<{ OffsetData::BYTES }>(input);
        let Some(fields) = fields else { return Ok((used, None)) };
        let offset = OffsetData::parse(&fields).offset.get();
        let length = chunk.length - OffsetData::BYTES as u64;
        let slot = self.in_flight.slot(chunk.slot);
        let at = cover(slot, offset, length)?;
        let token = slot.token;
        // It lies within the request, which is shorter than 32 bits.
        let length = length as u32;
        self.go(Step::Payload { slot: chunk.slot, remaining: length, done: chunk.done });
        Ok((used, Some(ClientEvent::Data { token, at, length })))
    }

    fn hole(&mut self, chunk: Chunk, input: &[u8]) -> StepResult {
        let (used, fields) = self.gather.take::<{ OffsetHole::BYTES }>(input);
        let Some(fields) = fields else { return Ok((used, None)) };
        let fields = OffsetHole::parse(&fields);
        let length = fields.size.get();
        if length == 0 {
            return Err(ReplyError::Length { kind: chunk.kind, length: 0 });
        }
        let slot = self.in_flight.slot(chunk.slot);
        let at = cover(slot, fields.offset.get(), u64::from(length))?;
        let token = slot.token;
        self.go(ended(chunk));
        Ok((used, Some(ClientEvent::Hole { token, at, length })))
    }

    fn status_context(&mut self, mut chunk: Chunk, input: &[u8]) -> StepResult {
        let (used, context) = if chunk.kind == chunk::BLOCK_STATUS_EXT {
            let (used, fields) = self.gather.take::<{ BlockStatusExtended::BYTES }>(input);
            let Some(fields) = fields else { return Ok((used, None)) };
            let fields = BlockStatusExtended::parse(&fields);
            chunk.length -= BlockStatusExtended::BYTES as u64;
            if u64::from(fields.count.get()) * BlockDescriptorExtended::BYTES as u64 != chunk.length
            {
                return Err(ReplyError::Length { kind: chunk.kind, length: chunk.length });
            }
            (used, fields.context.get())
        } else {
            let (used, fields) = self.gather.take::<{ BlockStatus::BYTES }>(input);
            let Some(fields) = fields else { return Ok((used, None)) };
            chunk.length -= BlockStatus::BYTES as u64;
            (used, BlockStatus::parse(&fields).context.get())
        };
        let position = self.export.contexts.iter().position(|(id, _)| *id == context);
        let slot = self.in_flight.slot(chunk.slot);
        // There are at most CONTEXTS_MAX contexts, so the bit exists.
        let bit = position.map_or(0, |position| 1_u8 << position);
        if bit == 0 || slot.contexts & bit != 0 {
            return Err(ReplyError::Context { context });
        }
        slot.contexts |= bit;
        self.go(Step::StatusExtents { chunk, context, first: true });
        Ok((used, None))
    }

    fn status_extent(
        &mut self,
        mut chunk: Chunk,
        context: u32,
        first: bool,
        input: &[u8],
    ) -> StepResult {
        let (used, length, status) = if chunk.kind == chunk::BLOCK_STATUS_EXT {
            let (used, fields) = self.gather.take::<{ BlockDescriptorExtended::BYTES }>(input);
            let Some(fields) = fields else { return Ok((used, None)) };
            chunk.length -= BlockDescriptorExtended::BYTES as u64;
            let fields = BlockDescriptorExtended::parse(&fields);
            (used, fields.length.get(), fields.status.get())
        } else {
            let (used, fields) = self.gather.take::<{ BlockDescriptor::BYTES }>(input);
            let Some(fields) = fields else { return Ok((used, None)) };
            chunk.length -= BlockDescriptor::BYTES as u64;
            let fields = BlockDescriptor::parse(&fields);
            (used, u64::from(fields.length.get()), u64::from(fields.status.get()))
        };
        let slot = self.in_flight.slot(chunk.slot);
        let one = slot.request.command == Command::BlockStatus { one: true };
        if length == 0 || (one && (!first || length > slot.request.length)) {
            return Err(ReplyError::Extent { length });
        }
        let token = slot.token;
        self.go(match chunk.length {
            0 => ended(chunk),
            _ => Step::StatusExtents { chunk, context, first: false },
        });
        Ok((used, Some(ClientEvent::Extent { token, context, length, status })))
    }

    fn error_fields(&mut self, mut chunk: Chunk, input: &[u8]) -> StepResult {
        let (used, fields) = self.gather.take::<{ ErrorChunk::BYTES }>(input);
        let Some(fields) = fields else { return Ok((used, None)) };
        let fields = ErrorChunk::parse(&fields);
        let message = fields.message_length.get();
        let tail = if chunk.kind == chunk::ERROR_OFFSET { 8 } else { 0 };
        let length = chunk.length;
        chunk.length -= ErrorChunk::BYTES as u64;
        let too_long = usize::from(message) > STRING_BYTES_MAX;
        if too_long || u64::from(message) + tail > chunk.length {
            return Err(ReplyError::Length { kind: chunk.kind, length });
        }
        let code = ErrorCode::from_wire(fields.error.get()).ok_or(ReplyError::NoError)?;
        let slot = self.in_flight.slot(chunk.slot);
        // The first of several errors is the cause.
        slot.error = slot.error.or(Some(code));
        self.begin_message(chunk.slot);
        self.go(match message {
            0 => after_message(chunk),
            _ => Step::ErrorMessage { chunk, message },
        });
        Ok((used, None))
    }

    fn error_text(
        &mut self,
        mut chunk: Chunk,
        message: u16,
        input: &[u8],
    ) -> (usize, Option<ClientEvent>) {
        let used = usize::from(message).min(input.len());
        self.message.extend_from_slice(&input[..used]);
        chunk.length -= used as u64;
        // `used` is at most `message`.
        let message = message - used as u16;
        self.go(match message {
            0 => after_message(chunk),
            _ => Step::ErrorMessage { chunk, message },
        });
        (used, None)
    }

    fn error_offset(&mut self, mut chunk: Chunk, input: &[u8]) -> StepResult {
        let (used, offset) = self.gather.take::<8>(input);
        let Some(offset) = offset else { return Ok((used, None)) };
        let offset = u64::from_be_bytes(offset);
        chunk.length -= 8;
        relative(self.in_flight.slot(chunk.slot), offset, 0)?;
        self.go(if chunk.length == 0 { ended(chunk) } else { Step::Skip(chunk) });
        Ok((used, None))
    }

    fn begin_message(&mut self, slot: SlotIndex) {
        self.message.clear();
        self.message_of = Some(slot);
    }

    fn find(&self, cookie: u64) -> Result<SlotIndex, ReplyError> {
        self.in_flight.find(cookie).ok_or(ReplyError::Cookie { cookie })
    }

    /// Ends a request, and checks that a success is complete.
    fn finish(&mut self, index: SlotIndex) -> Result<ClientEvent, ReplyError> {
        let slot = *self.in_flight.slot(index);
        let token = slot.token;
        if let Some(code) = slot.error {
            if self.message_of != Some(index) {
                // Another request's error came in between. No message is better than a wrong
                // one.
                self.message.clear();
            }
            self.in_flight.end(index);
            return Ok(ClientEvent::Done { token, result: Err(code) });
        }
        match slot.request.command {
            Command::Read { .. } => {
                let (got, wanted) = (slot.coverage.bytes(), slot.request.length);
                if got != wanted {
                    return Err(ReplyError::Incomplete { got, wanted });
                }
            }
            Command::BlockStatus { .. }
                if slot.contexts.count_ones() as usize != self.export.contexts.len() =>
            {
                return Err(ReplyError::Context { context: 0 });
            }
            _ => {}
        }
        self.in_flight.end(index);
        Ok(ClientEvent::Done { token, result: Ok(()) })
    }
}

fn ended(chunk: Chunk) -> Step {
    Step::Ended { slot: chunk.slot, done: chunk.done }
}

/// Returns the step after an error chunk's message.
fn after_message(chunk: Chunk) -> Step {
    match (chunk.kind, chunk.length) {
        (chunk::ERROR_OFFSET, _) => Step::ErrorOffset(chunk),
        (_, 0) => ended(chunk),
        _ => Step::Skip(chunk),
    }
}

/// Returns true if a status chunk has its fixed fields and a permitted number of extents.
fn status_fits(length: u64, fields: u64, extent: u64) -> bool {
    let extents = length.saturating_sub(fields) / extent;
    (1..=STATUS_EXTENTS_MAX).contains(&extents) && length == fields + extents * extent
}

/// Returns the offset of a chunk within its request.
fn relative(slot: &Slot, offset: u64, length: u64) -> Result<u32, ReplyError> {
    let request = &slot.request;
    let at = offset.checked_sub(request.offset);
    let inside = at.filter(|at| at.checked_add(length).is_some_and(|end| end <= request.length));
    let at = inside.and_then(|at| u32::try_from(at).ok());
    at.ok_or(ReplyError::Range {
        offset,
        length,
        requested_offset: request.offset,
        requested_length: request.length,
    })
}

/// Records that content has arrived. Returns its offset within the request.
fn cover(slot: &mut Slot, offset: u64, length: u64) -> Result<u32, ReplyError> {
    let at = relative(slot, offset, length)?;
    // `relative` has checked that both lie within the request.
    let end = at + length as u32;
    match slot.coverage.add(at, end) {
        Ok(()) => Ok(at),
        Err(CoverageError::Overlap { at }) => {
            Err(ReplyError::Overlap { offset: slot.request.offset + u64::from(at) })
        }
        Err(CoverageError::Full) => Err(ReplyError::Fragments),
    }
}
