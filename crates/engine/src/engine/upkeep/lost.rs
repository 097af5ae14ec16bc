//! The lost list in use: extents whose newest acknowledged data no leg holds any more.
//!
//! Reads of them answer EIO until they have been rewritten. A write that rewrites one is
//! acknowledged once the list without it is durable; but until then the write can still lose its
//! place, with the cache of the leg that had it, with its authority, or because no leg takes it.
//! The list then names again whatever that write had taken off it: other legs hold something older there.

use crate::engine::Engine;
use crate::engine::state::slab::Key;
use crate::identifiers::LegIndex;
use crate::io::{Buffers, Notice};
use crate::marks::Mark;
use crate::planted::{self, Planted};
use hemi_units::Extent;

impl<B: Buffers> Engine<B> {
    /// Records an extent as lost: nothing that answers is fresh for it, and nothing will be.
    pub(in crate::engine) fn note_lost(&mut self, extent: Extent) {
        self.marks.add(Mark::LostRecorded);
        self.lost.add(extent);
        self.name_lost();
        self.outbox.notice(Notice::Lost { extent });
    }

    /// The list names something new: legs that do not know of it may hold what is older.
    fn name_lost(&mut self) {
        self.change_lost_list();
        let metadata = self.regions.metadata();
        self.lost.note_named(metadata.newest(metadata.lost_list()));
    }

    /// Returns true if a leg's own list names all that has been lost. It may name what has been
    /// rewritten, too: that says too much, and serves nothing that is older.
    pub(super) fn has_heard_of_loss(&self, leg: LegIndex) -> bool {
        let metadata = self.regions.metadata();
        self.lost.names_all(metadata.durable(metadata.lost_list(), leg))
    }

    /// Takes what an operation has rewritten off the list: it is no longer lost if the operation is
    /// acknowledged.
    pub(in crate::engine) fn rewrite_lost(&mut self, operation: u32) {
        let extent = self.operations[operation].extent;
        if !self.lost.touches(extent) {
            return;
        }
        self.marks.add(Mark::LostRewritten);
        self.lost.rewrite(extent, self.operations.key(operation));
        self.change_lost_list();
    }

    /// Notes that an operation is acknowledged: what it has rewritten is lost no more.
    pub(in crate::engine) fn keep_rewritten(&mut self, operation: u32) {
        self.lost.keep_off(self.operations.key(operation));
    }

    /// Notes that an operation may not be where it was any more, or has failed: what it had taken off the
    /// list is lost again.
    pub(in crate::engine) fn lose_rewritten(&mut self, operation: Key) {
        if planted::is(Planted::RewriteTrusted) {
            return self.lost.keep_off(operation);
        }
        if self.lost.take_back(operation) {
            self.marks.add(Mark::LostAgain);
            if planted::is(Planted::LostAgainUnnamed) {
                return self.change_lost_list();
            }
            self.name_lost();
        }
    }

    /// Does the same for all operations in a region whose authority is to move, to a leg that may not have
    /// what they have rewritten.
    pub(in crate::engine) fn lose_rewritten_in(&mut self, region: u32) {
        while let Some(operation) = self.lost.rewriter_of(self.regions.extent(region)) {
            self.lose_rewritten(operation);
        }
    }

    fn change_lost_list(&mut self) {
        self.regions.metadata_mut().change_lost_list();
        for leg in self.legs.slots() {
            if self.legs[leg].is_in() {
                self.request_lost_list(LegIndex(leg as u8));
            }
        }
    }

    /// Asks for the lost list to be written to a leg soon.
    pub(in crate::engine) fn request_lost_list(&mut self, leg: LegIndex) {
        let metadata = self.regions.metadata_mut();
        metadata.request(metadata.lost_list(), leg);
    }
}
