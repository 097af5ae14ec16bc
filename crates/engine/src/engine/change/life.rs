//! The volume's life: opening, serving, closing, closed or halted.

use alloc::vec::Vec;

use crate::command::Command;
use crate::engine::Engine;
use crate::engine::state::leg::{Health, Leg};
use crate::format::{Id, Membership};
use crate::identifiers::LegIndex;
use crate::io::{Buffers, OutReason};
use crate::planted::{self, Planted};
use hemi_units::{Extent, Instant};

/// Commands kept until the volume is durably open.
const EARLY_COMMANDS: usize = 16;

/// The phases between open and closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// "Open" is being made durable; requests wait.
    Opening,
    Serving,
    Closing(Closing),
    Closed,
    /// This leg is gone for good, and alone decides what others may have, in this many regions.
    Halted {
        leg: LegIndex,
        regions: u32,
    },
}

/// The close that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Closing {
    pub(super) token: u64,
    /// Debts are paid until then.
    pub(super) drain_until: Instant,
    /// The last superblock has been asked for.
    pub(super) marked: bool,
}

/// The phase, and commands that wait for the volume to be open.
pub(in crate::engine) struct Life {
    phase: Phase,
    early: Vec<(u64, Command)>,
}

impl Life {
    /// Begins with "open" on its way to being durable.
    pub(in crate::engine) fn new() -> Life {
        Life { phase: Phase::Opening, early: Vec::new() }
    }

    pub(in crate::engine) fn is_opening(&self) -> bool {
        matches!(self.phase, Phase::Opening)
    }

    pub(in crate::engine) fn is_serving(&self) -> bool {
        matches!(self.phase, Phase::Serving)
    }

    pub(in crate::engine) fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing(_))
    }

    pub(in crate::engine) fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }

    /// Returns the leg that the engine has halted for, and in how many regions it alone decides.
    pub(in crate::engine) fn halted_for(&self) -> Option<(LegIndex, u32)> {
        match self.phase {
            Phase::Halted { leg, regions } => Some((leg, regions)),
            _ => None,
        }
    }

    /// Halts: nothing follows any more.
    pub(super) fn halt(&mut self, leg: LegIndex, regions: u32) {
        self.phase = Phase::Halted { leg, regions };
    }

    /// Keeps a command that comes before the volume is open. Returns false if it is, or if there is no
    /// room.
    pub(super) fn keep_early(&mut self, token: u64, command: Command) -> bool {
        let keeps = self.is_opening() && self.early.len() < EARLY_COMMANDS;
        if keeps {
            self.early.push((token, command));
        }
        keeps
    }

    /// Serves from now on.
    fn serve(&mut self) {
        self.phase = Phase::Serving;
    }

    /// Takes the commands that were kept.
    pub(super) fn take_early(&mut self) -> Vec<(u64, Command)> {
        core::mem::take(&mut self.early)
    }

    /// Returns the close that is in progress.
    pub(super) fn closing(&self) -> Option<Closing> {
        match self.phase {
            Phase::Closing(closing) => Some(closing),
            _ => None,
        }
    }

    /// Returns true once the last superblock has been asked for: no write begins any more.
    pub(in crate::engine) fn is_marked_closed(&self) -> bool {
        self.closing().is_some_and(|closing| closing.marked)
    }

    /// Begins to close, or goes on with it in another way.
    pub(super) fn close_with(&mut self, closing: Closing) {
        self.phase = Phase::Closing(closing);
    }

    /// Is closed from now on.
    pub(super) fn end(&mut self) {
        self.phase = Phase::Closed;
    }
}

impl<B: Buffers> Engine<B> {
    /// Begins to open the volume. If a leg is missing that is out and may come back, a new generation
    /// begins: that leg may have heard of something, such as that it was being taken in, which these
    /// legs have not, and sequences alone could not tell the two apart.
    pub(in crate::engine) fn begin_open(&mut self) {
        let may_come_back = |leg: &Leg| {
            leg.watch.health() == Health::Absent
                && matches!(leg.membership(), Membership::Out(reason) if reason != OutReason::Detached)
        };
        if self.legs.iter().any(may_come_back) {
            self.begin_generation();
        }
        let id = self.volume.random_id(self.clock.now());
        let ledger = self.regions.announce_opening(id);
        self.volume.open(ledger);
        self.write_superblock();
    }

    /// The generation now and those before it: what a leg that comes back must be of.
    pub fn generations(&self) -> impl Iterator<Item = Id> {
        self.volume.generations()
    }

    /// Returns the ids of the legs that the volume has, those that are out included.
    pub fn leg_ids(&self) -> impl Iterator<Item = Id> {
        self.volume.leg_ids()
    }

    /// Returns true if requests and commands are taken up: the volume is durably open and not closing.
    pub fn is_serving(&self) -> bool {
        self.life.is_serving()
    }

    /// Steps of opening, changing, detaching and closing whose time has come.
    pub(in crate::engine) fn pump_phase(&mut self) {
        let changes = !self.changes.is_empty() || self.detaching.is_under_way();
        if self.life.is_serving() && !changes {
            return;
        }
        let object = self.regions.metadata().superblock();
        if self.life.is_opening() {
            if self.superblock_is_durable(self.regions.metadata().newest(object)) {
                self.begin_serving();
            }
        } else if let Some(closing) = self.life.closing() {
            self.pump_closing(closing);
        }
        self.go_on_with_change();
        while let Some((change, sequence)) = self.changes.first_carried()
            && self.superblock_is_durable(sequence)
            && self.is_told_if_detached(&change, sequence)
            && self.may_be_let_go(&change)
            && (planted::is(Planted::InWithoutRoom)
                || self.changes.coming_in().is_none_or(|leg| self.exposure_fits_with(leg)))
        {
            self.changes.end_first();
            self.finish_change(change);
        }
        if self.detaching.is_under_way() {
            self.pump_detach();
        }
    }

    /// Serves from now on: whoever waited for the volume to be open goes on.
    fn begin_serving(&mut self) {
        self.life.serve();
        self.regions.confirm_opening(self.volume.ledger());
        self.pump_backlog();
        self.consider_flushes();
        for (token, command) in self.life.take_early() {
            self.run_command(token, command);
        }
    }

    /// The volume's size as an extent.
    pub fn extent(&self) -> Extent {
        Extent { start: 0, end: self.regions.volume_sectors() }
    }
}
