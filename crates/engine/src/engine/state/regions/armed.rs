//! The armed regions: dirty in their page, though nothing has been written there since every whole
//! leg had flushed it. A write to one needs no record first.
//!
//! While the volume is served an armed region is as good as a clean one: every whole leg holds
//! everything there, durably, and nobody has to decide. Only after an unclean stop it counts as
//! dirty. So armed regions are bounded, by `resync_bytes`, and kept in order of last use: where the
//! bound presses the oldest become clean, which takes a page write in the background and no flush.
//! They need no record of their own: what has to be known is the sequence that names their
//! authority, and that is kept for each page.

use alloc::vec;
use alloc::vec::Vec;

use super::bitmap::Bitmap;
use super::{Candidates, Regions};
use crate::engine::state::slab::{NONE, Slab};
use crate::identifiers::{LEGS_MAX, LegIndex};
use crate::marks::{Mark, Marks};
use crate::planted::{self, Planted};
use crate::settings::Settings;

/// While the bound presses, this many of the regions used last long ago make room for those nearest to
/// one that is written.
const REPLACED: u32 = 16;
/// Armed regions that are looked at for one that can become clean.
const LOOKED_AT: usize = 64;

/// A place in the order of last use.
#[derive(Clone, Copy)]
struct Place {
    region: u32,
    older: u32,
    newer: u32,
}

/// The armed regions in order of last use, and what is known of their pages.
pub(super) struct Armed {
    /// The place of each region; [`NONE`] if it is not armed.
    place_of: Vec<u32>,
    places: Slab<Place>,
    oldest: u32,
    newest: u32,
    /// For each page and leg: the sequence that names the leg in all entries of the page it may
    /// decide, armed ones.
    sequences: Vec<[u64; LEGS_MAX]>,
    /// Regions that may be dirty for others to be armed beside them.
    dirty_max: u32,
    /// Regions whose authority has come to lack something.
    behind: Bitmap,
}

impl Armed {
    pub(super) fn new(regions: u32, pages: u32, dirty_max: u32) -> Armed {
        Armed {
            place_of: vec![NONE; regions as usize],
            places: Slab::new(dirty_max.min(regions)),
            oldest: NONE,
            newest: NONE,
            sequences: vec![[0; LEGS_MAX]; pages as usize],
            dirty_max,
            behind: Bitmap::new(regions),
        }
    }

    /// Counts the armed regions.
    pub(super) fn count(&self) -> u32 {
        self.places.len() as u32
    }

    /// Returns true if one more region can be armed.
    pub(super) fn has_room(&self) -> bool {
        self.places.free_slots() > 0
    }

    /// Adds a region that has been used just now, or that has never been.
    pub(super) fn insert(&mut self, region: u32, was_used: bool) {
        let at = self
            .places
            .insert(Place { region, older: NONE, newer: NONE })
            .expect("no more regions are armed than may be dirty")
            .slot;
        let (older, newer) = if was_used { (self.newest, NONE) } else { (NONE, self.oldest) };
        (self.places[at].older, self.places[at].newer) = (older, newer);
        self.link(older, at, newer);
        self.place_of[region as usize] = at;
    }

    /// Takes a region out, if it is there.
    pub(super) fn remove(&mut self, region: u32) {
        let at = core::mem::replace(&mut self.place_of[region as usize], NONE);
        if at == NONE {
            return;
        }
        let Place { older, newer, .. } = self.places[at];
        if older == NONE {
            self.oldest = newer;
        } else {
            self.places[older].newer = newer;
        }
        if newer == NONE {
            self.newest = older;
        } else {
            self.places[newer].older = older;
        }
        self.places.remove(at);
    }

    fn link(&mut self, older: u32, at: u32, newer: u32) {
        if older == NONE {
            self.oldest = at;
        } else {
            self.places[older].newer = at;
        }
        if newer == NONE {
            self.newest = at;
        } else {
            self.places[newer].older = at;
        }
    }

    /// Returns the region that has not been used for longest.
    fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then(|| self.places[self.oldest].region)
    }

    /// Returns the region used next after this one was.
    fn newer(&self, region: u32) -> Option<u32> {
        let newer = self.places[self.place_of[region as usize]].newer;
        (newer != NONE).then(|| self.places[newer].region)
    }

    /// Returns the sequence a page must have, durably, on a leg before that decides any armed region
    /// of the page.
    pub(super) fn sequence(&self, page: u32, leg: LegIndex) -> u64 {
        self.sequences[page as usize][leg.index()]
    }

    /// The page of this sequence names the leg as the authority of an armed region.
    pub(super) fn note_sequence(&mut self, page: u32, leg: LegIndex, sequence: u64) {
        let newest = &mut self.sequences[page as usize][leg.index()];
        *newest = sequence.max(*newest);
    }
}

/// Returns how many regions may be dirty for others to be armed: those that an unclean stop may have
/// compared.
pub(super) fn dirty_max(settings: &Settings, region_bytes: u64) -> u32 {
    if settings.resync_bytes == 0 {
        return 0;
    }
    let regions = (settings.resync_bytes / region_bytes).max(1);
    settings.dirty_regions_max.min(regions.try_into().unwrap_or(u32::MAX))
}

impl Regions {
    /// Returns true if a region is dirty in its page alone: every whole leg holds everything there,
    /// durably.
    pub(in crate::engine) fn is_armed(&self, region: u32) -> bool {
        self.entry(region).is_dirty() && !self.is_touched(region)
    }

    /// Counts the armed regions.
    pub(in crate::engine) fn armed_count(&self) -> u32 {
        self.armed.count()
    }

    /// Returns how many regions may be dirty before those that are idle have to become clean; `None`
    /// if none stay armed.
    pub(in crate::engine) fn dirty_bound(&self) -> Option<u32> {
        (self.armed.dirty_max > 0).then_some(self.armed.dirty_max)
    }

    /// Takes an armed region for a write, without a record first. Returns false if it is not armed,
    /// if its authority has come to lack something, or if it should get another one on the way: a
    /// record on a fast leg takes less time than a write on a slow one.
    pub(in crate::engine) fn touch_armed(
        &mut self,
        record: u32,
        among: &Candidates,
        marks: &mut Marks,
    ) -> bool {
        let region = self.active[record].region;
        if !self.is_armed(region) {
            return false;
        }
        let entry = self.entry(region);
        let leg = entry.authority();
        if !self.is_complete(leg, region) {
            return false;
        }
        if let Some(best) = self.choose_authority(region, None, among) {
            let slow = |leg: LegIndex| among.legs[leg.index()].pace.is_slow();
            let stays = among.answers(leg) && !among.is_leaving(leg) && (!slow(leg) || slow(best));
            if best != leg && !stays {
                return self.touch_elsewhere(record, best, among, marks);
            }
        }
        marks.add(Mark::ArmedWritten);
        let sequence = self.armed.sequence(self.metadata.page_of(region), leg);
        self.set_state(region, entry, true);
        self.note_touched(record, sequence);
        true
    }

    /// Takes an armed region for a write under another leg that is whole there. Its page says that it
    /// is dirty, so only the ledger has to say under whom. Returns false without one, or if the page
    /// is not durable: a record under the other leg takes no longer then.
    fn touch_elsewhere(
        &mut self,
        record: u32,
        to: LegIndex,
        among: &Candidates,
        marks: &mut Marks,
    ) -> bool {
        let region = self.active[record].region;
        let entry = self.entry(region);
        let from = entry.authority();
        let page = self.metadata.page_of(region);
        let recorded = self.metadata.durable(page, from) >= self.armed.sequence(page, from)
            || planted::is(Planted::TouchedUnrecorded);
        if !self.goes_by_ledger() || !recorded || !self.metadata.knows_lost(to) {
            return false;
        }
        marks.add(Mark::TouchedElsewhere);
        let sequence = self.metadata.change(page);
        self.set_state(region, entry.with_authority(to), true);
        self.note_touched(record, sequence);
        self.active[record].is_recorded = true;
        self.note_moved(record, among.now);
        true
    }

    /// Arms a region nobody has used for a while, or cleans it where too many are dirty. These legs,
    /// as a mask, hold everything there, durably; the authority is one of them, and recorded as such.
    /// Returns true if it is armed.
    pub(in crate::engine) fn settle(&mut self, record: u32, whole: u8) -> bool {
        let region = self.active[record].region;
        let entry = self.entry(region);
        let leg = entry.authority();
        let fits = self.dirty_count() <= self.armed.dirty_max && self.armed.has_room();
        if !fits || self.active[record].is_found || !self.is_complete(leg, region) {
            self.clean(region, whole);
            return false;
        }
        self.note_settled(region);
        let page = self.metadata.page_of(region);
        self.armed.note_sequence(page, leg, self.active[record].authority_sequence);
        self.set_cache_lost(record, false);
        self.set_state(region, entry.with_whole(whole), false);
        if whole != entry.whole() {
            self.metadata.change(page);
        }
        true
    }

    /// Makes room for one more dirty region: the armed ones used last long ago become clean.
    pub(super) fn make_room_to_arm(&mut self, marks: &mut Marks) {
        while self.dirty >= self.armed.dirty_max && self.disarm_oldest(marks) {}
    }

    fn disarm_oldest(&mut self, marks: &mut Marks) -> bool {
        let newer = |region: &u32| self.armed.newer(*region);
        let mut oldest = core::iter::successors(self.armed.oldest(), newer).take(LOOKED_AT);
        let Some(region) = oldest.find(|&region| self.may_be_disarmed(region)) else {
            return false;
        };
        marks.add(Mark::Disarmed);
        self.disarm(region);
        true
    }

    /// Returns true if no leg would lose by it that an armed region becomes clean: one that has
    /// everything and is not recorded whole yet may count for a flush of several copies.
    fn may_be_disarmed(&self, region: u32) -> bool {
        let heals = |leg: LegIndex| self.is_healing(leg, region);
        planted::is(Planted::DisarmedWhileHealing) || !self.member_legs().any(heals)
    }

    /// Arms clean regions of the page that is to say so of `region`, the nearest first, under the
    /// same authority. Only those for which it is whole: recovery would take the others from it.
    pub(super) fn arm_neighbours(
        &mut self,
        region: u32,
        leg: LegIndex,
        sequence: u64,
        marks: &mut Marks,
    ) {
        let page = self.metadata.page_of(region);
        let regions = self.metadata.layout().page_regions(page);
        let replaced = REPLACED.min(self.armed.dirty_max / 4);
        while self.dirty + replaced > self.armed.dirty_max && self.disarm_oldest(marks) {}
        let (mut below, mut above) = (region, region + 1);
        while below > regions.start || above < regions.end {
            for next in [(above < regions.end).then_some(above), below.checked_sub(1)] {
                let Some(next) = next.filter(|next| regions.contains(next)) else { continue };
                if self.dirty >= self.armed.dirty_max || !self.armed.has_room() {
                    return;
                }
                let entry = self.entry(next);
                let is_whole = entry.is_whole(leg) || planted::is(Planted::ArmedForBehind);
                if !entry.is_dirty() && is_whole && self.is_complete(leg, next) {
                    marks.add(Mark::Armed);
                    self.armed.note_sequence(page, leg, sequence);
                    self.set_state(next, entry.with_authority(leg), false);
                }
            }
            (below, above) = (below.saturating_sub(1), above + 1);
        }
    }

    /// Gives an armed region another authority along with others of its page, if it can.
    pub(super) fn carry_armed(&mut self, region: u32, to: LegIndex, sequence: u64) {
        let entry = self.entry(region);
        let can_go = entry.is_whole(to) && self.is_complete(to, region);
        if self.is_armed(region) && can_go && self.metadata.knows_lost(to) {
            self.armed.note_sequence(self.metadata.page_of(region), to, sequence);
            self.set_state(region, entry.with_authority(to), false);
        }
    }

    /// Makes an armed region clean. Its page says so whenever it is written next.
    fn disarm(&mut self, region: u32) {
        debug_assert!(self.is_armed(region), "region {region} is not armed");
        self.set_state(region, self.entry(region).cleaned(), false);
        self.metadata.change(self.metadata.page_of(region));
    }

    /// Makes every armed region clean that can be.
    pub(in crate::engine) fn disarm_all(&mut self) {
        let mut at = self.armed.oldest();
        while let Some(region) = at {
            at = self.armed.newer(region);
            if self.may_be_disarmed(region) {
                self.disarm(region);
            }
        }
    }

    /// Takes the armed regions from a leg that leaves. Others are whole there.
    pub(in crate::engine) fn disarm_all_of(&mut self, leg: LegIndex, stay: u8) {
        let mut at = self.armed.oldest();
        while let Some(region) = at
            && (self.armed_under[leg.index()] > 0 || planted::is(Planted::ArmedWalkedAgain))
        {
            at = self.armed.newer(region);
            if self.entry(region).authority() == leg {
                self.take_armed(region, stay);
            }
        }
    }

    /// Gives an armed region to one of these other legs, as a mask, that is whole there. If none is,
    /// it becomes clean.
    fn take_armed(&mut self, region: u32, legs: u8) {
        let from = self.entry(region).authority();
        let sequence = self.metadata.change(self.metadata.page_of(region));
        for leg in self.member_legs().filter(|&leg| leg != from && legs & leg.bit() != 0) {
            self.carry_armed(region, leg, sequence);
            if self.entry(region).authority() == leg {
                return;
            }
        }
        self.disarm(region);
    }

    /// A leg is to get something of a region. Were it to decide the region after an unclean stop,
    /// recovery would believe it: another decides the region if it is armed, before the next page is
    /// written.
    pub(super) fn note_behind(&mut self, leg: LegIndex, region: u32) {
        if self.is_armed(region) && self.entry(region).authority() == leg {
            self.armed.behind.insert(region);
        }
    }

    /// Returns true if an armed region may have an authority that does not have everything.
    pub(in crate::engine) fn has_armed_behind(&self) -> bool {
        self.armed.behind.count() > 0
    }

    /// Gives the armed regions whose authority does not have everything to another leg. One that no
    /// other leg can decide becomes clean, as soon as that makes no other leg lose it.
    pub(in crate::engine) fn redecide_behind(&mut self, among: &Candidates) {
        let mut from = 0;
        while let Some(region) = self.armed.behind.next(from) {
            from = region + 1;
            let leg = self.entry(region).authority();
            if self.is_armed(region) && !self.is_complete(leg, region) {
                match self.choose_authority(region, Some(leg), among) {
                    Some(other) => self.take_armed(region, other.bit()),
                    None if self.may_be_disarmed(region) => self.disarm(region),
                    None => continue,
                }
            }
            self.armed.behind.remove(region);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_order(armed: &Armed) -> Vec<u32> {
        let newer = |region: &u32| armed.newer(*region);
        core::iter::successors(armed.oldest(), newer).collect()
    }

    #[test]
    fn regions_come_in_order_of_last_use_and_unused_ones_first() {
        let mut armed = Armed::new(10, 1, 8);
        for region in [3, 5, 7] {
            armed.insert(region, true);
        }
        armed.insert(4, false);
        armed.insert(6, false);
        assert_eq!(in_order(&armed), [6, 4, 3, 5, 7]);
        armed.remove(6);
        armed.remove(5);
        armed.remove(5);
        armed.insert(5, true);
        assert_eq!(in_order(&armed), [4, 3, 7, 5]);
        armed.remove(5);
        armed.remove(4);
        assert_eq!(in_order(&armed), [3, 7]);
        assert_eq!(armed.count(), 2);
    }

    #[test]
    fn sequences_only_grow() {
        let mut armed = Armed::new(10, 2, 8);
        armed.note_sequence(1, LegIndex(2), 7);
        armed.note_sequence(1, LegIndex(2), 5);
        assert_eq!(armed.sequence(1, LegIndex(2)), 7);
        assert_eq!(armed.sequence(0, LegIndex(2)), 0);
    }
}
