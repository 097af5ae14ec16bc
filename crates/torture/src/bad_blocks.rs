//! A metadata block of one leg that cannot be written: a slot of the superblock, of the lost list or of a page.
//! It stays bad until a restart or the end of the run's weather. Flushes beside a healthy leg must not wait for
//! it longer than for a leg that is frozen (P4).

use hemi_engine::format::Layout;
use hemi_engine::settings::{FlushCopies, Policy};
use hemi_engine::status::LegState;
use hemi_random::Rng;
use hemi_units::Instant;

use crate::plan::{Fault, OPERATIONS, Plan, PlannedFault};
use crate::wider::for_each_settings;
use crate::world::{Behaviour, World};

/// One seed in this many has bad blocks.
const WITH_BAD_BLOCKS: u64 = 3;

/// Adds bad blocks to a plan.
pub(crate) fn add_bad_block(plan: &mut Plan) {
    let random = &mut Rng::new(plan.seed, 11);
    if plan.weather.lies || !random.one_in(WITH_BAD_BLOCKS) {
        return;
    }
    for_each_settings(plan, |settings| {
        settings.policy = Policy::First;
        settings.flush_copies = FlushCopies::Count(1);
    });
    for _ in 0..1 + random.below(5) {
        let leg = random.below(plan.shape.legs as u64) as u8;
        let after = random.below(u64::from(OPERATIONS)) as u32;
        let fault = Fault::BadBlock { leg, block: random.draw() };
        plan.faults.push(PlannedFault { after, steps: random.below(40) as u32, fault });
    }
    plan.faults.sort_by_key(|planned| (planned.after, planned.steps));
}

impl World {
    /// Makes a metadata block bad, if nothing keeps another leg from doing without this one.
    pub(crate) fn spoil_block(&mut self, leg: u8, block: u64) {
        let settings = &self.settings;
        let covered =
            settings.policy == Policy::First && settings.flush_copies == FlushCopies::Count(1);
        if !covered || !self.may_hang_forever(leg) || self.has_bad_block() {
            return;
        }
        let blocks = self.disks[usize::from(leg)].metadata_blocks();
        if blocks.is_empty() {
            return;
        }
        let address = u64::from(blocks[block as usize % blocks.len()]) * 4096;
        self.consider_stall_window(leg, Instant::NEVER);
        self.stall.flushes_only = true;
        self.tell(|| format!("leg {leg}: the metadata block at {address} cannot be written"));
        let behaviour = &mut self.legs[usize::from(leg)];
        (behaviour.bad_block, behaviour.disturbed) = (Some(address), Instant::NEVER);
    }

    fn has_bad_block(&self) -> bool {
        self.legs.iter().any(|leg| leg.bad_block.is_some())
    }

    /// Returns true if a leg has a bad block and no other leg is well. Beside a bad superblock one that is
    /// being detached or marked out is none: once a superblock may say so, that is not taken back.
    pub(crate) fn may_wait_for_bad_block(&mut self) -> bool {
        let is_bad = |leg: &Behaviour| leg.bad_block.is_some();
        let Some(bad) = self.legs.iter().position(is_bad) else { return false };
        let superblocks = [0, 1].map(|slot| Some(Layout::superblock_address(slot)));
        let is_superblock = superblocks.contains(&self.legs[bad].bad_block);
        self.refresh_status();
        let Some(engine) = &self.engine else { return false };
        !self.status.legs.iter().any(|leg| {
            usize::from(leg.leg) != bad
                && leg.state == LegState::Healthy
                && !(is_superblock && engine.is_leaving(World::index(leg.leg)))
        })
    }
}
