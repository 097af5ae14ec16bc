//! Copies in memory of what legs owe, and when they are given up.
//!
//! A debt keeps the client's buffer, so that paying it takes no read. Copies share their memory with
//! requests in flight, and a leg that is silent pays nothing: what it owes would come to hold all of
//! it, and the reads that drain the other legs would find none. So past the budget a debt keeps no
//! copy, and where memory runs short all the same, copies of what another leg has go: those of legs that
//! are silent, or that are written nothing because all that they are paid first has to be read.

use crate::engine::Engine;
use crate::engine::state::debt::Source;
use crate::io::Buffers;
use crate::marks::Mark;
use crate::planted::{self, Planted};
use hemi_units::Extent;

/// Memory for the copies of debts.
#[derive(Default)]
pub(in crate::engine) struct Copies {
    /// A buffer was wanted that there was no memory for.
    short: bool,
}

impl Copies {
    /// Notes that a buffer was wanted that there was no memory for.
    pub(in crate::engine) fn note_short(&mut self) {
        self.short = true;
    }
}

impl<B: Buffers> Engine<B> {
    /// Returns true if there are buffers for what is owed. Past the budget a debt is read from a
    /// fresh leg when it is paid.
    pub(super) fn keeps_copies(&self) -> bool {
        self.buffers.free_bytes() > self.settings.copies_reserve
    }

    /// Returns what is kept of an acknowledged write's data while a leg owes it again: one that fails
    /// every write would otherwise come to hold all buffers. What was read from another leg can be
    /// read again, if that has it still. No copy is given up that may be the last.
    pub(super) fn copy_or_none(
        &mut self,
        leg: usize,
        extent: Extent,
        source: Source,
        was_read: bool,
    ) -> Source {
        let is_copy = matches!(source, Source::Buffer(_));
        let is_last =
            !self.another_answers_with(leg, extent) && !planted::is(Planted::LastCopyGivenUp);
        if !is_copy || is_last || !was_read && self.keeps_copies() {
            return source;
        }
        self.marks.add(Mark::CopyGivenUp);
        source.release(&mut self.buffers);
        Source::Leg
    }

    /// Gives up the copies that legs to which nothing is being written keep of what a leg that answers
    /// has, if a buffer was wanted that there was no memory for.
    pub(in crate::engine) fn give_up_copies(&mut self) {
        let short = core::mem::take(&mut self.copies.short);
        if !short || planted::is(Planted::CopiesKeptWhenShort) {
            return;
        }
        for leg in self.legs.slots() {
            // What is written gives its memory back. A leg that answers may have nothing in flight
            // because all that it would be paid next has to be read.
            let frees = self.legs[leg].load.writes() > 0;
            if !self.legs[leg].answers() || !frees {
                self.give_up_copies_of(leg);
            }
        }
    }

    fn give_up_copies_of(&mut self, leg: usize) {
        let mut at = 0;
        while let Some((slot, debt)) = self.legs[leg].debts.first_after(at) {
            at = debt.extent.end;
            let is_copy = debt.is_acknowledged() && matches!(debt.source, Source::Buffer(_));
            if is_copy && self.another_answers_with(leg, debt.extent) {
                self.marks.add(Mark::CopyGivenUp);
                self.legs[leg].debts.give_up_copy(slot, &mut self.buffers);
            }
        }
    }

    /// Returns true if another leg that answers is fresh for all of an extent.
    fn another_answers_with(&self, leg: usize, extent: Extent) -> bool {
        self.legs.slots().any(|other| {
            other != leg
                && self.legs[other].is_in()
                && self.legs[other].answers()
                && self.fresh_prefix(other, extent) == extent.sectors()
        })
    }
}
