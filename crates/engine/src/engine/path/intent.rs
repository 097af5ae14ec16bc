//! Carries out what intent and authority ask of the rest of the engine: looks again at writers
//! that waited for a record, asks for the flushes that moves of authority need, and says when
//! authority returns to the best leg. The decisions themselves are made in `regions`.

use crate::engine::Engine;
use crate::engine::state::leg::Leg;
use crate::engine::state::operations::Stage;
use crate::engine::state::regions::{Candidates, FlushWanted, Moved, Regions};
use crate::identifiers::LegIndex;
use crate::io::Buffers;
use crate::marks::Marks;
use crate::planted::{self, Planted};

/// The return of authority to the best leg, a part of the records at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct Returns {
    /// The leg whose flush authority waits for.
    to: Option<LegIndex>,
    /// First slot of the part in hand.
    from: u32,
    /// First slot of the next part.
    next: u32,
}

/// The regions, and all that a decision about them depends on.
struct Decision<'a> {
    regions: &'a mut Regions,
    among: Candidates<'a>,
    marks: &'a mut Marks,
}

impl<B: Buffers> Engine<B> {
    fn decision(&mut self) -> Decision<'_> {
        let leaving = self.unfit_to_decide();
        Decision {
            regions: &mut self.regions,
            among: Candidates {
                legs: &self.legs,
                now: self.clock.now(),
                leaving,
                flushing: self.flushing.is_awaited(),
                lost: &self.lost,
            },
            marks: &mut self.marks,
        }
    }

    /// The active record of a region, made if need be; `None` when all are in use.
    pub(in crate::engine) fn record(&mut self, region: u32) -> Option<u32> {
        self.regions.activate(region, self.legs.in_use(), self.clock.now())
    }

    /// Returns true if writes may be sent to `record`'s region; if not, what is needed is in flight.
    pub(super) fn intent_is_durable(&mut self, record: u32) -> bool {
        let region = self.regions.region_of(record);
        let Decision { regions, among, marks } = self.decision();
        if regions.is_touched(region) || regions.touch_armed(record, &among, marks) {
            return regions.intent_is_durable(record, &among, marks);
        }
        if regions.begin_intent(record, &among, marks) {
            self.record_soon(region);
            self.counters.region_dirtied();
        }
        false
    }

    /// Asks for a page that would be written in the background where a flush of several copies may
    /// wait for it: legs were not whole in this region, and now it says something else.
    pub(in crate::engine) fn record_soon(&mut self, region: u32) {
        if !self.flush_is_strict() {
            return;
        }
        for leg in self.legs.slots() {
            let index = LegIndex(leg as u8);
            if self.legs[leg].answers() && self.regions.is_unrecorded(index, region) {
                self.regions.request_page_of(region, index);
            }
        }
    }

    /// Returns true if recovery would honour the region's authority as it is in memory, after a power
    /// cut as well.
    pub(in crate::engine) fn authority_is_durable(&mut self, record: u32) -> bool {
        self.regions.authority_is_durable(record, &self.legs)
    }

    /// Sees to it that no armed region is decided by a leg that has not everything there.
    pub(in crate::engine) fn redecide_armed(&mut self) {
        if self.regions.has_armed_behind() {
            let Decision { regions, among, .. } = self.decision();
            regions.redecide_behind(&among);
        }
    }

    /// Looks again at every operation waiting in a region.
    pub(in crate::engine) fn retry_waiting(&mut self, record: u32) {
        let mut next = self.regions.take_waiting(record);
        while let Some(operation) = next {
            next = self.regions.next_waiter(operation);
            match self.operations[operation].stage {
                Stage::Intent => self.go_on_with_intent(operation),
                _ => self.consider_acknowledgement(operation),
            }
        }
    }

    /// Looks again at every region that has operations waiting, of one page or of all.
    pub(in crate::engine) fn retry_all_waiting(&mut self, page: Option<u32>) {
        let mut at = self.regions.waiting_count();
        while at > 0 {
            at -= 1;
            // Retrying swaps records out of and pushes them to the end of the list; going
            // down from the end visits each of the others once.
            let Some(record) = self.regions.waiting_record(at) else { continue };
            let of = self.regions.page_of(self.regions.region_of(record));
            if page.is_none_or(|page| page == of) {
                self.retry_waiting(record);
            }
        }
    }

    pub(super) fn try_move(&mut self, record: u32, failed: bool, late: Option<u8>) -> Moved {
        let Decision { regions, among, marks } = self.decision();
        regions.try_move(record, failed, late, &among, marks)
    }

    /// Returns true if the moves of authority up to this number are durable, so that recovery would
    /// choose by them.
    pub(super) fn moves_are_durable(&mut self, until: u64) -> bool {
        self.regions.moves_are_durable(until)
    }

    /// Has moves of authority recorded that nobody has asked for.
    pub(in crate::engine) fn record_old_moves(&mut self) {
        self.regions.ask_for_moves();
    }

    /// Sees to it that no region depends on a silent leg for data that only a flush of it
    /// would make durable. Returns true if any still does.
    pub(super) fn move_undurable(&mut self, leg: LegIndex) -> bool {
        self.regions.move_undurable(leg)
    }

    /// Returns authority from slow legs to the best one, if that has become complete and either clients
    /// use the region or the slow leg has been slow for long. If the best leg has to flush before,
    /// this goes on as soon as it has: at the next tick there would be newer writes, and never an end to
    /// it. Every tick takes up where the one before ended, so that records which cannot return hold
    /// up no others; but it waits for a flush that it has asked for.
    pub(in crate::engine) fn return_authority(&mut self) {
        let waits = self.returns.to.is_some_and(|leg| self.legs[leg.index()].stamps.is_flushing());
        let from = if waits { self.returns.from } else { self.returns.next };
        let from = if planted::is(Planted::ReturnsFromOldest) { 0 } else { from };
        self.returns = Returns { to: None, from, next: from };
        self.return_what_can_go(true);
    }

    /// A leg has flushed: authority that waited for it returns to it.
    pub(super) fn go_on_returning(&mut self, leg: LegIndex) {
        if self.returns.to == Some(leg) {
            self.returns.to = None;
            self.return_what_can_go(false);
        }
    }

    fn return_what_can_go(&mut self, flushes: bool) {
        if planted::is(Planted::AuthorityStuck) {
            return;
        }
        let unfit = self.unfit_to_decide();
        let best = self
            .legs
            .that_are_in()
            .filter(|leg| {
                leg.is_trusted(self.clock.now()) && !leg.pace.is_slow() && !leg.is_lagging()
            })
            .filter(|leg| unfit & leg.index.bit() == 0)
            .min_by_key(|leg| leg.rank())
            .map(|leg| leg.index);
        let Some(best) = best else { return };
        let better = |other: &&Leg| other.pace.is_slow() || !other.answers();
        let away = self.legs.iter().filter(|leg| leg.index != best).filter(better);
        if away.map(|leg| self.regions.authority_count(leg.index)).sum::<u32>() == 0 {
            return;
        }
        let (from, records) = (self.returns.from, self.regions.records());
        let most = self.settings.limits.returns_per_tick;
        let (mut next, mut looked_at) = (from, 0);
        for range in [from..records, 0..from] {
            let mut at = range.start;
            while looked_at < most
                && let Some(record) = self.regions.record_from(at)
                && range.contains(&record)
            {
                (at, looked_at) = (record + 1, looked_at + 1);
                next = if at < records { at } else { 0 };
                let flush = self.return_region(record, best);
                if let Some((leg, stamp)) = flush.filter(|_| flushes) {
                    self.legs[leg.index()].stamps.want_flush(stamp);
                    self.returns.to = Some(leg);
                }
            }
        }
        self.returns.next = if looked_at < most { from } else { next };
    }

    /// Returns a region's authority to the best leg, if it can go. Returns the flush it needs
    /// first.
    fn return_region(&mut self, record: u32, best: LegIndex) -> Option<FlushWanted> {
        let Decision { regions, among, marks } = self.decision();
        let (returned, flush) = regions.return_region(record, best, &among, marks);
        if returned {
            let region = self.regions.region_of(record);
            self.retry_waiting(record);
            self.reconsider_region(region);
        }
        flush
    }
}
