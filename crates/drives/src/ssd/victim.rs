//! The choice of the block to collect next.
//!
//! Each lane keeps its full blocks as candidates. Greedy and FIFO choose in constant time: the
//! candidates are in lists by number of valid units (one list for FIFO), and a block changes
//! its list when one of its units becomes outdated. The sampling policies keep them in an
//! array.

use hemi_random::Rng;
use serde::Deserialize;

use super::mapping::NONE;

/// The policy that chooses the block to collect among the full ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The block with the fewest valid units.
    Greedy,
    /// The block that was filled first.
    Fifo,
    /// The block with the fewest valid units among this many chosen at random (Van Houdt,
    /// SIGMETRICS 2013).
    Choices(u32),
    /// The block with the greatest age × free share / (2 × valid share) (Rosenblum and
    /// Ousterhout, 1991). Examines every full block of the lane each time.
    CostBenefit,
    /// A random block.
    Random,
}

/// The state of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Slots that hold the newest copy of a unit.
    pub valid: u32,
    /// Number of erases.
    pub erases: u32,
    /// Write clock when it was filled (units written until then, wrapping).
    pub filled: u32,
    /// Lane of the block.
    pub lane: u32,
    /// Use of the block.
    pub state: State,
    /// Neighbours in the candidates' list. For sampling policies, `previous` is the index in
    /// the array.
    next: u32,
    previous: u32,
}

/// The use of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Erased.
    Free,
    /// Being written.
    Open,
    /// Full, and a candidate.
    Full,
    /// Full and in the SLC cache.
    Cached,
    /// Being collected.
    Victim,
}

impl Block {
    /// Creates an erased block of the lane.
    pub fn new(lane: u32) -> Block {
        let (next, previous) = (NONE, NONE);
        Block { valid: 0, erases: 0, filled: 0, lane, state: State::Free, next, previous }
    }
}

/// The candidates of one lane.
#[derive(Clone, Debug)]
pub struct Candidates {
    policy: Policy,
    /// First and last block of each list: by valid units for greedy, one list for FIFO.
    lists: Vec<(u32, u32)>,
    /// All lists before this one are empty.
    least: usize,
    /// Candidates in arbitrary order, for sampling policies.
    sampled: Vec<u32>,
}

impl Candidates {
    /// Creates an empty set of candidates for blocks with `slots` slots.
    pub fn new(policy: Policy, slots: u32) -> Candidates {
        let lists = match policy {
            Policy::Greedy => slots as usize + 1,
            Policy::Fifo => 1,
            Policy::Choices(_) | Policy::CostBenefit | Policy::Random => 0,
        };
        Candidates { policy, lists: vec![(NONE, NONE); lists], least: 0, sampled: Vec::new() }
    }

    fn list_of(&self, valid: u32) -> usize {
        if self.policy == Policy::Greedy { valid as usize } else { 0 }
    }

    /// Adds a block that has been filled.
    pub fn add(&mut self, blocks: &mut [Block], block: u32) {
        let valid = blocks[block as usize].valid;
        if self.lists.is_empty() {
            blocks[block as usize].previous = self.sampled.len() as u32;
            self.sampled.push(block);
            return;
        }
        let list = self.list_of(valid);
        let last = self.lists[list].1;
        let it = &mut blocks[block as usize];
        (it.previous, it.next) = (last, NONE);
        match last {
            NONE => self.lists[list].0 = block,
            last => blocks[last as usize].next = block,
        }
        self.lists[list].1 = block;
        self.least = self.least.min(list);
    }

    /// Removes a block; `valid` is its number of valid units when it was added or last moved.
    pub fn remove(&mut self, blocks: &mut [Block], block: u32, valid: u32) {
        let Block { next, previous, .. } = blocks[block as usize];
        if self.lists.is_empty() {
            self.sampled.swap_remove(previous as usize);
            if let Some(&moved) = self.sampled.get(previous as usize) {
                blocks[moved as usize].previous = previous;
            }
            return;
        }
        let list = self.list_of(valid);
        match previous {
            NONE => self.lists[list].0 = next,
            previous => blocks[previous as usize].next = next,
        }
        match next {
            NONE => self.lists[list].1 = previous,
            next => blocks[next as usize].previous = previous,
        }
    }

    /// Updates a candidate whose valid units went down by one.
    #[inline]
    pub fn lessened(&mut self, blocks: &mut [Block], block: u32) {
        if self.policy == Policy::Greedy {
            let valid = blocks[block as usize].valid;
            self.remove(blocks, block, valid + 1);
            self.add(blocks, block);
        }
    }

    /// Returns the block to collect, which stays a candidate, or [`NONE`] if there is none.
    pub fn choose(&mut self, blocks: &[Block], slots: u32, clock: u32, rng: &mut Rng) -> u32 {
        match self.policy {
            Policy::Greedy | Policy::Fifo => {
                while self.least < self.lists.len() && self.lists[self.least].0 == NONE {
                    self.least += 1;
                }
                match self.lists.get(self.least) {
                    Some(&(first, _)) => first,
                    None => {
                        self.least = self.lists.len() - 1;
                        NONE
                    }
                }
            }
            Policy::Choices(count) => self.sample(blocks, count, rng),
            Policy::Random => self.sample(blocks, 1, rng),
            Policy::CostBenefit => self.best_value(blocks, slots, clock),
        }
    }

    /// Returns all candidates, in an order that leads to the same choices if they are added in
    /// it.
    pub(super) fn in_order(&self, blocks: &[Block]) -> Vec<u32> {
        let mut all = self.sampled.clone();
        for &(first, _) in &self.lists {
            let mut at = first;
            while at != NONE {
                all.push(at);
                at = blocks[at as usize].next;
            }
        }
        all
    }

    fn sample(&self, blocks: &[Block], count: u32, rng: &mut Rng) -> u32 {
        let mut best = NONE;
        if self.sampled.is_empty() {
            return NONE;
        }
        for _ in 0..count {
            let block = rng.pick(&self.sampled);
            if best == NONE || blocks[block as usize].valid < blocks[best as usize].valid {
                best = block;
            }
        }
        best
    }

    fn best_value(&self, blocks: &[Block], slots: u32, clock: u32) -> u32 {
        let mut best = (NONE, -1.0);
        for &block in &self.sampled {
            let Block { valid, filled, .. } = blocks[block as usize];
            let age = f64::from(clock.wrapping_sub(filled));
            let value = age * f64::from(slots - valid) / (2.0 * f64::from(valid) + 1e-9);
            if value > best.1 {
                best = (block, value);
            }
        }
        best.0
    }
}
