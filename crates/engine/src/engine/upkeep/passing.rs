//! Records without work for now, which the walk that cleans regions passes over.
//!
//! A leg rarely gets a flush that nobody waits for, and its debts are paid in an order of their own. So
//! the walk would find most records waiting many times. It notes with each record the events that it
//! waits for, and forgets them when the record, or a leg on which they depend, changes. Until then it
//! looks at the record again only when there is work: when its time is up, or when one of the legs
//! that it waits for may be asked for a flush.

use crate::engine::Engine;
use crate::engine::state::leg::Leg;
use crate::engine::state::regions::{Wait, Walk};
use crate::identifiers::{LEGS_MAX, LegIndex};
use crate::io::Buffers;
use crate::planted::{self, Planted};

/// The state of one leg on which the waits of records depend, apart from what has been flushed.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct SeenLeg {
    is_member: bool,
    answers: bool,
    may_catch_up: bool,
    failures: u64,
}

/// The state of the legs when the waits of records were noted.
#[derive(Default)]
pub(in crate::engine) struct Passing {
    legs: [SeenLeg; LEGS_MAX],
    flushed: [u64; LEGS_MAX],
}

impl<B: Buffers> Engine<B> {
    /// Forgets the noted events where the legs have changed. Returns the legs, as a mask, that may be
    /// asked for a flush that nobody waits for.
    pub(super) fn follow_waits(&mut self) -> u8 {
        let mut flushed = 0;
        let mut changed = false;
        let mut may_catch_up = [false; LEGS_MAX];
        for leg in self.legs.in_use() {
            may_catch_up[leg.index.index()] = self.may_catch_up(leg);
        }
        for leg in self.legs.in_use() {
            let (seen, at) = (&mut self.passing, leg.index.index());
            let now = SeenLeg {
                is_member: leg.is_member(),
                answers: leg.answers(),
                may_catch_up: may_catch_up[at],
                failures: leg.stamps.failures(),
            };
            changed |= core::mem::replace(&mut seen.legs[at], now) != now;
            let stamp = leg.stamps.flushed();
            if core::mem::replace(&mut seen.flushed[at], stamp) != stamp {
                flushed |= leg.index.bit();
            }
        }
        if changed {
            self.regions.forget_waits();
        } else if flushed != 0 {
            self.regions.forget_waits_for(flushed);
        }
        let may_be_asked = self.legs.slots().filter(|&leg| self.may_flush_aside(leg));
        may_be_asked.fold(0, |mask, leg| mask | LegIndex(leg as u8).bit())
    }

    /// Returns true if a leg that owes may be waited for: it answers, and if it is out, its writes do not
    /// keep failing.
    pub(super) fn may_catch_up(&self, leg: &Leg) -> bool {
        leg.answers() && (leg.is_in() || !self.keeps_failing(leg))
    }

    /// Notes the events that a record waits for, after a look at it.
    pub(super) fn note_wait(&mut self, record: u32, walk: &Walk) {
        if self.regions.is_used(record)
            && let Some(wait) = self.wait_of(record, walk)
        {
            self.regions.note_wait(record, wait);
        }
    }

    /// Returns the events that a record waits for, if there is no work for it until then.
    fn wait_of(&self, record: u32, walk: &Walk) -> Option<Wait> {
        if self.regions.has_operations(record) {
            None
        } else if !self.regions.is_touched(self.regions.region_of(record)) {
            self.regions.is_kept(record).then(Wait::kept)
        } else if walk.settles {
            self.wait_to_settle(record)
        } else {
            None
        }
    }

    /// Returns the events for which a touched region waits before it settles: flushes, and a leg that
    /// catches up. None of the legs does more meanwhile: the authority is recorded, and a leg that lacks
    /// something goes on lacking it.
    fn wait_to_settle(&self, record: u32) -> Option<Wait> {
        let region = self.regions.region_of(record);
        if !self.regions.is_authority_recorded(record) {
            return None;
        }
        let mut wait = Wait::default();
        for leg in self.legs.in_use().iter().filter(|leg| leg.is_member()) {
            if !self.regions.is_complete(leg.index, region) {
                // It may lack no more than repairs, and is taken to have everything then.
                let may_count = self.regions.is_rebuilding(record, leg.index.index());
                if may_count || planted::is(Planted::CleanBehindDebts) {
                    return None;
                }
                wait.catches_up |=
                    self.may_catch_up(leg) && !self.regions.is_stale(leg.index, region);
                continue;
            }
            let done = self.regions.last_done(record, leg.index.index());
            if done <= leg.stamps.flushed() || !leg.answers() {
                continue;
            }
            if leg.stamps.has_failed() || planted::is(Planted::CleanBeforeFlush) {
                return None;
            }
            wait.flushes |= leg.index.bit();
            if !leg.stamps.is_flush_wanted(done) {
                wait.unasked |= leg.index.bit();
            }
        }
        (wait.flushes != 0 || wait.catches_up).then_some(wait)
    }

    /// Returns true if `count` records, in order of last use and this one first, go on waiting. A check
    /// that relies on nothing noted.
    pub(super) fn just_wait(&self, record: u32, count: usize, walk: &Walk) -> bool {
        let newer = |record: &u32| self.regions.newer(*record);
        core::iter::successors(Some(record), newer).take(count).all(|record| {
            let last_use = self.regions.last_use(record);
            self.wait_of(record, walk).is_some_and(|wait| wait.goes_on(last_use, walk))
        })
    }
}
