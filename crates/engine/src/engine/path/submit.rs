//! The way of a client's request to operations and back to its reply.
//!
//! A request is split at region boundaries and at [`crate::settings::Limits::operation_bytes`] into
//! operations, a few at a time. Before an operation starts it passes the exposure gate and
//! takes its range lock: an operation that overlaps an earlier one still unanswered, where
//! either writes, waits its turn. No read can therefore see a write that is not
//! acknowledged, whichever leg answers it, and no two unanswered writes share a sector.

use crate::engine::Engine;
use crate::engine::state::debt::Source;
use crate::engine::state::operations::OperationState;
use crate::engine::upkeep::scrub;
use crate::identifiers::BufferAt;
use crate::io::{Buffers, Operation, Reply, Request, RequestError};
use crate::planted::{self, Planted};
use hemi_units::{Extent, SECTOR_BYTES};

/// Writes leave one in this many operations to reads.
const READ_SHARE: usize = 8;

impl<B: Buffers> Engine<B> {
    pub(in crate::engine) fn accept(&mut self, request: Request) {
        let slot = self.requests.accept(&request, self.clock.now());
        if self.life.is_closing() || self.life.is_closed() {
            self.requests.fail(slot, RequestError::ShuttingDown);
            self.reply(slot);
            return;
        }
        match request.operation {
            Operation::Flush => self.begin_flush(slot),
            Operation::Discard if !self.all_zero_fast() => self.reply(slot),
            _ if request.extent.is_empty() => self.reply(slot),
            _ => {
                self.yielding.note_use(self.clock.now());
                let waits = self.life.is_opening()
                    || self.detaching.is_paused()
                    || self.requests.has_others_before(slot);
                if waits || !self.issue(slot) {
                    self.requests.queue(slot);
                }
            }
        }
    }

    /// Returns true if every leg that takes writes zeroes ranges without writing them.
    fn all_zero_fast(&self) -> bool {
        self.legs.iter().all(|leg| !leg.is_member() || !leg.answers() || leg.zeroes_fast())
    }

    /// Splits off operations while there is room. Returns false if room is what it has to wait
    /// for; what else holds a request up lets it go on by itself.
    fn issue(&mut self, slot: u32) -> bool {
        loop {
            let request = self.requests[slot];
            if request.throttled {
                return !planted::is(Planted::ReadsBehindWrites);
            }
            if request.next >= request.extent.end || request.restart {
                return true;
            }
            if request.outstanding >= self.settings.limits.operations_per_request {
                // Goes on when one of its operations ends.
                return true;
            }
            if !self.has_room_for_operation(slot) {
                return false;
            }
            if request.operation != Operation::Read && self.holds_back(slot) {
                return !planted::is(Planted::ReadsBehindWrites);
            }
            self.start_next(slot);
            // A request can end while it is being split only if it was answered as a whole.
            if !self.requests.is_used(slot) {
                return true;
            }
        }
    }

    /// Returns true if a part of a request may be split off. Writes leave some room to reads,
    /// which can often be answered while writes wait.
    pub(super) fn has_room_for_operation(&self, slot: u32) -> bool {
        let is_read = self.requests.goes_with_reads(slot);
        let reserve = if is_read { 0 } else { self.operations.capacity() / READ_SHARE };
        self.operations.free_slots() > reserve
    }

    /// Splits off the next part of a request and starts it.
    pub(super) fn start_next(&mut self, slot: u32) {
        let extent = self.next_part(slot);
        let operation = self.split_off(slot, extent);
        self.enter(operation);
    }

    /// Returns the extent of the part of a request to be split off next.
    fn next_part(&self, slot: u32) -> Extent {
        let is_read = self.requests[slot].operation == Operation::Read;
        self.part_within(slot, if is_read { u64::MAX } else { self.write_sectors_max() })
    }

    /// Returns the extent of the part of a request to be split off next, if writes get no longer than
    /// `write_sectors`.
    pub(super) fn part_within(&self, slot: u32, write_sectors: u64) -> Extent {
        let request = &self.requests[slot];
        let region = self.regions.of_sector(request.next);
        let longest = self.settings.limits.operation_bytes / SECTOR_BYTES;
        let unit = match request.operation {
            Operation::Read => longest,
            Operation::Write => write_sectors.min(longest),
            _ => write_sectors,
        };
        let spans = planted::is(Planted::OperationSpansRegions);
        let end = request
            .extent
            .end
            .min(if spans { u64::MAX } else { self.regions.extent(region).end })
            .min(request.next.saturating_add(unit));
        Extent { start: request.next, end }
    }

    fn split_off(&mut self, slot: u32, extent: Extent) -> u32 {
        let request = self.requests[slot];
        let region = self.regions.of_sector(extent.start);
        let offset = (request.next - request.extent.start) as u32;
        let source = match request.operation {
            Operation::Read | Operation::Write => {
                let buffer = request.buffer.expect("reads and writes come with a buffer");
                Source::Buffer(BufferAt { buffer, offset })
            }
            Operation::WriteZeroes { may_unmap } => Source::Zero { may_unmap },
            _ => Source::Zero { may_unmap: true },
        };
        let mut operation = OperationState::new(slot, extent, region, source);
        operation.is_read = request.operation == Operation::Read;
        operation.fua = request.fua && !operation.is_read;
        operation.started = request.started;
        self.requests.split_off(slot, extent.end);
        self.operations.add(operation)
    }

    /// Takes the range lock and starts, or waits for what overlaps.
    fn enter(&mut self, operation: u32) {
        let state = self.operations[operation];
        if !state.is_read {
            self.throttle.let_in(state.extent.sectors());
        }
        let (place, runs) = self.locks.enter(state.extent, state.is_read, operation);
        self.operations.note_place(operation, place);
        if runs {
            self.run_locked(operation);
        } else if self.scrubbing.is_running() {
            self.yield_scrub();
        }
    }

    fn run_locked(&mut self, operation: u32) {
        if self.operations[operation].is_read {
            self.begin_read(operation);
        } else {
            self.begin_write(operation);
        }
    }

    /// Ends an operation: gives back its lock, lets others in, answers the request if it
    /// was the last.
    pub(super) fn end_operation(&mut self, operation: u32, error: Option<RequestError>) {
        for leg in self.legs.slots() {
            self.uncarry(operation, leg);
        }
        let state = self.operations[operation];
        self.unlock(state.lock);
        self.operations.remove(operation);
        if !state.is_read {
            self.throttle.answered(state.extent.sectors());
        }
        self.requests.end_part(state.request, error);
        self.let_in();
        self.advance_request(state.request);
    }

    /// Gives back a range lock; another may take its place in the list.
    pub(in crate::engine) fn unlock(&mut self, place: u32) {
        match self.locks.leave(place) {
            Some(scrub::LOCK_OWNER) => {
                self.scrubbing.note_place(place);
            }
            Some(moved) => self.operations.note_place(moved, place),
            None => {}
        }
    }

    /// Starts every operation that waited for a range and waits no more. Starting one can end it
    /// at once and so free others: the outermost call takes those, too.
    pub(in crate::engine) fn let_in(&mut self) {
        if !self.locks.begin_letting_in() {
            return;
        }
        while let Some(operation) = self.locks.next_free() {
            self.run_locked(operation);
        }
        self.locks.end_letting_in();
    }

    /// Goes on with a request, or answers it if nothing of it is left.
    pub(super) fn advance_request(&mut self, slot: u32) {
        if !self.requests.is_used(slot) {
            return;
        }
        let request = self.requests[slot];
        if request.restart {
            if request.outstanding == 0 {
                self.requests.queue(slot);
            }
        } else if request.next < request.extent.end && request.error.is_none() {
            if !self.issue(slot) && request.outstanding == 0 {
                self.requests.queue(slot);
            }
        } else if request.outstanding == 0 {
            if request.fua
                && request.error.is_none()
                && request.operation != Operation::Read
                && self.flush_is_strict()
            {
                self.begin_flush(slot);
            } else {
                self.reply(slot);
            }
        }
    }

    /// Goes on with requests that found no room, or start over.
    pub(in crate::engine) fn pump_backlog(&mut self) {
        let is_held = self.life.is_opening() || self.detaching.is_paused();
        if !self.requests.any_in_backlog() || is_held {
            return;
        }
        for backlog in 0..self.requests.backlogs().len() {
            self.pump_one_backlog(backlog);
        }
    }

    fn pump_one_backlog(&mut self, backlog: usize) {
        for _ in 0..self.requests.backlogs()[backlog] {
            let Some(key) = self.requests.next_in_backlog(backlog) else { return };
            if !self.requests.is_live(key) {
                // Parts of it that were in flight have ended meanwhile, and all of it with them.
                continue;
            }
            let request = self.requests[key.slot];
            if request.restart && request.outstanding > 0 {
                // It was queued before it was given up: again once all of it has come back.
                continue;
            }
            if request.restart && !self.restart_read(key.slot) {
                self.requests.queue(key.slot);
                continue;
            }
            if !self.issue(key.slot) {
                self.requests.put_back(backlog, key);
                return;
            }
        }
    }

    /// Refuses what waits in the backlog: the volume is closing.
    pub(in crate::engine) fn refuse_backlog(&mut self) {
        for backlog in 0..self.requests.backlogs().len() {
            while let Some(key) = self.requests.next_in_backlog(backlog) {
                if self.requests.is_live(key) {
                    self.requests.fail(key.slot, RequestError::ShuttingDown);
                    self.reply(key.slot);
                }
            }
        }
    }

    /// Gives a read that was given up on a frozen leg a buffer of its own to start over in.
    fn restart_read(&mut self, slot: u32) -> bool {
        let request = self.requests[slot];
        // The old one first: reads that each keep one while they ask for another would wait for
        // each other forever.
        if let Some(old) = self.requests.take_buffer(slot) {
            self.buffers.release(old);
        }
        let Some(buffer) = self.buffers.allocate(request.extent.sectors() as u32) else {
            self.copies.note_short();
            return false;
        };
        self.requests.start_over(slot, buffer);
        true
    }

    /// Answers a request and forgets it.
    pub(super) fn reply(&mut self, slot: u32) {
        let request = self.requests[slot];
        let result = request.error.map_or(Ok(()), Err);
        let buffer = match (request.operation, result) {
            (Operation::Read, Ok(())) => request.buffer,
            _ => {
                if let Some(buffer) = request.buffer {
                    self.buffers.release(buffer);
                }
                None
            }
        };
        self.counters.count_reply(&request, result, self.clock.now());
        self.yielding.note_use(self.clock.now());
        self.requests.remove(slot);
        self.outbox.reply(Reply { token: request.token, result, buffer });
    }

    /// Returns true if nothing is in flight, owed or dirty: no timer is needed.
    pub(in crate::engine) fn is_quiescent(&self) -> bool {
        self.life.is_serving()
            && self.requests.len() == 0
            && self.ios.len() == 0
            && self.regions.touched_count() == 0
            && self.regions.in_use() == 0
            && !self.scrubbing.is_running()
            && !self.detaching.is_under_way()
            && self.changes.is_empty()
            && self.legs.iter().all(|leg| {
                leg.is_in() && leg.answers() && leg.debts.is_empty()
                    || leg.membership() == crate::format::Membership::Empty
            })
            && self.legs.iter().all(|leg| {
                !leg.is_in()
                    || self.regions.stale_count(leg.index) == 0
                        && self.regions.healing_count(leg.index) == 0
                        && self.regions.metadata().is_current(leg.index)
            })
            || self.life.is_closed()
    }
}
