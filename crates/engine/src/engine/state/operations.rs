//! Operations: parts of requests, each within one region, and which legs have them.
//!
//! Everybody may read an operation. It changes only here.

use alloc::collections::VecDeque;
use core::ops::{Index, Range};

use super::debt::{Lacked, Since, Source};
use super::slab::{Key, NONE, Slab};
use crate::identifiers::{LEGS_MAX, LegIndex};
use crate::io::LegError;
use crate::settings::Settings;
use hemi_units::{Extent, Instant};

/// Returns how many operations there can be at once.
pub(in crate::engine) fn operations_max(settings: &Settings) -> u32 {
    settings.requests_max + settings.limits.operations_more
}

/// The stages of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Stage {
    /// Behind an overlapping operation.
    Locked,
    /// Waits for its region's intent to be durable, or for a record to hold it.
    Intent,
    /// Sent to the legs.
    Running,
}

/// One part of a request, within one region.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct OperationState {
    pub(in crate::engine) request: u32,
    pub(in crate::engine) extent: Extent,
    pub(in crate::engine) region: u32,
    pub(in crate::engine) source: Source,
    pub(in crate::engine) is_read: bool,
    pub(in crate::engine) fua: bool,
    pub(in crate::engine) stage: Stage,
    pub(in crate::engine) started: Instant,
    /// The time it was sent to the legs.
    pub(in crate::engine) sent: Instant,
    /// It is looked at again at a point in time.
    pub(in crate::engine) timed: bool,
    /// Its place among the range locks; [`NONE`] without one.
    pub(in crate::engine) lock: u32,
    /// Legs that have it.
    pub(in crate::engine) done: u8,
    /// Legs with it in flight.
    pub(in crate::engine) in_flight: u8,
    /// Legs that owe it.
    pub(in crate::engine) owed: u8,
    /// Legs where it took the place of an acknowledged debt: until it is there, and durable
    /// there, the leg lacks what was acknowledged before.
    pub(in crate::engine) carries: u8,
    /// Time since which the first of these legs has lacked what was acknowledged before.
    pub(in crate::engine) carried_since: Since,
    /// Sectors of it that each leg lacks for that reason.
    pub(in crate::engine) carried: [Lacked; LEGS_MAX],
    /// Legs that failed it.
    pub(in crate::engine) failed: u8,
    /// Some leg failed it for want of space, and none for another reason.
    pub(in crate::engine) no_space: bool,
    /// The time the first leg had it (`Policy::Paper`).
    pub(in crate::engine) first_done: Option<Instant>,
    /// It rewrites what was lost: the lost list must have forgotten that, durably, before the
    /// acknowledgement.
    pub(in crate::engine) rewrites_lost: bool,
    /// Reads: I/O outstanding, and whether any was given up.
    pub(in crate::engine) parts: u32,
    pub(in crate::engine) given_up: bool,
    /// Reads: given up because no leg that answers has it.
    pub(in crate::engine) stalled: bool,
    /// Reads: no leg can serve a part of it.
    pub(in crate::engine) unreadable: bool,
    /// Reads: a second leg has been asked.
    pub(in crate::engine) hedged: bool,
}

impl OperationState {
    pub(in crate::engine) fn new(
        request: u32,
        extent: Extent,
        region: u32,
        source: Source,
    ) -> Self {
        OperationState {
            request,
            extent,
            region,
            source,
            is_read: false,
            fua: false,
            stage: Stage::Locked,
            started: Instant(0),
            sent: Instant(0),
            timed: false,
            lock: NONE,
            done: 0,
            in_flight: 0,
            owed: 0,
            carries: 0,
            carried_since: Since::REBUILD,
            carried: [Lacked::default(); LEGS_MAX],
            failed: 0,
            no_space: false,
            first_done: None,
            rewrites_lost: false,
            parts: 0,
            given_up: false,
            stalled: false,
            unreadable: false,
            hedged: false,
        }
    }
}

/// All operations.
pub(in crate::engine) struct Operations {
    operations: Slab<OperationState>,
    /// Writes that found no room for their region's record, or for one more touched region.
    unplaced: VecDeque<u32>,
}

impl Operations {
    pub(in crate::engine) fn with_capacity(capacity: u32) -> Operations {
        Operations {
            operations: Slab::new(capacity),
            unplaced: VecDeque::with_capacity(capacity as usize),
        }
    }

    pub(in crate::engine) fn capacity(&self) -> usize {
        self.operations.capacity()
    }

    pub(in crate::engine) fn free_slots(&self) -> usize {
        self.operations.free_slots()
    }

    pub(in crate::engine) fn is_live(&self, key: Key) -> bool {
        self.operations.is_live(key)
    }

    pub(in crate::engine) fn get(&self, key: Key) -> Option<&OperationState> {
        self.operations.get(key)
    }

    pub(in crate::engine) fn key(&self, slot: u32) -> Key {
        self.operations.key(slot)
    }

    /// Returns the operations in use, in slot order.
    pub(in crate::engine) fn iter(&self) -> impl Iterator<Item = (u32, &OperationState)> {
        self.operations.iter()
    }

    /// Returns the slots that may be in use.
    pub(in crate::engine) fn slots(&self) -> Range<u32> {
        0..self.operations.capacity() as u32
    }

    /// Returns true if a slot holds a write that has been sent to the legs.
    pub(in crate::engine) fn is_running_write(&self, slot: u32) -> bool {
        self.operations.is_used(slot)
            && !self.operations[slot].is_read
            && self.operations[slot].stage == Stage::Running
    }

    /// Takes an operation in. The caller has seen to room.
    pub(in crate::engine) fn add(&mut self, operation: OperationState) -> u32 {
        self.operations.insert(operation).expect("the caller checked for room").slot
    }

    /// Forgets an operation that is answered.
    pub(in crate::engine) fn remove(&mut self, slot: u32) {
        self.operations.remove(slot);
    }

    /// Notes an operation's place among the range locks.
    pub(in crate::engine) fn note_place(&mut self, slot: u32, place: u32) {
        self.operations[slot].lock = place;
    }

    /// Notes that a write waits for its region's intent.
    pub(in crate::engine) fn begin_intent(&mut self, slot: u32) {
        self.operations[slot].stage = Stage::Intent;
    }

    /// Notes that a write finds no room for its region's record.
    pub(in crate::engine) fn wait_for_record(&mut self, slot: u32) {
        self.unplaced.push_back(slot);
    }

    /// Returns how many writes wait for a record.
    pub(in crate::engine) fn unplaced(&self) -> usize {
        self.unplaced.len()
    }

    /// Takes the first of them.
    pub(in crate::engine) fn next_unplaced(&mut self) -> Option<u32> {
        self.unplaced.pop_front()
    }

    /// Notes that a read is being sent to legs.
    pub(in crate::engine) fn begin_read(&mut self, slot: u32) {
        self.operations[slot].stage = Stage::Running;
    }

    /// Notes that a write is being sent to legs.
    pub(in crate::engine) fn begin_write(&mut self, slot: u32, now: Instant) {
        self.operations[slot].stage = Stage::Running;
        self.operations[slot].sent = now;
    }

    /// Notes that a write rewrites what is lost, and has to be durable when the lost list says so.
    pub(in crate::engine) fn rewrite_lost_durably(&mut self, slot: u32) {
        self.operations[slot].fua = true;
        self.operations[slot].rewrites_lost = true;
    }

    /// Notes that a write rewrites what has been lost meanwhile.
    pub(in crate::engine) fn rewrite_lost(&mut self, slot: u32) {
        self.operations[slot].rewrites_lost = true;
    }

    /// Notes that a write is in flight to a leg.
    pub(in crate::engine) fn send(&mut self, slot: u32, leg: LegIndex) {
        self.operations[slot].in_flight |= leg.bit();
    }

    /// Notes that a leg owes a write.
    pub(in crate::engine) fn owe(&mut self, slot: u32, leg: LegIndex) {
        self.operations[slot].owed |= leg.bit();
    }

    /// Notes that a leg no more owes a write by itself.
    pub(in crate::engine) fn unowe(&mut self, slot: u32, leg: LegIndex) {
        self.operations[slot].owed &= !leg.bit();
    }

    /// Notes that a leg has a write.
    pub(in crate::engine) fn land(&mut self, slot: u32, leg: LegIndex, now: Instant) {
        let state = &mut self.operations[slot];
        state.in_flight &= !leg.bit();
        state.done |= leg.bit();
        state.failed &= !leg.bit();
        state.first_done.get_or_insert(now);
    }

    /// Notes that a write is no more in flight to a leg: its session has dropped.
    pub(in crate::engine) fn drop_in_flight(&mut self, slot: u32, leg: LegIndex) {
        self.operations[slot].in_flight &= !leg.bit();
    }

    /// Notes that a leg has failed a write.
    pub(in crate::engine) fn fail_on(&mut self, slot: u32, leg: LegIndex, error: LegError) {
        let state = &mut self.operations[slot];
        state.in_flight &= !leg.bit();
        let first = state.failed == 0;
        state.no_space = error == LegError::NoSpace && (first || state.no_space);
        state.failed |= leg.bit();
    }

    /// Notes that a leg may not have a write any more.
    pub(in crate::engine) fn lose(&mut self, slot: u32, leg: LegIndex) {
        self.operations[slot].done &= !leg.bit();
    }

    /// Notes that a leg gets with a write what it has lacked since then, and `lacked` sectors of it.
    /// Returns the sectors that are not counted yet, and true if the write carried nothing for it
    /// before.
    pub(in crate::engine) fn carry(
        &mut self,
        slot: u32,
        leg: LegIndex,
        since: Since,
        lacked: Lacked,
    ) -> (Lacked, bool) {
        let state = &mut self.operations[slot];
        state.carried_since = state.carried_since.or(since);
        // A part of it can be lacked twice: as owed, and as in flight beneath that.
        let more = lacked.beside(state.carried[leg.index()], state.extent.sectors());
        state.carried[leg.index()] += more;
        let first = state.carries & leg.bit() == 0;
        state.carries |= leg.bit();
        (more, first)
    }

    /// Notes that a write carries nothing for a leg any more. Returns the sectors it carried; `None`
    /// if it carried nothing.
    pub(in crate::engine) fn uncarry(&mut self, slot: u32, leg: LegIndex) -> Option<Lacked> {
        let state = &mut self.operations[slot];
        if state.carries & leg.bit() == 0 {
            return None;
        }
        state.carries &= !leg.bit();
        Some(core::mem::take(&mut state.carried[leg.index()]))
    }

    /// Has an operation looked at again at a point in time. Returns false if it is already.
    pub(in crate::engine) fn time(&mut self, slot: u32) -> bool {
        !core::mem::replace(&mut self.operations[slot].timed, true)
    }

    /// Notes that its time is up.
    pub(in crate::engine) fn end_time(&mut self, slot: u32) {
        self.operations[slot].timed = false;
    }

    /// Notes that a part of a read is in flight to a leg.
    pub(in crate::engine) fn begin_part(&mut self, slot: u32) {
        self.operations[slot].parts += 1;
    }

    /// Notes that a part of a read has ended, or is waited for no more.
    pub(in crate::engine) fn end_part(&mut self, slot: u32) {
        self.operations[slot].parts -= 1;
    }

    /// Notes that another leg is asked for a read, too: the first answer will do.
    pub(in crate::engine) fn begin_hedge(&mut self, slot: u32) {
        self.operations[slot].hedged = true;
        self.operations[slot].parts += 1;
    }

    /// Notes that every part of a read is needed from now on.
    pub(in crate::engine) fn end_hedge(&mut self, slot: u32) {
        self.operations[slot].hedged = false;
    }

    /// Notes that a read starts over when its parts have ended.
    pub(in crate::engine) fn give_up(&mut self, slot: u32) {
        self.operations[slot].given_up = true;
    }

    /// Notes that a read starts over when a leg answers that has it.
    pub(in crate::engine) fn stall(&mut self, slot: u32) {
        self.operations[slot].given_up = true;
        self.operations[slot].stalled = true;
    }

    /// Notes that no leg can serve a part of a read.
    pub(in crate::engine) fn note_unreadable(&mut self, slot: u32) {
        self.operations[slot].unreadable = true;
    }

    /// Notes that a leg has failed a read.
    pub(in crate::engine) fn note_read_failed(&mut self, slot: u32, leg: LegIndex) {
        self.operations[slot].failed |= leg.bit();
    }

    /// Forgets which legs have failed a read.
    pub(in crate::engine) fn forget_failed(&mut self, slot: u32) {
        self.operations[slot].failed = 0;
    }

    /// Gives a read the buffer that a hedge has filled.
    pub(in crate::engine) fn replace_source(&mut self, slot: u32, source: Source) {
        self.operations[slot].source = source;
    }

    /// Forgets what a leg did that leaves its slot. `forgives` reads that no leg could serve, too.
    pub(in crate::engine) fn forget_leg(&mut self, leg: LegIndex, forgives: bool) {
        for slot in self.slots() {
            if self.operations.is_used(slot) {
                let state = &mut self.operations[slot];
                state.done &= !leg.bit();
                state.failed &= !leg.bit();
                state.unreadable &= !forgives;
            }
        }
    }
}

impl Index<u32> for Operations {
    type Output = OperationState;

    fn index(&self, slot: u32) -> &OperationState {
        &self.operations[slot]
    }
}
