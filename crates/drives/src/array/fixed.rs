//! A member simple enough to predict.

use std::collections::VecDeque;

use hemi_units::{Extent, Instant, Operation};

use crate::drive::{Completion, Counters, Drive, Request};

/// A drive that serves one request at a time, with a fixed time for each request and each
/// sector. It remembers its requests.
#[derive(Clone, Debug)]
pub(super) struct FixedService {
    pub(super) sectors: u64,
    pub(super) per_request: u64,
    pub(super) per_sector: u64,
    /// All requests, in order.
    pub(super) log: Vec<(Operation, Extent)>,
    queue: VecDeque<Request>,
    free_at: Instant,
    counters: Counters,
}

impl FixedService {
    pub(super) fn new(sectors: u64, per_request: u64, per_sector: u64) -> FixedService {
        FixedService {
            sectors,
            per_request,
            per_sector,
            log: Vec::new(),
            queue: VecDeque::new(),
            free_at: Instant(0),
            counters: Counters::default(),
        }
    }

    fn lasts(&self, request: &Request) -> u64 {
        match request.operation {
            Operation::Flush => self.per_request,
            _ => self.per_request + self.per_sector * request.extent.sectors(),
        }
    }
}

impl Drive for FixedService {
    fn sectors(&self) -> u64 {
        self.sectors
    }

    fn submit(&mut self, now: Instant, request: Request) {
        assert!(request.extent.end <= self.sectors, "{request:?} is beyond the end");
        assert!(request.operation == Operation::Flush || !request.extent.is_empty());
        self.log.push((request.operation, request.extent));
        if self.queue.is_empty() {
            self.free_at = now + self.lasts(&request);
        }
        self.queue.push_back(request);
    }

    fn next_event(&self) -> Instant {
        if self.queue.is_empty() { Instant::NEVER } else { self.free_at }
    }

    fn advance(&mut self, now: Instant, done: &mut Vec<Completion>) {
        while self.next_event() <= now
            && let Some(ended) = self.queue.pop_front()
        {
            done.push(Completion::done(ended.tag, self.free_at));
            self.counters.busy += self.lasts(&ended);
            if let Some(next) = self.queue.front() {
                self.free_at = self.free_at + self.lasts(next);
            }
        }
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
