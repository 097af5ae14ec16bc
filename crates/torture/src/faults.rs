//! Faults that happen while hemi runs: freezes, slow legs, errors, dropped sessions.

use hemi_engine::command::{Command, ScrubRepair};
use hemi_engine::format::Layout;
use hemi_engine::io::{LegError, LegEvent, LegIo, LegOperation};
use hemi_engine::marks::Mark;
use hemi_engine::settings::Settings;
use hemi_engine::status::LegState;
use hemi_units::{Extent, Instant, SECTOR_BYTES};
use hemi_world::buffers::Pool;
use hemi_world::disk::Cache;

use crate::events::Event;
use crate::lies::Lie;
use crate::plan::{Ending, FOREVER, Fault, Start};
use crate::world::{CachesLost, World};

/// A kind of leg I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Writes of data.
    Writes,
    /// Metadata writes to the superblock.
    Superblocks,
    /// Metadata writes to the region table and the lost list.
    Pages,
    /// Reads into a client's own buffer.
    Reads,
    /// Reads into the engine's buffers: of drains and scrubs, and a client's read that starts over.
    OwnReads,
    /// Flushes.
    Flushes,
}

/// The number of kinds.
pub(crate) const KINDS: usize = Kind::ALL.len();

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 6] =
        [Kind::Writes, Kind::Superblocks, Kind::Pages, Kind::Reads, Kind::OwnReads, Kind::Flushes];

    /// Returns the kind of an I/O that is being started.
    pub(crate) fn of(io: &LegIo, buffers: &Pool) -> Kind {
        match io.operation {
            LegOperation::Write { .. } | LegOperation::WriteZeroes { .. } => Kind::Writes,
            LegOperation::WriteMetadata => {
                let address = io.extent.start * SECTOR_BYTES;
                let is_superblock = address <= Layout::superblock_address(1);
                if is_superblock { Kind::Superblocks } else { Kind::Pages }
            }
            LegOperation::Read => {
                let is_own = io.buffer.is_some_and(|at| buffers.is_engines(at.buffer));
                if is_own { Kind::OwnReads } else { Kind::Reads }
            }
            LegOperation::Flush => Kind::Flushes,
        }
    }
}

/// Formats a time for the trace.
fn told(time: u64) -> String {
    if time == FOREVER { "ever".into() } else { format!("{} ms", time as f64 / 1e6) }
}

/// A crash that comes once the engine has done something rare.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ambush {
    mark: Mark,
    /// The engine's count of the mark at which it comes.
    until: u64,
    /// The number of steps between the mark and the crash.
    steps: u32,
    ending: Ending,
    settings: Settings,
}

impl World {
    /// Carries out a crash that was laid, if its time has come. Called after each step.
    pub(crate) fn spring_ambush(&mut self) {
        let (Some(ambush), Some(engine)) = (&mut self.ambush, &self.engine) else { return };
        if engine.marks().count(ambush.mark) < ambush.until {
            return;
        }
        if ambush.steps > 0 {
            ambush.steps -= 1;
            return;
        }
        let Ambush { ending, settings, mark, .. } = *ambush;
        self.tell(|| format!("ambush after: {}", mark.name()));
        self.restart(ending, Start::All, settings, false);
    }

    /// Carries out a planned fault.
    pub(crate) fn strike(&mut self, fault: &Fault) {
        self.counts.faults += 1;
        let now = self.now;
        if !matches!(fault, Fault::Freeze(..) | Fault::Judge) {
            self.stall.close();
        }
        match *fault {
            Fault::Freeze(leg, time) => self.freeze(leg, time),
            Fault::Latency(leg, latency) => {
                self.tell(|| format!("leg {leg} has a latency of {latency} ns"));
                let behaviour = &mut self.legs[usize::from(leg)];
                (behaviour.latency, behaviour.disturbed) = (latency, now);
            }
            Fault::Serial(leg, serial) => {
                self.tell(|| format!("leg {leg} takes {serial} ns for each I/O, one by one"));
                let behaviour = &mut self.legs[usize::from(leg)];
                (behaviour.serial, behaviour.disturbed) = (serial, now);
            }
            Fault::Errors { leg, reads, writes, flushes } => {
                self.tell(|| {
                    format!(
                        "leg {leg} fails one in {reads} reads, {writes} writes, {flushes} flushes"
                    )
                });
                let behaviour = &mut self.legs[usize::from(leg)];
                behaviour.read_errors = reads;
                behaviour.write_errors = writes;
                behaviour.flush_errors = flushes;
                behaviour.disturbed = now;
            }
            Fault::Unreadable { leg, start, sectors } => {
                // Data that one leg alone holds and cannot read is gone: not survivable.
                let status = self.refresh_status();
                if status.legs.iter().any(|l| l.owed_bytes > 0 || l.state != LegState::Healthy) {
                    return;
                }
                self.tell(|| format!("leg {leg} cannot read {sectors} sectors from {start}"));
                let end = (start + sectors).min(self.sectors());
                self.disks[usize::from(leg)].make_unreadable(Extent { start, end });
            }
            Fault::BadBlock { leg, block } => self.spoil_block(leg, block),
            Fault::Gone { leg, removed, cache, back, zombies } => {
                self.session_drops(leg, removed, cache, back, zombies);
            }
            Fault::Members(leg) => self.change_members(leg),
            Fault::Remove(leg) => self.remove_leg(leg),
            Fault::Scrub(repair) => {
                let extent = Extent { start: 0, end: self.sectors() };
                let repair = if repair { ScrubRepair::Unreadable } else { ScrubRepair::Nothing };
                self.command(Command::Scrub { repair, extent });
            }
            Fault::ScrubStop => {
                self.command(Command::ScrubStop);
            }
            Fault::Lie { leg, kind, elsewhere } => {
                self.tell(|| {
                    let how = if elsewhere { "misdirected" } else { "lost" };
                    format!("leg {leg}: the next write of {kind:?} is {how}")
                });
                self.legs[usize::from(leg)].lie = Some(Lie { kind, elsewhere });
            }
            Fault::Hang { leg, kind, time } => {
                if time == FOREVER && !self.may_hang_forever(leg) {
                    return;
                }
                self.tell(|| format!("leg {leg}: {kind:?} hang for {}", told(time)));
                self.legs[usize::from(leg)].hang(kind, now + time);
            }
            Fault::Lose { leg, kind, count } => {
                if self.may_hang_forever(leg) {
                    self.tell(|| format!("leg {leg}: the next {count} {kind:?} never end"));
                    let behaviour = &mut self.legs[usize::from(leg)];
                    behaviour.loses[kind as usize] = count;
                    behaviour.disturbed = Instant::NEVER;
                }
            }
            Fault::Judge => self.judge_copies(),
            Fault::Ambush { mark, count, steps, ending, settings } => {
                self.tell(|| format!("ambush: {count} × {}, {steps} steps later", mark.name()));
                let until = self.engine().marks().count(mark) + u64::from(count);
                self.ambush = Some(Ambush { mark, until, steps, ending, settings });
            }
            Fault::Image(leg) => self.take_image(leg),
            Fault::PutBack { ending, stays, settings } => self.put_back(ending, stays, settings),
            Fault::Stop { stop, settings } => self.stop(stop, settings),
            Fault::Restart { ending, start, settings, reread } => {
                self.restart(ending, start, settings, reread);
            }
        }
    }

    fn freeze(&mut self, leg: u8, time: u64) {
        if time == FOREVER && !self.may_hang_forever(leg) {
            return;
        }
        let until = self.now + time;
        self.consider_stall_window(leg, until);
        self.tell(|| format!("leg {leg} freezes for {}", told(time)));
        let behaviour = &mut self.legs[usize::from(leg)];
        behaviour.frozen_until = behaviour.frozen_until.max(until);
    }

    /// Gives the engine a command and returns its number.
    pub(crate) fn command(&mut self, command: Command) -> u64 {
        self.next_command += 1;
        let (now, token) = (self.now, self.next_command);
        self.tell(|| format!("command {token}: {command:?}"));
        self.engine().command(now, token, command);
        self.take_actions();
        token
    }

    fn event(&mut self, leg: u8, event: LegEvent) {
        let now = self.now;
        self.trace.mix(u64::from(leg) << 8 | u64::from(event == LegEvent::Back));
        self.engine().leg_event(now, World::index(leg), event);
        self.take_actions();
    }

    /// Drops a session, with or without the leg's cache.
    pub(crate) fn session_drops(
        &mut self,
        leg: u8,
        removed: bool,
        cache: Cache,
        back: u64,
        zombies: Option<u64>,
    ) {
        let index = usize::from(leg);
        if self.legs[index].is_gone || self.legs[index].is_empty {
            return;
        }
        let status = self.refresh_status();
        let is_there = |state: LegState| !matches!(state, LegState::Gone | LegState::Empty);
        if !status.legs.iter().any(|l| l.leg == leg && is_there(l.state)) {
            return;
        }
        let others_have_all = status.legs.len() > 1
            && status.legs.iter().all(|other| {
                other.leg == leg || other.owed_bytes == 0 && other.state == LegState::Healthy
            });
        // With two caches lost at once nobody can tell which leg has what. Unflushed data may be
        // gone, and the flush reports so.
        let twice = self.cache_lost.is_some();
        if twice && !self.weather.caches {
            return;
        }
        let may_lose = self.weather.caches || others_have_all;
        let cache = if may_lose { cache } else { Cache::Kept };
        self.tell(|| {
            format!("leg {leg} goes (removed {removed}), its cache: {cache:?}, back in {back} ns")
        });
        let risks = twice || cache != Cache::Kept && !others_have_all;
        if risks {
            self.note_risks(leg);
        }
        let now = self.now;
        self.event(leg, LegEvent::Gone { removed });
        let behaviour = &mut self.legs[index];
        behaviour.is_gone = true;
        behaviour.times_gone += 1;
        behaviour.disturbed = now + back;
        let times = behaviour.times_gone;
        self.events.at(now + back, Event::Back(leg, times));
        match zombies {
            None => self.abort(leg, |_| true),
            Some(later) => {
                for in_flight in self.ios.iter_mut().filter(|i| i.live && i.io.leg.0 == leg) {
                    in_flight.zombie = true;
                }
                self.events.at(now + back + later, Event::ZombiesEnd(leg, times));
            }
        }
        if cache != Cache::Kept {
            self.disks[index].lose_cache(cache, &mut self.random);
            self.note_losses();
            let legs = self.cache_lost.map_or(0, |lost| lost.legs) | 1 << leg;
            self.cache_lost = Some(CachesLost { before: self.next_request(), legs });
        }
        if risks {
            self.unsure = true;
            let oldest_read = self.oldest_read();
            self.register.cache_lost(&self.at_risk, oldest_read);
        }
    }

    /// Notes the sectors whose newest data is only on this leg and on those whose sessions have
    /// dropped. Data that another leg is fresh for survives lost caches. (The volume's own account
    /// is good enough here: it must keep the data it claims to have.) Where flushes fail, the other
    /// may have lost its cache as well before this one is back.
    fn note_risks(&mut self, leg: u8) {
        if !self.unsure {
            self.at_risk.clear();
        }
        let sectors = self.sectors();
        self.at_risk.resize(sectors as usize, false);
        if self.weather.flush_errors {
            return self.at_risk.fill(true);
        }
        let mut at_risk = std::mem::take(&mut self.at_risk);
        self.note_only_on(leg, &mut at_risk);
        self.at_risk = at_risk;
    }

    /// Handles the return of a leg that lost its cache. Others give it the data it lost, except a
    /// leg that is silent and being marked out: a superblock may already record that one as out, so
    /// nobody may wait for it.
    fn note_silent_that_leave(&mut self, leg: u8) {
        if self.cache_lost.is_none_or(|lost| lost.legs >> leg & 1 == 0) {
            return;
        }
        if self.silent_that_leave() != 0 {
            self.lose_what_is_only_on(leg);
        }
    }

    /// Tells the checker that data no other leg has, as [`World::note_only_on`] finds, may be gone.
    fn lose_what_is_only_on(&mut self, leg: u8) {
        let mut at_risk = vec![false; self.sectors() as usize];
        self.note_only_on(leg, &mut at_risk);
        let oldest_read = self.oldest_read();
        self.register.cache_lost(&at_risk, oldest_read);
    }

    /// Returns the legs that are silent and being marked out, as a mask.
    fn silent_that_leave(&mut self) -> u8 {
        self.refresh_status();
        let engine = self.engine.as_ref().expect("legs are used while the volume is open");
        let legs = self.status.legs.iter().filter(|leg| leg.state == LegState::Frozen);
        let leaving = legs.map(|leg| leg.leg).filter(|&leg| engine.is_leaving(World::index(leg)));
        leaving.fold(0, |mask, leg| mask | 1 << leg)
    }

    /// Notes the sectors whose newest data is only on this leg, on those whose sessions have
    /// dropped, and on those that are silent and being marked out.
    fn note_only_on(&mut self, leg: u8, at_risk: &mut [bool]) {
        let sectors = at_risk.len() as u64;
        let leave = self.silent_that_leave();
        let there =
            |l: usize| l != usize::from(leg) && !self.legs[l].is_gone && leave >> l & 1 == 0;
        let others = (0..self.legs.len()).filter(|&l| there(l)).fold(0, |mask, l| mask | 1 << l);
        let mut at = 0;
        while at < sectors {
            let engine = self.engine.as_ref().expect("legs are used while the volume is open");
            let (part, fresh) = engine.copies(Extent { start: at, end: sectors });
            if fresh & others == 0 {
                at_risk[part.start as usize..part.end as usize].fill(true);
            }
            at = part.end;
        }
    }

    /// Handles a failed flush of a leg, after which its unflushed data must be presumed lost. Where
    /// another leg has lost its cache and has not yet been given back what this one had, neither
    /// can be relied on for it: what the other has stands, and flushes report so. Data covered by a
    /// successful flush is never lost this way, and once a flush sent after the other's loss
    /// succeeds, that leg has everything again.
    pub(crate) fn flush_fails(&mut self, leg: u8) {
        if self.cache_lost.is_none_or(|lost| lost.legs & !(1 << leg) == 0) {
            return;
        }
        self.lose_what_is_only_on(leg);
    }

    /// Ends I/O in flight on a leg, as a driver does that knows that none of it can land any more.
    /// Each I/O has landed in part or not at all.
    fn abort(&mut self, leg: u8, which: impl Fn(&crate::world::InFlight) -> bool) {
        let is_meant = |i: &crate::world::InFlight| i.live && i.io.leg.0 == leg && which(i);
        while let Some(slot) = self.ios.iter().position(is_meant) {
            self.end_io(slot as u32, Err(LegError::Gone));
        }
    }

    /// Ends I/O that was in flight when a leg's session dropped, because it cannot land any more.
    /// The driver does so even if the leg has been detached since. (A leg that joins after it finds
    /// none of it.)
    pub(crate) fn zombies_end(&mut self, leg: u8, times: u32) {
        let behaviour = &self.legs[usize::from(leg)];
        let is_this = behaviour.times_gone == times || behaviour.is_empty;
        if is_this && self.engine.is_some() {
            self.abort(leg, |in_flight| in_flight.zombie);
        }
    }

    /// Brings back a leg that was gone.
    pub(crate) fn leg_is_back(&mut self, leg: u8, times: u32) {
        let behaviour = &mut self.legs[usize::from(leg)];
        if behaviour.times_gone != times || !behaviour.is_gone || self.engine.is_none() {
            return;
        }
        behaviour.is_gone = false;
        self.tell(|| format!("leg {leg} is back"));
        if std::mem::take(&mut self.unsure) {
            self.unsure = self.legs.iter().any(|leg| leg.is_gone);
            let oldest_read = self.oldest_read();
            self.register.cache_lost(&self.at_risk, oldest_read);
        }
        self.note_silent_that_leave(leg);
        self.note_cache_lost(leg);
        self.event(leg, LegEvent::Back);
    }
}
