//! Paying debts: coalesced, in sector order, yielding to clients with a share that rises
//! with exposure.
//!
//! Debts somebody waits for go first, then those of a region that another leg's silence
//! makes urgent, then the oldest when age nears its bound, then a sweep in sector order. The
//! oldest gets a share beside those that go first: a leg for which somebody always waits would
//! else never get to it.
//! A debt without a copy is read from a fresh leg first; its range is held on the owing leg
//! from that read to the write, so that a newer write to it becomes a newer debt behind it.

use crate::engine::Engine;
use crate::engine::state::debt::{Debt, Since, Source};
use crate::engine::state::in_flight::{Io, Purpose};
use crate::engine::state::leg::Leg;
use crate::engine::state::slab::Key;
use crate::identifiers::{BufferAt, LEGS_MAX, LegIndex};
use crate::io::{Buffers, LegError, LegOperation};
use crate::marks::Mark;
use crate::planted::{self, Planted};
use hemi_units::{Extent, Instant, MILLISECOND, SECOND, SECTOR_BYTES};

/// Exposure from which owed regions yield to newer debts …
const PRESSED_PERMILLE: u64 = 500;
/// … and how often one is taken up all the same.
const REGION_INTERVAL: u64 = SECOND / 2;
/// Of so many debts paid one is the oldest, once its age is past half the bound …
const SHARE_AT_HALF: u32 = 8;
/// … and past the bound, whoever waits.
const SHARE_AT_BOUND: u32 = 2;
/// A leg on probation gets this many drain I/Os at once.
const PROBATION_WINDOW: u32 = 4;
/// Clients use the volume while one has asked for data, or got an answer, within this time.
const IN_USE: u64 = SECOND / 10;
/// Those whose server was killed return within this time of the next start. Comparing that fills the legs'
/// windows meanwhile would hold up the first of them.
const EXPECTED: u64 = SECOND;
/// A debt without a fresh leg to read it from is looked at again after this.
const SOURCE_RETRY: u64 = 50 * MILLISECOND;

/// Clients whom drains yield to.
pub(in crate::engine) struct Yielding {
    /// They use the volume, or are expected to, until then.
    used_until: Instant,
}

impl Yielding {
    /// A volume opens, and its clients are expected.
    pub(in crate::engine) fn new(now: Instant) -> Yielding {
        let expected = if planted::is(Planted::ClientsUnexpected) { 0 } else { EXPECTED };
        Yielding { used_until: now + expected }
    }

    /// Notes that a client asks for data, or gets an answer.
    pub(in crate::engine) fn note_use(&mut self, now: Instant) {
        self.used_until = self.used_until.max(now + IN_USE);
    }

    fn is_in_use(&self, now: Instant) -> bool {
        now <= self.used_until
    }
}

/// Whether a debt can be paid now: not put off, and nothing overlapping in flight.
fn can_go(leg: &Leg, debt: &Debt, now: Instant) -> bool {
    debt.not_before <= now
        && (!leg.load.is_held(debt.extent) || planted::is(Planted::DrainOverZombie))
}

impl<B: Buffers> Engine<B> {
    pub(in crate::engine) fn pump_drain(&mut self, leg: usize) {
        if self.legs[leg].load.writes() < self.drain_window(leg) {
            self.take_up_regions(leg);
        }
        while self.ios.free_slots() > LEGS_MAX
            && self.legs[leg].load.writes() < self.drain_window(leg)
            && self.legs[leg].has_window_for(0, &self.settings)
        {
            // Reads for it may be with a leg that stopped answering: they keep further reads
            // from being started, and nobody who waits from being served.
            let next = if self.has_room_for_background(leg) && self.has_room_to_read(leg) {
                self.next_debt(leg)
            } else {
                self.next_urgent(leg)
            };
            let Some(slot) = next else {
                let waits = !self.legs[leg].debts.is_empty() && self.legs[leg].load.writes() > 0;
                self.marks.add_if(waits, Mark::DrainHeld);
                return;
            };
            if !self.pay(leg, slot) {
                return;
            }
        }
    }

    /// Writes in flight up to which drains are started.
    fn drain_window(&self, leg: usize) -> u32 {
        let state = &self.legs[leg];
        let window = state.window.size();
        if state.debts.urgent() > 0 {
            return window;
        }
        // Those of comparisons are the drain's own.
        let reads = state.load.reads_but_compares();
        if reads > 0 && planted::is(Planted::DrainYieldsToReads) {
            return 0;
        }
        if state.watch.is_on_probation(self.clock.now()) {
            return PROBATION_WINDOW.min(window);
        }
        if reads == 0 { window } else { self.background_window(leg) }
    }

    /// Writes in flight up to which debts that nobody waits for are paid beside clients who use the leg:
    /// a quarter of the window, all of it at the bound.
    fn background_window(&self, leg: usize) -> u32 {
        let share = self.pressure_permille().clamp(250, 1000);
        (u64::from(self.legs[leg].window.size()) * share / 1000).max(1) as u32
    }

    /// Returns false if debts that nobody waits for would hold up clients: every request needs this leg
    /// because no other answers.
    fn has_room_for_background(&self, leg: usize) -> bool {
        let in_use = self.requests.len() > 0 || self.yielding.is_in_use(self.clock.now());
        let is_needed = in_use && !self.another_answers(leg);
        !is_needed
            || self.legs[leg].load.writes() < self.background_window(leg)
            || planted::is(Planted::DrainFillsWindow)
    }

    /// Returns true if a leg owes something and is given no more for as long as it does not complete
    /// some of what it has in flight.
    pub(super) fn is_held_back_by_window(&self, leg: usize) -> bool {
        let state = &self.legs[leg];
        state.answers()
            && !state.watch.is_on_probation(self.clock.now())
            && !state.debts.is_empty()
            && state.load.writes() >= self.drain_window(leg)
    }

    /// Whether, beside what is under way for the leg, more may be read for it.
    fn has_room_to_read(&self, leg: usize) -> bool {
        let state = &self.legs[leg];
        let (in_hand, bytes) = state.load.in_hand();
        in_hand < self.drain_window(leg) && bytes < self.settings.leg_window_bytes
    }

    /// Turns regions owed as a whole into exact debts, where the sweep stands, enough to keep
    /// the window full. Under pressure from newer debts they still get a share: one in so
    /// much time.
    fn take_up_regions(&mut self, leg: usize) {
        let index = LegIndex(leg as u8);
        let enough = u64::from(self.settings.leg_window) * u64::from(self.settings.drain_bytes);
        for _ in 0..self.settings.leg_window {
            let state = &self.legs[leg];
            // What has been taken up may wait for a leg that is silent: it holds up no other.
            let held_up = planted::is(Planted::RebuildHeldUp);
            let payable = match held_up {
                true => state.debts.rebuild_bytes(),
                false => state.debts.payable_rebuild_bytes(),
            };
            if self.regions.stale_count(index) == 0
                || state.draining.rebuilding() > 0 && payable >= enough
                || !state.debts.has_room(self.settings.limits.region_pieces)
            {
                return;
            }
            let pressed = self.pressure_permille() >= PRESSED_PERMILLE;
            let waits_alone = payable == 0 && state.debts.rebuild_bytes() > 0;
            let under_way =
                state.draining.rebuilding() > 0 && (!waits_alone || state.load.rebuild() > 0);
            if pressed
                && (under_way || state.draining.took_up_within(REGION_INTERVAL, self.clock.now()))
            {
                return;
            }
            let Some(region) = self.next_region_owed(leg) else { return };
            let Some(record) = self.record(region) else { return };
            // Writes still out on it are held; what they cover is paid after them. Operations
            // not yet acknowledged were not sent to this leg: they are in the debt, which is
            // read from a fresh leg after they are on it.
            let extent = self.regions.extent(region);
            self.legs[leg].draining.note_taken_up(self.clock.now());
            self.begin_rebuilding(leg, record);
            self.regions.clear_stale(index, region);
            let mut debt = Debt::new(extent, Source::Leg, Since::REBUILD, Key::NONE);
            debt.compare = self.regions.take_comparable(index, region);
            self.legs[leg].debts.add(debt);
            self.regions.adjust_lacks(record, leg, 1);
        }
    }

    /// Returns the region to rebuild next: one that somebody waits for, else by the sweep. What only
    /// silent legs have is passed over.
    fn next_region_owed(&mut self, leg: usize) -> Option<u32> {
        let index = LegIndex(leg as u8);
        let waited_for = self
            .regions
            .regions_to_move(self.settings.limits.moves_looked_at)
            .find(|&region| self.regions.is_stale(index, region) && self.has_source(leg, region));
        if waited_for.is_some() {
            return waited_for;
        }
        let mut from = self.regions.of_sector(self.legs[leg].draining.cursor());
        for _ in 0..self.settings.limits.sweep_skips {
            let next = self.regions.next_stale(index, from);
            let region = next.or_else(|| self.regions.next_stale(index, 0))?;
            if self.has_source(leg, region) {
                return Some(region);
            }
            from = region + 1;
        }
        self.legs[leg]
            .draining
            .go_on_from(self.regions.extent(from.min(self.regions.count() - 1)).start);
        None
    }

    /// Returns true if a leg that answers may have something of a region that another owes. What an
    /// authority owes is looked at in any case: if nobody has it, it stands as found.
    fn has_source(&self, leg: usize, region: u32) -> bool {
        let decides = self.regions.decides(LegIndex(leg as u8), region);
        decides
            || planted::is(Planted::RebuildHeldUp)
            || self.legs.slots().any(|other| {
                let state = &self.legs[other];
                other != leg
                    && state.is_member()
                    && state.answers()
                    && !self.regions.is_stale(state.index, region)
            })
    }

    pub(in crate::engine) fn begin_rebuilding(&mut self, leg: usize, record: u32) {
        if self.regions.set_rebuilding(record, leg, true) {
            self.legs[leg].draining.begin_rebuilding();
        }
    }

    /// A region is no longer being rebuilt for a leg: it is complete, or owed whole again.
    pub(in crate::engine) fn end_rebuilding(&mut self, leg: usize, record: u32) {
        if self.regions.set_rebuilding(record, leg, false) {
            self.legs[leg].draining.end_rebuilding();
        }
    }

    /// Gives a region's record back if nothing needs it. A debt of a rebuild may have been
    /// superseded by a client's write: with the last lack gone the rebuild is over, too.
    pub(in crate::engine) fn retire_record(&mut self, record: u32) {
        for leg in self.legs.slots() {
            if self.regions.lacks(record, leg) == 0 {
                self.end_rebuilding(leg, record);
            }
        }
        self.regions.retire(record);
    }

    /// The next debt somebody waits for, in order of arrival.
    fn next_urgent(&self, leg: usize) -> Option<u32> {
        let state = &self.legs[leg];
        if state.debts.urgent() == 0 {
            return None;
        }
        let now = self.clock.now();
        let can_go = |debt: &Debt| can_go(state, debt, now);
        let looked_at = self.settings.limits.urgent_looked_at;
        state.debts.oldest_urgent_where(looked_at, can_go).map(|(slot, _)| slot)
    }

    /// The next debt to pay, by the order above.
    fn next_debt(&mut self, leg: usize) -> Option<u32> {
        let pressing = self.next_urgent(leg).or_else(|| self.next_to_move(leg));
        let old = self.next_old(leg);
        let starves = planted::is(Planted::OldDebtsStarve);
        if let (Some(pressing), Some((old, share)), false) = (pressing, old, starves) {
            let is_turn = self.legs[leg].draining.is_turn_of_old(share);
            return Some(if is_turn { old } else { pressing });
        }
        pressing.or(old.map(|(slot, _)| slot)).or_else(|| self.next_in_order(leg))
    }

    /// Returns the next debt of the sweep that can go. If none can, as far as it looks, the sweep goes on
    /// from there the next time: behind debts that wait for memory may be those whose copies take it up.
    fn next_in_order(&mut self, leg: usize) -> Option<u32> {
        let state = &self.legs[leg];
        let looked_at = state.debts.len().min(2 * self.settings.limits.sweep_skips);
        let mut at = state.draining.cursor();
        for _ in 0..looked_at {
            let (slot, debt) =
                state.debts.first_after(at).or_else(|| state.debts.first_after(0))?;
            if can_go(state, &debt, self.clock.now()) {
                return Some(slot);
            }
            at = debt.extent.end;
        }
        self.legs[leg].draining.go_on_from(at);
        None
    }

    /// The first debt of a region that is to get another authority.
    fn next_to_move(&self, leg: usize) -> Option<u32> {
        if planted::is(Planted::MovesLast) {
            return None;
        }
        let mut to_move = self.regions.regions_to_move(self.settings.limits.moves_looked_at);
        to_move.find_map(|region| {
            let extent = self.regions.extent(region);
            self.payable_from(leg, extent.start, extent.end)
        })
    }

    /// The oldest debt, once its age nears the bound, and out of how many it is to be one.
    fn next_old(&self, leg: usize) -> Option<(u32, u32)> {
        let (state, now) = (&self.legs[leg], self.clock.now());
        let (bound, half) = (self.settings.exposure_age, self.settings.exposure_age / 2);
        if state.debts.oldest_since().is_none_or(|since| now.since(since) <= half) {
            return None;
        }
        let wanted = |debt: &Debt| now.since(debt.since.arrived) > half && can_go(state, debt, now);
        let (slot, debt) =
            state.debts.oldest_where(self.settings.limits.oldest_looked_at, wanted)?;
        let share =
            if now.since(debt.since.arrived) > bound { SHARE_AT_BOUND } else { SHARE_AT_HALF };
        Some((slot, share))
    }

    /// The first debt between two sectors that can go now.
    fn payable_from(&self, leg: usize, from: u64, to: u64) -> Option<u32> {
        let state = &self.legs[leg];
        let mut at = from;
        for _ in 0..self.settings.limits.sweep_skips {
            let (slot, debt) = state.debts.first_after(at)?;
            if debt.extent.start >= to {
                return None;
            }
            if can_go(state, &debt, self.clock.now()) {
                return Some(slot);
            }
            at = debt.extent.end;
        }
        None
    }

    /// Starts paying a debt; whether something was started.
    fn pay(&mut self, leg: usize, slot: u32) -> bool {
        let Some((_, first)) = self.legs[leg].debts.by_slot(slot) else { return false };
        if !first.is_acknowledged() {
            self.legs[leg].draining.go_on_from(first.extent.end);
            let debt = self.legs[leg].debts.take(slot);
            let key = debt.operation;
            let index = LegIndex(leg as u8);
            let fua = self.operations.get(key).is_some_and(|state| state.fua)
                && !planted::is(Planted::FuaDropped);
            if self.operations.is_live(key) {
                self.operations.unowe(key.slot, index);
                self.operations.send(key.slot, index);
            }
            self.start_write(leg, debt.extent, debt.source, key, fua, debt.since, true, false);
            return true;
        }
        if let Some(started) = self.pay_sieved(leg, &first) {
            return started;
        }
        match first.source {
            Source::Leg => self.pay_from_leg(leg, slot),
            _ => self.pay_from_copy(leg, slot),
        }
    }

    pub(super) fn count_drain(&mut self, leg: usize, since: Since, sectors: u64) {
        self.legs[leg].load.count_in_flight(since, sectors);
        self.legs[leg].count_drain_io();
    }

    /// Pays a debt that has its data, together with those that follow without a gap.
    fn pay_from_copy(&mut self, leg: usize, slot: u32) -> bool {
        let Some((_, first)) = self.legs[leg].debts.by_slot(slot) else { return false };
        self.legs[leg].draining.go_on_from(first.extent.end);
        let limit = u64::from(self.settings.drain_bytes) / SECTOR_BYTES;
        let run = self.run_after(leg, &first, limit);
        let region = self.regions.of_sector(first.extent.start);
        let record = self.regions.slot(region).expect("a region with debts has a record");
        let sectors = run.sectors();
        let gathered =
            if sectors > first.extent.sectors() && matches!(first.source, Source::Buffer(_)) {
                self.buffers.allocate(sectors as u32)
            } else {
                None
            };
        let Some(buffer) = gathered else {
            let (debt, split) =
                self.legs[leg].debts.take_front(slot, limit.max(1), &mut self.buffers);
            self.regions.adjust_lacks(record, leg, i32::from(split));
            self.count_drain(leg, debt.since, debt.extent.sectors());
            let none = Key::NONE;
            let (extent, repair) = (debt.extent, debt.repair);
            self.start_write(leg, extent, debt.source, none, false, debt.since, true, repair);
            return true;
        };
        self.marks.add(Mark::DebtsGathered);
        let mut since = first.since;
        let mut taken = 0;
        while let Some((next, _)) = self.legs[leg].debts.overlapping(run) {
            let debt = self.legs[leg].debts.take(next);
            since = since.or(debt.since);
            taken += 1;
            let offset = (debt.extent.start - run.start) as u32;
            let to = BufferAt { buffer, offset };
            if let Source::Buffer(from) = debt.source {
                self.buffers.copy(from, to, debt.extent.sectors() as u32);
            }
            debt.source.release(&mut self.buffers);
        }
        self.regions.adjust_lacks(record, leg, 1 - taken);
        self.count_drain(leg, since, sectors);
        let source = Source::Buffer(BufferAt { buffer, offset: 0 });
        self.start_write(leg, run, source, Key::NONE, false, since, true, false);
        true
    }

    /// The extent of a debt and those that follow it without a gap, all with their data in
    /// buffers, within one region, up to `limit` sectors. What is owed anyway and what was
    /// written since do not go together: one write would count as exposure, or not, as a whole.
    fn run_after(&self, leg: usize, first: &Debt, limit: u64) -> Extent {
        let mut run = first.extent;
        let region_end = self.regions.extent(self.regions.of_sector(run.start)).end;
        while run.end < region_end {
            let Some((_, next)) = self.legs[leg].debts.overlapping(Extent::new(run.end, 1)) else {
                break;
            };
            let joins = next.extent.start == run.end
                && next.is_acknowledged()
                && next.is_rebuild() == first.is_rebuild()
                && matches!(next.source, Source::Buffer(_))
                && next.not_before <= self.clock.now()
                && next.extent.end - run.start <= limit
                && !self.legs[leg].load.is_held(next.extent);
            if !joins {
                break;
            }
            run.end = next.extent.end;
        }
        run
    }

    /// Starts the read half of a debt without a copy.
    fn pay_from_leg(&mut self, leg: usize, slot: u32) -> bool {
        let Some((_, first)) = self.legs[leg].debts.by_slot(slot) else { return false };
        let limit = u64::from(self.settings.drain_bytes) / SECTOR_BYTES;
        let wanted = Extent {
            start: first.extent.start,
            end: first.extent.end.min(first.extent.start + limit),
        };
        if self.is_written_off(leg, first.extent, first.tries) {
            self.write_off(leg, slot);
            return true;
        }
        let source = if first.tries == 0 {
            self.drain_source(leg, wanted)
        } else {
            self.next_source(leg, wanted, first.tries).map(|from| (from, wanted.sectors()))
        };
        let buffer = match source {
            Some((_, sectors)) => self.buffers.allocate(sectors as u32),
            None => None,
        };
        let (Some((from, sectors)), Some(buffer)) = (source, buffer) else {
            if source.is_none() && self.stands_as_found(leg, first.extent) {
                return true;
            }
            let until = self.clock.now() + SOURCE_RETRY;
            self.legs[leg].debts.postpone(slot, until, source.is_none());
            if source.is_some() {
                self.copies.note_short();
            }
            return true;
        };
        let region = self.regions.of_sector(first.extent.start);
        if self.yields_to_clients(from, region) {
            self.buffers.release(buffer);
            return false;
        }
        // Only now: what was put off is no place to sweep on from.
        self.legs[leg].draining.go_on_from(first.extent.end);
        let record = self.regions.slot(region).expect("a region with debts has a record");
        let (debt, split) = self.legs[leg].debts.take_front(slot, sectors, &mut self.buffers);
        self.regions.adjust_lacks(record, leg, i32::from(split));
        self.count_drain(leg, debt.since, debt.extent.sectors());
        let target = leg as u8;
        let purpose = Purpose::DrainRead {
            target,
            since: debt.since,
            repair: debt.repair,
            tries: debt.tries,
            compare: debt.compare,
        };
        let data = Source::Buffer(BufferAt { buffer, offset: 0 });
        let io = Io::new(from as u8, purpose, debt.extent, data);
        let read = self.start_io(io, LegOperation::Read);
        if !planted::is(Planted::DrainOverDirectWrite) {
            self.legs[leg].load.hold(debt.extent, read);
        }
        self.legs[leg].load.begin_drain_read(io.payload_sectors());
        self.marks.add(Mark::DebtReadFromLeg);
        true
    }

    /// Returns true if what is owed in a region is not to be read from a leg at present: clients use the
    /// volume or are expected to, nobody waits for the region, and as much is being read there for
    /// drains as clients can bear. That is one read at a time; more, up to the window, as exposure nears its bound.
    pub(super) fn yields_to_clients(&self, from: usize, region: u32) -> bool {
        if !self.yielding.is_in_use(self.clock.now()) || planted::is(Planted::DrainFloodsSource) {
            return false;
        }
        let looked_at = self.settings.limits.moves_looked_at;
        if self.regions.regions_to_move(looked_at).any(|other| other == region) {
            return false;
        }
        let share = u64::from(self.settings.leg_window) * self.pressure_permille().min(1000) / 1000;
        let mut left = 1 + share;
        for (_, io) in self.ios.on(from) {
            left -= u64::from(matches!(
                io.purpose,
                Purpose::DrainRead { .. } | Purpose::LateRead { .. } | Purpose::Sieve { .. }
            ));
            if left == 0 {
                break;
            }
        }
        left == 0
    }

    /// The leg to read a debt from: answering, fresh for its beginning; the least loaded.
    pub(in crate::engine) fn drain_source(
        &self,
        leg: usize,
        wanted: Extent,
    ) -> Option<(usize, u64)> {
        self.legs
            .slots()
            .filter(|&other| other != leg && self.legs[other].is_member())
            .filter(|&other| self.legs[other].answers())
            .map(|other| (other, self.fresh_prefix(other, wanted)))
            .filter(|(_, sectors)| *sectors > 0)
            .min_by_key(|(other, sectors)| {
                (*sectors < wanted.sectors(), self.legs[*other].expected_read(*sectors))
            })
    }

    /// The read half ended: write, keeping the range held.
    pub(in crate::engine) fn drain_read_done(
        &mut self,
        slot: u32,
        io: &Io,
        result: Result<(), LegError>,
    ) {
        let Purpose::DrainRead { target, since, repair, tries, compare } = io.purpose else {
            return;
        };
        let leg = usize::from(target);
        self.end_drain_read(slot, io, leg);
        let region = self.regions.of_sector(io.extent.start);
        let means_something =
            self.legs[leg].is_member() && !self.regions.is_stale(LegIndex(target), region);
        if means_something {
            let overtaken = self.legs[leg].debts.overlapping(io.extent).is_some();
            self.marks.add_if(overtaken, Mark::DrainOvertaken);
            if result.is_ok() && self.legs[leg].answers() && self.ios.free_slots() > 1 {
                if compare && self.begin_compare(leg, io, since) {
                    return;
                }
                // Rewriting is what repairs: there zeros are written, too.
                let source = if repair { io.source } else { self.zeros_or(leg, io) };
                self.start_write(leg, io.extent, source, Key::NONE, false, since, true, repair);
                return;
            }
        }
        io.source.release(&mut self.buffers);
        match result {
            Err(LegError::Media | LegError::Other) if means_something => {
                self.legs[leg].load.uncount_in_flight(since, io.extent.sectors());
                self.owe_unread(leg, io.extent, since, repair, tries);
            }
            _ => self.owe_again(leg, io.extent, since, repair),
        }
    }

    /// Gives up a drain's read. The debt is owed again, to be read from whoever answers. A leg that
    /// always takes longer than its wait limit may be all there is: so, unless `is_void`, the read
    /// pays the debt if nobody has by the time it ends.
    pub(in crate::engine) fn give_up_drain_read(&mut self, slot: u32, is_void: bool) {
        let io = self.ios[slot];
        let Purpose::DrainRead { target, since, repair, .. } = io.purpose else { return };
        let leg = usize::from(target);
        self.marks.add(Mark::DrainReadGivenUp);
        self.ios.abandon(slot);
        self.end_drain_read(slot, &io, leg);
        // What is owed there is newer than the read.
        let overtaken = self.legs[leg].debts.overlapping(io.extent).is_some();
        self.owe_again(leg, io.extent, since, repair);
        let debt = self.legs[leg].debts.named(io.extent);
        if let Some(debt) = debt.filter(|_| !is_void && !overtaken) {
            self.ios.let_pay(slot, target, debt);
        }
    }

    /// A read that was given up has ended: it pays its debt, if that is still there. Whatever has
    /// been written to the extent since would have taken the debt's place.
    pub(in crate::engine) fn late_read_done(&mut self, io: &Io, result: Result<(), LegError>) {
        let Purpose::LateRead { target, debt } = io.purpose else { return };
        let leg = usize::from(target);
        let slot = self.legs[leg].debts.by_name(debt, io.extent);
        let Some(slot) = slot.filter(|_| {
            let state = &self.legs[leg];
            result.is_ok()
                && state.is_member()
                && state.answers()
                && !state.load.is_held(io.extent)
                && self.ios.free_slots() > 1
        }) else {
            io.source.release(&mut self.buffers);
            return;
        };
        let paid = self.legs[leg].debts.take(slot);
        self.count_drain(leg, paid.since, paid.extent.sectors());
        self.marks.add(Mark::LateReadPaid);
        let source = if paid.repair { io.source } else { self.zeros_or(leg, io) };
        let none = Key::NONE;
        self.start_write(leg, io.extent, source, none, false, paid.since, true, paid.repair);
    }

    fn end_drain_read(&mut self, slot: u32, io: &Io, leg: usize) {
        self.legs[leg].load.unhold(slot);
        self.legs[leg].load.end_drain_read(io.payload_sectors());
    }

    /// Owes a leg again what was being read for it, without a copy and beneath anything newer;
    /// nothing if it owes the whole region by now.
    pub(super) fn owe_again(&mut self, leg: usize, extent: Extent, since: Since, repair: bool) {
        self.legs[leg].load.uncount_in_flight(since, extent.sectors());
        let region = self.regions.of_sector(extent.start);
        if self.regions.is_stale(LegIndex(leg as u8), region) || !self.legs[leg].is_member() {
            self.marks.add(Mark::DrainReadVoid);
            if let Some(record) = self.regions.slot(region) {
                self.regions.adjust_lacks(record, leg, -1);
                self.consider_complete(record, leg);
            }
            return;
        }
        let until = self.clock.now() + SOURCE_RETRY;
        self.owe_beneath(leg, extent, Source::Leg, since, until, repair);
    }

    /// What was read for a leg, or zeros without a buffer where it is zeros and the leg makes
    /// them fast: what no client ever wrote costs a rebuild no write, and a sparse file nothing.
    pub(super) fn zeros_or(&mut self, leg: usize, read: &Io) -> Source {
        let Source::Buffer(at) = read.source else { return read.source };
        let sectors = read.extent.sectors() as u32;
        if !self.legs[leg].zeroes_fast() || !self.buffers.is_zero(at, sectors) {
            return read.source;
        }
        self.marks.add(Mark::ZeroesDrained);
        read.source.release(&mut self.buffers);
        Source::Zero { may_unmap: self.legs[leg].is_thin() }
    }

    /// A leg has got further in a region: it may have become complete there.
    pub(in crate::engine) fn consider_complete(&mut self, record: u32, leg: usize) {
        let region = self.regions.region_of(record);
        let index = LegIndex(leg as u8);
        if self.regions.lacks(record, leg) > 0 || self.regions.is_stale(index, region) {
            return;
        }
        self.regions.note_complete(record, index);
        self.end_rebuilding(leg, record);
        if !self.regions.is_touched(region) && !self.regions.entry(region).is_whole(index) {
            self.regions.heal(index, region);
        }
        if self.regions.has_waiters(record) {
            self.retry_waiting(record);
        }
        if self.regions.slot(region) == Some(record) {
            self.retire_record(record);
        }
    }
}
