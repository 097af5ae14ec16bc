//! A lower bound for comparison: always the faster leg, without any other cost.
//!
//! A write or flush is done when the first leg has it. A leg whose window is full is given no
//! more writes and never owes them: there is no metadata, no debt and no guarantee. A read goes
//! to the leg with the least expected time, even if that leg would not have the data. A read that
//! fails is tried on the other legs; a leg that fails anything else is used no more while another
//! is left.

use hemi_drives::drive::{Completion, Counters, Drive, Failure, Request};
use hemi_units::{Extent, Instant, Operation};
use slab::Slab;

use crate::front::Front;
use crate::legs::{Legs, Pace};

/// Requests in flight on a leg from which on it is left out of writes.
const WINDOW: u32 = 32;

#[derive(Clone, Copy)]
struct Asked {
    tag: u64,
    operation: Operation,
    extent: Extent,
    started: Instant,
    out: u32,
    /// Legs that failed it, as a bit mask.
    failed: u8,
    answered: bool,
}

/// A volume served by an oracle.
pub struct Oracle<D> {
    drives: Legs<D>,
    out: Vec<u32>,
    /// Legs that are used no more, as a bit mask.
    failed: u8,
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
            failed: 0,
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
        match completion.result {
            Ok(()) => {
                if asked.operation == Operation::Read {
                    self.reads[leg].record(completion.at.since(asked.started));
                }
                if !asked.answered {
                    asked.answered = true;
                    self.front.answer(asked.tag);
                }
            }
            Err(failure) => {
                asked.failed |= 1 << leg;
                let (operation, tried) = (asked.operation, asked.failed);
                if operation != Operation::Read || failure == Failure::Gone {
                    self.failed |= 1 << leg;
                }
                let other = self.reader(self.failed | tried);
                if operation == Operation::Read
                    && let Some(other) = other
                {
                    self.send(other, slot);
                } else if self.asked[slot].out == 0 && !self.asked[slot].answered {
                    self.front.fail(self.asked[slot].tag, failure);
                }
            }
        }
        if self.asked[slot].out == 0 {
            self.asked.remove(slot);
        }
    }

    /// Returns the leg with the least expected time for a read, of those not in `but`.
    fn reader(&self, but: u8) -> Option<usize> {
        let legs = (0..self.out.len()).filter(|leg| but >> leg & 1 == 0);
        legs.min_by_key(|&leg| self.reads[leg].expected(self.out[leg]))
    }

    fn send(&mut self, leg: usize, slot: usize) {
        let Asked { operation, extent, .. } = self.asked[slot];
        self.out[leg] += 1;
        self.asked[slot].out += 1;
        let request = Request { tag: slot as u64, operation, extent };
        self.drives.submit(leg, self.front.now(), request);
    }
}

impl<D: Drive> Drive for Oracle<D> {
    fn sectors(&self) -> u64 {
        self.drives.sectors()
    }

    fn submit(&mut self, now: Instant, request: Request) {
        self.front.ask(now, &request);
        let Request { tag, operation, extent } = request;
        let asked =
            Asked { tag, operation, extent, started: now, out: 0, failed: 0, answered: false };
        let slot = self.asked.insert(asked);
        // If all have failed, they are asked anyway, and the request fails.
        let all = self.failed.count_ones() as usize == self.out.len();
        let failed = if all { 0 } else { self.failed };
        let best = self.reader(failed);
        let legs = (0..self.out.len()).filter(|leg| failed >> leg & 1 == 0);
        let least = legs.clone().min_by_key(|&leg| self.out[leg]);
        for leg in legs {
            let goes = match operation {
                Operation::Read => best == Some(leg),
                Operation::Write { .. } => self.out[leg] < WINDOW || least == Some(leg),
                Operation::Trim | Operation::Flush => true,
            };
            if goes {
                self.send(leg, slot);
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
