//! Halting: hemi goes no further where going on would throw away what an operator may still save.
//!
//! After an unclean stop a dirty region is what its authority holds, until another leg has been
//! compared with it. If the authority's device is gone for good before that, the other legs have
//! the region as it was at some moment of the past, most likely in full, and recording it as lost
//! would give that up for good. Nor may they serve it: what was acknowledged may be missing. So the
//! engine halts. It does what a kill does at that moment: no action follows but the notice, and
//! nothing is recorded, in the ledger either. The next start finds the device back, or is refused
//! and names it, and the operator decides: `hemi promote` lets another leg decide.

use crate::engine::Engine;
use crate::identifiers::LegIndex;
use crate::io::{Buffers, Notice};
use crate::marks::Mark;
use crate::planted::{self, Planted};

impl<B: Buffers> Engine<B> {
    /// Returns true if the engine has halted: it ignores all input, and [`Notice::Halted`] is its last
    /// action. The driver stops as if it had been killed.
    pub fn is_halted(&self) -> bool {
        self.life.halted_for().is_some()
    }

    /// Halts because an uncompared region is gone for good with a leg. Returns false if the leg is being
    /// marked out: what goes with it is lost.
    pub(super) fn halt_for(&mut self, leg: LegIndex) -> bool {
        let is_lost = self.changes.is_going_out(leg) || planted::is(Planted::UncomparedLost);
        if is_lost || self.is_halted() {
            return self.is_halted();
        }
        self.marks.add(Mark::Halted);
        let regions = self.regions.uncompared_count(leg);
        self.life.halt(leg, regions);
        self.regions.leave_ledger();
        true
    }

    /// Takes back what was to follow the input that has halted the engine, and says so instead.
    pub(in crate::engine) fn stop_if_halted(&mut self) {
        if let Some((leg, regions)) = self.life.halted_for() {
            self.outbox.say_only(Notice::Halted { leg, regions });
        }
    }
}
