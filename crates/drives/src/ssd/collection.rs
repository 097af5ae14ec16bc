//! Garbage collection: the choice of lanes, and the pacing of copies against host writes.
//!
//! Lanes that run short of free blocks queue up. Some are collected at a time, page by page,
//! each ending with an erase. While the host writes, copies are paced. Each page from the host
//! allows as many copies as the current victims need to free that much space, more the fewer
//! blocks are free, but never more than a share. If that share is too small for the load, free
//! blocks run out. Then either the lanes without blocks wait, or the whole drive waits until a
//! burst of blocks is free again: a freeze.

use std::collections::VecDeque;

use super::parameters::Parameters;
use super::translation::Translation;

/// The pace of collection.
#[derive(Clone, Debug)]
pub(super) struct Collector {
    /// Lanes that wait for their turn, and a flag for each lane that does.
    queue: VecDeque<u32>,
    queued: Vec<bool>,
    /// Lanes being collected now, and the most allowed.
    active: u32,
    most: u32,
    /// Units that may be copied before the host's next page; negative if too many were copied.
    credit: f64,
    /// Units copied for each unit freed, for the latest victims.
    need: f64,
    /// Maximum number of units copied for each unit the host writes.
    limit: f64,
    start: u32,
    background_blocks: u32,
    /// Free blocks of the drive below which pacing begins, and at which it is strongest.
    easy: f64,
    tight: f64,
    burst: u32,
    /// Free blocks at which the host may write again.
    frozen_until: Option<u32>,
    /// True if the drive has nothing else to do.
    idle: bool,
    /// Number of times the drive froze for a burst.
    freezes: u64,
}

impl Collector {
    pub(super) fn new(of: &Parameters, lanes: u32) -> Collector {
        let share = of.collection_share;
        Collector {
            queue: VecDeque::with_capacity(lanes as usize),
            queued: vec![false; lanes as usize],
            active: 0,
            most: of.collectors,
            credit: 0.0,
            need: 1.0,
            limit: share / (1.0 - share),
            start: of.collection_start,
            background_blocks: of.background_blocks,
            easy: f64::from(of.collection_start) * f64::from(lanes),
            tight: f64::from(of.reserve + of.collection_start) / 2.0 * f64::from(lanes),
            burst: of.collection_burst,
            frozen_until: None,
            idle: false,
            freezes: 0,
        }
    }

    /// Returns true while the host waits for a burst of blocks to be freed.
    pub(super) fn is_frozen(&self) -> bool {
        self.frozen_until.is_some()
    }

    /// Returns the number of times the drive froze.
    pub(super) fn freezes(&self) -> u64 {
        self.freezes
    }

    fn needs(&self, translation: &Translation, lane: u32) -> bool {
        let free = translation.free_in(lane);
        free < self.start
            || (self.idle && (free < self.background_blocks || translation.cached_in(lane) > 0))
    }

    /// Updates the pace after the host has written a page of `units` units into the lane.
    pub(super) fn host_wrote(&mut self, translation: &Translation, lane: u32, units: u32) {
        let free = f64::from(translation.free_blocks());
        let depth = ((self.easy - free) / (self.easy - self.tight)).clamp(0.0, 1.0);
        let ratio = (self.need * 2.0 * depth).min(self.limit);
        // Unused credit is not saved up for a burst of copies.
        let most = 8.0 * f64::from(units);
        self.credit = (self.credit + ratio * f64::from(units)).min(most);
        if self.burst > 0 && self.frozen_until.is_none() && free <= self.tight {
            self.frozen_until = Some(translation.free_blocks() + self.burst);
            self.freezes += 1;
        }
        self.enqueue(translation, lane);
    }

    /// Queues the lane if it needs collection and is neither queued nor being collected.
    pub(super) fn enqueue(&mut self, translation: &Translation, lane: u32) {
        let waits = self.queued[lane as usize] || translation.is_collecting(lane);
        if !waits && self.needs(translation, lane) {
            self.queued[lane as usize] = true;
            self.queue.push_back(lane);
        }
    }

    /// Records that the drive has become idle, or busy again.
    pub(super) fn set_idle(&mut self, idle: bool, translation: &Translation) {
        self.idle = idle;
        if idle {
            for lane in 0..self.queued.len() as u32 {
                self.enqueue(translation, lane);
            }
        }
    }

    /// Returns true if the collection of another lane may begin.
    pub(super) fn can_begin(&self) -> bool {
        self.active < self.most && !self.queue.is_empty()
    }

    /// Begins with the next queued lane that has something to collect, and returns it.
    pub(super) fn begin(&mut self, translation: &mut Translation) -> Option<u32> {
        // Lanes with nothing to gain yet are put back; a few attempts are enough for one call.
        for _ in 0..self.queue.len().min(8) {
            if self.active >= self.most {
                return None;
            }
            let lane = self.queue.pop_front()?;
            self.queued[lane as usize] = false;
            if !self.needs(translation, lane) || translation.is_collecting(lane) {
                continue;
            }
            if translation.begin(lane) {
                self.active += 1;
                let shape = translation.shape();
                let valid = f64::from(translation.left_in_victim(lane));
                let freed = (f64::from(shape.slots) - valid).max(1.0);
                self.need += 0.05 * (valid / freed - self.need);
                return Some(lane);
            }
            self.queued[lane as usize] = true;
            self.queue.push_back(lane);
        }
        None
    }

    /// Returns true if the lane may copy a page now. `host_waits` is true if the host has data
    /// to write.
    pub(super) fn may_copy(&self, host_waits: bool, lane_has_room: bool) -> bool {
        let alone = !host_waits || (self.burst == 0 && !lane_has_room);
        alone || self.is_frozen() || self.credit > 0.0
    }

    /// Charges `units` copied units to the credit.
    pub(super) fn copied(&mut self, units: u32) {
        // Copies made while nobody waits do not delay later copies.
        self.credit = (self.credit - f64::from(units)).max(-64.0);
    }

    /// Ends the collection of the lane after its victim's erase. Returns true if that ended a
    /// freeze.
    pub(super) fn erased(&mut self, translation: &Translation, lane: u32) -> bool {
        self.active -= 1;
        self.enqueue(translation, lane);
        let free = translation.free_blocks();
        let enough = |until: u32| free >= until || (self.active == 0 && self.queue.is_empty());
        let ends = self.frozen_until.is_some_and(enough);
        if ends {
            self.frozen_until = None;
            self.credit = 0.0;
        }
        ends
    }
}
