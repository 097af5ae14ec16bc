//! The translation layer's state as a sequence of numbers, and back.
//!
//! Blocks are written lane by lane, in the order in which collection would look at them, so
//! that a restored layer continues exactly like the saved one.

use std::cmp::Reverse;

use hemi_random::Rng;

use super::frontier::Frontier;
use super::mapping::{Mapping, NONE};
use super::snapshot::{Reader, SnapshotError};
use super::translation::{Shape, Translation, Work};
use super::victim::State;

impl Translation {
    /// Passes the state to `put`, number by number. A collection in progress is undone by the
    /// next [`Translation::restore`]: its victim is a candidate again.
    pub(super) fn save(&self, put: &mut dyn FnMut(u32)) {
        let Work { written, copied, erases, levelled } = self.work;
        for long in self.rng.state().into_iter().chain([written, copied, erases, levelled]) {
            put(long as u32);
            put((long >> 32) as u32);
        }
        put(self.clock);
        put(self.turn);
        for block in &self.blocks {
            put(block.erases);
            put(block.filled);
        }
        for lane in &self.lanes {
            for frontier in lane.frontiers {
                put(frontier.block);
                put(frontier.next);
                put(frontier.limit);
            }
            put(lane.unchecked);
            put(lane.cached.len() as u32 + lane.job.map_or(0, |job| u32::from(job.cached)));
            for job in lane.job.iter().filter(|job| job.cached) {
                put(job.victim);
            }
            for &block in &lane.cached {
                put(block);
            }
            let candidates = lane.candidates.in_order(&self.blocks);
            let victims = lane.job.iter().filter(|job| !job.cached).map(|job| job.victim);
            put((candidates.len() + victims.clone().count()) as u32);
            for block in victims.chain(candidates) {
                put(block);
            }
        }
        for unit in 0..self.mapping.units() {
            put(self.mapping.slot_of(unit));
        }
    }

    /// Restores the saved state.
    pub(super) fn restore(
        shape: Shape,
        from: &mut Reader<'_>,
    ) -> Result<Translation, SnapshotError> {
        // The seed does not matter: the stream continues from the saved state.
        let mut it = Translation::new(shape, 0);
        let state = [from.long()?, from.long()?, from.long()?, from.long()?];
        it.rng = Rng::from_state(state);
        let (written, copied) = (from.long()?, from.long()?);
        it.work = Work { written, copied, erases: from.long()?, levelled: from.long()? };
        it.clock = from.word()?;
        it.turn = from.below(shape.lanes)?;
        for block in &mut it.blocks {
            block.erases = from.word()?;
            block.filled = from.word()?;
        }
        let mut full = Vec::new();
        for index in 0..it.lanes.len() {
            it.restore_lane(index, from, &mut full)?;
        }
        it.restore_mapping(from)?;
        for (lane, block) in full {
            let candidates = &mut it.lanes[lane].candidates;
            candidates.add(&mut it.blocks, block);
        }
        Ok(it)
    }

    fn restore_lane(
        &mut self,
        index: usize,
        from: &mut Reader<'_>,
        full: &mut Vec<(usize, u32)>,
    ) -> Result<(), SnapshotError> {
        let slots = self.shape.slots;
        let (first, count) = (self.lanes[index].first, self.lanes[index].count);
        let used = |blocks: &mut [super::victim::Block], block: u32, state| {
            let ours = (first..first + count).contains(&block);
            if !ours || blocks[block as usize].state != State::Free {
                return Err(SnapshotError::Damaged);
            }
            blocks[block as usize].state = state;
            Ok(())
        };
        for at in 0..3 {
            let block = from.word()?;
            let (next, limit) = (from.below(slots + 1)?, from.below(slots + 1)?);
            if block != NONE {
                used(&mut self.blocks, block, State::Open)?;
                if next >= limit {
                    return Err(SnapshotError::Damaged);
                }
                self.lanes[index].frontiers[at] = Frontier { block, next, limit };
            }
        }
        self.lanes[index].unchecked = from.word()?;
        for _ in 0..from.below(count + 1)? {
            let block = from.word()?;
            used(&mut self.blocks, block, State::Cached)?;
            self.lanes[index].cached.push_back(block);
            self.cached += 1;
        }
        for _ in 0..from.below(count + 1)? {
            let block = from.word()?;
            used(&mut self.blocks, block, State::Full)?;
            full.push((index, block));
        }
        let before = self.lanes[index].free.len() as u32;
        let is_free = |block: &u32| self.blocks[*block as usize].state == State::Free;
        let free = (first..first + count).filter(is_free);
        self.lanes[index].free =
            free.map(|block| Reverse((self.blocks[block as usize].erases, block))).collect();
        self.free -= before - self.lanes[index].free.len() as u32;
        Ok(())
    }

    fn restore_mapping(&mut self, from: &mut Reader<'_>) -> Result<(), SnapshotError> {
        let slots = self.shape.slots;
        let all = self.shape.blocks * slots;
        self.mapping = Mapping::new(self.shape.units, all);
        for unit in 0..self.shape.units {
            let slot = from.word()?;
            if slot == NONE {
                continue;
            }
            let taken = slot >= all || self.mapping.unit_in(slot) != NONE;
            if taken || self.blocks[(slot / slots) as usize].state == State::Free {
                return Err(SnapshotError::Damaged);
            }
            self.mapping.assign(unit, slot);
            self.blocks[(slot / slots) as usize].valid += 1;
        }
        Ok(())
    }
}
