//! Requests, and the table of those in flight.

use alloc::vec::Vec;

use super::ExportInfo;
use super::coverage::Coverage;
use crate::codec::values::command;
use crate::codec::wire::{CompactRequest, ExtendedRequest};
use crate::codec::{CommandFlags, ErrorCode, Packet, ReplyStyle, TransmissionFlags, values};

/// What to ask of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read.
    Read {
        /// In one piece where the server can (`NBD_CMD_FLAG_DF`): spares it the search for
        /// holes, at the price of zeros being sent. Ignored where it cannot.
        unfragmented: bool,
    },
    /// Write the payload that is sent after the header.
    Write,
    /// Make answered writes durable.
    Flush,
    /// The data is no longer needed.
    Trim,
    /// Bring the data near.
    Cache,
    /// Write zeros.
    WriteZeroes {
        /// Keep the extent allocated.
        no_hole: bool,
        /// Fail with `ENOTSUP` unless faster than a write.
        fast: bool,
    },
    /// Report extents.
    BlockStatus {
        /// One extent per context, not past the request.
        one: bool,
    },
}

impl Command {
    /// The command's name for messages.
    pub fn name(self) -> &'static str {
        command::name(self.number())
    }

    fn number(self) -> u16 {
        match self {
            Command::Read { .. } => command::READ,
            Command::Write => command::WRITE,
            Command::Flush => command::FLUSH,
            Command::Trim => command::TRIM,
            Command::Cache => command::CACHE,
            Command::WriteZeroes { .. } => command::WRITE_ZEROES,
            Command::BlockStatus { .. } => command::BLOCK_STATUS,
        }
    }

    /// The flag an export must have for it.
    fn feature(self) -> TransmissionFlags {
        match self {
            Command::Read { .. } | Command::Write | Command::BlockStatus { .. } => {
                TransmissionFlags::NONE
            }
            Command::Flush => TransmissionFlags::SEND_FLUSH,
            Command::Trim => TransmissionFlags::SEND_TRIM,
            Command::Cache => TransmissionFlags::SEND_CACHE,
            Command::WriteZeroes { fast: false, .. } => TransmissionFlags::SEND_WRITE_ZEROES,
            Command::WriteZeroes { fast: true, .. } => {
                TransmissionFlags::SEND_WRITE_ZEROES.with(TransmissionFlags::SEND_FAST_ZERO)
            }
        }
    }
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What.
    pub command: Command,
    /// Durable before it is answered.
    pub fua: bool,
    /// First byte; ignored for a flush.
    pub offset: u64,
    /// Bytes; ignored for a flush.
    pub length: u64,
}

/// Why a request cannot be submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The handshake is not over, or the session is ending.
    #[error("the NBD session is not ready for requests")]
    NotReady,
    /// As many requests as the session keeps account of are in flight.
    #[error("too many NBD requests in flight")]
    Full,
    /// The server does not offer this command or flag.
    #[error("the NBD server does not offer {0}")]
    Unsupported(&'static str),
    /// Past the end of the export, or of no length.
    #[error("{length} bytes at {offset} are not within the export's {size} bytes")]
    Range {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// The export's size.
        size: u64,
    },
    /// Longer than one request may be.
    #[error("{length} bytes are more than the {maximum} one NBD request may have")]
    TooLong {
        /// Bytes.
        length: u64,
        /// Most bytes.
        maximum: u64,
    },
    /// Not a multiple of the minimum block size.
    #[error(
        "{length} bytes at {offset} are not aligned to the server's minimum block of {minimum}"
    )]
    Unaligned {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// The minimum block size.
        minimum: u32,
    },
}

/// Longest effect a compact request can have in whole blocks of any legal size. Used for
/// extended ones as well, so that a caller's splitting does not depend on the style.
const EFFECT_BYTES_MAX: u64 = (u32::MAX - 0xffff) as u64;

impl Request {
    /// Whether the export can take it.
    pub(super) fn check(&self, export: &ExportInfo) -> Result<(), SubmitError> {
        let Request { command, fua, offset, length } = *self;
        if !export.flags.contains(command.feature()) {
            return Err(SubmitError::Unsupported(command.name()));
        }
        let writes =
            matches!(command, Command::Write | Command::Trim | Command::WriteZeroes { .. });
        if writes && export.flags.contains(TransmissionFlags::READ_ONLY) {
            return Err(SubmitError::Unsupported("writing: the export is read-only"));
        }
        if fua && !export.flags.contains(TransmissionFlags::SEND_FUA) {
            return Err(SubmitError::Unsupported("FUA"));
        }
        if matches!(command, Command::BlockStatus { .. }) && export.contexts.is_empty() {
            return Err(SubmitError::Unsupported("the meta contexts asked for"));
        }
        if command == Command::Flush {
            return Ok(());
        }
        let size = export.size;
        let inside = offset.checked_add(length).is_some_and(|end| end <= size);
        if length == 0 || !inside {
            return Err(SubmitError::Range { offset, length, size });
        }
        let maximum = match command {
            Command::Read { .. } | Command::Write => u64::from(export.block_size.maximum_payload),
            _ => EFFECT_BYTES_MAX,
        };
        if length > maximum {
            return Err(SubmitError::TooLong { length, maximum });
        }
        let minimum = export.block_size.minimum;
        if (offset | length) & u64::from(minimum - 1) != 0 {
            return Err(SubmitError::Unaligned { offset, length, minimum });
        }
        Ok(())
    }

    /// The request as it is kept in flight and sent: a flush has no place, `DF` only where
    /// it has a meaning.
    fn normalized(mut self, style: ReplyStyle) -> Request {
        match &mut self.command {
            Command::Flush => (self.offset, self.length) = (0, 0),
            Command::Read { unfragmented } if style == ReplyStyle::Simple => *unfragmented = false,
            _ => {}
        }
        self
    }

    /// Its header on the wire.
    pub(super) fn encode(&self, cookie: u64, style: ReplyStyle) -> Packet {
        let Request { command, fua, offset, length } = self.normalized(style);
        let mut flags = CommandFlags::NONE;
        let mut set = |wanted: bool, flag| {
            if wanted {
                flags = flags | flag;
            }
        };
        set(fua, CommandFlags::FUA);
        match command {
            Command::Read { unfragmented } => set(unfragmented, CommandFlags::DF),
            Command::WriteZeroes { no_hole, fast } => {
                set(no_hole, CommandFlags::NO_HOLE);
                set(fast, CommandFlags::FAST_ZERO);
            }
            Command::BlockStatus { one } => set(one, CommandFlags::REQ_ONE),
            Command::Write => {
                set(style == ReplyStyle::Extended, CommandFlags::PAYLOAD_LEN);
            }
            Command::Flush | Command::Trim | Command::Cache => {}
        }
        header(style, flags, command.number(), cookie, offset, length)
    }
}

/// The message that ends a session in transmission.
pub(super) fn disconnect(style: ReplyStyle) -> Packet {
    header(style, CommandFlags::NONE, command::DISC, 0, 0, 0)
}

fn header(
    style: ReplyStyle,
    flags: CommandFlags,
    command: u16,
    cookie: u64,
    offset: u64,
    length: u64,
) -> Packet {
    match style {
        ReplyStyle::Simple | ReplyStyle::Structured => Packet::of(&CompactRequest {
            magic: values::MAGIC_REQUEST.into(),
            flags: flags.0.into(),
            command: command.into(),
            cookie: cookie.into(),
            offset: offset.into(),
            // At most EFFECT_BYTES_MAX: `check` has seen to it.
            length: (length as u32).into(),
        }),
        ReplyStyle::Extended => Packet::of(&ExtendedRequest {
            magic: values::MAGIC_REQUEST_EXTENDED.into(),
            flags: flags.0.into(),
            command: command.into(),
            cookie: cookie.into(),
            offset: offset.into(),
            length: length.into(),
        }),
    }
}

/// A request in flight and what has come of its reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) token: u64,
    pub(super) request: Request,
    pub(super) coverage: Coverage,
    pub(super) error: Option<ErrorCode>,
    /// Meta contexts answered for, by their index in the export's list.
    pub(super) contexts: u8,
    busy: bool,
    generation: u32,
}

/// Index of a [`Slot`].
pub(super) type SlotIndex = u32;

/// The table of requests in flight. Allocates once.
///
/// A cookie is the slot's index and the number of times it was used, so that a late or
/// repeated reply is not taken for another request's.
#[derive(Debug)]
pub(super) struct InFlight {
    slots: Vec<Slot>,
    free: Vec<SlotIndex>,
}

impl InFlight {
    pub(super) fn new(capacity: usize) -> InFlight {
        let slot = Slot {
            token: 0,
            request: Request { command: Command::Flush, fua: false, offset: 0, length: 0 },
            coverage: Coverage::EMPTY,
            error: None,
            contexts: 0,
            busy: false,
            generation: 0,
        };
        // At most CLIENT_IN_FLIGHT_MAX.
        let free = (0..capacity as SlotIndex).rev().collect();
        InFlight { slots: alloc::vec![slot; capacity], free }
    }

    /// Takes a slot; its cookie, or `None` if none is free.
    pub(super) fn begin(&mut self, token: u64, request: Request, style: ReplyStyle) -> Option<u64> {
        let index = self.free.pop()?;
        let slot = &mut self.slots[index as usize];
        let generation = slot.generation.wrapping_add(1);
        *slot = Slot {
            token,
            request: request.normalized(style),
            coverage: Coverage::EMPTY,
            error: None,
            contexts: 0,
            busy: true,
            generation,
        };
        Some(u64::from(generation) << 32 | u64::from(index))
    }

    /// The slot of a cookie in flight.
    pub(super) fn find(&self, cookie: u64) -> Option<SlotIndex> {
        let index = cookie as u32;
        let slot = self.slots.get(index as usize)?;
        (slot.busy && u64::from(slot.generation) == cookie >> 32).then_some(index)
    }

    pub(super) fn slot(&mut self, index: SlotIndex) -> &mut Slot {
        &mut self.slots[index as usize]
    }

    /// Frees a slot.
    pub(super) fn end(&mut self, index: SlotIndex) {
        self.slots[index as usize].busy = false;
        self.free.push(index);
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn tokens(&self) -> impl Iterator<Item = u64> {
        self.slots.iter().filter(|slot| slot.busy).map(|slot| slot.token)
    }
}
