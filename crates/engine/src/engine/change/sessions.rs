//! Sessions of legs: what follows when one ends or begins, and how long a leg has been silent.

use crate::engine::Engine;
use crate::engine::state::failing::Task;
use crate::engine::state::leg::Health;
use crate::identifiers::LegIndex;
use crate::io::{Buffers, LegError};
use crate::planted::{self, Planted};

impl<B: Buffers> Engine<B> {
    pub(in crate::engine) fn leg_gone(&mut self, leg: LegIndex, removed: bool) {
        if !self.legs[leg.index()].lose_session(removed, self.clock.now()) {
            return;
        }
        self.leave_leg(leg.index());
        self.count_session_without_superblock(leg);
        self.consider_out();
    }

    /// A session of a leg has ended. Counts that as a failure if the leg lacks the superblock: its
    /// sessions may end each time before it is asked to write that again.
    fn count_session_without_superblock(&mut self, leg: LegIndex) {
        let metadata = self.regions.metadata();
        if metadata.lacks(metadata.superblock(), leg) && !planted::is(Planted::UnaskedForgiven) {
            self.count_failure(leg.index(), Task::Superblock, LegError::Gone);
        }
    }

    pub(in crate::engine) fn leg_back(&mut self, leg: LegIndex) {
        if let Health::Gone { since, .. } = self.legs[leg.index()].watch.health() {
            let state = &mut self.legs[leg.index()];
            state.thaw(since, self.clock.now());
            state.stamps.end_session();
            if planted::is(Planted::RewriteWithoutFence) {
                // Not what is sent meanwhile: ending that, too, can go on forever.
                let last = self.ios.newest(leg.index());
                let mut next = self.ios.oldest(leg.index());
                while let Some(at) = next {
                    self.io_done(at, Err(LegError::Gone));
                    let oldest = self.ios.oldest(leg.index());
                    next = oldest.filter(|_| Some(at) != last);
                }
            }
            if !planted::is(Planted::LostCacheFresh) {
                self.lose_cache(leg.index());
            }
            self.after_return();
        }
    }

    /// Returns true if a leg has been silent for as long as one may be before it is marked out.
    pub(in crate::engine) fn is_long_silent(&self, leg: usize) -> bool {
        match self.legs[leg].watch.health() {
            Health::Frozen { since } | Health::Gone { since, .. } => {
                self.clock.now().since(since) >= self.settings.out_after
            }
            Health::Answering | Health::Absent => false,
        }
    }
}
