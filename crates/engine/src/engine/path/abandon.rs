//! Giving up reads that are in flight.
//!
//! A read in flight changes nothing on its leg, so it can be given up at any time: it becomes an
//! orphan, which keeps its buffer until the leg ends it and means nothing to anybody. A client's
//! read is given up when another leg can serve it. The engine's own reads hold ranges while they
//! run, and whoever overlaps such a range waits. So those of drains and sieves are given up as
//! soon as their leg stops answering or loses its cache, and those of a scrub as soon as, beside
//! that, somebody waits. The ranges that stay held on account of a silent leg are those of writes
//! that may still land.

use crate::engine::Engine;
use crate::engine::path::read::Place;
use crate::engine::state::in_flight::Purpose;
use crate::engine::state::slab::Key;
use crate::identifiers::{LEGS_MAX, LegIndex};
use crate::io::Buffers;
use crate::marks::Mark;
use crate::planted::{self, Planted};
use hemi_units::Extent;

impl<B: Buffers> Engine<B> {
    /// Gives up clients' reads on a leg that others can serve. Each of these requests starts over
    /// in a fresh buffer: the leg still has the old one.
    pub(in crate::engine) fn give_up_reads(&mut self, leg: usize) {
        if planted::is(Planted::ReadsStuck) {
            return;
        }
        let mut next = self.ios.oldest(leg);
        while let Some(at) = next {
            next = self.ios.after(at);
            self.give_up_read(at);
        }
    }

    /// Gives up one I/O if it is a client's read that others can serve.
    pub(super) fn give_up_read(&mut self, slot: u32) {
        let io = self.ios[slot];
        match io.purpose {
            Purpose::Read { operation } if self.operations.is_live(operation) => {
                let failed = self.operations[operation.slot].failed;
                if !self.elsewhere(usize::from(io.leg), failed, io.extent) {
                    return;
                }
                self.marks.add(Mark::ReadRestarted);
                // A leg that comes too late by a little each time would be asked for the rest of it
                // again and again.
                let request = self.operations[operation.slot].request;
                if !planted::is(Planted::LateLegAskedAgain) {
                    self.requests.avoid(request, LegIndex(io.leg));
                }
                // With a hedge out, that one may still answer in time.
                if !self.operations[operation.slot].hedged {
                    self.operations.give_up(operation.slot);
                }
                self.abandon_part(slot, operation.slot);
            }
            Purpose::Hedge { operation } if self.operations.is_live(operation) => {
                self.abandon_part(slot, operation.slot);
            }
            _ => {}
        }
    }

    /// Waits no more for an I/O of a client's read. If it was the last, the read starts over.
    fn abandon_part(&mut self, slot: u32, operation: u32) {
        self.ios.abandon(slot);
        self.operations.end_part(operation);
        if self.operations[operation].parts == 0 {
            self.operations.give_up(operation);
            self.finish_read_if_done(operation);
        }
    }

    /// Returns true if anything but `leg` can serve the beginning of `extent` now. Legs that have
    /// `failed` it are asked again only where this one has been silent for long, or is no longer there:
    /// it may be late.
    pub(super) fn elsewhere(&self, leg: usize, failed: u8, extent: Extent) -> bool {
        let is_there =
            !self.legs[leg].watch.is_removed() || planted::is(Planted::ReadKeptOnDetached);
        let again =
            self.is_long_silent(leg) || !is_there || planted::is(Planted::ReadGivenUpForFailed);
        let failed = if again { 0 } else { failed };
        match self.place(extent, LegIndex(leg as u8).bit() | failed) {
            Place::Leg(other, _) => self.legs[other].answers(),
            Place::Copy(..) => true,
            // Lost meanwhile: it starts over, to be told so.
            Place::Nowhere if self.lost.touches(extent) => true,
            Place::Wait | Place::Nowhere => false,
        }
    }

    /// Gives up the reads that an operation still has in flight: another has answered it.
    pub(super) fn abandon_reads_of(&mut self, key: Key) {
        let parts = self.operations[key.slot].parts;
        if parts == 0 {
            return;
        }
        for leg in self.legs.slots() {
            let mut next = self.ios.oldest(leg);
            while let Some(at) = next {
                next = self.ios.after(at);
                let owner = match self.ios[at].purpose {
                    Purpose::Read { operation } | Purpose::Hedge { operation } => operation,
                    _ => Key::NONE,
                };
                if owner == key {
                    self.ios.abandon(at);
                    self.operations.end_part(key.slot);
                }
            }
        }
    }

    /// Gives up the reads of drains and sieves from a leg, and every sieve and comparison for it. The
    /// leg has stopped answering, or, if `is_void`, what is read may not be the newest data any more.
    pub(in crate::engine) fn give_up_own_reads(&mut self, leg: usize, is_void: bool) {
        for source in 0..LEGS_MAX {
            let mut next = self.ios.oldest(source);
            while let Some(at) = next {
                next = self.ios.after(at);
                match self.ios[at].purpose {
                    Purpose::Sieve { target, .. }
                        if source == leg || usize::from(target) == leg =>
                    {
                        self.give_up_sieve(at, usize::from(target));
                    }
                    Purpose::DrainRead { .. }
                        if source == leg && !planted::is(Planted::DrainReadKept) =>
                    {
                        self.give_up_drain_read(at, is_void);
                    }
                    Purpose::Compare { from, .. }
                        if source == leg || usize::from(from) == leg && is_void =>
                    {
                        self.give_up_compare(at);
                    }
                    Purpose::LateRead { .. } if source == leg && is_void => {
                        self.ios.abandon(at);
                    }
                    _ => {}
                }
            }
        }
    }
}
