//! Clients' requests, and where they wait for room or for a leg.
//!
//! Everybody may read a request. It changes only here.

use alloc::collections::VecDeque;
use core::ops::Index;

use super::slab::{Key, Slab};
use crate::identifiers::{BufferId, LegIndex};
use crate::io::{Operation, Request, RequestError};
use crate::planted::{self, Planted};
use hemi_units::{Extent, Instant};

/// A client request from submission to reply.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct RequestState {
    pub(in crate::engine) token: u64,
    pub(in crate::engine) operation: Operation,
    pub(in crate::engine) extent: Extent,
    /// First sector not yet split off into an operation.
    pub(in crate::engine) next: u64,
    pub(in crate::engine) buffer: Option<BufferId>,
    pub(in crate::engine) fua: bool,
    pub(in crate::engine) connection: u32,
    pub(in crate::engine) started: Instant,
    /// Operations running.
    pub(in crate::engine) outstanding: u32,
    pub(in crate::engine) error: Option<RequestError>,
    /// A read whose buffer a frozen leg still holds: start over with another buffer.
    pub(in crate::engine) restart: bool,
    /// Legs that were late with a part of it: it is read elsewhere where that is possible.
    pub(in crate::engine) avoid: u8,
    /// Starting over has to wait: no leg that answers has what it reads.
    stalled: bool,
    /// A write whose next part the exposure bound holds back.
    pub(in crate::engine) throttled: bool,
    /// It is in a backlog.
    queued: bool,
}

/// All requests.
pub(in crate::engine) struct Requests {
    requests: Slab<RequestState>,
    /// Reads with parts still to be split off, and writes: reads pass writes that have no room.
    backlogs: [VecDeque<Key>; 2],
    /// Reads that no answering leg can serve at present.
    stalled: VecDeque<Key>,
}

impl Requests {
    pub(in crate::engine) fn with_capacity(capacity: u32) -> Requests {
        Requests {
            requests: Slab::new(capacity),
            backlogs: [0; 2].map(|_| VecDeque::with_capacity(capacity as usize)),
            stalled: VecDeque::with_capacity(capacity as usize),
        }
    }

    pub(in crate::engine) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(in crate::engine) fn has_room(&self) -> bool {
        self.requests.free_slots() > 0
    }

    pub(in crate::engine) fn is_live(&self, key: Key) -> bool {
        self.requests.is_live(key)
    }

    pub(in crate::engine) fn is_used(&self, slot: u32) -> bool {
        self.requests.is_used(slot)
    }

    pub(in crate::engine) fn get(&self, key: Key) -> Option<&RequestState> {
        self.requests.get(key)
    }

    /// Returns the slots that may be in use.
    pub(in crate::engine) fn slots(&self) -> core::ops::Range<u32> {
        0..self.requests.capacity() as u32
    }

    /// Takes a request in. The caller has seen to room. Returns its slot.
    pub(in crate::engine) fn accept(&mut self, request: &Request, now: Instant) -> u32 {
        let state = RequestState {
            token: request.token,
            operation: request.operation,
            extent: request.extent,
            next: request.extent.start,
            buffer: request.buffer,
            fua: request.fua,
            connection: request.connection,
            started: now,
            outstanding: 0,
            error: None,
            restart: false,
            avoid: 0,
            stalled: false,
            throttled: false,
            queued: false,
        };
        self.requests.insert(state).expect("the driver checked has_room").slot
    }

    /// Forgets a request that is answered.
    pub(in crate::engine) fn remove(&mut self, slot: u32) {
        self.requests.remove(slot);
    }

    /// Has a request answered with an error.
    pub(in crate::engine) fn fail(&mut self, slot: u32, error: RequestError) {
        self.requests[slot].error = Some(error);
    }

    /// Notes that a request's next part, up to this sector, has become an operation.
    pub(in crate::engine) fn split_off(&mut self, slot: u32, until: u64) {
        let request = &mut self.requests[slot];
        request.next = until;
        request.outstanding += 1;
    }

    /// Notes that one of a request's operations has ended. Its first error counts.
    pub(in crate::engine) fn end_part(&mut self, slot: u32, error: Option<RequestError>) {
        let request = &mut self.requests[slot];
        request.outstanding -= 1;
        if request.error.is_none() {
            request.error = error;
        }
    }

    /// Makes a request a flush: it was one, or a write with FUA that is with its legs. Returns its buffer,
    /// which it needs no more.
    pub(in crate::engine) fn begin_flush(&mut self, slot: u32) -> Option<BufferId> {
        self.requests[slot].operation = Operation::Flush;
        self.requests[slot].buffer.take()
    }

    /// Has the rest of a read read elsewhere where that is possible.
    pub(in crate::engine) fn avoid(&mut self, slot: u32, leg: LegIndex) {
        self.requests[slot].avoid |= leg.bit();
    }

    /// Gives a read the buffer that a hedge has filled. Returns the one it had.
    pub(in crate::engine) fn replace_buffer(
        &mut self,
        slot: u32,
        buffer: BufferId,
    ) -> Option<BufferId> {
        self.requests[slot].buffer.replace(buffer)
    }

    /// Takes a read's buffer.
    pub(in crate::engine) fn take_buffer(&mut self, slot: u32) -> Option<BufferId> {
        self.requests[slot].buffer.take()
    }

    /// Has a read start over, once its parts have ended; `stalled` if it has to wait for a leg.
    pub(in crate::engine) fn give_up(&mut self, slot: u32, stalled: bool) {
        self.requests[slot].restart = true;
        self.requests[slot].stalled |= stalled;
    }

    /// Starts a read over in a buffer of its own.
    pub(in crate::engine) fn start_over(&mut self, slot: u32, buffer: BufferId) {
        let request = &mut self.requests[slot];
        request.buffer = Some(buffer);
        request.restart = false;
        request.next = request.extent.start;
        request.error = None;
    }

    /// Notes that the exposure bound holds a write back.
    pub(in crate::engine) fn hold_back(&mut self, slot: u32) -> Key {
        self.requests[slot].throttled = true;
        self.requests.key(slot)
    }

    /// Notes that it does no more.
    pub(in crate::engine) fn let_go_on(&mut self, slot: u32) {
        self.requests[slot].throttled = false;
    }

    /// Returns the backlog a request goes to: that of reads or that of writes.
    fn backlog_of(&self, slot: u32) -> usize {
        let together = planted::is(Planted::ReadsBehindWrites);
        usize::from(self.requests[slot].operation != Operation::Read || together)
    }

    /// Returns true if a request waits for room among reads.
    pub(in crate::engine) fn goes_with_reads(&self, slot: u32) -> bool {
        self.backlog_of(slot) == 0
    }

    /// Returns true if a request has to wait because others do.
    pub(in crate::engine) fn has_others_before(&self, slot: u32) -> bool {
        !self.backlogs[self.backlog_of(slot)].is_empty()
    }

    /// Queues a request that has to wait for room or for a leg, once: it may find no room for one
    /// part while another part has it queued already.
    pub(in crate::engine) fn queue(&mut self, slot: u32) {
        let (backlog, key) = (self.backlog_of(slot), self.requests.key(slot));
        let request = &mut self.requests[slot];
        let twice = planted::is(Planted::StalledAndQueued);
        if core::mem::take(&mut request.stalled) && (!request.queued || twice) {
            self.stalled.push_back(key);
        } else if !core::mem::replace(&mut request.queued, true) {
            self.backlogs[backlog].push_back(key);
        }
    }

    /// Returns true if a backlog has requests.
    pub(in crate::engine) fn any_in_backlog(&self) -> bool {
        self.backlogs.iter().any(|backlog| !backlog.is_empty())
    }

    /// Returns how many requests each backlog has.
    pub(in crate::engine) fn backlogs(&self) -> [usize; 2] {
        self.backlogs.each_ref().map(VecDeque::len)
    }

    /// Takes the first request of a backlog, even if it has ended.
    pub(in crate::engine) fn next_in_backlog(&mut self, backlog: usize) -> Option<Key> {
        let key = self.backlogs[backlog].pop_front()?;
        if self.requests.is_live(key) {
            self.requests[key.slot].queued = false;
        }
        Some(key)
    }

    /// Puts a request back where it was: it finds no room. It may have been queued again.
    pub(in crate::engine) fn put_back(&mut self, backlog: usize, key: Key) {
        if !core::mem::replace(&mut self.requests[key.slot].queued, true) {
            self.backlogs[backlog].push_front(key);
        }
    }

    /// Queues the reads again that no answering leg could serve.
    pub(in crate::engine) fn retry_stalled(&mut self) {
        while let Some(key) = self.stalled.pop_front() {
            if self.requests.is_live(key) || planted::is(Planted::StalledAndQueued) {
                self.queue(key.slot);
            }
        }
    }

    /// Checks what is cheap to check.
    ///
    /// # Panics
    /// If a slot was lost.
    pub(in crate::engine) fn check(&self) {
        assert!(
            self.requests.len() + self.requests.free_slots() == self.requests.capacity(),
            "a request slot was lost"
        );
    }

    /// Checks that nobody waits twice.
    ///
    /// # Panics
    /// If somebody does.
    pub(in crate::engine) fn check_thoroughly(&self) {
        for key in self.stalled.iter().filter(|key| self.requests.is_live(**key)) {
            let queued = self.requests[key.slot].queued;
            assert!(!queued, "a read waits for a leg and for room at once");
        }
    }
}

impl Index<u32> for Requests {
    type Output = RequestState;

    fn index(&self, slot: u32) -> &RequestState {
        &self.requests[slot]
    }
}
