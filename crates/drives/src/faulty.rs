//! Any drive behind scripted faults: freezes, and stalls of single requests.
//!
//! A drive's own behaviour follows from its model. Faults of a path or a service in front of it
//! do not, and are added here. During a freeze the drive is cut off in both directions:
//! requests reach it, and completions leave it, when the freeze is over. A request that stalls
//! reaches the drive later by its delay, and other requests pass it.

mod freezes;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hemi_stalls::{Kind, Stalls};
use hemi_units::{Instant, Operation};

pub use self::freezes::Freeze;
use self::freezes::Freezes;
use crate::drive::{Completion, Counters, Drive, Request};

/// A request on its way to the drive, ordered by the time it reaches the drive, then by
/// arrival.
#[derive(Clone, Debug)]
struct Held {
    due: Instant,
    arrival: u64,
    request: Request,
}

impl PartialEq for Held {
    fn eq(&self, other: &Held) -> bool {
        self.arrival == other.arrival
    }
}
impl Eq for Held {}
impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Held) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Held {
    fn cmp(&self, other: &Held) -> std::cmp::Ordering {
        (self.due, self.arrival).cmp(&(other.due, other.arrival))
    }
}

/// A drive behind faults.
#[derive(Clone, Debug)]
pub struct Faulty<D> {
    drive: D,
    freezes: Freezes,
    stalls: Vec<Stalls>,
    held: BinaryHeap<Reverse<Held>>,
    arrivals: u64,
    /// Tags of requests the drive has completed but a freeze holds back.
    unheard: Vec<u64>,
    /// Time at which they are reported: the end of the freeze, or never if there are none.
    thaw: Instant,
    /// Completions of the drive in one step.
    done: Vec<Completion>,
}

impl<D: Drive> Faulty<D> {
    /// Puts a drive behind faults. Delays of several stall schedules add up.
    pub fn new(drive: D, freezes: Vec<Freeze>, stalls: Vec<Stalls>) -> Faulty<D> {
        Faulty {
            drive,
            freezes: Freezes::new(freezes),
            stalls,
            held: BinaryHeap::new(),
            arrivals: 0,
            unheard: Vec::new(),
            thaw: Instant::NEVER,
            done: Vec::new(),
        }
    }

    /// Returns the drive behind the faults.
    pub fn drive_mut(&mut self) -> &mut D {
        &mut self.drive
    }

    /// Returns the time at which the next request reaches the drive.
    fn next_arrival(&self) -> Instant {
        self.held.peek().map_or(Instant::NEVER, |Reverse(held)| held.due)
    }

    /// Advances to `at`, the time of the next event.
    fn step(&mut self, at: Instant, done: &mut Vec<Completion>) {
        self.drive.advance(at, &mut self.done);
        for completion in self.done.drain(..) {
            let thaw = self.freezes.thaw(completion.at);
            if thaw == completion.at {
                done.push(completion);
            } else {
                self.unheard.push(completion.tag);
                self.thaw = thaw;
            }
        }
        if self.thaw <= at {
            let at = std::mem::replace(&mut self.thaw, Instant::NEVER);
            done.extend(self.unheard.drain(..).map(|tag| Completion { tag, at }));
        }
        while self.next_arrival() <= at {
            let Some(Reverse(held)) = self.held.pop() else { break };
            self.drive.submit(at, held.request);
        }
    }
}

impl<D: Drive> Drive for Faulty<D> {
    fn sectors(&self) -> u64 {
        self.drive.sectors()
    }

    fn submit(&mut self, now: Instant, request: Request) {
        let kind = match request.operation {
            Operation::Read => Kind::Read,
            Operation::Write { .. } | Operation::Trim | Operation::Flush => Kind::Write,
        };
        let stall: u64 = self.stalls.iter_mut().map(|stalls| stalls.draw(now, kind)).sum();
        let due = self.freezes.thaw(now + stall);
        if due <= now {
            self.drive.submit(now, request);
            return;
        }
        self.held.push(Reverse(Held { due, arrival: self.arrivals, request }));
        self.arrivals += 1;
    }

    fn next_event(&self) -> Instant {
        self.next_arrival().min(self.thaw).min(self.drive.next_event())
    }

    fn advance(&mut self, now: Instant, done: &mut Vec<Completion>) {
        loop {
            let at = self.next_event();
            if at > now || at == Instant::NEVER {
                break;
            }
            self.step(at, done);
        }
        // The drive's clock has to advance too.
        self.step(now, done);
    }

    fn counters(&self) -> Counters {
        self.drive.counters()
    }
}
