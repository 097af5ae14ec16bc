//! Requests and the checks of their validity.

use alloc::format;
use alloc::string::String;

use super::Export;
use crate::codec::wire::{CompactRequest, ExtendedRequest};
use crate::codec::{CommandFlags, ErrorCode, ReplyStyle, TransmissionFlags, values::command};

/// The fields of a request that its reply must repeat, in 16 bytes. They are kept with the I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    /// The client's identifier of the request.
    pub cookie: u64,
    /// The request's offset, for extended replies.
    pub offset: u64,
}

/// A set of an export's meta contexts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextSet(u8);

impl ContextSet {
    /// The empty set.
    pub const EMPTY: ContextSet = ContextSet(0);

    pub(super) fn of(bits: u8) -> ContextSet {
        ContextSet(bits)
    }

    pub(super) fn bits(self) -> u8 {
        self.0
    }

    pub(super) fn insert(&mut self, index: usize) {
        self.0 |= 1 << index;
    }

    /// Returns true if the export's context of this index is in the set.
    pub fn contains(self, index: usize) -> bool {
        index < 8 && self.0 & (1 << index) != 0
    }

    /// Returns true if the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the number of contexts, which is the number of chunks of a block status reply.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns the indices in ascending order.
    pub fn indices(self) -> impl Iterator<Item = usize> {
        (0..8).filter(move |&index| self.contains(index))
    }
}

/// A command of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Reads data. With `unfragmented`, in one chunk.
    Read {
        /// `NBD_CMD_FLAG_DF`.
        unfragmented: bool,
    },
    /// Writes the payload that follows.
    Write,
    /// Makes answered writes durable.
    Flush,
    /// Declares that the data is no longer needed.
    Trim,
    /// Prefetches the data. It may do nothing.
    Cache,
    /// Writes zeros.
    WriteZeroes {
        /// `NBD_CMD_FLAG_NO_HOLE`: keeps the extent allocated.
        no_hole: bool,
        /// `NBD_CMD_FLAG_FAST_ZERO`: fails with `ENOTSUP` unless it is faster than a write.
        fast: bool,
    },
    /// Reports the status of extents, one chunk per context.
    BlockStatus {
        /// `NBD_CMD_FLAG_REQ_ONE`: one extent per context, which does not reach past the
        /// request.
        one: bool,
        /// The requested contexts.
        contexts: ContextSet,
    },
}

/// A valid request: within the export, aligned, and of a kind the export supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The command.
    pub command: Command,
    /// True if it must be durable before it is answered. Only writes, zero-writes and trims are
    /// affected.
    pub fua: bool,
    /// First byte. Zero for a flush.
    pub offset: u64,
    /// Length in bytes, zero for a flush. At most the maximum payload for reads and writes, and
    /// at most the export's size otherwise.
    pub length: u64,
    /// The client's identifier of the request.
    pub cookie: u64,
}

impl Request {
    /// Returns the fields that its replies must repeat.
    pub fn reply_to(&self) -> ReplyTo {
        ReplyTo { cookie: self.cookie, offset: self.offset }
    }

    /// Returns the number of payload bytes that follow it on the connection.
    pub fn payload_length(&self) -> u64 {
        if self.command == Command::Write { self.length } else { 0 }
    }
}

/// A request as received.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawRequest {
    pub(super) flags: CommandFlags,
    pub(super) command: u16,
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) length: u64,
    /// Number of bytes on the connection after the header.
    pub(super) payload: u64,
}

impl RawRequest {
    pub(super) fn from_compact(wire: &CompactRequest) -> RawRequest {
        let length = u64::from(wire.length.get());
        let command = wire.command.get();
        RawRequest {
            flags: CommandFlags(wire.flags.get()),
            command,
            cookie: wire.cookie.get(),
            offset: wire.offset.get(),
            length,
            payload: if command == command::WRITE { length } else { 0 },
        }
    }

    pub(super) fn from_extended(wire: &ExtendedRequest) -> RawRequest {
        let flags = CommandFlags(wire.flags.get());
        let length = wire.length.get();
        RawRequest {
            flags,
            command: wire.command.get(),
            cookie: wire.cookie.get(),
            offset: wire.offset.get(),
            length,
            payload: if flags.contains(CommandFlags::PAYLOAD_LEN) { length } else { 0 },
        }
    }

    pub(super) fn reply_to(&self) -> ReplyTo {
        ReplyTo { cookie: self.cookie, offset: self.offset }
    }

    /// Returns true if it is a block status request whose payload names contexts.
    pub(super) fn names_contexts(&self) -> bool {
        self.command == command::BLOCK_STATUS && self.payload > 0
    }
}

/// The result of judging a request.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The request is valid and has to be performed.
    Perform(Request),
    /// The request is empty and succeeds.
    Nothing,
    /// The request is refused with this error.
    Refuse(ErrorCode, String),
}

/// The rules for a connection's requests.
pub(super) struct Rules<'a> {
    pub(super) export: &'a Export,
    /// Flags as announced to this client.
    pub(super) announced: TransmissionFlags,
    pub(super) style: ReplyStyle,
    pub(super) contexts: ContextSet,
}

impl Rules<'_> {
    /// Judges a request by its range, flags, negotiated features, size, read-only state and
    /// alignment, in this order, as nbdkit does.
    pub(super) fn judge(&self, raw: &RawRequest) -> Verdict {
        let checks = [
            Self::check_range,
            Self::check_flags,
            Self::check_features,
            Self::check_size,
            Self::check_read_only,
            Self::check_alignment,
        ];
        for check in checks {
            if let Err((code, message)) = check(self, raw) {
                return Verdict::Refuse(code, message);
            }
        }
        self.accept(raw)
    }

    fn accept(&self, raw: &RawRequest) -> Verdict {
        let has = |flag| raw.flags.contains(flag);
        let command = match raw.command {
            command::READ => Command::Read { unfragmented: has(CommandFlags::DF) },
            command::WRITE => Command::Write,
            command::FLUSH => Command::Flush,
            command::TRIM => Command::Trim,
            command::CACHE => Command::Cache,
            command::WRITE_ZEROES => Command::WriteZeroes {
                no_hole: has(CommandFlags::NO_HOLE),
                fast: has(CommandFlags::FAST_ZERO),
            },
            // `check_features` has refused every other command.
            _ => Command::BlockStatus { one: has(CommandFlags::REQ_ONE), contexts: self.contexts },
        };
        if raw.length == 0 && command != Command::Flush {
            return Verdict::Nothing;
        }
        Verdict::Perform(Request {
            command,
            fua: has(CommandFlags::FUA),
            offset: raw.offset,
            length: raw.length,
            cookie: raw.cookie,
        })
    }

    fn check_range(&self, raw: &RawRequest) -> Result<(), (ErrorCode, String)> {
        if raw.command == command::FLUSH {
            if raw.offset != 0 || raw.length != 0 {
                let (offset, length) = (raw.offset, raw.length);
                return Err((
                    ErrorCode::Invalid,
                    format!("flush with offset {offset} and length {length}: both must be 0"),
                ));
            }
            return Ok(());
        }
        let size = self.export.size;
        let inside = raw.offset.checked_add(raw.length).is_some_and(|end| end <= size);
        if inside {
            return Ok(());
        }
        let code = match raw.command {
            command::WRITE | command::WRITE_ZEROES => ErrorCode::NoSpace,
            _ => ErrorCode::Invalid,
        };
        let (name, length, offset) = (command::name(raw.command), raw.length, raw.offset);
        Err((
            code,
            format!(
                "{name} of {length} bytes at offset {offset} ends past the export's {size} bytes"
            ),
        ))
    }

    fn check_flags(&self, raw: &RawRequest) -> Result<(), (ErrorCode, String)> {
        let extended = self.style == ReplyStyle::Extended;
        let mut allowed = CommandFlags::FUA;
        match raw.command {
            command::READ => allowed = allowed | CommandFlags::DF,
            command::WRITE if extended => allowed = allowed | CommandFlags::PAYLOAD_LEN,
            command::WRITE_ZEROES => {
                allowed = allowed | CommandFlags::NO_HOLE | CommandFlags::FAST_ZERO;
            }
            command::BLOCK_STATUS => {
                allowed = allowed | CommandFlags::REQ_ONE;
                if self.announced.contains(TransmissionFlags::BLOCK_STATUS_PAYLOAD) {
                    allowed = allowed | CommandFlags::PAYLOAD_LEN;
                }
            }
            _ => {}
        }
        let name = command::name(raw.command);
        let excess = raw.flags.without(allowed);
        if !excess.is_empty() {
            let bits = excess.0;
            return Err((ErrorCode::Invalid, format!("{name} does not take the flags {bits:#x}")));
        }
        let payload_len = raw.flags.contains(CommandFlags::PAYLOAD_LEN);
        if extended && raw.command == command::WRITE && !payload_len {
            return Err((
                ErrorCode::Invalid,
                format!("{name} with extended headers needs the flag PAYLOAD_LEN"),
            ));
        }
        Ok(())
    }

    fn check_features(&self, raw: &RawRequest) -> Result<(), (ErrorCode, String)> {
        let needed = match raw.command {
            command::READ | command::WRITE => TransmissionFlags::NONE,
            command::FLUSH => TransmissionFlags::SEND_FLUSH,
            command::TRIM => TransmissionFlags::SEND_TRIM,
            command::CACHE => TransmissionFlags::SEND_CACHE,
            command::WRITE_ZEROES => TransmissionFlags::SEND_WRITE_ZEROES,
            command::BLOCK_STATUS if self.contexts.is_empty() => {
                return Err((
                    ErrorCode::Invalid,
                    "block-status without a meta context: select one in the handshake".into(),
                ));
            }
            command::BLOCK_STATUS => TransmissionFlags::NONE,
            unknown => {
                return Err((ErrorCode::Invalid, format!("unknown command {unknown}")));
            }
        };
        let flags = [
            (CommandFlags::FUA, TransmissionFlags::SEND_FUA, "FUA"),
            (CommandFlags::DF, TransmissionFlags::SEND_DF, "DF"),
            (CommandFlags::FAST_ZERO, TransmissionFlags::SEND_FAST_ZERO, "FAST_ZERO"),
        ];
        let name = command::name(raw.command);
        if !self.announced.contains(needed) {
            return Err((ErrorCode::Invalid, format!("this export does not offer {name}")));
        }
        for (flag, feature, flag_name) in flags {
            if raw.flags.contains(flag) && !self.announced.contains(feature) {
                return Err((
                    ErrorCode::Invalid,
                    format!("{name} with {flag_name}, which this export does not offer"),
                ));
            }
        }
        Ok(())
    }

    fn check_size(&self, raw: &RawRequest) -> Result<(), (ErrorCode, String)> {
        let maximum = u64::from(self.export.block_size.maximum_payload);
        let carries_payload = matches!(raw.command, command::READ | command::WRITE);
        let (name, length) = (command::name(raw.command), raw.length);
        if carries_payload && length > maximum {
            let code = match (raw.command, self.style) {
                (command::READ, ReplyStyle::Structured | ReplyStyle::Extended) => {
                    ErrorCode::Overflow
                }
                _ => ErrorCode::Invalid,
            };
            return Err((
                code,
                format!("{name} of {length} bytes is longer than the maximum payload {maximum}"),
            ));
        }
        if raw.command == command::BLOCK_STATUS && length == 0 {
            return Err((ErrorCode::Invalid, "block-status of 0 bytes".into()));
        }
        Ok(())
    }

    fn check_read_only(&self, raw: &RawRequest) -> Result<(), (ErrorCode, String)> {
        let writes = matches!(raw.command, command::WRITE | command::TRIM | command::WRITE_ZEROES);
        if writes && self.announced.contains(TransmissionFlags::READ_ONLY) {
            let name = command::name(raw.command);
            return Err((ErrorCode::NotPermitted, format!("{name} on a read-only export")));
        }
        Ok(())
    }

    fn check_alignment(&self, raw: &RawRequest) -> Result<(), (ErrorCode, String)> {
        let minimum = u64::from(self.export.block_size.minimum);
        // It is a power of two, so one mask covers both fields.
        if (raw.offset | raw.length) & (minimum - 1) == 0 {
            return Ok(());
        }
        let (name, length, offset) = (command::name(raw.command), raw.length, raw.offset);
        Err((
            ErrorCode::Invalid,
            format!(
                "{name} of {length} bytes at offset {offset} is not aligned to the minimum block \
                 size {minimum}"
            ),
        ))
    }
}
