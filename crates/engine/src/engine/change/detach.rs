//! Detaching a leg: it is made whole under load, writers pause for the last few debts, and it is let go.

use crate::command::CommandError;
use crate::engine::Engine;
use crate::engine::change::leg_set::{Change, ChangeKind};
use crate::engine::state::in_flight::{Io, Purpose};
use crate::engine::state::leg::{Health, Leg};
use crate::identifiers::LegIndex;
use crate::io::{Buffers, OutReason};
use crate::marks::Mark;
use crate::planted::{self, Planted};
use hemi_units::SECOND;

/// A detach is given up when no other leg has answered for this long; and a leg that has been
/// silent for so long is let go though it is not whole.
const DETACH_PATIENCE: u64 = 2 * SECOND;

/// A detach in progress: the leg is made whole, then let go.
#[derive(Clone, Copy, Debug)]
struct Detach {
    leg: LegIndex,
    token: u64,
    /// No new requests start until it is done.
    paused: bool,
    flush_stamp: Option<u64>,
    /// Its being out is on its way to being durable.
    changing: bool,
}

/// The detach in progress, if there is one.
#[derive(Default)]
pub(in crate::engine) struct Detaching(Option<Detach>);

impl Detaching {
    pub(in crate::engine) fn is_under_way(&self) -> bool {
        self.0.is_some()
    }

    /// Returns true if writers have to wait for it.
    pub(in crate::engine) fn is_paused(&self) -> bool {
        self.0.is_some_and(|detach| detach.paused)
    }

    /// Returns the leg that is being detached, as a mask.
    pub(super) fn leaving(&self) -> u8 {
        self.0.map_or(0, |detach| detach.leg.bit())
    }

    /// Ends it: the leg is gone, or stays.
    pub(super) fn end(&mut self) {
        self.0 = None;
    }
}

impl<B: Buffers> Engine<B> {
    /// A leg that is detached has it in its own superblock too, so that it decides nothing if
    /// it is ever found alone; but only after all others have it, or a crash in between would
    /// leave them waiting for a leg that counts itself out.
    pub(super) fn is_told_if_detached(&mut self, change: &Change, sequence: u64) -> bool {
        let is_detached = change.kind == ChangeKind::Out(OutReason::Detached);
        if !is_detached || !self.legs[change.leg.index()].answers() {
            return true;
        }
        // It is somebody else's once it has been let go.
        let writes = |io: &Io| matches!(io.purpose, Purpose::Write { .. } | Purpose::Metadata(_));
        let is_written = self.ios.on(change.leg.index()).any(|(_, io)| writes(io));
        if is_written && !planted::is(Planted::DetachedOverPage) {
            return false;
        }
        self.has_been_told(change.leg, sequence)
    }

    /// Returns true if a leg that is detached may go, or if it is no such change. Until then another
    /// leg may have lost its cache: what that had not flushed is given back from this one first.
    pub(super) fn may_be_let_go(&mut self, change: &Change) -> bool {
        let leg = change.leg.index();
        if change.kind != ChangeKind::Out(OutReason::Detached)
            || self.give_up_authority(leg)
            || planted::is(Planted::DetachedTooSoon)
        {
            return true;
        }
        if self.legs[leg].answers() || self.is_briefly_silent(leg) {
            return false;
        }
        // It decides nothing any more, so nobody would wait for it: what it alone has is lost.
        self.legs[leg].watch.give_up();
        self.give_up_authority(leg)
    }

    pub(super) fn begin_detach(&mut self, token: u64, leg: LegIndex) -> Result<(), CommandError> {
        self.may_change(leg)?;
        if !self.legs[leg.index()].is_member() {
            return Err(CommandError::NoSuchLeg);
        }
        let others = self.legs.that_are_in().any(|other| {
            other.index != leg && other.answers() && self.regions.stale_count(other.index) == 0
        });
        if !others {
            // A leg that is out and silent, or detached, drains nothing.
            let drains = |other: &Leg| {
                other.index != leg && (other.is_in() || other.is_member() && other.answers())
            };
            let may_follow = self.legs.in_use().iter().any(drains);
            return Err(match may_follow {
                true => CommandError::LastCompleteLeg,
                false => CommandError::OnlyLeg,
            });
        }
        self.detaching.0 =
            Some(Detach { leg, token, paused: false, flush_stamp: None, changing: false });
        Ok(())
    }

    /// Detaching: drain under load, pause writers for the last few debts, flush, mark out.
    pub(super) fn pump_detach(&mut self) {
        let Some(mut detach) = self.detaching.0.filter(|detach| !detach.changing) else { return };
        let leg = detach.leg.index();
        if self.others_are_useless(leg) {
            self.give_up_detach();
            return;
        }
        if self.is_briefly_silent(leg) || self.has_just_failed_a_flush(leg) {
            if detach.paused {
                // It will have to be made whole once more; writers do not wait for that.
                detach.paused = false;
                detach.flush_stamp = None;
                self.detaching.0 = Some(detach);
                self.pump_backlog();
            }
            return;
        }
        let state = &self.legs[leg];
        let answers = state.answers();
        if answers && !detach.paused {
            let near = state.debts.len() < 64 && self.regions.stale_count(detach.leg) == 0;
            detach.paused = near;
            self.marks.add_if(near, Mark::DetachPaused);
            self.detaching.0 = Some(detach);
            if !near {
                return;
            }
        }
        let writes_left = self.throttle.unacknowledged() > 0;
        // A drain that has only read what it is to write is in neither debts nor writes.
        let drains = !state.load.is_idle()
            || state.draining.rebuilding() > 0
            || self.regions.stale_count(detach.leg) > 0;
        let waits = answers && !planted::is(Planted::DetachEarly);
        if waits && (writes_left || !state.debts.is_empty() || drains) {
            return;
        }
        let done = state.stamps.done();
        if answers && detach.flush_stamp.is_none_or(|stamp| stamp < done) {
            detach.flush_stamp = Some(done);
            self.detaching.0 = Some(detach);
            self.legs[detach.leg.index()].stamps.want_flush(done);
        }
        if detach.flush_stamp.is_some_and(|stamp| self.legs[leg].stamps.flushed() < stamp)
            && answers
        {
            return;
        }
        if !self.changes.is_empty() || !self.give_up_authority(leg) {
            return;
        }
        // Writers stay paused until that is durable: no write may follow its last flush.
        detach.changing = true;
        self.detaching.0 = Some(detach);
        let kind = ChangeKind::Out(OutReason::Detached);
        self.begin_change(detach.leg, kind, Some(detach.token));
    }

    /// Returns true if a leg that is being detached failed a flush and is not asked again yet.
    fn has_just_failed_a_flush(&self, leg: usize) -> bool {
        let state = &self.legs[leg];
        let failed = state.answers()
            && state.stamps.has_failed()
            && !state.stamps.may_retry(self.clock.now());
        failed && !planted::is(Planted::DetachFlushedOnce)
    }

    /// Returns true if a leg that is being detached is silent and not yet given up: it is still to be
    /// made whole.
    fn is_briefly_silent(&self, leg: usize) -> bool {
        match self.legs[leg].watch.health() {
            Health::Frozen { since } | Health::Gone { since, removed: false } => {
                self.clock.now().since(since) < DETACH_PATIENCE
            }
            _ => false,
        }
    }

    /// Gives up a detach that no other leg can take part in. Writers may go on; what the leg alone has
    /// stays on it.
    pub(super) fn give_up_detach(&mut self) {
        let Some(detach) = self.detaching.0.take() else { return };
        let answers = self.legs_that_stay(detach.leg).any(Leg::answers);
        let error = if answers { CommandError::Unrecorded } else { CommandError::LastCompleteLeg };
        self.outbox.command_done(detach.token, Err(error));
        self.pump_backlog();
    }

    /// Returns true if every other leg that is in has been silent for longer than a detach waits, or
    /// keeps failing what it has to record.
    pub(super) fn others_are_useless(&self, leg: usize) -> bool {
        self.legs.that_are_in().filter(|other| other.index.index() != leg).all(|other| match other
            .watch
            .health()
        {
            Health::Answering => {
                self.keeps_failing(other) && !planted::is(Planted::DetachAwaitsFailing)
            }
            Health::Absent => true,
            Health::Frozen { since } | Health::Gone { since, .. } => {
                self.clock.now().since(since) >= DETACH_PATIENCE
            }
        })
    }
}
