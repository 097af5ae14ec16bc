//! One running queue of a virtual machine's disk: its requests in flight, its kicks and its calls.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use hemi_engine::io::Operation;
use hemi_units::{Extent, Instant, SECTOR_BYTES};

use super::{KICK, Signals};
use crate::export::block::BlockRequest;
use crate::export::request::PART_BYTES;
use crate::messages::{ReactorError, ReplyTo};
use crate::record::Answered;
use crate::vhost::{
    self, Asked, Broken, Disk, GuestMemory, InflightQueue, OpenQueue, QueuePlaces, Segment,
    SplitQueue,
};
use hemi_io::ring::{Ring, RingFile, Tag};

/// A request that was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) block: BlockRequest,
    /// Bytes of the segments before its payload.
    pub(super) skip: u64,
    /// Bytes of its payload or range already handed to the engine.
    next: u64,
    /// Number of parts that the engine works on.
    left: u32,
    failed: bool,
    /// True if the request is left to the next server.
    left_over: bool,
}

impl Taken {
    /// Returns its next part and the part's first byte, or `None` if the engine has had all of
    /// it.
    pub(super) fn part(&self) -> Option<(BlockRequest, u64)> {
        let length = self.block.extent.bytes();
        if !self.block.has_payload() {
            return (self.next == 0).then_some((self.block, 0));
        }
        let bytes = (length - self.next).min(PART_BYTES);
        let start = self.block.extent.start + self.next / SECTOR_BYTES;
        let extent = Extent::new(start, bytes / SECTOR_BYTES);
        (bytes > 0).then_some((BlockRequest { extent, ..self.block }, self.next))
    }

    /// Records that the engine has the next part.
    pub(super) fn submitted(&mut self) {
        self.left += 1;
        self.next += match self.block.has_payload() {
            true => (self.block.extent.bytes() - self.next).min(PART_BYTES),
            false => 1,
        };
    }
}

/// The state of a descriptor at which a chain can begin.
#[derive(Debug)]
struct Slot {
    /// Its request, if it is in flight.
    taken: Option<Taken>,
    /// The chain of that request.
    segments: Vec<Segment>,
}

/// A running queue.
pub(super) struct Queue {
    number: u16,
    /// Distinguishes it from queues of the same number that ran before.
    pub(super) generation: u32,
    queue: SplitQueue,
    inflight: Option<InflightQueue>,
    slots: Vec<Slot>,
    /// The number of requests in flight.
    taken: u16,
    /// The requests of a previous server that have not been processed yet, in order.
    again: VecDeque<u16>,
    /// The request whose parts are being handed to the engine.
    pub(super) current: Option<u16>,
    /// The requests that wait for another long one to end.
    pub(super) long: VecDeque<u16>,
    enabled: bool,
    /// A callback that receives the next entry once all requests are given back. While it is
    /// set, no request is taken.
    stopping: Option<ReplyTo<Result<u16, ReactorError>>>,
    kick: OwnedFd,
    kick_file: RingFile,
    call: Option<(OwnedFd, RingFile)>,
    /// True while a call is in the ring (`calling`), and true if another is to follow it
    /// (`calls_again`).
    calling: bool,
    calls_again: bool,
}

impl Queue {
    /// Starts the queue and listens for kicks.
    pub(super) fn start(
        opened: OpenQueue,
        number: u16,
        generation: u32,
        ring: &mut Ring,
        signals: &Signals,
    ) -> Queue {
        let OpenQueue { queue, inflight, again, slots, kick, call, enabled } = opened;
        let kick_file = RingFile::of(&kick);
        ring.watch_readable(kick_file, signals.tag(number, KICK, generation));
        let call = call.map(|call| {
            let file = RingFile::of(&call);
            (call, file)
        });
        let slots = slots.into_iter().map(|segments| Slot { taken: None, segments }).collect();
        let long = VecDeque::with_capacity(usize::from(queue.size()));
        let mut started = Queue {
            number,
            generation,
            queue,
            inflight,
            slots,
            taken: again.len() as u16,
            again: again.into(),
            current: None,
            long,
            enabled,
            stopping: None,
            kick,
            kick_file,
            call,
            calling: false,
            calls_again: false,
        };
        // The previous server may have given requests back without a call.
        started.call(ring, signals);
        started
    }

    /// Closes the queue. Requests in flight continue and are given back to nobody.
    pub(super) fn close(mut self, ring: &mut Ring, signals: &Signals) {
        ring.cancel(signals.tag(self.number, KICK, self.generation));
        self.silence(ring, signals);
        ring.remove_file(self.kick_file, self.kick);
        if let Some(reply) = self.stopping {
            reply(Ok(self.queue.next_available()));
        }
    }

    /// Removes the call.
    fn silence(&mut self, ring: &mut Ring, signals: &Signals) {
        if let Some((call, file)) = self.call.take() {
            if self.calling {
                ring.cancel(signals.tag(self.number, super::CALL, self.generation));
            }
            ring.remove_file(file, call);
        }
    }

    pub(super) fn set_places(&mut self, places: QueuePlaces) {
        self.queue.set_places(places);
    }

    pub(super) fn set_enabled(&mut self, enabled: bool) {
        self.enabled = enabled;
    }

    /// Redirects calls and makes one at the new place, since calls to the old one may have been
    /// lost.
    pub(super) fn set_call(&mut self, call: Option<OwnedFd>, ring: &mut Ring, signals: &Signals) {
        self.silence(ring, signals);
        self.call = call.map(|call| {
            let file = RingFile::of(&call);
            (call, file)
        });
        self.calls_again = self.calling;
        self.call(ring, signals);
    }

    /// Takes no more requests, and calls `reply` when all are given back.
    pub(super) fn stop(&mut self, reply: ReplyTo<Result<u16, ReactorError>>) {
        self.stopping = Some(reply);
    }

    /// Returns true if the queue is to stop and no request is in flight.
    pub(super) fn has_stopped(&self) -> bool {
        self.stopping.is_some() && self.taken == 0 && !self.queue.has_unpublished()
    }

    /// Listens for kicks again after the kernel has stopped polling.
    pub(super) fn listen(&self, ring: &mut Ring, signals: &Signals) {
        ring.watch_readable(self.kick_file, signals.tag(self.number, KICK, self.generation));
    }

    /// Calls the guest. Calls made while one is in the ring become one.
    fn call(&mut self, ring: &mut Ring, signals: &Signals) {
        let Some((_, file)) = &self.call else { return };
        if self.calling {
            self.calls_again = true;
            return;
        }
        self.calling = true;
        ring.signal(*file, signals.one(), signals.tag(self.number, super::CALL, self.generation));
    }

    /// Handles the end of a call, which was made or failed.
    pub(super) fn called(&mut self, ring: &mut Ring, signals: &Signals) {
        self.calling = false;
        if std::mem::take(&mut self.calls_again) {
            self.call(ring, signals);
        }
    }

    /// Returns the request to hand to the engine next, and takes it if it was not taken yet.
    /// Returns `None` if there is none for now. `may_be_long` means that no long request is in
    /// flight.
    pub(super) fn next(
        &mut self,
        memory: &GuestMemory,
        disk: &Disk,
        now: Instant,
        may_be_long: bool,
    ) -> Result<Option<Next>, Broken> {
        loop {
            if let Some(head) = self.current {
                return Ok(Some(Next::Request(head)));
            }
            if may_be_long && let Some(head) = self.long.pop_front() {
                self.current = Some(head);
                continue;
            }
            if let Some(head) = self.again.pop_front() {
                return self.look_at(memory, disk, now, head).map(Some);
            }
            if !self.enabled || self.stopping.is_some() {
                return Ok(None);
            }
            let Some(head) = self.queue.peek()? else {
                if self.queue.ask_for_kick()? {
                    continue;
                }
                return Ok(None);
            };
            if self.slots[usize::from(head)].taken.is_some() || self.again.contains(&head) {
                return Err(Broken::InFlight { head });
            }
            let next = self.look_at(memory, disk, now, head)?;
            // From here on the next server repeats the request if this one does not answer it.
            if let Some(inflight) = &mut self.inflight {
                inflight.take(head);
                if inflight.is_broken() {
                    return Err(Broken::CutShort);
                }
            }
            self.queue.take();
            self.taken += 1;
            return Ok(Some(next));
        }
    }

    /// Reads a request.
    fn look_at(
        &mut self,
        memory: &GuestMemory,
        disk: &Disk,
        arrived: Instant,
        head: u16,
    ) -> Result<Next, Broken> {
        let slot = &mut self.slots[usize::from(head)];
        self.queue.chain(memory, head, &mut slot.segments)?;
        let asked = vhost::parse(memory, &slot.segments, disk)?;
        let (operation, extent, skip) = match asked {
            Asked::Operation { operation, extent, skip } => (operation, extent, skip),
            Asked::Identity { .. } | Asked::Refused(_) => return Ok(Next::Answer(head, asked)),
        };
        let block = BlockRequest { operation, extent, fua: false, arrived };
        let taken = Taken { block, skip, next: 0, left: 0, failed: false, left_over: false };
        slot.taken = Some(taken);
        self.current = Some(head);
        Ok(Next::Request(head))
    }

    /// Returns a request in flight.
    pub(super) fn taken(&mut self, head: u16) -> Option<(&mut Taken, &[Segment])> {
        let slot = self.slots.get_mut(usize::from(head))?;
        Some((slot.taken.as_mut()?, &slot.segments))
    }

    /// Returns the segments of the request at a descriptor.
    pub(super) fn segments(&self, head: u16) -> &[Segment] {
        &self.slots[usize::from(head)].segments
    }

    /// Handles the end of a part. Returns the request's entry for a recording if it is given back.
    pub(super) fn part_ended(
        &mut self,
        memory: &GuestMemory,
        head: u16,
        end: PartEnd,
    ) -> Result<Option<Answered>, Broken> {
        let Some((taken, _)) = self.taken(head) else { return Ok(None) };
        taken.left -= 1;
        taken.failed |= end == PartEnd::Failed;
        taken.left_over |= end == PartEnd::LeftOver;
        let taken = *taken;
        if taken.left > 0 || taken.left_over || taken.part().is_some() {
            return Ok(None);
        }
        let answered = taken.block.answered(taken.failed);
        let written = match (taken.failed, taken.block.operation) {
            (false, Operation::Read) => taken.block.extent.bytes() as u32,
            _ => 0,
        };
        let status = if taken.failed { vhost::STATUS_ERROR } else { vhost::STATUS_OK };
        self.answer(memory, head, status, written)?;
        Ok(Some(answered))
    }

    /// Gives a request back with this status, after `written` bytes of payload.
    pub(super) fn answer(
        &mut self,
        memory: &GuestMemory,
        head: u16,
        status: u8,
        written: u32,
    ) -> Result<(), Broken> {
        let segments = self.segments(head);
        let (read, room) = vhost::lengths(segments);
        memory.write(segments, read + room - 1, &[status])?;
        self.slots[usize::from(head)].taken = None;
        self.taken -= 1;
        self.queue.give_back(head, written + 1);
        if let Some(inflight) = &mut self.inflight {
            inflight.give_back(head);
        }
        Ok(())
    }

    /// Makes the requests given back visible to the guest, and calls it if it wants to be
    /// called.
    pub(super) fn publish(&mut self, ring: &mut Ring, signals: &Signals) {
        if !self.queue.has_unpublished() {
            return;
        }
        let used = self.queue.publish();
        if let Some(inflight) = &mut self.inflight {
            inflight.published(used);
        }
        if self.queue.wants_call() {
            self.call(ring, signals);
        }
    }
}

/// The next task of a queue.
pub(super) enum Next {
    /// A request with a part to hand to the engine.
    Request(u16),
    /// A request to be answered at once.
    Answer(u16, Asked),
}

/// The end of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartEnd {
    Done,
    Failed,
    /// Left to the next server.
    LeftOver,
}

impl Signals {
    /// Returns the tag of a queue's entry in the ring.
    pub(super) fn tag(&self, queue: u16, kind: u32, generation: u32) -> Tag {
        self.tag_of(u32::from(queue) << super::KIND_BITS | kind, generation)
    }
}
