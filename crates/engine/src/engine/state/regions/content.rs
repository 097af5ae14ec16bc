//! The content of each leg: what it has of the regions in use, and which it owes as a whole.

use super::Regions;
use super::bitmap::Bitmap;
use crate::engine::state::leg::Leg;
use crate::identifiers::{LEGS_MAX, LegIndex};
use crate::planted::{self, Planted};

/// The counts of one region in use, to be compared with a recount.
pub(in crate::engine) struct Counts {
    pub(in crate::engine) region: u32,
    /// Acknowledged writes and debts each leg does not have yet.
    pub(in crate::engine) lacks: [u32; LEGS_MAX],
    /// Legs for which it is being rebuilt, as a mask.
    pub(in crate::engine) rebuilding: u8,
}

impl Regions {
    /// Returns true if a leg owes all of a region, without exact debts.
    pub(in crate::engine) fn is_stale(&self, leg: LegIndex, region: u32) -> bool {
        let bitmap = &self.stale[leg.index()];
        bitmap.count() > 0 && bitmap.get(region)
    }

    /// Makes a leg owe all of a region. Returns true if it did not before.
    pub(in crate::engine) fn set_stale(&mut self, leg: LegIndex, region: u32) -> bool {
        self.note_behind(leg, region);
        self.forget_wait(region);
        let was_complete = self.is_complete(leg, region);
        let is_news = self.stale[leg.index()].insert(region);
        self.note_complete_or_behind(leg, region, was_complete);
        is_news
    }

    /// A leg owes all of a region no more. Returns true if it did before.
    pub(in crate::engine) fn clear_stale(&mut self, leg: LegIndex, region: u32) -> bool {
        self.forget_wait(region);
        let was_complete = self.is_complete(leg, region);
        let is_news = self.stale[leg.index()].remove(region);
        self.note_complete_or_behind(leg, region, was_complete);
        is_news
    }

    /// The content of a leg changes in a region: its record may wait for something else than it did.
    fn forget_wait(&mut self, region: u32) {
        if let Some(record) = self.slot(region) {
            self.active.forget_wait(record);
        }
    }

    /// Returns true if a leg that owes all of a region may have most of it, from before an unclean
    /// stop. It does so once: what is owed again is written.
    pub(in crate::engine) fn take_comparable(&mut self, leg: LegIndex, region: u32) -> bool {
        let comparable = &mut self.comparable[leg.index()];
        comparable.count() > 0 && comparable.remove(region)
    }

    /// A leg may have lost what it had before the unclean stop.
    pub(in crate::engine) fn forget_comparable(&mut self, leg: LegIndex) {
        self.comparable[leg.index()].clear();
    }

    /// Counts the regions a leg owes as a whole.
    pub(in crate::engine) fn stale_count(&self, leg: LegIndex) -> u64 {
        self.stale[leg.index()].count()
    }

    /// Returns the first region at or after `from` that a leg owes as a whole.
    pub(in crate::engine) fn next_stale(&self, leg: LegIndex, from: u32) -> Option<u32> {
        self.stale[leg.index()].next(from)
    }

    /// Returns true if `leg` holds everything acknowledged in `region`.
    pub(in crate::engine) fn is_complete(&self, leg: LegIndex, region: u32) -> bool {
        if self.is_stale(leg, region) {
            return false;
        }
        self.slot(region).is_none_or(|record| self.active[record].lacks[leg.index()] == 0)
    }

    /// Counts the acknowledged writes and debts that a leg does not have yet of a region in use.
    pub(in crate::engine) fn lacks(&self, record: u32, leg: usize) -> u32 {
        self.active[record].lacks[leg]
    }

    /// Counts `debts` more, or fewer, of them.
    pub(in crate::engine) fn adjust_lacks(&mut self, record: u32, leg: usize, debts: i32) {
        let index = LegIndex(leg as u8);
        let region = self.active[record].region;
        if debts > 0 {
            self.note_behind(index, region);
        }
        let was_complete = self.is_complete(index, region);
        let lacks = &mut self.active[record].lacks[leg];
        *lacks = lacks.checked_add_signed(debts).expect("debts of a region are counted exactly");
        self.note_complete_or_behind(index, region, was_complete);
    }

    /// A leg has completed a write in the region.
    pub(in crate::engine) fn note_done(&mut self, record: u32, leg: usize, stamp: u64) {
        self.set_last_done(record, leg, stamp);
        self.active[record].only_repaired &= !LegIndex(leg as u8).bit();
    }

    /// A leg, flushed up to a stamp, has been given again what its medium could not read.
    pub(in crate::engine) fn note_repaired(
        &mut self,
        record: u32,
        leg: usize,
        stamp: u64,
        flushed: u64,
    ) {
        let active = &mut self.active[record];
        let had_flushed = active.last_done[leg] <= flushed;
        active.only_repaired |= if had_flushed { LegIndex(leg as u8).bit() } else { 0 };
        self.set_last_done(record, leg, stamp);
    }

    fn set_last_done(&mut self, record: u32, leg: usize, stamp: u64) {
        let index = LegIndex(leg as u8);
        let counts = self.decides(index, self.active[record].region);
        let before = core::mem::replace(&mut self.active[record].last_done[leg], stamp);
        if counts {
            self.unflushed.take(index, before);
            self.unflushed.add(index, stamp);
        }
    }

    /// A leg begins a flush that makes everything up to a stamp durable.
    pub(in crate::engine) fn note_flush_begun(&mut self, leg: LegIndex, stamp: u64) {
        self.unflushed.note_begun(leg, stamp);
    }

    /// A leg has flushed everything up to a stamp.
    pub(in crate::engine) fn note_flushed(&mut self, leg: LegIndex, stamp: u64) {
        self.unflushed.note_flushed(leg, stamp);
        self.wake_moves_for_flush();
    }

    /// A leg's flush failed: what depends on it is to be looked for again.
    pub(in crate::engine) fn note_flush_failed(&mut self, leg: LegIndex) {
        self.unflushed.note_news(leg);
    }

    /// Returns true if a leg has completed nothing in the region but repairs since it had flushed
    /// everything: what it was given it held before, and durably, if maybe not legibly.
    pub(in crate::engine) fn is_only_repaired(&self, record: u32, leg: usize) -> bool {
        self.active[record].only_repaired >> leg & 1 == 1
    }

    /// Takes what a leg has completed in the region for acknowledged.
    pub(in crate::engine) fn note_acknowledged(&mut self, record: u32, leg: usize) {
        let active = &mut self.active[record];
        active.acknowledged_done[leg] = active.last_done[leg];
    }

    /// Returns a leg's completion stamp at its last write in the region.
    pub(in crate::engine) fn last_done(&self, record: u32, leg: usize) -> u64 {
        self.active[record].last_done[leg]
    }

    /// Returns true if a region is taken up for rebuilding on a leg.
    pub(in crate::engine) fn is_rebuilding(&self, record: u32, leg: usize) -> bool {
        self.active[record].rebuilding >> leg & 1 == 1
    }

    /// Notes whether a region is taken up for rebuilding on a leg. Returns true if that is news.
    pub(in crate::engine) fn set_rebuilding(&mut self, record: u32, leg: usize, is: bool) -> bool {
        let bit = LegIndex(leg as u8).bit();
        let rebuilding = &mut self.active[record].rebuilding;
        let before = *rebuilding;
        *rebuilding = if is { before | bit } else { before & !bit };
        before != *rebuilding
    }

    /// A leg leaves its slot: what it has been sent says nothing of the leg that comes next.
    pub(in crate::engine) fn forget_stamps(&mut self, leg: usize) {
        let mut at = self.oldest();
        while let Some(record) = at {
            at = self.newer(record);
            let active = &mut self.active[record];
            // Stamps are counted by each leg for itself.
            (active.last_done[leg], active.acknowledged_done[leg]) = (0, 0);
            active.only_repaired &= !LegIndex(leg as u8).bit();
            active.done_at_loss[leg] = u64::MAX;
        }
    }

    /// The authority of a region lost its cache, or may have. Of three legs one that lacked
    /// something then is never trusted: it may get from the third what the authority lacks, too.
    pub(in crate::engine) fn note_cache_lost(&mut self, record: u32, legs: &[Leg]) {
        let region = self.active[record].region;
        let pair = legs.iter().filter(|leg| leg.is_member()).count() == 2;
        let stamp = |leg: &Leg| {
            let known = pair || self.is_complete(leg.index, region);
            if known { leg.stamps.done() } else { u64::MAX }
        };
        let stamps = core::array::from_fn(|leg| stamp(&legs[leg]));
        self.active[record].done_at_loss = stamps;
        self.set_cache_lost(record, true);
    }

    /// Returns true if the region's authority lost its cache, or may have, and has not everything
    /// again.
    pub(in crate::engine) fn is_suspect(&self, record: u32) -> bool {
        self.active[record].cache_lost
    }

    /// Returns true if a leg, flushed up to a stamp, still has what it was fresh for when the
    /// authority lost its cache.
    pub(in crate::engine) fn has_flushed_since_loss(
        &self,
        record: u32,
        leg: usize,
        flushed: u64,
    ) -> bool {
        let active = &self.active[record];
        active.cache_lost && flushed >= active.done_at_loss[leg]
    }

    /// A leg is trusted no more with what the authority lost: it may have got that later.
    pub(in crate::engine) fn distrust(&mut self, record: u32, leg: usize) {
        self.active[record].done_at_loss[leg] = u64::MAX;
    }

    /// An authority that lost its cache could not be given back what a copy held. Legs that have
    /// been given anything since, which may be that, are trusted no more.
    pub(in crate::engine) fn note_not_given_back(&mut self, record: u32, leg: usize) {
        let decides = self.entry(self.active[record].region).authority().index() == leg;
        let active = &mut self.active[record];
        if !active.cache_lost || !decides || planted::is(Planted::GivenSinceTrusted) {
            return;
        }
        for (at_loss, done) in active.done_at_loss.iter_mut().zip(active.last_done) {
            if done > *at_loss {
                *at_loss = u64::MAX;
            }
        }
    }

    /// The leg has drained an untouched region it is not recorded whole for; its bit waits for a
    /// flush begun after this.
    pub(in crate::engine) fn heal(&mut self, leg: LegIndex, region: u32) {
        self.healed[leg.index()].remove(region);
        self.healing[leg.index()].insert(region);
    }

    /// The leg owes something of the region again.
    pub(in crate::engine) fn stop_healing(&mut self, leg: LegIndex, region: u32) {
        self.healed[leg.index()].remove(region);
        self.healing[leg.index()].remove(region);
    }

    /// Regions that wait for a flush to make the leg whole there.
    pub(in crate::engine) fn healing_count(&self, leg: LegIndex) -> u64 {
        self.healing[leg.index()].count() + self.healed[leg.index()].count()
    }

    /// Returns the first region at or after `from` that waits for one.
    pub(in crate::engine) fn next_healing(&self, leg: LegIndex, from: u32) -> Option<u32> {
        let bitmaps = [&self.healing[leg.index()], &self.healed[leg.index()]];
        bitmaps.into_iter().filter_map(|bitmap| bitmap.next(from)).min()
    }

    /// Returns true if a leg has drained a region it is not recorded whole for yet.
    pub(in crate::engine) fn is_healing(&self, leg: LegIndex, region: u32) -> bool {
        let has = |bitmap: &Bitmap| bitmap.count() > 0 && bitmap.get(region);
        has(&self.healing[leg.index()]) || has(&self.healed[leg.index()])
    }

    /// Returns true if a flush is being waited for already.
    pub(in crate::engine) fn has_healed(&self, leg: LegIndex) -> bool {
        self.healed[leg.index()].count() > 0
    }

    /// Everything that heals so far is covered by the next flush.
    pub(in crate::engine) fn begin_healing_flush(&mut self, leg: LegIndex) {
        debug_assert!(!self.has_healed(leg));
        core::mem::swap(&mut self.healing[leg.index()], &mut self.healed[leg.index()]);
    }

    /// The next region whose flush is over.
    pub(in crate::engine) fn take_healed(&mut self, leg: LegIndex, from: u32) -> Option<u32> {
        let region = self.healed[leg.index()].next(from)?;
        self.healed[leg.index()].remove(region);
        Some(region)
    }

    /// Returns what is counted of every region in use.
    pub(in crate::engine) fn counts(&self) -> impl Iterator<Item = Counts> {
        self.active.iter().map(|active| Counts {
            region: active.region,
            lacks: active.lacks,
            rebuilding: active.rebuilding,
        })
    }
}
