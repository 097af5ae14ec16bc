//! Counts the touched regions that depend on a leg's next flush: it decides them and has something there that
//! it has not flushed.

use crate::identifiers::{LEGS_MAX, LegIndex};

#[derive(Clone, Copy, Default)]
struct OfLeg {
    /// The stamp up to which the leg has flushed everything.
    flushed: u64,
    /// The stamp up to which its last flush that has begun makes everything durable.
    begun: u64,
    /// Regions whose last write that flush covers.
    covered: u32,
    /// Regions whose last write is later.
    later: u32,
    /// Regions may have come to depend on it since somebody last looked for them.
    has_news: bool,
}

/// The counts of all legs.
#[derive(Default)]
pub(super) struct Unflushed {
    legs: [OfLeg; LEGS_MAX],
}

impl Unflushed {
    fn place(&mut self, leg: LegIndex, stamp: u64) -> Option<&mut u32> {
        let of = &mut self.legs[leg.index()];
        match stamp {
            _ if stamp <= of.flushed => None,
            _ if stamp <= of.begun => Some(&mut of.covered),
            _ => Some(&mut of.later),
        }
    }

    /// Counts a region that a leg decides and was last written to at a stamp.
    pub(super) fn add(&mut self, leg: LegIndex, stamp: u64) {
        if let Some(count) = self.place(leg, stamp) {
            *count += 1;
            self.legs[leg.index()].has_news = true;
        }
    }

    /// Counts it no more.
    pub(super) fn take(&mut self, leg: LegIndex, stamp: u64) {
        if let Some(count) = self.place(leg, stamp) {
            *count -= 1;
        }
    }

    /// A flush begins that makes everything up to a stamp durable.
    pub(super) fn note_begun(&mut self, leg: LegIndex, stamp: u64) {
        let of = &mut self.legs[leg.index()];
        of.begun = of.begun.max(stamp);
        of.covered += core::mem::take(&mut of.later);
    }

    /// A leg has flushed everything up to a stamp, that of its last flush.
    pub(super) fn note_flushed(&mut self, leg: LegIndex, stamp: u64) {
        let of = &mut self.legs[leg.index()];
        of.covered = 0;
        if stamp > of.begun {
            of.later = 0;
        }
        of.begun = of.begun.max(stamp);
        of.flushed = of.flushed.max(stamp);
    }

    /// Another leg has the slot, and has flushed nothing.
    pub(super) fn forget(&mut self, leg: LegIndex) {
        let of = &mut self.legs[leg.index()];
        assert!(of.covered + of.later == 0, "a leg that leaves its slot decides nothing");
        *of = OfLeg::default();
    }

    /// Counts the regions that depend on a leg's next flush.
    pub(super) fn count(&self, leg: LegIndex) -> u32 {
        let of = &self.legs[leg.index()];
        of.covered + of.later
    }

    /// Notes that regions may have come to depend on a leg otherwise.
    pub(super) fn note_news(&mut self, leg: LegIndex) {
        self.legs[leg.index()].has_news = true;
    }

    /// Returns true if regions may have come to depend on a leg since the last call.
    pub(super) fn take_news(&mut self, leg: LegIndex) -> bool {
        core::mem::take(&mut self.legs[leg.index()].has_news)
    }
}
