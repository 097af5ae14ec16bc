//! Requests that wait for the medium, and the choice of the next one.

use hemi_units::{Extent, Instant};

use super::bus::WriteData;
use super::geometry::Place;
use super::mechanism::{Arm, Mechanism};
use super::parameters::{Order, Queue};
use super::rotation::Angle;

/// A request that waits for the medium.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    /// The host's name for the request.
    pub(super) tag: u64,
    /// The sectors.
    pub(super) extent: Extent,
    /// Place of the first sector.
    pub(super) place: Place,
    /// True for a write.
    pub(super) write: bool,
    /// The passage of its data over the bus if it is a write.
    pub(super) data: WriteData,
    /// Time of arrival.
    pub(super) came: Instant,
    /// Time at which the command has been worked out and the arm may move.
    pub(super) ready: Instant,
    /// Number in order of arrival.
    pub(super) number: u64,
}

/// The part of a waiting request that decides when the head reaches it. Packed, since all are
/// examined whenever the arm becomes free.
#[derive(Clone, Copy, Debug)]
struct Spot {
    cylinder: u32,
    angle: Angle,
    ready: Instant,
    head: u16,
    write: bool,
}

/// All waiting requests.
#[derive(Clone, Debug)]
pub(super) struct PendingQueue {
    waiting: Vec<Pending>,
    /// One spot for each waiting request.
    spots: Vec<Spot>,
    order: Order,
    age_limit: u64,
    /// A time not later than the arrival of any waiting request.
    oldest: Instant,
}

/// The chosen request and the time until its first sector passes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    index: usize,
    /// Positioning time from now on, in nanoseconds; zero if the request must be next.
    pub(super) cost: u64,
}

impl PendingQueue {
    /// Creates an empty queue.
    pub(super) fn new(queue: &Queue) -> PendingQueue {
        PendingQueue {
            waiting: Vec::with_capacity(queue.depth as usize),
            spots: Vec::with_capacity(queue.depth as usize),
            order: queue.order,
            age_limit: queue.age_limit.0,
            oldest: Instant::NEVER,
        }
    }

    /// Returns true if no request waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds a request.
    pub(super) fn push(&mut self, pending: Pending) {
        let Place { cylinder, head, angle, .. } = pending.place;
        let (ready, write) = (pending.ready, pending.write);
        self.oldest = self.oldest.min(pending.came);
        self.spots.push(Spot { cylinder, angle, ready, head, write });
        self.waiting.push(pending);
    }

    /// Removes and returns the chosen request.
    pub(super) fn take(&mut self, choice: Choice) -> Pending {
        self.spots.swap_remove(choice.index);
        self.waiting.swap_remove(choice.index)
    }

    /// Returns the request that arrived first.
    fn first(&self) -> Option<(usize, &Pending)> {
        self.waiting.iter().enumerate().min_by_key(|(_, one)| one.number)
    }

    /// Returns the request that arrived first if it has waited too long.
    fn too_old(&mut self, now: Instant) -> Option<usize> {
        if now.since(self.oldest) <= self.age_limit {
            return None;
        }
        let (index, came) = self.first().map(|(index, first)| (index, first.came))?;
        self.oldest = came;
        (now.since(came) > self.age_limit).then_some(index)
    }

    /// Returns a read that continues a stream: among those that begin in `streamed` or right
    /// behind it, the first on the medium. It needs no movement of the arm.
    fn on_stream(&self, streamed: Extent) -> Option<usize> {
        let begins = |one: &Pending| (streamed.start..=streamed.end).contains(&one.extent.start);
        let reads = self.waiting.iter().enumerate().filter(|(_, one)| !one.write && begins(one));
        reads.min_by_key(|(_, one)| one.extent.start).map(|(index, _)| index)
    }

    /// Chooses the next request for an arm that is free at `now`. If the arm is reading ahead,
    /// `streamed` is the extent it has read.
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
        // The platter's position does not matter here: the data is coming or already read.
        if let Some(index) = streamed.and_then(|streamed| self.on_stream(streamed)) {
            return Some(Choice { index, cost: 0 });
        }
        let mut best = Choice { index: 0, cost: u64::MAX };
        let mut reach = u32::MAX;
        for (index, spot) in self.spots.iter().enumerate() {
            // A request with a longer travel cannot win, so its rotation need not be computed.
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
