//! Requests of a block device (ublk): from the kernel's tags to the engine and back.
//!
//! The device is one more client of the volume. It shares the buffers with the connections by
//! the same quota and waits in the same queue for space. Every tag has a command in the ring
//! that ends when a request comes. The request is answered with the command that asks for the
//! next one. A request that is never answered goes to the next server, so a stop need not
//! refuse any.

use std::collections::VecDeque;
use std::io;

use hemi_engine::identifiers::{BufferAt, BufferId};
use hemi_engine::io::{Operation, Reply, RequestError};
use hemi_units::Instant;
use rustix::io::Errno;

use super::block::{BlockClient, BlockRequest, Blocked, Turn};
use super::connection::Next;
use super::request::Requests;
use super::{ExportContext, release};
use crate::device::{COMMIT_AND_FETCH, FETCH, OpenDevice, io_command};
use crate::messages::{ReactorError, ReplyTo};
use crate::record::Answered;
use hemi_io::ring::{Completion, OWNERS_MAX, Ring, RingFile, Source, Tag};
use hemi_io::slots::SlotId;

/// The device's place among the connections, which none of them uses.
pub(super) const DEVICE: SlotId = SlotId { slot: OWNERS_MAX as u32, generation: 0 };
/// The number by which the engine identifies the device's stream of requests. No connection has
/// it.
pub(super) const CONNECTION: u32 = u32::MAX;
/// The bit of a token that marks a request of the device.
const TOKEN: u64 = 1 << 63;
/// The state of a tag.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Its command is in the ring.
    Fetching,
    /// Its request waits for space, or is held for the next server.
    Waiting(Instant),
    /// The engine has its request.
    InFlight(BlockRequest),
    /// The device has been stopped.
    Ended,
}

/// The device's queue.
pub(super) struct Device {
    opened: OpenDevice,
    file: RingFile,
    client: BlockClient,
    tags: Vec<State>,
    /// Requests not yet handed to the engine, in order.
    pending: VecDeque<u16>,
    /// Requests that wait for another long one to end.
    long: VecDeque<u16>,
    /// True while the queue is among those that wait for space or for their next turn.
    queued: bool,
    /// True once no more requests are taken.
    stopped: bool,
    /// Callbacks of those who wait for the device's end.
    ending: Vec<ReplyTo<Result<(), ReactorError>>>,
}

impl Device {
    /// Creates the device and begins to fetch requests. None comes before [`Device::map`].
    pub(super) fn new(opened: OpenDevice, cx: &mut ExportContext<'_>) -> Device {
        let file = RingFile::of(opened.file());
        let depth = opened.depth();
        let client = BlockClient::new(DEVICE, CONNECTION);
        client.open(cx);
        for tag in 0..depth {
            cx.ring.command(file, FETCH, io_command(tag, 0), ring_tag(tag));
        }
        cx.ring.submit();
        Device {
            opened,
            file,
            client,
            tags: vec![State::Fetching; usize::from(depth)],
            pending: VecDeque::with_capacity(usize::from(depth)),
            long: VecDeque::with_capacity(usize::from(depth)),
            queued: false,
            stopped: false,
            ending: Vec::new(),
        }
    }

    /// Maps the requests. The device must not be started before.
    ///
    /// # Errors
    /// Returns the system's error. The device then ends when its fetches do.
    pub(super) fn map(&mut self) -> io::Result<()> {
        self.opened.map()
    }

    /// Returns the path of the block device.
    pub(super) fn path(&self) -> &str {
        self.opened.path()
    }

    /// Handles the end of a tag's command: a request has come, or the device has been stopped.
    pub(super) fn completion(
        &mut self,
        cx: &mut ExportContext<'_>,
        requests: &mut Requests,
        completion: Completion,
    ) -> Next {
        let tag = completion.tag.id.slot as u16;
        let Some(state) = self.tags.get_mut(usize::from(tag)) else { return Next::Nothing };
        match completion.outcome() {
            Ok(_) => {
                *state = State::Waiting(cx.now);
                self.pending.push_back(tag);
                if self.queued { Next::Nothing } else { self.process(cx, requests) }
            }
            Err(errno) => {
                if errno != Errno::NODEV {
                    tracing::error!(path = self.path(), tag, %errno, "the block device takes no more requests");
                }
                self.tags[usize::from(tag)] = State::Ended;
                Next::Nothing
            }
        }
    }

    /// Hands waiting requests to the engine while there is space and the turn lasts.
    pub(super) fn process(&mut self, cx: &mut ExportContext<'_>, requests: &mut Requests) -> Next {
        self.queued = false;
        let mut turn = Turn::new();
        while !self.stopped {
            let long = self.long.front().filter(|_| !self.client.has_long()).copied();
            let Some(tag) = long.or_else(|| self.pending.front().copied()) else { break };
            if turn.is_over() {
                self.queued = true;
                return Next::Again;
            }
            match self.admit(cx, requests, tag) {
                Ok(copied) => turn.count(copied),
                Err(Blocked::Room) => {
                    self.queued = true;
                    return Next::Wait;
                }
                Err(Blocked::Long) => {
                    turn.count(0);
                    self.long.push_back(tag);
                }
            }
            let _ = if long.is_some() { self.long.pop_front() } else { self.pending.pop_front() };
        }
        Next::Nothing
    }

    /// Hands a request to the engine. Returns the bytes that were copied.
    fn admit(
        &mut self,
        cx: &mut ExportContext<'_>,
        requests: &mut Requests,
        tag: u16,
    ) -> Result<u64, Blocked> {
        let Some((operation, descriptor)) = self.opened.request(tag) else {
            self.commit(cx.ring, tag, -Errno::OPNOTSUPP.raw_os_error());
            return Ok(0);
        };
        if operation == Operation::Flush && std::mem::take(&mut requests.device_owed_loss) {
            self.commit(cx.ring, tag, -Errno::IO.raw_os_error());
            return Ok(0);
        }
        let arrived = match self.tags[usize::from(tag)] {
            State::Waiting(arrived) => arrived,
            _ => cx.now,
        };
        let fua = descriptor.is_fua() && operation != Operation::Read;
        let request = BlockRequest { operation, extent: descriptor.extent(), fua, arrived };
        let buffer = self.client.admit(cx, requests, &request)?;
        if let (Operation::Write, Some(buffer)) = (operation, buffer)
            && let Err(error) = self.take_payload(cx, tag, buffer, descriptor.sectors)
        {
            tracing::warn!(path = self.path(), %error, "a write's payload could not be taken");
            self.client.give_up(cx, requests, &request, Some(buffer));
            self.commit(cx.ring, tag, -Errno::IO.raw_os_error());
            return Ok(0);
        }
        self.tags[usize::from(tag)] = State::InFlight(request);
        self.client.submit(cx, requests, TOKEN | u64::from(tag), &request, buffer);
        Ok(if operation == Operation::Write { request.extent.bytes() } else { 0 })
    }

    fn take_payload(
        &self,
        cx: &ExportContext<'_>,
        tag: u16,
        buffer: BufferId,
        sectors: u32,
    ) -> std::io::Result<()> {
        let span = cx.engine.buffers().span(BufferAt { buffer, offset: 0 }, sectors);
        self.opened.copy_in(tag, span)
    }

    /// Handles the engine's answer to a request of the device. Returns its entry for a
    /// recording, or `None` if the next server answers it.
    pub(super) fn reply(
        &mut self,
        cx: &mut ExportContext<'_>,
        requests: &mut Requests,
        reply: Reply,
    ) -> Option<Answered> {
        let tag = (reply.token & !TOKEN) as u16;
        let Some(State::InFlight(request)) = self.tags.get(usize::from(tag)).copied() else {
            tracing::error!(token = reply.token, "the engine answered an unknown request");
            release(cx.engine.buffers_mut(), reply.buffer);
            return None;
        };
        let length = request.extent.bytes();
        let result = match (reply.result, request.operation, reply.buffer) {
            (Ok(()), Operation::Read, Some(buffer)) => self.give_payload(cx, tag, buffer, &request),
            (Ok(()), Operation::Read, None) => Err(Errno::IO),
            (Ok(()), Operation::Write, _) => Ok(length as i32),
            (Ok(()), ..) => Ok(0),
            (Err(RequestError::Io), ..) => Err(Errno::IO),
            (Err(RequestError::NoSpace), ..) => Err(Errno::NOSPC),
            // The next server gets the request.
            (Err(RequestError::ShuttingDown), ..) => Err(Errno::AGAIN),
        };
        self.client.ended(cx, requests, &request, &reply);
        match result {
            Ok(bytes) => self.commit(cx.ring, tag, bytes),
            Err(Errno::AGAIN) => {
                self.tags[usize::from(tag)] = State::Waiting(request.arrived);
                return None;
            }
            Err(errno) => self.commit(cx.ring, tag, -errno.raw_os_error()),
        }
        Some(request.answered(result.is_err()))
    }

    fn give_payload(
        &self,
        cx: &ExportContext<'_>,
        tag: u16,
        buffer: BufferId,
        request: &BlockRequest,
    ) -> Result<i32, Errno> {
        let sectors = request.extent.sectors() as u32;
        let span = cx.engine.buffers().span(BufferAt { buffer, offset: 0 }, sectors);
        match self.opened.copy_out(tag, span) {
            Ok(()) => Ok(span.length() as i32),
            Err(error) => {
                tracing::warn!(path = self.path(), %error, "a read's payload could not be given");
                Err(Errno::IO)
            }
        }
    }

    /// Answers a tag's request and asks for the next.
    fn commit(&mut self, ring: &mut Ring, tag: u16, result: i32) {
        self.tags[usize::from(tag)] = State::Fetching;
        ring.command(self.file, COMMIT_AND_FETCH, io_command(tag, result), ring_tag(tag));
    }

    /// Returns true if a long request can continue because another has ended.
    pub(super) fn wants_turn(&self) -> bool {
        !self.queued && !self.stopped && !self.client.has_long() && !self.long.is_empty()
    }

    /// Records that the queue is among those that wait.
    pub(super) fn note_queued(&mut self) {
        self.queued = true;
    }

    /// Takes no more requests. New ones, and those not yet handed to the engine, are left to
    /// the next server.
    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }

    /// Takes requests again after [`Device::stop`]. Returns true if the device has to join
    /// those that wait.
    pub(super) fn go_on(&mut self) -> bool {
        self.stopped = false;
        let queue = !self.queued;
        self.queued = true;
        queue
    }

    /// Returns true if the engine works on a request of the device.
    pub(super) fn is_in_flight(&self) -> bool {
        self.tags.iter().any(|state| matches!(state, State::InFlight(_)))
    }

    /// Calls `reply` once the device has ended.
    pub(super) fn await_end(&mut self, reply: ReplyTo<Result<(), ReactorError>>) {
        self.ending.push(reply);
    }

    /// Returns true if every tag has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.tags.iter().all(|state| matches!(state, State::Ended))
    }

    /// Releases the character device.
    pub(super) fn dissolve(self, ring: &mut Ring) {
        let Device { opened, file, ending, .. } = self;
        ring.remove_file(file, opened.into_file());
        for reply in ending {
            reply(Ok(()));
        }
    }
}

/// Returns true if a token is of a request of the device.
pub(super) fn is_device(token: u64) -> bool {
    token & TOKEN != 0
}

fn ring_tag(tag: u16) -> Tag {
    let id = SlotId { slot: u32::from(tag), generation: 0 };
    Tag { source: Source::Device, owner: 0, id }
}
