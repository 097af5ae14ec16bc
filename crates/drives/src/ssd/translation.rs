//! The flash translation layer, without time: the places of host writes and copies, the choice
//! of blocks to collect, the erases of each block.
//!
//! A *lane* is the unit of parallelism: a die, or several in lockstep. It has its own blocks,
//! including free ones, and its own frontiers; the valid units of a block are copied within its
//! lane. Callers that need no times (theory, preconditioning) only use [`Translation::write`].
//! The timed model takes the same steps one by one and adds the time each occupies a lane.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use hemi_random::Rng;

use super::frontier::{Frontier, Stream};
use super::mapping::{Mapping, NONE};
use super::reclaim::Job;
use super::victim::{Block, Candidates, Policy, State};

/// Sizes and policies of a translation layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Units of the user's capacity.
    pub units: u32,
    /// Lanes, which share the blocks evenly.
    pub lanes: u32,
    /// Blocks of all lanes.
    pub blocks: u32,
    /// Slots of a block.
    pub slots: u32,
    /// Slots of a flash page, the unit of programming. Divides `slots`.
    pub page_slots: u32,
    /// Slots of a block used as SLC cache; 0 without such a cache.
    pub cached_slots: u32,
    /// Free blocks of a lane that only collection may open. At least 1, or 2 with separation.
    pub reserve: u32,
    /// Free blocks of a lane below which untimed writes collect first; at least the reserve.
    pub kept_free: u32,
    /// Choice of victims.
    pub policy: Policy,
    /// True if collected units have a frontier of their own, apart from the host's.
    pub hot_cold: bool,
    /// Difference in erases from which on the least erased block is moved (static wear
    /// levelling); `None` for never.
    pub wear_threshold: Option<u32>,
}

/// The work the layer has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Units written for the host.
    pub written: u64,
    /// Units copied.
    pub copied: u64,
    /// Blocks erased.
    pub erases: u64,
    /// Blocks moved only for wear levelling.
    pub levelled: u64,
}

/// A lane's blocks.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    /// First block of the lane and number of its blocks.
    pub(super) first: u32,
    pub(super) count: u32,
    /// Free blocks, least erased first (dynamic wear levelling).
    pub(super) free: BinaryHeap<Reverse<(u32, u32)>>,
    pub(super) frontiers: [Frontier; 3],
    pub(super) candidates: Candidates,
    /// Full blocks of the SLC cache, oldest first.
    pub(super) cached: VecDeque<u32>,
    pub(super) job: Option<Job>,
    /// Erases since wear was last checked.
    pub(super) unchecked: u32,
}

/// The layer's state.
#[derive(Clone, Debug)]
pub struct Translation {
    pub(super) shape: Shape,
    pub(super) mapping: Mapping,
    pub(super) blocks: Vec<Block>,
    pub(super) lanes: Vec<Lane>,
    pub(super) rng: Rng,
    /// Units written so far, wrapping. Gives the age of blocks.
    pub(super) clock: u32,
    /// Free blocks and SLC-cached blocks of all lanes.
    pub(super) free: u32,
    pub(super) cached: u32,
    /// Lane of the next untimed write.
    pub(super) turn: u32,
    pub(super) work: Work,
}

impl Translation {
    /// Creates an erased drive. The shape must leave each lane spare blocks beyond its reserve;
    /// see [`super::parameters::Parameters::check`].
    pub fn new(shape: Shape, seed: u64) -> Translation {
        let mut blocks = Vec::with_capacity(shape.blocks as usize);
        let mut lanes = Vec::with_capacity(shape.lanes as usize);
        for index in 0..shape.lanes {
            let first = blocks.len() as u32;
            let count = shape.blocks / shape.lanes + u32::from(index < shape.blocks % shape.lanes);
            blocks.extend((0..count).map(|_| Block::new(index)));
            lanes.push(Lane {
                first,
                count,
                free: (first..first + count).map(|block| Reverse((0, block))).collect(),
                frontiers: [Frontier::CLOSED; 3],
                candidates: Candidates::new(shape.policy, shape.slots),
                cached: VecDeque::new(),
                job: None,
                unchecked: 0,
            });
        }
        Translation {
            mapping: Mapping::new(shape.units, shape.blocks * shape.slots),
            blocks,
            lanes,
            rng: Rng::new(seed, 0x55d),
            clock: 0,
            free: shape.blocks,
            cached: 0,
            turn: 0,
            work: Work::default(),
            shape,
        }
    }

    /// Returns the sizes and policies.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the work done so far.
    pub fn work(&self) -> Work {
        self.work
    }

    /// Returns the number of free blocks of all lanes.
    pub fn free_blocks(&self) -> u32 {
        self.free
    }

    /// Returns the number of free blocks of a lane.
    pub fn free_in(&self, lane: u32) -> u32 {
        self.lanes[lane as usize].free.len() as u32
    }

    /// Returns the number of full blocks in the SLC cache.
    pub fn cached_blocks(&self) -> u32 {
        self.cached
    }

    /// Returns the number of full blocks of a lane in the SLC cache.
    pub fn cached_in(&self, lane: u32) -> u32 {
        self.lanes[lane as usize].cached.len() as u32
    }

    /// Returns the slot of the unit, or [`NONE`] if it has none.
    pub fn slot_of(&self, unit: u32) -> u32 {
        self.mapping.slot_of(unit)
    }

    /// Returns the lane of a slot.
    pub fn lane_of(&self, slot: u32) -> u32 {
        self.blocks[(slot / self.shape.slots) as usize].lane
    }

    /// Returns the page of the slot within its block.
    pub fn page_of(&self, slot: u32) -> u32 {
        slot % self.shape.slots / self.shape.page_slots
    }

    /// Returns true if the slot's block is written as SLC cache or being written so.
    pub fn is_cached(&self, slot: u32) -> bool {
        let block = slot / self.shape.slots;
        let it = &self.blocks[block as usize];
        it.state == State::Cached
            || self.lanes[it.lane as usize].frontiers[Stream::Cached as usize].block == block
    }

    /// Returns the erases of the least and of the most erased block.
    pub fn erases_range(&self) -> (u64, u64) {
        let erases = || self.blocks.iter().map(|block| u64::from(block.erases));
        (erases().min().unwrap_or(0), erases().max().unwrap_or(0))
    }

    /// Returns true if the host may write a page into the lane: into the open block, as long as
    /// the rest of the victim still finds room, or into a new block beyond the reserve.
    pub fn has_room(&self, lane: u32, stream: Stream) -> bool {
        let it = &self.lanes[lane as usize];
        let frontier = self.frontier_of(stream);
        let free = it.free.len() as u32;
        if !it.frontiers[frontier].is_open() {
            return free > self.shape.reserve;
        }
        if it.job.is_none() || frontier != self.frontier_of(Stream::Collected) {
            return true;
        }
        let rest = it.frontiers[frontier].limit - it.frontiers[frontier].next;
        let left = self.left_in_victim(lane) + self.shape.page_slots;
        u64::from(rest) + u64::from(free) * u64::from(self.shape.slots) >= u64::from(left)
    }

    /// Returns true if the stream has an open block in the lane.
    pub fn has_open(&self, lane: u32, stream: Stream) -> bool {
        self.lanes[lane as usize].frontiers[self.frontier_of(stream)].is_open()
    }

    /// Returns the number of units that fill up the page at the frontier.
    pub fn rest_of_page(&self, lane: u32, stream: Stream) -> u32 {
        let next = self.lanes[lane as usize].frontiers[self.frontier_of(stream)].next;
        self.shape.page_slots - next % self.shape.page_slots
    }

    /// Returns the page at the frontier, within its block.
    pub fn frontier_page(&self, lane: u32, stream: Stream) -> u32 {
        let next = self.lanes[lane as usize].frontiers[self.frontier_of(stream)].next;
        next / self.shape.page_slots
    }

    fn frontier_of(&self, stream: Stream) -> usize {
        match stream {
            Stream::Collected if !self.shape.hot_cold => Stream::Host as usize,
            stream => stream as usize,
        }
    }

    /// Writes a host unit into the lane, which must have room. Returns true if that filled a
    /// flash page.
    pub fn place(&mut self, unit: u32, lane: u32, stream: Stream) -> bool {
        self.work.written += 1;
        self.clock = self.clock.wrapping_add(1);
        let slot = self.next_slot(lane, stream);
        let old = self.mapping.assign(unit, slot);
        if old != NONE {
            self.outdate(old);
        }
        self.advance_frontier(lane, stream)
    }

    /// Leaves the rest of the page at the frontier empty, so that it can be programmed now.
    /// Returns false if the page was empty.
    pub fn pad(&mut self, lane: u32, stream: Stream) -> bool {
        let frontier = self.frontier_of(stream);
        let it = &self.lanes[lane as usize].frontiers[frontier];
        if !it.is_open() || it.next.is_multiple_of(self.shape.page_slots) {
            return false;
        }
        while !self.advance_frontier(lane, stream) {}
        true
    }

    /// Drops the unit's contents, which are no longer needed.
    pub fn trim(&mut self, unit: u32) {
        let old = self.mapping.clear(unit);
        if old != NONE {
            self.outdate(old);
        }
    }

    /// Returns the slot at the frontier, which counts as valid from now on.
    pub(super) fn next_slot(&mut self, lane: u32, stream: Stream) -> u32 {
        let frontier = self.frontier_of(stream);
        let it = &mut self.lanes[lane as usize];
        if !it.frontiers[frontier].is_open() {
            let Reverse((_, block)) = it.free.pop().expect("the caller looked for room");
            self.free -= 1;
            let limit =
                if stream == Stream::Cached { self.shape.cached_slots } else { self.shape.slots };
            it.frontiers[frontier] = Frontier { block, next: 0, limit };
            self.blocks[block as usize].state = State::Open;
        }
        let Frontier { block, next, .. } = it.frontiers[frontier];
        self.blocks[block as usize].valid += 1;
        block * self.shape.slots + next
    }

    /// Advances the frontier by a slot; a block that becomes full becomes a candidate. Returns
    /// true if a page was filled.
    pub(super) fn advance_frontier(&mut self, lane: u32, stream: Stream) -> bool {
        let frontier = self.frontier_of(stream);
        let lane = &mut self.lanes[lane as usize];
        let it = &mut lane.frontiers[frontier];
        it.next += 1;
        let next = it.next;
        if next == it.limit {
            let block = it.block;
            *it = Frontier::CLOSED;
            self.blocks[block as usize].filled = self.clock;
            if stream == Stream::Cached {
                self.blocks[block as usize].state = State::Cached;
                lane.cached.push_back(block);
                self.cached += 1;
            } else {
                self.blocks[block as usize].state = State::Full;
                lane.candidates.add(&mut self.blocks, block);
            }
        }
        next.is_multiple_of(self.shape.page_slots)
    }

    #[inline]
    fn outdate(&mut self, slot: u32) {
        let block = slot / self.shape.slots;
        let it = &mut self.blocks[block as usize];
        it.valid -= 1;
        if it.state == State::Full {
            let lane = it.lane as usize;
            self.lanes[lane].candidates.lessened(&mut self.blocks, block);
        }
    }

    /// Prepares for writes of these units; see [`Mapping::fetch`].
    pub fn fetch(&self, units: &[u32]) {
        self.mapping.fetch(units);
    }

    /// Writes a host unit, untimed, into the lane whose turn it is. If the lane has no room, it
    /// is collected first.
    pub fn write(&mut self, unit: u32) {
        let lane = loop {
            let lane = self.turn;
            let mut gained = true;
            while !self.has_open(lane, Stream::Host)
                && self.free_in(lane) <= self.shape.kept_free
                && gained
            {
                gained = self.collect(lane);
            }
            if self.has_room(lane, Stream::Host) {
                break lane;
            }
            self.next_turn();
        };
        if self.place(unit, lane, Stream::Host) {
            self.next_turn();
        }
    }

    /// Returns the lane of the next untimed write.
    pub fn turn(&self) -> u32 {
        self.turn
    }

    /// Writes a host unit, untimed, into the SLC cache of the lane whose turn it is, which must
    /// have room.
    pub fn write_cached(&mut self, unit: u32) {
        if self.place(unit, self.turn, Stream::Cached) {
            self.next_turn();
        }
    }

    /// Moves the turn to the next lane; each lane takes a page at a time.
    fn next_turn(&mut self) {
        self.turn = if self.turn + 1 == self.shape.lanes { 0 } else { self.turn + 1 };
    }
}
