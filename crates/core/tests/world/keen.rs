//! Storms that aim: crashes right after something rare has happened, and faults in the ways
//! that go together worst.

use hemi_core::io::LegOperation;
use hemi_core::marks::Mark;
use hemi_core::status::{LegState, Status};
use hemi_core::units::{Instant, MILLISECOND};

use super::World;
use super::script::What;
use super::storm::Storm;
use moments::MOMENTS;

#[path = "../../../sim/src/moments.rs"]
mod moments;

/// Metadata before this sector of a leg is a superblock.
const SUPERBLOCKS_END: u64 = 256;
/// A crash comes at most so many things after its moment.
const SOON: u64 = 4;
/// Crashes of this kind in one run.
const CRASHES_MAX: u32 = 12;
/// How often what is exposed is counted on the disks: every so many things that happen.
const COUNTED_EVERY: u32 = 8;

/// What a storm that aims keeps.
#[derive(Default)]
pub struct Keen {
    moment: Option<Mark>,
    /// Of the moments, which one it is to be.
    until: u64,
    /// Things that happen between it and the crash.
    countdown: Option<u64>,
    crashes: u32,
    events: u32,
    /// Something is owed as a whole, or the last of it is in flight.
    rebuilding: bool,
    /// Freezes to come: the leg, from when, until when.
    freezes: Vec<(usize, Instant, Instant)>,
    /// Legs to be removed for good, and when.
    removals: Vec<(usize, Instant)>,
    /// The crash is to come while a superblock and another metadata write are in flight.
    at_superblock: bool,
    /// I/O held back, until when.
    pub(super) holds: Vec<(usize, What, Instant)>,
}

impl Keen {
    /// Lets go what has been held back for its time.
    pub(super) fn end_holds(&mut self, world: &mut World) {
        let now = world.now;
        while let Some(at) = self.freezes.iter().position(|(_, from, _)| now >= *from) {
            let (leg, _, until) = self.freezes.swap_remove(at);
            world.freeze(leg, until);
        }
        while let Some(at) = self.holds.iter().position(|(_, _, until)| now >= *until) {
            let (leg, what, _) = self.holds.swap_remove(at);
            world.release_kind(leg, what);
        }
    }

    /// A leg that is to be removed now.
    pub(super) fn removal(&mut self, now: Instant) -> Option<usize> {
        let at = self.removals.iter().position(|(_, when)| now >= *when)?;
        Some(self.removals.swap_remove(at).0)
    }

    /// Nothing of what was to come comes any more.
    pub(super) fn forget(&mut self) {
        self.holds.clear();
        self.freezes.clear();
        self.removals.clear();
    }

    pub(super) fn end_all_holds(&mut self, world: &mut World) {
        self.freezes.clear();
        self.removals.clear();
        for (leg, what, _) in std::mem::take(&mut self.holds) {
            world.release_kind(leg, what);
        }
    }
}

impl Storm {
    /// Chooses the moment of the next crash.
    pub(super) fn aim(&mut self) {
        if !self.weather.keen {
            return;
        }
        let random = &mut self.world.random;
        let moment = MOMENTS[random.below(MOMENTS.len() as u64) as usize];
        let nth = 1 + random.below(3);
        let random_is_for_superblocks = random.one_in(4);
        let joins = self.weather.members && random.one_in(3);
        let (moment, nth) = if joins { (Mark::LegJoined, 1) } else { (moment, nth) };
        self.keen.moment = (self.keen.crashes < CRASHES_MAX).then_some(moment);
        self.keen.until = self.world.engine().marks().count(moment) + nth;
        self.keen.countdown = None;
        self.keen.at_superblock = random_is_for_superblocks;
    }

    pub(super) fn is_the_moment(&mut self) -> bool {
        let Some(moment) = self.keen.moment else { return false };
        if self.keen.at_superblock && self.superblock_is_not_alone() {
            self.keen.crashes += 1;
            return true;
        }
        if let Some(left) = &mut self.keen.countdown {
            *left = left.saturating_sub(1);
        } else if self.world.engine().marks().count(moment) >= self.keen.until {
            self.keen.countdown = Some(self.world.random.below(SOON));
        }
        let now = self.keen.countdown == Some(0);
        self.keen.crashes += u32::from(now);
        now
    }

    fn superblock_is_not_alone(&self) -> bool {
        let metadata = |p: &&super::Pending| p.io.operation == LegOperation::WriteMetadata;
        let is_superblock = |p: &super::Pending| p.io.extent.start < SUPERBLOCKS_END;
        let mut in_flight = self.world.pending.iter().filter(metadata);
        let superblock = in_flight.clone().any(is_superblock);
        superblock && in_flight.any(|p| !is_superblock(p))
    }

    /// Two legs frozen one after the other, metadata or writes that hang, everything failing.
    pub(super) fn keen_fault(&mut self) {
        let world = &mut self.world;
        let legs = world.disks.len() as u64;
        let leg = world.random.below(legs) as usize;
        let other = world.random.below(legs) as usize;
        match world.random.below(6) {
            3 if self.weather.members => self.change_members(leg),
            4 if self.weather.removed => {
                // What only one leg has goes with it.
                let until = world.now + (100 + world.random.below(600)) * MILLISECOND;
                world.freeze(leg, until);
                let when = world.now + (30 + world.random.below(100)) * MILLISECOND;
                self.keen.removals.push(((leg + 1) % world.disks.len(), when));
            }
            4 | 5 => {
                // One thaws as the other freezes.
                let until = world.now + (40 + world.random.below(100)) * MILLISECOND;
                let early = world.random.below(3) * MILLISECOND;
                let length = (30 + world.random.below(300)) * MILLISECOND;
                world.freeze(leg, until);
                let from = Instant(until.0 - early);
                self.keen.freezes.push(((leg + 1) % world.disks.len(), from, until + length));
            }
            0 => {
                let first = (20 + world.random.below(100)) * MILLISECOND;
                let second = (20 + world.random.below(300)) * MILLISECOND;
                world.freeze(leg, world.now + first);
                world.freeze(other, world.now + second);
            }
            1 if self.weather.errors => {
                for behaviour in &mut world.behaviour {
                    behaviour.write_errors = 2;
                }
            }
            kind => {
                let what = if kind == 2 { What::Writes } else { What::Metadata };
                let length = [2, 30, 200][world.random.below(3) as usize] * MILLISECOND;
                world.hold(leg, what);
                self.keen.holds.push((leg, what, world.now + length));
            }
        }
    }

    /// P5 by the disks themselves, where nothing is owed as a whole: acknowledged bytes that
    /// are on one leg only.
    pub(super) fn check_what_is_exposed(&mut self, status: &Status) {
        self.keen.events += 1;
        let legs: Vec<usize> = status
            .legs
            .iter()
            .filter(|leg| !matches!(leg.state, LegState::Out | LegState::Empty))
            .map(|leg| usize::from(leg.leg))
            .collect();
        // What is owed as a whole is no exposure, the last of it in flight neither.
        if status.legs.iter().any(|leg| leg.owed_region_bytes > 0) {
            self.keen.rebuilding = true;
        } else if status.legs.iter().all(|leg| leg.in_flight == 0) {
            self.keen.rebuilding = false;
        }
        let unclear = self.keen.rebuilding || legs.len() < 2;
        if !self.keen.events.is_multiple_of(COUNTED_EVERY) || unclear {
            return;
        }
        let disks: Vec<Vec<u64>> = legs.iter().map(|&l| self.world.disks[l].contents()).collect();
        let mut exposed = 0;
        for (sector, version) in self.world.checker.settled() {
            let copies = disks.iter().filter(|disk| disk[sector] == version).count();
            exposed += 512 * u64::from(copies == 1);
        }
        let bound = status.exposure_bytes_bound.max(300 * 512);
        assert!(exposed <= bound, "P5: {exposed} bytes are on one leg only, bound {bound}");
    }
}
