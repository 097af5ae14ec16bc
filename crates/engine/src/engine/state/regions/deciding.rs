//! Decides who decides a region at recovery: intent, and moves of authority.
//!
//! A clean region becomes dirty, with an authority, in one page write on that authority, which arms
//! others of the page along with it. A
//! page write of unknown outcome counts as both done and not done: the sequence that first
//! names an authority must be durable **on that authority** before anything it alone holds
//! is acknowledged, and every later encoding of the page says the same.
//!
//! Authority moves region by region, but a page carries 1736 of them: when the authority
//! stops answering, the first write that needs a move takes with it every region of its page
//! that can move.

use super::Regions;
use crate::engine::state::leg::Leg;
use crate::engine::state::lost_list::LostList;
use crate::identifiers::{LEGS_MAX, LegIndex};
use crate::marks::{Mark, Marks};
use crate::planted::{self, Planted};
use crate::recovery::Opening;
use hemi_units::{Instant, SECOND};

/// Clients use a region for so long after their last operation there.
const IN_USE_FOR: u64 = SECOND / 5;
/// Authority of regions that no client uses leaves a leg that has been slow for so long.
const SLOW_FOR_LONG: u64 = 10 * SECOND;

/// The legs, as far as they count when it is decided who decides.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Candidates<'a> {
    pub(in crate::engine) legs: &'a [Leg],
    pub(in crate::engine) now: Instant,
    /// Legs that are being detached or marked out, as a mask.
    pub(in crate::engine) leaving: u8,
    /// A client's flush is in flight.
    pub(in crate::engine) flushing: bool,
    /// Extents that are lost, and those being rewritten.
    pub(in crate::engine) lost: &'a LostList,
}

impl<'a> Candidates<'a> {
    /// Returns the legs that have a say at the next start: those that are in and not leaving.
    pub(super) fn voters(&self) -> impl Iterator<Item = &'a Leg> {
        let leaving = self.leaving;
        let is_in = |leg: &&Leg| leg.is_in() || planted::is(Planted::OutLegLetsGo);
        let legs = self.legs.iter().filter(is_in);
        legs.filter(move |leg| {
            leaving & leg.index.bit() == 0 || planted::is(Planted::LeavingLegVotes)
        })
    }

    pub(super) fn is_leaving(&self, leg: LegIndex) -> bool {
        self.leaving & leg.bit() != 0
    }

    pub(super) fn answers(&self, leg: LegIndex) -> bool {
        self.legs[leg.index()].answers()
    }

    fn flushed(&self, leg: LegIndex) -> u64 {
        self.legs[leg.index()].stamps.flushed()
    }
}

/// A stamp up to which a leg has to be flushed before something else can be done.
pub(in crate::engine) type FlushWanted = (LegIndex, u64);

/// The outcome of a move of authority that was wanted.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct Moved {
    /// Nothing remains to be done: it has moved, or need not any more.
    pub(in crate::engine) settled: bool,
    /// Flushes that the authority needs to have everything again, and its successor to take over.
    pub(in crate::engine) flushes: [Option<FlushWanted>; 2],
}

impl Regions {
    /// Notes that a client flushes: from now on what was written before has to stay where authority
    /// moves.
    pub(in crate::engine) fn note_flush(&mut self) {
        self.flushes.arrived += 1;
        self.flushes.used = true;
    }

    /// Notes that a write is to be durable when it is answered: from now on what was written in its
    /// region has to stay where authority moves.
    pub(in crate::engine) fn note_fua(&mut self, record: u32) {
        if !planted::is(Planted::FuaNoFlush) {
            self.active[record].touched_in = u64::MAX;
        }
        self.flushes.used = true;
    }

    /// Returns true if a client has ever flushed, or the volume was not closed before.
    pub(in crate::engine) fn flushes_used(&self) -> bool {
        self.flushes.used
    }

    /// Touches a region that is not, under the best authority, and asks for the page that says so.
    /// Returns false if no leg can decide it at present.
    pub(in crate::engine) fn begin_intent(
        &mut self,
        record: u32,
        among: &Candidates,
        marks: &mut Marks,
    ) -> bool {
        let region = self.active[record].region;
        debug_assert!(!self.is_touched(region), "region {region} has an authority");
        let Some(leg) = self.choose_authority(region, None, among) else { return false };
        let page = self.metadata.page_of(region);
        let sequence = self.metadata.change(page);
        if self.is_armed(region) {
            marks.add(Mark::ArmedRedecided);
            self.carry_page(region, leg, sequence);
        } else {
            self.make_room_to_arm(marks);
        }
        self.set_state(region, self.entry(region).with_authority(leg), true);
        self.note_touched(record, sequence);
        self.arm_neighbours(region, leg, sequence, marks);
        self.metadata.request(page, leg);
        true
    }

    /// Notes that a region has been touched, under an authority that this sequence of its page names.
    pub(super) fn note_touched(&mut self, record: u32, sequence: u64) {
        let active = &mut self.active[record];
        active.authority_sequence = sequence;
        active.dirty_sequence = sequence;
        active.is_recorded = false;
        active.touched_in = self.flushes.arrived;
    }

    /// Gives the armed regions of a page that have the authority of this one another, too.
    fn carry_page(&mut self, region: u32, to: LegIndex, sequence: u64) {
        let from = self.entry(region).authority();
        for other in self.metadata.layout().page_regions(self.metadata.page_of(region)) {
            if other != region && self.entry(other).authority() == from {
                self.carry_armed(other, to, sequence);
            }
        }
    }

    /// Returns true if recovery would honour the region's authority as it is in memory. If not, asks
    /// for the page, and for a move if the leg does not answer.
    pub(in crate::engine) fn authority_is_durable(&mut self, record: u32, legs: &[Leg]) -> bool {
        if self.is_authority_recorded(record) {
            return true;
        }
        let region = self.active[record].region;
        let leg = self.entry(region).authority();
        let page = self.metadata.page_of(region);
        self.metadata.request(page, leg);
        if !legs[leg.index()].answers() || self.metadata.is_late(page, leg) {
            self.want_move_if_new(record);
        }
        false
    }

    /// Returns true if a page that is durable on the region's authority names it.
    pub(in crate::engine) fn is_authority_recorded(&self, record: u32) -> bool {
        let active = &self.active[record];
        let leg = self.entry(active.region).authority();
        let page = self.metadata.page_of(active.region);
        self.metadata.durable(page, leg) >= active.authority_sequence
    }

    /// Returns true unless a region's authority has moved and not durably so yet, and that leg has not
    /// had as long for it as those before: each next one gets twice the time.
    pub(in crate::engine) fn may_move_again(&self, record: u32, now: Instant) -> bool {
        self.active[record].undurable.is_none_or(|moves| {
            !planted::is(Planted::LateMoveStays)
                && now.since(moves.moved) >= moves.moved.since(moves.since)
        })
    }

    /// Returns true if the page that would make a region's authority durable is late there.
    pub(in crate::engine) fn page_is_late(&self, record: u32) -> bool {
        let active = &self.active[record];
        let leg = self.entry(active.region).authority();
        let page = self.metadata.page_of(active.region);
        active.touched
            && self.metadata.is_late(page, leg)
            && self.metadata.durable(page, leg) < active.authority_sequence
    }

    /// The best leg to decide a region: in, complete there, answering; rather not one that is late
    /// with the region's page, since it takes no newer one before; rather trusted than on probation,
    /// not slow rather than slow, fast rather than not.
    ///
    /// In an untouched region only a whole leg will do: one that has just drained it may hold it
    /// in its cache alone.
    pub(super) fn choose_authority(
        &self,
        region: u32,
        except: Option<LegIndex>,
        among: &Candidates,
    ) -> Option<LegIndex> {
        self.choose_among(u8::MAX, region, except, among)
    }

    /// Does as [`Regions::choose_authority`] among these legs alone, given as a mask.
    fn choose_among(
        &self,
        mask: u8,
        region: u32,
        except: Option<LegIndex>,
        among: &Candidates,
    ) -> Option<LegIndex> {
        let entry = self.entry(region);
        let legs = among.voters().filter(|leg| mask & leg.index.bit() != 0);
        let page = self.metadata.page_of(region);
        let is_touched = self.is_touched(region) || planted::is(Planted::CompleteDecidesClean);
        let complete_will_do = is_touched && !planted::is(Planted::TakeoverWantsWhole);
        legs.filter(|leg| complete_will_do || entry.is_whole(leg.index))
            .filter(|leg| leg.answers() && Some(leg.index) != except)
            .filter(|leg| {
                self.is_complete(leg.index, region) || planted::is(Planted::IncompleteTakesOver)
            })
            .min_by_key(|leg| {
                let steady = leg.pace.is_steady(among.now) || planted::is(Planted::LossForgotten);
                let late =
                    self.metadata.is_late(page, leg.index) && !planted::is(Planted::LatePageChosen);
                (
                    late,
                    !leg.is_trusted(among.now),
                    leg.pace.is_slow(),
                    leg.is_lagging(),
                    !steady,
                    leg.rank(),
                )
            })
            .map(|leg| leg.index)
    }

    /// Makes a move that was taken with [`Regions::next_move`], or puts it back and says what
    /// stands in the way. Takes whether an operation that waits in the region `failed` on its
    /// authority, and the legs that have one for which the authority is `late`.
    pub(in crate::engine) fn try_move(
        &mut self,
        record: u32,
        failed: bool,
        late: Option<u8>,
        among: &Candidates,
        marks: &mut Marks,
    ) -> Moved {
        let restoring = self.consider_restored(record, among, marks);
        let must = self.must_move(record, failed, among);
        let begun = self.move_goes_on(record);
        // A region that settled meanwhile needs nobody to decide it.
        let late = late.filter(|_| self.active[record].touched);
        let settled = !must && !begun && late.is_none();
        let mut moved = Moved { settled, flushes: [restoring, None] };
        let mut by_list_alone = false;
        if !settled {
            let region = self.active[record].region;
            let from = self.entry(region).authority();
            // One that answers, if late, is relieved by a leg that has what is waited for.
            let legs = late.filter(|_| !must).unwrap_or(u8::MAX);
            match self.choose_among(legs, region, Some(from), among) {
                Some(to) if self.is_durable_on(record, to, among) => {
                    marks.add_if(!must, Mark::MovedForLate);
                    self.move_page(record, from, to, among, marks);
                    moved.settled = true;
                }
                Some(to) => {
                    // Flush-acknowledged data may be in the new leg's cache only.
                    marks.add(Mark::MoveWaitedForFlush);
                    let stamp = self.active[record].acknowledged_done[to.index()];
                    moved.flushes[1] = Some((to, stamp));
                    by_list_alone = self.has_flushed(record, to, among.flushed(to));
                }
                // Its authority answers, and nobody else is fit any more.
                None if !must && late.is_none() => moved.settled = true,
                // Debts stand in the way: the drain pays those of regions that are to move first.
                None => marks.add(Mark::MoveWaitedForDebts),
            }
        }
        self.active[record].rewrites_wait = by_list_alone;
        if moved.settled {
            self.end_move(record);
        } else {
            self.put_off_move(record, moved.flushes.iter().any(Option::is_some));
        }
        moved
    }

    /// Returns true if a region needs another authority.
    fn must_move(&self, record: u32, failed: bool, among: &Candidates) -> bool {
        let active = &self.active[record];
        let entry = self.entry(active.region);
        let unfit = failed || active.cache_lost || active.move_forced;
        active.touched && (unfit || !among.answers(entry.authority()))
    }

    /// Returns true if a move that waits for the lost list alone goes on, though the authority answers
    /// again. One that is late again and again would else have the list changed by writes each time
    /// before the other leg has it, and neither those writes nor the move would ever end.
    fn move_goes_on(&self, record: u32) -> bool {
        let active = &self.active[record];
        active.touched && active.rewrites_wait && !planted::is(Planted::BegunMoveForgotten)
    }

    /// Believes an authority that lost its cache again, once it has everything, durably. Returns the
    /// flush if that is all that is missing. An authority that is to move all the same is looked
    /// at, too: there may be no leg it could move to, and flushes wait for as long as it is in doubt.
    fn consider_restored(
        &mut self,
        record: u32,
        among: &Candidates,
        marks: &mut Marks,
    ) -> Option<FlushWanted> {
        let active = &self.active[record];
        let entry = self.entry(active.region);
        let leg = entry.authority();
        let doubted = active.touched && active.cache_lost && among.answers(leg);
        if !doubted || !self.is_complete(leg, active.region) {
            return None;
        }
        let stamp = active.last_done[leg.index()];
        if among.flushed(leg) < stamp {
            let again = among.legs[leg.index()].stamps.may_retry(among.now);
            return again.then_some((leg, stamp));
        }
        marks.add(Mark::CacheRestored);
        self.set_cache_lost(record, false);
        None
    }

    /// Returns true if a move to `leg` loses nothing that a client's flush was answered for. Where a write
    /// has taken something off the lost list, and is not acknowledged, the list does not say that the leg
    /// may have something older.
    fn is_durable_on(&self, record: u32, leg: LegIndex, among: &Candidates) -> bool {
        let extent = self.extent(self.active[record].region);
        self.has_flushed(record, leg, among.flushed(leg))
            && self.metadata.knows_lost(leg)
            && among.lost.rewriter_of(extent).is_none()
    }

    /// Returns true if a leg, flushed up to this stamp, has durably what a client's flush was answered for.
    pub(in crate::engine) fn has_flushed(&self, record: u32, leg: LegIndex, flushed: u64) -> bool {
        let active = &self.active[record];
        let durable = active.acknowledged_done[leg.index()] <= flushed;
        // Before the first flush only what was durable when the region was last untouched counts.
        let never_flushed =
            active.touched_in == self.flushes.arrived && self.entry(active.region).is_whole(leg);
        never_flushed || durable || planted::is(Planted::MoveWithoutFlush)
    }

    /// Moves the region. Without a ledger every other of its page that can go the same way goes along:
    /// what costs is the page write, which they share. By the ledger a move costs nothing, and whoever
    /// need not go stays.
    fn move_page(
        &mut self,
        record: u32,
        from: LegIndex,
        to: LegIndex,
        among: &Candidates,
        marks: &mut Marks,
    ) {
        let region = self.active[record].region;
        let page = self.metadata.page_of(region);
        let sequence = self.metadata.change(page);
        if self.goes_by_ledger() {
            self.set_authority(record, to, sequence, among, marks);
            return;
        }
        for other in self.metadata.layout().page_regions(page) {
            if self.entry(other).authority() != from {
                continue;
            }
            if !self.is_touched(other) {
                self.carry_armed(other, to, sequence);
                continue;
            }
            let Some(record) = self.slot(other) else { continue };
            let can_go = self.is_complete(to, other) && self.is_durable_on(record, to, among);
            if other == region || can_go {
                marks.add_if(other != region, Mark::MovesBatched);
                self.set_authority(record, to, sequence, among, marks);
            }
        }
        self.metadata.request(page, to);
    }

    fn set_authority(
        &mut self,
        record: u32,
        to: LegIndex,
        sequence: u64,
        among: &Candidates,
        marks: &mut Marks,
    ) {
        let region = self.active[record].region;
        let entry = self.entry(region);
        let page = self.metadata.page_of(region);
        let again = self.active[record].undurable.is_some();
        marks.add(Mark::AuthorityMoved);
        marks.add_if(among.flushing, Mark::AuthorityMovedDuringFlush);
        let unknown = self.metadata.is_in_flight(page, entry.authority());
        marks.add_if(unknown, Mark::AuthorityMovedOverPage);
        marks.add_if(again, Mark::AuthorityMovedAgain);
        self.set_entry(region, entry.with_authority(to));
        let trusted = again && planted::is(Planted::UnknownOutcomeTrusted);
        let durable = self.metadata.durable(page, to);
        let active = &mut self.active[record];
        active.authority_sequence = if trusted { durable } else { sequence };
        // Whatever forced a move wanted it off the leg it has just left.
        active.move_forced = false;
        self.set_cache_lost(record, false);
        self.note_moved(record, among.now);
    }

    /// Returns a region's authority from a slow or silent leg to the best one, if it can go.
    /// Returns true if it has, and the flush it needs first.
    pub(in crate::engine) fn return_region(
        &mut self,
        record: u32,
        best: LegIndex,
        among: &Candidates,
        marks: &mut Marks,
    ) -> (bool, Option<FlushWanted>) {
        let region = self.active[record].region;
        let entry = self.entry(region);
        let from = entry.authority();
        let can_go = self.active[record].touched
            && from != best
            && self.may_leave(record, &among.legs[from.index()], among.now)
            && self.is_complete(best, region)
            && (entry.is_whole(best) || !planted::is(Planted::TakeoverWantsWhole));
        if !can_go {
            return (false, None);
        }
        if !self.is_durable_on(record, best, among) {
            let stamp = self.active[record].acknowledged_done[best.index()];
            return (false, Some((best, stamp)));
        }
        let page = self.metadata.page_of(region);
        let sequence = self.metadata.change(page);
        marks.add(Mark::AuthorityReturned);
        self.set_authority(record, best, sequence, among, marks);
        if !self.goes_by_ledger() {
            self.metadata.request(page, best);
        }
        (true, None)
    }

    /// Returns true if a region's authority may return from this leg to a better one: it is silent or slow.
    /// It has to be slow for long if no client uses the region. Legs that are the slower one by turns
    /// would have all touched regions go to and fro, and their pages be written each time.
    fn may_leave(&self, record: u32, leg: &Leg, now: Instant) -> bool {
        let idle = !self.has_operations(record) && now.since(self.last_use(record)) > IN_USE_FOR;
        let at_once = !idle || planted::is(Planted::IdleReturnAtOnce);
        let slow = if at_once {
            leg.pace.is_slow()
        } else {
            leg.pace.has_been_slow_for(SLOW_FOR_LONG, now)
        };
        slow || !leg.answers()
    }

    /// Adopts what recovery found: dirty regions are in use, and their authority as durable as the
    /// newest page says. Every leg's stamp for what it may still hold in its cache is given.
    /// A move that only the ledger has is not durable.
    pub(super) fn adopt_authority(
        &mut self,
        record: u32,
        opening: &Opening,
        now: Instant,
        stamp: u64,
    ) {
        let region = self.active[record].region;
        let page = self.metadata.page_of(region);
        let entry = self.entry(region);
        let recorded = match &opening.ledger {
            Some(state) => state.recorded[region as usize],
            None => entry,
        };
        let active = &mut self.active[record];
        active.authority_sequence = self.metadata.newest(page);
        active.dirty_sequence = active.authority_sequence;
        active.is_recorded = recorded.is_dirty();
        active.last_done = [stamp; LEGS_MAX];
        active.acknowledged_done = [stamp; LEGS_MAX];
        let is_recorded = recorded.is_dirty() && recorded.authority() == entry.authority();
        if !is_recorded && !planted::is(Planted::LedgerMoveDurable) {
            self.note_moved(record, now);
        }
    }
}
