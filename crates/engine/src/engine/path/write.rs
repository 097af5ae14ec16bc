//! Writing: a write goes to every leg that keeps up, becomes a debt on the others, and is
//! acknowledged at the first completion recovery would honour.

use crate::engine::Engine;
use crate::engine::state::debt::{Debt, Since, Source};
use crate::engine::state::failing::Task;
use crate::engine::state::in_flight::{Io, Purpose};
use crate::engine::state::slab::Key;
use crate::identifiers::{LEGS_MAX, LegIndex};
use crate::io::{Buffers, LegError, LegOperation, Notice, RequestError};
use crate::marks::Mark;
use crate::planted::{self, Planted};
use hemi_units::{Extent, Instant, MILLISECOND, SECTOR_BYTES};

/// A debt older than this makes its leg lagging: every write to it is then a debt.
const LAGGING_AFTER: u64 = 50 * MILLISECOND;

impl<B: Buffers> Engine<B> {
    /// A write has its range lock: find its region's record and make its intent durable.
    pub(super) fn begin_write(&mut self, operation: u32) {
        if self.life.is_marked_closed() && !planted::is(Planted::WrittenAfterClose) {
            self.end_operation(operation, Some(RequestError::ShuttingDown));
            return;
        }
        let region = self.operations[operation].region;
        self.operations.begin_intent(operation);
        let fits = self.regions.may_be_touched(region);
        let Some(record) = (if fits { self.record(region) } else { None }) else {
            self.marks.add(Mark::NoRecordFree);
            self.operations.wait_for_record(operation);
            return;
        };
        self.regions.begin_operation(record, self.clock.now());
        self.go_on_with_intent(operation);
    }

    /// Places operations that found no room for their region's record.
    pub(in crate::engine) fn place_unplaced(&mut self) {
        for _ in 0..self.operations.unplaced() {
            let Some(operation) = self.operations.next_unplaced() else { return };
            self.begin_write(operation);
        }
    }

    pub(super) fn go_on_with_intent(&mut self, operation: u32) {
        let record = self.record_of(operation);
        let durable = self.intent_is_durable(record);
        let entry = self.regions.entry(self.operations[operation].region);
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

    pub(super) fn record_of(&self, operation: u32) -> u32 {
        let region = self.operations[operation].region;
        self.regions.slot(region).expect("a region with operations has a record")
    }

    /// Sends the write to every leg, or owes it.
    fn dispatch(&mut self, operation: u32) {
        let extent = self.operations[operation].extent;
        self.operations.begin_write(operation, self.clock.now());
        if self.lost.touches(extent) {
            // Durable before the list says so, or a power cut would bring back what was there
            // before the loss.
            self.operations.rewrite_lost_durably(operation);
        }
        if self.operations[operation].fua {
            self.regions.note_fua(self.record_of(operation));
            self.flushing.note_asked(self.clock.now());
        }
        for leg in self.legs.slots() {
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
            && (!target.load.is_held(state.extent) || planted::is(Planted::OvertakenInFlight));
        if direct {
            state.source.retain(&mut self.buffers);
            let key = self.operations.key(operation);
            self.operations.send(operation, index);
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
            if target.load.is_held(state.extent) {
                let zombie = !target.answers();
                self.marks.add(if zombie { Mark::WriteOverZombie } else { Mark::WriteBehindWrite });
            }
            self.owe(operation, leg);
        }
    }

    /// Returns true if new writes to a leg go through its delay queue.
    pub(in crate::engine) fn is_lagging(&mut self, leg: usize) -> bool {
        let target = &self.legs[leg];
        let Some(since) = target.debts.oldest_since() else {
            if target.is_lagging() {
                self.set_lagging(leg, false);
            }
            return false;
        };
        let age = self.clock.now().since(since);
        let bound = if target.is_lagging() { LAGGING_AFTER / 2 } else { LAGGING_AFTER };
        if (age > bound) != target.is_lagging() {
            self.set_lagging(leg, age > bound);
        }
        self.legs[leg].is_lagging()
    }

    fn set_lagging(&mut self, leg: usize, lagging: bool) {
        self.legs[leg].note_lagging(lagging);
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
        self.legs[leg].load.hold(extent, slot);
        slot
    }

    /// A write ended on a leg. `paid`: for a drain, the sectors it was owed.
    pub(super) fn write_done(
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
                let stamp = state.stamps.complete_write();
                state.failing.note_success(Task::Write);
                if let Some(sectors) = paid {
                    state.count_drained(sectors * SECTOR_BYTES);
                }
                if let Some(record) = record {
                    if repair {
                        let flushed = self.legs[leg].stamps.flushed();
                        self.regions.note_repaired(record, leg, stamp, flushed);
                    } else {
                        self.regions.note_done(record, leg, stamp);
                    }
                    self.note_given(record, leg, io.extent);
                }
                let differed = self.differences.has(LegIndex(io.leg), io.extent);
                self.note_alike(LegIndex(io.leg), io.extent);
                io.source.release(&mut self.buffers);
                if repair {
                    self.marks.add(Mark::Repaired);
                    self.counters.repaired();
                    self.outbox.notice(Notice::Repaired {
                        leg: LegIndex(io.leg),
                        differed,
                        extent: io.extent,
                    });
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
            let index = LegIndex(io.leg);
            match result {
                Ok(()) => self.operations.land(key.slot, index, self.clock.now()),
                // The session dropped: the debt waits for the leg to come back, and so does
                // the write, if no other leg takes it.
                Err(LegError::Gone) if !self.legs[leg].watch.is_removed() => {
                    self.operations.drop_in_flight(key.slot, index);
                }
                Err(error) => self.operations.fail_on(key.slot, index, error),
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
                self.legs[leg].load.uncount_in_flight(since, io.extent.sectors());
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
            self.owe_without_room(leg, region);
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
            self.legs[leg].load.uncount_in_flight(since, io.extent.sectors());
            let source = self.copy_or_none(leg, io.extent, io.source, since.is_rebuild());
            self.owe_beneath(leg, io.extent, source, since, until, repair);
        }
    }
}
