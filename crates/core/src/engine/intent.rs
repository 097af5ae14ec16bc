//! Intent and authority: what must be durable before a write reaches any leg, and who
//! decides a dirty region at recovery.
//!
//! A clean region becomes dirty, with an authority, in one page write on that authority. A
//! page write of unknown outcome counts as both done and not done: the sequence that first
//! names an authority must be durable **on that authority** before anything it alone holds
//! is acknowledged, and every later encoding of the page says the same.
//!
//! Authority moves region by region, but a page carries 1736 of them: when the authority
//! stops answering, the first write that needs a move takes with it every region of its page
//! that can move.

use super::Engine;
use super::leg::Health;
use super::slab::{Key, NONE};
use super::state::Stage;
use crate::io::Buffers;
use crate::marks::Mark;
use crate::planted::{self, Planted};
use crate::units::LegIndex;

/// The return of authority to the best leg, a part of the records at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Returns {
    /// The leg whose flush authority waits for.
    to: Option<LegIndex>,
    /// First slot of the part in hand.
    from: u32,
    /// First slot of the next part.
    next: u32,
}

impl<B: Buffers> Engine<B> {
    /// The active record of a region, made if need be; `None` when all are in use.
    ///
    /// A leg that is not recorded whole there may hold what it has in its cache alone, from
    /// before the region was cleaned without it.
    pub(super) fn record(&mut self, region: u32) -> Option<u32> {
        if let Some(record) = self.regions.slot(region) {
            return Some(record);
        }
        let record = self.regions.activate(region, self.now)?;
        let entry = self.entry(region);
        for leg in &self.legs[self.slots()] {
            if !entry.is_whole(leg.index) {
                let active = &mut self.regions.active[record];
                active.last_done[leg.index.index()] = leg.done_stamp;
                active.acknowledged_done[leg.index.index()] = leg.done_stamp;
            }
        }
        Some(record)
    }

    /// Whether writes may be sent to `record`'s region; if not, what is needed is under way.
    pub(super) fn intent_is_durable(&mut self, record: u32) -> bool {
        let region = self.regions.active[record].region;
        let entry = self.entry(region);
        if entry.is_dirty() {
            return self.authority_is_durable(record);
        }
        let Some(leg) = self.choose_authority(region, None) else { return false };
        let page = self.metadata.page_of(region);
        self.regions.set_entry(region, entry.with_authority(leg));
        self.regions.active[record].authority_sequence = self.metadata.change(page);
        self.metadata.request(page, leg);
        self.record_soon(region);
        self.counters.regions_dirtied += 1;
        false
    }

    /// Asks for a page that would be written in the background where a flush of several copies may
    /// wait for it: legs were not whole in this region, and now it says something else.
    pub(super) fn record_soon(&mut self, region: u32) {
        if !self.flush_is_strict() {
            return;
        }
        let page = self.metadata.page_of(region);
        for leg in self.slots() {
            let index = LegIndex(leg as u8);
            if self.legs[leg].answers() && self.regions.is_unrecorded(index, region) {
                self.metadata.request(page, index);
            }
        }
    }

    /// Whether recovery would honour the region's authority as it is in memory.
    pub(super) fn authority_is_durable(&mut self, record: u32) -> bool {
        let active = &self.regions.active[record];
        let (region, sequence) = (active.region, active.authority_sequence);
        let leg = self.entry(region).authority();
        let page = self.metadata.page_of(region);
        if self.metadata.durable(page, leg) >= sequence {
            return true;
        }
        self.metadata.request(page, leg);
        if !self.legs[leg.index()].answers() {
            self.want_move(record);
        }
        false
    }

    /// The best leg to decide a region: in, complete there, answering; rather trusted than
    /// on probation, not slow rather than slow, fast rather than not.
    ///
    /// In a clean region only a whole leg will do: one that has just drained it may hold it
    /// in its cache alone.
    fn choose_authority(&self, region: u32, except: Option<LegIndex>) -> Option<LegIndex> {
        let entry = self.entry(region);
        self.in_legs()
            .filter(|leg| entry.is_dirty() || entry.is_whole(leg.index))
            .filter(|leg| leg.answers() && Some(leg.index) != except)
            .filter(|leg| !self.is_leaving(leg.index))
            .filter(|leg| {
                self.regions.is_complete(leg.index, region)
                    || planted::is(Planted::IncompleteTakesOver)
            })
            .min_by_key(|leg| (!leg.is_trusted(self.now), leg.slow, leg.lagging, leg.rank()))
            .map(|leg| leg.index)
    }

    /// Puts an operation among those to be looked at again when its region's metadata gets
    /// further.
    pub(super) fn wait_in_region(&mut self, operation: u32, record: u32) {
        if self.operations[operation].is_waiting {
            return;
        }
        let head = self.regions.active[record].waiting;
        if head == NONE {
            self.waiting_records.push(record);
        }
        self.operations[operation].next_waiting = head;
        self.operations[operation].is_waiting = true;
        self.regions.active[record].waiting = operation;
    }

    /// Looks again at every operation waiting in a region.
    pub(super) fn retry_waiting(&mut self, record: u32) {
        let mut at = core::mem::replace(&mut self.regions.active[record].waiting, NONE);
        if at == NONE {
            return;
        }
        if let Some(place) = self.waiting_records.iter().position(|&r| r == record) {
            self.waiting_records.swap_remove(place);
        }
        // The list is newest first; operations go on in the order they came.
        let mut reversed = NONE;
        while at != NONE {
            let next = self.operations[at].next_waiting;
            self.operations[at].next_waiting = reversed;
            reversed = at;
            at = next;
        }
        let mut at = reversed;
        while at != NONE {
            let next = self.operations[at].next_waiting;
            self.operations[at].is_waiting = false;
            match self.operations[at].stage {
                Stage::Intent => self.go_on_with_intent(at),
                _ => self.consider_acknowledgement(at),
            }
            at = next;
        }
    }

    /// Looks again at every region of a page that has operations waiting.
    pub(super) fn retry_page(&mut self, page: u32) {
        let mut at = self.waiting_records.len();
        while at > 0 {
            at -= 1;
            // Retrying swaps records out of and pushes them to the end of the list; going
            // down from the end visits each of the others once.
            if let Some(&record) = self.waiting_records.get(at)
                && self.metadata.page_of(self.regions.active[record].region) == page
            {
                self.retry_waiting(record);
            }
        }
    }

    /// Asks for the region's authority to move off a leg that does not answer or failed.
    pub(super) fn want_move(&mut self, record: u32) {
        if !self.regions.active[record].move_wanted {
            self.regions.active[record].move_wanted = true;
            self.moves.push_back(record);
        }
    }

    /// Tries every move that is wanted; those that cannot go yet stay wanted.
    pub(super) fn retry_moves(&mut self) {
        for _ in 0..self.moves.len() {
            let Some(record) = self.moves.pop_front() else { return };
            if !self.regions.active.is_used(record) || !self.regions.active[record].move_wanted {
                continue;
            }
            if self.try_move(record) {
                self.regions.active[record].move_wanted = false;
                self.retry_waiting(record);
            } else {
                self.moves.push_back(record);
            }
        }
    }

    /// Moves a region's authority, or sets going what stands in the way. Whether nothing
    /// remains to be done.
    fn try_move(&mut self, record: u32) -> bool {
        let region = self.regions.active[record].region;
        let entry = self.entry(region);
        if !entry.is_dirty() {
            return true;
        }
        let from = entry.authority();
        let forced = self.regions.active[record].move_forced;
        if self.legs[from.index()].answers() {
            // Be it that it is to move all the same: there may be no leg it could move to, and
            // flushes wait for as long as an authority is in doubt.
            if self.regions.active[record].cache_lost && self.is_restored(record, from) {
                self.marks.add(Mark::CacheRestored);
                self.regions.active[record].cache_lost = false;
            }
            let suspect = self.regions.active[record].cache_lost;
            if !forced && !suspect && !self.failed_on(record, from) {
                return true;
            }
        }
        match self.choose_authority(region, Some(from)) {
            Some(to) if self.is_durable_on(record, to) => {
                self.move_authority(region, from, to);
                true
            }
            Some(to) => {
                // Flush-acknowledged data may be in the new leg's cache only.
                self.marks.add(Mark::MoveWaitedForFlush);
                let stamp = self.regions.active[record].acknowledged_done[to.index()];
                self.want_flush(to, stamp);
                false
            }
            // Debts stand in the way: the drain pays those of regions in `moves` first.
            None => {
                self.marks.add(Mark::MoveWaitedForDebts);
                false
            }
        }
    }

    /// Whether an authority that lost its cache has everything again, durably; asks for the
    /// flush if that is all that is missing.
    fn is_restored(&mut self, record: u32, leg: LegIndex) -> bool {
        let active = &self.regions.active[record];
        if !self.regions.is_complete(leg, active.region) {
            return false;
        }
        let stamp = active.last_done[leg.index()];
        if self.legs[leg.index()].flushed >= stamp {
            return true;
        }
        if self.now >= self.legs[leg.index()].flush_retry {
            self.want_flush(leg, stamp);
        }
        false
    }

    /// Whether an operation running in the region failed on `leg`.
    fn failed_on(&self, record: u32, leg: LegIndex) -> bool {
        let mut at = self.regions.active[record].waiting;
        while at != NONE {
            if self.operations[at].failed & leg.bit() != 0 {
                return true;
            }
            at = self.operations[at].next_waiting;
        }
        false
    }

    /// Whether every move of authority is durable, so that recovery would choose by it.
    pub(super) fn moves_are_durable(&mut self) -> bool {
        let mut at = 0;
        while at < self.undurable_moves.len() {
            let record = self.undurable_moves[at];
            if self.is_moved_durably(record) {
                self.regions.active[record].move_undurable = false;
                self.undurable_moves.swap_remove(at);
            } else {
                at += 1;
            }
        }
        for at in 0..self.undurable_moves.len() {
            // Asks for the page again, or for the next move, if its leg fell silent.
            self.authority_is_durable(self.undurable_moves[at]);
        }
        self.undurable_moves.is_empty()
    }

    pub(super) fn is_moved_durably(&self, record: u32) -> bool {
        let active = &self.regions.active[record];
        let entry = self.entry(active.region);
        if !entry.is_dirty() {
            // It was durable when the region was cleaned, and nobody decides now.
            return true;
        }
        let leg = entry.authority();
        let page = self.metadata.page_of(active.region);
        self.metadata.durable(page, leg) >= active.authority_sequence
    }

    /// Whether a move to `leg` can lose nothing a client's flush was answered for.
    pub(super) fn is_durable_on(&self, record: u32, leg: LegIndex) -> bool {
        let done = self.regions.active[record].acknowledged_done[leg.index()];
        let durable = done <= self.legs[leg.index()].flushed;
        // Before the first flush only what was durable when the region was last clean counts.
        let never_flushed =
            !self.flushes_used && self.entry(self.regions.active[record].region).is_whole(leg);
        (never_flushed || durable || planted::is(Planted::MoveWithoutFlush)) && self.knows_lost(leg)
    }

    /// Whether a leg has the list of what is lost: it must not decide a region before, or
    /// recovery would serve from it what is lost.
    pub(super) fn knows_lost(&self, leg: LegIndex) -> bool {
        let list = self.metadata.lost_list();
        self.metadata.durable(list, leg) >= self.metadata.newest(list)
    }

    /// Moves the region, and with it every other of its page that can go the same way.
    fn move_authority(&mut self, region: u32, from: LegIndex, to: LegIndex) {
        let page = self.metadata.page_of(region);
        let sequence = self.metadata.change(page);
        for other in self.metadata.layout().page_regions(page) {
            let entry = self.entry(other);
            if !entry.is_dirty() || entry.authority() != from {
                continue;
            }
            let Some(record) = self.regions.slot(other) else { continue };
            let can_go = self.regions.is_complete(to, other) && self.is_durable_on(record, to);
            if other == region || can_go {
                self.marks.add_if(other != region, Mark::MovesBatched);
                self.set_authority(record, to, sequence);
            }
        }
        self.metadata.request(page, to);
    }

    fn set_authority(&mut self, record: u32, to: LegIndex, sequence: u64) {
        let region = self.regions.active[record].region;
        let entry = self.entry(region);
        self.mark_move(record, entry.authority());
        self.regions.set_entry(region, entry.with_authority(to));
        let page = self.metadata.page_of(region);
        let trusted = self.regions.active[record].move_undurable
            && planted::is(Planted::UnknownOutcomeTrusted);
        self.regions.active[record].authority_sequence =
            if trusted { self.metadata.durable(page, to) } else { sequence };
        // Whatever forced a move wanted it off the leg it has just left.
        self.regions.active[record].move_forced = false;
        self.regions.active[record].cache_lost = false;
        if !self.regions.active[record].move_undurable {
            self.regions.active[record].move_undurable = true;
            self.undurable_moves.push(record);
        }
        self.counters.authority_moves += 1;
        self.reconsider = true;
    }

    fn mark_move(&mut self, record: u32, from: LegIndex) {
        let page = self.metadata.page_of(self.regions.active[record].region);
        let again = self.regions.active[record].move_undurable;
        self.marks.add(Mark::AuthorityMoved);
        self.marks.add_if(!self.flushes.is_empty(), Mark::AuthorityMovedDuringFlush);
        let unknown = self.metadata.is_in_flight(page, from);
        self.marks.add_if(unknown, Mark::AuthorityMovedOverPage);
        self.marks.add_if(again, Mark::AuthorityMovedAgain);
    }

    /// Authority returns from slow legs to the best one, where that has become complete. Where
    /// that has to flush before, it goes on as soon as it has: at the next tick there would be
    /// newer writes, and never an end to it. Every tick takes up where the one before ended, so
    /// that records which cannot return hold up no others; but what waits for a flush is waited
    /// for.
    pub(super) fn return_authority(&mut self) {
        let waits = self.returns.to.is_some_and(|leg| self.legs[leg.index()].flushing.is_some());
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
        let best = self
            .in_legs()
            .filter(|leg| leg.is_trusted(self.now) && !leg.slow && !leg.lagging)
            .filter(|leg| !self.is_leaving(leg.index))
            .min_by_key(|leg| leg.rank())
            .map(|leg| leg.index);
        let Some(best) = best else { return };
        let better = |other: usize| self.legs[other].slow || !self.legs[other].answers();
        let away = (0..self.legs.len()).filter(|&l| l != best.index() && better(l));
        if away.map(|l| self.regions.authority_count(LegIndex(l as u8))).sum::<u32>() == 0 {
            return;
        }
        let capacity = self.regions.active.capacity() as u32;
        let mut record = self.returns.from;
        let mut looked_at = 0;
        for _ in 0..capacity {
            if looked_at == self.settings.limits.returns_per_tick {
                break;
            }
            let next = if record + 1 < capacity { record + 1 } else { 0 };
            if self.regions.active.is_used(record) {
                looked_at += 1;
                self.return_region(record, best, flushes);
            }
            record = next;
        }
        self.returns.next = record;
    }

    /// Returns a region's authority to the best leg, if it can go.
    fn return_region(&mut self, record: u32, best: LegIndex, flushes: bool) {
        let region = self.regions.active[record].region;
        let entry = self.entry(region);
        let leg = entry.authority();
        let can_go = entry.is_dirty()
            && leg != best
            && (self.legs[leg.index()].slow || !self.legs[leg.index()].answers())
            && self.regions.is_complete(best, region);
        if !can_go {
            return;
        }
        if !self.is_durable_on(record, best) {
            if flushes {
                let stamp = self.regions.active[record].acknowledged_done[best.index()];
                self.want_flush(best, stamp);
                self.returns.to = Some(best);
            }
            return;
        }
        let page = self.metadata.page_of(region);
        let sequence = self.metadata.change(page);
        self.marks.add(Mark::AuthorityReturned);
        self.set_authority(record, best, sequence);
        self.metadata.request(page, best);
        self.retry_waiting(record);
    }

    /// Regions under a leg that stopped answering have to move: those with somebody waiting
    /// when it is frozen, all of them when its session is gone, and its cache maybe with it.
    pub(super) fn want_moves_from(&mut self, leg: LegIndex) {
        let gone = matches!(self.legs[leg.index()].health, Health::Gone { .. });
        let mut at = self.regions.oldest();
        while let Some(record) = at {
            at = self.regions.newer(record);
            let active = &self.regions.active[record];
            let entry = self.entry(active.region);
            let concerned = gone || active.operations > 0;
            if concerned && entry.is_dirty() && entry.authority() == leg {
                self.want_move(record);
            }
        }
    }

    pub(super) fn operation_key(&self, operation: u32) -> Key {
        self.operations.key(operation)
    }
}
