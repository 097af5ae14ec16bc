//! A lower bound for comparison: always the faster leg, without any other cost.
//!
//! A write or flush is done when the first leg has it. A leg whose window is full is given no
//! more writes and never owes them: there is no metadata, no debt and no guarantee. A read goes
//! to the leg with the least expected time, even if that leg would not have the data.

use hemi_drives::drive::{Completion, Counters, Drive, Request};
use hemi_units::{Instant, Operation};
use slab::Slab;

use crate::front::Front;
use crate::legs::{Legs, Pace};

/// Requests in flight on a leg from which on it is left out of writes.
const WINDOW: u32 = 32;

#[derive(Clone, Copy)]
struct Asked {
    tag: u64,
    operation: Operation,
    started: Instant,
    out: u32,
    answered: bool,
}

/// A volume served by an oracle.
pub struct Oracle<D> {
    drives: Legs<D>,
    out: Vec<u32>,
    reads: Vec<Pace>,
    asked: Slab<Asked>,
    ended: Vec<(usize, Completion)>,
    front: Front,
}

impl<D: Drive> Oracle<D> {
    /// Creates a volume as large as the smallest drive.
    pub fn new(drives: Vec<D>) -> Oracle<D> {
        Oracle {
            out: vec![0; drives.len()],
            reads: vec![Pace::default(); drives.len()],
            drives: Legs::new(drives),
            asked: Slab::new(),
            ended: Vec::new(),
            front: Front::new(Instant(0)),
        }
    }

    /// Returns the counters of one leg.
    pub fn leg_counters(&mut self, leg: usize) -> Counters {
        self.drives.counters(leg, self.front.now())
    }

    fn end(&mut self, leg: usize, completion: Completion) {
        self.out[leg] -= 1;
        let slot = completion.tag as usize;
        let asked = &mut self.asked[slot];
        asked.out -= 1;
        if asked.operation == Operation::Read {
            self.reads[leg].record(completion.at.since(asked.started));
        }
        if !asked.answered {
            asked.answered = true;
            self.front.answer(asked.tag);
        }
        if self.asked[slot].out == 0 {
            self.asked.remove(slot);
        }
    }
}

impl<D: Drive> Drive for Oracle<D> {
    fn sectors(&self) -> u64 {
        self.drives.sectors()
    }

    fn submit(&mut self, now: Instant, request: Request) {
        self.front.ask(now, &request);
        let Request { tag, operation, extent } = request;
        let asked = Asked { tag, operation, started: now, out: 0, answered: false };
        let slot = self.asked.insert(asked);
        let legs = 0..self.out.len();
        let best = legs.clone().min_by_key(|&leg| self.reads[leg].expected(self.out[leg]));
        let least = legs.clone().min_by_key(|&leg| self.out[leg]);
        for leg in legs {
            let goes = match operation {
                Operation::Read => best == Some(leg),
                Operation::Write { .. } => self.out[leg] < WINDOW || least == Some(leg),
                Operation::Trim | Operation::Flush => true,
            };
            if goes {
                self.out[leg] += 1;
                self.asked[slot].out += 1;
                self.drives.submit(leg, now, Request { tag: slot as u64, operation, extent });
            }
        }
    }

    fn next_event(&self) -> Instant {
        self.front.next_event(self.drives.next_event())
    }

    fn advance(&mut self, now: Instant, done: &mut Vec<Completion>) {
        loop {
            let next = self.drives.next_event();
            if next > now {
                break;
            }
            self.front.pass(next);
            self.drives.advance(next, |leg, completion| self.ended.push((leg, completion)));
            let mut ended = std::mem::take(&mut self.ended);
            for (leg, completion) in ended.drain(..) {
                self.end(leg, completion);
            }
            self.ended = ended;
        }
        self.front.hand_over(now, done);
    }

    fn counters(&self) -> Counters {
        self.front.counters()
    }
}
