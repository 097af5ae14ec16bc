//! A small world in memory for the engine, in which a test decides when each I/O ends and how: legs
//! with delays, freezes and errors, clients, kills and power cuts. Disks, buffers, the machine and
//! the register that judges reads are those of the torture ([`hemi_world`]).
//!
//! Faults that come at random are of these kinds:
//!
//! - data: a write in flight at a kill or a power cut lands sector by sector or not. A write that
//!   was completed but not flushed at a power cut is kept, dropped or rolled back to any version
//!   since the last flush, sector by sector;
//! - metadata: a write in flight lands sector by sector or not. A completed one is durable;
//! - any I/O can fail transiently, and be held up for as long as a freeze lasts.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test file uses its part")]

pub mod landing;
pub mod script;

use std::collections::BTreeMap;

use hemi_engine::command::{Command, CommandError};
use hemi_engine::engine::Engine;
use hemi_engine::format::Layout;
use hemi_engine::identifiers::{BufferAt, IoId, LEGS_MAX};
use hemi_engine::io::{
    Action, Buffers, LegError, LegIo, LegOperation, LegTraits, Notice, Operation, Reply, Request,
};
use hemi_engine::marks::Mark;
use hemi_engine::recovery::{self, LegImage, Refusal};
use hemi_engine::settings::Settings;
use hemi_units::{Extent, Instant, MICROSECOND, MILLISECOND, SECOND};
use hemi_world::buffers::{POISON, Pool};
use hemi_world::create;
use hemi_world::disk::{Cache, Disk};
use hemi_world::machine::Machine;
use hemi_world::register::{Asked, Register};

use landing::lose_cache;

/// SplitMix64, a test's only source of randomness. Seeds of tests name runs only as long as it
/// stays the same.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        hemi_random::split_mix(&mut self.0)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

pub const REGION_BYTES: u64 = 64 << 10;
pub const VOLUME_BYTES: u64 = 1 << 20;
pub const SECTORS: u64 = VOLUME_BYTES / 512;

/// An I/O in flight on a leg.
#[derive(Clone, Debug)]
pub struct Pending {
    pub due: Instant,
    pub io: LegIo,
    pub data: Vec<u64>,
    pub metadata: Option<Box<[u8; 4096]>>,
    /// The count of completed writes at its submission, which a flush covers.
    pub flush_mark: u32,
}

/// The behaviour of a leg.
#[derive(Clone, Copy)]
pub struct Behaviour {
    pub latency: u64,
    pub jitter: u64,
    pub frozen_until: Instant,
    /// The leg serves its I/Os one by one, each in this time, or in parallel if zero.
    pub serial: u64,
    /// One I/O in this many takes this long, or none if zero.
    pub lost_sight: (u64, u64),
    /// One I/O in this many fails, or none if zero.
    pub read_errors: u64,
    pub write_errors: u64,
    pub flush_errors: u64,
    /// Writes that touch this extent have no space.
    pub full: Extent,
    /// Metadata writes that touch this extent fail.
    pub unwritable: Extent,
    /// Reads that touch this extent fail.
    pub unreadable: Extent,
}

impl Default for Behaviour {
    fn default() -> Behaviour {
        Behaviour {
            latency: 50 * MICROSECOND,
            jitter: 100 * MICROSECOND,
            frozen_until: Instant(0),
            serial: 0,
            lost_sight: (0, 0),
            read_errors: 0,
            write_errors: 0,
            flush_errors: 0,
            full: Extent::default(),
            unwritable: Extent::default(),
            unreadable: Extent::default(),
        }
    }
}

/// The parameters of a volume and its legs.
#[derive(Clone, Copy)]
pub struct Shape {
    pub volume_bytes: u64,
    pub region_bytes: u64,
    /// The legs' logical block: every data I/O has to be a multiple of it.
    pub block_sectors: u64,
    /// The sectors of buffers beside those of requests.
    pub memory_sectors: u64,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            volume_bytes: VOLUME_BYTES,
            region_bytes: REGION_BYTES,
            block_sectors: 1,
            memory_sectors: 4096,
        }
    }
}

pub struct World {
    pub shape: Shape,
    pub sectors: u64,
    pub random: Random,
    pub now: Instant,
    pub engine: Option<Engine<Pool>>,
    pub settings: Settings,
    pub disks: Vec<Disk>,
    pub behaviour: Vec<Behaviour>,
    pub fast_zeroes: Vec<bool>,
    /// The volume is served with a ledger.
    pub has_ledger: bool,
    pub machine: Machine,
    /// The number of legs that the volume was opened with.
    pub opened: usize,
    pub pending: Vec<Pending>,
    /// I/O of these kinds does not end by itself.
    pub holds: Vec<script::Hold>,
    /// The time at which each leg is done with the I/Os that it serves one by one.
    pub busy_until: Vec<Instant>,
    pub register: Register,
    pub requests: BTreeMap<u64, Asked>,
    pub next_token: u64,
    pub next_version: u64,
    pub notices: Vec<Notice>,
    pub closed: bool,
    pub commands: BTreeMap<u64, Result<(), CommandError>>,
    /// A leg lost its cache before this request, and no later flush has been answered yet.
    pub cache_lost: Option<u64>,
    pub thorough: bool,
    /// The number of thorough looks at the engine.
    pub looks: u64,
    /// The steps that the engine has taken for moves of authority since it was opened, and the most of one input.
    pub move_steps: (u64, u64),
    /// The token of a detach of a leg that answers, and the leg.
    pub detaching: Option<(u64, usize)>,
    pub trace: bool,
    pub failed_requests: u64,
    /// The flushes that legs were sent.
    pub flushes: u64,
    pub failed: Vec<(u64, Operation)>,
}

pub fn fast() -> LegTraits {
    LegTraits { present: true, fast_zeroes: true, thin: true, ..LegTraits::default() }
}

pub fn settings() -> Settings {
    Settings {
        requests_max: 64,
        dirty_regions_max: 8,
        owed_extents_max: 64,
        exposure_bytes: 256 << 10,
        copies_reserve: 0,
        leg_window: 8,
        drain_bytes: 16 << 10,
        clean_after: 300 * MILLISECOND,
        resync_bytes: 0,
        out_after: 3000 * MILLISECOND,
        ..Settings::default()
    }
}

/// A time longer than any wait limit of [`calm`] settings.
pub const LONG: u64 = 60 * MILLISECOND;

/// Returns settings in which every wait limit is 20 ms, with nothing cleaned, marked out or
/// throttled meanwhile.
pub fn calm() -> Settings {
    Settings {
        wait_floor: 20 * MILLISECOND,
        wait_ceiling: 20 * MILLISECOND,
        clean_after: 1000 * SECOND,
        resync_bytes: 0,
        out_after: 1000 * SECOND,
        exposure_bytes: 64 << 20,
        exposure_age: 1000 * SECOND,
        ..settings()
    }
}

/// Returns `legs` legs of one steady latency.
pub fn steady_legs(legs: usize, settings: Settings) -> World {
    let mut world = World::new(1, legs, settings);
    for leg in 0..legs {
        world.steady(leg, 100 * MICROSECOND);
    }
    world.wait(LONG);
    world
}

impl World {
    pub fn new(seed: u64, legs: usize, settings: Settings) -> World {
        World::of_shape(seed, legs, settings, Shape::default())
    }

    pub fn of_shape(seed: u64, legs: usize, settings: Settings, shape: Shape) -> World {
        World::made(seed, legs, settings, shape, false)
    }

    /// Creates a volume that relies on a ledger.
    pub fn with_ledger(seed: u64, legs: usize, settings: Settings) -> World {
        World::made(seed, legs, settings, Shape::default(), true)
    }

    fn made(seed: u64, legs: usize, settings: Settings, shape: Shape, has_ledger: bool) -> World {
        plant();
        let layout =
            Layout::new(shape.volume_bytes, shape.region_bytes).expect("tests give good sizes");
        let sectors = layout.volume_sectors();
        let mut disks = vec![Disk::default(); legs];
        for (leg, disk) in disks.iter_mut().enumerate() {
            create::format(disk, layout, legs, leg, shape.block_sectors);
        }
        let mut register = Register::default();
        register.reset(sectors as usize);
        let mut world = World {
            shape,
            sectors,
            random: Random(seed),
            now: Instant(1),
            engine: None,
            settings,
            disks,
            behaviour: vec![Behaviour::default(); legs],
            fast_zeroes: vec![true; legs],
            has_ledger,
            machine: Machine::default(),
            opened: 0,
            pending: Vec::new(),
            holds: Vec::new(),
            busy_until: vec![Instant(0); legs],
            register,
            requests: BTreeMap::new(),
            next_token: 1,
            next_version: 1,
            notices: Vec::new(),
            closed: false,
            commands: BTreeMap::new(),
            cache_lost: None,
            thorough: true,
            move_steps: (0, 0),
            looks: 0,
            detaching: None,
            trace: std::env::var_os("TRACE").is_some(),
            failed_requests: 0,
            flushes: 0,
            failed: Vec::new(),
        };
        let all: Vec<usize> = (0..legs).collect();
        world.open(&all).expect("a fresh volume opens");
        world
    }

    /// Opens the volume with some of its legs.
    pub fn open(&mut self, legs: &[usize]) -> Result<(), Refusal> {
        let images: Vec<LegImage> =
            legs.iter().map(|&l| LegImage { bytes: &self.disks[l].metadata }).collect();
        let opening =
            self.machine.with_outlived(|outlived| recovery::assess_outlived(&images, outlived))?;
        let ledger = self.machine.ledger_for(&opening, self.has_ledger);
        let mut traits = [LegTraits::default(); LEGS_MAX];
        for &leg in legs {
            traits[leg] = LegTraits { fast_zeroes: self.fast_zeroes[leg], ..fast() };
        }
        let pool = Pool::exact(self.shape.memory_sectors);
        let entropy = self.random.next();
        self.closed = false;
        self.move_steps.0 = 0;
        self.opened = legs.len();
        self.engine =
            Some(Engine::open(opening, self.settings, traits, ledger, pool, self.now, entropy));
        self.take_actions();
        Ok(())
    }

    pub fn engine(&mut self) -> &mut Engine<Pool> {
        self.engine.as_mut().expect("the volume is open")
    }

    /// Performs the engine's actions until it has none.
    pub fn take_actions(&mut self) {
        while let Some(action) = self.engine().next_action() {
            match action {
                Action::Leg(io) => self.submit_io(io),
                Action::Reply(reply) => self.take_reply(reply),
                Action::CommandDone { token, result } => {
                    if result.is_ok() {
                        self.check_detached(token);
                    }
                    self.commands.insert(token, result);
                }
                Action::Notice(notice) => {
                    if self.trace {
                        println!("{:>12} {notice:?}", self.now.0);
                    }
                    self.notices.push(notice);
                }
                Action::Closed => self.closed = true,
            }
        }
        let steps = self.engine().move_steps();
        let (before, most) = self.move_steps;
        self.move_steps = (steps, most.max(steps - before));
        if self.thorough {
            self.engine().check_thoroughly();
            self.check_recovery();
        }
    }

    /// Checks now and then what a kill at this instant would leave, with none of the I/O in flight landed. Once a leg
    /// has lost its cache a kill may be as bad as a power cut.
    fn check_recovery(&mut self) {
        const ONE_IN: u64 = 8;
        const LOSSES: [Mark; 4] = [
            Mark::FlushFailed,
            Mark::CacheLostAlone,
            Mark::CacheLostWithPeer,
            Mark::CacheLostWithoutPeer,
        ];
        self.looks += 1;
        let serving = self.engine.as_ref().filter(|engine| engine.is_serving());
        let Some(engine) = serving.filter(|_| self.looks.is_multiple_of(ONE_IN)) else { return };
        if self.cache_lost.is_some() || LOSSES.iter().any(|&mark| engine.marks().count(mark) > 0) {
            return;
        }
        let images = self.images();
        let found =
            self.machine.with_outlived(|outlived| recovery::assess_outlived(&images, outlived));
        if let Ok(found) = found {
            engine.check_recovery(&found);
        }
    }

    /// Checks P8: a leg that has been detached holds what a client would read now.
    fn check_detached(&mut self, token: u64) {
        let Some((_, leg)) = self.detaching.take_if(|(detach, _)| *detach == token) else { return };
        let silent = |n: &Notice| matches!(n, Notice::Frozen { leg: l, .. } if l.index() == leg);
        if self.notices.iter().any(silent) {
            return;
        }
        let now = self.register.tick();
        for (sector, &value) in self.disks[leg].contents().iter().enumerate() {
            if !self.register.allows(sector, value, now) {
                panic!("P8 broken: {}", self.register.describe(sector, value, now).text);
            }
        }
    }

    fn submit_io(&mut self, io: LegIo) {
        let leg = io.leg.index();
        let behaviour = self.behaviour[leg];
        let mut due = self.now + behaviour.latency;
        if behaviour.jitter > 0 {
            due = due + self.random.below(behaviour.jitter);
        }
        due = due.max(behaviour.frozen_until + self.random.below(1000));
        if behaviour.serial > 0 {
            due = due.max(self.busy_until[leg]) + behaviour.serial;
            self.busy_until[leg] = due;
        }
        let (one_in, time) = behaviour.lost_sight;
        if one_in > 0 && self.random.one_in(one_in) {
            due = self.now + time;
        }
        if self.is_held(&io) {
            due = Instant::NEVER;
        }
        self.check_alignment(&io);
        let data = match (io.operation, io.buffer) {
            (LegOperation::Write { .. }, Some(at)) => {
                self.engine().buffers().part(at, io.extent.sectors()).to_vec()
            }
            (LegOperation::WriteZeroes { .. }, _) => vec![0; io.extent.sectors() as usize],
            _ => Vec::new(),
        };
        let metadata = (io.operation == LegOperation::WriteMetadata)
            .then(|| Box::new(*self.engine().metadata_bytes(io.id)));
        self.flushes += u64::from(io.operation == LegOperation::Flush);
        let flush_mark = self.disks[leg].mark();
        if self.trace {
            println!("{:>12} submit {io:?} due {}", self.now.0, due.0);
            if let Some(block) = metadata.as_ref().filter(|_| io.extent.start >= 2048) {
                let entry = |i: usize| u16::from_le_bytes([block[512 + 2 * i], block[513 + 2 * i]]);
                let entries: Vec<u16> = (0..16).map(entry).collect();
                println!("{:>12} page {entries:03x?}", self.now.0);
            }
        }
        self.pending.push(Pending { due, io, data, metadata, flush_mark });
    }

    /// Freezes a leg: I/O in flight and later I/O ends no sooner than `until`.
    pub fn freeze(&mut self, leg: usize, until: Instant) {
        self.behaviour[leg].frozen_until = until;
        for pending in &mut self.pending {
            if pending.io.leg.index() == leg {
                pending.due = pending.due.max(until + self.random.below(1000));
            }
        }
    }

    /// Ends the I/O at `index` of the pending list.
    pub fn finish(&mut self, index: usize) {
        let pending = self.pending.swap_remove(index);
        let leg = pending.io.leg.index();
        let behaviour = self.behaviour[leg];
        let rate = match pending.io.operation {
            LegOperation::Read => behaviour.read_errors,
            LegOperation::Flush => behaviour.flush_errors,
            _ => behaviour.write_errors,
        };
        let data = !matches!(pending.io.operation, LegOperation::Read | LegOperation::Flush)
            && pending.metadata.is_none();
        let full = data && pending.io.extent.overlaps(behaviour.full);
        let unreadable = pending.io.operation == LegOperation::Read
            && pending.io.extent.overlaps(behaviour.unreadable);
        let unwritable =
            pending.metadata.is_some() && pending.io.extent.overlaps(behaviour.unwritable);
        let failed = rate > 0 && self.random.one_in(rate) || full || unreadable || unwritable;
        if failed {
            // A failed write may have landed in part.
            pending.land_partly(&mut self.disks[leg], &mut self.random);
        } else {
            pending.land(&mut self.disks[leg]);
        }
        if let (LegOperation::Read, Some(at)) = (pending.io.operation, pending.io.buffer) {
            let engine = self.engine.as_mut().expect("I/O ends before hemi does");
            let into = engine.buffers_mut().part_mut(at, pending.io.extent.sectors());
            if failed {
                // A failed read leaves rubbish behind.
                into.fill(POISON);
            } else {
                into.copy_from_slice(self.disks[leg].read(pending.io.extent));
            }
        }
        let error = if full { LegError::NoSpace } else { LegError::Media };
        let result = if failed { Err(error) } else { Ok(()) };
        let (now, id) = (self.now, pending.io.id);
        if self.trace {
            println!("{:>12} done {:?} {result:?}", self.now.0, pending.io);
        }
        self.engine().complete(now, id, result);
        self.take_actions();
    }

    /// Lets time pass until `until`.
    pub fn run_until(&mut self, until: Instant) {
        while self.step(until) {}
        self.now = self.now.max(until);
    }

    /// Performs the next event: an I/O ends or a timer is due. Returns false if there is none by
    /// `until`.
    pub fn step(&mut self, until: Instant) -> bool {
        let first = self.pending.iter().enumerate().min_by_key(|(_, p)| (p.due, p.io.id));
        let (index, next_io) = first.map_or((0, Instant::NEVER), |(index, p)| (index, p.due));
        let deadline = self.engine().deadline();
        let next = next_io.min(deadline);
        if next > until {
            return false;
        }
        self.now = self.now.max(next);
        if next_io <= deadline {
            self.finish(index);
        } else {
            let now = self.now;
            self.engine().tick(now);
            self.take_actions();
        }
        true
    }

    /// Lets at most `limit` nanoseconds pass until every request is answered.
    pub fn run_until_answered(&mut self, limit: u64) {
        let end = self.now + limit;
        while !self.requests.is_empty() {
            let step = self.now + MILLISECOND;
            if step > end {
                let status = self.status();
                let legs: Vec<_> = status.legs.iter().map(|l| (l.state, l.owed_bytes)).collect();
                panic!(
                    "requests unanswered after {limit} ns, {} bytes exposed, legs {legs:?}: {:?}",
                    status.exposure_bytes, self.requests
                );
            }
            self.run_until(step);
        }
    }

    pub fn can_submit(&mut self) -> bool {
        self.engine().has_room()
    }

    pub fn submit(&mut self, operation: Operation, extent: Extent, fua: bool) -> u64 {
        self.submit_on(1, operation, extent, fua)
    }

    /// Submits a request of one of several connections.
    pub fn submit_on(
        &mut self,
        connection: u32,
        operation: Operation,
        extent: Extent,
        fua: bool,
    ) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        let mut version = 0;
        if operation == Operation::Write {
            version = self.next_version;
            self.next_version += 1;
        }
        let buffer = self.engine().buffers_mut().take_for(operation, extent, version);
        let request = Request { token, operation, extent, buffer, fua, connection };
        if self.trace {
            println!("{:>12} {request:?} version {version}", self.now.0);
        }
        let sent = self.register.tick();
        let asked = Asked { id: token as u32, sent, operation, extent, fua };
        if !matches!(operation, Operation::Read | Operation::Flush) {
            let oldest_read = self.oldest_read();
            self.register.sent(&asked, version, oldest_read);
        }
        self.requests.insert(token, asked);
        let now = self.now;
        self.engine().submit(now, request);
        self.take_actions();
        token
    }

    /// Returns the time, by the register's clock, at which the oldest unanswered read was sent.
    fn oldest_read(&self) -> u32 {
        let reads = self.requests.values().filter(|asked| asked.operation == Operation::Read);
        reads.map(|asked| asked.sent).min().unwrap_or(u32::MAX)
    }

    fn take_reply(&mut self, reply: Reply) {
        let asked = self.requests.remove(&reply.token).expect("each request is answered once");
        if self.trace {
            println!("{:>12} reply {reply:?}", self.now.0);
        }
        let succeeded = reply.result.is_ok();
        let flushed = asked.operation == Operation::Flush && succeeded;
        if flushed && self.cache_lost.is_some_and(|lost| reply.token >= lost) {
            self.cache_lost = None;
        }
        if !succeeded {
            self.failed_requests += 1;
            // A FUA write may end with a flush, and reports what a flush would.
            let told = if asked.fua { Operation::Flush } else { asked.operation };
            self.failed.push((reply.token, told));
        }
        let read = reply.buffer.filter(|_| asked.operation == Operation::Read);
        let engine = self.engine.as_ref().expect("it has just answered");
        let data = read.map(|buffer| {
            engine.buffers().part(BufferAt { buffer, offset: 0 }, asked.extent.sectors())
        });
        if let Err(violation) = self.register.answered(&asked, succeeded, data) {
            panic!("{} broken: {}", violation.promise, violation.text);
        }
        if let Some(buffer) = reply.buffer {
            self.engine().buffers_mut().release(buffer);
        }
    }

    /// Tells the register that a leg lost its cache, and possibly nobody else had the data.
    pub fn note_cache_lost(&mut self) {
        let oldest_read = self.oldest_read();
        self.register.cache_lost(&vec![true; self.sectors as usize], oldest_read);
    }

    /// Kills hemi: I/O in flight lands in part, and the disks go on.
    pub fn kill(&mut self) {
        self.end();
        self.note_killed();
    }

    /// Cuts the power of everything.
    pub fn power_cut(&mut self) {
        self.end();
        self.lose_power(Cache::Any);
    }

    fn end(&mut self) {
        for pending in std::mem::take(&mut self.pending) {
            pending.land_partly(&mut self.disks[pending.io.leg.index()], &mut self.random);
        }
        self.engine = None;
        self.requests.clear();
    }

    fn lose_power(&mut self, cache: Cache) {
        for disk in &mut self.disks {
            lose_cache(disk, cache, &mut self.random);
        }
        self.machine.lose_power();
        self.register.power_cut();
    }

    /// Reads the whole volume, which the register judges.
    pub fn read_everything(&mut self) {
        let step = 64;
        for start in (0..self.sectors).step_by(step as usize) {
            self.submit(Operation::Read, Extent::new(start, step.min(self.sectors - start)), false);
            self.run_until_answered(20_000 * MILLISECOND);
        }
    }

    /// Runs until every leg is whole, then compares them sector by sector.
    pub fn converge(&mut self) {
        for behaviour in &mut self.behaviour {
            behaviour.read_errors = 0;
            behaviour.write_errors = 0;
            behaviour.flush_errors = 0;
        }
        let end = self.now + 120_000 * MILLISECOND;
        loop {
            let step = self.now + 50 * MILLISECOND;
            self.run_until(step);
            let status = self.status();
            if status.converged {
                break;
            }
            let legs: Vec<_> = status.legs.iter().map(|l| (l.state, l.owed_bytes)).collect();
            let dirty = status.dirty_regions;
            assert!(self.now < end, "not converged: {legs:?}, {dirty} regions are dirty");
        }
        let data: Vec<&[u64]> = self.disks.iter().map(Disk::contents).collect();
        for (leg, contents) in data.iter().enumerate().skip(1) {
            for (sector, (a, b)) in data[0].iter().zip(*contents).enumerate() {
                assert_eq!(a, b, "sector {sector} differs between leg 0 and leg {leg}");
            }
        }
    }

    pub fn close(&mut self) {
        let now = self.now;
        let drain_until = now + 10_000 * MILLISECOND;
        self.engine().command(now, 1 << 60, Command::Close { drain_until });
        self.take_actions();
        let end = now + 60_000 * MILLISECOND;
        while !self.closed {
            let step = self.now + 10 * MILLISECOND;
            assert!(step < end, "the volume does not close");
            self.run_until(step);
        }
    }

    pub fn complete_id(&self, id: IoId) -> Option<usize> {
        self.pending.iter().position(|p| p.io.id == id)
    }
}

/// Plants the bug that the environment names, to show that a test fails because of it.
fn plant() {
    #[cfg(feature = "planted")]
    if let Ok(name) = std::env::var("PLANTED") {
        use hemi_engine::planted::{Planted, select};
        let bug = Planted::ALL.iter().find(|bug| format!("{bug:?}") == name);
        select(Some(*bug.expect("PLANTED names a planted mistake")));
    }
}
