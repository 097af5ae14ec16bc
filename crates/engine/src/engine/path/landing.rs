//! Reads of what has just been written, which wait for the write to land on a quicker leg.
//!
//! A write is acknowledged where it lands first. That may be a disk's cache, while a network volume
//! still takes the data in. Until it has, only the disk is fresh, and a read of much may find little
//! of it in the cache: it takes as long as the platter. The network volume has the write in a moment,
//! and answers the read at once. So such a read waits, if the write is not late and the wait is well
//! below what it saves. It is sent when the write has ended, or has become late, or its leg does not
//! answer any more. Until then it is like one in flight: it holds its range, and nothing else waits
//! for it.

use alloc::vec::Vec;

use crate::engine::Engine;
use crate::engine::path::read::{Place, Placed};
use crate::engine::state::leg::Leg;
use crate::engine::state::slab::Key;
use crate::identifiers::LegIndex;
use crate::io::Buffers;
use crate::marks::Mark;
use crate::planted::{self, Planted};
use crate::settings::Policy;
use hemi_units::{Extent, Instant};

/// A read that waits.
#[derive(Clone, Copy)]
struct Waiting {
    operation: Key,
    /// The leg that the write is in flight to.
    leg: LegIndex,
    /// The time at which the write is late.
    until: Instant,
}

/// All reads that wait for a write to land.
pub(in crate::engine) struct Landings {
    waiting: Vec<Waiting>,
}

impl Landings {
    pub(in crate::engine) fn with_capacity(capacity: usize) -> Landings {
        Landings { waiting: Vec::with_capacity(capacity) }
    }

    /// Returns true if no read waits.
    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns true if this read waits.
    pub(in crate::engine) fn holds(&self, operation: Key) -> bool {
        self.waiting.iter().any(|one| one.operation == operation)
    }

    /// Returns when the first of them waits no more.
    pub(in crate::engine) fn deadline(&self) -> Instant {
        self.waiting.iter().map(|one| one.until).min().unwrap_or(Instant::NEVER)
    }
}

impl<B: Buffers> Engine<B> {
    /// Returns true if a read waits for a write to land.
    pub(super) fn awaits_landing(&self, operation: u32) -> bool {
        !self.landings.is_empty() && self.landings.holds(self.operations.key(operation))
    }

    /// Returns true if a read, of which nothing has been sent, is to wait for a write in flight rather
    /// than be sent to where it is `placed`, and has it wait.
    pub(super) fn waits_for_landing(
        &mut self,
        operation: u32,
        extent: Extent,
        placed: &Placed,
    ) -> bool {
        let state = &self.operations[operation];
        let is_first = extent == state.extent && state.parts == 0;
        let Placed { place: Place::Leg(best, sectors), lacking } = *placed else { return false };
        if !is_first || self.settings.policy != Policy::First {
            return false;
        }
        let elsewhere = self.legs[best].expected_read(sectors);
        let found = self.landing_before(elsewhere, extent, lacking);
        let Some((leg, until)) = found else { return false };
        let until = if planted::is(Planted::LateLandingAwaited) { Instant::NEVER } else { until };
        self.marks.add(Mark::ReadAwaitedLanding);
        let operation = self.operations.key(operation);
        self.landings.waiting.push(Waiting { operation, leg, until });
        true
    }

    /// Returns the leg, of those `lacking` a part of `extent`, that would serve a read of it soonest once
    /// a write there has landed, and the time at which that write is late; `None` if the read would take
    /// as long as `elsewhere`.
    fn landing_before(
        &self,
        elsewhere: u64,
        extent: Extent,
        lacking: u8,
    ) -> Option<(LegIndex, Instant)> {
        let lands = |leg: &&Leg| lacking & leg.index.bit() != 0 && is_landing(leg, extent);
        let landing = self.legs.in_use().iter().filter(lands);
        let (time, until, leg) = landing.filter_map(|leg| self.soon(leg, extent)).min()?;
        (time < elsewhere).then_some((leg, until))
    }

    /// Returns the time that a leg takes for a read of `extent`, until a write there has landed and from
    /// then on, with the moment at which the write is late; `None` if more than that write is lacking, or
    /// it is late already.
    fn soon(&self, leg: &Leg, extent: Extent) -> Option<(u64, Instant, LegIndex)> {
        if self.landed_prefix(leg.index.index(), extent) < extent.sectors() {
            return None;
        }
        let write = leg.load.holder(extent)?;
        let io = &self.ios[write];
        let until = io.submitted + leg.pace.late_after(io.extent.sectors());
        let now = self.clock.now();
        let time = until.since(now) + leg.expected_read(extent.sectors());
        (until > now).then_some((time, until, leg.index))
    }

    /// Sends the reads whose write has ended, or is not waited for any more.
    pub(in crate::engine) fn send_landed(&mut self) {
        let mut at = 0;
        while let Some(&Waiting { operation, leg, until }) = self.landings.waiting.get(at) {
            let state = self.operations.get(operation).expect("a read that waits has not ended");
            let lands = is_landing(&self.legs[leg.index()], state.extent);
            if lands && self.clock.now() < until {
                at += 1;
                continue;
            }
            self.landings.waiting.swap_remove(at);
            self.send_read(operation.slot);
        }
    }
}

/// Returns true if a write to a part of `extent` is in flight to a leg that answers.
fn is_landing(leg: &Leg, extent: Extent) -> bool {
    leg.answers() && leg.load.is_held(extent)
}
