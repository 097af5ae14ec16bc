//! Arrays of drives: striped, mirrored or with parity, behind a controller or in the host.
//!
//! A host request first takes time of the controller's processor and, if it writes, crosses the
//! link. It is then split into requests to the members. Each of those takes processor time
//! again and crosses the members' side of the controller. A write to part of a row with parity
//! first reads, then passes the parity engine, and finally writes; writes to one row take
//! turns. With a cache, a write is done once it is in the cache, which destages row by row, in
//! order. Members are any drives, including arrays.
//!
//! Members may fail ([`degraded`]).

mod cache;
mod degraded;
#[cfg(test)]
mod fixed;
mod flow;
mod job;
mod layout;
mod members;
mod parameters;
#[cfg(test)]
mod published;
mod read_ahead;
mod row;
mod rows;
mod slab;
mod station;
#[cfg(test)]
mod tests;
mod writing;

use hemi_units::{Extent, Instant, Operation, Rate, SECTOR_BYTES};

use self::cache::WriteCache;
use self::degraded::Recovery;
use self::job::{Job, MemberIo, Queues, RowWrite};
use self::layout::{Layout, Piece, Run};
use self::members::Members;
use self::parameters::BLOCK_BYTES;
pub use self::parameters::{Cache, Controller, Level, Parameters, PartialWrites};
use self::read_ahead::ReadAhead;
use self::rows::RowMap;
use self::slab::Slab;
use self::station::Station;
use crate::drive::{Completion, Counters, Drive, Presence, Request};
use crate::parameter::{ParameterError, require};

/// A task of the controller's processor.
#[derive(Clone, Copy, Debug)]
enum Task {
    /// A request from the host.
    Host(u32),
    /// A request to a member.
    Member(u32),
}

/// A transfer over the link to the host.
#[derive(Clone, Copy, Debug)]
enum Transfer {
    /// A write's data.
    In(u32),
    /// A read's data.
    Out(u32),
}

/// A pass of the parity engine.
#[derive(Clone, Copy, Debug)]
enum Pass {
    /// The parity of a write to a row.
    Row(u32),
    /// Data that a member cannot give.
    Recovery(u32),
}

/// The controller's stations and the time each step takes.
#[derive(Clone, Debug)]
struct Front {
    processor: Station<Task>,
    link: Station<Transfer>,
    /// The members' side: requests to members, by slot.
    side: Station<u32>,
    parity: Station<Pass>,
    command: u64,
    member_command: u64,
    link_rate: Option<Rate>,
    side_rate: Option<Rate>,
    parity_rate: Option<Rate>,
    partial_writes: PartialWrites,
    watts: f64,
}

impl Front {
    fn new(controller: Option<&Controller>) -> Front {
        Front {
            processor: Station::new(),
            link: Station::new(),
            side: Station::new(),
            parity: Station::new(),
            command: controller.map_or(0, |c| c.command.0),
            member_command: controller.map_or(0, |c| c.member_command.0),
            link_rate: controller.map(|c| c.bandwidth),
            side_rate: controller.map(|c| c.member_bandwidth),
            parity_rate: controller.map(|c| c.parity),
            partial_writes: controller.map_or_else(PartialWrites::default, |c| c.partial_writes),
            watts: controller.and_then(|c| c.power).map_or(0.0, |power| power.0),
        }
    }

    fn next(&self) -> Instant {
        let sides = self.side.next().min(self.parity.next());
        self.processor.next().min(self.link.next()).min(sides)
    }
}

/// The cache and its settings.
#[derive(Clone, Debug)]
struct Caching {
    blocks: WriteCache,
    protected: bool,
    /// Rows in flight to the members, and the most allowed.
    flying: u32,
    depth: u32,
    linger: u64,
    /// Time from which on everything is destaged.
    quiet_at: Instant,
    queues: Queues,
}

/// Buffers reused to save allocations.
#[derive(Clone, Debug, Default)]
struct Scratch {
    completions: Vec<Completion>,
    reads: Vec<Piece>,
    /// Reads of a recovery.
    rest: Vec<Piece>,
    runs: Vec<Run>,
    destaged: Vec<Run>,
    woken: Vec<u32>,
    fetch: Vec<(u32, Extent)>,
    /// Extent being gathered for each group of copies, by the group's first member.
    gathered: Vec<Extent>,
}

/// An array of drives.
#[derive(Clone, Debug)]
pub struct Array<D> {
    members: Members<D>,
    layout: Layout,
    front: Front,
    caching: Option<Caching>,
    read_ahead: Option<ReadAhead>,
    passes_trim: bool,
    supply_efficiency: f64,
    jobs: Slab<Job>,
    ios: Slab<MemberIo>,
    row_writes: Slab<RowWrite>,
    recoveries: Slab<Recovery>,
    /// A member that the array needs and that does not answer now.
    missing: Option<usize>,
    /// Rows being written, each with the last write that runs or waits for it.
    locked: RowMap<u32>,
    /// Completions not reported yet.
    done: Vec<Completion>,
    scratch: Scratch,
    counters: Counters,
    now: Instant,
}

impl<D: Drive> Array<D> {
    /// Returns the member drives. They may be changed only while no request is in flight.
    pub fn members_mut(&mut self) -> &mut [D] {
        self.members.drives_mut()
    }

    /// Puts another drive in the place of a member, before the first request.
    pub fn replace_member(&mut self, member: usize, drive: D) {
        self.members.replace(member, drive);
        self.note_presence();
    }

    /// Creates an array of these drives, whose number must be [`Parameters::count`].
    pub fn new(parameters: &Parameters, members: Vec<D>) -> Result<Array<D>, ParameterError> {
        parameters.check()?;
        let count = members.len() == parameters.count as usize;
        require(count, "count", parameters.count, "as many as there are members")?;
        let members = Members::new(members);
        let chunk = parameters.chunk.0 / SECTOR_BYTES;
        let layout = Layout::new(parameters.level, members.len(), chunk, members.sectors());
        let bytes = format!("{} B", parameters.chunk.0);
        require(layout.rows > 0, "chunk", bytes, "at most what a member holds")?;
        let controller = parameters.controller.as_ref();
        let caching = controller.and_then(|c| c.cache).map(|cache| Caching {
            blocks: WriteCache::new(&cache, &layout),
            protected: cache.protected,
            flying: 0,
            depth: cache.destage_depth,
            linger: cache.linger.0,
            quiet_at: Instant(0),
            queues: Queues::default(),
        });
        let read_ahead = controller.and_then(|c| c.read_ahead).map(|window| {
            ReadAhead::new(window.0.div_ceil(BLOCK_BYTES) * 8, chunk, layout.sectors())
        });
        let gathered = vec![Extent::default(); members.len()];
        let mut array = Array {
            front: Front::new(controller),
            caching,
            read_ahead,
            passes_trim: controller.is_none() && layout.parity() == 0,
            supply_efficiency: parameters.supply_efficiency,
            jobs: Slab::new(),
            ios: Slab::new(),
            row_writes: Slab::new(),
            recoveries: Slab::new(),
            missing: None,
            locked: RowMap::default(),
            done: Vec::new(),
            scratch: Scratch { gathered, ..Scratch::default() },
            counters: Counters::default(),
            now: Instant(0),
            members,
            layout,
        };
        array.note_presence();
        Ok(array)
    }

    /// Returns the time at which the cache begins to destage its contents. Never while rows are
    /// in flight or no row is ready.
    fn quiet_at(&self) -> Instant {
        match &self.caching {
            Some(caching) if caching.flying == 0 && caching.blocks.has_ready() => caching.quiet_at,
            _ => Instant::NEVER,
        }
    }

    fn step(&mut self, now: Instant) {
        self.members.advance(now, &mut self.scratch.completions);
        if self.members.has_changed() {
            self.note_presence();
        }
        // Handling one completion may make a member complete another at the same time.
        let mut next = 0;
        while let Some(&completion) = self.scratch.completions.get(next) {
            next += 1;
            self.member_done(now, completion.tag as u32, completion.result);
        }
        self.scratch.completions.clear();
        while let Some(task) = self.front.processor.pop(now) {
            match task {
                Task::Host(job) => self.begin(now, job),
                Task::Member(io) => self.send(now, io),
            }
        }
        while let Some(transfer) = self.front.link.pop(now) {
            match transfer {
                Transfer::In(job) => self.write(now, job),
                Transfer::Out(job) => self.complete(now, job),
            }
        }
        while let Some(io) = self.front.side.pop(now) {
            self.passed_side(now, io);
        }
        while let Some(pass) = self.front.parity.pop(now) {
            match pass {
                Pass::Row(write) => self.write_row(now, write),
                Pass::Recovery(recovery) => self.recovered(now, recovery),
            }
        }
        if self.quiet_at() <= now {
            self.destage(now);
        }
    }
}

impl<D: Drive> Drive for Array<D> {
    fn sectors(&self) -> u64 {
        self.layout.sectors()
    }

    fn submit(&mut self, now: Instant, request: Request) {
        let Request { tag, operation, extent } = request;
        let job = Job { tag, operation, extent, left: 0, reached: extent.start, result: Ok(()) };
        let place = self.jobs.take(|| job);
        self.jobs[place] = job;
        self.front.processor.book(now, self.front.command, Task::Host(place));
    }

    fn next_event(&self) -> Instant {
        let own = self.front.next().min(self.quiet_at()).max(self.now);
        let own = if self.scratch.completions.is_empty() { own } else { self.now };
        own.min(self.members.next_event())
    }

    fn advance(&mut self, now: Instant, done: &mut Vec<Completion>) {
        loop {
            let at = self.next_event();
            if at > now || at == Instant::NEVER {
                break;
            }
            self.now = at;
            self.step(at);
        }
        done.append(&mut self.done);
        self.now = now;
        self.members.settle(now, &mut self.scratch.completions);
    }

    fn counters(&self) -> Counters {
        let own = self.counters;
        let members = self.members.counters();
        let drawn = members.energy + self.front.watts * self.now.0 as f64 / 1e9;
        let energy = drawn / self.supply_efficiency;
        Counters {
            reads: own.reads,
            writes: own.writes,
            flushes: own.flushes,
            read_bytes: own.read_bytes,
            written_bytes: own.written_bytes,
            energy,
            failed: own.failed,
            members_out: own.members_out + members.members_out,
            ..members
        }
    }

    fn presence(&self) -> Option<Presence> {
        self.members.presence()
    }

    fn cycles(&self) -> f64 {
        self.members.cycles()
    }
}

/// Counts a completed request.
fn count(counters: &mut Counters, job: &Job) {
    if job.result.is_err() {
        return counters.failed.count(job.operation);
    }
    match job.operation {
        Operation::Read => {
            counters.reads += 1;
            counters.read_bytes += job.extent.bytes();
        }
        Operation::Write { .. } => {
            counters.writes += 1;
            counters.written_bytes += job.extent.bytes();
        }
        Operation::Flush => counters.flushes += 1,
        Operation::Trim => {}
    }
}
