//! Network volumes: block storage at the other end of a network, rented with limits.
//!
//! A request waits, in order of arrival, until the queue has a free slot and the volume's
//! limits (requests and bytes per second, with credit for bursts) let it pass. No request is
//! dropped. It is then in flight for a time drawn from the volume's latency distribution, and
//! may overtake others. From time to time the whole volume pauses.

mod bucket;
mod latency;
mod limits;
mod parameters;
mod pauses;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use hemi_random::Rng;
use hemi_units::{Instant, Operation, SECTOR_BYTES};

pub use self::latency::{Latency, Tail};
use self::limits::Limits;
pub use self::parameters::{ByteLimit, Hiccups, Parameters, RequestLimit};
use self::pauses::Pauses;
use crate::drive::{Completion, Counters, Drive, Request};
use crate::parameter::ParameterError;

/// A request in flight, ordered by its end on the volume's clock, then by its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Underway {
    end: u64,
    sequence: u64,
    tag: u64,
    kind: Kind,
    bytes: u64,
}

/// The kinds of requests that the counters distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Read,
    Write,
    Trim,
    Flush,
}

/// A network volume.
#[derive(Clone, Debug)]
pub struct Network {
    parameters: Parameters,
    rng: Rng,
    limits: Limits,
    pauses: Pauses,
    waiting: VecDeque<Request>,
    /// Time at which the limits let the first of `waiting` pass. Never if none waits or no slot
    /// is free.
    gate: Instant,
    /// Time at which the last request passed, or will pass.
    passed: Instant,
    underway: BinaryHeap<Reverse<Underway>>,
    sequence: u64,
    counters: Counters,
    /// Time since which it has had work.
    busy_since: Instant,
}

impl Network {
    /// Creates a volume with all its credit. Its randomness comes from `seed` alone.
    pub fn new(parameters: Parameters, seed: u64) -> Result<Network, ParameterError> {
        parameters.check()?;
        Ok(Network {
            rng: Rng::new(seed, 0),
            limits: Limits::new(&parameters),
            // A stream of their own: the times of pauses do not depend on the load.
            pauses: Pauses::new(parameters.hiccups, Rng::new(seed, 1)),
            waiting: VecDeque::new(),
            gate: Instant::NEVER,
            passed: Instant(0),
            underway: BinaryHeap::new(),
            sequence: 0,
            counters: Counters::default(),
            busy_since: Instant(0),
            parameters,
        })
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.underway.is_empty()
    }

    /// Recomputes the time at which the first waiting request may pass, at `now` or later.
    fn set_gate(&mut self, now: Instant) {
        let places = self.underway.len() < self.parameters.queue_depth as usize;
        self.gate = match self.waiting.front() {
            Some(request) if places => self.limits.ready(now.max(self.passed), request),
            _ => Instant::NEVER,
        };
    }

    /// Lets waiting requests pass whose time is known. It may lie ahead: requests pass in order of
    /// arrival, slots only become free meanwhile, and nothing else changes it. That saves an event for
    /// each request. Past the end of the next pause the volume's clock is not known.
    fn admit(&mut self) {
        while self.pauses.reach(self.gate) {
            let Some(request) = self.waiting.pop_front() else { break };
            self.passed = self.gate;
            self.limits.take(self.passed, &request);
            self.begin(self.passed, &request);
            self.set_gate(self.passed);
        }
    }

    fn begin(&mut self, now: Instant, request: &Request) {
        let parameters = &self.parameters;
        let (kind, latency, bytes) = match request.operation {
            Operation::Read => (Kind::Read, &parameters.read, request.extent.bytes()),
            Operation::Write { .. } => (Kind::Write, &parameters.write, request.extent.bytes()),
            Operation::Trim => (Kind::Trim, &parameters.write, 0),
            Operation::Flush => (Kind::Flush, &parameters.flush, 0),
        };
        let lasts = latency.draw(&mut self.rng) + parameters.transfer.time_of(bytes);
        let end = self.pauses.volume_time(now) + lasts;
        let (sequence, tag) = (self.sequence, request.tag);
        self.sequence += 1;
        self.underway.push(Reverse(Underway { end, sequence, tag, kind, bytes }));
    }

    /// Returns the time of the next completion, or the end of a pause before it.
    fn next_end(&self) -> Instant {
        match self.underway.peek() {
            Some(Reverse(next)) => self.pauses.real_time(next.end),
            None => Instant::NEVER,
        }
    }

    fn count(&mut self, ended: &Underway) {
        match ended.kind {
            Kind::Read => {
                self.counters.reads += 1;
                self.counters.read_bytes += ended.bytes;
            }
            Kind::Write => {
                self.counters.writes += 1;
                self.counters.written_bytes += ended.bytes;
            }
            Kind::Flush => self.counters.flushes += 1,
            Kind::Trim => {}
        }
    }
}

impl Drive for Network {
    fn sectors(&self) -> u64 {
        self.parameters.capacity.0 / SECTOR_BYTES
    }

    fn submit(&mut self, now: Instant, request: Request) {
        self.pauses.pass(now);
        if self.is_idle() {
            self.busy_since = now;
        }
        self.waiting.push_back(request);
        if self.waiting.len() == 1 {
            self.set_gate(now);
            self.admit();
        }
    }

    fn next_event(&self) -> Instant {
        self.gate.min(self.next_end())
    }

    fn advance(&mut self, now: Instant, done: &mut Vec<Completion>) {
        loop {
            let at = self.next_event();
            if at > now || at == Instant::NEVER {
                break;
            }
            self.pauses.pass(at);
            if let Some(&Reverse(ended)) = self.underway.peek()
                && ended.end <= self.pauses.volume_time(at)
            {
                self.underway.pop();
                self.count(&ended);
                done.push(Completion::done(ended.tag, at));
                if self.gate == Instant::NEVER {
                    self.set_gate(at);
                }
                if self.is_idle() {
                    self.counters.busy += at.since(self.busy_since);
                }
            }
            self.admit();
        }
        self.pauses.pass(now);
        if !self.is_idle() {
            self.counters.busy += now.since(self.busy_since);
            self.busy_since = now;
        }
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
