//! The lost list in memory: extents whose newest acknowledged data no leg holds any more, and what
//! writes that are not acknowledged yet have taken off it.

use alloc::vec::Vec;

use crate::engine::state::slab::Key;
use crate::format::lost::LOST_EXTENTS_MAX;
use crate::planted::{self, Planted};
use hemi_units::Extent;

/// The list in memory.
pub(in crate::engine) struct LostList {
    /// Sorted and disjoint.
    extents: Vec<Extent>,
    /// Extents taken off it by writes that are not acknowledged yet.
    rewritten: Vec<(Key, Extent)>,
    /// The sequence of the list that names what was lost last.
    named: u64,
}

impl LostList {
    /// Takes over what recovery found, in a list of the sequence `named`.
    pub(in crate::engine) fn new(extents: Vec<Extent>, named: u64) -> LostList {
        let named = if planted::is(Planted::LostBeforeStart) { 0 } else { named };
        LostList { extents, rewritten: Vec::new(), named }
    }

    /// Returns the extents in order.
    pub(in crate::engine) fn extents(&self) -> &[Extent] {
        &self.extents
    }

    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// Returns the first extent recorded as lost that overlaps this one.
    pub(in crate::engine) fn first(&self, extent: Extent) -> Option<Extent> {
        self.extents.iter().copied().find(|lost| lost.overlaps(extent))
    }

    /// Returns true if anything of an extent is recorded as lost.
    pub(in crate::engine) fn touches(&self, extent: Extent) -> bool {
        self.first(extent).is_some()
    }

    /// Returns true if all of an extent is recorded as lost.
    pub(in crate::engine) fn holds(&self, extent: Extent) -> bool {
        self.extents.iter().any(|lost| lost.contains(extent))
    }

    /// Notes the sequence of the list that names what was lost last.
    pub(in crate::engine) fn note_named(&mut self, sequence: u64) {
        self.named = sequence;
    }

    /// Returns true if the list of this sequence names all that has been lost.
    pub(in crate::engine) fn names_all(&self, sequence: u64) -> bool {
        sequence >= self.named
    }

    pub(in crate::engine) fn add(&mut self, extent: Extent) {
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
    pub(in crate::engine) fn has_room_without(&self, extent: Extent) -> bool {
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
    pub(in crate::engine) fn rewrite(&mut self, extent: Extent, operation: Key) {
        let overlapping = self.extents.iter().filter(|lost| lost.overlaps(extent));
        self.rewritten.extend(overlapping.map(|lost| (operation, lost.intersection(extent))));
        self.extents = self.without(extent).collect();
        self.bound();
    }

    /// Counts the extents that operations have taken off it which may put them back.
    pub(in crate::engine) fn rewriters(&self) -> usize {
        self.rewritten.len()
    }

    /// Returns a write that has taken something off in an extent, and is not acknowledged.
    pub(in crate::engine) fn rewriter_of(&self, extent: Extent) -> Option<Key> {
        self.rewritten.iter().find(|(_, taken)| taken.overlaps(extent)).map(|&(by, _)| by)
    }

    /// Forgets what a write has taken off.
    pub(in crate::engine) fn keep_off(&mut self, operation: Key) {
        self.rewritten.retain(|&(by, _)| by != operation);
    }

    /// Adds again what a write has taken off. Returns false if that is nothing.
    pub(in crate::engine) fn take_back(&mut self, operation: Key) -> bool {
        let is_by = |&&(by, _): &&(Key, Extent)| by == operation;
        let taken: Vec<Extent> = self.rewritten.iter().filter(is_by).map(|&(_, e)| e).collect();
        self.keep_off(operation);
        taken.iter().for_each(|&extent| self.add(extent));
        !taken.is_empty()
    }
}
