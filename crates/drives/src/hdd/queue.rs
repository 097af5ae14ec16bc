//! Requests that wait for the medium, and which of them is next.

use hemi_core::units::{Extent, Instant};

use super::geometry::Place;
use super::mechanism::{Arm, Mechanism};
use super::parameters::{Order, Queue};

/// A request that waits for the medium.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    /// The host's name for it.
    pub(super) tag: u64,
    /// Where.
    pub(super) extent: Extent,
    /// Where its first sector is.
    pub(super) place: Place,
    /// Whether it writes.
    pub(super) write: bool,
    /// When it came.
    pub(super) came: Instant,
    /// When its command has been worked out and (of a write) its data is there.
    pub(super) ready: Instant,
    /// Its number in the order of arrival.
    pub(super) number: u64,
}

/// All that wait.
#[derive(Clone, Debug)]
pub(super) struct PendingQueue {
    waiting: Vec<Pending>,
    order: Order,
    age_limit: u64,
}

/// What is next, and how long until its first sector passes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    index: usize,
    /// Positioning time from now on, nanoseconds; zero where it must be next.
    pub(super) cost: u64,
}

impl PendingQueue {
    /// An empty queue.
    pub(super) fn new(queue: &Queue) -> PendingQueue {
        PendingQueue {
            waiting: Vec::with_capacity(queue.depth as usize),
            order: queue.order,
            age_limit: queue.age_limit.0,
        }
    }

    /// Whether none waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// One more waits.
    pub(super) fn push(&mut self, pending: Pending) {
        self.waiting.push(pending);
    }

    /// Takes the chosen one.
    pub(super) fn take(&mut self, choice: Choice) -> Pending {
        self.waiting.swap_remove(choice.index)
    }

    /// Which is next for an arm that is free at `now`.
    pub(super) fn choose(&self, now: Instant, arm: Arm, mechanism: &Mechanism) -> Option<Choice> {
        if self.waiting.len() <= 1 {
            return self.waiting.first().map(|only| {
                let at = now.max(only.ready);
                let cost = mechanism.positioning(at, arm, &only.place, only.write);
                Choice { index: 0, cost: at.since(now) + cost }
            });
        }
        if self.order == Order::FirstComeFirstServed {
            let numbers = self.waiting.iter().enumerate().map(|(i, one)| (one.number, i));
            return numbers.min().map(|(_, index)| Choice { index, cost: 0 });
        }
        let too_old = now - self.age_limit;
        let mut best = Choice { index: 0, cost: u64::MAX };
        let mut oldest = (u64::MAX, 0);
        for (index, one) in self.waiting.iter().enumerate() {
            if one.came < too_old && one.number < oldest.0 {
                oldest = (one.number, index);
            }
            let to = Arm { cylinder: one.place.cylinder, head: one.place.head };
            let at = now.max(one.ready);
            let travel = at.since(now) + mechanism.travel(arm, to, one.write);
            if travel < best.cost {
                let cost = travel + mechanism.spindle.wait(now.0 + travel, one.place.angle);
                if cost < best.cost {
                    best = Choice { index, cost };
                }
            }
        }
        if oldest.0 < u64::MAX { Some(Choice { index: oldest.1, cost: 0 }) } else { Some(best) }
    }
}
