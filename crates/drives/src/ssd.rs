//! Flash drives.
//!
//! The *translation* layer ([`translation`]) knows the place of each unit and the copies and
//! erases that make room; it knows no time. Around it, on the virtual clock, are the dies that
//! read, program and erase, the channels to them, the write buffer, the controller's processor
//! and the link to the host, each busy with one operation at a time. A drive stalls because
//! these are busy with collection or erases, or because the buffer is full.
//!
//! The unit of parallelism is a *lane*: a die (all its planes at once), or a gang of dies in
//! lockstep.

mod buffer;
mod check;
mod collection;
mod commands;
mod flash;
pub mod frontier;
mod host;
mod lanes;
mod map_cache;
pub mod mapping;
pub mod parameters;
mod persistence;
mod power;
pub mod precondition;
pub mod reclaim;
pub mod scale;
mod slc;
pub mod snapshot;
#[cfg(test)]
mod tests;
mod timing;
pub mod translation;
pub mod victim;
mod wear;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use hemi_units::{Instant, Operation, SECTOR_BYTES};

use crate::drive::{Completion, Counters, Drive, Request};
use crate::parameter::ParameterError;
use buffer::Buffer;
use collection::Collector;
use commands::Commands;
use lanes::{Lane, PageReads};
use map_cache::MapCache;
pub use parameters::Parameters;
use power::Meter;
use slc::SlcCache;
use timing::{Processor, Serial, Timing};
use translation::Translation;

/// A flash drive; see the module.
#[derive(Clone, Debug)]
pub struct Ssd {
    parameters: Parameters,
    timing: Timing,
    pub(in crate::ssd) translation: Translation,
    collector: Collector,
    slc: Option<SlcCache>,
    map_cache: Option<MapCache>,
    meter: Meter,

    lanes: Vec<Lane>,
    /// Ends of lane activities. An end that no longer holds (of a suspended program) is
    /// skipped.
    events: BinaryHeap<Reverse<(u64, u32)>>,
    /// Idle lanes with room for the host, in the order in which they became so.
    idle: VecDeque<u32>,
    page_reads: PageReads,
    channels: Vec<Serial>,
    /// Lanes that may not copy for now and have no room either.
    blocked: VecDeque<u32>,

    commands: Commands,
    processor: Processor,
    /// The link to the drive and to the host; only the first is used if the link is
    /// half-duplex.
    link: [Serial; 2],
    /// Commands on their way to the controller, in order of time. Reads are kept apart from the
    /// others.
    arriving_reads: VecDeque<(u64, u32)>,
    arriving_writes: VecDeque<(u64, u32)>,

    buffer: Buffer,
    /// Writes that wait for space in the buffer, in order.
    stalled: VecDeque<u32>,
    /// Flushes (and writes that bypass the cache) that wait for an epoch to be on flash, in
    /// order.
    flushing: VecDeque<(u64, u32)>,
    /// True if data has been held too long with idle lanes, but none had room.
    hold_blocked: bool,

    now: u64,
    /// Time since which the drive has had work, or `None` if it has none.
    busy_since: Option<u64>,
    /// Time from which it is idle enough for background collection.
    idle_at: u64,
    /// Number of busy lanes.
    working: u32,
    /// Erases of its life before the run: of preconditioning.
    erases_before: u64,
    /// Bytes programmed for the host, and bytes programmed for other reasons.
    host_bytes: u64,
    copied_bytes: u64,
    counters: Counters,
}

impl Ssd {
    /// Creates an erased drive. The seed feeds policies that draw at random.
    pub fn new(parameters: &Parameters, seed: u64) -> Result<Ssd, ParameterError> {
        parameters.check()?;
        let shape = parameters.shape();
        let groups = parameters.channels.div_ceil(parameters.gang).max(1);
        let unit_sectors = (parameters.mapping_unit.0 / SECTOR_BYTES) as u32;
        Ok(Ssd {
            timing: Timing::new(parameters),
            collector: Collector::new(parameters, shape.lanes),
            slc: SlcCache::new(parameters, &shape),
            map_cache: parameters
                .map_cache
                .map(|size| MapCache::new(size.0 / u64::from(parameters.scale), shape.units)),
            meter: Meter::new(parameters),
            lanes: (0..shape.lanes).map(|lane| Lane::new(lane % groups)).collect(),
            events: BinaryHeap::new(),
            idle: VecDeque::with_capacity(shape.lanes as usize),
            page_reads: PageReads::new(),
            channels: vec![Serial::default(); groups as usize],
            blocked: VecDeque::new(),
            commands: Commands::new(parameters.queue_depth),
            processor: Processor::default(),
            link: [Serial::default(); 2],
            arriving_reads: VecDeque::new(),
            arriving_writes: VecDeque::new(),
            buffer: Buffer::new(parameters.buffer.0, unit_sectors),
            stalled: VecDeque::new(),
            flushing: VecDeque::new(),
            hold_blocked: false,
            now: 0,
            busy_since: None,
            idle_at: u64::MAX,
            working: 0,
            erases_before: 0,
            host_bytes: 0,
            copied_bytes: 0,
            counters: Counters::default(),
            translation: Translation::new(shape, seed),
            parameters: parameters.clone(),
        }
        .with_idle_lanes())
    }

    fn with_idle_lanes(mut self) -> Ssd {
        for lane in 0..self.lanes.len() as u32 {
            self.list_if_idle(lane);
        }
        self
    }

    /// Returns the parameters.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Returns the translation layer for inspection.
    pub fn translation(&self) -> &Translation {
        &self.translation
    }

    /// Returns how often all host writes were stopped until a burst of blocks was free.
    pub fn freezes(&self) -> u64 {
        self.collector.freezes()
    }

    /// Returns the time from which data in the buffer has been held long enough although its
    /// page is not full.
    fn hold_end(&self) -> u64 {
        if self.hold_blocked || self.idle.is_empty() || self.collector.is_frozen() {
            return u64::MAX;
        }
        match self.buffer.oldest() {
            Some(since) => (since + self.timing.hold).max(self.now),
            None => u64::MAX,
        }
    }

    fn next_lane_end(&self) -> u64 {
        self.events.peek().map_or(u64::MAX, |&Reverse((at, _))| at)
    }

    fn next_arrival(&self) -> u64 {
        let front = |queue: &VecDeque<(u64, u32)>| queue.front().map_or(u64::MAX, |&(at, _)| at);
        front(&self.arriving_reads).min(front(&self.arriving_writes))
    }

    /// Handles the earliest event, which is due at `at`.
    fn handle(&mut self, at: u64, done: &mut Vec<Completion>) {
        self.now = at;
        if self.commands.next_end() == at {
            self.end_command(done);
        } else if self.next_lane_end() == at {
            if let Some(Reverse((_, lane))) = self.events.pop() {
                self.end_of_activity(lane);
            }
        } else if self.arriving_reads.front().is_some_and(|&(due, _)| due == at) {
            if let Some((_, command)) = self.arriving_reads.pop_front() {
                self.command_arrived(command);
            }
        } else if self.arriving_writes.front().is_some_and(|&(due, _)| due == at) {
            if let Some((_, command)) = self.arriving_writes.pop_front() {
                self.command_arrived(command);
            }
        } else if self.idle_at == at {
            self.idle_at = u64::MAX;
            self.collector.set_idle(true, &self.translation);
        } else {
            self.hold_blocked = !self.dispatch(true);
        }
        self.settle();
    }

    /// Starts everything that can start now.
    fn settle(&mut self) {
        while self.collector.can_begin() {
            let Some(lane) = self.collector.begin(&mut self.translation) else { break };
            self.work_if_idle(lane);
        }
        self.dispatch(false);
        let rests = self.commands.is_empty() && self.working == 0;
        match (rests, self.busy_since) {
            (true, Some(since)) => {
                self.counters.busy += self.now - since;
                self.busy_since = None;
            }
            (false, None) => self.busy_since = Some(self.now),
            _ => {}
        }
    }

    fn end_command(&mut self, done: &mut Vec<Completion>) {
        let Some((completion, command, next)) = self.commands.ended() else { return };
        match command.operation {
            Operation::Read => {
                self.counters.reads += 1;
                self.counters.read_bytes += command.bytes;
            }
            Operation::Write { .. } => {
                self.counters.writes += 1;
                self.counters.written_bytes += command.bytes;
            }
            Operation::Flush => self.counters.flushes += 1,
            Operation::Trim => {}
        }
        done.push(completion);
        if let Some(next) = next {
            self.command_started(next);
        }
        if self.commands.is_empty()
            && let Some(after) = self.parameters.background_after
        {
            self.idle_at = self.now + after.0;
        }
    }
}

impl Drive for Ssd {
    fn sectors(&self) -> u64 {
        let unit = self.parameters.mapping_unit.0 / SECTOR_BYTES;
        u64::from(self.translation.shape().units) * unit
    }

    fn submit(&mut self, now: Instant, request: Request) {
        self.now = self.now.max(now.0);
        if self.idle_at != u64::MAX || self.commands.is_empty() {
            self.idle_at = u64::MAX;
            self.collector.set_idle(false, &self.translation);
        }
        if self.busy_since.is_none() {
            self.busy_since = Some(self.now);
        }
        if let Some(command) = self.commands.take(request) {
            self.command_started(command);
        }
    }

    fn next_event(&self) -> Instant {
        let lanes = self.next_lane_end().min(self.next_arrival());
        let rest = self.commands.next_end().min(self.idle_at).min(self.hold_end());
        Instant(lanes.min(rest))
    }

    fn advance(&mut self, now: Instant, done: &mut Vec<Completion>) {
        loop {
            let Instant(at) = self.next_event();
            if at > now.0 || at == u64::MAX {
                break;
            }
            self.handle(at.max(self.now), done);
        }
        self.now = self.now.max(now.0);
    }

    fn counters(&self) -> Counters {
        let page = self.parameters.page.0;
        let (erases_least, erases_most) = self.translation.erases_range();
        let busy = self.busy_since.map_or(0, |since| self.now - since);
        Counters {
            busy: self.counters.busy + busy,
            pages_written: self.host_bytes / page,
            pages_copied: self.copied_bytes / page,
            erases: self.translation.work().erases,
            erases_least,
            erases_most,
            rated_cycles: self.parameters.rated_cycles.unwrap_or(0),
            cycles: self.mean_cycles(),
            cycles_most: self.most_cycles(erases_most),
            energy: self.meter.energy(self.now, self.counters.busy + busy),
            ..self.counters
        }
    }
    fn cycles(&self) -> f64 {
        self.mean_cycles()
    }
}
