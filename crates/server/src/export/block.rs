//! Clients that send whole requests: the block device and virtual machines' disks.
//!
//! Their requests come from queues of a fixed depth, with payload in memory that somebody else
//! owns. Admission, quota, long requests and the end of a request are the same for all of them
//! and are handled here. Each client itself takes its requests from their source and copies the
//! payload.

use hemi_engine::identifiers::BufferId;
use hemi_engine::io::{Buffers as _, Operation, Reply, Request};
use hemi_units::{Extent, Instant, SECTOR_BYTES};

use super::ExportContext;
use super::request::{LONG_BYTES, Requests};
use super::{REQUESTS_PER_TURN, release};
use crate::record::Answered;
use hemi_io::slots::SlotId;

/// Maximum payload copied from one such client in a turn, in bytes: about 2 ms of the reactor's
/// time.
pub(super) const TURN_BYTES_MAX: u64 = 8 << 20;

/// A request, or the part of one that has a buffer of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockRequest {
    pub(super) operation: Operation,
    /// Its place in the volume. Meaningless for a flush.
    pub(super) extent: Extent,
    pub(super) fua: bool,
    pub(super) arrived: Instant,
}

impl BlockRequest {
    /// Returns true if it has payload.
    pub(super) fn has_payload(&self) -> bool {
        matches!(self.operation, Operation::Read | Operation::Write)
    }

    /// Returns true if it is long. A client has at most one long request in flight.
    fn is_long(&self) -> bool {
        !self.has_payload()
            && self.operation != Operation::Flush
            && self.extent.bytes() > LONG_BYTES
    }

    /// Returns its entry for a recording.
    pub(super) fn answered(&self, failed: bool) -> Answered {
        Answered {
            arrived: self.arrived,
            kind: match self.operation {
                Operation::Read => hemi_capture::Kind::Read,
                Operation::Write => hemi_capture::Kind::Write,
                Operation::Flush => hemi_capture::Kind::Flush,
                Operation::Discard => hemi_capture::Kind::Trim,
                Operation::WriteZeroes { .. } => hemi_capture::Kind::WriteZeroes,
            },
            offset: self.extent.start * SECTOR_BYTES,
            bytes: self.extent.bytes(),
            fua: self.fua,
            failed,
        }
    }
}

/// A reason to keep a request from the engine for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocked {
    /// There is no space in the engine or the buffers.
    Room,
    /// Another long request is in flight.
    Long,
}

/// A client's share of the volume.
#[derive(Debug)]
pub(super) struct BlockClient {
    /// A place among the connections that no connection uses.
    place: SlotId,
    /// The number by which the engine identifies its stream of requests. No connection has the
    /// same.
    connection: u32,
    has_long: bool,
}

impl BlockClient {
    pub(super) fn new(place: SlotId, connection: u32) -> BlockClient {
        BlockClient { place, connection, has_long: false }
    }

    /// Returns the number by which the engine identifies its stream of requests.
    pub(super) fn connection(&self) -> u32 {
        self.connection
    }

    /// Returns true while a long request of the client is in flight.
    pub(super) fn has_long(&self) -> bool {
        self.has_long
    }

    /// Tells the engine that the client's requests begin.
    pub(super) fn open(&self, cx: &mut ExportContext<'_>) {
        cx.engine.connection_opened(self.connection);
    }

    /// Reserves space for a request and returns the buffer of its payload, if it has any. The
    /// caller submits the request or gives it up.
    pub(super) fn admit(
        &mut self,
        cx: &mut ExportContext<'_>,
        requests: &mut Requests,
        request: &BlockRequest,
    ) -> Result<Option<BufferId>, Blocked> {
        if !cx.engine.has_room() {
            return Err(Blocked::Room);
        }
        if request.is_long() && self.has_long {
            return Err(Blocked::Long);
        }
        if !request.has_payload() {
            return Ok(None);
        }
        let length = request.extent.bytes();
        if !requests.quota.charge(self.place, length) {
            return Err(Blocked::Room);
        }
        let buffer = cx.engine.buffers_mut().allocate(request.extent.sectors() as u32);
        if buffer.is_none() {
            requests.quota.discharge(self.place, length);
            return Err(Blocked::Room);
        }
        Ok(buffer)
    }

    /// Gives back the space that [`BlockClient::admit`] reserved, because a write's payload
    /// could not be taken.
    pub(super) fn give_up(
        &mut self,
        cx: &mut ExportContext<'_>,
        requests: &mut Requests,
        request: &BlockRequest,
        buffer: Option<BufferId>,
    ) {
        release(cx.engine.buffers_mut(), buffer);
        requests.quota.discharge(self.place, request.extent.bytes());
    }

    /// Hands an admitted request to the engine.
    pub(super) fn submit(
        &mut self,
        cx: &mut ExportContext<'_>,
        requests: &mut Requests,
        token: u64,
        request: &BlockRequest,
        buffer: Option<BufferId>,
    ) {
        self.has_long |= request.is_long();
        let BlockRequest { operation, extent, fua, .. } = *request;
        requests.submitted += 1;
        let connection = self.connection;
        cx.engine.submit(cx.now, Request { token, operation, extent, buffer, fua, connection });
    }

    /// Handles the end of a request and frees its space. A read's payload has already been
    /// taken out of the reply's buffer.
    pub(super) fn ended(
        &mut self,
        cx: &mut ExportContext<'_>,
        requests: &mut Requests,
        request: &BlockRequest,
        reply: &Reply,
    ) {
        release(cx.engine.buffers_mut(), reply.buffer);
        if request.has_payload() {
            requests.quota.discharge(self.place, request.extent.bytes());
        }
        self.has_long &= !request.is_long();
    }
}

/// The number of requests and bytes that may still be taken from a client in its turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    requests: u32,
    bytes: u64,
}

impl Turn {
    pub(super) fn new() -> Turn {
        Turn { requests: REQUESTS_PER_TURN, bytes: TURN_BYTES_MAX }
    }

    /// Returns true if it is over.
    pub(super) fn is_over(&self) -> bool {
        self.requests == 0 || self.bytes == 0
    }

    /// Counts a request and the `copied` bytes of its payload.
    pub(super) fn count(&mut self, copied: u64) {
        self.requests = self.requests.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(copied);
    }
}
