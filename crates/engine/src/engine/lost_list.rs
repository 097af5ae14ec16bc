//! The lost list: extents whose newest acknowledged data no leg holds any more.
//!
//! Reads of them answer EIO until they have been rewritten. A write that rewrites one is
//! acknowledged once the list without it is durable; but until then the write can still lose its
//! place, with the cache of the leg that had it, with its authority, or because no leg takes it.
//! The list then names again whatever that write had taken off it: other legs hold something older there.

use alloc::vec::Vec;

use super::Engine;
use super::slab::Key;
use crate::format::lost::LOST_EXTENTS_MAX;
use crate::identifiers::LegIndex;
use crate::io::{Buffers, Notice};
use crate::marks::Mark;
use crate::planted::{self, Planted};
use hemi_units::Extent;

/// The list in memory.
pub(super) struct LostList {
    /// Sorted and disjoint.
    extents: Vec<Extent>,
    /// Extents taken off it by writes that are not acknowledged yet.
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
        self.extents.iter().any(|lost| lost.contains(extent))
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
        self.first(extent).is_none() || self.without(extent).count() <= LOST_EXTENTS_MAX
    }

    /// Returns what is left of the list when an extent has been rewritten.
    fn without(&self, extent: Extent) -> impl Iterator<Item = Extent> {
        let pieces = self.extents.iter().flat_map(move |lost| {
            let front = Extent { start: lost.start, end: lost.end.min(extent.start) };
            let back = Extent { start: lost.start.max(extent.end), end: lost.end };
            [front, back]
        });
        pieces.filter(|piece| !piece.is_empty())
    }

    /// Takes off what a write has rewritten, and remembers it until the write has ended.
    fn rewrite(&mut self, extent: Extent, operation: Key) {
        let overlapping = self.extents.iter().filter(|lost| lost.overlaps(extent));
        self.rewritten.extend(overlapping.map(|lost| (operation, lost.intersection(extent))));
        self.extents = self.without(extent).collect();
        self.bound();
    }

    /// Returns a write that has taken something off in an extent, and is not acknowledged.
    pub(super) fn rewriter_of(&self, extent: Extent) -> Option<Key> {
        self.rewritten.iter().find(|(_, taken)| taken.overlaps(extent)).map(|&(by, _)| by)
    }

    /// Forgets what a write has taken off.
    fn keep_off(&mut self, operation: Key) {
        self.rewritten.retain(|&(by, _)| by != operation);
    }

    /// Adds again what a write has taken off. Returns false if that is nothing.
    fn take_back(&mut self, operation: Key) -> bool {
        let is_by = |&&(by, _): &&(Key, Extent)| by == operation;
        let taken: Vec<Extent> = self.rewritten.iter().filter(is_by).map(|&(_, e)| e).collect();
        self.keep_off(operation);
        taken.iter().for_each(|&extent| self.add(extent));
        !taken.is_empty()
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

    /// Takes what an operation has rewritten off the list: it is no longer lost if the operation is
    /// acknowledged.
    pub(super) fn rewrite_lost(&mut self, operation: u32) {
        let extent = self.operations[operation].extent;
        if !self.touches_lost(extent) {
            return;
        }
        self.marks.add(Mark::LostRewritten);
        self.lost.rewrite(extent, self.operation_key(operation));
        self.change_lost_list();
    }

    /// Notes that an operation is acknowledged: what it has rewritten is lost no more.
    pub(super) fn keep_rewritten(&mut self, operation: u32) {
        self.lost.keep_off(self.operation_key(operation));
    }

    /// Notes that an operation may not be where it was any more, or has failed: what it had taken off the
    /// list is lost again.
    pub(super) fn lose_rewritten(&mut self, operation: Key) {
        if planted::is(Planted::RewriteTrusted) {
            return self.lost.keep_off(operation);
        }
        if self.lost.take_back(operation) {
            self.marks.add(Mark::LostAgain);
            self.name_lost();
        }
    }

    /// Does the same for all operations in a region whose authority is to move, to a leg that may not have
    /// what they have rewritten.
    pub(super) fn lose_rewritten_in(&mut self, region: u32) {
        while let Some(operation) = self.lost.rewriter_of(self.regions.extent(region)) {
            self.lose_rewritten(operation);
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
