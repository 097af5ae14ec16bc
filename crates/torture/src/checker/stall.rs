//! P4: while one leg does not answer, clients go on at the speed of the others after the wait
//! limit.
//!
//! The promise has conditions, and most of a run breaks them, so it is checked in **windows**. A
//! window opens when a leg freezes while everything else is well: every leg is healthy and owes
//! little, there has been no other fault for a while, and the policy is `first` with one flush
//! copy. It closes with the freeze, at the next fault, or when writers are throttled. A request
//! that spends longer than the allowance within one window is a stall, unless it needs data that
//! only the frozen leg has: data that the others lack, that is not being sent to them, and that no
//! buffer is kept for.
//!
//! Long after the last trouble the fast leg must decide again: while one leg is much faster than
//! all others, most of the writes that come one at a time are answered at its speed.

use std::collections::BTreeSet;

use hemi_engine::io::{LegOperation, Operation};
use hemi_engine::settings::{FlushCopies, Policy};
use hemi_engine::status::{LegState, LegStatus};
use hemi_units::{Extent, Instant, MILLISECOND, SECOND, SECTOR_BYTES};
use hemi_world::register::Asked;

use crate::plan::REQUEST_SECTORS_MAX;
use crate::world::{Behaviour, Pending, World};

/// The time that legs must have been at their best before a window opens.
const CALM: u64 = SECOND / 2;

/// The number of other requests' I/Os that may go before each of a request's parts but the first.
const OTHERS_AHEAD: u64 = 4;

/// The number of other requests' I/Os that may go before each piece of a write that is let in piece by piece:
/// single writes of clients take their turns beside it.
const OTHERS_BEFORE_PIECE: u64 = 8;

/// The smallest piece of a write that the engine lets in at once where the bound in age leaves room
/// for little debt (its `PIECE_MIN`).
const LET_IN_BYTES: u64 = 16 << 10;

/// The time between two cleanings of regions.
const TICK: u64 = 100 * MILLISECOND;

/// The pace is judged this long after the last trouble …
const PACE_CALM: u64 = 3 * SECOND;
/// … and this long after the end of the last leg's probation …
const PACE_TRUSTED: u64 = SECOND;
/// … over this many writes, of which half may be slow …
const PACE_WRITES: u32 = 20;
/// … where the other legs take this many times as long as the fast one.
const UNLIKE: u64 = 8;

/// The time for which a leg that has frozen may be kept from deciding: 20 ms, doubled each time it
/// soon freezes again on an I/O sent since it answered, and at most 5 s.
#[derive(Clone, Copy, Default)]
pub(crate) struct Probation {
    length: u64,
    /// The time at which the engine last found the leg answering again.
    thawed: Instant,
}

impl Probation {
    const FIRST: u64 = 20 * MILLISECOND;
    const LONGEST: u64 = 5 * SECOND;
    /// A leg that froze later than this after its last thaw begins anew.
    const FORGOTTEN: u64 = 30 * SECOND;

    /// Begins the probation of a leg that answers again after a freeze of `frozen` nanoseconds.
    pub(crate) fn begin(&mut self, now: Instant, frozen: u64) {
        let sent = Instant(now.0 - frozen);
        let well = sent.since(self.thawed);
        self.length = if self.length == 0 || well > Probation::FORGOTTEN {
            Probation::FIRST
        } else if sent >= self.thawed && well < 4 * self.length {
            (2 * self.length).min(Probation::LONGEST)
        } else {
            self.length
        };
        self.thawed = now;
    }

    /// Returns the time from which the leg may decide again.
    fn end(&self) -> Instant {
        self.thawed + self.length
    }
}

/// The window that is open, if any.
#[derive(Default)]
pub struct Stall {
    opened: Option<Instant>,
    until: Instant,
    /// Only flushes are judged: the leg answers, but cannot write a block.
    pub(crate) flushes_only: bool,
    /// The frozen leg.
    leg: u8,
    allowance: u64,
    /// The longest I/O of any leg when the window opened, in nanoseconds.
    slowest: u64,
    /// The sectors that only the frozen leg has.
    only_there: BTreeSet<u64>,
    /// Some of them are in a region where that leg has not flushed everything.
    only_there_unflushed: bool,
    /// Writes answered in this window that could not go on without the frozen leg.
    excused: Vec<Asked>,
    /// The number of windows opened in this run.
    pub(crate) windows: u64,
    /// The number of requests judged.
    pub(crate) judged: u64,
    /// The longest wait in any window.
    pub(crate) longest: u64,
    /// The request that was sent while nothing else was in flight, if it is still alone.
    pub(crate) alone: u32,
    /// The time at which the volume was last started.
    pub(crate) started: Instant,
    /// The time at which a leg last came in again: it decides regions some ticks later.
    pub(crate) came_in: Instant,
    /// The number of lone writes judged by the pace of the fast leg, and the number of slow ones
    /// among them.
    paced: (u32, u32),
    /// The number of times the pace was judged in this run.
    pub(crate) paces: u64,
}

impl Stall {
    pub(crate) fn reset(&mut self) {
        *self = Stall::default();
    }

    /// Closes the window: something else happens, and the promise's conditions may not hold any
    /// more.
    pub(crate) fn close(&mut self) {
        self.opened = None;
        self.flushes_only = false;
    }

    /// Closes the window of a leg that answers again: more data may be on it alone from now on.
    pub(crate) fn close_if_of(&mut self, leg: u8) {
        if self.leg == leg && self.until == Instant::NEVER {
            self.close();
        }
    }
}

impl World {
    /// Opens a window for a leg that freezes until `until`, if everything else is well.
    pub(crate) fn consider_stall_window(&mut self, frozen: u8, until: Instant) {
        self.consider_window(frozen, until, false);
    }

    /// Opens a window once the volume has noticed a leg's hanging I/O and no longer depends on the
    /// leg.
    pub(crate) fn hung_leg_is_noticed(&mut self, leg: u8) {
        let is_open = self.stall.opened.is_some();
        if !is_open && self.hung_leg() == Some(leg) {
            self.consider_window(leg, Instant::NEVER, true);
        }
    }

    fn consider_window(&mut self, frozen: u8, until: Instant, noticed: bool) {
        self.stall.close();
        let settings = &self.settings;
        let weather = self.weather;
        let plain = settings.policy == Policy::First
            && settings.flush_copies == FlushCopies::Count(1)
            && !weather.requests_may_fail()
            && !weather.gone
            && self.changing.is_none();
        let other_hangs = self.hung_leg().is_some_and(|hung| hung != frozen);
        // Until "open" is on record, everybody waits for every leg.
        let serves = self.engine.as_ref().is_some_and(|engine| engine.is_serving());
        if !plain || other_hangs || self.clients.paused || !serves {
            return;
        }
        let now = self.now;
        let calm = self.legs.iter().enumerate().all(|(leg, behaviour)| {
            let last = behaviour.disturbed.max(behaviour.frozen_until);
            leg == usize::from(frozen) || now.since(last) >= CALM
        });
        let slowest = self.legs.iter().map(Behaviour::longest).max().unwrap_or(0);
        let bound = self.settings.exposure_bytes;
        let status = self.refresh_status();
        let is_well = |leg: &LegStatus| {
            let noticed = noticed && leg.leg == frozen && leg.state == LegState::Frozen;
            (noticed || leg.state == LegState::Healthy) && leg.owed_region_bytes == 0
        };
        let healthy = status.legs.iter().all(is_well);
        let waits = status.legs.iter().map(|leg| leg.write_wait_limit.max(leg.read_wait_limit));
        let limit = waits.max().unwrap_or(0).max(250 * MILLISECOND);
        if !calm || !healthy || status.legs.len() < 2 || status.exposure_bytes > bound / 8 {
            return;
        }
        self.stall.opened = Some(now);
        self.stall.until = until;
        self.stall.leg = frozen;
        self.stall.excused.clear();
        self.look_for_what_is_alone(usize::from(frozen));
        // Flushes and metadata are given twice the limit. The other leg needs time for the debts,
        // the flush, the record and the write, each behind a full queue of its own.
        let ticks = 1 + self.ticks_for_regions();
        self.stall.allowance = 2 * limit + self.steps_in_a_row() * slowest + ticks * TICK;
        self.stall.slowest = slowest;
        self.stall.windows += 1;
    }

    /// Returns the number of a leg's I/Os that may have to go one by one before a request is
    /// answered: those ahead of it, and its own parts where few of them go at once.
    fn steps_in_a_row(&self) -> u64 {
        let limits = &self.settings.limits;
        let parts = REQUEST_SECTORS_MAX * SECTOR_BYTES / limits.operation_bytes;
        let at_once = u64::from(limits.operations_per_request.min(4));
        64 * 4 / at_once + OTHERS_AHEAD * (parts - 1)
    }

    /// Returns the longest that a request may wait in this window, in nanoseconds. A write that may
    /// be let in only piece by piece is given more, because each piece stands behind others.
    fn allowance_of(&self, asked: &Asked) -> u64 {
        let is_write = matches!(asked.operation, Operation::Write | Operation::WriteZeroes { .. });
        let bytes = asked.extent.sectors() * SECTOR_BYTES;
        let pieces = if is_write && self.throttles() { bytes / LET_IN_BYTES } else { 0 };
        self.stall.allowance + OTHERS_BEFORE_PIECE * pieces * self.stall.slowest
    }

    /// Returns the number of regions of the volume.
    fn regions(&self) -> u64 {
        self.sectors().div_ceil(self.shape.region_bytes / SECTOR_BYTES)
    }

    /// Returns the number of ticks that a request may wait until all of its regions can be dirty,
    /// where few may be dirty at once: each tick cleans as many as others keep dirty. If a tick
    /// examines only some regions, it takes two rounds, one of which asks for the flush that a
    /// region needs, and regions that nobody uses may be dirty too.
    fn ticks_for_regions(&self) -> u64 {
        let sectors = self.shape.region_bytes / SECTOR_BYTES;
        let regions = (REQUEST_SECTORS_MAX / sectors + 2).min(self.regions());
        let requests = u64::from(self.settings.requests_max);
        let of_requests = u64::from(self.settings.limits.records_per_request) * requests;
        let room = u64::from(self.settings.dirty_regions_max) + of_requests;
        let looked_at = self.settings.limits.cleans_per_tick as u64;
        if room >= self.regions() || room >= 2 * regions && looked_at >= room {
            0
        } else if looked_at >= room {
            regions * requests / room
        } else {
            2 * room.max(regions * requests) / looked_at
        }
    }

    /// Notes the sectors that only the frozen leg has: the others owe them, and no buffer holds a
    /// copy. (Zeros are paid without one.) A buffer that only I/O in flight refers to is no copy:
    /// it goes with that I/O, which may be for another part of the request.
    pub(crate) fn look_for_what_is_alone(&mut self, frozen: usize) {
        let members = self.members();
        let others: Vec<usize> =
            members.iter().map(|&leg| usize::from(leg)).filter(|&leg| leg != frozen).collect();
        let has = |leg: usize, sector: u64, version: u64| {
            self.disks[leg].contents()[sector as usize] == version
        };
        let ios = || self.ios.iter().filter(|in_flight| in_flight.live).map(|i| &i.io);
        let engine = self.engine.as_ref().expect("a window opens while the volume is open");
        let mut coming = BTreeSet::new();
        for io in ios().filter(|io| io.leg.index() != frozen) {
            if let (LegOperation::Write { .. }, Some(at)) = (io.operation, io.buffer)
                && let Some(extent) = self.volume_extent(io)
            {
                let data = engine.buffers().part(at, extent.sectors());
                coming.extend((extent.start..).zip(data.iter().copied()));
            }
        }
        let contents = self.disks[frozen].contents();
        let may_be_newest =
            |&(sector, version): &(u64, u64)| self.register.may_be_newest(sector as usize, version);
        let mut alone: Vec<(u64, u64)> = (0..self.sectors())
            .map(|sector| (sector, contents[sector as usize]))
            .filter(|&(_, version)| version != 0)
            .filter(may_be_newest)
            .filter(|&(sector, version)| !others.iter().any(|&leg| has(leg, sector, version)))
            .filter(|piece| !coming.contains(piece))
            .collect();
        let mut versions = alone.iter().map(|&(_, version)| version).collect();
        let in_flight: Vec<_> = ios().filter_map(|io| io.buffer).map(|at| at.buffer).collect();
        engine.buffers().leave_out_kept(&mut versions, &in_flight);
        let region = |sector: u64| sector / (self.shape.region_bytes / SECTOR_BYTES);
        // A request over several regions is several operations. The copy of one that is done can be
        // given up while the buffer still serves the others.
        let in_parts: Vec<Extent> = (self.requests.iter())
            .filter(|pending| pending.live && pending.asked.operation == Operation::Write)
            .map(|pending| pending.asked.extent)
            .filter(|extent| {
                let spans = region(extent.start) != region(extent.end - 1);
                spans || extent.bytes() > self.settings.limits.operation_bytes
            })
            .collect();
        let is_part =
            |sector| in_parts.iter().any(|extent| extent.contains(Extent::new(sector, 1)));
        alone.retain(|(sector, version)| versions.contains(version) || is_part(*sector));
        let alone: BTreeSet<u64> = alone.into_iter().map(|(sector, _)| sector).collect();
        let regions: BTreeSet<u64> = alone.iter().map(|&sector| region(sector)).collect();
        let mut unflushed = self.disks[frozen].unflushed().map(region);
        let alone_unflushed = unflushed.any(|region| regions.contains(&region));
        self.stall.only_there = alone;
        self.stall.only_there_unflushed = alone_unflushed;
    }

    fn needs_what_is_alone(&self, extent: Extent) -> bool {
        self.stall.only_there.range(extent.start..extent.end).next().is_some()
    }

    /// Returns the regions that an extent touches, as one extent within the volume.
    pub(crate) fn whole_regions(&self, extent: Extent) -> Extent {
        let sectors = self.shape.region_bytes / SECTOR_BYTES;
        let end = extent.end.next_multiple_of(sectors).min(self.sectors());
        Extent { start: extent.start / sectors * sectors, end }
    }

    /// Returns true if a request rightly waits while the frozen leg is silent: see P4.
    pub(crate) fn is_excused(&self, asked: &Asked) -> bool {
        match asked.operation {
            // No leg can make data durable that only the frozen one has in its cache.
            Operation::Flush => self.stall.only_there_unflushed,
            Operation::Read => {
                // Or it is behind a write that waits rightly.
                let live = self.requests.iter().filter(|p| p.live).map(|p| &p.asked);
                let behind = |write: &Asked| {
                    !matches!(write.operation, Operation::Read | Operation::Flush)
                        && write.sent < asked.sent
                        && write.extent.overlaps(asked.extent)
                        && self.is_excused(write)
                };
                self.needs_what_is_alone(asked.extent)
                    || live.chain(&self.stall.excused).any(behind)
            }
            // No other leg has everything in the region, so none can decide it.
            _ => self.needs_what_is_alone(self.whole_regions(asked.extent)),
        }
    }

    /// Returns the shortest time of every other leg, if one is much faster than they are and all
    /// have been at their best for long.
    fn pace_of_the_others(&self) -> Option<u64> {
        let weather = self.weather;
        let plain = self.settings.policy == Policy::First
            && !weather.requests_may_fail()
            && !weather.gone
            && self.changing.is_none();
        let troubles = self.legs.iter().map(|leg| leg.disturbed.max(leg.frozen_until));
        let last = troubles.max()?.max(self.stall.started).max(self.stall.came_in);
        let trusted = self.legs.iter().map(|leg| leg.probation.end()).max()?;
        let on_probation = self.now < trusted + PACE_TRUSTED;
        let hangs = self.hung_leg().is_some();
        let waits_for_ticks = self.ticks_for_regions() > 0;
        // A leg that was behind decides a region only once the region has rested. Regions that are
        // cleaned to let others become dirty, and are soon written again, do not rest.
        let pressed = u64::from(self.settings.dirty_regions_max) < self.regions();
        // Authority returns from the slow legs a few regions per tick, each of which may need a
        // flush.
        let returns = self.settings.limits.returns_per_tick as u64;
        let calm = self.now.since(last) >= PACE_CALM + 2 * self.regions() / returns * TICK;
        if !plain || !calm || on_probation || hangs || waits_for_ticks || pressed {
            return None;
        }
        let (fast, leg) = self.legs.iter().enumerate().min_by_key(|(_, leg)| leg.longest())?;
        let others = self.legs.iter().enumerate().filter(|(other, _)| *other != fast);
        let slow = others.map(|(_, leg)| leg.latency + leg.serial).min()?;
        (slow >= UNLIKE * leg.longest()).then_some(slow)
    }

    /// Judges a write that came alone: long after the last trouble it must be answered at the fast
    /// leg's pace.
    fn check_pace(&mut self, pending: &Pending) {
        let asked = pending.asked;
        if self.stall.alone != asked.id || asked.operation != Operation::Write || asked.fua {
            return;
        }
        let Some(slow) = self.pace_of_the_others() else {
            self.stall.paced = (0, 0);
            return;
        };
        let bound = self.settings.exposure_bytes;
        let status = self.refresh_status();
        let settled = |l: &LegStatus| l.state == LegState::Healthy && l.owed_region_bytes == 0;
        let legs = status.legs.iter().filter(|leg| settled(leg)).count();
        let exposure = status.exposure_bytes;
        if legs < self.legs.len() || exposure > bound / 8 {
            return;
        }
        let (judged, late) = &mut self.stall.paced;
        *judged += 1;
        *late += u32::from(self.now.since(pending.started) >= slow);
        if *judged == PACE_WRITES {
            let late = *late;
            self.stall.paced = (0, 0);
            self.stall.paces += 1;
            if late >= PACE_WRITES / 2 {
                let text = format!("{late} of {PACE_WRITES} lone writes go at a slow leg's pace");
                self.broken("P4", text);
            }
        }
    }

    /// Closes the window after any step that brings writers near the exposure bound, because they
    /// are held back there. A request may get there by itself, part by part, before any is
    /// answered.
    pub(crate) fn watch_stall_window(&mut self) {
        if self.stall.opened.is_none() || !self.throttles() {
            return;
        }
        if self.is_much_exposed() {
            self.stall.close();
        }
    }

    pub(crate) fn is_much_exposed(&self) -> bool {
        let exposed = self.engine.as_ref().map_or(0, |engine| engine.exposure_bytes());
        exposed > self.settings.exposure_bytes / 4
    }

    /// Judges a request that is answered.
    pub(crate) fn check_stall(&mut self, pending: &Pending) {
        self.check_pace(pending);
        let Some(opened) = self.stall.opened else { return };
        if self.is_much_exposed() {
            self.stall.close();
            return;
        }
        if self.stall.flushes_only && pending.asked.operation != Operation::Flush {
            return;
        }
        let waited = self.now.min(self.stall.until).since(pending.started.max(opened));
        self.stall.judged += 1;
        self.stall.longest = self.stall.longest.max(waited);
        let allowance = self.allowance_of(&pending.asked);
        if waited > allowance && self.is_excused(&pending.asked) {
            self.stall.excused.push(pending.asked);
        } else if waited > allowance {
            let text = format!(
                "#{} {:?} waited {waited} ns for a frozen leg, {allowance} ns are allowed",
                pending.asked.id, pending.asked.operation
            );
            self.broken("P4", text);
        }
        if self.now > self.stall.until {
            self.stall.close();
        }
    }
}
