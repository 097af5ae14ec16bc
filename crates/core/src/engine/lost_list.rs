//! The lost list: extents whose newest acknowledged data no leg holds any more.
//!
//! Reads of them answer EIO until they have been rewritten. A write that rewrites one is
//! acknowledged once the list without it is durable; but until then the write can still lose its
//! place, with the cache of the leg that had it, with its authority, or because no leg takes it.
//! What it had taken off the list is lost again then: what other legs hold there is older.

use alloc::vec::Vec;

use super::Engine;
use super::slab::Key;
use crate::format::lost::LOST_EXTENTS_MAX;
use crate::io::{Buffers, Notice};
use crate::marks::Mark;
use crate::planted::{self, Planted};
use crate::units::{Extent, LegIndex};

/// The list in memory.
pub(super) struct LostList {
    /// Sorted and disjoint.
    extents: Vec<Extent>,
    /// What writes that are not acknowledged have taken off it.
    rewritten: Vec<(Key, Extent)>,
    /// The sequence of the list that names what was lost last, since the start.
    named: u64,
}

impl LostList {
    /// Takes over what recovery found.
    pub(super) fn new(extents: Vec<Extent>) -> LostList {
        LostList { extents, rewritten: Vec::new(), named: 0 }
    }

    /// Returns the extents in order.
    pub(super) fn extents(&self) -> &[Extent] {
        &self.extents
    }

    pub(super) fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// Returns the first extent recorded as lost that overlaps this one.
    pub(super) fn first(&self, extent: Extent) -> Option<Extent> {
        self.extents.iter().copied().find(|lost| lost.overlaps(extent))
    }

    /// Returns true if all of an extent is recorded as lost.
    pub(super) fn holds(&self, extent: Extent) -> bool {
        self.extents.iter().any(|lost| lost.start <= extent.start && lost.end >= extent.end)
    }

    fn add(&mut self, extent: Extent) {
        let mut merged = extent;
        self.extents.retain(|other| {
            let touches = other.start <= merged.end && merged.start <= other.end;
            if touches {
                merged.start = merged.start.min(other.start);
                merged.end = merged.end.max(other.end);
            }
            !touches
        });
        let place = self.extents.partition_point(|other| other.start < merged.start);
        self.extents.insert(place, merged);
        self.bound();
    }

    /// Keeps the list within what a block holds: the two nearest extents become one, which
    /// says too much rather than too little.
    fn bound(&mut self) {
        while self.extents.len() > LOST_EXTENTS_MAX {
            let gap = |at: &usize| self.extents[at + 1].start - self.extents[*at].end;
            let Some(at) = (0..self.extents.len() - 1).min_by_key(gap) else { return };
            self.extents[at].end = self.extents[at + 1].end;
            self.extents.remove(at + 1);
        }
    }

    /// Returns true if the list holds what is left when an extent has been rewritten. A hole in what
    /// is lost takes one place more, and with none left something that is not lost would have to go:
    /// it may be what has just been rewritten, so that this would never end.
    fn has_room_without(&self, extent: Extent) -> bool {
        let left = self.extents.iter().map(|lost| {
            let front = lost.start < extent.start.min(lost.end);
            let back = lost.end > extent.end.max(lost.start);
            usize::from(front) + usize::from(back)
        });
        self.first(extent).is_none() || left.sum::<usize>() <= LOST_EXTENTS_MAX
    }

    /// Takes off what a write has rewritten, and remembers it until the write has ended.
    fn rewrite(&mut self, extent: Extent, operation: Key) {
        let mut kept = Vec::with_capacity(self.extents.len() + 1);
        for &lost in &self.extents {
            let front = Extent { start: lost.start, end: lost.end.min(extent.start) };
            let back = Extent { start: lost.start.max(extent.end), end: lost.end };
            kept.extend([front, back].into_iter().filter(|piece| !piece.is_empty()));
            if lost.overlaps(extent) {
                self.rewritten.push((operation, lost.intersection(extent)));
            }
        }
        self.extents = kept;
        self.bound();
    }

    /// Returns true if a write has taken something off that is lost again unless it is acknowledged.
    fn is_rewritten_by(&self, operation: Key) -> bool {
        self.rewritten.iter().any(|&(by, _)| by == operation)
    }

    /// Forgets what a write has taken off; hands it to `each`.
    fn take_rewritten(&mut self, operation: Key, mut each: impl FnMut(&mut LostList, Extent)) {
        let mut at = 0;
        while at < self.rewritten.len() {
            if self.rewritten[at].0 == operation {
                let (_, extent) = self.rewritten.swap_remove(at);
                each(self, extent);
            } else {
                at += 1;
            }
        }
    }
}

impl<B: Buffers> Engine<B> {
    /// Records an extent as lost: nothing that answers is fresh for it, and nothing will be.
    pub(super) fn note_lost(&mut self, extent: Extent) {
        self.marks.add(Mark::LostRecorded);
        self.lost.add(extent);
        self.name_lost();
        self.notice(Notice::Lost { extent });
    }

    /// The list names something new: legs that do not know of it may hold what is older.
    fn name_lost(&mut self) {
        self.change_lost_list();
        let metadata = self.regions.metadata();
        self.lost.named = metadata.newest(metadata.lost_list());
    }

    /// Returns true if a leg's own list names all that has been lost since the start. It may name
    /// what has been rewritten, too: that says too much, and serves nothing that is older.
    pub(super) fn has_heard_of_loss(&self, leg: LegIndex) -> bool {
        let metadata = self.regions.metadata();
        metadata.durable(metadata.lost_list(), leg) >= self.lost.named
    }

    /// Returns true if anything of an extent is recorded as lost.
    pub(super) fn touches_lost(&self, extent: Extent) -> bool {
        self.lost.first(extent).is_some()
    }

    /// Returns true if the list has room for what is left when an extent has been rewritten.
    pub(super) fn fits_in_lost_list(&self, extent: Extent) -> bool {
        self.lost.has_room_without(extent)
    }

    /// An operation has rewritten its extent: it is no longer lost if the operation is acknowledged.
    pub(super) fn rewrite_lost(&mut self, operation: u32) {
        let state = self.operations[operation];
        if !self.touches_lost(state.extent) {
            return;
        }
        self.marks.add(Mark::LostRewritten);
        let key = self.operation_key(operation);
        if !self.lost.is_rewritten_by(key) {
            self.regions.begin_rewrite(state.region);
        }
        self.lost.rewrite(state.extent, key);
        self.change_lost_list();
    }

    /// An operation is acknowledged: what it has rewritten is lost no more.
    pub(super) fn keep_rewritten(&mut self, operation: u32) {
        let key = self.operation_key(operation);
        if self.lost.is_rewritten_by(key) {
            self.lost.take_rewritten(key, |_, _| ());
            self.regions.end_rewrite(self.operations[operation].region);
        }
    }

    /// An operation may not be where it was any more, or has failed: what it had taken off the list
    /// is lost again.
    pub(super) fn lose_rewritten(&mut self, operation: u32) {
        let key = self.operation_key(operation);
        if !self.lost.is_rewritten_by(key) {
            return;
        }
        if planted::is(Planted::RewriteTrusted) {
            return self.keep_rewritten(operation);
        }
        self.marks.add(Mark::LostAgain);
        self.lost.take_rewritten(key, LostList::add);
        self.regions.end_rewrite(self.operations[operation].region);
        self.name_lost();
    }

    /// The authority of a region is to move, to a leg that may not have what operations have rewritten.
    pub(super) fn lose_rewritten_in(&mut self, region: u32) {
        for operation in 0..self.operations.capacity() as u32 {
            let is_here =
                self.operations.is_used(operation) && self.operations[operation].region == region;
            if is_here {
                self.lose_rewritten(operation);
            }
        }
    }

    fn change_lost_list(&mut self) {
        self.regions.metadata_mut().change_lost_list();
        for leg in self.slots() {
            if self.legs[leg].is_in() {
                self.request_lost_list(LegIndex(leg as u8));
            }
        }
    }

    /// Asks for the lost list to be written to a leg soon.
    pub(super) fn request_lost_list(&mut self, leg: LegIndex) {
        let metadata = self.regions.metadata_mut();
        metadata.request(metadata.lost_list(), leg);
    }
}
