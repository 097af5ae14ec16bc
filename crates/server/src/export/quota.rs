//! The bounds on the buffers that each connection may hold.
//!
//! Clients together get three quarters of the buffer budget. The rest is the engine's, for
//! drains, repairs and debts, so that work that frees buffers never waits for one. Of the
//! clients' share, three quarters are common and given out in order. The last quarter is for
//! connections that hold nothing: each may take the bytes of a small request from it at any
//! time. So clients that take their answers slowly can hold all of the common share, and still
//! nobody's small requests wait for them.

use hemi_io::slots::SlotId;

/// Maximum number of bytes that a connection which holds nothing is given out of turn.
pub(super) const SMALL_BYTES_MAX: u64 = 64 << 10;

/// Returns the bytes that clients may hold in all, for a buffer budget in bytes.
const fn clients(budget: u64) -> u64 {
    budget / 4 * 3
}

/// Returns the bytes that clients may hold together in order, for a buffer budget in bytes.
pub(super) const fn common(budget: u64) -> u64 {
    clients(budget) / 4 * 3
}

/// The bytes that every connection holds.
#[derive(Debug)]
pub(super) struct Quota {
    held: Vec<u64>,
    in_all: u64,
    common: u64,
    most: u64,
    is_first: bool,
    /// True if anyone was refused since the last check.
    was_refused: bool,
}

impl Quota {
    pub(super) fn new(budget: u64) -> Quota {
        Quota {
            held: Vec::new(),
            in_all: 0,
            common: common(budget),
            most: clients(budget),
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
        let in_turn = self.is_first && in_all <= self.common;
        let small = self.held[slot] == 0 && bytes <= SMALL_BYTES_MAX && in_all <= self.most;
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
        assert!(quota.charge(greedy, common(BUDGET)));
        assert!(!quota.charge(greedy, 512), "it holds something");
        assert!(!quota.charge(small, SMALL_BYTES_MAX + 512), "that is not small");
        assert!(quota.charge(small, SMALL_BYTES_MAX));
        assert!(!quota.charge(small, 512), "it holds something now");
        quota.discharge(small, SMALL_BYTES_MAX);
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
        assert!(quota.charge(connection(0), common(BUDGET)));
        let mut given = 0;
        while quota.charge(connection(given + 1), SMALL_BYTES_MAX) {
            given += 1;
        }
        assert_eq!(u64::from(given) * SMALL_BYTES_MAX, clients(BUDGET) - common(BUDGET));
    }
}
