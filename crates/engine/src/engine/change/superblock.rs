//! Metadata on its way to the legs: what is written of it, who may be told of a superblock, and what
//! follows when it is durable or has failed.

use crate::engine::Engine;
use crate::engine::state::failing::Task;
use crate::engine::state::regions::metadata::BlockWrite;
use crate::format::{BLOCK_BYTES, lost, page};
use crate::identifiers::{LEGS_MAX, LegIndex};
use crate::io::{Buffers, LegError};
use crate::marks::Mark;
use crate::planted::{self, Planted};

impl<B: Buffers> Engine<B> {
    /// Asks for the superblock as it is now on every leg that answers; the sequence that carries it.
    /// One that is out is told last ([`Engine::may_be_told`]).
    pub(super) fn write_superblock(&mut self) -> u64 {
        let object = self.regions.metadata().superblock();
        let sequence = self.regions.metadata_mut().change_superblock();
        for leg in self.legs.iter().filter(|leg| leg.is_member() && leg.answers()) {
            self.regions.metadata_mut().request(object, leg.index);
        }
        sequence
    }

    /// Fills the image of a metadata write.
    pub(in crate::engine) fn encode_object(&mut self, leg: LegIndex, write: &BlockWrite) {
        let volume = self.volume.id();
        let generation = self.volume.generation();
        let join_epoch = self.volume.join_epoch();
        let volume_sectors = self.regions.volume_sectors();
        if write.object == self.regions.metadata().superblock() {
            let image = self.regions.metadata_mut().image_mut(write.image);
            self.volume.encode(leg, write.sequence, image, write.slot);
        } else if write.object == self.regions.metadata().lost_list() {
            let header = lost::LostHeader { generation, join_epoch };
            let image = self.regions.metadata_mut().image_mut(write.image);
            lost::encode(
                image,
                write.address,
                volume,
                write.sequence,
                &header,
                self.lost.extents(),
                volume_sectors,
            )
            .expect("the engine keeps the list sorted, disjoint and short enough");
        } else {
            self.regions.fill_page(write, generation, join_epoch);
        }
    }

    /// The bytes of what [`Engine::encode_object`] made. Pages, the bulk of it, are sealed only
    /// here: a driver that stores no bytes, as a model, does not pay for checksums.
    pub(in crate::engine) fn sealed_object(&mut self, write: &BlockWrite) -> &[u8; BLOCK_BYTES] {
        let is_page = self.regions.metadata().is_page(write.object);
        let image = self.regions.metadata_mut().image_mut(write.image);
        if is_page {
            page::seal(image, write.address, self.volume.id(), write.sequence);
        }
        image
    }

    /// A metadata write ended.
    pub(in crate::engine) fn metadata_done(
        &mut self,
        leg: usize,
        write: &BlockWrite,
        result: Result<(), LegError>,
    ) {
        if let Err(error) = result
            && !planted::is(Planted::FailedPageTrusted)
        {
            self.marks.add(Mark::MetadataFailed);
            let again = self.count_failure(leg, self.task_of(write), error);
            if !self.legs[leg].is_in() {
                self.legs[leg].put_off_retry(again);
            }
            self.metadata_failed(leg, write);
            return;
        }
        let task = self.task_of(write);
        // One page that cannot be written is enough, whatever others can.
        let fails_still = task == Task::Page
            && self.regions.metadata().is_any_late(LegIndex(leg as u8))
            && !planted::is(Planted::OtherPageForgives);
        if result.is_ok() && !fails_still {
            self.legs[leg].failing.note_success(task);
        }
        let pages = self.regions.metadata().superblock();
        if write.object < pages {
            self.regions.note_recorded(LegIndex(leg as u8), write);
            self.regions.note_moves_recorded(LegIndex(leg as u8), write, &mut self.marks);
            self.retry_all_waiting(Some(write.object));
        } else if write.object == self.regions.metadata().lost_list() {
            self.retry_all_waiting(None);
        }
        if self.flushing.is_awaited() {
            self.consider_flushes();
        }
    }

    fn task_of(&self, write: &BlockWrite) -> Task {
        let is_superblock = write.object == self.regions.metadata().superblock();
        if is_superblock { Task::Superblock } else { Task::Page }
    }

    /// Whoever waits on this leg's metadata looks for another leg; the write is tried again
    /// by the background, and a leg that keeps failing is marked out.
    fn metadata_failed(&mut self, leg: usize, write: &BlockWrite) {
        let decided_by = LegIndex(leg as u8);
        for place in 0..self.regions.waiting_count() {
            let Some(record) = self.regions.waiting_record(place) else { break };
            let region = self.regions.region_of(record);
            if self.regions.page_of(region) == write.object
                && self.regions.decides(decided_by, region)
            {
                self.regions.force_move(record);
            }
        }
        if !planted::is(Planted::FailedPageAwaited) {
            self.hand_over_page(leg, write.object);
        }
    }

    /// Begins a new random generation; the present one becomes history. What a leg is of stays in
    /// it, or a leg that is out would count as a fork when it comes back.
    pub(super) fn begin_generation(&mut self) {
        let metadata = self.regions.metadata();
        let object = metadata.superblock();
        let mut held = [u64::MAX; 2 * LEGS_MAX];
        let legs = self.legs.iter().filter(|leg| leg.is_member());
        for (held, leg) in held.chunks_mut(2).zip(legs) {
            let durable = metadata.durable(object, leg.index);
            let in_flight = metadata.in_flight(object, leg.index);
            held.copy_from_slice(&[durable, in_flight.unwrap_or(durable)]);
        }
        let held = if planted::is(Planted::AncestorsForgotten) { &[][..] } else { &held };
        self.volume.begin_generation(metadata.newest(object), held, self.clock.now());
    }

    /// Returns true if a superblock is durable on every leg that is in by it.
    pub(super) fn superblock_is_durable(&self, sequence: u64) -> bool {
        self.volume.legs_in().all(|leg| self.has_superblock(leg, sequence))
    }

    pub(super) fn has_superblock(&self, leg: LegIndex, sequence: u64) -> bool {
        self.regions.metadata().durable(self.regions.metadata().superblock(), leg) >= sequence
    }

    /// Returns true if a leg may be sent the superblock as it is now. One that is out by it comes after
    /// all that are in: without it they open as they were before, and in a generation of their
    /// own, so that what it alone has heard of another generation would make it a fork. So does
    /// one that is being taken in: that it is in is nothing it may know alone.
    pub(in crate::engine) fn may_be_told(&self, leg: LegIndex) -> bool {
        let newest = self.regions.metadata().newest(self.regions.metadata().superblock());
        if !self.volume.is_in(leg) {
            return self.superblock_is_durable(newest);
        }
        let mut others = self.volume.legs_in().filter(|&other| !self.changes.comes_in(other));
        !self.changes.comes_in(leg) || others.all(|other| self.has_superblock(other, newest))
    }

    /// Returns true if a leg that may be told has a superblock, or is not worth waiting for: it is silent,
    /// or fails to write it. Asks for it if not.
    pub(super) fn has_been_told(&mut self, leg: LegIndex, sequence: u64) -> bool {
        const TRIES: u32 = 3;
        let state = &self.legs[leg.index()];
        if !state.answers()
            || state.failing.in_a_row(Task::Superblock) >= TRIES
            || self.has_superblock(leg, sequence)
        {
            return true;
        }
        let object = self.regions.metadata().superblock();
        self.regions.metadata_mut().request(object, leg);
        false
    }

    /// Returns true if every leg that is out and may be told of a superblock has been. One without the
    /// record of a clean close is filled anew at the next start.
    pub(super) fn legs_out_are_told(&mut self, sequence: u64) -> bool {
        let mut told = true;
        for leg in self.legs.slots() {
            let index = LegIndex(leg as u8);
            let is_out = self.legs[leg].is_member() && !self.volume.is_in(index);
            if is_out && self.may_be_told(index) && !planted::is(Planted::OutLegUntold) {
                told &= self.has_been_told(index, sequence);
            }
        }
        told
    }

    /// Asks again for the superblock that a change waits for, on each leg where writing it failed. A leg
    /// that is being marked out is waited for by nobody, whatever it has: that must not last.
    pub(in crate::engine) fn retry_superblock(&mut self) {
        let Some(sequence) = self.changes.newest_sequence() else {
            return;
        };
        let object = self.regions.metadata().superblock();
        for leg in self.legs.slots() {
            let index = LegIndex(leg as u8);
            let is_awaited = self.volume.is_in(index)
                && self.legs[leg].answers()
                && !self.has_superblock(index, sequence);
            let is_asked = self.changes.comes_in(index) || !planted::is(Planted::OutAskedOnce);
            if is_awaited && is_asked {
                self.regions.metadata_mut().request(object, index);
            }
        }
    }
}
