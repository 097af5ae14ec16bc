//! Comparing what a leg owes after an unclean stop, instead of copying it.
//!
//! A region that is dirty at open is owed by all legs but its authority, though most of it is the
//! same everywhere: at most what was written last differs. So where a leg was whole before, what it
//! holds is read as well, and only what differs is written. The range is held on the owing leg from
//! the first read to the end, as for any drain: a newer write becomes a newer debt behind it.
//!
//! Being equal says nothing of being durable: what was read may come from a cache. So a comparison
//! counts as a write, and the leg is whole only after a flush begun later. A cache that is lost ends
//! comparing on its leg: after a failed flush a drive may still show what it will not keep.
//! A leg that cannot be read, or for which memory is short, is given all of it.

use crate::engine::Engine;
use crate::engine::state::debt::{Since, Source};
use crate::engine::state::in_flight::{Io, Purpose};
use crate::identifiers::{BufferAt, LegIndex};
use crate::io::{Buffers, LegError, LegOperation};
use crate::marks::Mark;
use crate::planted::{self, Planted};
use hemi_units::Extent;

impl<B: Buffers> Engine<B> {
    /// Reads what a leg holds where another's `newest` data has been read for it. Returns false if
    /// there is no memory for that; otherwise takes over the buffer of the newest data.
    pub(super) fn begin_compare(&mut self, leg: usize, newest: &Io, since: Since) -> bool {
        let Source::Buffer(reference) = newest.source else { return false };
        let extent = newest.extent;
        let Some(buffer) = self.buffers.allocate(extent.sectors() as u32) else { return false };
        let purpose = Purpose::Compare { reference, from: newest.leg, since };
        let source = Source::Buffer(BufferAt { buffer, offset: 0 });
        let slot = self.start_io(Io::new(leg as u8, purpose, extent, source), LegOperation::Read);
        let state = &mut self.legs[leg];
        state.load.hold(extent, slot);
        state.load.begin_compare(extent.sectors());
        true
    }

    fn end_compare(&mut self, slot: u32, io: &Io) {
        let state = &mut self.legs[usize::from(io.leg)];
        state.load.unhold(slot);
        state.load.end_compare(io.extent.sectors());
    }

    /// Both have been read: writes what differs.
    pub(in crate::engine) fn compare_done(
        &mut self,
        slot: u32,
        io: &Io,
        result: Result<(), LegError>,
    ) {
        let Purpose::Compare { reference, since, .. } = io.purpose else { return };
        let leg = usize::from(io.leg);
        self.end_compare(slot, io);
        let region = self.regions.of_sector(io.extent.start);
        let state = &self.legs[leg];
        let goes_on = state.is_member()
            && state.answers()
            && !self.regions.is_stale(LegIndex(io.leg), region)
            && self.ios.free_slots() > 1;
        let differing = match (goes_on, result) {
            (true, Ok(())) => self.differing(io, reference),
            _ => Some(io.extent),
        };
        io.source.release(&mut self.buffers);
        if !goes_on {
            Source::Buffer(reference).release(&mut self.buffers);
            self.owe_again(leg, io.extent, since, false);
        } else if let Some(part) = differing {
            self.marks.add(Mark::ComparedDiffers);
            self.legs[leg].load.uncount_in_flight(since, io.extent.sectors() - part.sectors());
            let newest = Source::Buffer(reference).skip(part.start - io.extent.start);
            let source = self.zeros_or(leg, &Io::new(io.leg, Purpose::Abandoned, part, newest));
            let none = crate::engine::state::slab::Key::NONE;
            self.start_write(leg, part, source, none, false, since, true, false);
        } else {
            Source::Buffer(reference).release(&mut self.buffers);
            self.note_equal(leg, io.extent, since);
        }
    }

    /// Returns the part of what was read in which a leg differs from the newest data: whole blocks,
    /// from the first to the last that does.
    fn differing(&self, io: &Io, reference: BufferAt) -> Option<Extent> {
        let Source::Buffer(held) = io.source else { return Some(io.extent) };
        let sectors = io.extent.sectors();
        let block = self.volume.block_sectors();
        let equal = |from: u64, sectors: u64| {
            let at = |start: BufferAt| BufferAt {
                buffer: start.buffer,
                offset: start.offset + from as u32,
            };
            self.buffers.equal(at(held), at(reference), sectors as u32)
        };
        if equal(0, sectors) {
            return None;
        }
        let blocks = sectors.div_ceil(block);
        let differs = |number: &u64| {
            let from = number * block;
            !equal(from, block.min(sectors - from))
        };
        let first = (0..blocks).find(differs)?;
        let last = (first..blocks).rev().find(differs)?;
        let end = io.extent.end.min(io.extent.start + (last + 1) * block);
        Some(Extent { start: io.extent.start + first * block, end })
    }

    /// A leg holds what it owed. It counts as written just now.
    fn note_equal(&mut self, leg: usize, extent: Extent, since: Since) {
        self.marks.add(Mark::ComparedEqual);
        let region = self.regions.of_sector(extent.start);
        let record = self.regions.slot(region).expect("a region with lacks has a record");
        let state = &mut self.legs[leg];
        state.count_compared(extent.bytes());
        let stamp = state.stamps.complete_write();
        let stamp = if planted::is(Planted::EqualIsDurable) { 0 } else { stamp };
        self.regions.note_done(record, leg, stamp);
        self.note_given(record, leg, extent);
        self.note_alike(LegIndex(leg as u8), extent);
        self.regions.note_acknowledged(record, leg);
        self.legs[leg].load.uncount_in_flight(since, extent.sectors());
        self.regions.adjust_lacks(record, leg, -1);
        self.consider_complete(record, leg);
    }

    /// Gives up a comparison. What it covers is owed again, to be written.
    pub(in crate::engine) fn give_up_compare(&mut self, slot: u32) {
        let io = self.ios[slot];
        let Purpose::Compare { reference, since, .. } = io.purpose else { return };
        self.marks.add(Mark::CompareGivenUp);
        self.ios.abandon(slot);
        self.end_compare(slot, &io);
        Source::Buffer(reference).release(&mut self.buffers);
        self.owe_again(usize::from(io.leg), io.extent, since, false);
    }
}
