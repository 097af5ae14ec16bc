//! Requests, and the table of those in flight.

use alloc::vec::Vec;

use super::ExportInfo;
use super::coverage::Coverage;
use crate::codec::values::command;
use crate::codec::wire::{CompactRequest, ExtendedRequest};
use crate::codec::{CommandFlags, ErrorCode, Packet, ReplyStyle, TransmissionFlags, values};

/// A command for the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Reads data.
    Read {
        /// Asks for one piece if the server can (`NBD_CMD_FLAG_DF`). That spares it the search
        /// for holes, but zeros are then sent. Ignored if the server cannot.
        unfragmented: bool,
    },
    /// Writes the payload that is sent after the header.
    Write,
    /// Makes answered writes durable.
    Flush,
    /// Declares that the data is no longer needed.
    Trim,
    /// Prefetches the data into a cache.
    Cache,
    /// Writes zeros.
    WriteZeroes {
        /// Keeps the extent allocated.
        no_hole: bool,
        /// Fails with `ENOTSUP` unless it is faster than a write.
        fast: bool,
    },
    /// Reports extents.
    BlockStatus {
        /// Asks for one extent per context, which does not reach past the request.
        one: bool,
    },
}

impl Command {
    /// Returns the command's name for messages.
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

    /// Returns the flag an export must have for it.
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
    /// The command.
    pub command: Command,
    /// True if it must be durable before it is answered.
    pub fua: bool,
    /// First byte. Ignored for a flush.
    pub offset: u64,
    /// Length in bytes. Ignored for a flush.
    pub length: u64,
}

/// The reason why a request cannot be submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The handshake has not ended, or the session is ending.
    #[error("the NBD session is not ready for requests")]
    NotReady,
    /// The maximum number of requests is in flight.
    #[error("too many NBD requests in flight")]
    Full,
    /// The server does not offer this command or flag.
    #[error("the NBD server does not offer {0}")]
    Unsupported(&'static str),
    /// The request is empty or reaches past the end of the export.
    #[error("{length} bytes at {offset} are not within the export's {size} bytes")]
    Range {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        length: u64,
        /// Size of the export in bytes.
        size: u64,
    },
    /// The request is too long.
    #[error("{length} bytes are more than the {maximum} one NBD request may have")]
    TooLong {
        /// Length in bytes.
        length: u64,
        /// Maximum length in bytes.
        maximum: u64,
    },
    /// The request is not aligned to the minimum block size.
    #[error(
        "{length} bytes at {offset} are not aligned to the server's minimum block of {minimum}"
    )]
    Unaligned {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        length: u64,
        /// The minimum block size.
        minimum: u32,
    },
}

/// Longest range that a compact request can have in whole blocks of any legal size. It also
/// bounds extended requests, so that callers split requests the same way in every style.
const EFFECT_BYTES_MAX: u64 = (u32::MAX - 0xffff) as u64;

impl Request {
    /// Checks that the export can take it.
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

    /// Returns the request as it is kept in flight and sent. A flush has no range, and `DF` is
    /// set only if it has a meaning.
    fn normalized(mut self, style: ReplyStyle) -> Request {
        match &mut self.command {
            Command::Flush => (self.offset, self.length) = (0, 0),
            Command::Read { unfragmented } if style == ReplyStyle::Simple => *unfragmented = false,
            _ => {}
        }
        self
    }

    /// Returns its header as sent.
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

/// Returns the message that ends a session in transmission.
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
            // It is at most EFFECT_BYTES_MAX, as `check` ensures.
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

/// A request in flight and the state of its reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) token: u64,
    pub(super) request: Request,
    pub(super) coverage: Coverage,
    pub(super) error: Option<ErrorCode>,
    /// Meta contexts already answered, by their index in the export's list.
    pub(super) contexts: u8,
    busy: bool,
    generation: u32,
}

/// Index of a [`Slot`].
pub(super) type SlotIndex = u32;

/// The table of requests in flight. It allocates once.
///
/// A cookie consists of the slot's index and the number of times the slot was used, so that a
/// late or repeated reply does not pass for another request's.
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
        // The capacity is at most CLIENT_IN_FLIGHT_MAX.
        let free = (0..capacity as SlotIndex).rev().collect();
        InFlight { slots: alloc::vec![slot; capacity], free }
    }

    /// Takes a slot. Returns its cookie, or `None` if none is free.
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

    /// Returns the slot of a cookie in flight.
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
