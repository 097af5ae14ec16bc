//! The published rule, for comparison (Byun, "A Hetero-Mirroring Scheme to Improve I/O
//! Performance of High-Speed Hybrid Storage", 2010). It is not safe, and hemi does not use it.
//!
//! A write goes to every leg. Once the first leg has it, the others are waited for until 1.3
//! times as long. Then the write is answered, and a leg that has not finished counts as frozen.
//! Until a frozen leg has returned everything it was given, writes go to its delay queue
//! instead, where a newer write replaces an older one. Then the queue is paid in order of
//! addresses. The queue has no bound, no drive records anything, and after a crash the right
//! leg is unknown. The paper does not mention flushes; here they go to every leg that is not
//! frozen. Nor does it mention failures: here a leg that fails a write or a flush, or goes away,
//! is used no more, and what it is owed is forgotten. A read that fails is tried on the other legs.

mod delayed;

use slab::Slab;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hemi_drives::drive::{Completion, Counters, Drive, Failure, Request};
use hemi_units::{Extent, Instant, Operation};

use self::delayed::Delayed;
use crate::front::Front;
use crate::lateness::Lateness;
use crate::legs::{Legs, Pace};

/// Maximum number of payments in flight, limited to what a drive's own queue takes.
const PAYMENTS_MAX: u32 = 32;
/// First tag used for payments.
const PAYMENT: u64 = 1 << 63;

/// The parameters of the rule.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Wait limit of the other legs, per mille of the first leg's time; 1300 in the paper.
    pub wait_permille: u64,
    /// True if a newer write replaces older ones in the delay queue.
    pub coalesces: bool,
}

impl Default for Rule {
    fn default() -> Rule {
        Rule { wait_permille: 1300, coalesces: true }
    }
}

#[derive(Clone, Copy)]
struct Asked {
    tag: u64,
    operation: Operation,
    extent: Extent,
    started: Instant,
    /// Legs that have not answered yet, as a bit mask.
    out: u8,
    /// Legs that failed it, as a bit mask.
    failed: u8,
    /// True if a leg has done it.
    done: bool,
    answered: bool,
    /// True while a timer refers to the slot, which is kept until then.
    timed: bool,
    /// Time the first leg took, in nanoseconds; 0 until then.
    first: u64,
    /// True for a write that every leg was given.
    everywhere: bool,
}

#[derive(Default)]
struct Leg {
    frozen: bool,
    /// True if it is used no more.
    failed: bool,
    /// Client I/O in flight on the leg.
    out: u32,
    payments: u32,
    cursor: u64,
    delayed: Delayed,
    reads: Pace,
}

/// A volume mirrored by the published rule.
pub struct Published<D> {
    rule: Rule,
    drives: Legs<D>,
    legs: Vec<Leg>,
    asked: Slab<Asked>,
    timers: BinaryHeap<Reverse<(Instant, usize)>>,
    ended: Vec<(usize, Completion)>,
    front: Front,
    lateness: Lateness,
}

impl<D: Drive> Published<D> {
    /// Creates a volume as large as the smallest drive, of 1 to 8 drives.
    pub fn new(drives: Vec<D>, rule: Rule) -> Published<D> {
        let legs: Vec<Leg> = drives.iter().map(|_| Leg::default()).collect();
        let lateness = Lateness::new(legs.len(), rule.wait_permille);
        Published {
            rule,
            drives: Legs::new(drives),
            legs,
            asked: Slab::new(),
            timers: BinaryHeap::new(),
            ended: Vec::new(),
            front: Front::new(Instant(0)),
            lateness,
        }
    }

    /// Returns the lateness figures of the other legs, by name.
    pub fn extra(&self) -> Vec<(&'static str, f64)> {
        self.lateness.figures()
    }

    /// Returns the counters of one leg.
    pub fn leg_counters(&mut self, leg: usize) -> Counters {
        self.drives.counters(leg, self.front.now())
    }

    /// Returns the bytes in delay queues, and the age of the oldest in nanoseconds.
    pub fn delayed(&self) -> (u64, u64) {
        let bytes = self.legs.iter().map(|leg| leg.delayed.sectors * 512).sum();
        let oldest = self.legs.iter().filter_map(|leg| leg.delayed.oldest()).min();
        (bytes, oldest.map_or(0, |since| self.front.now().since(since)))
    }

    fn send(&mut self, leg: usize, slot: usize) {
        let Asked { operation, extent, .. } = self.asked[slot];
        self.asked[slot].out |= 1 << leg;
        self.legs[leg].out += 1;
        self.drives.submit(leg, self.front.now(), Request { tag: slot as u64, operation, extent });
    }

    /// Returns the leg for a read, of those not in `but`: one that lacks none of it, not failed
    /// or frozen if possible, with the least expected time. If only a leg that has failed lacks
    /// nothing, the read goes there and fails.
    fn reader(&self, extent: Extent, but: u8) -> Option<usize> {
        let cost = |leg: &Leg| {
            let expected = leg.reads.expected(leg.out + leg.payments);
            (leg.delayed.overlaps(extent), leg.failed, leg.frozen, expected)
        };
        let legs = self.legs.iter().enumerate().filter(|(index, _)| but >> index & 1 == 0);
        legs.min_by_key(|(index, leg)| (cost(leg), *index)).map(|(index, _)| index)
    }

    fn end(&mut self, leg: usize, completion: Completion) {
        if completion.tag & PAYMENT != 0 {
            self.legs[leg].payments -= 1;
            if completion.result.is_err() {
                self.leg_failed(leg);
            }
            self.pay(leg);
            return;
        }
        let slot = completion.tag as usize;
        self.legs[leg].out -= 1;
        if let Err(failure) = completion.result {
            return self.end_failed(leg, slot, failure);
        }
        self.asked[slot].done = true;
        let asked = &mut self.asked[slot];
        let is_first = !asked.answered && asked.out.count_ones() > 1;
        asked.out &= !(1 << leg);
        let taken = completion.at.since(asked.started);
        if asked.everywhere {
            if asked.first == 0 {
                asked.first = taken.max(1);
            }
            self.lateness.leg(leg, taken, asked.first);
            if asked.out == 0 {
                self.lateness.last(taken, asked.first);
            }
        }
        match asked.operation {
            Operation::Read => self.legs[leg].reads.record(taken),
            // The other legs get this much longer.
            Operation::Write { .. } if is_first && !asked.timed => {
                asked.timed = true;
                let limit = asked.started + taken * self.rule.wait_permille / 1000;
                self.timers.push(Reverse((limit.max(self.front.now()), slot)));
            }
            _ => {}
        }
        if asked.out == 0 {
            self.answer(slot);
            self.let_go(slot);
        }
        self.thaw(leg);
    }

    /// Ends the part of a request that a leg has failed.
    fn end_failed(&mut self, leg: usize, slot: usize, failure: Failure) {
        let asked = &mut self.asked[slot];
        asked.out &= !(1 << leg);
        asked.failed |= 1 << leg;
        let Asked { operation, extent, failed: but, .. } = *asked;
        let reads = operation == Operation::Read;
        if !reads || failure == Failure::Gone {
            self.leg_failed(leg);
        }
        let reader = if reads { self.reader(extent, but) } else { None };
        let has_it = |leg: &Leg| !leg.failed && !leg.delayed.overlaps(extent);
        if let Some(other) = reader.filter(|&leg| has_it(&self.legs[leg])) {
            self.send(other, slot);
        } else if self.asked[slot].out == 0 {
            let Asked { tag, done, answered, .. } = self.asked[slot];
            if done {
                self.answer(slot);
            } else if !answered {
                self.asked[slot].answered = true;
                self.front.fail(tag, failure);
            }
            self.let_go(slot);
        }
        self.thaw(leg);
    }

    /// Uses a leg no more. What it is owed is forgotten.
    fn leg_failed(&mut self, leg: usize) {
        let state = &mut self.legs[leg];
        state.failed = true;
        state.delayed = Delayed::default();
    }

    /// Ends the freeze of a leg that has returned everything, and pays it.
    fn thaw(&mut self, leg: usize) {
        if self.legs[leg].frozen && self.legs[leg].out == 0 {
            self.legs[leg].frozen = false;
        }
        self.pay(leg);
    }

    fn answer(&mut self, slot: usize) {
        let asked = &mut self.asked[slot];
        if !asked.answered {
            asked.answered = true;
            self.front.answer(asked.tag);
        }
    }

    fn let_go(&mut self, slot: usize) {
        let asked = &self.asked[slot];
        if asked.out == 0 && !asked.timed {
            self.asked.remove(slot);
        }
    }

    /// Ends the wait for the legs that do not have a write yet.
    fn time_is_up(&mut self, slot: usize) {
        let asked = &mut self.asked[slot];
        asked.timed = false;
        let late = asked.out;
        for (index, leg) in self.legs.iter_mut().enumerate() {
            leg.frozen |= late & (1 << index) != 0;
        }
        self.answer(slot);
        self.let_go(slot);
    }

    fn pay(&mut self, leg: usize) {
        while !self.legs[leg].frozen && self.legs[leg].payments < PAYMENTS_MAX {
            let state = &mut self.legs[leg];
            let Some(extent) = state.delayed.take(state.cursor) else { return };
            state.cursor = extent.end;
            state.payments += 1;
            let operation = Operation::Write { fua: false };
            self.drives.submit(leg, self.front.now(), Request { tag: PAYMENT, operation, extent });
        }
    }

    fn step(&mut self, now: Instant) {
        self.front.pass(now);
        self.drives.advance(now, |leg, completion| self.ended.push((leg, completion)));
        let mut ended = std::mem::take(&mut self.ended);
        for (leg, completion) in ended.drain(..) {
            self.end(leg, completion);
        }
        self.ended = ended;
        while let Some(&Reverse((at, slot))) = self.timers.peek() {
            if at > now {
                break;
            }
            self.timers.pop();
            self.time_is_up(slot);
        }
    }

    fn next(&self) -> Instant {
        let timer = self.timers.peek().map_or(Instant::NEVER, |Reverse((at, _))| *at);
        timer.min(self.drives.next_event())
    }
}

impl<D: Drive> Drive for Published<D> {
    fn sectors(&self) -> u64 {
        self.drives.sectors()
    }

    fn submit(&mut self, now: Instant, request: Request) {
        self.front.ask(now, &request);
        let Request { tag, operation, extent } = request;
        let is_write = matches!(operation, Operation::Write { .. });
        let asked = Asked {
            tag,
            operation,
            extent,
            started: now,
            out: 0,
            failed: 0,
            done: false,
            answered: false,
            timed: false,
            first: 0,
            everywhere: is_write,
        };
        let slot = self.asked.insert(asked);
        if operation == Operation::Read {
            // There is always one: at least one leg exists, and none is excepted.
            self.send(self.reader(extent, 0).unwrap_or(0), slot);
            return;
        }
        if is_write {
            self.lateness.write();
        }
        // If all legs are frozen, one has to take it anyway. If all have failed, they are asked
        // anyway, and the request fails.
        let all_failed = self.legs.iter().all(|leg| leg.failed);
        let all_frozen = self.legs.iter().all(|leg| leg.frozen || leg.failed);
        for leg in 0..self.legs.len() {
            if self.legs[leg].failed && !all_failed {
                self.asked[slot].everywhere = false;
                continue;
            }
            let coalesces = self.rule.coalesces;
            let state = &mut self.legs[leg];
            // Listed writes are paid before anything newer.
            let waits = state.frozen && !all_frozen || !state.delayed.listed.is_empty();
            if !(waits && is_write) {
                if state.frozen && !all_frozen {
                    continue;
                }
                state.delayed.remove(extent);
                self.send(leg, slot);
            } else {
                state.delayed.add(extent, now, coalesces);
                self.asked[slot].everywhere = false;
            }
        }
    }

    fn next_event(&self) -> Instant {
        self.front.next_event(self.next())
    }

    fn advance(&mut self, now: Instant, done: &mut Vec<Completion>) {
        loop {
            let next = self.next().max(self.front.now());
            if next > now {
                break;
            }
            self.step(next);
        }
        self.front.hand_over(now, done);
    }

    fn counters(&self) -> Counters {
        self.front.counters()
    }
}

#[cfg(test)]
mod tests {
    use hemi_drives::drive::{Drive, Request};
    use hemi_drives::server::{Server, Service};
    use hemi_units::{Extent, Operation};

    use super::{Published, Rule};

    const MILLISECOND: u64 = 1_000_000;

    /// Runs writes one after another on legs of the given latencies, and returns the mirror's
    /// own figures.
    fn told(milliseconds: [u64; 2], wait_permille: u64, writes: u64) -> [f64; 4] {
        let leg = |time| Server::new(1 << 20, 1, Service::Fixed(time * MILLISECOND), 1);
        let rule = Rule { wait_permille, ..Rule::default() };
        let mut mirror = Published::new(milliseconds.map(leg).into(), rule);
        let mut done = Vec::new();
        for write in 0..writes {
            let extent = Extent { start: write * 8, end: write * 8 + 8 };
            let operation = Operation::Write { fua: false };
            mirror.submit(mirror.front.now(), Request { tag: write, operation, extent });
            while done.len() <= write as usize {
                mirror.advance(mirror.next_event(), &mut done);
            }
        }
        // Writes still in flight on the legs end too.
        mirror.advance(mirror.front.now() + 1000 * MILLISECOND, &mut done);
        let extra = mirror.extra();
        let of = |name| extra.iter().find(|(named, _)| *named == name).unwrap().1;
        ["within_limit", "diverted", "later_2x_leg_1", "ratio_max_leg_1"].map(of)
    }

    #[test]
    fn a_leg_within_the_limit_is_never_frozen() {
        assert_eq!(told([10, 12], 1300, 50), [1.0, 0.0, 0.0, 1.2]);
    }

    #[test]
    fn a_leg_past_the_limit_gets_only_some_of_the_writes() {
        // The leg is given one write at 0 and is frozen from 13 to 50, so the next three go to
        // its queue.
        let [within, diverted, twice, most] = told([10, 50], 1300, 100);
        assert_eq!((within, twice), (0.0, 1.0));
        assert!((0.5..0.95).contains(&diverted), "{diverted}");
        // Payments are made before the next write.
        assert!((5.0..30.0).contains(&most), "{most}");
        // If it is waited for, it is given all writes.
        assert_eq!(told([10, 50], 1_000_000, 100), [1.0, 0.0, 1.0, 5.0]);
    }
}
