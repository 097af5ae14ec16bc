//! Collection of a block, step by step: choose it, move its valid units, erase it.

use std::cmp::Reverse;

use super::frontier::Stream;
use super::mapping::{AHEAD, NONE};
use super::translation::Translation;
use super::victim::{Policy, State};

/// A block being collected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) victim: u32,
    /// True if it was a block of the SLC cache.
    pub(super) cached: bool,
    /// Next slot to look at, counted from the victim's first.
    pub(super) cursor: u32,
}

/// The units moved by a step of collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Units copied.
    pub units: u32,
    /// Flash pages they were read from.
    pub pages_read: u32,
    /// Flash pages that were filled and have to be programmed.
    pub pages_filled: u32,
    /// True if the victim is empty and can be erased.
    pub emptied: bool,
}

impl Translation {
    /// Chooses a victim in the lane: the oldest block of the SLC cache, or a full one by the
    /// policy. Returns false if none is worth collecting.
    pub fn begin(&mut self, lane: u32) -> bool {
        let slots = self.shape.slots;
        let cold = self.unworn(lane);
        let it = &mut self.lanes[lane as usize];
        let oldest = it.cached.pop_front();
        let victim = if let Some(block) = oldest {
            self.cached -= 1;
            block
        } else {
            let block = match cold {
                NONE => it.candidates.choose(&self.blocks, slots, self.clock, &mut self.rng),
                cold => {
                    self.work.levelled += 1;
                    cold
                }
            };
            if block == NONE {
                return false;
            }
            let valid = self.blocks[block as usize].valid;
            // Only greedy knows that no other block is better: nothing would be gained.
            if self.shape.policy == Policy::Greedy && valid == slots && cold == NONE {
                return false;
            }
            it.candidates.remove(&mut self.blocks, block, valid);
            block
        };
        self.blocks[victim as usize].state = State::Victim;
        it.job = Some(Job { victim, cached: oldest.is_some(), cursor: 0 });
        true
    }

    /// Returns the block to move for wear levelling, or [`NONE`]. The search walks over the
    /// lane, so it runs once in as many erases as the lane has blocks.
    fn unworn(&mut self, lane: u32) -> u32 {
        let it = &mut self.lanes[lane as usize];
        let Some(threshold) = self.shape.wear_threshold else { return NONE };
        if it.unchecked < it.count {
            return NONE;
        }
        let blocks = it.first..it.first + it.count;
        let erases = |block: u32| self.blocks[block as usize].erases;
        let most = blocks.clone().map(erases).max().unwrap_or(0);
        let full = blocks.filter(|&block| self.blocks[block as usize].state == State::Full);
        match full.min_by_key(|&block| erases(block)) {
            Some(block) if most - erases(block) > threshold => block,
            _ => {
                it.unchecked = 0;
                NONE
            }
        }
    }

    /// Returns true if a block of the lane is being collected.
    pub fn is_collecting(&self, lane: u32) -> bool {
        self.lanes[lane as usize].job.is_some()
    }

    /// Returns true if that block was in the SLC cache.
    pub fn collects_cached(&self, lane: u32) -> bool {
        self.lanes[lane as usize].job.is_some_and(|job| job.cached)
    }

    /// Returns the number of valid units still to be moved from the lane's victim.
    pub fn left_in_victim(&self, lane: u32) -> u32 {
        self.lanes[lane as usize].job.map_or(0, |job| self.blocks[job.victim as usize].valid)
    }

    /// Moves up to `most` of the victim's valid units to the frontier.
    pub fn step(&mut self, lane: u32, most: u32) -> Moved {
        let mut moved = Moved::default();
        let Some(mut job) = self.lanes[lane as usize].job else { return moved };
        let mut page = NONE;
        while self.blocks[job.victim as usize].valid > 0 && moved.units < most {
            let slot = job.victim * self.shape.slots + job.cursor;
            if job.cursor.is_multiple_of(AHEAD) {
                let ahead = AHEAD.min(self.shape.slots - job.cursor);
                self.mapping.fetch_in(slot..slot + ahead);
            }
            job.cursor += 1;
            let unit = self.mapping.unit_in(slot);
            if unit == NONE {
                continue;
            }
            let from = (job.cursor - 1) / self.shape.page_slots;
            moved.pages_read += u32::from(from != page);
            page = from;
            let to = self.next_slot(lane, Stream::Collected);
            self.mapping.relocate(unit, slot, to);
            self.blocks[job.victim as usize].valid -= 1;
            moved.units += 1;
            moved.pages_filled += u32::from(self.advance_frontier(lane, Stream::Collected));
        }
        self.work.copied += u64::from(moved.units);
        self.lanes[lane as usize].job = Some(job);
        moved.emptied = self.blocks[job.victim as usize].valid == 0;
        moved
    }

    /// Erases the lane's victim, which must be empty.
    pub fn erase(&mut self, lane: u32) {
        let it = &mut self.lanes[lane as usize];
        let Some(job) = it.job.take() else { return };
        let block = &mut self.blocks[job.victim as usize];
        debug_assert_eq!(block.valid, 0, "a victim is erased once it is empty");
        block.erases += 1;
        block.state = State::Free;
        it.unchecked += 1;
        it.free.push(Reverse((block.erases, job.victim)));
        self.free += 1;
        self.work.erases += 1;
    }

    /// Collects a whole block of the lane, untimed. Returns false if there was none.
    pub fn collect(&mut self, lane: u32) -> bool {
        if !self.is_collecting(lane) && !self.begin(lane) {
            return false;
        }
        while !self.step(lane, u32::MAX).emptied {}
        self.erase(lane);
        true
    }
}
