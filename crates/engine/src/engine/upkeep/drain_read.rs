//! Debts without a copy: each is read from a fresh leg, and then written.
//!
//! The range is held on the owing leg from that read to the write, so that a newer write to it
//! becomes a newer debt behind it.

use crate::engine::Engine;
use crate::engine::state::debt::{Since, Source};
use crate::engine::state::in_flight::{Io, Purpose};
use crate::engine::state::slab::Key;
use crate::identifiers::{BufferAt, LegIndex};
use crate::io::{Buffers, LegError, LegOperation};
use crate::marks::Mark;
use crate::planted::{self, Planted};
use hemi_units::{Extent, MILLISECOND, SECTOR_BYTES};

/// A debt without a fresh leg to read it from is looked at again after this.
const SOURCE_RETRY: u64 = 50 * MILLISECOND;

impl<B: Buffers> Engine<B> {
    /// Starts the read half of a debt without a copy.
    pub(super) fn pay_from_leg(&mut self, leg: usize, slot: u32) -> bool {
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

    /// Returns true if what is owed in a region is not to be read from a leg at present: clients use
    /// the volume or are expected to, nobody waits for the region, and as much is being read there for
    /// drains as clients can bear. That is one read at a time; more, up to the window, as exposure
    /// nears its bound.
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

    /// Returns what was read for a leg, or zeros without a buffer where it is zeros and the leg makes
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
}
