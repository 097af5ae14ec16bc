//! The queue: debts by sector, and by age.

use super::{Carved, Debt, Lacked, Since, Source};
use crate::engine::state::slab::{Key, NONE, Slab};
use crate::engine::state::sorted::SortedIndex;
use crate::io::Buffers;
use hemi_units::{Extent, Instant};

/// Debts of operations a client still waits for.
const URGENT: usize = 0;
/// Acknowledged ones.
const OWED: usize = 1;
/// Those of rebuilds.
const REBUILD: usize = 2;

impl Debt {
    /// Returns the list by age that it is in.
    fn list(&self) -> usize {
        match (self.is_rebuild(), self.is_acknowledged()) {
            (true, _) => REBUILD,
            (_, true) => OWED,
            _ => URGENT,
        }
    }
}

#[derive(Clone, Copy)]
struct Ages {
    oldest: u32,
    newest: u32,
}

/// The debts of one leg.
pub(crate) struct Debts {
    entries: Slab<Debt>,
    index: SortedIndex,
    /// Ends of the lists by age, by [`Debt::list`].
    ages: [Ages; 3],
    /// Acknowledged sectors owed, rebuilds left out.
    sectors: u64,
    /// Sectors of regions taken up for rebuilding.
    rebuild_sectors: u64,
    /// Sectors of these that are known to wait for a leg that they can be read from.
    waiting_sectors: u64,
    /// Counts the times that a leg has come to answer again.
    round: u32,
    /// Debts of operations that are not acknowledged.
    urgent: u32,
    /// Debts that have superseded older ones.
    superseding: u32,
    /// The one that was last found to do so for long.
    longest: Key,
}

impl Debts {
    pub(crate) fn new(capacity: u32) -> Debts {
        Debts {
            entries: Slab::new(capacity),
            index: SortedIndex::new(capacity),
            ages: [Ages { oldest: NONE, newest: NONE }; 3],
            sectors: 0,
            rebuild_sectors: 0,
            waiting_sectors: 0,
            round: 1,
            urgent: 0,
            superseding: 0,
            longest: Key::NONE,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Room for a further debt, splits included.
    pub(crate) fn has_room(&self, debts: usize) -> bool {
        self.entries.free_slots() >= debts
    }

    /// Acknowledged bytes owed.
    pub(crate) fn bytes(&self) -> u64 {
        self.sectors * hemi_units::SECTOR_BYTES
    }

    /// Bytes of regions taken up for rebuilding and not yet in flight.
    pub(crate) fn rebuild_bytes(&self) -> u64 {
        self.rebuild_sectors * hemi_units::SECTOR_BYTES
    }

    /// Bytes of these that are not known to wait for a leg that is silent.
    pub(crate) fn payable_rebuild_bytes(&self) -> u64 {
        (self.rebuild_sectors - self.waiting_sectors) * hemi_units::SECTOR_BYTES
    }

    /// Returns the number of debts of operations a client still waits for.
    pub(crate) fn urgent(&self) -> u32 {
        self.urgent
    }

    /// Returns when the oldest debt began; `None` when nothing is owed but rebuilds.
    pub(crate) fn oldest_since(&self) -> Option<Instant> {
        let oldest = [URGENT, OWED].map(|list| self.ages[list].oldest).into_iter();
        oldest.filter(|&slot| slot != NONE).map(|slot| self.entries[slot].since.arrived).min()
    }

    /// Returns true if anything has been lacked since this moment or longer, superseded writes
    /// included. Only where there are such are debts looked at one by one, the newest first: it is mostly
    /// what has just been written again that has been lacked for long. What was found is kept.
    pub(crate) fn is_lacked_since(&mut self, moment: Instant) -> bool {
        if self.oldest_since().is_some_and(|since| since <= moment) {
            return true;
        }
        let is_it = |debt: &Debt| debt.since.lacked <= moment;
        if self.superseding == 0 {
            return false;
        }
        if self.entries.get(self.longest).is_some_and(is_it) {
            return true;
        }
        let mut at = self.ages[OWED].newest;
        while at != NONE {
            if is_it(&self.entries[at]) {
                self.longest = self.entries.key(at);
                return true;
            }
            at = self.entries[at].older;
        }
        false
    }

    /// The first debt that ends after `sector`.
    #[inline]
    pub(crate) fn first_after(&self, sector: u64) -> Option<(u32, Debt)> {
        if self.is_empty() {
            // Most legs owe nothing most of the time, and every request asks.
            return None;
        }
        self.from(sector).next().map(|(slot, debt)| (slot, *debt))
    }

    /// Returns the debts in order of sectors, from the first that ends after `sector` on.
    pub(crate) fn from(&self, sector: u64) -> impl Iterator<Item = (u32, &Debt)> {
        let debts = self.index.from(sector).map(|slot| (slot, &self.entries[slot]));
        debts.skip_while(move |(_, debt)| debt.extent.end <= sector)
    }

    /// The debt in an arena slot the caller has just been given.
    pub(crate) fn by_slot(&self, slot: u32) -> Option<(u32, Debt)> {
        self.entries.is_used(slot).then(|| (slot, self.entries[slot]))
    }

    /// Returns the name of the acknowledged debt without a copy that owes just this extent.
    pub(crate) fn named(&self, extent: Extent) -> Option<Key> {
        let (slot, debt) = self.overlapping(extent)?;
        let is_it = debt.extent == extent && debt.is_acknowledged() && debt.source == Source::Leg;
        is_it.then(|| self.entries.key(slot))
    }

    /// Returns the slot of the debt of this name, if it still owes just this extent.
    pub(crate) fn by_name(&self, name: Key, extent: Extent) -> Option<u32> {
        self.entries.get(name).filter(|debt| debt.extent == extent).map(|_| name.slot)
    }

    /// The first debt overlapping `extent`.
    #[inline]
    pub(crate) fn overlapping(&self, extent: Extent) -> Option<(u32, Debt)> {
        self.first_after(extent.start).filter(|(_, debt)| debt.extent.start < extent.end)
    }

    /// The oldest acknowledged debt for which `wanted` holds, looking at no more than `limit`.
    pub(crate) fn oldest_where(
        &self,
        limit: usize,
        wanted: impl FnMut(&Debt) -> bool,
    ) -> Option<(u32, Debt)> {
        self.oldest_of(OWED, limit, wanted)
    }

    /// Does as [`Debts::oldest_where`] among the debts that a client still waits for.
    pub(crate) fn oldest_urgent_where(
        &self,
        limit: usize,
        wanted: impl FnMut(&Debt) -> bool,
    ) -> Option<(u32, Debt)> {
        self.oldest_of(URGENT, limit, wanted)
    }

    fn oldest_of(
        &self,
        list: usize,
        limit: usize,
        mut wanted: impl FnMut(&Debt) -> bool,
    ) -> Option<(u32, Debt)> {
        let mut at = self.ages[list].oldest;
        for _ in 0..limit {
            if at == NONE {
                return None;
            }
            let debt = self.entries[at];
            if wanted(&debt) {
                return Some((at, debt));
            }
            at = debt.newer;
        }
        None
    }

    /// Adds a debt where nothing is owed; the caller has carved and checked for room. The
    /// debt takes over one reference to its buffer.
    pub(crate) fn add(&mut self, debt: Debt) {
        debug_assert!(!debt.extent.is_empty() && self.overlapping(debt.extent).is_none());
        if debt.is_rebuild() {
            self.rebuild_sectors += debt.extent.sectors();
            self.waiting_sectors += self.waiting_sectors(&debt);
        } else if debt.is_acknowledged() {
            self.sectors += debt.extent.sectors();
        } else {
            self.urgent += 1;
        }
        self.superseding += u32::from(debt.since.is_superseding());
        let key = self.entries.insert(debt).expect("the caller checked has_room");
        self.index.insert(debt.extent.start, key.slot);
        self.link_by_age(key.slot);
    }

    /// Keeps its age list ordered. Almost always a debt is newer than all others, or, after a write that
    /// failed, than few.
    fn link_by_age(&mut self, slot: u32) {
        let list = self.entries[slot].list();
        let (older, newer) = self.place_by_age(list, self.entries[slot].since.arrived);
        self.entries[slot].older = older;
        self.entries[slot].newer = newer;
        if older == NONE {
            self.ages[list].oldest = slot;
        } else {
            self.entries[older].newer = slot;
        }
        if newer == NONE {
            self.ages[list].newest = slot;
        } else {
            self.entries[newer].older = slot;
        }
    }

    /// Returns the newest debt of a list that arrived no later than `arrived`, and the one after it:
    /// [`NONE`] beyond the ends. Looks from both ends at once.
    fn place_by_age(&self, list: usize, arrived: Instant) -> (u32, u32) {
        let Ages { oldest, newest } = self.ages[list];
        let is_later = |slot: u32| self.entries[slot].since.arrived > arrived;
        let (mut at_new, mut at_old) = ((newest, NONE), (NONE, oldest));
        loop {
            if at_new.0 == NONE || !is_later(at_new.0) {
                return at_new;
            }
            if at_old.1 == NONE || is_later(at_old.1) {
                return at_old;
            }
            at_new = (self.entries[at_new.0].older, at_new.0);
            at_old = (at_old.1, self.entries[at_old.1].newer);
        }
    }

    fn unlink_by_age(&mut self, slot: u32) {
        let debt = self.entries[slot];
        let list = debt.list();
        if debt.older == NONE {
            self.ages[list].oldest = debt.newer;
        } else {
            self.entries[debt.older].newer = debt.newer;
        }
        if debt.newer == NONE {
            self.ages[list].newest = debt.older;
        } else {
            self.entries[debt.newer].older = debt.older;
        }
    }

    /// Takes a debt out; its buffer reference is the caller's.
    pub(crate) fn take(&mut self, slot: u32) -> Debt {
        let debt = self.entries[slot];
        if debt.is_rebuild() {
            self.rebuild_sectors -= debt.extent.sectors();
            self.waiting_sectors -= self.waiting_sectors(&debt);
        } else if debt.is_acknowledged() {
            self.sectors -= debt.extent.sectors();
        } else {
            self.urgent -= 1;
        }
        self.superseding -= u32::from(debt.since.is_superseding());
        let removed = self.index.remove(debt.extent.start);
        debug_assert_eq!(removed, Some(slot));
        self.unlink_by_age(slot);
        self.entries.remove(slot);
        debt
    }

    /// Takes the first `sectors` sectors of an acknowledged debt, leaving the rest owed.
    pub(crate) fn take_front<B: Buffers>(
        &mut self,
        slot: u32,
        sectors: u64,
        buffers: &mut B,
    ) -> (Debt, bool) {
        let whole = self.take(slot);
        if whole.extent.sectors() <= sectors {
            return (whole, false);
        }
        let cut = whole.extent.start + sectors;
        let mut rest = whole;
        rest.waits_since = 0;
        rest.extent.start = cut;
        rest.source = whole.source.skip(sectors);
        rest.source.retain(buffers);
        self.add(rest);
        let mut front = whole;
        front.extent.end = cut;
        (front, true)
    }

    /// Marks a debt's operation acknowledged, and gives its copy back unless it is to be
    /// kept; whether the debt was still there. The leg has lacked what it superseded since
    /// `since`.
    pub(crate) fn acknowledge<B: Buffers>(
        &mut self,
        extent: Extent,
        operation: Key,
        since: Since,
        keep_copy: bool,
        buffers: &mut B,
    ) -> bool {
        let Some((slot, debt)) = self.overlapping(extent) else { return false };
        if debt.operation != operation {
            return false;
        }
        self.unlink_by_age(slot);
        self.entries[slot].operation = Key::NONE;
        self.date_back(slot, since);
        self.link_by_age(slot);
        self.urgent -= 1;
        self.sectors += debt.extent.sectors();
        if !keep_copy && matches!(debt.source, Source::Buffer(_)) {
            self.give_up_copy(slot, buffers);
        }
        true
    }

    /// Gives up the copy that a debt keeps: it is read from a fresh leg when it is paid.
    pub(crate) fn give_up_copy<B: Buffers>(&mut self, slot: u32, buffers: &mut B) {
        self.entries[slot].source.release(buffers);
        self.entries[slot].source = Source::Leg;
    }

    /// The leg has lacked something acknowledged there since then: a write that this debt has
    /// superseded has failed.
    pub(crate) fn date_back(&mut self, slot: u32, since: Since) {
        let debt = &mut self.entries[slot];
        self.superseding -= u32::from(debt.since.is_superseding());
        debt.since = debt.since.beneath(since);
        self.superseding += u32::from(debt.since.is_superseding());
    }

    /// Puts off a debt that cannot be read now. `no_source`: no leg that answers is fresh for it.
    pub(crate) fn postpone(&mut self, slot: u32, until: Instant, no_source: bool) {
        let mut debt = self.entries[slot];
        let before = self.waiting_sectors(&debt);
        debt.not_before = until;
        debt.waits_since = if no_source { self.round } else { 0 };
        if debt.is_rebuild() {
            self.waiting_sectors = self.waiting_sectors - before + self.waiting_sectors(&debt);
        }
        self.entries[slot] = debt;
    }

    /// A leg answers again: what has been waiting for one may be there.
    pub(crate) fn begin_round(&mut self) {
        self.waiting_sectors = 0;
        self.round += 1;
    }

    /// Its sectors if it is known to wait for a leg that it can be read from.
    fn waiting_sectors(&self, debt: &Debt) -> u64 {
        if debt.waits_since == self.round { debt.extent.sectors() } else { 0 }
    }

    pub(crate) fn set_tries(&mut self, extent: Extent, tries: u8) {
        if let Some((slot, debt)) = self.overlapping(extent)
            && debt.extent == extent
        {
            self.entries[slot].tries = tries;
        }
    }

    /// Removes `extent` from every debt it overlaps, splitting at its edges. Needs room for
    /// one more debt.
    pub(crate) fn carve<B: Buffers>(&mut self, extent: Extent, buffers: &mut B) -> Carved {
        let mut carved = Carved::default();
        while let Some((slot, _)) = self.overlapping(extent) {
            let debt = self.take(slot);
            debug_assert!(debt.is_acknowledged(), "range locks keep waiting writes disjoint");
            carved.debts -= 1;
            carved.superseded = true;
            let sectors = debt.extent.intersection(extent).sectors();
            carved.sectors += Lacked::of(debt.is_rebuild(), sectors);
            carved.since = Some(carved.since.map_or(debt.since, |since| since.or(debt.since)));
            let front = Extent { start: debt.extent.start, end: extent.start };
            let back = Extent { start: extent.end, end: debt.extent.end };
            for piece in [front, back] {
                if !piece.is_empty() {
                    let mut kept = debt;
                    kept.extent = piece;
                    kept.source = debt.source.skip(piece.start - debt.extent.start);
                    kept.source.retain(buffers);
                    self.add(kept);
                    carved.debts += 1;
                }
            }
            debt.source.release(buffers);
        }
        carved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identifiers::BufferAt;
    use crate::identifiers::BufferId;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    #[derive(Default)]
    struct Counts(BTreeMap<u32, i64>);

    impl Buffers for Counts {
        fn allocate(&mut self, _: u32) -> Option<BufferId> {
            None
        }
        fn retain(&mut self, buffer: BufferId) {
            *self.0.entry(buffer.0).or_default() += 1;
        }
        fn release(&mut self, buffer: BufferId) {
            *self.0.entry(buffer.0).or_default() -= 1;
        }
        fn copy(&mut self, _: BufferAt, _: BufferAt, _: u32) {}
        fn zero(&mut self, _: BufferAt, _: u32) {}
        fn equal(&self, _: BufferAt, _: BufferAt, _: u32) -> bool {
            true
        }
        fn is_zero(&self, _: BufferAt, _: u32) -> bool {
            false
        }
        fn free_bytes(&self) -> u64 {
            0
        }
    }

    proptest! {
        /// Against one cell per sector: newest write wins, references balance, sums agree.
        #[test]
        fn newer_debts_supersede(writes in proptest::collection::vec((0u64..100, 1u64..20), 1..60)) {
            let mut debts = Debts::new(256);
            let mut buffers = Counts::default();
            let mut cells: Vec<Option<(u32, u64)>> = std::vec![None; 128];
            for (number, (start, count)) in writes.iter().enumerate() {
                let extent = Extent::new(*start, *count);
                debts.carve(extent, &mut buffers);
                let buffer = BufferId(number as u32);
                buffers.retain(buffer);
                let source = Source::Buffer(BufferAt { buffer, offset: 0 });
                debts.add(Debt::new(extent, source, Since::at(Instant(number as u64)), Key::NONE));
                for sector in extent.start..extent.end {
                    cells[sector as usize] = Some((number as u32, sector - extent.start));
                }
            }
            let mut seen: Vec<Option<(u32, u64)>> = std::vec![None; 128];
            let mut references: BTreeMap<u32, i64> = BTreeMap::new();
            let mut at = 0;
            while let Some((_, debt)) = debts.first_after(at) {
                let Source::Buffer(place) = debt.source else { panic!("all have buffers") };
                *references.entry(place.buffer.0).or_default() += 1;
                for sector in debt.extent.start..debt.extent.end {
                    let offset = u64::from(place.offset) + sector - debt.extent.start;
                    seen[sector as usize] = Some((place.buffer.0, offset));
                }
                at = debt.extent.end;
            }
            prop_assert_eq!(&seen, &cells);
            let owed = cells.iter().filter(|c| c.is_some()).count() as u64;
            prop_assert_eq!(debts.bytes(), owed * 512);
            for (buffer, count) in &buffers.0 {
                prop_assert_eq!(references.get(buffer).copied().unwrap_or(0), *count);
            }
        }

        /// Against a plain list: by arrival, and in order of their coming where that is the same.
        #[test]
        fn debts_are_kept_by_age(steps in proptest::collection::vec((0u64..12, any::<bool>()), 1..80)) {
            let mut debts = Debts::new(256);
            let mut model: Vec<(u64, u64)> = Vec::new();
            for (sector, (number, takes)) in (0..).zip(steps) {
                if takes && !model.is_empty() {
                    let (_, taken) = model.remove(number as usize % model.len());
                    let (slot, _) = debts.overlapping(Extent::new(taken, 1)).expect("it is owed");
                    debts.take(slot);
                    continue;
                }
                let since = Since::at(Instant(number));
                debts.add(Debt::new(Extent::new(sector, 1), Source::Leg, since, Key::NONE));
                model.insert(model.partition_point(|one| one.0 <= number), (number, sector));
                let sectors: Vec<u64> = model.iter().map(|one| one.1).collect();
                prop_assert_eq!(by_age(&debts, |ages| ages.oldest, |debt| debt.newer), &sectors[..]);
                let mut back = by_age(&debts, |ages| ages.newest, |debt| debt.older);
                back.reverse();
                prop_assert_eq!(back, sectors);
            }
        }
    }

    /// Returns the sectors owed of the list that has any, from one end on.
    fn by_age(debts: &Debts, end: fn(Ages) -> u32, next: fn(&Debt) -> u32) -> Vec<u64> {
        let owed = |slot: u32| (slot != NONE).then_some(slot);
        let begun = debts.ages.iter().find_map(|ages| owed(end(*ages)));
        let slots = core::iter::successors(begun, |slot| owed(next(&debts.entries[*slot])));
        slots.map(|slot| debts.entries[slot].extent.start).collect()
    }
}
