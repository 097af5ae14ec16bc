//! The bounds on the buffers that each connection may hold.
//!
//! Clients together get their share of the buffer budget ([`ClientShare`]). Most of it is common and
//! given out in order. The rest is for connections that hold nothing: each may take the bytes of a
//! small request from it at any time. So clients that take their answers slowly can hold all of the
//! common share, and still nobody's small requests wait for them.

use hemi_engine::io::ClientShare;
use hemi_io::slots::SlotId;

/// The bytes that every connection holds.
#[derive(Debug)]
pub(super) struct Quota {
    held: Vec<u64>,
    in_all: u64,
    share: ClientShare,
    is_first: bool,
    /// True if anyone was refused since the last check.
    was_refused: bool,
}

impl Quota {
    pub(super) fn new(budget: u64) -> Quota {
        Quota {
            held: Vec::new(),
            in_all: 0,
            share: ClientShare::of(budget),
            is_first: true,
            was_refused: false,
        }
    }

    /// Records whether the connection served next may take common space. It may if nobody waits for
    /// space or it is the first of those who do.
    pub(super) fn set_first(&mut self, is_first: bool) {
        self.is_first = is_first;
    }

    /// Charges a connection with `bytes` more. Returns false if it may not have them.
    pub(super) fn charge(&mut self, connection: SlotId, bytes: u64) -> bool {
        let slot = connection.slot as usize;
        if slot >= self.held.len() {
            self.held.resize(slot + 1, 0);
        }
        let in_all = self.in_all + bytes;
        let in_turn = self.is_first && in_all <= self.share.common;
        let is_small = bytes <= ClientShare::SMALL_BYTES_MAX;
        let small = self.held[slot] == 0 && is_small && in_all <= self.share.most;
        if in_turn || small {
            self.held[slot] += bytes;
            self.in_all = in_all;
        }
        self.was_refused |= !(in_turn || small);
        in_turn || small
    }

    /// Returns true if anyone was refused since the last call.
    pub(super) fn take_refused(&mut self) -> bool {
        std::mem::take(&mut self.was_refused)
    }

    /// Takes `bytes` back. A connection's successor in the same slot answers for the bytes that
    /// its predecessor left in flight.
    pub(super) fn discharge(&mut self, connection: SlotId, bytes: u64) {
        let Some(held) = self.held.get_mut(connection.slot as usize) else { return };
        debug_assert!(self.in_all >= bytes && *held >= bytes);
        *held = held.saturating_sub(bytes);
        self.in_all = self.in_all.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: u64 = 16 << 20;

    fn connection(slot: u32) -> SlotId {
        SlotId { slot, generation: 0 }
    }

    #[test]
    fn whoever_holds_all_the_common_room_stops_no_small_request() {
        let mut quota = Quota::new(BUDGET);
        let (greedy, small) = (connection(0), connection(1));
        assert!(quota.charge(greedy, ClientShare::of(BUDGET).common));
        assert!(!quota.charge(greedy, 512), "it holds something");
        assert!(!quota.charge(small, ClientShare::SMALL_BYTES_MAX + 512), "that is not small");
        assert!(quota.charge(small, ClientShare::SMALL_BYTES_MAX));
        assert!(!quota.charge(small, 512), "it holds something now");
        quota.discharge(small, ClientShare::SMALL_BYTES_MAX);
        assert!(quota.charge(small, 4096));
    }

    #[test]
    fn common_room_is_given_in_order() {
        let mut quota = Quota::new(BUDGET);
        quota.set_first(false);
        assert!(!quota.charge(connection(0), 1 << 20), "another waits for it");
        assert!(quota.charge(connection(0), 4096));
        quota.set_first(true);
        assert!(quota.charge(connection(0), 1 << 20));
    }

    #[test]
    fn nobody_gets_more_than_the_clients_part() {
        let mut quota = Quota::new(BUDGET);
        assert!(quota.charge(connection(0), ClientShare::of(BUDGET).common));
        let mut given = 0;
        while quota.charge(connection(given + 1), ClientShare::SMALL_BYTES_MAX) {
            given += 1;
        }
        assert_eq!(
            u64::from(given) * ClientShare::SMALL_BYTES_MAX,
            ClientShare::of(BUDGET).most - ClientShare::of(BUDGET).common
        );
    }
}
