//! Requests of a virtual machine's disk (vhost-user-blk): from the guest's queues to the engine and back.
//!
//! The disk is one more client of the volume, like the block device. A kick completes an entry
//! in the ring. Requests are then taken while there is space and the turn lasts. The answers of
//! a turn become visible to the guest together, with one call for each queue. If the guest or
//! its front end breaks a rule, only its connection ends. An unanswered request stays in the
//! front end's inflight region, so a stop need not refuse any.

mod queue;

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use hemi_engine::identifiers::BufferAt;
use hemi_engine::io::{Operation, Reply, RequestError};
use hemi_units::SECTOR_BYTES;
use rustix::io::Errno;

use super::block::{BlockClient, BlockRequest, Blocked, Turn};
use super::connection::Next;
use super::device::DEVICE;
use super::request::Requests;
use super::{ExportContext, release};
use crate::messages::{ReactorError, ReplyTo};
use crate::record::Answered;
use crate::vhost::{
    Asked, Broken, Disk, GuestMemory, GuestOrder, QUEUES_MAX, STATUS_ERROR, STATUS_OK,
};
use hemi_io::memory::{Mapping, Span};
use hemi_io::ring::{Completion, Source, Tag};
use hemi_io::slots::{GENERATION_BITS, SlotId, SlotTable};
use queue::{PartEnd, Queue};

/// The bit of a token that marks a request of a guest.
const TOKEN: u64 = 1 << 62;
/// Lowest bit of the guest's number in a token. The bits below identify the part.
const GUEST_SHIFT: u32 = 48;
/// Kinds of ring entries of a queue.
const KICK: u32 = 0;
const CALL: u32 = 1;
const KIND_BITS: u32 = 1;
/// Maximum number of parts of requests that a guest has in flight in all its queues. The engine
/// has space for others.
const IN_FLIGHT_MAX: usize = 1024;

/// The objects for the ring that all queues of a guest share.
pub(super) struct Signals {
    guest: u16,
    memory: Mapping,
}

impl Signals {
    /// Returns the memory with the value that a call writes.
    fn one(&self) -> Span {
        self.memory.span(0, 8)
    }

    fn tag_of(&self, slot: u32, generation: u32) -> Tag {
        Tag { source: Source::Guest, owner: self.guest, id: SlotId { slot, generation } }
    }
}

/// A connected front end.
struct Connected {
    stream: UnixStream,
    disk: Disk,
    memory: Arc<GuestMemory>,
}

/// A part of a request that the engine works on.
#[derive(Clone, Copy, Debug)]
struct Part {
    block: BlockRequest,
    queue: u16,
    generation: u32,
    head: u16,
    /// Its first byte in the request's payload.
    at: u64,
}

/// A reason to stop processing a queue.
enum Left {
    /// The queue is empty.
    Empty,
    /// The turn is over.
    Turn,
    /// There is no space.
    Room,
    /// The guest has its maximum of parts in flight.
    Full,
    Broken(Broken),
}

impl From<Broken> for Left {
    fn from(broken: Broken) -> Left {
        Left::Broken(broken)
    }
}

/// A disk of a virtual machine, connected or not.
pub(super) struct Guest {
    place: SlotId,
    client: BlockClient,
    connected: Option<Connected>,
    queues: Vec<Option<Queue>>,
    parts: SlotTable<Part>,
    signals: Signals,
    /// The number of queues started so far.
    starts: u32,
    /// The queue to process first.
    first: usize,
    /// True while requests wait because the guest has its maximum in flight.
    is_full: bool,
    /// True while it is among those that wait for space or for their next turn.
    queued: bool,
    /// True once no more requests are taken.
    stopped: bool,
    /// The name of a connection that was ended, and the reason, for the log.
    complaint: Option<(String, String)>,
    /// The name of its socket, once a machine has been connected.
    socket: Option<String>,
    /// True if the guest's next flush has to fail, since a write was lost.
    owed_loss: bool,
}

/// Returns the place of a guest among the connections. No connection uses it.
fn place_of(guest: u16) -> SlotId {
    SlotId { slot: DEVICE.slot + 1 + u32::from(guest), generation: 0 }
}

/// Returns the number of the guest with this place, if any.
pub(super) fn at_place(id: SlotId) -> Option<usize> {
    id.slot.checked_sub(DEVICE.slot + 1).map(|guest| guest as usize)
}

/// Returns the number of the guest whose request has this token, if it is a guest's.
pub(super) fn of_token(token: u64) -> Option<usize> {
    let is_guest = token & TOKEN != 0;
    is_guest.then_some(((token & !TOKEN) >> GUEST_SHIFT) as usize)
}

/// Returns a queue if it runs.
fn running(queues: &mut [Option<Queue>], number: u16) -> Option<&mut Queue> {
    queues.get_mut(usize::from(number))?.as_mut()
}

impl Guest {
    /// Creates the disk with this number, not yet connected.
    ///
    /// # Errors
    /// Returns the system's error if there is no memory.
    pub(super) fn new(guest: u16, cx: &mut ExportContext<'_>) -> io::Result<Guest> {
        let place = place_of(guest);
        // This number is below the block device's, and no connection has it.
        let client = BlockClient::new(place, u32::MAX - 1 - u32::from(guest));
        client.open(cx);
        let memory = Mapping::new(8, false)?;
        memory.span(0, 8).copy_from(&1_u64.to_ne_bytes());
        Ok(Guest {
            place,
            client,
            connected: None,
            queues: (0..QUEUES_MAX).map(|_| None).collect(),
            parts: SlotTable::with_capacity(IN_FLIGHT_MAX),
            signals: Signals { guest, memory },
            starts: 0,
            first: 0,
            is_full: false,
            queued: false,
            stopped: false,
            complaint: None,
            socket: None,
            owed_loss: false,
        })
    }

    /// Returns its place among the connections.
    pub(super) fn place(&self) -> SlotId {
        self.place
    }

    /// Returns the number by which the engine identifies its stream of requests.
    pub(super) fn connection(&self) -> u32 {
        self.client.connection()
    }

    /// Makes the guest's next flush fail.
    pub(super) fn owe_loss(&mut self) {
        self.owed_loss = true;
    }

    /// Returns the name of its socket if its next flush has to fail.
    pub(super) fn owed_loss(&self) -> Option<&str> {
        self.socket.as_deref().filter(|_| self.owed_loss)
    }

    /// Returns true if a virtual machine is connected.
    pub(super) fn is_connected(&self) -> bool {
        self.connected.is_some()
    }

    /// Carries out an order of the connection's thread and answers it.
    pub(super) fn order(
        &mut self,
        cx: &mut ExportContext<'_>,
        requests: &mut Requests,
        order: GuestOrder,
        reply: ReplyTo<Result<u16, ReactorError>>,
    ) -> Next {
        let Guest { queues, signals, .. } = self;
        match order {
            GuestOrder::Connect { stream, disk } => {
                if self.stopped || self.connected.is_some() {
                    reply(Err(ReactorError::Busy));
                    return Next::Nothing;
                }
                if let Some(at) = requests.guests_owed_loss.iter().position(|it| *it == disk.socket)
                {
                    requests.guests_owed_loss.swap_remove(at);
                    self.owed_loss = true;
                }
                self.socket = Some(disk.socket.clone());
                let memory = Arc::default();
                self.connected = Some(Connected { stream, disk, memory });
            }
            GuestOrder::Disconnect => self.close(cx),
            // The reactor has hung up, so orders that come meanwhile are useless.
            _ if self.connected.is_none() => {
                reply(Err(ReactorError::Ended));
                return Next::Nothing;
            }
            GuestOrder::Memory { memory, places } => {
                if let Some(connected) = &mut self.connected {
                    connected.memory = memory;
                }
                for (queue, places) in places {
                    if let Some(queue) = running(queues, queue) {
                        queue.set_places(places);
                    }
                }
            }
            GuestOrder::Start { queue: number, opened } => {
                self.starts = (self.starts + 1) % (1 << GENERATION_BITS);
                let started = Queue::start(*opened, number, self.starts, cx.ring, signals);
                if let Some(place) = queues.get_mut(usize::from(number))
                    && let Some(before) = place.replace(started)
                {
                    before.close(cx.ring, signals);
                }
            }
            GuestOrder::Call { queue, call } => {
                if let Some(queue) = running(queues, queue) {
                    queue.set_call(call, cx.ring, signals);
                }
            }
            GuestOrder::Enable { queue, enabled } => {
                if let Some(queue) = running(queues, queue) {
                    queue.set_enabled(enabled);
                }
            }
            GuestOrder::Stop { queue } => {
                match running(queues, queue) {
                    Some(queue) => queue.stop(reply),
                    None => reply(Ok(0)),
                }
                return self.look(cx, requests);
            }
        }
        reply(Ok(0));
        self.look(cx, requests)
    }

    /// Processes the queues now, unless it is already waiting for a turn.
    fn look(&mut self, cx: &mut ExportContext<'_>, requests: &mut Requests) -> Next {
        if self.queued { Next::Nothing } else { self.process(cx, requests) }
    }

    /// Handles the end of a queue's entry: a kick of the guest, or a call to it.
    pub(super) fn completion(
        &mut self,
        cx: &mut ExportContext<'_>,
        requests: &mut Requests,
        completion: Completion,
    ) -> Next {
        let SlotId { slot, generation } = completion.tag.id;
        let Guest { queues, signals, .. } = self;
        let number = (slot >> KIND_BITS) as u16;
        let Some(queue) = running(queues, number).filter(|queue| queue.generation == generation)
        else {
            return Next::Nothing;
        };
        if slot & ((1 << KIND_BITS) - 1) == CALL {
            queue.called(cx.ring, signals);
            return Next::Nothing;
        }
        match completion.outcome() {
            Ok(_) if completion.more => {}
            Ok(_) => queue.listen(cx.ring, signals),
            Err(errno) => {
                let reason = match errno {
                    Errno::INVAL => "cannot receive kicks: Linux 5.13 is required".to_owned(),
                    _ => format!("cannot receive kicks: {errno}"),
                };
                self.hang_up(cx, reason);
                return Next::Nothing;
            }
        }
        self.look(cx, requests)
    }

    /// Takes requests from the queues while there is space and the turn lasts.
    pub(super) fn process(&mut self, cx: &mut ExportContext<'_>, requests: &mut Requests) -> Next {
        self.queued = false;
        self.is_full = false;
        let mut turn = Turn::new();
        let count = self.queues.len();
        for step in 0..count {
            let number = (self.first + step) % count;
            if self.stopped || self.queues[number].is_none() {
                continue;
            }
            match self.process_queue(cx, requests, number, &mut turn) {
                Left::Empty => {}
                Left::Turn => {
                    self.first = (number + 1) % count;
                    self.queued = true;
                    return Next::Again;
                }
                Left::Room => {
                    self.first = number;
                    self.queued = true;
                    return Next::Wait;
                }
                Left::Full => {
                    self.first = number;
                    self.is_full = true;
                    return Next::Nothing;
                }
                Left::Broken(broken) => {
                    self.hang_up(cx, broken.to_string());
                    return Next::Nothing;
                }
            }
        }
        Next::Nothing
    }

    fn process_queue(
        &mut self,
        cx: &mut ExportContext<'_>,
        requests: &mut Requests,
        number: usize,
        turn: &mut Turn,
    ) -> Left {
        loop {
            if turn.is_over() {
                return Left::Turn;
            }
            match self.step(cx, requests, number) {
                Ok(copied) => turn.count(copied),
                Err(left) => return left,
            }
        }
    }

    /// Hands a part of a request to the engine, or answers a request. Returns the number of
    /// bytes copied.
    fn step(
        &mut self,
        cx: &mut ExportContext<'_>,
        requests: &mut Requests,
        number: usize,
    ) -> Result<u64, Left> {
        let Guest { client, connected, queues, parts, signals, owed_loss, .. } = self;
        let (Some(connected), Some(queue)) = (connected, &mut queues[number]) else {
            return Err(Left::Empty);
        };
        if parts.len() >= IN_FLIGHT_MAX {
            return Err(Left::Full);
        }
        let memory = &*connected.memory;
        let next = queue.next(memory, &connected.disk, cx.now, !client.has_long())?;
        let head = match next {
            None => return Err(Left::Empty),
            Some(queue::Next::Answer(head, asked)) => {
                let (status, written) = match asked {
                    Asked::Identity { skip } => {
                        let identity = connected.disk.identity();
                        memory.write(queue.segments(head), skip, &identity)?;
                        (STATUS_OK, identity.len() as u32)
                    }
                    Asked::Refused(status) => (status, 0),
                    Asked::Operation { .. } => (STATUS_OK, 0),
                };
                queue.answer(memory, head, status, written)?;
                return Ok(0);
            }
            Some(queue::Next::Request(head)) => head,
        };
        let generation = queue.generation;
        let Some((taken, segments)) = queue.taken(head) else { return Err(Left::Empty) };
        let Some((block, at)) = taken.part() else {
            queue.current = None;
            return Ok(0);
        };
        if block.operation == Operation::Flush && std::mem::take(owed_loss) {
            queue.current = None;
            queue.answer(memory, head, STATUS_ERROR, 0)?;
            return Ok(0);
        }
        let buffer = match client.admit(cx, requests, &block) {
            Ok(buffer) => buffer,
            Err(Blocked::Room) => return Err(Left::Room),
            Err(Blocked::Long) => {
                queue.current = None;
                queue.long.push_back(head);
                return Ok(0);
            }
        };
        let mut copied = 0;
        if let (Operation::Write, Some(buffer)) = (block.operation, buffer) {
            let sectors = block.extent.sectors() as u32;
            let span = cx.engine.buffers().span(BufferAt { buffer, offset: 0 }, sectors);
            if let Err(broken) = memory.copy_in(segments, taken.skip + at, span) {
                client.give_up(cx, requests, &block, Some(buffer));
                return Err(Left::Broken(broken));
            }
            copied = u64::from(sectors) * SECTOR_BYTES;
        }
        taken.submitted();
        if taken.part().is_none() {
            queue.current = None;
        }
        let part = Part { block, queue: number as u16, generation, head, at };
        let name = parts.insert(part).to_bits();
        let token = TOKEN | u64::from(signals.guest) << GUEST_SHIFT | name;
        client.submit(cx, requests, token, &block, buffer);
        Ok(copied)
    }

    /// Handles the engine's answer to a part of a request. Returns the request's entry for a
    /// recording once the request is given back.
    pub(super) fn reply(
        &mut self,
        cx: &mut ExportContext<'_>,
        requests: &mut Requests,
        reply: Reply,
    ) -> Option<Answered> {
        let Some(part) = self.parts.remove(SlotId::from_bits(reply.token)) else {
            tracing::error!(token = reply.token, "the engine answered an unknown request");
            release(cx.engine.buffers_mut(), reply.buffer);
            return None;
        };
        let answered = self.give_back(cx, &part, &reply);
        self.client.ended(cx, requests, &part.block, &reply);
        answered.unwrap_or_else(|broken| {
            self.hang_up(cx, broken.to_string());
            None
        })
    }

    /// Gives a part back to the guest, if it is still connected.
    fn give_back(
        &mut self,
        cx: &ExportContext<'_>,
        part: &Part,
        reply: &Reply,
    ) -> Result<Option<Answered>, Broken> {
        let Guest { connected, queues, .. } = self;
        let queue = running(queues, part.queue).filter(|it| it.generation == part.generation);
        let (Some(connected), Some(queue)) = (connected, queue) else { return Ok(None) };
        let memory = &*connected.memory;
        let mut end = match reply.result {
            Ok(()) => PartEnd::Done,
            Err(RequestError::ShuttingDown) => PartEnd::LeftOver,
            Err(RequestError::Io | RequestError::NoSpace) => PartEnd::Failed,
        };
        if (end, part.block.operation) == (PartEnd::Done, Operation::Read) {
            match (reply.buffer, queue.taken(part.head)) {
                (Some(buffer), Some((taken, segments))) => {
                    let sectors = part.block.extent.sectors() as u32;
                    let span = cx.engine.buffers().span(BufferAt { buffer, offset: 0 }, sectors);
                    memory.copy_out(segments, taken.skip + part.at, span)?;
                }
                _ => end = PartEnd::Failed,
            }
        }
        queue.part_ended(memory, part.head, end)
    }

    /// Makes the answers of this turn visible to the guest, and ends queues that are to stop.
    /// Returns the name of a connection that was ended and the reason, if there was one.
    pub(super) fn finish_turn(&mut self, cx: &mut ExportContext<'_>) -> Option<(String, String)> {
        if self.connected.is_some() {
            let Guest { queues, signals, .. } = self;
            for place in queues {
                let Some(queue) = place else { continue };
                queue.publish(cx.ring, signals);
                if queue.has_stopped()
                    && let Some(queue) = place.take()
                {
                    queue.close(cx.ring, signals);
                }
            }
        }
        self.complaint.take()
    }

    /// Ends the connection because the guest or its front end broke a rule. The connection's
    /// thread does the rest.
    fn hang_up(&mut self, cx: &mut ExportContext<'_>, reason: String) {
        if let Some(connected) = &self.connected {
            let _ = connected.stream.shutdown(Shutdown::Both);
            self.complaint = Some((format!("the machine of {}", connected.disk.name), reason));
        }
        self.close(cx);
    }

    /// Drops a connection. The results of requests in flight are discarded, and their marks
    /// stay in the inflight region.
    fn close(&mut self, cx: &mut ExportContext<'_>) {
        self.connected = None;
        let Guest { queues, signals, .. } = self;
        for queue in queues.iter_mut().filter_map(Option::take) {
            queue.close(cx.ring, signals);
        }
    }

    /// Returns true if requests can continue because another has ended.
    pub(super) fn wants_turn(&self) -> bool {
        if self.queued || self.stopped {
            return false;
        }
        let waits = |queue: &Queue| !queue.long.is_empty();
        let long = !self.client.has_long() && self.queues.iter().flatten().any(waits);
        // One turn serves many requests.
        long || (self.is_full && self.parts.len() <= IN_FLIGHT_MAX / 2)
    }

    /// Records that it has joined those that wait.
    pub(super) fn note_queued(&mut self) {
        self.queued = true;
    }

    /// Returns true if the engine has a request of the guest.
    pub(super) fn is_in_flight(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Takes requests again after [`Guest::stop`]. The caller puts it among those that wait for
    /// a turn.
    pub(super) fn go_on(&mut self) {
        (self.stopped, self.queued) = (false, true);
    }

    /// Takes no more requests. New ones, and those not yet handed to the engine, are left to
    /// the next server.
    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }
}
