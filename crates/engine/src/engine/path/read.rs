//! Reading: route to the fresh leg expected to answer first, split where freshness splits,
//! serve from the delay queue's buffers where no answering leg is fresh, hedge past the
//! leg's high quantile, and rewrite what a medium could not read.
//!
//! Range locks keep reads and unanswered writes apart, so everything a read can meet in
//! flight is acknowledged: a leg is fresh for what it neither owes nor has in flight.

use crate::engine::Engine;
use crate::engine::state::debt::{Debt, Since, Source};
use crate::engine::state::in_flight::{Io, Purpose};
use crate::engine::state::leg::Health;
use crate::engine::state::operations::OperationState;
use crate::engine::state::slab::Key;
use crate::identifiers::{BufferAt, LegIndex};
use crate::io::{Buffers, LegError, LegOperation, RequestError};
use crate::marks::Mark;
use crate::planted::{self, Planted};
use hemi_units::Extent;

/// The server of the beginning of an extent.
pub(in crate::engine) enum Place {
    /// This leg, for this many sectors.
    Leg(usize, u64),
    /// A debt's copy, for this many sectors.
    Copy(Source, u64),
    /// No leg that answers, but one that may: wait.
    Wait,
    /// Nothing.
    Nowhere,
}

/// The server of the beginning of an extent, and the legs that would do but for a part that they lack,
/// as a mask.
pub(super) struct Placed {
    pub(super) place: Place,
    pub(super) lacking: u8,
}

/// Second reads, and how many of them there may be.
#[derive(Default)]
pub(in crate::engine) struct Hedging {
    /// Reads that were sent to legs.
    routed: u64,
    sent: u64,
    won: u64,
}

impl Hedging {
    /// Returns true if no more hedges are to be sent but for what is late: at most `permille` of a
    /// thousand reads.
    fn is_spent(&self, permille: u32) -> bool {
        self.sent > self.routed * u64::from(permille) / 1000
    }

    /// Returns how many hedges were sent.
    pub(in crate::engine) fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns how many of them were answered first.
    pub(in crate::engine) fn won(&self) -> u64 {
        self.won
    }
}

impl<B: Buffers> Engine<B> {
    pub(super) fn begin_read(&mut self, operation: u32) {
        self.operations.begin_read(operation);
        let extent = self.operations[operation].extent;
        if self.lost.touches(extent) && !planted::is(Planted::LostServed) {
            self.marks.add(Mark::LostRead);
            self.end_operation(operation, Some(RequestError::Io));
            return;
        }
        self.hedging.routed += 1;
        self.send_read(operation);
    }

    /// Sends a read to whoever can serve it, or has it wait.
    pub(super) fn send_read(&mut self, operation: u32) {
        self.read_parts(operation, self.operations[operation].extent);
        self.finish_read_if_done(operation);
    }

    /// Sends `extent` of an operation to whoever can serve it, in pieces if need be.
    fn read_parts(&mut self, operation: u32, extent: Extent) {
        // If there was a hedge, both have failed: from now on every part is needed.
        self.operations.end_hedge(operation);
        let mut at = extent.start;
        while at < extent.end {
            let rest = Extent { start: at, end: extent.end };
            let failed = self.operations[operation].failed;
            let to = self.destination(operation, at);
            let avoid = self.requests[self.operations[operation].request].avoid;
            let placed = self.place_to_read(rest, failed, avoid);
            if placed.lacking != 0 && self.waits_for_landing(operation, rest, &placed) {
                return;
            }
            match placed.place {
                Place::Leg(leg, sectors) if self.ios.free_slots() > 0 => {
                    let part = Extent::new(at, sectors);
                    self.marks.add_if(part != rest, Mark::ReadSplit);
                    self.operations.begin_part(operation);
                    self.buffers.retain(to.buffer);
                    let key = self.operations.key(operation);
                    let purpose = Purpose::Read { operation: key };
                    let io = Io::new(leg as u8, purpose, part, Source::Buffer(to));
                    self.start_io(io, LegOperation::Read);
                    at += sectors;
                }
                Place::Copy(source, sectors) => {
                    self.marks.add(Mark::ReadFromCopy);
                    match source {
                        Source::Buffer(from) => self.buffers.copy(from, to, sectors as u32),
                        _ => self.buffers.zero(to, sectors as u32),
                    }
                    at += sectors;
                }
                Place::Leg(..) | Place::Wait => {
                    // Give the whole read up for now; it starts over when a leg comes back
                    // or at the next tick.
                    self.marks.add(Mark::ReadWaited);
                    self.operations.stall(operation);
                    return;
                }
                Place::Nowhere if self.authority_stands(rest) => {}
                Place::Nowhere => {
                    self.operations.note_unreadable(operation);
                    return;
                }
            }
        }
    }

    /// Returns where in the request's buffer a sector goes.
    fn destination(&self, operation: u32, sector: u64) -> BufferAt {
        let state = &self.operations[operation];
        match state.source.skip(sector - state.extent.start) {
            Source::Buffer(at) => at,
            _ => unreachable!("a read operation has a buffer"),
        }
    }

    /// Returns who serves the beginning of `extent`: none of the legs that have `failed`, and one of
    /// those to `avoid` only where the others have fallen silent. A read that went to a silent leg
    /// for that would be given up again at once, time after time.
    fn place_to_read(&self, extent: Extent, failed: u8, avoid: u8) -> Placed {
        let placed = self.placed(extent, failed | avoid);
        let answers = match placed.place {
            Place::Leg(leg, _) => self.legs[leg].answers(),
            Place::Copy(..) => true,
            Place::Wait | Place::Nowhere => false,
        };
        if avoid == 0 || answers { placed } else { self.placed(extent, failed) }
    }

    /// Returns who serves the beginning of `extent`, leaving out the legs in `except`.
    pub(super) fn place(&self, extent: Extent, except: u8) -> Place {
        self.placed(extent, except).place
    }

    /// Does as [`Engine::place`], and tells the legs that lack a part of `extent`.
    ///
    /// What has been recorded as lost nobody serves, though legs look fresh for it that hold
    /// something older: a read may be in flight already when its extent is lost.
    fn placed(&self, extent: Extent, except: u8) -> Placed {
        if self.lost.touches(extent) && !planted::is(Planted::LostServed) {
            return Placed { place: Place::Nowhere, lacking: 0 };
        }
        let mut lacking = 0;
        let mut best: Option<(u64, usize, u64)> = None;
        let mut partial: Option<(u64, usize)> = None;
        let mut frozen = None;
        let mut may_come = false;
        for leg in self.legs.slots() {
            let state = &self.legs[leg];
            if !state.is_member() || except & state.index.bit() != 0 {
                continue;
            }
            let fresh = self.fresh_prefix(leg, extent);
            if fresh < extent.sectors() {
                lacking |= state.index.bit();
            }
            if fresh == 0 {
                // What is in flight there may be the newest.
                let held = self.legs[leg].load.held_until(extent.start).is_some();
                may_come |= held && !self.legs[leg].watch.is_removed();
                continue;
            }
            if matches!(state.watch.health(), Health::Frozen { .. }) && !self.is_long_silent(leg) {
                frozen = Some((fresh, leg));
                continue;
            }
            if !state.answers() {
                // One that is out, and silent, is no hope where those that are in have failed.
                let hope = except == 0 || state.is_in() || !self.is_long_silent(leg);
                may_come |= hope && !self.legs[leg].watch.is_removed();
                continue;
            }
            if fresh < extent.sectors() {
                if partial.is_none_or(|(longest, _)| fresh > longest) {
                    partial = Some((fresh, leg));
                }
                continue;
            }
            let mut expected = state.expected_read(extent.sectors());
            if !state.is_trusted(self.clock.now()) {
                expected = expected.saturating_mul(8).max(1);
            }
            // Hysteresis: an earlier leg keeps the read unless this one is clearly better.
            let handicap = 100 + u64::from(self.settings.read_hysteresis_percent);
            let wins =
                best.is_none_or(|(least, _, _)| expected.saturating_mul(handicap) < least * 100);
            if wins {
                best = Some((expected, leg, fresh));
            }
        }
        let place = if let Some((_, leg, sectors)) = best {
            Place::Leg(leg, sectors)
        } else if let Some((sectors, leg)) = partial {
            Place::Leg(leg, sectors)
        } else if let Some((source, sectors)) = self.copy_of(extent) {
            Place::Copy(source, sectors)
        } else if let Some((sectors, leg)) = frozen {
            // Nobody else has it: it is worth waiting for.
            Place::Leg(leg, sectors)
        } else if may_come {
            Place::Wait
        } else {
            Place::Nowhere
        };
        Placed { place, lacking }
    }

    /// A debt that keeps the newest data of the beginning of `extent`.
    fn copy_of(&self, extent: Extent) -> Option<(Source, u64)> {
        for leg in self.legs.in_use() {
            let Some((_, debt)) = leg.debts.overlapping(extent) else { continue };
            if debt.extent.start <= extent.start && debt.source != Source::Leg {
                let sectors = debt.extent.end.min(extent.end) - extent.start;
                return Some((debt.source.skip(extent.start - debt.extent.start), sectors));
            }
        }
        None
    }

    /// Returns how many sectors from the beginning of `extent` (within one region) the leg is fresh
    /// for.
    pub(in crate::engine) fn fresh_prefix(&self, leg: usize, extent: Extent) -> u64 {
        let landed = self.landed_prefix(leg, extent);
        match self.legs[leg].load.first_held(extent) {
            Some(held) if !planted::is(Planted::ReadOvertakenLeg) => {
                landed.min(held - extent.start)
            }
            _ => landed,
        }
    }

    /// Returns how many sectors from the beginning of `extent` (within one region) the leg will be
    /// fresh for once the writes in flight to it have landed.
    pub(super) fn landed_prefix(&self, leg: usize, extent: Extent) -> u64 {
        let state = &self.legs[leg];
        if self.regions.is_stale(state.index, self.regions.of_sector(extent.start)) {
            return 0;
        }
        match state.debts.overlapping(extent) {
            Some((_, debt)) if !planted::is(Planted::ReadOwedLeg) => {
                debt.extent.start.saturating_sub(extent.start)
            }
            _ => extent.sectors(),
        }
    }

    /// A leg's read of (a part of) an operation ended.
    pub(super) fn read_done(&mut self, io: &Io, key: Key, result: Result<(), LegError>) {
        io.source.release(&mut self.buffers);
        if !self.operations.is_live(key) {
            return;
        }
        let operation = key.slot;
        self.operations.end_part(operation);
        if let Err(error) = result {
            self.note_read_failed(operation, io, error);
            if !self.operations[operation].hedged || self.operations[operation].parts == 0 {
                self.marks.add(Mark::ReadRetried);
                self.read_parts(operation, io.extent);
            }
        } else {
            if self.operations[operation].hedged {
                self.abandon_reads_of(key);
            }
            self.repair_after(operation, io);
        }
        self.finish_read_if_done(operation);
    }

    /// A hedge ended: if it is first, its buffer takes the place of the request's.
    pub(super) fn hedge_done(&mut self, io: &Io, key: Key, result: Result<(), LegError>) {
        if !self.operations.is_live(key) {
            io.source.release(&mut self.buffers);
            return;
        }
        let operation = key.slot;
        self.operations.end_part(operation);
        if let Err(error) = result {
            io.source.release(&mut self.buffers);
            self.note_read_failed(operation, io, error);
            if self.operations[operation].parts == 0 {
                self.read_parts(operation, io.extent);
            }
            self.finish_read_if_done(operation);
            return;
        }
        self.hedging.won += 1;
        self.marks.add(Mark::HedgeWon);
        self.abandon_reads_of(key);
        let request = self.operations[operation].request;
        let fresh = io.buffer().expect("a hedge has a buffer");
        if let Some(old) = self.requests.replace_buffer(request, fresh.buffer) {
            self.buffers.release(old);
        }
        self.operations.replace_source(operation, io.source);
        self.repair_after(operation, io);
        self.finish_read_if_done(operation);
    }

    /// The leg is not asked for this operation again, unless only its session dropped: that
    /// says nothing of what it holds.
    fn note_read_failed(&mut self, operation: u32, io: &Io, error: LegError) {
        if error != LegError::Gone || self.legs[usize::from(io.leg)].watch.is_removed() {
            self.operations.note_read_failed(operation, LegIndex(io.leg));
        }
    }

    pub(super) fn finish_read_if_done(&mut self, operation: u32) {
        let state = self.operations[operation];
        if state.parts > 0 || self.awaits_landing(operation) {
            return;
        }
        if state.unreadable {
            self.end_operation(operation, Some(RequestError::Io));
        } else {
            if state.given_up {
                self.requests.give_up(state.request, state.stalled);
            }
            self.end_operation(operation, None);
        }
    }

    /// After another leg answered: what a medium could not read is owed to its leg, with the
    /// data just read.
    fn repair_after(&mut self, operation: u32, io: &Io) {
        let OperationState { failed, unreadable, .. } = self.operations[operation];
        if failed == 0 || unreadable {
            return;
        }
        for leg in self.legs.slots() {
            if failed & LegIndex(leg as u8).bit() != 0 && self.legs[leg].answers() {
                self.owe_for_repair(leg, io.extent);
            }
        }
        self.operations.forget_failed(operation);
    }

    /// Owes a leg what its medium could not read, or what scrub found wrong there, to be
    /// rewritten from a fresh leg. Where that leg is the authority it has to stop being so
    /// first: recovery must not choose a leg that cannot read what it holds. Returns false if it is
    /// not owed now.
    pub(in crate::engine) fn owe_for_repair(&mut self, leg: usize, extent: Extent) -> bool {
        let region = self.regions.of_sector(extent.start);
        let index = LegIndex(leg as u8);
        if self.fresh_prefix(leg, extent) < extent.sectors() || !self.legs[leg].debts.has_room(2) {
            return false;
        }
        if self.changes.is_going_out(index) && !planted::is(Planted::RepairedOnTheWayOut) {
            // It has been made whole for the last time.
            return false;
        }
        if self.drain_source(leg, extent).is_none_or(|(_, sectors)| sectors < extent.sectors()) {
            return false;
        }
        let Some(record) = self.record(region) else { return false };
        let decided = self.regions.is_touched(region) || self.is_whole_beside(index, region);
        if !decided {
            // Nobody else is recorded whole yet, or who is is leaving; a read after that repairs it.
            self.retire_record(record);
            return false;
        }
        if self.regions.decides(index, region) {
            // The next read that meets the error finds the authority elsewhere.
            self.marks.add(Mark::RepairMovedAuthority);
            self.regions.force_move(record);
            return false;
        }
        // No writer made it, and none is held back for it: it is of no age, like a rebuild.
        let mut debt = Debt::new(extent, Source::Leg, Since::REBUILD, Key::NONE);
        debt.repair = true;
        self.begin_rebuilding(leg, record);
        self.legs[leg].debts.add(debt);
        self.regions.adjust_lacks(record, leg, 1);
        true
    }

    /// Asks a second leg, if that is likely to answer before the first would; or if the first is
    /// `late`, which no budget bounds: what is late is rare, or the leg is read no more.
    pub(in crate::engine) fn consider_hedge(&mut self, slot: u32, late: bool) {
        let io = self.ios[slot];
        let Purpose::Read { operation: key } = io.purpose else { return };
        let Some(state) = self.operations.get(key) else { return };
        let request = self.requests[state.request];
        let whole = state.extent == request.extent && io.extent == state.extent;
        let spent = self.hedging.is_spent(self.settings.hedge_permille) && !late;
        if state.hedged || !whole || spent || self.ios.free_slots() == 0 {
            return;
        }
        let first = LegIndex(io.leg);
        let Place::Leg(other, sectors) = self.place(io.extent, first.bit() | state.failed) else {
            return;
        };
        let leg = &self.legs[usize::from(io.leg)];
        let remaining = leg
            .pace
            .wait_limit(crate::engine::state::leg::Class::Read, io.extent.sectors())
            .saturating_sub(self.clock.now().since(io.submitted));
        let expected = self.legs[other].expected_read(io.extent.sectors());
        if sectors < io.extent.sectors() || expected >= remaining && !late {
            return;
        }
        self.send_hedge(other, io.extent, key);
    }

    /// Asks a leg for a read that is in flight already, if there is memory for it.
    pub(super) fn send_hedge(&mut self, leg: usize, extent: Extent, key: Key) {
        if self.ios.free_slots() == 0 {
            return;
        }
        let Some(buffer) = self.buffers.allocate(extent.sectors() as u32) else { return };
        self.hedging.sent += 1;
        self.marks.add(Mark::HedgeSent);
        self.operations.begin_hedge(key.slot);
        let source = Source::Buffer(BufferAt { buffer, offset: 0 });
        let hedge = Io::new(leg as u8, Purpose::Hedge { operation: key }, extent, source);
        self.start_io(hedge, LegOperation::Read);
    }

    /// The longest beginning of `extent` with one set of fresh legs, and that set as a mask.
    /// A debt's copy in memory counts for no leg.
    pub fn copies(&self, extent: Extent) -> (Extent, u8) {
        let region = self.regions.of_sector(extent.start);
        let within = extent.intersection(self.regions.extent(region));
        let mut mask = 0;
        let mut end = within.end;
        for leg in self.legs.slots() {
            if !self.legs[leg].is_member() {
                continue;
            }
            let fresh = self.fresh_prefix(leg, within);
            if fresh > 0 {
                mask |= LegIndex(leg as u8).bit();
                end = end.min(within.start + fresh);
            } else {
                end = end.min(self.stale_until(leg, within));
            }
        }
        (Extent { start: within.start, end }, mask)
    }

    /// Returns where, within `extent`, a leg that is stale at its beginning may be fresh again.
    fn stale_until(&self, leg: usize, extent: Extent) -> u64 {
        let state = &self.legs[leg];
        if self.regions.is_stale(state.index, self.regions.of_sector(extent.start)) {
            return extent.end;
        }
        let debt = state.debts.overlapping(extent).filter(|(_, d)| d.extent.start <= extent.start);
        let owed = debt.map_or(extent.start, |(_, d)| d.extent.end);
        let held = state.load.held_until(extent.start).unwrap_or(extent.start);
        owed.max(held).clamp(extent.start + 1, extent.end)
    }
}
