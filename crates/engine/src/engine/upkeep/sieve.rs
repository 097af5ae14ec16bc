//! Paying scattered debts of a slow leg with one large write.
//!
//! A drive that seeks, or one a network away, takes as long for 4 KiB as for a hundred times as
//! much. What it owes here and there in a region is then paid fastest by one write over all of
//! it, the gaps between the debts included: data sieving (Thakur, Gropp and Lusk, 1999). The
//! data comes from a fresh leg that reads it in a fraction of that time. Where there is none,
//! as when it is frozen and the slow leg is to take over, the gaps are read from the owing leg
//! itself and the debts' copies laid over them.
//!
//! A gap is not owed: the owing leg has it, and nothing may be lost of that. So the debts stay
//! in the queue until the read is there; from the read's start to the write's end the range is
//! held on the owing leg, so that a newer write to it becomes a newer debt behind it; at the
//! start neither leg has a write in flight in the range; and whatever makes the source doubtful
//! ends the read. A read that fails changes nothing.

use crate::engine::Engine;
use crate::engine::state::debt::{Debt, Since, Source};
use crate::engine::state::in_flight::{Io, Purpose};
use crate::engine::state::slab::Key;
use crate::identifiers::{BufferAt, LEGS_MAX, LegIndex};
use crate::io::{Buffers, LegError, LegOperation};
use crate::marks::Mark;
use crate::planted::{self, Planted};
use hemi_units::{Extent, Instant, SECOND, SECTOR_BYTES};

/// A gap is written along if that takes less time than a further I/O, at this speed (100 MB/s),
/// in nanoseconds a byte …
const GAP_NANOSECONDS: u64 = 10;
/// … and is no longer than this.
const GAP_BYTES_MAX: u64 = 256 << 10;
/// A leg's usual write takes at least this many times as long as the read of all of it.
const SOURCE_FASTER: u64 = 2;
/// Debts for which the owing leg's own read of the gaps is worth its time.
const OWN_READ_DEBTS: i32 = 8;
/// After a read that failed, or took longer than its wait limit, nothing is read that way for this
/// long: from the owing leg itself, or from others.
const PAUSE: u64 = SECOND;

/// Debts in a range that one write can pay.
#[derive(Clone, Copy)]
struct Lot {
    /// The extent from the first debt to the last.
    extent: Extent,
    /// Sectors owed in it.
    owed: u64,
    since: Since,
    count: i32,
}

impl Lot {
    fn of(debt: &Debt) -> Lot {
        Lot { extent: debt.extent, owed: debt.extent.sectors(), since: debt.since, count: 1 }
    }

    fn with(self, debt: &Debt) -> Lot {
        Lot {
            extent: Extent { start: self.extent.start, end: debt.extent.end },
            owed: self.owed + debt.extent.sectors(),
            since: self.since.or(debt.since),
            count: self.count + 1,
        }
    }

    /// Sectors not owed.
    fn gaps(&self) -> u64 {
        self.extent.sectors() - self.owed
    }
}

/// Returns true if a debt is of the ordinary kind: acknowledged data that was not sent.
fn is_plain(debt: &Debt) -> bool {
    debt.is_acknowledged()
        && !debt.is_rebuild()
        && !debt.repair
        && debt.tries == 0
        && !matches!(debt.source, Source::Zero { .. })
}

/// Returns true if it is paid without asking another leg.
fn has_copy(debt: &Debt) -> bool {
    is_plain(debt) && matches!(debt.source, Source::Buffer(_))
}

impl<B: Buffers> Engine<B> {
    /// Begins to pay a debt together with those that follow it. Returns `None` if that is not the way,
    /// and false if it has to wait until the leg they are read from has time for it.
    pub(super) fn pay_sieved(&mut self, leg: usize, first: &Debt) -> Option<bool> {
        let state = &self.legs[leg];
        if state.load.sieves() >= self.settings.limits.sieves || !is_plain(first) {
            return None;
        }
        let lot = self.lot_from_fresh(leg, first).or_else(|| self.lot_from_own(leg, first));
        let (lot, from) = lot?;
        let region = self.regions.of_sector(lot.extent.start);
        if from != leg && self.yields_to_clients(from, region) {
            return Some(false);
        }
        let buffer = self.buffers.allocate(lot.extent.sectors() as u32)?;
        self.legs[leg].draining.go_on_from(lot.extent.end);
        let purpose = Purpose::Sieve { target: leg as u8, started: self.clock.now() };
        let data = Source::Buffer(BufferAt { buffer, offset: 0 });
        let io = Io::new(from as u8, purpose, lot.extent, data);
        let read = self.start_io(io, LegOperation::Read);
        self.legs[leg].load.hold(lot.extent, read);
        self.legs[leg].load.begin_drain_read(io.payload_sectors());
        self.legs[leg].load.begin_sieve();
        Some(true)
    }

    /// Debts that a fresh leg can read fast, and that leg.
    fn lot_from_fresh(&self, leg: usize, first: &Debt) -> Option<(Lot, usize)> {
        if !self.legs[leg].draining.may_sieve(self.clock.now()) {
            return None;
        }
        let lot = self.lot_after(leg, first, is_plain)?;
        let (from, sectors) = self.drain_source(leg, lot.extent)?;
        let reading = self.legs[from].expected_read(sectors).saturating_mul(SOURCE_FASTER);
        let is_worth_it =
            sectors == lot.extent.sectors() && reading <= self.legs[leg].pace.usual_write();
        is_worth_it.then_some((lot, from))
    }

    /// Finds debts with copies, enough that reading the gaps from the leg itself pays.
    fn lot_from_own(&self, leg: usize, first: &Debt) -> Option<(Lot, usize)> {
        if !self.legs[leg].draining.may_sieve_itself(self.clock.now()) || !has_copy(first) {
            return None;
        }
        let lot = self.lot_after(leg, first, has_copy)?;
        (lot.count >= OWN_READ_DEBTS).then_some((lot, leg))
    }

    /// The debts from one on that a single write can pay, if there are several and gaps between
    /// them.
    fn lot_after(&self, leg: usize, first: &Debt, joins_in: fn(&Debt) -> bool) -> Option<Lot> {
        let state = &self.legs[leg];
        let gap_max =
            (state.pace.usual_write() / GAP_NANOSECONDS).min(GAP_BYTES_MAX) / SECTOR_BYTES;
        let limit = u64::from(self.settings.drain_bytes) / SECTOR_BYTES;
        let region_end = self.regions.extent(self.regions.of_sector(first.extent.start)).end;
        let mut lot = Lot::of(first);
        for (_, next) in state.debts.from(first.extent.end) {
            let joins = next.extent.end <= region_end
                && next.extent.start - lot.extent.end <= gap_max
                && next.extent.end - lot.extent.start <= limit
                && next.not_before <= self.clock.now()
                && joins_in(next)
                && !state.load.is_held(Extent { start: lot.extent.end, end: next.extent.end });
            if !joins {
                break;
            }
            lot = lot.with(next);
        }
        (lot.gaps() > 0 && self.gaps_fit(&lot)).then_some(lot)
    }

    /// Returns true if exposure stays within its bound while gaps are being written over.
    fn gaps_fit(&self, lot: &Lot) -> bool {
        !self.throttles() || self.exposure_with(lot.gaps()) <= self.settings.exposure_bytes
    }

    /// The read ended: write what is still owed of it.
    pub(in crate::engine) fn sieve_read_done(
        &mut self,
        slot: u32,
        io: &Io,
        result: Result<(), LegError>,
    ) {
        let Purpose::Sieve { target, started } = io.purpose else { return };
        let leg = usize::from(target);
        self.end_sieve(slot, leg);
        if result.is_err() {
            self.pause_sieves(leg, io);
        }
        let region = self.regions.of_sector(io.extent.start);
        let means_something = result.is_ok()
            && self.legs[leg].is_member()
            && self.legs[leg].answers()
            && !self.regions.is_stale(LegIndex(target), region);
        if !means_something
            || self.ios.free_slots() <= LEGS_MAX
            || !self.write_sieved(leg, io, started)
        {
            io.source.release(&mut self.buffers);
        }
    }

    fn end_sieve(&mut self, slot: u32, leg: usize) {
        self.legs[leg].load.unhold(slot);
        self.legs[leg].load.end_drain_read(self.ios[slot].payload_sectors());
        self.legs[leg].load.end_sieve();
    }

    /// Gives up a sieve's read. A leg that is always late would have every further one given up as
    /// well, so there is a pause.
    pub(in crate::engine) fn give_up_sieve(&mut self, slot: u32, leg: usize) {
        self.end_sieve(slot, leg);
        self.ios.abandon(slot);
        if !planted::is(Planted::SieveBegunAnew) {
            let io = self.ios[slot];
            self.pause_sieves(leg, &io);
        }
    }

    /// Keeps the next read of this kind waiting. A leg that reads the gaps itself is not kept from it by
    /// another that fell silent: that is when it is to take over.
    fn pause_sieves(&mut self, leg: usize, io: &Io) {
        let (is_own, both) = (usize::from(io.leg) == leg, planted::is(Planted::SilenceStopsSieves));
        let until = self.clock.now() + PAUSE;
        if is_own || both {
            self.legs[leg].draining.pause_own_sieves(until);
        }
        if !is_own || both {
            self.legs[leg].draining.pause_sieves(until);
        }
    }

    /// Writes what a read brought over the debts that were there when it began; whether there
    /// was one.
    fn write_sieved(&mut self, leg: usize, io: &Io, started: Instant) -> bool {
        let own = usize::from(io.leg) == leg;
        let is_covered = |debt: &Debt| {
            let payable = if own { has_copy(debt) } else { is_plain(debt) };
            payable && debt.since.arrived < started && io.extent.contains(debt.extent)
        };
        let mut lot: Option<Lot> = None;
        let mut at = io.extent.start;
        while let Some((_, debt)) =
            self.legs[leg].debts.overlapping(Extent { start: at, end: io.extent.end })
        {
            if is_covered(&debt) {
                lot = Some(lot.map_or_else(|| Lot::of(&debt), |lot| lot.with(&debt)));
            }
            at = debt.extent.end;
        }
        let Some(lot) = lot.filter(|lot| self.gaps_fit(lot)) else { return false };
        let mut at = lot.extent.start;
        while let Some((slot, debt)) =
            self.legs[leg].debts.overlapping(Extent { start: at, end: lot.extent.end })
        {
            if is_covered(&debt) {
                let paid = self.legs[leg].debts.take(slot);
                let place = io.source.skip(debt.extent.start - io.extent.start);
                if let (true, Source::Buffer(from), Source::Buffer(to)) = (own, paid.source, place)
                {
                    self.buffers.copy(from, to, debt.extent.sectors() as u32);
                }
                paid.source.release(&mut self.buffers);
            }
            at = debt.extent.end;
        }
        let region = self.regions.of_sector(lot.extent.start);
        let record = self.regions.slot(region).expect("a region with debts has a record");
        self.regions.adjust_lacks(record, leg, 1 - lot.count);
        self.count_drain(leg, lot.since, lot.extent.sectors());
        self.marks.add(if own { Mark::DebtsSievedOwn } else { Mark::DebtsSieved });
        let source = io.source.skip(lot.extent.start - io.extent.start);
        let (key, extent) = (Key::NONE, lot.extent);
        let slot = self.start_write(leg, extent, source, key, false, lot.since, true, false);
        self.ios.note_gaps(slot, lot.gaps() as u32);
        if lot.gaps() > 0 {
            self.legs[leg].load.begin_sieve();
        }
        true
    }
}
