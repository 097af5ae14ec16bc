//! The leg's I/Os, cut into NBD requests.

use std::collections::VecDeque;

use hemi_engine::format::stamp::Progress;
use hemi_engine::format::{BLOCK_BYTES, Id, Stamp};
use hemi_engine::identifiers::IoId;
use hemi_engine::io::{LegError, LegOperation};
use hemi_nbd::client::{Command, ExportInfo, Request};
use hemi_nbd::codec::{ErrorCode, TransmissionFlags};
use hemi_units::Instant;
use rustix::io::Errno;

use super::identity::Identity;
use super::stamps::Stamps;
use crate::leg::file::zeros;
use crate::leg::{LegContext, ResolvedIo};
use crate::memory::Span;
use crate::slots::{SlotId, SlotTable};

/// I/Os and requests that the tables hold before they grow, above the engine's default window.
const TABLE_CAPACITY: usize = 256;
/// Maximum number of bytes of one write-zeroes request.
const ZERO_BYTES_MAX: u64 = 1 << 30;
/// Longest read requested in one piece, in bytes. Every server must grant it.
const UNFRAGMENTED_BYTES_MAX: u64 = 64 << 10;

/// The features of the export that matter here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Features {
    maximum_payload: u64,
    fua: bool,
    zeroes: bool,
    fast_zero: bool,
    unfragmented: bool,
}

impl Features {
    pub(super) fn of(export: &ExportInfo, block: u32) -> Features {
        let has = |flag| export.flags.contains(flag);
        let block = u64::from(block);
        let maximum = u64::from(export.block_size.maximum_payload);
        Features {
            maximum_payload: (maximum / block * block).max(block),
            fua: has(TransmissionFlags::SEND_FUA),
            zeroes: has(TransmissionFlags::SEND_WRITE_ZEROES),
            fast_zero: has(TransmissionFlags::SEND_FAST_ZERO),
            unfragmented: has(TransmissionFlags::SEND_DF),
        }
    }
}

/// The kind of request an I/O is making.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Read,
    Write,
    /// Write-zeroes that fails if it would be slow. A server that can tell refuses it, and the
    /// zeros are then made by another step.
    FastZero,
    Zero,
    /// Zeros written as data.
    ZeroData,
    Flush,
}

/// An I/O in flight.
#[derive(Debug)]
struct Operation {
    /// The engine's identifier. `None` for the leg's own write of a stamp.
    id: Option<IoId>,
    io: ResolvedIo,
    step: Step,
    /// Bytes requested in this step.
    issued: u64,
    /// Requests not yet answered.
    open: u32,
    /// The time at which the last of them was sent or answered.
    moved: Instant,
    /// The number of these that can still change the export.
    landing: u32,
    /// The link its requests went to, or zero before the first.
    link: u64,
    error: Option<LegError>,
    /// The server's error, if that is the reason. NBD has Linux's numbers.
    errno: Option<Errno>,
    /// The step to begin anew with, once the open requests are answered.
    again: Option<Step>,
    queued: bool,
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
struct Part {
    operation: SlotId,
    /// Offset in bytes from the beginning of the I/O.
    at: u64,
    lands: bool,
}

/// A request to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct NextRequest {
    operation: SlotId,
    pub(super) token: u64,
    pub(super) request: Request,
    pub(super) payload: Option<Span>,
}

/// The I/Os of the leg.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) features: Features,
    operations: SlotTable<Operation>,
    parts: SlotTable<Part>,
    /// I/Os with requests still to be sent, in order.
    queue: VecDeque<SlotId>,
    zeros: Span,
    stamps: Stamps,
}

impl Work {
    /// Creates an empty table. `writer` is a random name for the stamps.
    pub(super) fn new(features: Features, writer: Id) -> std::io::Result<Work> {
        Ok(Work {
            stamps: Stamps::new(writer, TABLE_CAPACITY)?,
            features,
            operations: SlotTable::with_capacity(TABLE_CAPACITY),
            parts: SlotTable::with_capacity(TABLE_CAPACITY),
            queue: VecDeque::with_capacity(TABLE_CAPACITY),
            zeros: zeros()?,
        })
    }

    /// Takes an I/O.
    pub(super) fn begin(&mut self, io: ResolvedIo) {
        let step = match io.operation {
            LegOperation::Read => Step::Read,
            LegOperation::Write { .. } | LegOperation::WriteMetadata => Step::Write,
            LegOperation::WriteZeroes { .. } if !self.features.zeroes => Step::ZeroData,
            LegOperation::WriteZeroes { .. } if self.features.fast_zero => Step::FastZero,
            LegOperation::WriteZeroes { .. } => Step::Zero,
            LegOperation::Flush => Step::Flush,
        };
        self.insert(Some(io.id), io, step);
    }

    /// Queues an I/O.
    fn insert(&mut self, id: Option<IoId>, io: ResolvedIo, step: Step) -> SlotId {
        let operation = self.operations.insert(Operation {
            id,
            io,
            step,
            issued: 0,
            open: 0,
            moved: Instant(0),
            landing: 0,
            link: 0,
            error: None,
            errno: None,
            again: None,
            queued: true,
        });
        self.queue.push_back(operation);
        operation
    }

    /// Begins to write stamps after the leg has been read. `volume` is the leg's, or `None` if
    /// it has no superblock.
    pub(super) fn identified(
        &mut self,
        cx: &mut LegContext<'_>,
        volume: Option<Id>,
        found: Option<Stamp>,
    ) {
        if self.stamps.is_unknown() {
            self.stamps.begin(volume, found);
            cx.progress(self.stamps.progress());
        }
        while volume.is_none()
            && let Some(id) = self.stamps.take_waiting()
        {
            self.end(cx, id, Ok(()));
        }
    }

    /// Returns the newest stamp known to be on the leg.
    pub(super) fn progress(&self) -> Progress {
        self.stamps.progress()
    }

    /// Begins to write a stamp if one is due.
    fn stamp(&mut self, link: u64) {
        let Some(next) = self.stamps.next(link) else { return };
        let io = ResolvedIo {
            id: IoId(0),
            operation: LegOperation::WriteMetadata,
            offset: next.offset,
            length: BLOCK_BYTES as u64,
            data: Some(next.data),
        };
        let operation = self.insert(None, io, Step::Write);
        self.stamps.written_by(next.stamp, operation);
    }

    /// Returns the next request to send, if any. It counts as sent from here on, and
    /// [`Work::unsend`] takes it back.
    pub(super) fn next(&mut self, link: u64, now: Instant) -> Option<NextRequest> {
        self.stamp(link);
        loop {
            let id = *self.queue.front()?;
            let request = self.operations.get_mut(id).and_then(|operation| {
                let next = operation.next(&self.features, self.zeros);
                operation.queued = next.is_some();
                next
            });
            let Some((request, payload, at)) = request else {
                self.queue.pop_front();
                continue;
            };
            let lands = matches!(request.command, Command::Write | Command::WriteZeroes { .. });
            let part = self.parts.insert(Part { operation: id, at, lands });
            if let Some(operation) = self.operations.get_mut(id) {
                operation.issued += request.length.max(1);
                operation.open += 1;
                operation.moved = now;
                operation.landing += u32::from(lands);
                operation.link = link;
            }
            return Some(NextRequest { operation: id, token: part.to_bits(), request, payload });
        }
    }

    /// Takes back a request that could not be sent. With an error the I/O fails. Without one it
    /// is tried again later.
    pub(super) fn unsend(
        &mut self,
        cx: &mut LegContext<'_>,
        next: &NextRequest,
        error: Option<LegError>,
    ) {
        self.parts.remove(SlotId::from_bits(next.token));
        let Some(operation) = self.operations.get_mut(next.operation) else { return };
        operation.issued -= next.request.length.max(1);
        operation.open -= 1;
        if matches!(next.request.command, Command::Write | Command::WriteZeroes { .. }) {
            operation.landing -= 1;
        }
        if let Some(error) = error {
            operation.error.get_or_insert(error);
            self.conclude(cx, next.operation);
        }
    }

    /// Returns true if an I/O of this link has had no answer since `since`.
    pub(super) fn is_stuck(&self, link: u64, since: Instant) -> bool {
        let stuck = |operation: &Operation| {
            operation.link == link && operation.open > 0 && operation.moved < since
        };
        self.operations.iter().any(|(_, operation)| stuck(operation))
    }

    /// Returns the memory for data of a read.
    pub(super) fn room(&self, token: u64, at: u32, length: u32) -> Option<Span> {
        let part = self.parts.get(SlotId::from_bits(token))?;
        let data = self.operations.get(part.operation)?.io.data?;
        Some(data.slice(part.at as usize + at as usize, length as usize))
    }

    /// Handles the answer to a request. Returns the leg's new identity if it answered the write
    /// of a superblock.
    pub(super) fn answered(
        &mut self,
        cx: &mut LegContext<'_>,
        token: u64,
        result: Result<(), ErrorCode>,
    ) -> Option<Identity> {
        let part = self.parts.remove(SlotId::from_bits(token))?;
        let operation = self.operations.get_mut(part.operation)?;
        operation.open -= 1;
        operation.moved = cx.now;
        operation.landing -= u32::from(part.lands);
        match (result, operation.step) {
            (Ok(()), _) => {}
            // It would not be faster than writing, so zeros are made by any means.
            (Err(ErrorCode::NotSupported), Step::FastZero) => {
                self.features.fast_zero = false;
                operation.again = Some(Step::Zero);
            }
            (Err(ErrorCode::NotSupported), Step::Zero) => {
                self.features.zeroes = false;
                operation.again = Some(Step::ZeroData);
            }
            (Err(code), _) => {
                if operation.error.is_none() {
                    operation.error = Some(leg_error(code));
                    operation.errno = Some(Errno::from_raw_os_error(code.to_wire() as i32));
                }
            }
        }
        self.conclude(cx, part.operation)
    }

    /// Ends an I/O or begins its next step if nothing of this step is left.
    fn conclude(&mut self, cx: &mut LegContext<'_>, id: SlotId) -> Option<Identity> {
        let operation = self.operations.get_mut(id)?;
        let ended = operation.error.is_some() || operation.again.is_some();
        if operation.open > 0 || (!ended && operation.issued < operation.bytes()) {
            return None;
        }
        if let Some(error) = operation.error {
            self.end(cx, id, Err(error));
            return None;
        }
        let next = match operation.again.take() {
            Some(step) => Some(step),
            None => operation.needs_flush(&self.features).then_some(Step::Flush),
        };
        if let Some(step) = next {
            operation.step = step;
            operation.issued = 0;
            if !operation.queued {
                operation.queued = true;
                self.queue.push_back(id);
            }
            return None;
        }
        let io = operation.io;
        let is_own = operation.id.is_none();
        let lasts = operation.is_durable() || operation.step == Step::Flush;
        if is_own || !lasts || !self.stamps.cover(id) {
            self.end(cx, id, Ok(()));
        }
        match (io.operation, io.data) {
            (LegOperation::WriteMetadata, Some(data)) => Identity::written(io.offset, data),
            _ => None,
        }
    }

    /// Ends an I/O. The end of a stamp's write also ends the I/Os that the stamp covers.
    fn end(&mut self, cx: &mut LegContext<'_>, id: SlotId, result: Result<(), LegError>) {
        let errno = self.operations.get(id).and_then(|operation| operation.errno);
        self.end_by(cx, id, result, errno.filter(|_| result.is_err()));
    }

    fn end_by(
        &mut self,
        cx: &mut LegContext<'_>,
        id: SlotId,
        result: Result<(), LegError>,
        errno: Option<Errno>,
    ) {
        let Some(operation) = self.operations.remove(id) else { return };
        if let Some(io) = operation.id {
            return cx.ended(io, result, errno);
        }
        if self.stamps.ended(id, result.is_ok()) {
            cx.progress(self.stamps.progress());
            while let Some(covered) = self.stamps.take_covered() {
                self.end_by(cx, covered, result, errno);
            }
        }
    }

    /// Sends no more requests. An I/O that was not wholly requested ends as gone, once the
    /// requests already sent for it are answered.
    pub(super) fn stop(&mut self, cx: &mut LegContext<'_>) {
        while let Some(id) = self.queue.pop_front() {
            if let Some(operation) = self.operations.get_mut(id) {
                operation.queued = false;
                operation.error.get_or_insert(LegError::Gone);
            }
            self.conclude(cx, id);
        }
        while let Some(id) = self.stamps.take_waiting() {
            self.end(cx, id, Err(LegError::Gone));
        }
    }

    /// Handles the loss of the session. I/Os that were never sent end now. No answers will come
    /// for the others.
    pub(super) fn lose(&mut self, cx: &mut LegContext<'_>, link: u64) {
        self.queue.clear();
        self.stamps.lose();
        self.end_where(cx, |operation| operation.link == 0);
        self.parts.retain(|part| {
            self.operations.get(part.operation).is_some_and(|operation| operation.link != link)
        });
    }

    /// Ends the I/Os of this link that cannot change the export. The link has no entry left, so
    /// none of its reads writes to memory any more. Returns true if others are left.
    pub(super) fn release(&mut self, cx: &mut LegContext<'_>, link: u64) -> bool {
        self.end_where(cx, |operation| operation.link == link && operation.landing == 0);
        self.operations.iter().any(|(_, operation)| operation.link == link)
    }

    /// Ends the remaining I/Os of this link, because none can land any more.
    pub(super) fn fence(&mut self, cx: &mut LegContext<'_>, link: u64) {
        self.end_where(cx, |operation| operation.link == link);
    }

    fn end_where(&mut self, cx: &mut LegContext<'_>, which: impl Fn(&Operation) -> bool) {
        self.operations.retain(|operation| {
            let ends = which(operation);
            if let (true, Some(id)) = (ends, operation.id) {
                cx.done(id, Err(LegError::Gone));
            }
            !ends
        });
    }

    /// Returns true if no I/O is in flight.
    pub(super) fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }
}

impl Operation {
    /// Returns the number of bytes of this step. A flush counts as one.
    fn bytes(&self) -> u64 {
        if self.step == Step::Flush { 1 } else { self.io.length }
    }

    /// Returns the next request of this step, its payload and its offset in the I/O.
    fn next(&self, features: &Features, zeros: Span) -> Option<(Request, Option<Span>, u64)> {
        let rest = self.bytes().saturating_sub(self.issued);
        if rest == 0 || self.error.is_some() || self.again.is_some() {
            return None;
        }
        let at = self.issued;
        let fua = features.fua && self.is_durable();
        let transfer = rest.min(features.maximum_payload);
        let (command, length, fua, payload) = match self.step {
            Step::Read => {
                let unfragmented = features.unfragmented && transfer <= UNFRAGMENTED_BYTES_MAX;
                (Command::Read { unfragmented }, transfer, false, None)
            }
            Step::Write => {
                let data = self.io.data?.slice(at as usize, transfer as usize);
                (Command::Write, transfer, fua, Some(data))
            }
            Step::ZeroData => {
                let length = transfer.min(zeros.length() as u64);
                (Command::Write, length, fua, Some(zeros.slice(0, length as usize)))
            }
            Step::FastZero | Step::Zero => {
                let may_unmap =
                    matches!(self.io.operation, LegOperation::WriteZeroes { may_unmap: true, .. });
                let fast = self.step == Step::FastZero;
                let command = Command::WriteZeroes { no_hole: !may_unmap, fast };
                (command, rest.min(ZERO_BYTES_MAX), fua, None)
            }
            Step::Flush => (Command::Flush, 0, false, None),
        };
        let offset = if self.step == Step::Flush { 0 } else { self.io.offset + at };
        Some((Request { command, fua, offset, length }, payload, at))
    }

    fn is_durable(&self) -> bool {
        matches!(
            self.io.operation,
            LegOperation::Write { fua: true }
                | LegOperation::WriteZeroes { fua: true, .. }
                | LegOperation::WriteMetadata
        )
    }

    /// Returns true if durability needs a flush of its own after this step.
    fn needs_flush(&self, features: &Features) -> bool {
        self.is_durable() && !features.fua && self.step != Step::Flush
    }
}

/// Maps a server's error to the engine's kinds.
fn leg_error(code: ErrorCode) -> LegError {
    match code {
        ErrorCode::Io => LegError::Media,
        ErrorCode::NoSpace => LegError::NoSpace,
        ErrorCode::Shutdown => LegError::Gone,
        _ => LegError::Other,
    }
}
