//! Leg I/O in flight, by age on each leg.
//!
//! Everybody may read what is in flight. It changes only here.

use core::ops::Index;

use super::debt::{Since, Source};
use super::leg::{Class, Pace};
use super::regions::metadata::BlockWrite;
use super::slab::{Key, NONE, Slab};
use crate::identifiers::{BufferAt, LEGS_MAX};
use hemi_units::{Extent, Instant};

/// The purpose of a leg I/O.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) enum Purpose {
    /// A client's read (part of an operation); stale once given up.
    Read {
        operation: Key,
    },
    /// A second read of the same, into a buffer of its own.
    Hedge {
        operation: Key,
    },
    /// A write: a client's, or a debt being paid. Acknowledged once the key is stale.
    Write {
        operation: Key,
        since: Since,
        drain: bool,
        repair: bool,
        /// Sectors written along that the leg did not owe.
        gaps: u32,
    },
    /// The read half of paying a debt without a copy. The range is held on `target`.
    DrainRead {
        target: u8,
        since: Since,
        repair: bool,
        tries: u8,
        /// Reads what the target holds as well, and writes only where that differs.
        compare: bool,
    },
    /// The second read of such a debt, on the leg that owes it, to be held against the data that
    /// was read `from` another.
    Compare {
        reference: BufferAt,
        from: u8,
        since: Since,
    },
    /// The read half of paying several debts with one write, gaps included. The range is held
    /// on `target`; debts in it from before `started` are the ones to pay.
    Sieve {
        target: u8,
        started: Instant,
    },
    /// A debt's read that was given up because its leg fell silent. If it ends well all the same
    /// and this is still the debt, it pays it.
    LateRead {
        target: u8,
        debt: Key,
    },
    /// A read given up: only its buffer matters.
    Abandoned,
    Flush,
    Metadata(BlockWrite),
    Scrub,
}

impl Purpose {
    /// Returns the kind of I/O by whose latencies it is judged.
    pub(in crate::engine) fn class(&self) -> Class {
        match self {
            Purpose::Write { .. } => Class::Write,
            Purpose::Flush | Purpose::Metadata(_) => Class::Flush,
            Purpose::Read { .. }
            | Purpose::Hedge { .. }
            | Purpose::DrainRead { .. }
            | Purpose::Compare { .. }
            | Purpose::Sieve { .. }
            | Purpose::LateRead { .. }
            | Purpose::Abandoned
            | Purpose::Scrub => Class::Read,
        }
    }
}

/// A leg I/O in flight.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Io {
    pub(in crate::engine) leg: u8,
    pub(in crate::engine) purpose: Purpose,
    /// Volume sectors (leg sectors for metadata).
    pub(in crate::engine) extent: Extent,
    pub(in crate::engine) source: Source,
    pub(in crate::engine) submitted: Instant,
    /// See [`Io::kind`]. Kept, since a leg's I/O is looked at often.
    kind: u8,
    older: u32,
    newer: u32,
}

impl Io {
    pub(in crate::engine) fn new(leg: u8, purpose: Purpose, extent: Extent, source: Source) -> Io {
        let submitted = Instant(0);
        let kind = kind_of(&purpose, extent);
        Io { leg, purpose, extent, source, submitted, kind, older: NONE, newer: NONE }
    }

    /// Returns the next younger one of the same leg.
    pub(in crate::engine) fn newer(&self) -> Option<u32> {
        Some(self.newer).filter(|&slot| slot != NONE)
    }

    /// Returns its kind, see [`Pace::kind`]; `None` once it is given up.
    pub(in crate::engine) fn kind(&self) -> Option<usize> {
        Some(usize::from(self.kind)).filter(|&kind| kind < Pace::KINDS)
    }

    /// Sectors of a buffer it holds.
    pub(in crate::engine) fn payload_sectors(&self) -> u64 {
        self.buffer().map_or(0, |_| self.extent.sectors())
    }

    pub(in crate::engine) fn buffer(&self) -> Option<BufferAt> {
        match self.source {
            Source::Buffer(at) => Some(at),
            _ => None,
        }
    }
}

fn kind_of(purpose: &Purpose, extent: Extent) -> u8 {
    Pace::kind(purpose.class(), extent.sectors()) as u8
}

/// The ends of a leg's list.
#[derive(Clone, Copy)]
struct Ends {
    oldest: u32,
    newest: u32,
}

/// All I/O in flight.
pub(in crate::engine) struct InFlight {
    ios: Slab<Io>,
    legs: [Ends; LEGS_MAX],
}

impl InFlight {
    pub(in crate::engine) fn with_capacity(capacity: u32) -> InFlight {
        let none = Ends { oldest: NONE, newest: NONE };
        InFlight { ios: Slab::new(capacity), legs: [none; LEGS_MAX] }
    }

    pub(in crate::engine) fn len(&self) -> usize {
        self.ios.len()
    }

    pub(in crate::engine) fn free_slots(&self) -> usize {
        self.ios.free_slots()
    }

    pub(in crate::engine) fn is_live(&self, key: Key) -> bool {
        self.ios.is_live(key)
    }

    pub(in crate::engine) fn get(&self, key: Key) -> Option<&Io> {
        self.ios.get(key)
    }

    /// Returns all of it, in slot order.
    pub(in crate::engine) fn iter(&self) -> impl Iterator<Item = (u32, &Io)> {
        self.ios.iter()
    }

    /// Returns what is in flight to a leg, the oldest first.
    pub(in crate::engine) fn on(&self, leg: usize) -> impl Iterator<Item = (u32, &Io)> {
        let first = self.legs[leg].oldest;
        let next = |&at: &u32| self.after(at);
        core::iter::successors((first != NONE).then_some(first), next)
            .map(|slot| (slot, &self.ios[slot]))
    }

    /// Returns true if anything is in flight to a leg.
    pub(in crate::engine) fn any_on(&self, leg: usize) -> bool {
        self.legs[leg].oldest != NONE
    }

    /// Returns the oldest that is in flight to a leg, to go on from by [`InFlight::after`].
    pub(in crate::engine) fn oldest(&self, leg: usize) -> Option<u32> {
        Some(self.legs[leg].oldest).filter(|&slot| slot != NONE)
    }

    /// Returns the newest that is in flight to a leg.
    pub(in crate::engine) fn newest(&self, leg: usize) -> Option<u32> {
        Some(self.legs[leg].newest).filter(|&slot| slot != NONE)
    }

    /// Returns the next younger one of the same leg.
    pub(in crate::engine) fn after(&self, slot: u32) -> Option<u32> {
        self.ios[slot].newer()
    }

    /// Takes in an I/O that goes to its leg now. The caller has seen to room.
    pub(in crate::engine) fn start(&mut self, io: Io) -> Key {
        let leg = usize::from(io.leg);
        let key = self.ios.insert(io).expect("the caller checked free_slots");
        let newest = self.legs[leg].newest;
        self.ios[key.slot].older = newest;
        if newest == NONE {
            self.legs[leg].oldest = key.slot;
        } else {
            self.ios[newest].newer = key.slot;
        }
        self.legs[leg].newest = key.slot;
        key
    }

    /// Takes an I/O that has ended off its leg's list. It keeps its slot until [`InFlight::forget`].
    pub(in crate::engine) fn end(&mut self, slot: u32) {
        let io = self.ios[slot];
        let ends = &mut self.legs[usize::from(io.leg)];
        if io.older == NONE {
            ends.oldest = io.newer;
        }
        if io.newer == NONE {
            ends.newest = io.older;
        }
        if io.older != NONE {
            self.ios[io.older].newer = io.newer;
        }
        if io.newer != NONE {
            self.ios[io.newer].older = io.older;
        }
    }

    /// Gives back the slot of an I/O that has ended, if it is still in use.
    pub(in crate::engine) fn forget(&mut self, slot: u32) {
        if self.ios.is_used(slot) {
            self.ios.remove(slot);
        }
    }

    /// Gives up a read: only its buffer matters from now on.
    pub(in crate::engine) fn abandon(&mut self, slot: u32) {
        let io = &mut self.ios[slot];
        (io.purpose, io.kind) = (Purpose::Abandoned, Pace::KINDS as u8);
    }

    /// Lets a read that was given up pay a debt after all, if that is still owed when it ends.
    pub(in crate::engine) fn let_pay(&mut self, slot: u32, target: u8, debt: Key) {
        let io = &mut self.ios[slot];
        io.purpose = Purpose::LateRead { target, debt };
        io.kind = kind_of(&io.purpose, io.extent);
    }

    /// Keeps reads that were given up from paying debts of a leg.
    pub(in crate::engine) fn forget_late_reads(&mut self, target: usize) {
        for slot in 0..self.ios.capacity() as u32 {
            if !self.ios.is_used(slot) {
                continue;
            }
            if let Purpose::LateRead { target: of, .. } = self.ios[slot].purpose
                && usize::from(of) == target
            {
                self.abandon(slot);
            }
        }
    }

    /// Notes how many sectors a write covers that its leg did not owe.
    pub(in crate::engine) fn note_gaps(&mut self, slot: u32, sectors: u32) {
        if let Purpose::Write { gaps, .. } = &mut self.ios[slot].purpose {
            *gaps = sectors;
        }
    }

    /// Notes that a leg has lacked something acknowledged since then, beneath an operation's write
    /// that is in flight to it.
    pub(in crate::engine) fn date_back(&mut self, leg: usize, key: Key, carried_since: Since) {
        let mut at = self.legs[leg].newest;
        while at != NONE {
            let io = &mut self.ios[at];
            if let Purpose::Write { operation, since, .. } = &mut io.purpose
                && *operation == key
            {
                *since = since.beneath(carried_since);
                return;
            }
            at = io.older;
        }
    }
}

impl Index<u32> for InFlight {
    type Output = Io;

    fn index(&self, slot: u32) -> &Io {
        &self.ios[slot]
    }
}
