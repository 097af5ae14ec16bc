//! The region table in memory: what is persistent of each region, and the working state of
//! the regions in use.
//!
//! Every region has a persistent entry (dirty, authority, whole legs) and one bit per leg
//! that says the leg owes all of it. Regions that are dirty, have exact debts or carry
//! traffic also have an **active** record; those are bounded and kept in order of last use.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::bitmap::Bitmap;
use super::slab::{NONE, Slab};
use super::unrecorded::Unrecorded;
use crate::format::RegionEntry;
use crate::units::{Extent, Instant, LEGS_MAX, LegIndex, SECTOR_BYTES};

/// The working state of a region in use.
#[derive(Clone, Debug)]
pub(crate) struct Active {
    pub(crate) region: u32,
    /// The sequence a page must have, durably, on the authority before anything it holds
    /// alone is acknowledged: that of the page which first named it.
    pub(crate) authority_sequence: u64,
    /// Acknowledged writes and debts each leg does not have yet.
    pub(crate) lacks: [u32; LEGS_MAX],
    /// Each leg's completion stamp at its last write here.
    pub(crate) last_done: [u64; LEGS_MAX],
    /// As `last_done`, of acknowledged writes only (or a little later): what a leg must have
    /// flushed before it may take over the region.
    pub(crate) acknowledged_done: [u64; LEGS_MAX],
    /// Its authority moved and the move is not known durable yet.
    pub(crate) move_undurable: bool,
    /// Operations of clients running here.
    pub(crate) operations: u32,
    /// First operation waiting for metadata or authority here.
    pub(crate) waiting: u32,
    /// Metadata-dependent state is to be looked at again when a leg gets further.
    pub(crate) move_wanted: bool,
    /// Move once even though the authority answers (`Policy::Paper`).
    pub(crate) move_forced: bool,
    /// Legs for which it has been taken up for rebuilding, as a mask.
    pub(crate) rebuilding: u8,
    /// Its authority lost its cache: it decides nothing before it has everything again,
    /// durably, or another has taken over.
    pub(crate) cache_lost: bool,
    /// Each leg's completion stamp when it did: one that has flushed up to it has what it was
    /// fresh for then. [`u64::MAX`] where that is not known.
    pub(crate) done_at_loss: [u64; LEGS_MAX],
    pub(crate) last_use: Instant,
    older: u32,
    newer: u32,
}

pub(crate) struct Regions {
    region_sectors: u64,
    region_shift: u32,
    volume_sectors: u64,
    table: Vec<RegionEntry>,
    slot_of: Vec<u32>,
    pub(crate) active: Slab<Active>,
    stale: [Bitmap; LEGS_MAX],
    /// Clean regions a leg has drained but is not yet recorded whole for.
    healing: [Bitmap; LEGS_MAX],
    /// Of these, the ones the flush under way covers.
    healed: [Bitmap; LEGS_MAX],
    /// Regions each leg would lose if it were the only one left, for all its own metadata says.
    unrecorded: [Unrecorded; LEGS_MAX],
    /// Legs that have a slot, as a mask.
    members: u8,
    oldest: u32,
    newest: u32,
    dirty: u32,
    authorities: [u32; LEGS_MAX],
}

impl Regions {
    pub(crate) fn new(
        volume_bytes: u64,
        region_bytes: u64,
        table: Vec<RegionEntry>,
        active_max: u32,
        members: u8,
    ) -> Regions {
        let count = table.len() as u32;
        let blank = Active {
            region: 0,
            authority_sequence: 0,
            lacks: [0; LEGS_MAX],
            last_done: [0; LEGS_MAX],
            acknowledged_done: [0; LEGS_MAX],
            move_undurable: false,
            operations: 0,
            waiting: NONE,
            move_wanted: false,
            move_forced: false,
            rebuilding: 0,
            cache_lost: false,
            done_at_loss: [0; LEGS_MAX],
            last_use: Instant(0),
            older: NONE,
            newer: NONE,
        };
        let bitmap = |leg: usize| {
            if members >> leg & 1 == 1 { Bitmap::new(count) } else { Bitmap::default() }
        };
        let unrecorded = |leg: usize| {
            if members >> leg & 1 == 1 { Unrecorded::new(count) } else { Unrecorded::default() }
        };
        let mut regions = Regions {
            region_sectors: region_bytes / SECTOR_BYTES,
            region_shift: (region_bytes / SECTOR_BYTES).trailing_zeros(),
            volume_sectors: volume_bytes / SECTOR_BYTES,
            slot_of: vec![NONE; table.len()],
            table,
            active: Slab::new(active_max.min(count.saturating_add(8)), blank),
            stale: core::array::from_fn(bitmap),
            healing: core::array::from_fn(bitmap),
            healed: core::array::from_fn(bitmap),
            unrecorded: core::array::from_fn(unrecorded),
            members,
            oldest: NONE,
            newest: NONE,
            dirty: 0,
            authorities: [0; LEGS_MAX],
        };
        for region in 0..count {
            let entry = regions.entry(region);
            if entry.is_dirty() {
                regions.dirty += 1;
                regions.authorities[entry.authority().index()] += 1;
            }
            regions.note_unrecorded(region, entry);
        }
        regions
    }

    /// Makes room for the bitmaps of a leg that joins.
    pub(crate) fn add_leg(&mut self, leg: LegIndex) {
        let count = self.table.len() as u32;
        self.stale[leg.index()] = Bitmap::new(count);
        self.healing[leg.index()] = Bitmap::new(count);
        self.healed[leg.index()] = Bitmap::new(count);
        self.unrecorded[leg.index()] = Unrecorded::new(count);
        self.members |= leg.bit();
    }

    /// Forgets the bitmaps of a leg that left.
    pub(crate) fn drop_leg(&mut self, leg: LegIndex) {
        self.stale[leg.index()] = Bitmap::default();
        self.healing[leg.index()] = Bitmap::default();
        self.healed[leg.index()] = Bitmap::default();
        self.unrecorded[leg.index()] = Unrecorded::default();
        self.members &= !leg.bit();
    }

    pub(crate) fn count(&self) -> u32 {
        self.table.len() as u32
    }

    pub(crate) fn volume_sectors(&self) -> u64 {
        self.volume_sectors
    }

    pub(crate) fn of_sector(&self, sector: u64) -> u32 {
        (sector >> self.region_shift) as u32
    }

    /// The part of `region` inside the volume.
    pub(crate) fn extent(&self, region: u32) -> Extent {
        let start = u64::from(region) << self.region_shift;
        Extent { start, end: (start + self.region_sectors).min(self.volume_sectors) }
    }

    pub(crate) fn entry(&self, region: u32) -> RegionEntry {
        self.table[region as usize]
    }

    pub(crate) fn entries(&self) -> &[RegionEntry] {
        &self.table
    }

    /// Replaces an entry, keeping the counts of dirty regions and authorities.
    pub(crate) fn set_entry(&mut self, region: u32, entry: RegionEntry) {
        let old = self.table[region as usize];
        if old.is_dirty() {
            self.dirty -= 1;
            self.authorities[old.authority().index()] -= 1;
        }
        if entry.is_dirty() {
            self.dirty += 1;
            self.authorities[entry.authority().index()] += 1;
        }
        self.table[region as usize] = entry;
        self.note_unrecorded(region, entry);
    }

    /// Any page that is written from now on may say that legs are not whole in this region.
    fn note_unrecorded(&mut self, region: u32, entry: RegionEntry) {
        let mut legs = if entry.is_dirty() { 0 } else { self.members & !entry.whole() };
        while legs != 0 {
            self.unrecorded[legs.trailing_zeros() as usize].insert(region);
            legs &= legs - 1;
        }
    }

    /// Counts regions as unrecorded: what the leg has of their page says nothing for it.
    pub(super) fn unrecord(&mut self, leg: LegIndex, regions: Range<u32>) {
        regions.for_each(|region| self.unrecorded[leg.index()].insert(region));
    }

    /// A page of these regions has become durable on the leg, with these entries.
    pub(super) fn note_recorded(
        &mut self,
        leg: LegIndex,
        regions: Range<u32>,
        entries: impl Iterator<Item = RegionEntry>,
    ) {
        let unrecorded = &mut self.unrecorded[leg.index()];
        if unrecorded.next(regions.start).is_none_or(|region| region >= regions.end) {
            return;
        }
        let holds = |entry: RegionEntry| entry.is_dirty() || entry.is_whole(leg);
        for (region, entry) in regions.zip(entries) {
            if holds(entry) && holds(self.table[region as usize]) {
                unrecorded.remove(region);
            }
        }
    }

    /// Returns true if the leg's own metadata says, or may say, that it is not whole in a clean region.
    pub(super) fn is_unrecorded(&self, leg: LegIndex, region: u32) -> bool {
        self.unrecorded[leg.index()].contains(region)
    }

    /// Returns the generation of the regions that become unrecorded for a leg now.
    pub(super) fn unrecorded_generation(&self, leg: LegIndex) -> u64 {
        self.unrecorded[leg.index()].generation()
    }

    /// Returns true if none of the regions is left that were unrecorded for the leg in that
    /// generation or before. Asking may begin the next one.
    pub(super) fn is_recorded(&mut self, leg: LegIndex, generation: u64) -> bool {
        self.unrecorded[leg.index()].is_over(generation)
    }

    pub(crate) fn dirty_count(&self) -> u32 {
        self.dirty
    }

    /// Dirty regions whose authority `leg` is.
    pub(crate) fn authority_count(&self, leg: LegIndex) -> u32 {
        self.authorities[leg.index()]
    }

    pub(crate) fn is_stale(&self, leg: LegIndex, region: u32) -> bool {
        let bitmap = &self.stale[leg.index()];
        bitmap.count() > 0 && bitmap.get(region)
    }

    pub(crate) fn set_stale(&mut self, leg: LegIndex, region: u32) -> bool {
        self.stale[leg.index()].insert(region)
    }

    pub(crate) fn clear_stale(&mut self, leg: LegIndex, region: u32) -> bool {
        self.stale[leg.index()].remove(region)
    }

    pub(crate) fn stale_count(&self, leg: LegIndex) -> u64 {
        self.stale[leg.index()].count()
    }

    pub(crate) fn next_stale(&self, leg: LegIndex, from: u32) -> Option<u32> {
        self.stale[leg.index()].next(from)
    }

    /// The leg has drained a clean region it is not recorded whole for; its bit waits for a
    /// flush begun after this.
    pub(crate) fn heal(&mut self, leg: LegIndex, region: u32) {
        self.healed[leg.index()].remove(region);
        self.healing[leg.index()].insert(region);
    }

    pub(crate) fn stop_healing(&mut self, leg: LegIndex, region: u32) {
        self.healed[leg.index()].remove(region);
        self.healing[leg.index()].remove(region);
    }

    /// Regions that wait for a flush to make the leg whole there.
    pub(crate) fn healing_count(&self, leg: LegIndex) -> u64 {
        self.healing[leg.index()].count() + self.healed[leg.index()].count()
    }

    /// Whether a flush is being waited for already.
    pub(crate) fn has_healed(&self, leg: LegIndex) -> bool {
        self.healed[leg.index()].count() > 0
    }

    /// Everything that heals so far is covered by the next flush.
    pub(crate) fn begin_healing_flush(&mut self, leg: LegIndex) {
        debug_assert!(!self.has_healed(leg));
        core::mem::swap(&mut self.healing[leg.index()], &mut self.healed[leg.index()]);
    }

    /// The next region whose flush is over.
    pub(crate) fn take_healed(&mut self, leg: LegIndex, from: u32) -> Option<u32> {
        let region = self.healed[leg.index()].next(from)?;
        self.healed[leg.index()].remove(region);
        Some(region)
    }

    /// The active record of a region, if it has one.
    pub(crate) fn slot(&self, region: u32) -> Option<u32> {
        let slot = self.slot_of[region as usize];
        (slot != NONE).then_some(slot)
    }

    /// The active record of a region, made if need be; `None` when all are in use.
    pub(crate) fn activate(&mut self, region: u32, now: Instant) -> Option<u32> {
        if let Some(slot) = self.slot(region) {
            return Some(slot);
        }
        let key = self.active.insert(Active {
            region,
            authority_sequence: 0,
            lacks: [0; LEGS_MAX],
            last_done: [0; LEGS_MAX],
            acknowledged_done: [0; LEGS_MAX],
            move_undurable: false,
            operations: 0,
            waiting: NONE,
            move_wanted: false,
            move_forced: false,
            rebuilding: 0,
            cache_lost: false,
            done_at_loss: [0; LEGS_MAX],
            last_use: now,
            older: NONE,
            newer: NONE,
        })?;
        self.slot_of[region as usize] = key.slot;
        self.link_newest(key.slot);
        Some(key.slot)
    }

    /// Frees the active record of a clean region with nothing left to do.
    pub(crate) fn retire(&mut self, slot: u32) {
        let active = &self.active[slot];
        let idle = active.operations == 0
            && active.waiting == NONE
            && !active.move_undurable
            && active.lacks.iter().all(|&l| l == 0)
            && !self.entry(active.region).is_dirty();
        if idle {
            let region = active.region;
            self.unlink(slot);
            self.slot_of[region as usize] = NONE;
            self.active.remove(slot);
        }
    }

    pub(crate) fn touch(&mut self, slot: u32, now: Instant) {
        self.active[slot].last_use = now;
        if self.newest != slot {
            self.unlink(slot);
            self.link_newest(slot);
        }
    }

    fn link_newest(&mut self, slot: u32) {
        let older = self.newest;
        self.active[slot].older = older;
        self.active[slot].newer = NONE;
        if older == NONE {
            self.oldest = slot;
        } else {
            self.active[older].newer = slot;
        }
        self.newest = slot;
    }

    fn unlink(&mut self, slot: u32) {
        let (older, newer) = (self.active[slot].older, self.active[slot].newer);
        if older == NONE {
            self.oldest = newer;
        } else {
            self.active[older].newer = newer;
        }
        if newer == NONE {
            self.newest = older;
        } else {
            self.active[newer].older = older;
        }
    }

    /// The least recently used active record.
    pub(crate) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// The next record used after `slot` was.
    pub(crate) fn newer(&self, slot: u32) -> Option<u32> {
        let newer = self.active[slot].newer;
        (newer != NONE).then_some(newer)
    }

    /// Whether `leg` holds everything acknowledged in `region`.
    pub(crate) fn is_complete(&self, leg: LegIndex, region: u32) -> bool {
        if self.is_stale(leg, region) {
            return false;
        }
        self.slot(region).is_none_or(|slot| self.active[slot].lacks[leg.index()] == 0)
    }
}
