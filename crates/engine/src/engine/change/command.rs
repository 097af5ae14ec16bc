//! Operators' commands.

use crate::command::{Command, CommandError};
use crate::engine::Engine;
use crate::engine::change::leg_set::ChangeKind;
use crate::engine::state::leg::Leg;
use crate::format::{Id, Membership};
use crate::identifiers::{LEGS_MAX, LegIndex};
use crate::io::{Buffers, LegTraits, OutReason};

impl<B: Buffers> Engine<B> {
    pub(in crate::engine) fn run_command(&mut self, token: u64, command: Command) {
        let result = match command {
            _ if self.life.is_closed() => Err(CommandError::Closing),
            Command::Close { drain_until } => self.begin_close(token, drain_until),
            _ if self.life.is_closing() => Err(CommandError::Closing),
            _ if self.life.keep_early(token, command) => Ok(()),
            Command::Detach { leg } => self.begin_detach(token, leg),
            Command::Join { leg, id, traits } => self.begin_join(token, leg, id, traits),
            Command::Remove { leg } => self.begin_remove(token, leg),
            Command::Scrub { repair, extent } => self.begin_scrub(token, repair, extent),
            Command::RewriteMetadata { leg } => self.rewrite_metadata(token, leg),
            Command::ScrubStop => self.stop_scrub(token),
            Command::Configure { settings } => self.configure(token, &settings),
        };
        if let Err(error) = result {
            self.outbox.command_done(token, Err(error));
        }
    }

    pub(super) fn may_change(&self, leg: LegIndex) -> Result<(), CommandError> {
        if leg.index() >= LEGS_MAX {
            Err(CommandError::NoSuchLeg)
        } else if !self.changes.is_empty()
            || self.detaching.is_under_way()
            || !self.life.is_serving()
        {
            Err(CommandError::Busy)
        } else {
            Ok(())
        }
    }

    fn rewrite_metadata(&mut self, token: u64, leg: LegIndex) -> Result<(), CommandError> {
        if leg.index() >= LEGS_MAX || !self.legs[leg.index()].is_member() {
            return Err(CommandError::NoSuchLeg);
        }
        self.regions.metadata_mut().distrust(leg);
        self.outbox.command_done(token, Ok(()));
        Ok(())
    }

    fn begin_join(
        &mut self,
        token: u64,
        leg: LegIndex,
        id: Id,
        traits: LegTraits,
    ) -> Result<(), CommandError> {
        self.may_change(leg)?;
        let old = &self.legs[leg.index()];
        if old.is_in() || old.is_member() && old.answers() {
            return Err(CommandError::SlotInUse);
        }
        if self.ios.any_on(leg.index()) || old.load.is_read_for() {
            // A zombie of the leg that was here may still land, and reads elsewhere for it may end:
            // they must not find another.
            return Err(CommandError::IoInFlight);
        }
        self.forget_leg(leg.index());
        let epoch = self.volume.join(leg, id, traits.description);
        let membership = Membership::Out(OutReason::Joining);
        let fresh = Leg::new(leg, &self.settings, true).known(&traits, membership, 0);
        self.legs.seat(fresh);
        self.regions.add_leg(leg, epoch);
        self.begin_change(leg, ChangeKind::Join, Some(token));
        Ok(())
    }

    fn begin_remove(&mut self, token: u64, leg: LegIndex) -> Result<(), CommandError> {
        self.may_change(leg)?;
        let state = &self.legs[leg.index()];
        if !state.is_member() {
            return Err(CommandError::NoSuchLeg);
        }
        if state.is_in() || state.answers() {
            return Err(CommandError::LegInUse);
        }
        if self.ios.any_on(leg.index()) || state.load.is_read_for() {
            // A zombie may still land, and must find the leg it was for; so must what is still
            // being read elsewhere for it.
            return Err(CommandError::IoInFlight);
        }
        self.forget_leg(leg.index());
        self.volume.remove(leg);
        self.legs[leg.index()].mark(Membership::Empty);
        self.legs[leg.index()].watch.leave();
        self.regions.drop_leg(leg);
        self.begin_change(leg, ChangeKind::Remove, Some(token));
        Ok(())
    }
}
