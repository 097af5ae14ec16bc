//! Paying debts: coalesced, in sector order, yielding to clients with a share that rises
//! with exposure.
//!
//! `choose` decides which debt is next. A debt that has its data is written from there, with those that
//! follow it without a gap. One without is read first (`drain_read`).

use crate::engine::Engine;
use crate::engine::state::debt::{Debt, Since, Source};
use crate::engine::state::slab::Key;
use crate::identifiers::{BufferAt, LEGS_MAX, LegIndex};
use crate::io::Buffers;
use crate::marks::Mark;
use crate::planted::{self, Planted};
use hemi_units::{Extent, Instant, SECOND, SECTOR_BYTES};

/// A leg on probation gets this many drain I/Os at once.
const PROBATION_WINDOW: u32 = 4;
/// Clients use the volume while one has asked for data, or got an answer, within this time.
const IN_USE: u64 = SECOND / 10;
/// Those whose server was killed return within this time of the next start. Comparing that fills the legs'
/// windows meanwhile would hold up the first of them.
const EXPECTED: u64 = SECOND;

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

    pub(super) fn is_in_use(&self, now: Instant) -> bool {
        now <= self.used_until
    }
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

    /// Returns true if, beside what is in flight for the leg, more may be read for it.
    fn has_room_to_read(&self, leg: usize) -> bool {
        let state = &self.legs[leg];
        let (in_hand, bytes) = state.load.in_hand();
        in_hand < self.drain_window(leg) && bytes < self.settings.leg_window_bytes
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
}
