//! Hard disks.
//!
//! The controller works a request out ([`parameters::Overheads`]). The cache answers it if it
//! can ([`read_cache`], [`write_cache`]); otherwise the request waits ([`queue`]) until the arm
//! has moved and its sectors have passed under the head ([`mechanism`]). Data crosses the
//! host's bus while the medium is read. Reading continues after a request until its segment is
//! full or the arm is needed elsewhere. Cached writes reach the medium later, in the order in
//! which the arm comes by.
//!
//! Sources: Ruemmler and Wilkes, "An introduction to disk drive modeling" (IEEE Computer,
//! 1994); the meaning of DiskSim's parameters (Bucy and others, "The DiskSim simulation
//! environment version 4.0 reference manual", CMU-PDL-08-101).

mod arm;
pub mod bus;
mod cleaning;
mod events;
pub mod geometry;
pub mod mechanism;
mod nearest;
pub mod parameters;
mod power;
mod queue;
mod read_cache;
pub mod rotation;
pub mod seek;
mod shingles;
mod write_cache;

use std::collections::VecDeque;

use hemi_random::Rng;
use hemi_units::{Extent, Instant, Operation, Rate, Time};

use self::bus::WriteData;
use self::events::{Ending, Endings, Kind};
use self::mechanism::{Arm, Mechanism, Piece};
use self::parameters::Overhead;
pub use self::parameters::Parameters;
use self::power::Power;
use self::queue::{Pending, PendingQueue};
use self::read_cache::{Hit, Segments};
use self::rotation::Angle;
use self::shingles::{ShingleMap, Target};
use self::write_cache::{Run, WriteCache};
use crate::drive::{Completion, Counters, Drive, Request};
use crate::parameter::{ParameterError, require};

/// The arm's work for requests. Reading ahead is not work: it gives way.
#[derive(Clone, Copy, Debug)]
enum Work {
    None,
    Read,
    Write,
    WriteBack(Run, Target),
    /// Rewrites the band with this number.
    Clean(u64),
}

/// A run being read from the medium into a segment.
#[derive(Clone, Copy, Debug)]
struct Stream {
    segment: usize,
    /// The part of a track that passes now or next.
    piece: Piece,
    /// Sector at which reading ends.
    limit: u64,
}

/// A write on its way into the cache.
#[derive(Clone, Copy, Debug)]
struct Arriving {
    tag: u64,
    /// The part that is not in the cache yet.
    rest: Extent,
    bytes: u64,
    came: Instant,
}

/// A hard disk.
#[derive(Clone, Debug)]
pub struct Hdd {
    parameters: Parameters,
    mechanism: Mechanism,
    /// Time for a sector over the bus to the host, in nanoseconds × 2¹⁶.
    bus_sector: u64,
    /// The same from the host.
    write_bus_sector: u64,

    arm: Arm,
    work: Work,
    work_end: Instant,
    stream: Option<Stream>,
    /// Time at which the spindle has come up.
    spinning_from: Instant,
    /// Time at which the arm last worked for a request rather than for the write cache.
    idle_since: Instant,
    /// Time at which the last request ended.
    at_rest_since: Instant,

    segments: Segments,
    cache: WriteCache,
    pending: PendingQueue,
    /// State of a shingled disk. If present, all sectors here are the medium's, the log before
    /// them.
    shingles: Option<ShingleMap>,
    cleaning_has_turn: bool,
    /// A buffer reused to save allocations.
    parts: Vec<Extent>,
    /// Requests beyond the drive's queue, or behind a flush that waits to be alone.
    waiting: VecDeque<Request>,
    arriving: VecDeque<Arriving>,
    flushes: VecDeque<(u64, u64)>,
    endings: Endings,
    outstanding: u32,
    /// True while a flush is in flight that nothing else may run beside.
    flushes_alone: bool,
    arrivals: u64,
    controller_free: Instant,
    bus_free: Instant,
    after_read: bool,
    /// Sector behind the last write that bypassed the cache.
    last_write_end: u64,

    now: Instant,
    power: Power,
    counters: Counters,
    busy_since: Option<Instant>,
}

impl Hdd {
    /// Creates a disk at rest over its outermost cylinder, its cache empty.
    pub fn new(parameters: Parameters) -> Result<Hdd, ParameterError> {
        Hdd::turned(parameters, 0)
    }

    /// Creates the same disk with its platters turned by `angle` at time 0.
    pub fn turned(parameters: Parameters, angle: Angle) -> Result<Hdd, ParameterError> {
        Hdd::spinning(parameters, angle, 0)
    }

    /// Creates one of many disks made alike: the angle of its platters at time 0 and its own
    /// speed are drawn from the seed. Two of them that get the same requests do not turn in
    /// step.
    pub fn of_seed(parameters: Parameters, seed: u64) -> Result<Hdd, ParameterError> {
        let mut rng = Rng::new(seed, 0x5b1d);
        let angle = (rng.draw() >> 32) as Angle;
        let share = (2.0 * rng.unit() - 1.0) * parameters.speed_tolerance;
        Hdd::spinning(parameters, angle, libm::round(share * 1e9) as i32)
    }

    /// Creates a disk turned by `angle` at time 0 and faster by `faster` parts per billion.
    fn spinning(parameters: Parameters, angle: Angle, faster: i32) -> Result<Hdd, ParameterError> {
        parameters.check()?;
        let mechanism = Mechanism::new(&parameters).spinning(angle, faster);
        let sector =
            |rate: Rate| libm::round(f64::from(512_u32 << 16) * 1e9 / rate.0 as f64) as u64;
        let write_rate = parameters.bus.write_rate.unwrap_or(parameters.host_rate);
        if let Some(shingles) = &parameters.shingles {
            let most = mechanism.geometry.sectors() / 2;
            require(
                shingles.persistent_cache.0 / 512 <= most,
                "shingles.persistent_cache",
                shingles.persistent_cache.0,
                "at most half of the disk",
            )?;
        }
        Ok(Hdd {
            bus_sector: sector(parameters.host_rate),
            write_bus_sector: sector(write_rate),
            arm: Arm::default(),
            work: Work::None,
            work_end: Instant::NEVER,
            stream: None,
            spinning_from: Instant(0),
            idle_since: Instant(0),
            at_rest_since: Instant(0),
            segments: Segments::new(&parameters.read_cache),
            cache: WriteCache::new(&parameters.write_cache),
            pending: PendingQueue::new(&parameters.queue),
            shingles: parameters.shingles.as_ref().map(ShingleMap::new),
            cleaning_has_turn: true,
            parts: Vec::new(),
            waiting: VecDeque::new(),
            arriving: VecDeque::new(),
            flushes: VecDeque::new(),
            endings: Endings::default(),
            outstanding: 0,
            flushes_alone: false,
            arrivals: 0,
            controller_free: Instant(0),
            bus_free: Instant(0),
            after_read: true,
            last_write_end: 0,
            now: Instant(0),
            power: Power::new(&parameters.power),
            counters: Counters::default(),
            busy_since: None,
            mechanism,
            parameters,
        })
    }

    /// Returns the parameters.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Returns the mechanism.
    pub fn mechanism(&self) -> &Mechanism {
        &self.mechanism
    }

    /// Returns true if all writes are on the medium.
    pub fn cache_is_clean(&self) -> bool {
        self.cache.is_empty()
            && self.arriving.is_empty()
            && !matches!(self.work, Work::WriteBack(..))
    }

    fn bus(&self, sectors: u64) -> u64 {
        (sectors * self.bus_sector) >> 16
    }

    fn write_bus(&self, sectors: u64) -> u64 {
        (sectors * self.write_bus_sector) >> 16
    }

    /// Returns the overhead that applies after the previous command.
    fn by_previous(&self, overhead: Overhead) -> Time {
        if self.after_read { overhead.after_read } else { overhead.after_write }
    }

    /// Lets the controller work a command out and returns the time at which it is done.
    fn command(&mut self, now: Instant, overhead: Overhead) -> Instant {
        self.controller_free = self.controller_free.max(now) + self.by_previous(overhead).0;
        self.controller_free
    }

    /// Takes the bus for `time` nanoseconds from `from` on and returns the time at which it is
    /// free again.
    fn take_bus(&mut self, from: Instant, time: u64) -> Instant {
        self.bus_free = self.bus_free.max(from) + time;
        self.bus_free
    }

    /// Sends sectors to the host from `from` on and returns the time at which they are over.
    fn send(&mut self, from: Instant, sectors: u64) -> Instant {
        self.take_bus(from, self.bus(sectors))
    }

    /// Returns true if the drive can take the request beside those it has. A flush that is not
    /// a queued command runs alone.
    fn takes(&self, request: &Request) -> bool {
        let alone = request.operation == Operation::Flush && !self.parameters.queue.flush_is_queued;
        let most = if alone { 1 } else { self.parameters.queue.depth };
        self.outstanding < most && !self.flushes_alone
    }

    fn admit(&mut self, now: Instant, request: Request) {
        self.outstanding += 1;
        self.busy_since.get_or_insert(now);
        self.spinning_from = self.spinning_from.max(self.power.want(now));
        let extent = self.on_medium(request.extent);
        match request.operation {
            Operation::Flush => {
                self.flushes_alone = !self.parameters.queue.flush_is_queued;
                self.admit_flush(now, request.tag);
            }
            _ if extent.is_empty() => self.end_at_once(now, request.tag, Kind::Trim),
            Operation::Trim => self.end_at_once(now, request.tag, Kind::Trim),
            Operation::Read => self.admit_read(now, request.tag, extent),
            Operation::Write { fua } if fua || !self.parameters.write_cache.enabled => {
                self.admit_write(now, request.tag, extent);
            }
            Operation::Write { .. } => {
                let bytes = extent.bytes();
                let arriving = Arriving { tag: request.tag, rest: extent, bytes, came: now };
                self.arriving.push_back(arriving);
                self.take_writes(now);
            }
        }
        self.dispatch(now);
    }

    /// Maps the host's sectors to the medium's.
    fn on_medium(&self, extent: Extent) -> Extent {
        let offset = self.shingles.as_ref().map_or(0, ShingleMap::offset);
        Extent { start: extent.start + offset, end: extent.end + offset }
    }

    fn end_at_once(&mut self, now: Instant, tag: u64, kind: Kind) {
        let at = self.command(now, self.parameters.overheads.write_hit);
        self.endings.push(Ending { at, tag, kind, bytes: 0 });
    }

    fn admit_flush(&mut self, now: Instant, tag: u64) {
        let time = self.parameters.overheads.flush;
        self.command(now, Overhead { after_read: time, after_write: time });
        // Writes still on their way into the cache came before the flush too, but they are not
        // done yet, so the flush need not cover them.
        let generation = self.cache.begin_flush();
        self.flushes.push_back((tag, generation));
        self.end_flushes();
    }

    fn end_flushes(&mut self) {
        while let Some(&(tag, generation)) = self.flushes.front() {
            if !self.cache.is_flushed(generation) {
                break;
            }
            self.flushes.pop_front();
            let at = self.controller_free.max(self.now);
            self.endings.push(Ending { at, tag, kind: Kind::Flush, bytes: 0 });
        }
    }

    /// Returns true if the cache has to wait for the arm.
    fn is_held_up(&self) -> bool {
        !self.parameters.read_cache.hits_while_busy && !matches!(self.work, Work::None)
    }

    /// Looks a read up in the segments.
    fn look_up(&self, extent: Extent) -> Hit {
        let active = match (&self.stream, &self.work) {
            (Some(stream), Work::None) if self.parameters.read_cache.continues_at_end => {
                Some(stream.segment)
            }
            _ => None,
        };
        self.segments.look_up(extent, active, self.parameters.write_cache.answers_reads)
    }

    fn admit_read(&mut self, now: Instant, tag: u64, extent: Extent) {
        self.follow_stream(now);
        let overheads = self.parameters.overheads;
        let mut hit = self.look_up(extent);
        let held = self.parameters.write_cache.answers_reads && self.cache.holds(extent);
        if held || matches!(hit, Hit::Whole(_)) {
            let from = if self.is_held_up() {
                let ready = self.command(now, overheads.read_miss);
                self.read_crosses_from(ready, Some(self.work_end)).max(self.work_end)
            } else {
                let ready = self.command(now, overheads.read_hit);
                self.read_crosses_from(ready, None)
            };
            let at = self.send(from, extent.sectors()) + self.parameters.bus.read_completion.0;
            self.endings.push(Ending { at, tag, kind: Kind::Read, bytes: extent.bytes() });
            if let Hit::Whole(segment) = hit {
                self.segments.send(segment, extent.end);
                self.read_on(now, segment, extent.end);
            }
            return;
        }
        if let Hit::Beginning(segment) = hit {
            if self.is_streaming_into(segment) && matches!(self.work, Work::None) {
                let ready = self.command(now, overheads.read_hit);
                self.go_on_reading(tag, extent, ready, true);
                return;
            }
            hit = Hit::None;
        }
        debug_assert_eq!(hit, Hit::None);
        let ready = self.command(now, overheads.read_miss);
        self.wait_for_arm(now, tag, extent, ready, None);
    }

    /// Returns the current place of a sector on the medium.
    fn whereabouts(&self, sector: u64) -> u64 {
        self.shingles.as_ref().map_or(sector, |map| map.place(sector))
    }

    fn wait_for_arm(
        &mut self,
        now: Instant,
        tag: u64,
        extent: Extent,
        ready: Instant,
        write: Option<WriteData>,
    ) {
        self.arrivals += 1;
        self.pending.push(Pending {
            tag,
            extent,
            place: self.mechanism.geometry.place(self.whereabouts(extent.start)),
            write: write.is_some(),
            data: write.unwrap_or_default(),
            came: now,
            ready,
            number: self.arrivals,
        });
    }

    /// Takes a write that bypasses the cache.
    fn admit_write(&mut self, now: Instant, tag: u64, extent: Extent) {
        let (ready, data) = self.write_command(now, extent);
        self.cache.drop_range(extent, &self.mechanism);
        self.segments.overwrite(extent);
        // The arm moves while the data arrives; the first sector must have arrived.
        self.take_bus_for(data, extent.sectors());
        self.wait_for_arm(now, tag, extent, ready, Some(data));
    }

    /// Takes waiting writes into the cache as far as there is room.
    fn take_writes(&mut self, now: Instant) {
        while let Some(&write) = self.arriving.front() {
            let room = self.cache.room(write.rest);
            // A write is cut into pieces only if it would never find room as a whole.
            let whole = write.rest.sectors() * 512 <= self.parameters.write_cache.size.0 / 2;
            if room == 0 || (whole && room < write.rest.sectors()) {
                break;
            }
            self.arriving.pop_front();
            let first = write.rest.bytes() == write.bytes;
            let mut from = now;
            if first {
                from = self.command(now.max(write.came), self.parameters.overheads.write_hit);
                if self.is_held_up() {
                    from = from.max(self.work_end);
                }
                from = from + self.parameters.bus.data_preparation.0;
            }
            let part = Extent::new(write.rest.start, room);
            let there = self.take_bus(from, self.write_bus(room));
            if self.parameters.write_cache.shares_segments {
                let active = self.stream.map(|stream| stream.segment);
                self.segments.take_for_write(part, active);
            } else {
                self.segments.overwrite(part);
            }
            let first_there = there - self.write_bus(room.saturating_sub(1));
            self.cache.hold(part, now, (first_there, there), &self.mechanism);
            let rest = Extent { start: part.end, end: write.rest.end };
            if rest.is_empty() {
                let (tag, bytes) = (write.tag, write.bytes);
                let at = there + self.parameters.bus.write_completion.0;
                self.endings.push(Ending { at, tag, kind: Kind::Write, bytes });
            } else {
                self.arriving.push_front(Arriving { rest, ..write });
                break;
            }
        }
    }

    /// Returns the time of the next event that no request causes: a delayed write-back, a
    /// cleaning, or the spindle stopping.
    fn timer(&self) -> Instant {
        if !matches!(self.work, Work::None) {
            return Instant::NEVER;
        }
        if !self.cache.is_empty() && self.pending.is_empty() {
            return (self.idle_since + self.parameters.write_cache.delay.0).max(self.now);
        }
        if self.outstanding > 0 {
            return Instant::NEVER;
        }
        self.power.stops_at(self.at_rest_since).min(self.cleaning_time()).max(self.now)
    }

    fn on_timer(&mut self, at: Instant) {
        if self.cache.is_empty() && at < self.cleaning_time() {
            self.stop_stream(at);
            self.power.set_working(at, false);
            self.power.stop(at);
        } else {
            self.dispatch(at);
        }
    }

    fn end_request(&mut self, ending: Ending, done: &mut Vec<Completion>) {
        let at = ending.at;
        match ending.kind {
            Kind::Read => {
                self.counters.reads += 1;
                self.counters.read_bytes += ending.bytes;
                self.after_read = true;
            }
            Kind::Write => {
                self.counters.writes += 1;
                self.counters.written_bytes += ending.bytes;
                self.after_read = false;
            }
            Kind::Flush => {
                self.counters.flushes += 1;
                self.flushes_alone = false;
            }
            Kind::Trim => {}
        }
        done.push(Completion::done(ending.tag, at));
        self.outstanding -= 1;
        if self.outstanding == 0 {
            self.at_rest_since = at;
            if let Some(since) = self.busy_since.take() {
                self.counters.busy += at.since(since);
            }
        }
        while let Some(&request) = self.waiting.front()
            && self.takes(&request)
        {
            self.waiting.pop_front();
            self.admit(at, request);
        }
    }
}

impl Drive for Hdd {
    fn sectors(&self) -> u64 {
        let all = self.mechanism.geometry.sectors();
        self.shingles.as_ref().map_or(all, |map| all - map.offset())
    }

    fn submit(&mut self, now: Instant, request: Request) {
        self.now = self.now.max(now);
        if self.waiting.is_empty() && self.takes(&request) {
            self.admit(now, request);
        } else {
            self.waiting.push_back(request);
        }
    }

    fn next_event(&self) -> Instant {
        self.endings.next().min(self.work_end).min(self.timer())
    }

    fn advance(&mut self, now: Instant, done: &mut Vec<Completion>) {
        loop {
            let (ending, timer) = (self.endings.next(), self.timer());
            let at = ending.min(self.work_end).min(timer);
            if at > now {
                break;
            }
            self.now = self.now.max(at);
            if ending == at {
                if let Some(ending) = self.endings.pop() {
                    self.end_request(ending, done);
                }
            } else if self.work_end == at {
                self.end_work();
            } else {
                self.on_timer(at);
            }
        }
        self.now = self.now.max(now);
    }

    fn counters(&self) -> Counters {
        let running = self.busy_since.map_or(0, |since| self.now.since(since));
        Counters {
            busy: self.counters.busy + running,
            energy: self.power.joules(self.now),
            ..self.counters
        }
    }
}

#[cfg(test)]
mod tests;
