//! The simplest drive: one queue and a number of servers. Queueing theory has formulas for it,
//! so it checks the simulation itself.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use hemi_random::Rng;
use hemi_units::Instant;

use crate::drive::{Completion, Counters, Drive, Request};

/// The service time of a request, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub enum Service {
    /// Always the same time.
    Fixed(u64),
    /// An exponentially distributed time with this mean.
    Exponential(u64),
}

/// A drive with a fixed number of servers.
pub struct Server {
    sectors: u64,
    service: Service,
    idle: u32,
    servers: u32,
    rng: Rng,
    waiting: VecDeque<Request>,
    /// Requests being served, by completion time, then by start order.
    served: BinaryHeap<Reverse<(Instant, u64, u64)>>,
    sequence: u64,
    now: Instant,
    counters: Counters,
}

impl Server {
    /// Creates a drive of `servers` servers, at least 1.
    pub fn new(sectors: u64, servers: u32, service: Service, seed: u64) -> Server {
        Server {
            sectors,
            service,
            idle: servers.max(1),
            servers: servers.max(1),
            rng: Rng::new(seed, 0),
            waiting: VecDeque::new(),
            served: BinaryHeap::new(),
            sequence: 0,
            now: Instant(0),
            counters: Counters::default(),
        }
    }

    fn begin(&mut self, tag: u64) {
        let time = match self.service {
            Service::Fixed(time) => time,
            Service::Exponential(mean) => libm::round(self.rng.exponential(mean as f64)) as u64,
        };
        self.idle -= 1;
        self.sequence += 1;
        self.served.push(Reverse((self.now + time, self.sequence, tag)));
    }
}

impl Drive for Server {
    fn sectors(&self) -> u64 {
        self.sectors
    }

    fn submit(&mut self, now: Instant, request: Request) {
        self.now = now;
        self.counters.count(request.operation, request.extent);
        if self.idle > 0 {
            self.begin(request.tag);
        } else {
            self.waiting.push_back(request);
        }
    }

    fn next_event(&self) -> Instant {
        self.served.peek().map_or(Instant::NEVER, |Reverse((at, _, _))| *at)
    }

    fn advance(&mut self, now: Instant, done: &mut Vec<Completion>) {
        loop {
            let until = self.next_event().min(now);
            if self.idle < self.servers {
                self.counters.busy += until.since(self.now);
            }
            self.now = until;
            let Some(&Reverse((at, _, tag))) = self.served.peek() else { break };
            if at > now {
                break;
            }
            self.served.pop();
            self.idle += 1;
            done.push(Completion::done(tag, at));
            if let Some(request) = self.waiting.pop_front() {
                self.begin(request.tag);
            }
        }
        self.now = now;
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use hemi_units::{Extent, Instant, Operation};

    use super::{Server, Service};
    use crate::drive::{Drive, Request};

    #[test]
    fn requests_wait_for_a_server() {
        let mut server = Server::new(1000, 2, Service::Fixed(100), 0);
        for tag in 0..3 {
            let extent = Extent::new(tag, 1);
            server.submit(Instant(0), Request { tag, operation: Operation::Read, extent });
        }
        let mut done = Vec::new();
        server.advance(Instant(99), &mut done);
        assert!(done.is_empty());
        server.advance(Instant(500), &mut done);
        let ends: Vec<(u64, u64)> = done.iter().map(|done| (done.tag, done.at.0)).collect();
        assert_eq!(ends, [(0, 100), (1, 100), (2, 200)]);
        assert_eq!(server.counters().busy, 200);
        assert_eq!(server.next_event(), Instant::NEVER);
    }
}
