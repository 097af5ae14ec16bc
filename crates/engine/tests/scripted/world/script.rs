//! Helpers for tests that script every step: I/O held back and landed by hand, crashes in which
//! each I/O in flight lands as scripted, and a leg's records.

use hemi_engine::command::{Command, CommandError};
use hemi_engine::format::RegionEntry;
use hemi_engine::identifiers::{IoId, LegIndex};
use hemi_engine::io::{LegError, LegEvent, LegIo, LegOperation, Operation, OutReason};
use hemi_engine::recovery::{self, LegImage, Opening};
use hemi_engine::status::Status;
use hemi_units::{Extent, Instant, MILLISECOND, SECOND};
use hemi_world::disk::{Cache, Disk};

use super::landing::{Landing, lose_cache};
use super::{Behaviour, Pending, Random, World};

/// A kind of leg I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Anything,
    Reads,
    /// Data writes and zeroing.
    Writes,
    Flushes,
    Metadata,
}

impl What {
    pub fn is(self, operation: LegOperation) -> bool {
        match self {
            What::Anything => true,
            What::Reads => operation == LegOperation::Read,
            What::Writes => {
                matches!(operation, LegOperation::Write { .. } | LegOperation::WriteZeroes { .. })
            }
            What::Flushes => operation == LegOperation::Flush,
            What::Metadata => operation == LegOperation::WriteMetadata,
        }
    }
}

/// I/O of one leg that does not end by itself.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    pub leg: usize,
    pub what: What,
}

impl World {
    /// Gives a leg one steady latency.
    pub fn steady(&mut self, leg: usize, latency: u64) {
        self.behaviour[leg] = Behaviour { latency, jitter: 0, ..Behaviour::default() };
    }

    pub fn wait(&mut self, time: u64) {
        let until = self.now + time;
        self.run_until(until);
    }

    /// Lets no I/O of this kind end on a leg, neither later I/O nor I/O in flight.
    pub fn hold(&mut self, leg: usize, what: What) {
        self.holds.push(Hold { leg, what });
        for pending in &mut self.pending {
            if pending.io.leg.index() == leg && what.is(pending.io.operation) {
                pending.due = Instant::NEVER;
            }
        }
    }

    pub(super) fn is_held(&self, io: &LegIo) -> bool {
        self.holds.iter().any(|h| h.leg == io.leg.index() && h.what.is(io.operation))
    }

    /// Ends every hold on a leg, and with it the I/O held.
    pub fn release(&mut self, leg: usize) {
        self.let_come(leg);
        let now = self.now;
        for pending in &mut self.pending {
            if pending.io.leg.index() == leg && pending.due == Instant::NEVER {
                pending.due = now;
            }
        }
        self.wait(0);
    }

    /// Ends one hold on a leg, and the I/O that no other hold covers.
    pub fn release_kind(&mut self, leg: usize, what: What) {
        self.holds.retain(|hold| hold.leg != leg || hold.what != what);
        let now = self.now;
        let holds = std::mem::take(&mut self.holds);
        for pending in &mut self.pending {
            let held = |h: &Hold| h.leg == leg && h.what.is(pending.io.operation);
            if pending.io.leg.index() == leg && !holds.iter().any(held) {
                pending.due = pending.due.min(now);
            }
        }
        self.holds = holds;
        self.wait(0);
    }

    /// Ends every hold on a leg for later I/O. I/O already held stays so, to be landed by hand.
    pub fn let_come(&mut self, leg: usize) {
        self.holds.retain(|hold| hold.leg != leg);
    }

    /// Returns the I/O of a kind in flight on a leg, in order of submission.
    pub fn in_flight(&self, leg: usize, what: What) -> Vec<&Pending> {
        let wanted = |p: &&Pending| p.io.leg.index() == leg && what.is(p.io.operation);
        self.pending.iter().filter(wanted).collect()
    }

    pub fn ids(&self, leg: usize, what: What) -> Vec<IoId> {
        self.in_flight(leg, what).iter().map(|p| p.io.id).collect()
    }

    /// Returns the one I/O of a kind in flight on a leg.
    pub fn only(&self, leg: usize, what: What) -> IoId {
        let found = self.in_flight(leg, what);
        assert_eq!(found.len(), 1, "one of {what:?} in flight on leg {leg}: {found:#?}");
        found[0].io.id
    }

    /// Returns true if a kind of I/O is in flight on a leg for any sector of a volume extent.
    pub fn is_in_flight(&self, leg: usize, what: What, extent: Extent) -> bool {
        let offset = self.data_start();
        let on_leg = Extent { start: extent.start + offset, end: extent.end + offset };
        self.in_flight(leg, what).iter().any(|p| p.io.extent.overlaps(on_leg))
    }

    /// Returns true if a superblock is in flight to a leg.
    pub fn is_told(&self, leg: usize) -> bool {
        /// The end of both superblock slots, in sectors.
        const SUPERBLOCKS: u64 = 256;
        self.in_flight(leg, What::Metadata).iter().any(|p| p.io.extent.start < SUPERBLOCKS)
    }

    pub fn data_start(&self) -> u64 {
        self.disks[0].metadata.len() as u64 / 512
    }

    /// Ends an I/O now.
    pub fn land(&mut self, id: IoId) {
        let index = self.complete_id(id).expect("it is in flight");
        self.finish(index);
    }

    /// Ends an I/O now with an error, and nothing of it lands.
    pub fn fail(&mut self, id: IoId) {
        let index = self.complete_id(id).expect("it is in flight");
        self.pending.remove(index);
        let now = self.now;
        self.engine().complete(now, id, Err(LegError::Media));
        self.take_actions();
    }

    /// Lands an I/O on the medium, but holds its completion back.
    pub fn land_silently(&mut self, id: IoId, landing: Landing) {
        let index = self.complete_id(id).expect("it is in flight");
        let pending = self.pending[index].clone();
        pending.land_as(&mut self.disks[pending.io.leg.index()], landing);
    }

    /// Ends every I/O in flight on a leg with an error, as a driver does that knows that none of it
    /// can land any more. Each lands as `landing` says, or else at random.
    pub fn abort(&mut self, leg: usize, landing: impl Fn(&mut Random) -> Option<Landing>) {
        while let Some(index) = self.pending.iter().position(|p| p.io.leg.index() == leg) {
            let pending = self.pending.remove(index);
            self.give_up(&pending, &landing);
        }
    }

    /// Does what [`World::abort`] does at random, but not in order of submission.
    pub fn abort_swapping(&mut self, leg: usize) {
        while let Some(index) = self.pending.iter().position(|p| p.io.leg.index() == leg) {
            let pending = self.pending.swap_remove(index);
            self.give_up(&pending, |_| None);
        }
    }

    /// Does what [`World::abort`] does at random, but only with I/O that does not end by itself.
    pub fn abort_held(&mut self, leg: usize) {
        let zombie = |p: &Pending| p.io.leg.index() == leg && p.due == Instant::NEVER;
        while let Some(index) = self.pending.iter().position(zombie) {
            let pending = self.pending.remove(index);
            self.give_up(&pending, |_| None);
        }
    }

    fn give_up(&mut self, pending: &Pending, landing: impl Fn(&mut Random) -> Option<Landing>) {
        let mut random = Random(self.random.next());
        let disk = &mut self.disks[pending.io.leg.index()];
        match landing(&mut random) {
            Some(landing) => pending.land_as(disk, landing),
            None => pending.land_partly(disk, &mut random),
        }
        let now = self.now;
        self.engine().complete(now, pending.io.id, Err(LegError::Gone));
        self.take_actions();
    }

    pub fn event(&mut self, leg: usize, event: LegEvent) {
        let now = self.now;
        self.engine().leg_event(now, LegIndex(leg as u8), event);
        self.take_actions();
    }

    /// Ends hemi at once, and with `cache` cuts power too. Each I/O in flight lands as `landing`
    /// says.
    pub fn crash(&mut self, cache: Option<Cache>, mut landing: impl FnMut(&Pending) -> Landing) {
        for pending in std::mem::take(&mut self.pending) {
            let lands = landing(&pending);
            pending.land_as(&mut self.disks[pending.io.leg.index()], lands);
        }
        self.engine = None;
        self.requests.clear();
        self.holds.clear();
        match cache {
            Some(cache) => self.lose_power(cache),
            None => self.note_killed(),
        }
    }

    /// Returns a copy of the world without hemi.
    pub fn without_engine(&self) -> World {
        World {
            engine: None,
            random: Random(self.random.0),
            settings: self.settings,
            disks: self.disks.clone(),
            behaviour: self.behaviour.clone(),
            fast_zeroes: self.fast_zeroes.clone(),
            pending: self.pending.clone(),
            holds: self.holds.clone(),
            busy_until: self.busy_until.clone(),
            register: self.register.clone(),
            requests: self.requests.clone(),
            notices: Vec::new(),
            commands: Default::default(),
            failed: Vec::new(),
            machine: self.machine.clone(),
            ..*self
        }
    }

    /// Runs until every leg in use is whole.
    pub fn converge_what_is_in(&mut self) {
        let end = self.now + 120 * SECOND;
        loop {
            let status = self.status();
            let detached = Some(OutReason::Detached);
            let left = status.legs.iter().any(|leg| leg.out_reason == detached);
            let apart = left || self.opened < self.disks.len();
            if status.converged || apart && status.dirty_regions == status.armed_regions {
                return;
            }
            assert!(self.now < end, "not converged");
            self.wait(50 * MILLISECOND);
        }
    }

    /// Makes a leg differ throughout an extent from anything that was written there, so that
    /// comparing it amounts to copying it.
    pub fn make_differ(&mut self, leg: usize, extent: Extent) {
        for sector in extent.start..extent.end {
            self.disks[leg].corrupt(sector as usize, 1 << 40);
        }
    }

    /// Puts a new disk in place of a leg's, for a leg that joins. Every sector reads as `version`.
    pub fn put_in_new_disk(&mut self, leg: usize, version: u64) {
        let size = self.disks[leg].metadata.len();
        self.disks[leg] = Disk::new(size, self.sectors as usize, version);
    }

    /// Drops a leg's device or session, and with it the cache as `cache` says.
    pub fn lose_leg(&mut self, leg: usize, cache: Cache) {
        self.event(leg, LegEvent::Gone { removed: false });
        self.abort(leg, |_| None);
        if cache != Cache::Kept {
            lose_cache(&mut self.disks[leg], cache, &mut self.random);
        }
        self.cache_lost = Some(self.next_token);
    }

    /// Notes that hemi has been killed. If a leg had just lost its cache and no flush was answered
    /// since, this is as bad as a power cut: recovery cannot know of the loss.
    pub(super) fn note_killed(&mut self) {
        if self.cache_lost.take().is_some() {
            self.register.killed_with_cache_lost();
        } else {
            self.register.killed();
        }
    }

    pub fn is_answered(&self, token: u64) -> bool {
        !self.requests.contains_key(&token)
    }

    /// Writes and waits for the acknowledgement.
    pub fn write(&mut self, start: u64, count: u64) -> u64 {
        let token = self.submit(Operation::Write, Extent::new(start, count), false);
        self.run_until_answered(20 * SECOND);
        token
    }

    pub fn flush(&mut self) -> u64 {
        let token = self.submit(Operation::Flush, Extent::default(), false);
        self.run_until_answered(20 * SECOND);
        token
    }

    pub fn read(&mut self, start: u64, count: u64) -> u64 {
        let token = self.submit(Operation::Read, Extent::new(start, count), false);
        self.run_until_answered(20 * SECOND);
        token
    }

    pub fn has_failed(&self, token: u64) -> bool {
        self.failed.iter().any(|(failed, _)| *failed == token)
    }

    pub fn status(&mut self) -> Status {
        let mut status = Status::default();
        let now = self.now;
        self.engine().status(now, &mut status);
        status
    }

    pub fn command(&mut self, command: Command) -> Result<(), CommandError> {
        let token = 1_000_000 + self.commands.len() as u64;
        let now = self.now;
        self.engine().command(now, token, command);
        self.take_actions();
        let end = self.now + 60 * SECOND;
        while !self.commands.contains_key(&token) {
            assert!(self.now < end, "the command {command:?} does not end");
            self.wait(10 * MILLISECOND);
        }
        self.commands[&token]
    }

    pub fn images(&self) -> Vec<LegImage<'_>> {
        self.disks.iter().map(|disk| LegImage { bytes: &disk.metadata }).collect()
    }

    /// Returns recovery's result for the legs as they are.
    pub fn recovered(&self) -> Opening {
        recovery::assess(&self.images()).expect("the legs can decide")
    }

    pub fn recorded(&self, region: usize) -> RegionEntry {
        self.recovered().table[region]
    }

    /// Makes one leg decide alone, as `hemi promote` does.
    pub fn promote(&mut self, leg: usize) -> Vec<Extent> {
        let image = LegImage { bytes: &self.disks[leg].metadata };
        let half = self.random.next().to_le_bytes();
        let generation = std::array::from_fn(|byte| half[byte % 8]);
        let promotion = recovery::promote(image, generation).expect("it can be promoted");
        for (address, block) in &promotion.writes {
            self.disks[leg].write_metadata(*address, block, 0xFF);
        }
        promotion.lacks
    }

    pub(super) fn check_alignment(&self, io: &LegIo) {
        let block = self.shape.block_sectors;
        let whole = io.extent.start.is_multiple_of(block) && io.extent.end.is_multiple_of(block);
        assert!(whole, "I/O cuts a logical block of {block} sectors: {io:?}");
    }
}
