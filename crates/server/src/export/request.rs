//! Client requests in flight, and the buffers they hold.
//!
//! A large request goes to the engine in parts of [`PART_BYTES`]. So it needs no large
//! contiguous buffer, and a client that sends slowly holds at most one part.

use hemi_engine::identifiers::BufferId;
use hemi_engine::io::{Buffers, Operation, Reply, Request, RequestError};
use hemi_nbd::server::{Command, ReplyTo};
use hemi_units::{Extent, Instant, SECTOR_BYTES};

use super::quota::Quota;
use super::{ExportContext, REQUEST_BYTES_MAX, release};
use crate::record::Answered;
use hemi_io::arena::Arena;
use hemi_io::slots::{SlotId, SlotTable};

/// Largest part of a request, in bytes.
pub(super) const PART_BYTES: u64 = 1 << 20;
/// Length in bytes above which a request without payload is long. The engine splits it into
/// many operations, which other clients' requests wait behind.
pub(super) const LONG_BYTES: u64 = 1 << 20;
/// Maximum number of parts of a request.
pub(super) const PARTS_MAX: usize = (REQUEST_BYTES_MAX / PART_BYTES) as usize;
/// Requests the table holds before it grows.
const TABLE_CAPACITY: usize = 1024;
/// Lowest bit of a part's number in a token. The bits below identify the request.
const PART_SHIFT: u32 = 48;

/// The kind of answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    /// A request without payload (flush, trim, write-zeroes).
    Plain,
}

/// The buffers of a request's parts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Held {
    Nothing,
    One(BufferId),
    /// A list in [`Requests::lists`].
    List(u32),
}

/// A request that the engine works on.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientRequest {
    pub(super) connection: SlotId,
    pub(super) kind: Kind,
    pub(super) to: ReplyTo,
    /// First byte in the volume.
    pub(super) offset: u64,
    /// Payload in bytes, zero for [`Kind::Plain`].
    pub(super) length: u64,
    /// Length of the request in bytes, with or without payload.
    pub(super) extent_bytes: u64,
    /// Its kind in a recording.
    pub(super) recorded: hemi_capture::Kind,
    /// The time it was admitted.
    pub(super) arrived: Instant,
    pub(super) fua: bool,
    pub(super) held: Held,
    pub(super) error: Option<RequestError>,
    /// Number of parts that the engine has not answered.
    left: u32,
    /// True once every part has been submitted.
    complete: bool,
}

impl ClientRequest {
    pub(super) fn new(
        connection: SlotId,
        kind: Kind,
        request: &hemi_nbd::server::Request,
        arrived: Instant,
    ) -> Self {
        ClientRequest {
            connection,
            kind,
            to: request.reply_to(),
            offset: request.offset,
            length: if kind == Kind::Plain { 0 } else { request.length },
            extent_bytes: request.length,
            recorded: recorded(request.command),
            arrived,
            fua: request.fua,
            held: Held::Nothing,
            error: None,
            left: 0,
            complete: false,
        }
    }

    /// Returns the client's request for a handover. A read that has been begun is read again
    /// from its beginning.
    pub(super) fn as_asked(&self) -> hemi_nbd::server::Request {
        hemi_nbd::server::Request {
            command: match self.kind {
                Kind::Write => Command::Write,
                Kind::Read | Kind::Plain => Command::Read { unfragmented: false },
            },
            fua: self.fua,
            offset: self.offset,
            length: self.length,
            cookie: self.to.cookie,
        }
    }

    /// Returns its entry for a recording.
    pub(super) fn as_recorded(&self) -> Answered {
        Answered {
            arrived: self.arrived,
            kind: self.recorded,
            offset: self.offset,
            bytes: self.extent_bytes,
            fua: self.fua,
            failed: self.error.is_some(),
        }
    }

    /// Returns true if the request is long. A connection has at most one of those in flight.
    pub(super) fn is_long(&self) -> bool {
        self.kind == Kind::Plain && self.extent_bytes > LONG_BYTES
    }

    /// Returns the length in bytes of the part that begins at byte `at`.
    pub(super) fn part_length(&self, at: u64) -> u64 {
        (self.length - at).min(PART_BYTES)
    }
}

/// Returns the kind in a recording of a command that reaches the engine.
fn recorded(command: Command) -> hemi_capture::Kind {
    match command {
        Command::Write => hemi_capture::Kind::Write,
        Command::Trim => hemi_capture::Kind::Trim,
        Command::WriteZeroes { .. } => hemi_capture::Kind::WriteZeroes,
        Command::Flush => hemi_capture::Kind::Flush,
        Command::Read { .. } | Command::Cache | Command::BlockStatus { .. } => {
            hemi_capture::Kind::Read
        }
    }
}

type List = [Option<BufferId>; PARTS_MAX];

/// All requests of all connections.
#[derive(Debug)]
pub(super) struct Requests {
    table: SlotTable<ClientRequest>,
    lists: Vec<List>,
    lists_free: Vec<u32>,
    pub(super) quota: Quota,
    /// Number of regions that block status answers may still examine in this turn.
    pub(super) status_steps: usize,
    /// True if every leg can zero ranges without writing them.
    pub(super) fast_zeroes: bool,
    /// Number of parts handed to the engine since the start.
    pub(super) submitted: u64,
    /// Number of parts that the engine works on.
    pub(super) in_engine: u32,
    /// True while no request is begun and nothing is received.
    pub(super) paused: bool,
    /// True while nothing is sent.
    pub(super) sends_stopped: bool,
    /// True if the block device's next flush has to fail, since a write to it was lost.
    pub(super) device_owed_loss: bool,
    /// The sockets of virtual machines' disks that lost a write. The loss is reported once a
    /// machine is connected.
    pub(super) guests_owed_loss: Vec<String>,
}

impl Requests {
    pub(super) fn new(budget: u64) -> Requests {
        Requests {
            table: SlotTable::with_capacity(TABLE_CAPACITY),
            lists: Vec::new(),
            lists_free: Vec::new(),
            quota: Quota::new(budget),
            status_steps: 0,
            fast_zeroes: false,
            submitted: 0,
            in_engine: 0,
            paused: false,
            sends_stopped: false,
            device_owed_loss: false,
            guests_owed_loss: Vec::new(),
        }
    }

    pub(super) fn insert(&mut self, mut request: ClientRequest) -> SlotId {
        if request.kind == Kind::Read && request.length > PART_BYTES {
            request.held = Held::List(self.take_list());
        }
        self.table.insert(request)
    }

    pub(super) fn get(&self, id: SlotId) -> Option<&ClientRequest> {
        self.table.get(id)
    }

    fn take_list(&mut self) -> u32 {
        self.lists_free.pop().unwrap_or_else(|| {
            self.lists.push([None; PARTS_MAX]);
            self.lists.len() as u32 - 1
        })
    }

    /// Hands a part to the engine: `length` bytes from byte `at` of the request. `last` means
    /// that no part follows.
    pub(super) fn submit(
        &mut self,
        cx: &mut ExportContext<'_>,
        id: SlotId,
        operation: Operation,
        part: Part,
        connection: u32,
    ) {
        let Some(request) = self.table.get_mut(id) else {
            release(cx.engine.buffers_mut(), part.buffer);
            return;
        };
        request.left += 1;
        request.complete |= part.last;
        self.submitted += 1;
        self.in_engine += 1;
        let start = (request.offset + part.at) / SECTOR_BYTES;
        let token = ((part.at / PART_BYTES) << PART_SHIFT) | id.to_bits();
        let now: Instant = cx.now;
        let request = Request {
            token: if request.length == 0 { id.to_bits() } else { token },
            operation,
            extent: Extent::new(start, part.length / SECTOR_BYTES),
            buffer: part.buffer,
            fua: request.fua,
            connection,
        };
        cx.engine.submit(now, request);
    }

    /// Handles an answer of the engine. Returns the request if that was its last part.
    pub(super) fn reply(&mut self, arena: &mut Arena, reply: Reply) -> Option<ClientRequest> {
        let id = SlotId::from_bits(reply.token);
        let part = (reply.token >> PART_SHIFT) as usize;
        let Some(request) = self.table.get_mut(id) else {
            tracing::error!(token = reply.token, "the engine answered an unknown request");
            release(arena, reply.buffer);
            return None;
        };
        self.in_engine -= 1;
        request.left -= 1;
        let mut paid = 0;
        match (request.kind, reply.result) {
            (Kind::Read, Ok(())) => match (&mut request.held, reply.buffer) {
                (Held::List(list), Some(buffer)) => {
                    self.lists[*list as usize][part] = Some(buffer);
                }
                (held, Some(buffer)) => *held = Held::One(buffer),
                (_, None) => request.error = Some(RequestError::Io),
            },
            (Kind::Write, _) => paid = request.part_length(part as u64 * PART_BYTES),
            _ => release(arena, reply.buffer),
        }
        if let Err(error) = reply.result {
            request.error.get_or_insert(error);
        }
        let (connection, done) = (request.connection, request.complete && request.left == 0);
        self.quota.discharge(connection, paid);
        if done { self.table.remove(id) } else { None }
    }

    /// Abandons a half-submitted request whose client is gone.
    pub(super) fn abandon(&mut self, arena: &mut Arena, id: SlotId) {
        let Some(request) = self.table.get_mut(id) else { return };
        request.complete = true;
        if request.left == 0
            && let Some(request) = self.table.remove(id)
        {
            self.forget(arena, request);
        }
    }

    /// Drops a finished request that nobody waits for.
    pub(super) fn forget(&mut self, arena: &mut Arena, request: ClientRequest) {
        self.drop_held(arena, request.held);
        if request.kind == Kind::Read {
            self.quota.discharge(request.connection, request.length);
        }
    }

    /// Returns the buffer of a part of a request.
    pub(super) fn buffer(&self, held: Held, part: usize) -> Option<BufferId> {
        match held {
            Held::Nothing => None,
            Held::One(buffer) => (part == 0).then_some(buffer),
            Held::List(list) => self.lists[list as usize][part],
        }
    }

    pub(super) fn drop_held(&mut self, arena: &mut Arena, held: Held) {
        match held {
            Held::Nothing => {}
            Held::One(buffer) => arena.release(buffer),
            Held::List(list) => {
                for buffer in self.lists[list as usize].iter_mut() {
                    release(arena, buffer.take());
                }
                self.lists_free.push(list);
            }
        }
    }
}

/// A part of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// Offset in bytes within the request.
    pub(super) at: u64,
    /// Length in bytes. For requests without payload, that of the whole request.
    pub(super) length: u64,
    pub(super) buffer: Option<BufferId>,
    pub(super) last: bool,
}
