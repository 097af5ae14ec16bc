//! The clients' requests, those that the engine has and those that wait for it.
//!
//! A server gives clients a part of its memory and keeps the rest for drains, so that work that gives
//! memory back never waits for any ([`hemi_engine::io::Buffers`]). So does a modelled one: under a load
//! that does not wait for answers, requests that are held back would else come to hold all of it.
//! Their share is the server's ([`ClientShare`]), and each small request is taken for one of another
//! connection, so that it does not wait for large ones.

use std::collections::VecDeque;

use hemi_drives::drive::Request;
use hemi_engine::io::ClientShare;
use hemi_units::Operation;
use slab::Slab;

/// The clients' requests.
pub(super) struct Clients {
    /// Those that the engine has: their tags, and the bytes that each holds.
    held: Slab<(u64, u64)>,
    /// The bytes of all of them.
    bytes: u64,
    /// The most that they may be. A request that is alone may be larger.
    share: ClientShare,
    /// Those that the engine has no room for, oldest first.
    waiting: VecDeque<Request>,
}

impl Clients {
    /// Creates the clients of a volume with this much memory, in bytes.
    pub(super) fn new(budget: u64) -> Clients {
        let share = ClientShare::of(budget);
        Clients { held: Slab::new(), bytes: 0, share, waiting: VecDeque::new() }
    }

    /// Returns true if no request waits.
    pub(super) fn none_wait(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns true if a request that has just come may go.
    pub(super) fn may_go(&self, request: &Request) -> bool {
        let bytes = bytes(request);
        let is_small = bytes <= ClientShare::SMALL_BYTES_MAX;
        is_small && self.bytes + bytes <= self.share.most
            || self.waiting.is_empty() && self.is_turn_of(bytes)
    }

    /// Returns true if there is memory for the first in order, which has `bytes`.
    fn is_turn_of(&self, bytes: u64) -> bool {
        self.bytes == 0 || self.bytes + bytes <= self.share.common
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

#[cfg(test)]
mod tests {
    use hemi_units::Extent;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn write(tag: u64, bytes: u64) -> Request {
        let operation = Operation::Write { fua: false };
        Request { tag, operation, extent: Extent::new(0, bytes / 512) }
    }

    #[test]
    fn large_requests_wait_in_order_and_small_ones_do_not_wait_for_them() {
        let mut clients = Clients::new(16 * MIB);
        let alone = write(1, 32 * MIB);
        assert!(clients.may_go(&alone), "nothing else is there");
        let token = clients.begin(&alone);
        assert!(!clients.may_go(&write(2, 512)), "all of the memory is gone");
        assert_eq!(clients.end(token), 1);

        let first = clients.begin(&write(3, 8 * MIB));
        assert!(!clients.may_go(&write(4, 2 * MIB)));
        clients.wait(write(4, 2 * MIB));
        assert!(!clients.may_go(&write(5, MIB)), "another is before it");
        assert!(clients.may_go(&write(6, ClientShare::SMALL_BYTES_MAX)));
        assert!(clients.next().is_none());
        assert_eq!(clients.end(first), 3);
        assert_eq!(clients.next().map(|request| request.tag), Some(4));
        assert!(clients.none_wait());
    }
}
