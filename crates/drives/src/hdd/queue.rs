//! Requests that wait for the medium, and the choice of the next one.

use hemi_units::{Extent, Instant};

use super::bus::WriteData;
use super::geometry::Place;
use super::mechanism::{Arm, Mechanism};
use super::nearest::{Search, Spot};
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

/// A waiting request in the order of cylinders. Packed, since many are examined whenever the arm
/// becomes free.
#[derive(Clone, Copy, Debug)]
struct ByCylinder {
    cylinder: u32,
    angle: Angle,
    /// Index in [`PendingQueue::waiting`].
    index: u32,
}

impl Spot for ByCylinder {
    fn cylinder(&self) -> u32 {
        self.cylinder
    }

    fn angle(&self) -> Angle {
        self.angle
    }
}

/// First sector of a write in [`PendingQueue::reads`], which no stream reaches.
const NO_READ: u64 = u64::MAX;

/// All waiting requests.
#[derive(Clone, Debug)]
pub(super) struct PendingQueue {
    waiting: Vec<Pending>,
    /// First sector of each waiting read, [`NO_READ`] for a write. Packed, since all are
    /// examined while the arm reads ahead.
    reads: Vec<u64>,
    spots: Vec<ByCylinder>,
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
            reads: Vec::with_capacity(queue.depth as usize),
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
        let Place { cylinder, angle, .. } = pending.place;
        self.oldest = self.oldest.min(pending.came);
        let after = self.spots.partition_point(|spot| spot.cylinder <= cylinder);
        let index = self.waiting.len() as u32;
        self.spots.insert(after, ByCylinder { cylinder, angle, index });
        self.reads.push(if pending.write { NO_READ } else { pending.extent.start });
        self.waiting.push(pending);
    }

    /// Removes and returns the chosen request.
    pub(super) fn take(&mut self, choice: Choice) -> Pending {
        let index = choice.index;
        self.reads.swap_remove(index);
        let pending = self.waiting.swap_remove(index);
        let spot = self.spot(&pending, index);
        self.spots.remove(spot);
        // The last request has moved to the place that became free.
        if let Some(moved) = self.waiting.get(index) {
            let spot = self.spot(moved, self.waiting.len());
            self.spots[spot].index = index as u32;
        }
        pending
    }

    /// Returns the place in the order of cylinders of the request that is, or was, at `index`.
    fn spot(&self, pending: &Pending, index: usize) -> usize {
        let cylinder = pending.place.cylinder;
        let first = self.spots.partition_point(|spot| spot.cylinder < cylinder);
        let mut same = self.spots[first..].iter();
        let after = same.position(|spot| spot.index == index as u32);
        first + after.expect("every waiting request has its spot")
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
        let length = streamed.end - streamed.start;
        let reads = self.reads.iter().enumerate();
        // One comparison for both ends: the difference wraps if the read begins before.
        let begins = reads.filter(|(_, first)| first.wrapping_sub(streamed.start) <= length);
        begins.min_by_key(|(_, first)| **first).map(|(index, _)| index)
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
        Search::new(mechanism, now, arm, false, u64::MAX).outwards(&self.spots, |spot| {
            let index = self.spots[spot].index as usize;
            let cost = cost(&self.waiting[index], now, arm, mechanism);
            // Of equals the first.
            let better = (cost, index) < (best.cost, best.index);
            better.then(|| {
                best = Choice { index, cost };
                cost
            })
        });
        Some(best)
    }
}

/// Returns the time from `now` until the head reaches a request.
fn cost(pending: &Pending, now: Instant, arm: Arm, mechanism: &Mechanism) -> u64 {
    let Place { cylinder, head, angle, .. } = pending.place;
    let travel = mechanism.travel(arm, Arm { cylinder, head }, pending.write);
    let travel = pending.ready.since(now) + travel;
    travel + mechanism.spindle.wait(now.0 + travel, angle)
}

#[cfg(test)]
mod tests;
