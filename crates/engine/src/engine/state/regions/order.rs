//! The order in which records were last used, and the events that they wait for.
//!
//! The records stand in one row of places, the least recently used first. A record that is used again
//! leaves its place empty and takes the next one at the end. The row is closed up before too many
//! places are empty. Neither touches another record, and a walk along the row reads memory in order.
//!
//! Most records wait for an event, and the background walks past them many times before it comes. A
//! record's place tells the events that it waits for, so that a walk passes over it until one comes. Where
//! a walk has passed over a whole stretch of places, the next one passes over it at once.

use alloc::vec;
use alloc::vec::Vec;

use crate::engine::state::slab::NONE;
use hemi_units::Instant;

/// Empty places that are always tolerated.
const SPARE: usize = 64;
/// Places of a stretch.
const STRETCH: usize = 32;

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

/// A stretch of places: [`STRETCH`] of them, or the last of the row.
#[derive(Clone, Copy, Default)]
struct Stretch {
    /// Its records.
    count: usize,
    /// The waits of its records, once a walk has passed over all of them. A record that leaves changes
    /// nothing of it: the others go on waiting.
    waits: Option<Waits>,
}

/// The waits of some records, each of which waits for something.
#[derive(Clone, Copy)]
struct Waits {
    /// The latest use of them.
    last_use: Instant,
    /// The earliest use of those that wait for a leg to catch up and for no flush.
    catches_up_from: Instant,
    /// Legs, as a mask, that one of them waits for and that have not been asked for a flush.
    unasked: u8,
    /// All are kept.
    are_kept: bool,
}

impl Waits {
    /// The waits of no record.
    const NOTHING: Waits =
        Waits { last_use: Instant(0), catches_up_from: Instant::NEVER, unasked: 0, are_kept: true };

    /// Adds a record that waits.
    fn add(&mut self, place: &Place) {
        let wait = &place.wait;
        self.last_use = self.last_use.max(place.last_use);
        if !wait.is_kept {
            self.are_kept = false;
            self.unasked |= wait.unasked;
            if wait.flushes == 0 {
                self.catches_up_from = self.catches_up_from.min(place.last_use);
            }
        }
    }

    /// Returns true if all of them go on waiting, see [`Wait::goes_on`].
    fn go_on(&self, walk: &Walk) -> bool {
        let catches_up = walk.now.since(self.catches_up_from) < walk.patience;
        let settle_later = walk.settles && catches_up && self.unasked & walk.may_be_asked == 0;
        walk.now.since(self.last_use) >= walk.idle && (self.are_kept || settle_later)
    }
}

/// The records in order of last use.
pub(super) struct Order {
    /// Neither the last place is empty, nor any before `first`.
    row: Vec<Place>,
    /// The stretches of the row, and maybe some that it has had.
    stretches: Vec<Stretch>,
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
            stretches: vec![Stretch::default(); (2 * records + SPARE).div_ceil(STRETCH)],
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
        let stretch = &mut self.stretches[self.row.len() / STRETCH];
        stretch.count += 1;
        stretch.waits = None;
        self.row.push(Place { record, wait: Wait::default(), last_use: Instant(0) });
        self.count += 1;
    }

    /// Takes a record out.
    pub(super) fn remove(&mut self, record: u32) {
        let place = self.places[record as usize] as usize;
        debug_assert_eq!(self.row[place].record, record, "record {record} is not in its place");
        self.row[place].record = NONE;
        self.stretches[place / STRETCH].count -= 1;
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
        self.stretches.fill(Stretch::default());
        for (at, place) in self.row.iter().enumerate() {
            self.places[place.record as usize] = at as u32;
            self.stretches[at / STRETCH].count += 1;
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
        let at = self.places[record as usize] as usize;
        let place = &mut self.row[at];
        (place.wait, place.last_use) = (wait, last_use);
        self.stretches[at / STRETCH].waits = None;
    }

    /// Forgets the events that a record waits for. Rarely called, and so kept out of the path of each
    /// write.
    #[inline(never)]
    pub(super) fn forget_wait(&mut self, record: u32) {
        let at = self.places[record as usize] as usize;
        self.row[at].wait = Wait::default();
        self.stretches[at / STRETCH].waits = None;
    }

    /// Forgets the events that records wait for, of those that wait for a flush of one of these legs,
    /// as a mask.
    pub(super) fn forget_waits_for(&mut self, legs: u8) {
        for (place, at) in self.row.iter_mut().zip(0..) {
            if place.wait.flushes & legs != 0 {
                place.wait = Wait::default();
                self.stretches[at / STRETCH].waits = None;
            }
        }
    }

    /// Forgets the events that all records wait for.
    pub(super) fn forget_waits(&mut self) {
        for place in &mut self.row {
            place.wait = Wait::default();
        }
        for stretch in &mut self.stretches {
            stretch.waits = None;
        }
    }

    /// Passes over at most `most` records, this one first, that go on waiting ([`Wait::goes_on`]).
    /// Returns the record after them, and their number.
    pub(super) fn pass_waiting(
        &mut self,
        record: u32,
        most: usize,
        walk: &Walk,
    ) -> (Option<u32>, usize) {
        let mut passed = 0;
        let mut at = self.places[record as usize] as usize;
        // What the records wait for from the beginning of a stretch on.
        let mut waits = None;
        while at < self.row.len() {
            if at.is_multiple_of(STRETCH) {
                let stretch = &self.stretches[at / STRETCH];
                let fits = passed + stretch.count <= most;
                if fits && stretch.waits.is_some_and(|waits| waits.go_on(walk)) {
                    passed += stretch.count;
                    at += STRETCH;
                    continue;
                }
                waits = Some(Waits::NOTHING);
            }
            let place = &self.row[at];
            if !place.is_empty() {
                if passed == most || !place.wait.goes_on(place.last_use, walk) {
                    return (Some(place.record), passed);
                }
                passed += 1;
                if let Some(waits) = &mut waits {
                    waits.add(place);
                }
            }
            at += 1;
            if at.is_multiple_of(STRETCH) || at == self.row.len() {
                self.stretches[(at - 1) / STRETCH].waits = waits.take();
            }
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

    fn pass(known: &[Known], from: usize, most: usize, walk: &Walk) -> (Option<u32>, usize) {
        let waiting = known[from..].iter().take_while(|known| known.1.goes_on(known.2, walk));
        let passed = waiting.count().min(most);
        (known.get(from + passed).map(|known| known.0), passed)
    }

    /// Records in the test of all.
    const RECORDS: u32 = 80;

    fn waits() -> impl Strategy<Value = Wait> {
        let wait = (0u8..4, 0u8..4, any::<bool>()).prop_map(|(flushes, unasked, catches_up)| {
            Wait { flushes, unasked: flushes & unasked, catches_up, is_kept: false }
        });
        prop_oneof![4 => Just(Wait::kept()), 4 => wait, 1 => Just(Wait::default())]
    }

    /// Waits of a long row that is likely to be passed over.
    fn long_row() -> impl Strategy<Value = Vec<Wait>> {
        let kept = Wait::kept();
        let catches_up = Wait { catches_up: true, ..Wait::default() };
        let asked = Wait { flushes: 0b01, ..Wait::default() };
        let unasked = Wait { flushes: 0b10, unasked: 0b10, ..Wait::default() };
        let all = |wait: Wait| Just(vec![wait; RECORDS as usize]);
        let of = [kept, catches_up, asked, unasked];
        let mixed =
            proptest::collection::vec(proptest::sample::select(of.to_vec()), RECORDS as usize);
        prop_oneof![Just(Vec::new()), all(kept), all(catches_up), all(unasked), mixed]
    }

    fn walks() -> impl Strategy<Value = Walk> {
        let may_be_asked = prop_oneof![2 => Just(0), 1 => 0u8..4];
        (85u64..140, may_be_asked, 0u8..8).prop_map(|(now, may_be_asked, settles)| {
            let settles = settles > 0;
            Walk { now: Instant(now), may_be_asked, settles, ..WALK }
        })
    }

    #[derive(Clone, Debug)]
    enum Step {
        Append(u32),
        Remove(u32),
        Renew(u32),
        Wait(u32, Wait),
        Forget(u32),
        ForgetFor(u8),
        ForgetAll,
        Pass(u32, usize, Walk),
    }

    fn steps() -> impl Strategy<Value = Step> {
        let record = 0..RECORDS;
        prop_oneof![
            2 => record.clone().prop_map(Step::Append),
            2 => record.clone().prop_map(Step::Remove),
            2 => record.clone().prop_map(Step::Renew),
            4 => (record.clone(), waits()).prop_map(|(record, wait)| Step::Wait(record, wait)),
            1 => record.clone().prop_map(Step::Forget),
            1 => (0u8..4).prop_map(Step::ForgetFor),
            1 => Just(Step::ForgetAll),
            24 => (record, 0..2 * RECORDS as usize, walks())
                .prop_map(|(record, most, walk)| Step::Pass(record, most, walk)),
        ]
    }

    proptest! {
        /// Against a plain list.
        #[test]
        fn as_a_list(
            row in long_row(),
            uses in 0..3 * RECORDS,
            steps in proptest::collection::vec(steps(), 1..300),
        ) {
            let mut order = Order::with_capacity(RECORDS as usize);
            let reserved = order.row.capacity();
            let mut known: Vec<Known> = Vec::new();
            let last_use = |record: u32| Instant(u64::from(record % 8) + 80);
            for (record, wait) in (0..).zip(row) {
                order.append(record);
                order.note_wait(record, wait, last_use(record));
                known.push((record, wait, last_use(record)));
            }
            // Used again, they leave empty places, until the row is closed up.
            let uses = if known.is_empty() { 0 } else { uses };
            for at in 0..uses {
                let (record, wait, last_use) = known.remove(at as usize * 7 % known.len());
                order.renew(record);
                order.note_wait(record, wait, last_use);
                known.push((record, wait, last_use));
            }
            let place = |known: &[Known], record: u32| known.iter().position(|one| one.0 == record);
            for step in steps {
                match step {
                    Step::Append(record) => if place(&known, record).is_none() {
                        order.append(record);
                        known.push((record, Wait::default(), last_use(record)));
                    },
                    Step::Remove(record) => if let Some(at) = place(&known, record) {
                        order.remove(record);
                        known.remove(at);
                    },
                    Step::Renew(record) => if let Some(at) = place(&known, record) {
                        order.renew(record);
                        if at + 1 < known.len() {
                            known.remove(at);
                            known.push((record, Wait::default(), last_use(record)));
                        }
                    },
                    Step::Wait(record, wait) => if let Some(at) = place(&known, record) {
                        order.note_wait(record, wait, last_use(record));
                        known[at].1 = wait;
                    },
                    Step::Forget(record) => if let Some(at) = place(&known, record) {
                        order.forget_wait(record);
                        known[at].1 = Wait::default();
                    },
                    Step::ForgetFor(legs) => {
                        order.forget_waits_for(legs);
                        for known in known.iter_mut().filter(|known| known.1.flushes & legs != 0) {
                            known.1 = Wait::default();
                        }
                    }
                    Step::ForgetAll => {
                        order.forget_waits();
                        known.iter_mut().for_each(|known| known.1 = Wait::default());
                    }
                    Step::Pass(record, most, walk) => if let Some(at) = place(&known, record) {
                        prop_assert_eq!(
                            order.pass_waiting(record, most, &walk),
                            pass(&known, at, most, &walk)
                        );
                    },
                }
                prop_assert_eq!(order.newest(), known.last().map(|known| known.0));
                let newer = |record: &u32| order.newer(*record);
                let records: Vec<u32> = core::iter::successors(order.oldest(), newer).collect();
                prop_assert!(records.into_iter().eq(known.iter().map(|known| known.0)));
                prop_assert_eq!(order.row.capacity(), reserved);
            }
        }
    }
}
