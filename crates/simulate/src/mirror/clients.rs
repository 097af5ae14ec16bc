//! The clients' requests, those that the engine has and those that wait for it.
//!
//! A server gives clients a part of its memory and keeps the rest for drains, so that work that gives
//! memory back never waits for any ([`hemi_engine::io::Buffers`]). So does a modelled one: under a load
//! that does not wait for answers, requests that are held back would else come to hold all of it.
//! Clients get three quarters, and of these three quarters in order of arrival. The last quarter is for
//! small requests, which so do not wait for large ones: each is taken for one of another connection.

use std::collections::VecDeque;

use hemi_drives::drive::Request;
use hemi_units::Operation;
use slab::Slab;

/// Bytes up to which a request is small.
const SMALL: u64 = 64 << 10;

/// The clients' requests.
pub(super) struct Clients {
    /// Those that the engine has: their tags, and the bytes that each holds.
    held: Slab<(u64, u64)>,
    /// The bytes of all of them.
    bytes: u64,
    /// The most that they may be.
    most: u64,
    /// The most that they may be for a large request to go, unless it is alone.
    common: u64,
    /// Those that the engine has no room for, oldest first.
    waiting: VecDeque<Request>,
}

impl Clients {
    /// Creates the clients of a volume with this much memory, in bytes.
    pub(super) fn new(budget: u64) -> Clients {
        let most = budget / 4 * 3;
        let common = most / 4 * 3;
        Clients { held: Slab::new(), bytes: 0, most, common, waiting: VecDeque::new() }
    }

    /// Returns true if no request waits.
    pub(super) fn none_wait(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns true if a request that has just come may go.
    pub(super) fn may_go(&self, request: &Request) -> bool {
        let bytes = bytes(request);
        let is_small = bytes <= SMALL && self.bytes + bytes <= self.most;
        is_small || self.waiting.is_empty() && self.is_turn_of(bytes)
    }

    /// Returns true if there is memory for the first in order, which has `bytes`.
    fn is_turn_of(&self, bytes: u64) -> bool {
        self.bytes == 0 || self.bytes + bytes <= self.common
    }

    /// Has a request wait.
    pub(super) fn wait(&mut self, request: Request) {
        self.waiting.push_back(request);
    }

    /// Takes the request that has waited longest, if there is memory for it.
    pub(super) fn next(&mut self) -> Option<Request> {
        let first = bytes(self.waiting.front()?);
        if self.is_turn_of(first) { self.waiting.pop_front() } else { None }
    }

    /// Notes that the engine gets a request. Returns the engine's name for it.
    pub(super) fn begin(&mut self, request: &Request) -> u64 {
        let bytes = bytes(request);
        self.bytes += bytes;
        self.held.insert((request.tag, bytes)) as u64
    }

    /// Notes that the engine has answered a request. Returns the client's name for it.
    pub(super) fn end(&mut self, token: u64) -> u64 {
        let (tag, bytes) = self.held.remove(token as usize);
        self.bytes -= bytes;
        tag
    }
}

/// Returns the bytes that a request comes with or asks for.
fn bytes(request: &Request) -> u64 {
    match request.operation {
        Operation::Read | Operation::Write { .. } => request.extent.bytes(),
        Operation::Trim | Operation::Flush => 0,
    }
}
