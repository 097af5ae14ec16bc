//! Admits valid NBD requests to the engine: space, buffers, parts.

use hemi_engine::io::{Buffers, Operation, RequestError};
use hemi_nbd::codec::{ErrorCode, ReplyStyle};
use hemi_nbd::server::{Command, ContextSet, Request, StatusExtent};
use hemi_units::{Extent, SECTOR_BYTES};

use super::ExportContext;
use super::connection::{Blocked, Connection, Step};
use super::input::{Filling, Intake};
use super::listener::{CONTEXT_ALLOCATION, CONTEXT_COPIES};
use super::output::Answer;
use super::request::{ClientRequest, Held, Kind, LONG_BYTES, Part, Requests};
use hemi_io::slots::SlotId;

/// Maximum number of extents in one block status answer. The client asks again for the rest.
const STATUS_EXTENTS_MAX: usize = 1024;
/// Number of regions examined in one turn of the event loop for the block status answers of all
/// clients, so that they take less than 0.1 ms of it.
pub(super) const STATUS_STEPS_MAX: usize = 256;

impl Connection {
    /// Admits a request, or returns the reason for which it has to wait.
    pub(super) fn admit(
        &mut self,
        cx: &mut ExportContext<'_>,
        requests: &mut Requests,
        request: Request,
    ) -> Step {
        let payload = matches!(request.command, Command::Read { .. } | Command::Write);
        let weight = if payload { request.length } else { 0 };
        let is_range = matches!(request.command, Command::Trim | Command::WriteZeroes { .. });
        let full = self.in_flight >= self.in_flight_max
            || (self.has_long && is_range && request.length > LONG_BYTES)
            || (self.in_flight > 0 && self.in_flight_bytes + weight > self.in_flight_bytes_max);
        if full {
            return Step::Blocked(Blocked::Own);
        }
        if !cx.engine.has_room() {
            return Step::Blocked(Blocked::Room);
        }
        let intake = match request.command {
            Command::Read { .. } => {
                if !requests.quota.charge(self.id, request.length) {
                    return Step::Blocked(Blocked::Room);
                }
                let read = ClientRequest::new(self.id, Kind::Read, &request, cx.now);
                Intake::Reading { request: requests.insert(read), next: 0 }
            }
            Command::Write => {
                let write = ClientRequest::new(self.id, Kind::Write, &request, cx.now);
                Intake::Writing { request: requests.insert(write), next: 0, part: None }
            }
            Command::Flush if std::mem::take(&mut self.owed_loss) => {
                let why = "data written earlier was lost before it became durable";
                self.refuse(&request, ErrorCode::Io, why);
                self.input.intake = Intake::Idle;
                return Step::Go;
            }
            Command::Flush => self.plain(cx, requests, &request, Operation::Flush),
            Command::Trim => self.plain(cx, requests, &request, Operation::Discard),
            Command::WriteZeroes { fast: true, .. } if !requests.fast_zeroes => {
                let why = "a leg has to write the zeros out, which is no faster than a write";
                self.refuse(&request, ErrorCode::NotSupported, why);
                self.input.intake = Intake::Idle;
                return Step::Go;
            }
            Command::WriteZeroes { no_hole, .. } => {
                let operation = Operation::WriteZeroes { may_unmap: !no_hole };
                self.plain(cx, requests, &request, operation)
            }
            Command::Cache => {
                // The volume has no cache of its own to read the data into.
                let packet = self.session.style().success(request.reply_to());
                self.output.push(Answer { packet, held: Held::Nothing, length: 0, weight: 0 });
                Intake::Idle
            }
            Command::BlockStatus { one, contexts } => {
                if requests.status_steps == 0 {
                    return Step::Blocked(Blocked::Turn);
                }
                self.block_status(cx, requests, &request, one, contexts);
                self.input.intake = Intake::Idle;
                return Step::Go;
            }
        };
        self.in_flight += 1;
        self.in_flight_bytes += weight;
        self.input.intake = intake;
        Step::Go
    }

    /// Submits a request without payload.
    fn plain(
        &mut self,
        cx: &mut ExportContext<'_>,
        requests: &mut Requests,
        request: &Request,
        operation: Operation,
    ) -> Intake {
        let plain = ClientRequest::new(self.id, Kind::Plain, request, cx.now);
        self.has_long |= plain.is_long();
        let id = requests.insert(plain);
        let part = Part { at: 0, length: request.length, buffer: None, last: true };
        requests.submit(cx, id, operation, part, self.number);
        Intake::Idle
    }

    /// Submits a read's parts from `next` on.
    pub(super) fn read_parts(
        &mut self,
        cx: &mut ExportContext<'_>,
        requests: &mut Requests,
        id: SlotId,
        next: u64,
    ) -> Step {
        let Some(&request) = requests.get(id) else {
            self.input.intake = Intake::Idle;
            return Step::Go;
        };
        let length = request.part_length(next);
        let buffer = cx
            .engine
            .has_room()
            .then(|| cx.engine.buffers_mut().allocate((length / SECTOR_BYTES) as u32))
            .flatten();
        if buffer.is_none() {
            return Step::Blocked(Blocked::Room);
        }
        let last = next + length == request.length;
        let part = Part { at: next, length, buffer, last };
        requests.submit(cx, id, Operation::Read, part, self.number);
        self.input.intake =
            if last { Intake::Idle } else { Intake::Reading { request: id, next: next + length } };
        Step::Go
    }

    /// Fills and submits a write's parts from `next` on.
    pub(super) fn write_parts(
        &mut self,
        cx: &mut ExportContext<'_>,
        requests: &mut Requests,
        id: SlotId,
        next: u64,
        part: Option<Filling>,
    ) -> Step {
        let Some(&request) = requests.get(id) else {
            self.input.intake = Intake::Idle;
            return Step::Go;
        };
        let Some(mut part) = part else {
            let length = request.part_length(next);
            if !requests.quota.charge(self.id, length) {
                return Step::Blocked(Blocked::Room);
            }
            let Some(buffer) = cx.engine.buffers_mut().allocate((length / SECTOR_BYTES) as u32)
            else {
                requests.quota.discharge(self.id, length);
                return Step::Blocked(Blocked::Room);
            };
            let part = Some(Filling { buffer, length, filled: 0 });
            self.input.intake = Intake::Writing { request: id, next, part };
            return Step::Go;
        };
        if part.filled < part.length {
            let filled = self.input.fill(cx, &mut part);
            self.input.intake = Intake::Writing { request: id, next, part: Some(part) };
            return if filled == 0 { Step::Empty } else { Step::Go };
        }
        if !cx.engine.has_room() {
            return Step::Blocked(Blocked::Room);
        }
        let Filling { buffer, length, .. } = part;
        self.session.payload_taken(length);
        let last = next + length == request.length;
        let part = Part { at: next, length, buffer: Some(buffer), last };
        requests.submit(cx, id, Operation::Write, part, self.number);
        self.input.intake = if last {
            Intake::Idle
        } else {
            Intake::Writing { request: id, next: next + length, part: None }
        };
        Step::Go
    }

    /// Answers with the extents that are allocated, or with the number of legs that hold them.
    fn block_status(
        &mut self,
        cx: &mut ExportContext<'_>,
        requests: &mut Requests,
        request: &Request,
        one: bool,
        contexts: ContextSet,
    ) {
        let style = self.session.style();
        let to = request.reply_to();
        let most = if one { 1 } else { STATUS_EXTENTS_MAX };
        let mut left = contexts.len();
        let mut extents = Vec::new();
        for context in contexts.indices() {
            left -= 1;
            extents.clear();
            match context {
                CONTEXT_COPIES => {
                    copies(cx, request, most, &mut requests.status_steps, &mut extents);
                }
                // Legs may have holes, but it would cost too much to ask every leg each time.
                // "Allocated" is always a true answer.
                _ => {
                    debug_assert_eq!(context, CONTEXT_ALLOCATION);
                    extents.push(StatusExtent { length: request.length, status: 0 });
                }
            }
            style.block_status(to, context, &extents, left == 0, self.output.text());
        }
        if style == ReplyStyle::Simple {
            // The session admits no such request without structured replies. This is only to be
            // safe.
            self.refuse(request, ErrorCode::Invalid, "block status needs structured replies");
        }
    }
}

/// Fills `extents` with the number of legs that hold each extent of the request, or of a part
/// from its beginning if it is long. Uses up `steps`, of which there is at least one.
fn copies(
    cx: &ExportContext<'_>,
    request: &Request,
    most: usize,
    steps: &mut usize,
    extents: &mut Vec<StatusExtent>,
) {
    let end = (request.offset + request.length) / SECTOR_BYTES;
    let mut start = request.offset / SECTOR_BYTES;
    while start < end && *steps > 0 {
        *steps -= 1;
        let (uniform, legs) = cx.engine.copies(Extent { start, end });
        let status = u64::from(legs.count_ones());
        // The engine's answer is never empty. If it were, this loop would end all the same.
        let length = uniform.bytes();
        let count = extents.len();
        match extents.last_mut() {
            Some(last) if last.status == status => last.length += length,
            _ if count == most => return,
            _ => extents.push(StatusExtent { length, status }),
        }
        start = uniform.end;
    }
}

/// Translates an engine's error into the client's terms.
pub(super) fn explain(request: &ClientRequest, error: RequestError) -> (ErrorCode, String) {
    let what = match request.kind {
        Kind::Read => format!("read of {} bytes at {}", request.length, request.offset),
        Kind::Write => format!("write of {} bytes at {}", request.length, request.offset),
        Kind::Plain => format!("request at {}", request.offset),
    };
    match error {
        RequestError::Io => (ErrorCode::Io, format!("{what} failed: no leg could do it")),
        RequestError::NoSpace => (ErrorCode::NoSpace, format!("{what}: a leg is full")),
        RequestError::ShuttingDown => {
            (ErrorCode::Shutdown, format!("{what}: the volume is closing"))
        }
    }
}
