//! The drain of a leg: its place, and its rate.

use hemi_units::{Instant, MILLISECOND, SECOND};

/// The place of one leg's drain.
#[derive(Default)]
pub(in crate::engine) struct Draining {
    /// The sector that the sweep goes on from.
    cursor: u64,
    /// Debts somebody waits for that were paid since an old one was.
    pressing_paid: u32,
    /// The time a region owed as a whole was last taken up.
    taken_up: Instant,
    /// Regions taken up for rebuilding and not yet complete.
    rebuilding: u32,
    /// No other leg is asked for the gaps between its debts before this …
    sieves_after: Instant,
    /// … and it does not read them itself before this.
    own_sieves_after: Instant,
}

impl Draining {
    /// Returns the sector that the sweep goes on from.
    pub(in crate::engine) fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Has the sweep go on from a sector.
    pub(in crate::engine) fn go_on_from(&mut self, sector: u64) {
        self.cursor = sector;
    }

    /// Counts a debt that somebody waits for. Returns true if an old one is to be paid instead: one of
    /// `share`.
    pub(in crate::engine) fn is_turn_of_old(&mut self, share: u32) -> bool {
        self.pressing_paid += 1;
        let is_turn = self.pressing_paid >= share;
        if is_turn {
            self.pressing_paid = 0;
        }
        is_turn
    }

    /// Notes that a region owed as a whole is taken up.
    pub(in crate::engine) fn note_taken_up(&mut self, now: Instant) {
        self.taken_up = now;
    }

    /// Returns true if one has been taken up less than some nanoseconds ago.
    pub(in crate::engine) fn took_up_within(&self, interval: u64, now: Instant) -> bool {
        now < self.taken_up + interval
    }

    /// Returns how many regions have been taken up and are not complete.
    pub(in crate::engine) fn rebuilding(&self) -> u32 {
        self.rebuilding
    }

    pub(in crate::engine) fn begin_rebuilding(&mut self) {
        self.rebuilding += 1;
    }

    pub(in crate::engine) fn end_rebuilding(&mut self) {
        self.rebuilding -= 1;
    }

    /// Returns true if another leg may be asked for the gaps between its debts.
    pub(in crate::engine) fn may_sieve(&self, now: Instant) -> bool {
        now >= self.sieves_after
    }

    /// Returns true if it may read them itself.
    pub(in crate::engine) fn may_sieve_itself(&self, now: Instant) -> bool {
        now >= self.own_sieves_after
    }

    /// Asks no other leg for a while.
    pub(in crate::engine) fn pause_sieves(&mut self, until: Instant) {
        self.sieves_after = until;
    }

    /// Does not have it read them itself for a while.
    pub(in crate::engine) fn pause_own_sieves(&mut self, until: Instant) {
        self.own_sieves_after = until;
    }
}

/// The rate at which a lagging leg pays, in bytes per second, while it has debts and answers.
#[derive(Clone, Copy, Default)]
pub(in crate::engine) struct DrainRate {
    window_start: Instant,
    bytes: u64,
    rate: u64,
    was_busy: bool,
    /// Bytes per second that no drain of the leg can pass; zero when unknown.
    at_most: u64,
    /// The leg has lost sight of a write: how fast it pays meanwhile says nothing of its speed.
    doubtful: bool,
}

impl DrainRate {
    pub(in crate::engine) fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// `busy`: it answers and owes. A window that was not busy throughout says nothing.
    /// `at_most`: bytes per second that the leg cannot pass, zero when unknown.
    pub(in crate::engine) fn refresh(&mut self, now: Instant, busy: bool, at_most: u64) {
        self.at_most = at_most;
        if !busy || !self.was_busy {
            let none = DrainRate::default();
            *self = DrainRate { window_start: now, was_busy: busy, at_most, ..none };
            return;
        }
        let elapsed = now.since(self.window_start);
        if elapsed < 400 * MILLISECOND {
            return;
        }
        let rate = (u128::from(self.bytes) * u128::from(SECOND) / u128::from(elapsed)) as u64;
        self.rate = if self.rate == 0 { rate } else { (self.rate * 3 + rate) / 4 };
        self.window_start = now;
        self.bytes = 0;
    }

    /// Says whether what the leg pays at present says something of its speed.
    pub(in crate::engine) fn doubt(&mut self, doubtful: bool) {
        self.doubtful = doubtful;
    }

    /// Bytes per second: as measured, or before that at most; zero when unknown.
    pub(in crate::engine) fn bytes_per_second(&self) -> u64 {
        if self.doubtful {
            0
        } else if self.rate == 0 {
            self.at_most
        } else {
            self.rate
        }
    }
}
