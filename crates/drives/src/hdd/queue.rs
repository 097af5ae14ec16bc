//! Requests that wait for the medium, and which of them is next.

use hemi_units::{Extent, Instant};

use super::geometry::Place;
use super::mechanism::{Arm, Mechanism};
use super::parameters::{Order, Queue};
use super::rotation::Angle;

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

/// What of a waiting request decides when it is reached, packed: all are looked at whenever
/// the arm is free.
#[derive(Clone, Copy, Debug)]
struct Spot {
    cylinder: u32,
    angle: Angle,
    ready: Instant,
    head: u16,
    write: bool,
}

/// All that wait.
#[derive(Clone, Debug)]
pub(super) struct PendingQueue {
    waiting: Vec<Pending>,
    /// Of each of them.
    spots: Vec<Spot>,
    order: Order,
    age_limit: u64,
    /// Not later than any came.
    oldest: Instant,
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
            spots: Vec::with_capacity(queue.depth as usize),
            order: queue.order,
            age_limit: queue.age_limit.0,
            oldest: Instant::NEVER,
        }
    }

    /// Whether none waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// One more waits.
    pub(super) fn push(&mut self, pending: Pending) {
        let Place { cylinder, head, angle, .. } = pending.place;
        let (ready, write) = (pending.ready, pending.write);
        self.oldest = self.oldest.min(pending.came);
        self.spots.push(Spot { cylinder, angle, ready, head, write });
        self.waiting.push(pending);
    }

    /// Takes the chosen one.
    pub(super) fn take(&mut self, choice: Choice) -> Pending {
        self.spots.swap_remove(choice.index);
        self.waiting.swap_remove(choice.index)
    }

    /// The one that came first.
    fn first(&self) -> Option<(usize, &Pending)> {
        self.waiting.iter().enumerate().min_by_key(|(_, one)| one.number)
    }

    /// The one that came first, if it has waited too long.
    fn too_old(&mut self, now: Instant) -> Option<usize> {
        if now.since(self.oldest) <= self.age_limit {
            return None;
        }
        let (index, came) = self.first().map(|(index, first)| (index, first.came))?;
        self.oldest = came;
        (now.since(came) > self.age_limit).then_some(index)
    }

    /// The read that goes on where a stream is: of those that begin in `streamed`, or right
    /// behind it, the first on the medium. It needs no arm to be moved.
    fn on_stream(&self, streamed: Extent) -> Option<usize> {
        let begins = |one: &Pending| (streamed.start..=streamed.end).contains(&one.extent.start);
        let reads = self.waiting.iter().enumerate().filter(|(_, one)| !one.write && begins(one));
        reads.min_by_key(|(_, one)| one.extent.start).map(|(index, _)| index)
    }

    /// Which is next for an arm that is free at `now`, and may be reading ahead: `streamed` is
    /// what it has read.
    pub(super) fn choose(
        &mut self,
        now: Instant,
        arm: Arm,
        streamed: Option<Extent>,
        mechanism: &Mechanism,
    ) -> Option<Choice> {
        if self.waiting.is_empty() {
            return None;
        }
        if self.order == Order::FirstComeFirstServed {
            return self.first().map(|(index, _)| Choice { index, cost: 0 });
        }
        if let Some(index) = self.too_old(now) {
            return Some(Choice { index, cost: 0 });
        }
        // Where the platter is says nothing of it: its data comes, or is there already.
        if let Some(index) = streamed.and_then(|streamed| self.on_stream(streamed)) {
            return Some(Choice { index, cost: 0 });
        }
        let mut best = Choice { index: 0, cost: u64::MAX };
        let mut reach = u32::MAX;
        for (index, spot) in self.spots.iter().enumerate() {
            // What takes longer to get to needs no look at where the platter will be.
            if spot.cylinder.abs_diff(arm.cylinder) >= reach {
                continue;
            }
            let to = Arm { cylinder: spot.cylinder, head: spot.head };
            let travel = spot.ready.since(now) + mechanism.travel(arm, to, spot.write);
            let cost = travel + mechanism.spindle.wait(now.0 + travel, spot.angle);
            if cost < best.cost {
                best = Choice { index, cost };
                reach = mechanism.reach(cost);
            }
        }
        Some(best)
    }
}
