//! The order in which records were last used, and the events that they wait for.
//!
//! The records stand in one row of places, the least recently used first. A record that is used again
//! leaves its place empty and takes the next one at the end. The row is closed up before too many
//! places are empty. Neither touches another record, and a walk along the row reads memory in order.
//!
//! Most records wait for an event, and the background walks past them many times before it comes. A
//! record's place tells the events that it waits for, so that a walk passes over it until one comes.

use alloc::vec::Vec;

use crate::engine::state::slab::NONE;
use hemi_units::Instant;

/// Empty places that are always tolerated.
const SPARE: usize = 64;

/// The events that a record waits for. Until one of them, there is nothing to do for it. By default none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::engine) struct Wait {
    /// Legs, as a mask, that have to flush before its region settles.
    pub(in crate::engine) flushes: u8,
    /// Those of them that have not been asked for it.
    pub(in crate::engine) unasked: u8,
    /// Its region settles only when a leg has caught up, or has had long enough for that.
    pub(in crate::engine) catches_up: bool,
    /// Its region is untouched, and it is kept until what it is kept for has changed.
    pub(in crate::engine) is_kept: bool,
}

/// A walk along the records, in order of last use, for those that need work.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Walk {
    pub(in crate::engine) now: Instant,
    /// Time for which a record has to have been left alone, nanoseconds.
    pub(in crate::engine) idle: u64,
    /// Time for which a leg that is catching up is waited for, nanoseconds.
    pub(in crate::engine) patience: u64,
    /// Legs, as a mask, that may be asked for a flush.
    pub(in crate::engine) may_be_asked: u8,
    /// Touched regions settle one by one as they can: nothing presses.
    pub(in crate::engine) settles: bool,
}

impl Wait {
    /// Returns the wait of a record that is kept.
    pub(in crate::engine) fn kept() -> Wait {
        Wait { is_kept: true, ..Wait::default() }
    }

    /// Returns true if a walk finds nothing to do for the record, which has been left alone for long
    /// enough.
    pub(in crate::engine) fn goes_on(self, last_use: Instant, walk: &Walk) -> bool {
        let idle = walk.now.since(last_use);
        let waits = self.flushes != 0 || self.catches_up && idle < walk.patience;
        let settles_later = walk.settles && waits && self.unasked & walk.may_be_asked == 0;
        idle >= walk.idle && (self.is_kept || settles_later)
    }
}

/// A place in the row.
#[derive(Clone, Copy)]
struct Place {
    /// [`NONE`] in an empty place.
    record: u32,
    wait: Wait,
    /// The record's last use, where it waits for something.
    last_use: Instant,
}

impl Place {
    fn is_empty(&self) -> bool {
        self.record == NONE
    }
}

/// The records in order of last use.
pub(super) struct Order {
    /// Neither the last place is empty, nor any before `first`.
    row: Vec<Place>,
    /// The first place that is not empty.
    first: usize,
    /// The place of each record.
    places: Vec<u32>,
    /// Records in the row.
    count: usize,
}

impl Order {
    pub(super) fn with_capacity(records: usize) -> Order {
        Order {
            row: Vec::with_capacity(2 * records + SPARE),
            first: 0,
            places: Vec::with_capacity(records),
            count: 0,
        }
    }

    /// Appends a record that is not in the row.
    pub(super) fn append(&mut self, record: u32) {
        if self.row.len() >= 2 * self.count + SPARE {
            self.close_up();
        }
        if record as usize >= self.places.len() {
            self.places.resize(record as usize + 1, NONE);
        }
        self.places[record as usize] = self.row.len() as u32;
        self.row.push(Place { record, wait: Wait::default(), last_use: Instant(0) });
        self.count += 1;
    }

    /// Takes a record out.
    pub(super) fn remove(&mut self, record: u32) {
        let place = self.places[record as usize] as usize;
        debug_assert_eq!(self.row[place].record, record, "record {record} is not in its place");
        self.row[place].record = NONE;
        self.count -= 1;
        while self.row.last().is_some_and(Place::is_empty) {
            self.row.pop();
        }
        if self.count == 0 {
            self.first = 0;
        } else {
            while self.row[self.first].is_empty() {
                self.first += 1;
            }
        }
    }

    /// Puts a record at the end: it is used just now.
    pub(super) fn renew(&mut self, record: u32) {
        if self.newest() != Some(record) {
            self.remove(record);
            self.append(record);
        }
    }

    /// Takes all empty places out. The row is half full at most then, so that this costs little for
    /// each use.
    fn close_up(&mut self) {
        self.row.retain(|place| !place.is_empty());
        for (at, place) in (0..).zip(&self.row) {
            self.places[place.record as usize] = at;
        }
        self.first = 0;
    }

    /// Returns the least recently used record.
    pub(super) fn oldest(&self) -> Option<u32> {
        self.row.get(self.first).map(|place| place.record)
    }

    /// Returns the most recently used record.
    pub(super) fn newest(&self) -> Option<u32> {
        self.row.last().map(|place| place.record)
    }

    /// Returns the next record used after this one was.
    pub(super) fn newer(&self, record: u32) -> Option<u32> {
        let after = self.places[record as usize] as usize + 1;
        self.row[after..].iter().find(|place| !place.is_empty()).map(|place| place.record)
    }

    /// Notes the events that a record waits for, which was last used at `last_use`.
    pub(super) fn note_wait(&mut self, record: u32, wait: Wait, last_use: Instant) {
        let place = &mut self.row[self.places[record as usize] as usize];
        (place.wait, place.last_use) = (wait, last_use);
    }

    /// Forgets the events that a record waits for.
    pub(super) fn forget_wait(&mut self, record: u32) {
        self.row[self.places[record as usize] as usize].wait = Wait::default();
    }

    /// Forgets the events that records wait for, of those that wait for a flush of one of these legs,
    /// as a mask.
    pub(super) fn forget_waits_for(&mut self, legs: u8) {
        for place in self.row.iter_mut().filter(|place| place.wait.flushes & legs != 0) {
            place.wait = Wait::default();
        }
    }

    /// Forgets the events that all records wait for.
    pub(super) fn forget_waits(&mut self) {
        for place in &mut self.row {
            place.wait = Wait::default();
        }
    }

    /// Passes over at most `most` records, this one first, that go on waiting ([`Wait::goes_on`]).
    /// Returns the record after them, and their number.
    pub(super) fn pass_waiting(
        &self,
        record: u32,
        most: usize,
        walk: &Walk,
    ) -> (Option<u32>, usize) {
        let mut passed = 0;
        let from = self.places[record as usize] as usize;
        for place in self.row[from..].iter().filter(|place| !place.is_empty()) {
            if passed == most || !place.wait.goes_on(place.last_use, walk) {
                return (Some(place.record), passed);
            }
            passed += 1;
        }
        (None, passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WALK: Walk =
        Walk { now: Instant(100), idle: 10, patience: 40, may_be_asked: 0b01, settles: true };

    #[test]
    fn a_wait_ends_with_its_reason() {
        let flush = Wait { flushes: 0b10, unasked: 0b10, ..Wait::default() };
        let catching_up = Wait { catches_up: true, ..Wait::default() };
        let goes_on = |wait: Wait, idle: u64, walk: Walk| wait.goes_on(Instant(100 - idle), &walk);
        for wait in [flush, catching_up, Wait::kept()] {
            assert!(goes_on(wait, 39, WALK));
            assert!(!goes_on(wait, 9, WALK), "used too lately");
            let settles_at_once = goes_on(wait, 39, Walk { settles: false, ..WALK });
            assert_eq!(settles_at_once, wait.is_kept);
        }
        assert!(!goes_on(catching_up, 40, WALK), "it has had long enough");
        assert!(goes_on(flush, 40, WALK));
        assert!(!goes_on(flush, 40, Walk { may_be_asked: 0b10, ..WALK }), "to be asked now");
        assert!(goes_on(Wait { unasked: 0, ..flush }, 40, Walk { may_be_asked: 0b10, ..WALK }));
        assert!(!goes_on(Wait::default(), 40, WALK));
    }

    /// A record of a plain list, what it waits for and its last use.
    type Known = (u32, Wait, Instant);

    fn pass(known: &[Known], from: usize, most: usize) -> (Option<u32>, usize) {
        let waiting = known[from..].iter().take_while(|known| known.1.goes_on(known.2, &WALK));
        let passed = waiting.count().min(most);
        (known.get(from + passed).map(|known| known.0), passed)
    }

    proptest! {
        /// Against a plain list.
        #[test]
        fn as_a_list(
            steps in proptest::collection::vec(
                (0u8..14, 0u32..40, 0u8..4, 0u8..4, any::<[bool; 2]>(), 0usize..6),
                1..600,
            ),
        ) {
            let mut order = Order::with_capacity(40);
            let reserved = order.row.capacity();
            let mut known: Vec<Known> = Vec::new();
            for (kind, record, flushes, unasked, [catches_up, is_kept], most) in steps {
                let found = known.iter().position(|(of, ..)| *of == record);
                let unasked = flushes & unasked;
                let wait = Wait { flushes, unasked, catches_up, is_kept };
                let last_use = Instant(u64::from(record) + 55);
                match (kind, found) {
                    (_, None) => {
                        order.append(record);
                        known.push((record, Wait::default(), last_use));
                    }
                    (0 | 1, Some(at)) => {
                        order.remove(record);
                        known.remove(at);
                    }
                    (2..6, Some(at)) => {
                        order.renew(record);
                        if at + 1 < known.len() {
                            known.remove(at);
                            known.push((record, Wait::default(), last_use));
                        }
                    }
                    (6..11, Some(at)) => {
                        order.note_wait(record, wait, last_use);
                        known[at].1 = wait;
                    }
                    (11, Some(at)) => {
                        order.forget_wait(record);
                        known[at].1 = Wait::default();
                    }
                    (12, Some(_)) => {
                        order.forget_waits_for(flushes);
                        for known in known.iter_mut().filter(|known| known.1.flushes & flushes != 0) {
                            known.1 = Wait::default();
                        }
                    }
                    (_, Some(at)) => prop_assert_eq!(
                        order.pass_waiting(record, most, &WALK),
                        pass(&known, at, most),
                    ),
                }
                prop_assert_eq!(order.newest(), known.last().map(|known| known.0));
                let newer = |record: &u32| order.newer(*record);
                let records: Vec<u32> = core::iter::successors(order.oldest(), newer).collect();
                prop_assert!(records.into_iter().eq(known.iter().map(|known| known.0)));
                prop_assert_eq!(order.row.capacity(), reserved);
            }
            order.forget_waits();
            prop_assert!(order.row.iter().all(|place| place.wait == Wait::default()));
        }
    }
}
