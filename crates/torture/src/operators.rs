//! Operators: they detach, replace and forget legs. P8 is checked on what a detached leg leaves
//! behind. Starts and their refusals are in [`crate::starts`].

use hemi_engine::command::{Command, CommandError};
use hemi_engine::io::LegError;
use hemi_engine::status::LegState;
use hemi_world::disk::Cache;

use crate::world::World;

/// The version on a disk that is new to the volume, which no client ever wrote.
pub const GARBAGE: u64 = 1 << 40;

/// A kind of change of the legs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Detach,
    Join,
    Remove,
}

/// A change of the legs in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    token: u64,
    pub(crate) leg: u8,
    kind: ChangeKind,
    /// The time at which it was asked for, by the register's clock.
    asked: u32,
    /// The leg has been in since, and was never silent for so long that it was given up.
    pub(crate) was_in: bool,
    /// The leg has counted as frozen since.
    pub(crate) was_silent: bool,
}

/// A sector of metadata that has rotted, and what it should be.
#[derive(Clone)]
pub(crate) struct Rot {
    pub(crate) leg: u8,
    pub(crate) start: usize,
    pub(crate) rotten: Vec<u8>,
    pub(crate) sound: Vec<u8>,
}

impl World {
    /// Detaches a leg, or joins a new one to an empty slot.
    pub(crate) fn change_members(&mut self, leg: u8) {
        if self.changing.is_some() {
            return;
        }
        if !self.legs[usize::from(leg)].is_empty {
            let command = Command::Detach { leg: World::index(leg) };
            return self.begin_change(leg, ChangeKind::Detach, command);
        }
        self.new_legs += 1;
        self.put_in_new_disk(leg);
        let traits = self.traits(leg);
        // With the lower byte alone, one in 256 would have the same.
        let [low, high] = self.new_legs.to_le_bytes();
        let mut id = [low; 16];
        id[0] ^= high;
        let join = Command::Join { leg: World::index(leg), id, traits };
        self.begin_change(leg, ChangeKind::Join, join);
    }

    /// Forgets a leg, if it is out.
    pub(crate) fn remove_leg(&mut self, leg: u8) {
        if self.changing.is_none() && !self.legs[usize::from(leg)].is_empty {
            self.begin_change(leg, ChangeKind::Remove, Command::Remove { leg: World::index(leg) });
        }
    }

    fn begin_change(&mut self, leg: u8, kind: ChangeKind, command: Command) {
        let asked = self.register.tick();
        let is_in = |state: LegState| !matches!(state, LegState::Out | LegState::Empty);
        let legs = &self.refresh_status().legs;
        let was_in = legs.iter().any(|l| l.leg == leg && is_in(l.state));
        let was_silent = legs.iter().any(|l| l.leg == leg && l.state == LegState::Frozen);
        let token = self.next_command + 1;
        self.changing = Some(Change { token, leg, kind, asked, was_in, was_silent });
        self.command(command);
    }

    /// Inserts a disk that belongs to no volume and holds rubbish. I/O in flight on the old one
    /// ends first.
    pub(crate) fn put_in_new_disk(&mut self, leg: u8) {
        while let Some(slot) = self.ios.iter().position(|i| i.live && i.io.leg.0 == leg) {
            self.end_io(slot as u32, Err(LegError::Gone));
        }
        let sectors = self.sectors() as usize;
        let disk = &mut self.disks[usize::from(leg)];
        let bytes = disk.metadata.len();
        disk.reset(bytes, sectors, GARBAGE);
        self.rots.retain(|rot| rot.leg != leg);
        self.legs[usize::from(leg)].is_new = true;
    }

    /// Applies a change of the legs whose command has ended.
    pub(crate) fn follow_change(&mut self, token: u64, result: Result<(), CommandError>) {
        let Some(change) = self.changing.filter(|change| change.token == token) else { return };
        self.changing = None;
        if result.is_err() {
            return;
        }
        if change.kind == ChangeKind::Detach {
            self.check_nothing_in_flight(&change);
        }
        let leg = &mut self.legs[usize::from(change.leg)];
        leg.is_empty = change.kind != ChangeKind::Join;
        // One without a session could not be made whole.
        let was_there = !std::mem::replace(&mut leg.is_gone, false);
        leg.times_gone += 1;
        if change.kind == ChangeKind::Detach && change.was_in && was_there {
            self.check_walk_away(change);
        }
    }

    /// Checks P8: a leg that was in and is detached, then unplugged at once, is an image of the
    /// volume.
    fn check_walk_away(&mut self, change: Change) {
        if self.ios.iter().any(|i| i.live && i.io.leg.0 == change.leg) {
            // It fell silent while it was being detached, so it could not be made whole.
            return;
        }
        let disk = &mut self.disks[usize::from(change.leg)];
        disk.lose_cache(Cache::Dropped, &mut self.random);
        if self.weather.removed || self.weather.caches || self.weather.promotions {
            // Data that is lost on the volume may be anything on the image.
            return;
        }
        let wrong = (0..self.sectors() as usize).find(|&sector| {
            let value = self.disks[usize::from(change.leg)].contents()[sector];
            !self.register.allows(sector, value, change.asked)
        });
        if let Some(sector) = wrong {
            let value = self.disks[usize::from(change.leg)].contents()[sector];
            let mut violation = self.register.describe(sector, value, change.asked);
            violation.promise = "P8";
            violation.text =
                format!("the image of detached leg {}: {}", change.leg, violation.text);
            self.violate(violation);
        }
    }
}
