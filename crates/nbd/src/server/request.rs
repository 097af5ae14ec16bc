//! Requests, and what makes one invalid.

use alloc::format;
use alloc::string::String;

use super::Export;
use crate::codec::wire::{CompactRequest, ExtendedRequest};
use crate::codec::{CommandFlags, ErrorCode, ReplyStyle, TransmissionFlags, values::command};

/// What a reply must repeat of its request. Keep it with the I/O; 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    /// The client's name for the request.
    pub cookie: u64,
    /// The request's offset; extended replies carry it.
    pub offset: u64,
}

/// A set of an export's meta contexts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextSet(u8);

impl ContextSet {
    /// No context.
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

    /// Whether the export's context of this index is in the set.
    pub fn contains(self, index: usize) -> bool {
        index < 8 && self.0 & (1 << index) != 0
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many contexts: how many chunks a block status reply has.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The indices, ascending.
    pub fn indices(self) -> impl Iterator<Item = usize> {
        (0..8).filter(move |&index| self.contains(index))
    }
}

/// What a client asks of the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read. With `unfragmented`, in one chunk.
    Read {
        /// `NBD_CMD_FLAG_DF`.
        unfragmented: bool,
    },
    /// Write the payload that follows.
    Write,
    /// Make answered writes durable.
    Flush,
    /// The data is no longer needed.
    Trim,
    /// Bring the data near; may be a no-op.
    Cache,
    /// Write zeros.
    WriteZeroes {
        /// `NBD_CMD_FLAG_NO_HOLE`: keep the extent allocated.
        no_hole: bool,
        /// `NBD_CMD_FLAG_FAST_ZERO`: answer `ENOTSUP` unless faster than a write.
        fast: bool,
    },
    /// Report the status of extents, one chunk per context.
    BlockStatus {
        /// `NBD_CMD_FLAG_REQ_ONE`: one extent per context, not past the request.
        one: bool,
        /// The contexts asked about.
        contexts: ContextSet,
    },
}

/// A valid request: within the export, aligned, and of a kind the export supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub command: Command,
    /// Durable before it is answered. Only writes, zero-writes and trims need to care.
    pub fua: bool,
    /// First byte. Zero for a flush.
    pub offset: u64,
    /// Bytes; zero for a flush. At most the maximum payload for reads and writes, at most
    /// the export's size otherwise.
    pub length: u64,
    /// The client's name for the request.
    pub cookie: u64,
}

impl Request {
    /// What its replies must repeat.
    pub fn reply_to(&self) -> ReplyTo {
        ReplyTo { cookie: self.cookie, offset: self.offset }
    }

    /// Bytes of payload that follow it on the connection.
    pub fn payload_length(&self) -> u64 {
        if self.command == Command::Write { self.length } else { 0 }
    }
}

/// A request as it stands on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawRequest {
    pub(super) flags: CommandFlags,
    pub(super) command: u16,
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) length: u64,
    /// Bytes on the connection after the header.
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

    /// Whether it is a block status request whose payload names contexts.
    pub(super) fn names_contexts(&self) -> bool {
        self.command == command::BLOCK_STATUS && self.payload > 0
    }
}

/// What is to be done with a request.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Perform it.
    Perform(Request),
    /// It asks for nothing: answer success.
    Nothing,
    /// Answer this error.
    Refuse(ErrorCode, String),
}

/// The rules a connection's requests are held to.
pub(super) struct Rules<'a> {
    pub(super) export: &'a Export,
    /// Flags as announced to this client.
    pub(super) announced: TransmissionFlags,
    pub(super) style: ReplyStyle,
    pub(super) contexts: ContextSet,
}

impl Rules<'_> {
    /// Judges a request: range, flags, negotiated features, size, read-only, alignment, in
    /// this order, as nbdkit does.
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
        // A power of two, so one mask covers both fields.
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
