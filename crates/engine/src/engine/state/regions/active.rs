//! The working state of the regions in use: a bounded number, in order of last use.

use super::bitmap::Bitmap;
use super::order::{Order, Wait, Walk};
use crate::engine::state::slab::{Key, NONE, Slab};
use crate::identifiers::LEGS_MAX;
use hemi_units::Instant;

/// Moves of a region's authority of which no page that is durable says anything.
#[derive(Clone, Copy, Debug)]
pub(super) struct Undurable {
    /// The number of the first of them, counted over all regions.
    pub(super) first: u64,
    /// The number of the last.
    pub(super) last: u64,
    /// The time the first was made.
    pub(super) since: Instant,
    /// The time the last was made.
    pub(super) moved: Instant,
}

/// The working state of a region in use.
#[derive(Clone, Debug)]
pub(super) struct Active {
    pub(super) region: u32,
    /// Written to since every whole leg had flushed it: the legs may differ, and its authority
    /// decides.
    pub(super) touched: bool,
    /// It was dirty when the volume was opened, and no client has used it since.
    pub(super) is_found: bool,
    /// The sequence a page must have, durably, on the authority before anything it holds
    /// alone is acknowledged: that of the page which first named it.
    pub(super) authority_sequence: u64,
    /// The sequence of the page that first says, since it was touched, that the region is dirty.
    pub(super) dirty_sequence: u64,
    /// Acknowledged writes and debts each leg does not have yet.
    pub(super) lacks: [u32; LEGS_MAX],
    /// Each leg's completion stamp at its last write here.
    pub(super) last_done: [u64; LEGS_MAX],
    /// Legs, as a mask, that have completed nothing here but repairs since they had flushed everything.
    pub(super) only_repaired: u8,
    /// Stamps as in `last_done`, of acknowledged writes only (or a little later). A leg must have flushed
    /// up to them before it may take over the region.
    pub(super) acknowledged_done: [u64; LEGS_MAX],
    /// Some page that is durable says that the region is dirty: whoever decides it by then,
    /// recovery takes nobody else's word for what the others hold.
    pub(super) is_recorded: bool,
    /// Its authority moved, and no page that says so is known durable yet.
    pub(super) undurable: Option<Undurable>,
    /// Counts the flushes that had arrived when it was touched; [`u64::MAX`] if something here was to be
    /// durable since.
    pub(super) touched_in: u64,
    /// Move once even though the authority answers.
    pub(super) move_forced: bool,
    /// Operations of clients running here.
    pub(super) operations: u32,
    /// Its authority moves as soon as the other leg has the lost list: none may change that now.
    pub(super) rewrites_wait: bool,
    /// The newest operation that waits for metadata or authority here.
    pub(super) waiting: u32,
    /// Legs for which it has been taken up for rebuilding, as a mask.
    pub(super) rebuilding: u8,
    /// Its authority lost its cache: it decides nothing before it has everything again,
    /// durably, or another has taken over.
    pub(super) cache_lost: bool,
    /// Each leg's completion stamp when it did: one that has flushed up to it has what it was
    /// fresh for then. [`u64::MAX`] where that is not known.
    pub(super) done_at_loss: [u64; LEGS_MAX],
    pub(super) last_use: Instant,
    /// The order knows what it waits for: that is forgotten when anything here changes.
    waits: bool,
}

impl Active {
    fn new(region: u32, now: Instant) -> Active {
        Active {
            region,
            touched: false,
            is_found: false,
            authority_sequence: 0,
            dirty_sequence: 0,
            lacks: [0; LEGS_MAX],
            last_done: [0; LEGS_MAX],
            only_repaired: 0,
            acknowledged_done: [0; LEGS_MAX],
            is_recorded: false,
            undurable: None,
            touched_in: u64::MAX,
            move_forced: false,
            operations: 0,
            rewrites_wait: false,
            waiting: NONE,
            rebuilding: 0,
            cache_lost: false,
            done_at_loss: [0; LEGS_MAX],
            last_use: now,
            waits: false,
        }
    }

    /// Returns true if nothing of the region is in flight, owed or waited for.
    pub(super) fn is_idle(&self) -> bool {
        self.operations == 0
            && self.waiting == NONE
            && self.undurable.is_none()
            && self.lacks.iter().all(|&lacks| lacks == 0)
    }
}

/// The records of all regions in use. One is named by its slot, which stays the same until it is
/// freed.
pub(super) struct InUse {
    slot_of: alloc::vec::Vec<u32>,
    records: Slab<Active>,
    /// Slots of records in use.
    used: Bitmap,
    order: Order,
}

impl InUse {
    pub(super) fn new(regions: u32, records_max: u32) -> InUse {
        let records_max = records_max.min(regions.saturating_add(8));
        InUse {
            slot_of: alloc::vec![NONE; regions as usize],
            records: Slab::new(records_max),
            used: Bitmap::new(records_max),
            order: Order::with_capacity(records_max as usize),
        }
    }

    /// Returns the record of a region, if it has one.
    pub(super) fn slot(&self, region: u32) -> Option<u32> {
        let slot = self.slot_of[region as usize];
        (slot != NONE).then_some(slot)
    }

    /// Makes a record for a region that has none; `None` when all are in use.
    pub(super) fn add(&mut self, region: u32, now: Instant) -> Option<u32> {
        let key = self.records.insert(Active::new(region, now))?;
        self.slot_of[region as usize] = key.slot;
        self.used.insert(key.slot);
        self.order.append(key.slot);
        Some(key.slot)
    }

    pub(super) fn free(&mut self, slot: u32) {
        debug_assert!(!self.records[slot].touched, "a touched region has a record");
        let region = self.records[slot].region;
        self.order.remove(slot);
        self.slot_of[region as usize] = NONE;
        self.used.remove(slot);
        self.records.remove(slot);
    }

    pub(super) fn touch(&mut self, slot: u32, now: Instant) {
        self[slot].last_use = now;
        self.order.renew(slot);
    }

    /// Returns the least recently used record.
    pub(super) fn oldest(&self) -> Option<u32> {
        self.order.oldest()
    }

    /// Returns the most recently used record.
    pub(super) fn newest(&self) -> Option<u32> {
        self.order.newest()
    }

    /// Returns the next record used after this one was.
    pub(super) fn newer(&self, slot: u32) -> Option<u32> {
        self.order.newer(slot)
    }

    /// Notes what a record waits for, until anything of it changes.
    pub(super) fn note_wait(&mut self, slot: u32, wait: Wait) {
        self.records[slot].waits = true;
        self.order.note_wait(slot, wait, self.records[slot].last_use);
    }

    /// Forgets what a record waits for, which few do that are in use.
    #[inline]
    pub(super) fn forget_wait(&mut self, slot: u32) {
        if core::mem::take(&mut self.records[slot].waits) {
            self.order.forget_wait(slot);
        }
    }

    /// Forgets what records wait for that wait for flushes of one of these legs, as a mask.
    pub(super) fn forget_waits_for(&mut self, legs: u8) {
        self.order.forget_waits_for(legs);
    }

    /// Forgets what all records wait for.
    pub(super) fn forget_waits(&mut self) {
        self.order.forget_waits();
    }

    /// Does as [`Order::pass_waiting`].
    pub(super) fn pass_waiting(
        &mut self,
        slot: u32,
        most: usize,
        walk: &Walk,
    ) -> (Option<u32>, usize) {
        self.order.pass_waiting(slot, most, walk)
    }

    pub(super) fn is_used(&self, slot: u32) -> bool {
        self.records.is_used(slot)
    }

    /// Returns the first record in use at or after a slot.
    pub(super) fn first_from(&self, slot: u32) -> Option<u32> {
        self.used.next(slot)
    }

    pub(super) fn key(&self, slot: u32) -> Key {
        self.records.key(slot)
    }

    pub(super) fn is_live(&self, key: Key) -> bool {
        self.records.is_live(key)
    }

    pub(super) fn count(&self) -> usize {
        self.records.len()
    }

    pub(super) fn capacity(&self) -> usize {
        self.records.capacity()
    }

    pub(super) fn free_slots(&self) -> usize {
        self.records.free_slots()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Active> {
        self.records.iter().map(|(_, active)| active)
    }
}

impl core::ops::Index<u32> for InUse {
    type Output = Active;

    fn index(&self, slot: u32) -> &Active {
        &self.records[slot]
    }
}

impl core::ops::IndexMut<u32> for InUse {
    fn index_mut(&mut self, slot: u32) -> &mut Active {
        self.forget_wait(slot);
        &mut self.records[slot]
    }
}
