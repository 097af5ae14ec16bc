//! HM_WRITE: a write goes to every leg that keeps up, becomes a debt on the others, and is
//! acknowledged at the first completion recovery would honour.

use crate::engine::Engine;
use crate::engine::state::debt::{Debt, Lacked, Since, Source};
use crate::engine::state::failing::Task;
use crate::engine::state::leg::{Class, Health, Leg};
use crate::engine::state::records::{Io, Purpose, Stage};
use crate::engine::state::slab::{Key, NONE};
use crate::engine::upkeep::lost_cache::Elsewhere;
use crate::identifiers::{LEGS_MAX, LegIndex};
use crate::io::{Buffers, LegError, LegOperation, Notice, RequestError};
use crate::marks::Mark;
use crate::planted::{self, Planted};
use crate::settings::Policy;
use hemi_units::{Extent, Instant, MILLISECOND, SECTOR_BYTES};

/// A debt older than this makes its leg lagging: every write to it is then a debt.
const LAGGING_AFTER: u64 = 50 * MILLISECOND;

impl<B: Buffers> Engine<B> {
    /// A write has its range lock: find its region's record and make its intent durable.
    pub(super) fn begin_write(&mut self, operation: u32) {
        let region = self.operations[operation].region;
        self.operations[operation].stage = Stage::Intent;
        let fits = self.regions.may_be_touched(region);
        let Some(record) = (if fits { self.record(region) } else { None }) else {
            self.marks.add(Mark::NoRecordFree);
            self.unplaced.push_back(operation);
            return;
        };
        self.regions.begin_operation(record, self.clock.now());
        self.go_on_with_intent(operation);
    }

    /// Places operations that found no room for their region's record.
    pub(in crate::engine) fn place_unplaced(&mut self) {
        for _ in 0..self.unplaced.len() {
            let Some(operation) = self.unplaced.pop_front() else { return };
            self.begin_write(operation);
        }
    }

    pub(super) fn go_on_with_intent(&mut self, operation: u32) {
        let record = self.record_of(operation);
        let durable = self.intent_is_durable(record);
        let entry = self.entry(self.operations[operation].region);
        let authority = entry.authority();
        let is_touched = self.regions.is_touched(self.operations[operation].region);
        let early = is_touched && planted::is(Planted::WriteBeforeIntent);
        // What it is to get back after it lost its cache can take all room for debts. An authority
        // that owed the region instead could not be the authority.
        let noted = self.legs[authority.index()].debts.has_room(2)
            || planted::is(Planted::AuthorityOwesRegion);
        if (durable || early) && noted {
            if !self.legs[authority.index()].answers() {
                // The write and the record of its new authority go out together.
                self.regions.want_move(record);
            }
            self.dispatch(operation);
        } else {
            self.regions.wait(operation, record);
        }
    }

    fn record_of(&self, operation: u32) -> u32 {
        let region = self.operations[operation].region;
        self.regions.slot(region).expect("a region with operations has a record")
    }

    /// Sends the write to every leg, or owes it.
    fn dispatch(&mut self, operation: u32) {
        let extent = self.operations[operation].extent;
        self.operations[operation].stage = Stage::Running;
        self.operations[operation].sent = self.clock.now();
        if self.touches_lost(extent) {
            // Durable before the list says so, or a power cut would bring back what was there
            // before the loss.
            self.operations[operation].fua = true;
            self.operations[operation].rewrites_lost = true;
        }
        if self.operations[operation].fua {
            self.regions.note_fua(self.record_of(operation));
        }
        for leg in self.slots() {
            if self.legs[leg].is_member() {
                self.send(operation, leg);
            }
        }
        self.consider_acknowledgement(operation);
    }

    fn send(&mut self, operation: u32, leg: usize) {
        let state = self.operations[operation];
        let index = LegIndex(leg as u8);
        if self.regions.is_stale(index, state.region) {
            // It owes the whole region anyway.
            return;
        }
        let dead = !self.legs[leg].is_in() && !self.legs[leg].answers();
        if dead && !self.must_stay(index, state.region) {
            self.owe_region(leg, state.region);
            return;
        }
        let lagging = self.is_lagging(leg);
        let target = &self.legs[leg];
        let direct = target.is_trusted(self.clock.now())
            && target.has_window_for(state.extent.sectors(), &self.settings)
            && self.ios.free_slots() > LEGS_MAX
            && !lagging
            && (target.debts.overlapping(state.extent).is_none()
                || planted::is(Planted::DirectOverDebt))
            && (!target.is_held(state.extent) || planted::is(Planted::OvertakenInFlight));
        if direct {
            state.source.retain(&mut self.buffers);
            let key = self.operation_key(operation);
            self.operations[operation].in_flight |= index.bit();
            self.start_write(
                leg,
                state.extent,
                state.source,
                key,
                state.fua && !planted::is(Planted::FuaDropped),
                Since::at(self.clock.now()),
                false,
                false,
            );
        } else {
            if target.is_held(state.extent) {
                let zombie = !target.answers();
                self.marks.add(if zombie { Mark::WriteOverZombie } else { Mark::WriteBehindWrite });
            }
            self.owe(operation, leg);
        }
    }

    /// Whether new writes to a leg go through its delay queue.
    pub(in crate::engine) fn is_lagging(&mut self, leg: usize) -> bool {
        let target = &self.legs[leg];
        let Some(since) = target.debts.oldest_since() else {
            if target.lagging {
                self.set_lagging(leg, false);
            }
            return false;
        };
        let age = self.clock.now().since(since);
        let bound = if target.lagging { LAGGING_AFTER / 2 } else { LAGGING_AFTER };
        if (age > bound) != target.lagging {
            self.set_lagging(leg, age > bound);
        }
        self.legs[leg].lagging
    }

    fn set_lagging(&mut self, leg: usize, lagging: bool) {
        self.legs[leg].lagging = lagging;
        let index = LegIndex(leg as u8);
        if lagging {
            self.outbox.notice(Notice::Lagging { leg: index });
        } else if self.legs[leg].is_in() {
            // A leg that went out owes nothing any more, and has caught up with nothing.
            self.outbox.notice(Notice::CaughtUp { leg: index });
        }
    }

    /// Starts a write on a leg; the I/O takes over one reference to the source's buffer.
    #[allow(clippy::too_many_arguments, reason = "one call per way a write can come about")]
    pub(in crate::engine) fn start_write(
        &mut self,
        leg: usize,
        extent: Extent,
        source: Source,
        operation: Key,
        fua: bool,
        since: Since,
        drain: bool,
        repair: bool,
    ) -> u32 {
        let purpose = Purpose::Write { operation, since, drain, repair, gaps: 0 };
        let io = Io::new(leg as u8, purpose, extent, source);
        let command = match source {
            Source::Zero { may_unmap } => LegOperation::WriteZeroes { may_unmap, fua },
            _ => LegOperation::Write { fua },
        };
        let slot = self.start_io(io, command);
        self.legs[leg].hold(extent, slot);
        slot
    }

    /// Makes an operation's write a debt of a leg.
    pub(in crate::engine) fn owe(&mut self, operation: u32, leg: usize) {
        let state = self.operations[operation];
        let index = LegIndex(leg as u8);
        let full = self.legs[leg].debts.len() >= self.settings.owed_extents_max as usize;
        if full && !self.must_stay(index, state.region) || !self.make_room(leg, state.region) {
            self.marks.add(Mark::RegionOwed);
            self.owe_region(leg, state.region);
            return;
        }
        state.source.retain(&mut self.buffers);
        let key = self.operation_key(operation);
        self.owe_waiting(
            leg,
            Debt::new(state.extent, state.source, Since::at(self.clock.now()), key),
        );
    }

    /// Adds a debt whose write a client still waits for, over whatever the leg owes there: that
    /// is older. Needs room for two, in a region that is not owed as a whole.
    fn owe_waiting(&mut self, leg: usize, debt: Debt) {
        let operation = debt.operation.slot;
        let bit = LegIndex(leg as u8).bit();
        let record = self.record_of(operation);
        let carved = self.legs[leg].debts.carve(debt.extent, &mut self.buffers);
        self.regions.adjust_lacks(record, leg, carved.debts);
        self.marks.add_if(carved.superseded, Mark::DebtSuperseded);
        if let Some(since) = carved.since
            && !planted::is(Planted::SupersededForgotten)
            && self.carry(operation, leg, since, carved.sectors)
        {
            self.regions.adjust_lacks(record, leg, 1);
        }
        self.legs[leg].debts.add(debt);
        self.operations[operation].owed |= bit;
    }

    /// Whether a region's data hangs on this leg: it is the authority; or the authority lost its
    /// cache and is being given back what others have; or the authority's session has dropped with
    /// something there un-flushed. What it has lost is known only when it is back, and until then
    /// what others are fresh for may be all there is of it.
    pub(in crate::engine) fn must_stay(&self, leg: LegIndex, region: u32) -> bool {
        let authority = self.entry(region).authority();
        let is_touched = self.regions.is_touched(region);
        if is_touched && authority == leg {
            return true;
        }
        if is_touched && !self.may_still_have(authority.index(), region) {
            return true;
        }
        self.regions.slot(region).is_some_and(|record| self.regions.is_suspect(record))
            && !self.regions.is_complete(authority, region)
    }

    /// Returns true if a leg's list of debts has room for one more of a region, splits included. Where
    /// data there hangs on this leg it must not owe all of the region: it then owes all of others
    /// instead, which need no place in the list.
    fn make_room(&mut self, leg: usize, region: u32) -> bool {
        let index = LegIndex(leg as u8);
        if self.legs[leg].debts.has_room(2) {
            return true;
        }
        if !self.must_stay(index, region) || planted::is(Planted::NoRoomMade) {
            return false;
        }
        let mut at = 0;
        while let Some((_, debt)) = self.legs[leg].debts.first_after(at) {
            let other = self.regions.of_sector(debt.extent.start);
            at = self.regions.extent(other).end;
            if other != region && !self.must_stay(index, other) {
                self.marks.add(Mark::RegionOwed);
                self.owe_region(leg, other);
                if self.legs[leg].debts.has_room(2) {
                    return true;
                }
            }
        }
        false
    }

    /// From now on the leg owes all of a region, without copies: its exact debts there go.
    pub(in crate::engine) fn owe_region(&mut self, leg: usize, region: u32) {
        let index = LegIndex(leg as u8);
        if self.regions.is_stale(index, region) {
            return;
        }
        let extent = self.regions.extent(region);
        let mut dropped = 0i32;
        while let Some((slot, debt)) = self.legs[leg].debts.overlapping(extent) {
            let debt_operation = debt.operation;
            let taken = self.legs[leg].debts.take(slot);
            taken.source.release(&mut self.buffers);
            if debt_operation == Key::NONE {
                dropped += 1;
            } else if self.operations.is_live(debt_operation) {
                self.reconsider = true;
                self.operations[debt_operation.slot].owed &= !index.bit();
                dropped += i32::from(self.uncarry(debt_operation.slot, leg));
            }
        }
        if let Some(record) = self.regions.slot(region) {
            self.regions.adjust_lacks(record, leg, -dropped);
            self.end_rebuilding(leg, record);
        }
        self.regions.stop_healing(index, region);
        self.regions.set_stale(index, region);
    }

    /// A write ended on a leg. `paid`: for a drain, the sectors it was owed.
    pub(in crate::engine) fn write_done(
        &mut self,
        io: &Io,
        key: Key,
        since: Since,
        paid: Option<u64>,
        repair: bool,
        result: Result<(), LegError>,
    ) {
        let leg = usize::from(io.leg);
        let region = self.regions.of_sector(io.extent.start);
        let record = self.regions.slot(region);
        let waiting = self.operations.is_live(key);
        let was_stale = self.regions.is_stale(LegIndex(io.leg), region);
        match result {
            Ok(()) => {
                let state = &mut self.legs[leg];
                state.done_stamp += 1;
                state.failing.note_success(Task::Write);
                if let Some(sectors) = paid {
                    state.counters.drained_bytes += sectors * SECTOR_BYTES;
                    state.drain_rate.add(sectors * SECTOR_BYTES);
                }
                let stamp = state.done_stamp;
                if let Some(record) = record {
                    if repair {
                        let flushed = self.legs[leg].flushed;
                        self.regions.note_repaired(record, leg, stamp, flushed);
                    } else {
                        self.regions.note_done(record, leg, stamp);
                    }
                    self.note_given(record, leg, io.extent);
                }
                io.source.release(&mut self.buffers);
                if repair {
                    self.marks.add(Mark::Repaired);
                    self.counters.repaired();
                    self.outbox
                        .notice(Notice::Repaired { leg: LegIndex(io.leg), extent: io.extent });
                }
            }
            Err(error) => {
                if let Some(record) = record {
                    self.regions.note_not_given_back(record, leg);
                }
                self.write_failed(io, key, since, repair, error);
            }
        }
        if waiting {
            let state = &mut self.operations[key.slot];
            let bit = LegIndex(io.leg).bit();
            state.in_flight &= !bit;
            match result {
                Ok(()) => {
                    state.done |= bit;
                    state.failed &= !bit;
                    state.first_done.get_or_insert(self.clock.now());
                }
                // The session dropped: the debt waits for the leg to come back, and so does
                // the write, if no other leg takes it.
                Err(LegError::Gone) if !self.is_removed(leg) => {}
                Err(error) => {
                    let state = &mut self.operations[key.slot];
                    let first = state.failed == 0;
                    state.no_space = error == LegError::NoSpace && (first || state.no_space);
                    state.failed |= bit;
                }
            }
            let carried = result.is_ok() && self.uncarry(key.slot, leg);
            let record = record.expect("a region with operations has a record");
            if carried {
                self.regions.note_acknowledged(record, leg);
                self.regions.adjust_lacks(record, leg, -1);
            }
            self.consider_acknowledgement(key.slot);
            if carried && self.regions.slot(region) == Some(record) {
                self.consider_complete(record, leg);
            }
        } else {
            if result.is_ok() || was_stale {
                self.legs[leg].uncount_in_flight(since, io.extent.sectors());
            }
            let Some(record) = record else { return };
            if result.is_ok() {
                self.regions.note_acknowledged(record, leg);
                self.regions.adjust_lacks(record, leg, -1);
                self.consider_complete(record, leg);
            }
        }
    }

    /// Counts a failure against a leg. Returns when to try again.
    pub(in crate::engine) fn count_failure(
        &mut self,
        leg: usize,
        task: Task,
        error: LegError,
    ) -> Instant {
        let apart = self.settings.out_after;
        self.legs[leg].failing.note_failure(task, error, apart, self.clock.now())
    }

    /// A write failed on a leg: it is owed (again), beneath anything newer.
    fn write_failed(&mut self, io: &Io, key: Key, since: Since, repair: bool, error: LegError) {
        self.marks.add(Mark::FailedWriteOwed);
        let leg = usize::from(io.leg);
        let region = self.regions.of_sector(io.extent.start);
        let until = self.count_failure(leg, Task::Write, error);
        let waiting = self.operations.is_live(key);
        if waiting && !self.make_room(leg, region) {
            self.owe_region(leg, region);
        }
        if self.regions.is_stale(LegIndex(io.leg), region) {
            // Owed as part of the whole region meanwhile.
            let lacked = !waiting || self.uncarry(key.slot, leg);
            if lacked && let Some(record) = self.regions.slot(region) {
                self.regions.adjust_lacks(record, leg, -1);
            }
            io.source.release(&mut self.buffers);
        } else if waiting {
            // The region may have been owed as a whole and taken up again meanwhile.
            let mut debt = Debt::new(io.extent, io.source, since, key);
            debt.not_before = until;
            self.owe_waiting(leg, debt);
        } else {
            self.legs[leg].uncount_in_flight(since, io.extent.sectors());
            let source = self.copy_or_none(io.source, since.is_rebuild());
            self.owe_beneath(leg, io.extent, source, since, until, repair);
        }
    }

    /// From now on a leg gets an acknowledged write that it has lacked since then, and so many
    /// sectors of it, with this one, which nobody has acknowledged yet. Returns true if it is the
    /// first.
    pub(in crate::engine) fn carry(
        &mut self,
        operation: u32,
        leg: usize,
        since: Since,
        lacked: Lacked,
    ) -> bool {
        let bit = LegIndex(leg as u8).bit();
        let state = &mut self.operations[operation];
        state.carried_since = state.carried_since.or(since);
        // A part of it can be lacked twice: as owed, and as in flight beneath that.
        let more = lacked.beside(state.carried[leg], state.extent.sectors());
        state.carried[leg] += more;
        self.legs[leg].carried += more;
        if state.carries & bit != 0 {
            return false;
        }
        state.carries |= bit;
        self.legs[leg].carrying += 1;
        true
    }

    /// A leg has what a write carried for it, or lacks it in another way. Returns false if the
    /// write carried nothing for it.
    pub(super) fn uncarry(&mut self, operation: u32, leg: usize) -> bool {
        let bit = LegIndex(leg as u8).bit();
        let state = &mut self.operations[operation];
        if state.carries & bit == 0 {
            return false;
        }
        state.carries &= !bit;
        self.legs[leg].carrying -= 1;
        self.legs[leg].carried -= core::mem::take(&mut state.carried[leg]);
        true
    }

    /// Owes the parts of an extent that nothing newer covers; replaces one counted lack.
    pub(in crate::engine) fn owe_beneath(
        &mut self,
        leg: usize,
        extent: Extent,
        source: Source,
        since: Since,
        until: Instant,
        repair: bool,
    ) {
        let region = self.regions.of_sector(extent.start);
        let record = self.regions.slot(region).expect("a region with lacks has a record");
        if planted::is(Planted::FailedOverNewer) {
            let carved = self.legs[leg].debts.carve(extent, &mut self.buffers);
            self.regions.adjust_lacks(record, leg, carved.debts);
        }
        let mut pieces = -1i32;
        let mut at = extent.start;
        while at < extent.end {
            let rest = Extent { start: at, end: extent.end };
            let found = self.legs[leg].debts.overlapping(rest);
            let over = found.map(|(_, debt)| debt);
            if let Some((slot, over)) = found
                && over.is_acknowledged()
                && !over.is_rebuild()
                && !planted::is(Planted::YoungAgain)
            {
                self.legs[leg].debts.date_back(slot, since);
            }
            if let Some(over) = over.filter(|over| self.operations.is_live(over.operation))
                && !planted::is(Planted::SupersededForgotten)
            {
                // A write that a client still waits for takes its place.
                let covered = over.extent.intersection(rest).sectors();
                let lacked = Lacked::of(since.is_rebuild(), covered);
                let first = self.carry(over.operation.slot, leg, since, lacked);
                pieces += i32::from(first);
            }
            let covered = over.map(|debt| debt.extent);
            let gap = Extent { start: at, end: covered.map_or(extent.end, |c| c.start.max(at)) };
            if !gap.is_empty() {
                if !self.make_room(leg, region) {
                    self.regions.adjust_lacks(record, leg, pieces);
                    source.release(&mut self.buffers);
                    self.owe_region(leg, region);
                    return;
                }
                let part = source.skip(gap.start - extent.start);
                part.retain(&mut self.buffers);
                let mut debt = Debt::new(gap, part, since, Key::NONE);
                debt.repair = repair;
                debt.not_before = until;
                self.legs[leg].debts.add(debt);
                pieces += 1;
            }
            at = covered.map_or(extent.end, |c| c.end);
        }
        source.release(&mut self.buffers);
        self.regions.adjust_lacks(record, leg, pieces);
    }

    /// Looks again at every write that is with the legs.
    pub(in crate::engine) fn reconsider_operations(&mut self) {
        for slot in 0..self.operations.capacity() as u32 {
            if self.operations.is_used(slot)
                && !self.operations[slot].is_read
                && self.operations[slot].stage == Stage::Running
            {
                self.consider_acknowledgement(slot);
            }
        }
    }

    /// Acknowledges an operation if recovery would honour it; else sees to what is missing.
    pub(super) fn consider_acknowledgement(&mut self, operation: u32) {
        let state = self.operations[operation];
        let record = self.record_of(operation);
        let authority = self.entry(state.region).authority();
        let first = self.entry(self.regions.of_sector(self.requests[state.request].extent.start));
        if planted::is(Planted::SpanningNeverAcked) && first.authority() != authority {
            return;
        }
        let first_decides = planted::is(Planted::FirstRegionDecides);
        let authority = if first_decides { first.authority() } else { authority };
        if state.done & authority.bit() != 0 {
            let dropped = matches!(self.legs[authority.index()].health, Health::Gone { .. });
            if dropped || !self.regions.is_complete(authority, state.region) {
                // It lost its cache, or may have: this write and what lies beneath it may be
                // gone. Whether it has, it says when it comes back.
                self.regions.want_move(record);
                self.regions.wait(operation, record);
            } else if state.rewrites_lost
                && state.in_flight == 0
                && !self.fits_in_lost_list(state.extent)
            {
                self.fail_write(operation, record);
            } else if !self.authority_is_recorded(operation, record)
                && !planted::is(Planted::AckBeforeMove)
                || !self.lost_list_follows(operation)
            {
                self.marks.add(Mark::AcknowledgementWaited);
                self.regions.wait(operation, record);
            } else if self.policy_allows(operation) {
                self.acknowledge(operation, record);
            }
            return;
        }
        // It owed the whole region when the write was sent, or lost its cache since, and is the
        // authority now.
        let unsent = (state.in_flight | state.owed) & authority.bit() == 0;
        if unsent && self.legs[authority.index()].answers() {
            if !self.regions.is_stale(authority, state.region) {
                self.owe(operation, authority.index());
                return;
            }
            // It gets the write once its region is taken up.
            self.regions.wait(operation, record);
        }
        if state.done != 0 {
            let answers = self.legs[authority.index()].answers();
            let timed_out = self.is_timed_out(operation);
            let deadline = self.late_deadline(operation);
            let late = deadline.is_some_and(|deadline| self.clock.now() >= deadline);
            if !answers || state.failed & authority.bit() != 0 || timed_out || late {
                if timed_out {
                    self.regions.force_move(record);
                } else {
                    self.regions.want_move(record);
                }
                self.regions.wait(operation, record);
            } else if deadline.is_some() {
                self.look_again_in_time(operation);
            }
            return;
        }
        let sent = state.in_flight | state.owed;
        let failed = self.in_legs().all(|leg| {
            let bit = leg.index.bit();
            state.failed & bit != 0 || sent & bit == 0
        });
        if failed && state.in_flight == 0 && state.failed != 0 {
            self.fail_write(operation, record);
        }
    }

    /// Returns true if recovery would honour the region's authority: by the ledger, after a restart of
    /// hemi; for what is to be durable, after a power cut as well.
    fn authority_is_recorded(&mut self, operation: u32, record: u32) -> bool {
        let by_ledger = self.regions.has_ledger()
            && (!self.operations[operation].fua || planted::is(Planted::FuaByLedger));
        by_ledger || self.authority_is_durable(record)
    }

    /// Whether the lost list no longer names what this write has rewritten.
    fn lost_list_follows(&mut self, operation: u32) -> bool {
        let state = self.operations[operation];
        if !state.rewrites_lost {
            if !self.touches_lost(state.extent) {
                return true;
            }
            // Lost while the write was under way: what it wrote may be in a cache only.
            let authority = self.entry(state.region).authority();
            let record = self.record_of(operation);
            let stamp = self.regions.last_done(record, authority.index());
            if self.legs[authority.index()].flushed < stamp {
                self.want_flush(authority, stamp);
                return false;
            }
            self.operations[operation].rewrites_lost = true;
        }
        let waits = self.regions.rewrites_wait(self.record_of(operation));
        if !self.fits_in_lost_list(state.extent) || waits {
            return false;
        }
        self.rewrite_lost(operation);
        let authority = self.entry(state.region).authority();
        if self.regions.metadata().knows_lost(authority) {
            return true;
        }
        self.request_lost_list(authority);
        false
    }

    /// Whether the volume's policy lets a safe write be acknowledged now.
    fn policy_allows(&mut self, operation: u32) -> bool {
        let state = self.operations[operation];
        // A leg it was not sent to owes the whole region, and is not waited for; one that
        // failed it owes it, or the region.
        let sent = state.in_flight | state.owed;
        let missing = |engine: &Self, except: Option<usize>| {
            engine
                .in_legs()
                .any(|leg| Some(leg.index.index()) != except && sent & leg.index.bit() != 0)
        };
        match self.settings.policy {
            Policy::First => true,
            Policy::All => !missing(self, None),
            Policy::WriteBehind => {
                let slow = usize::from(self.settings.slow_leg);
                let leg = &self.legs[slow];
                let behind = leg.debts.len() as u32 + leg.writes_in_flight;
                let except = (behind <= self.settings.write_behind_limit).then_some(slow);
                !missing(self, except)
            }
            Policy::Paper => !missing(self, None) || self.is_timed_out(operation),
        }
    }

    /// When the paper's rule gives up on the legs that are still missing.
    fn paper_deadline(&self, operation: u32) -> Option<Instant> {
        let state = &self.operations[operation];
        let first = state.first_done?;
        let wait = first.since(state.started) as u128
            * u128::from(self.settings.paper_wait_permille)
            / 1000;
        Some(state.started + wait as u64)
    }

    fn is_timed_out(&mut self, operation: u32) -> bool {
        if self.settings.policy != Policy::Paper {
            return false;
        }
        let timed_out =
            self.paper_deadline(operation).is_some_and(|deadline| self.clock.now() >= deadline);
        if !timed_out {
            self.look_again_in_time(operation);
        }
        timed_out
    }

    /// Returns when the authority of an operation's region has been waited for long enough, if another
    /// leg has the write. By the ledger, that is when it is later than it usually is, and at once if it
    /// is always slower than the leg that has it. Where a page has to say who takes over, its write
    /// costs what would be gained by that: then it is when the write is handed over.
    fn late_deadline(&self, operation: u32) -> Option<Instant> {
        let state = &self.operations[operation];
        let authority = self.entry(state.region).authority();
        let is_awaited = state.done != 0 && state.done & authority.bit() == 0;
        if !is_awaited || self.settings.policy != Policy::First {
            return None;
        }
        let by_ledger =
            self.regions.has_ledger() && !state.fua && !planted::is(Planted::LateAuthorityAwaited);
        let (leg, sectors) = (authority.index(), state.extent.sectors());
        let hand_over = self.hand_over_after(leg, Class::Write, sectors);
        let decides = &self.legs[leg];
        let has_it = |leg: &&Leg| state.done & leg.index.bit() != 0;
        let outpaced = decides.is_slow() && self.in_legs().filter(has_it).any(|leg| !leg.is_slow());
        let wait = match (by_ledger, outpaced) {
            (true, true) => 0,
            (true, false) => decides.late_after(sectors).min(hand_over),
            (false, _) if planted::is(Planted::LateWriteAwaited) => return None,
            (false, _) => hand_over,
        };
        Some(state.sent + wait)
    }

    /// Returns true if another leg may take over from an operation's authority, which is late.
    pub(super) fn authority_is_late(&self, operation: u32) -> bool {
        let running = self.operations[operation].stage == Stage::Running;
        running
            && self.late_deadline(operation).is_some_and(|deadline| self.clock.now() >= deadline)
    }

    fn look_again_in_time(&mut self, operation: u32) {
        if !core::mem::replace(&mut self.operations[operation].timed, true) {
            let key = self.operation_key(operation);
            self.timed.push(key);
        }
    }

    /// Returns when an operation that waits for a point in time is to be looked at again.
    fn deadline_of(&self, operation: u32) -> Option<Instant> {
        match self.settings.policy {
            Policy::Paper => self.paper_deadline(operation),
            _ => self.late_deadline(operation),
        }
    }

    pub(in crate::engine) fn timed_deadline(&self) -> Instant {
        self.timed
            .iter()
            .filter(|key| self.operations.is_live(**key))
            .filter_map(|key| self.deadline_of(key.slot))
            .min()
            .unwrap_or(Instant::NEVER)
    }

    /// Looks again at operations that have waited long enough.
    pub(in crate::engine) fn release_timed(&mut self) {
        let mut at = 0;
        while at < self.timed.len() {
            let key = self.timed[at];
            let due = !self.operations.is_live(key)
                || self.deadline_of(key.slot).is_none_or(|deadline| self.clock.now() >= deadline);
            if due {
                self.timed.swap_remove(at);
                if self.operations.is_live(key) {
                    self.operations[key.slot].timed = false;
                    self.consider_acknowledgement(key.slot);
                }
            } else {
                at += 1;
            }
        }
    }

    /// The write is safe: what legs do not have yet is from now on an acknowledged lack.
    fn acknowledge(&mut self, operation: u32, record: u32) {
        let state = self.operations[operation];
        let key = self.operation_key(operation);
        let keep_copy = self.keeps_copies();
        self.marks.add_if(state.owed != 0 && !keep_copy, Mark::CopyGivenUp);
        for leg in self.slots() {
            let bit = LegIndex(leg as u8).bit();
            let carries = state.carries & bit != 0;
            let counted = i32::from(carries);
            let forgotten = planted::is(Planted::YoungAgain);
            let since = if carries && !forgotten { state.carried_since } else { Since::REBUILD };
            if state.in_flight & bit != 0 {
                self.legs[leg].acknowledged_in_flight += state.extent.sectors();
                self.regions.adjust_lacks(record, leg, 1 - counted);
                if !since.is_rebuild() {
                    self.date_write_back(leg, key, since);
                }
            } else if state.owed & bit != 0 {
                let debts = &mut self.legs[leg].debts;
                let owes =
                    debts.acknowledge(state.extent, key, since, keep_copy, &mut self.buffers);
                if owes {
                    self.regions.adjust_lacks(record, leg, 1 - counted);
                }
            }
        }
        for leg in self.slots().filter(|leg| state.done >> leg & 1 == 1) {
            self.regions.note_acknowledged(record, leg);
        }
        self.keep_rewritten(operation);
        self.leave_region(operation, record);
        self.end_operation(operation, None);
        self.note_exposure();
    }

    /// The leg that an operation's write is in flight to has lacked an acknowledged write there
    /// since then.
    fn date_write_back(&mut self, leg: usize, key: Key, carried_since: Since) {
        let mut at = self.legs[leg].newest_io;
        while at != NONE {
            let io = &mut self.ios[at];
            if let Purpose::Write { operation, since, .. } = &mut io.purpose
                && *operation == key
            {
                *since = since.beneath(carried_since);
                return;
            }
            at = io.older;
        }
    }

    fn leave_region(&mut self, operation: u32, record: u32) {
        if self.operations[operation].timed {
            // Not left to be found: many more may come and go before a time is up.
            let key = self.operation_key(operation);
            if let Some(at) = self.timed.iter().position(|timed| *timed == key) {
                self.timed.swap_remove(at);
            }
        }
        self.regions.stop_waiting(operation, record);
        self.regions.end_operation(record, self.clock.now());
    }

    /// Whose content stands where a write failed: the authority's, unless it lost its cache
    /// and another has what was acknowledged beneath.
    fn keeper_of(&self, operation: u32, authority: LegIndex, beneath: u8) -> LegIndex {
        let state = self.operations[operation];
        let has_it = |leg: LegIndex| {
            let state_of = &self.legs[leg.index()];
            state_of.is_in()
                && !self.regions.is_stale(leg, state.region)
                && beneath & leg.bit() == 0
                && state_of.debts.overlapping(state.extent).is_none()
        };
        if has_it(authority) {
            return authority;
        }
        (0..LEGS_MAX as u8).map(LegIndex).find(|&leg| has_it(leg)).unwrap_or(authority)
    }

    /// Finds whose content stands at the beginning of an extent where a write failed: the keeper's; where
    /// that lacks what was acknowledged before, as the legs in `beneath` do, another's that has it or is
    /// being given it, be it one that is not in. Nobody's, if there is none.
    fn kept_from(&self, extent: Extent, keeper: LegIndex, beneath: u8) -> Elsewhere {
        if beneath & keeper.bit() == 0 || planted::is(Planted::FailedOverLacked) {
            return Elsewhere { sectors: extent.sectors(), held: Some((keeper, Source::Leg)) };
        }
        self.elsewhere_than(beneath, extent)
    }

    /// No leg could take it. What the legs hold there now may differ: all but the keeper owe
    /// it, from the keeper, so that reads give one answer until it is rewritten.
    fn fail_write(&mut self, operation: u32, record: u32) {
        let state = self.operations[operation];
        let authority = self.entry(state.region).authority();
        self.marks.add(Mark::WriteFailed);
        self.lose_rewritten(self.operation_key(operation));
        for leg in self.slots() {
            if state.owed & LegIndex(leg as u8).bit() != 0
                && let Some((slot, _)) = self.legs[leg].debts.overlapping(state.extent)
            {
                let debt = self.legs[leg].debts.take(slot);
                debt.source.release(&mut self.buffers);
            }
        }
        let beneath = state.carries;
        for leg in self.slots().filter(|leg| beneath >> leg & 1 == 1) {
            self.uncarry(operation, leg);
            self.regions.adjust_lacks(record, leg, -1);
        }
        let keeper = self.keeper_of(operation, authority, beneath);
        let mut rest = state.extent;
        let mut lost = false;
        while !rest.is_empty() {
            let found = self.kept_from(rest, keeper, beneath);
            lost |= found.held.is_none();
            let (from, source) = found.held.unwrap_or((keeper, Source::Leg));
            let piece = Extent::new(rest.start, found.sectors);
            rest.start = piece.end;
            self.keep(operation, piece, from, source, beneath);
        }
        if lost {
            self.report_lost_on(keeper.index(), state.region);
        }
        self.leave_region(operation, record);
        for leg in self.slots() {
            if self.legs[leg].is_member() && self.regions.slot(state.region) == Some(record) {
                self.consider_complete(record, leg);
            }
        }
        let error = if state.no_space { RequestError::NoSpace } else { RequestError::Io };
        self.end_operation(operation, Some(error));
    }

    /// Lets what one leg holds stand in a part of a write that failed: every other owes it, from a copy if
    /// that leg has not got it yet.
    fn keep(
        &mut self,
        operation: u32,
        piece: Extent,
        keeper: LegIndex,
        source: Source,
        beneath: u8,
    ) {
        let state = self.operations[operation];
        let record = self.record_of(operation);
        // What has landed there is the content from now on, and may be in the cache only.
        self.legs[keeper.index()].done_stamp += 1;
        let stamp = self.legs[keeper.index()].done_stamp;
        self.regions.note_done(record, keeper.index(), stamp);
        self.regions.note_acknowledged(record, keeper.index());
        // Room for debts is made at the cost of others', which may hold this copy.
        source.retain(&mut self.buffers);
        for leg in self.slots() {
            let index = LegIndex(leg as u8);
            let keeper = if planted::is(Planted::FailedWriteDiverges) { index } else { keeper };
            let owes = self.legs[leg].is_member() && index != keeper;
            if !owes || self.regions.is_stale(index, state.region) {
                continue;
            }
            if !self.make_room(leg, state.region) {
                self.stand_as_found(index, state.region);
                continue;
            }
            let carved = self.legs[leg].debts.carve(piece, &mut self.buffers);
            let carried = (beneath & index.bit() != 0).then_some(state.carried_since);
            let since = [carved.since, carried]
                .into_iter()
                .flatten()
                .filter(|_| !planted::is(Planted::YoungAgain))
                .fold(Since::at(self.clock.now()), Since::beneath);
            source.retain(&mut self.buffers);
            self.legs[leg].debts.add(Debt::new(piece, source, since, Key::NONE));
            self.regions.adjust_lacks(record, leg, carved.debts + 1);
        }
        source.release(&mut self.buffers);
    }
}
