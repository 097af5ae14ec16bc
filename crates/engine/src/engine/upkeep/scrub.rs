//! Scrub: comparing all legs, piece by piece, each under a range lock.

use alloc::vec::Vec;

use crate::command::{CommandError, ScrubRepair};
use crate::engine::Engine;
use crate::engine::state::debt::Source;
use crate::engine::state::in_flight::{Io, Purpose};
use crate::engine::state::slab::NONE;
use crate::engine::upkeep::differences::{Difference, Differences};
use crate::identifiers::{BufferAt, BufferId, LEGS_MAX, LegIndex};
use crate::io::{Buffers, LegError, LegOperation, Notice};
use crate::marks::Mark;
use crate::planted::{self, Planted};
use hemi_units::{Extent, SECTOR_BYTES};

/// The owner under which scrub holds its range lock.
pub(in crate::engine) const LOCK_OWNER: u32 = NONE - 1;

/// The scrub in progress, if there is one, and what the last one found.
#[derive(Default)]
pub(in crate::engine) struct Scrubbing {
    running: Option<Scrub>,
    /// Sectors that differed.
    mismatches: u64,
    /// Sectors of pieces that a leg could not read.
    unreadable: u64,
}

impl Scrubbing {
    pub(in crate::engine) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Returns the sectors done, and of how many; `None` if no scrub is in progress.
    pub(in crate::engine) fn progress(&self) -> Option<(u64, u64)> {
        let scrub = self.running.as_ref()?;
        Some((scrub.next.min(scrub.extent.end) - scrub.extent.start, scrub.extent.sectors()))
    }

    /// Returns the sectors that differed in the scrub in progress, or the last one.
    pub(in crate::engine) fn mismatches(&self) -> u64 {
        self.mismatches
    }

    /// Returns the sectors of the pieces that a leg could not read, of the same scrub.
    pub(in crate::engine) fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Notes that the lock of the piece being read has another place.
    pub(in crate::engine) fn note_place(&mut self, place: u32) {
        if let Some(scrub) = &mut self.running {
            scrub.place = place;
        }
    }
}

struct Scrub {
    token: u64,
    repair: ScrubRepair,
    extent: Extent,
    next: u64,
    /// The piece being read, its lock's place, and how many reads are out.
    piece: Extent,
    place: u32,
    outstanding: u32,
    buffers: Vec<(u8, BufferId)>,
    /// Something that differs, or that a leg could not read, was not rewritten.
    left: bool,
    /// It compares the whole volume, and has read every leg of all of it so far.
    compares_all: bool,
    stopping: bool,
}

impl<B: Buffers> Engine<B> {
    pub(in crate::engine) fn begin_scrub(
        &mut self,
        token: u64,
        repair: ScrubRepair,
        extent: Extent,
    ) -> Result<(), CommandError> {
        if self.scrubbing.running.is_some() {
            return Err(CommandError::Busy);
        }
        // Whole blocks: a leg need not be able to rewrite less.
        let block = self.volume.block_sectors();
        let start = extent.start - extent.start % block;
        let end = extent.end.checked_next_multiple_of(block).unwrap_or(u64::MAX);
        let extent = Extent { start, end }.intersection(self.extent());
        self.differences.scrub_begins();
        (self.scrubbing.mismatches, self.scrubbing.unreadable) = (0, 0);
        self.scrubbing.running = Some(Scrub {
            token,
            repair,
            extent,
            next: extent.start,
            piece: Extent::default(),
            place: NONE,
            outstanding: 0,
            buffers: Vec::with_capacity(LEGS_MAX),
            left: false,
            compares_all: extent == self.extent(),
            stopping: false,
        });
        Ok(())
    }

    /// Returns the extents in which legs are known to differ.
    pub fn differences(&self) -> &Differences {
        &self.differences
    }

    /// Takes differences that were known before the start, and sectors of more that had no room. The
    /// driver kept them.
    pub fn know_differences(&mut self, known: impl Iterator<Item = Difference>, uncounted: u64) {
        for difference in known {
            let extent = difference.extent.intersection(self.extent());
            if difference.leg.index() < LEGS_MAX && self.legs[difference.leg.index()].is_member() {
                self.differences.add(Difference { extent, ..difference });
            }
        }
        self.differences.add_uncounted(uncounted);
    }

    /// Notes that a leg holds an extent as it was last written.
    pub(in crate::engine) fn note_alike(&mut self, leg: LegIndex, extent: Extent) {
        if self.differences.is_empty() {
            return;
        }
        let members = self.legs.iter().filter(|leg| leg.is_member()).count();
        self.differences.note_given(leg, extent, members <= 2);
    }

    pub(in crate::engine) fn stop_scrub(&mut self, token: u64) -> Result<(), CommandError> {
        if let Some(scrub) = &mut self.scrubbing.running {
            scrub.stopping = true;
        }
        self.outbox.command_done(token, Ok(()));
        Ok(())
    }

    /// Starts the next piece, if none is being read and its range is free. Pieces that are
    /// owed or lost are passed over, some at a time.
    pub(in crate::engine) fn pump_scrub(&mut self) {
        if !self.scrubbing.is_running() {
            return;
        }
        for _ in 0..self.settings.limits.scrub_pieces {
            let before = self.scrubbing.running.as_ref().map(|scrub| scrub.next);
            self.next_piece();
            let Some(scrub) = &self.scrubbing.running else { return };
            if scrub.outstanding > 0 || Some(scrub.next) == before {
                return;
            }
        }
    }

    fn next_piece(&mut self) {
        let Some(scrub) = &self.scrubbing.running else { return };
        if scrub.outstanding > 0 || scrub.place != NONE {
            return;
        }
        if scrub.stopping || scrub.next >= scrub.extent.end {
            let Some(done) = self.scrubbing.running.take() else { return };
            let is_complete = done.next >= done.extent.end;
            self.differences.scrub_ends(done.compares_all && is_complete);
            let result = if done.left { Err(CommandError::Mismatches) } else { Ok(()) };
            self.outbox.command_done(done.token, result);
            return;
        }
        let region = self.regions.of_sector(scrub.next);
        let end = self
            .regions
            .extent(region)
            .end
            .min(scrub.extent.end)
            .min(scrub.next + self.settings.limits.scrub_bytes / SECTOR_BYTES);
        let piece = Extent { start: scrub.next, end };
        if !self.locks.is_free(piece, false) || self.ios.free_slots() <= LEGS_MAX {
            return;
        }
        self.read_piece(piece);
    }

    fn read_piece(&mut self, piece: Extent) {
        let fresh = |leg: &usize| self.fresh_prefix(*leg, piece) == piece.sectors();
        let is_silent = |leg: &usize| self.legs[*leg].is_in() && !self.legs[*leg].answers();
        if (0..LEGS_MAX).filter(is_silent).any(|leg| fresh(&leg)) {
            // It has a copy to be compared, and answers again or is marked out.
            return;
        }
        let legs: Vec<usize> = (0..LEGS_MAX)
            .filter(|&leg| self.legs[leg].is_member() && self.legs[leg].answers())
            .filter(fresh)
            .collect();
        let lost = self.lost.touches(piece);
        let members = self.legs.iter().filter(|leg| leg.is_member()).count();
        let Some(scrub) = &mut self.scrubbing.running else { return };
        scrub.compares_all &= legs.len() == members && !lost;
        scrub.piece = piece;
        scrub.next = piece.end;
        if legs.len() < 2 || lost {
            // Owed or lost: the drain is what compares it, by rewriting.
            return;
        }
        let mut buffers = core::mem::take(&mut scrub.buffers);
        for &leg in &legs {
            if let Some(buffer) = self.buffers.allocate(piece.sectors() as u32) {
                buffers.push((leg as u8, buffer));
            }
        }
        if buffers.len() < legs.len() {
            // No room now: the same piece again later.
            for (_, buffer) in buffers.drain(..) {
                self.buffers.release(buffer);
            }
            let Some(scrub) = &mut self.scrubbing.running else { return };
            scrub.buffers = buffers;
            scrub.next = piece.start;
            return;
        }
        let (place, _) = self.locks.enter(piece, false, LOCK_OWNER);
        for &(leg, buffer) in &buffers {
            self.buffers.retain(buffer);
            let source = Source::Buffer(BufferAt { buffer, offset: 0 });
            self.start_io(Io::new(leg, Purpose::Scrub, piece, source), LegOperation::Read);
        }
        let Some(scrub) = &mut self.scrubbing.running else { return };
        scrub.place = place;
        scrub.outstanding = buffers.len() as u32;
        scrub.buffers = buffers;
    }

    /// Gives up the piece that is being read if a leg that is read from is silent, and is out or
    /// keeps somebody waiting behind the piece's lock. It is compared later.
    pub(in crate::engine) fn yield_scrub(&mut self) {
        let Some(scrub) = &self.scrubbing.running else { return };
        if scrub.outstanding == 0 || planted::is(Planted::ScrubReadKept) {
            return;
        }
        let waited_for = self.locks.is_waited_for(scrub.place);
        let holds_up = |io: &Io| {
            let leg = &self.legs[usize::from(io.leg)];
            let is_silent = matches!(io.purpose, Purpose::Scrub) && !leg.answers();
            is_silent && (waited_for || !leg.is_in())
        };
        if self.ios.iter().any(|(_, io)| holds_up(io)) {
            self.give_up_piece();
        }
    }

    fn give_up_piece(&mut self) {
        let Some(scrub) = &mut self.scrubbing.running else { return };
        self.marks.add(Mark::ScrubReadGivenUp);
        scrub.next = scrub.piece.start;
        scrub.outstanding = 0;
        for (_, buffer) in scrub.buffers.drain(..) {
            self.buffers.release(buffer);
        }
        let place = core::mem::replace(&mut scrub.place, NONE);
        for leg in 0..LEGS_MAX {
            let mut next = self.ios.oldest(leg);
            while let Some(at) = next {
                next = self.ios.after(at);
                if matches!(self.ios[at].purpose, Purpose::Scrub) {
                    self.ios.abandon(at);
                }
            }
        }
        self.unlock(place);
        self.let_in();
    }

    pub(in crate::engine) fn scrub_read_done(&mut self, io: &Io, result: Result<(), LegError>) {
        io.source.release(&mut self.buffers);
        let Some(scrub) = &mut self.scrubbing.running else { return };
        scrub.outstanding -= 1;
        if result.is_err() {
            // The medium cannot read it: rewrite it from another leg, and compare the rest.
            let (piece, repair) = (scrub.piece, scrub.repair);
            self.scrubbing.unreadable += piece.sectors();
            scrub.left |= repair == ScrubRepair::Nothing;
            scrub.compares_all = false;
            scrub.buffers.retain(|(leg, buffer)| {
                if *leg == io.leg {
                    self.buffers.release(*buffer);
                }
                *leg != io.leg
            });
            if repair != ScrubRepair::Nothing {
                self.owe_for_repair(usize::from(io.leg), piece);
            }
        }
        let Some(scrub) = &self.scrubbing.running else { return };
        if scrub.outstanding == 0 {
            self.compare_piece();
        }
    }

    /// All reads of the piece are in: compare with the leg that is to be right, or else with the
    /// authority, sector by sector.
    fn compare_piece(&mut self) {
        let Some(scrub) = &mut self.scrubbing.running else { return };
        let (piece, repair) = (scrub.piece, scrub.repair);
        let mut buffers = core::mem::take(&mut scrub.buffers);
        let read = |leg: u8| buffers.iter().find(|(l, _)| *l == leg).copied();
        let right = match repair {
            ScrubRepair::From(leg) => read(leg.0),
            ScrubRepair::Nothing | ScrubRepair::Unreadable => None,
        };
        let entry = self.regions.entry(self.regions.of_sector(piece.start));
        let authority = if entry.is_dirty() { read(entry.authority().0) } else { None };
        let reference = right.or(authority).or(buffers.first().copied());
        if buffers.len() > 1 {
            for &(leg, _) in &buffers {
                self.differences.note_compared(LegIndex(leg), piece);
            }
        }
        for &(leg, buffer) in &buffers {
            let Some((_, reference)) = reference.filter(|(other, _)| *other != leg) else {
                continue;
            };
            self.compare_leg(usize::from(leg), buffer, reference, piece, right.is_some());
        }
        for (_, buffer) in buffers.drain(..) {
            self.buffers.release(buffer);
        }
        let Some(scrub) = &mut self.scrubbing.running else { return };
        scrub.buffers = buffers;
        let place = core::mem::replace(&mut scrub.place, NONE);
        self.unlock(place);
        self.let_in();
    }

    fn compare_leg(
        &mut self,
        leg: usize,
        buffer: BufferId,
        reference: BufferId,
        piece: Extent,
        repair: bool,
    ) {
        let at = |buffer, offset: u64| BufferAt { buffer, offset: offset as u32 };
        if self.buffers.equal(at(buffer, 0), at(reference, 0), piece.sectors() as u32) {
            return;
        }
        // Whole blocks, so that they can be rewritten; regions begin and end with one.
        let block = self.volume.block_sectors();
        let mut offset = 0;
        while offset < piece.sectors() {
            let differs = |engine: &Self, o: u64| {
                let sectors = block.min(piece.sectors() - o) as u32;
                !engine.buffers.equal(at(buffer, o), at(reference, o), sectors)
            };
            if !differs(self, offset) {
                offset += block;
                continue;
            }
            let start = offset;
            while offset < piece.sectors() && differs(self, offset) {
                offset += block;
            }
            let offset = offset.min(piece.sectors());
            let extent = Extent { start: piece.start + start, end: piece.start + offset };
            self.scrubbing.mismatches += extent.sectors();
            let leg_index = LegIndex(leg as u8);
            self.differences.add(Difference { extent, leg: leg_index });
            self.outbox.notice(Notice::Mismatch { leg: leg_index, extent });
            let is_owed = repair && self.owe_for_repair(leg, extent);
            if let Some(scrub) = &mut self.scrubbing.running {
                scrub.left |= !is_owed;
            }
        }
    }
}
