//! The arm's work: choosing the next access, reading, reading ahead, writing.

use hemi_units::{Extent, Instant};

use super::bus::Arrival;
use super::events::{Ending, Kind};
use super::mechanism::Arm;
use super::queue::Pending;
use super::read_cache::Hit;
use super::shingles::Target;
use super::{Hdd, Stream, Work};

impl Hdd {
    /// Returns the sector at which reading stops for a request that ends at `end`.
    pub(super) fn limit(&self, segment: usize, end: u64) -> u64 {
        let limit = self.segments.limit(segment, end, &self.mechanism.geometry).max(end);
        self.shingles.as_ref().map_or(limit, |map| limit.min(map.next_stray(end)))
    }

    /// Extends or restarts read-ahead after a hit that ends at `end`.
    pub(super) fn read_on(&mut self, now: Instant, segment: usize, end: u64) {
        self.segments.touch(segment);
        let limit = self.limit(segment, end);
        match &mut self.stream {
            Some(stream) if stream.segment == segment => stream.limit = stream.limit.max(limit),
            Some(_) => {}
            None => {
                let next = self.segments.run(segment).end;
                let idle = matches!(self.work, Work::None) && self.pending.is_empty();
                if idle && self.parameters.read_cache.restarts_on_hit && next < limit {
                    let at = now.max(self.spinning_from);
                    let piece = self.mechanism.piece(at, self.arm, next, limit, None);
                    self.stream = Some(Stream { segment, piece, limit });
                }
            }
        }
    }

    /// Brings the segment of the running stream up to date.
    pub(super) fn follow_stream(&mut self, now: Instant) {
        while let Some(stream) = &mut self.stream {
            let piece = stream.piece;
            let reached = (piece.sector + piece.done(now)).min(stream.limit);
            self.segments.extend(stream.segment, reached);
            if reached == stream.limit {
                self.arm = piece.arm;
                self.stream = None;
            } else if reached == piece.end_sector {
                let limit = stream.limit;
                stream.piece = self.mechanism.piece(piece.end, piece.arm, reached, limit, None);
            } else {
                break;
            }
        }
    }

    /// Stops the stream and returns the time from which the arm, at its current place, is free.
    pub(super) fn stop_stream(&mut self, now: Instant) -> Instant {
        self.follow_stream(now);
        let Some(stream) = self.stream.take() else { return now };
        let piece = stream.piece;
        self.arm = piece.arm;
        if now <= piece.arrived {
            // A movement is never interrupted.
            return piece.arrived;
        }
        if now <= piece.begin || self.parameters.read_cache.stops_within_sector {
            return now;
        }
        // A sector is not interrupted either.
        let done = piece.done(now);
        if done > 0 && piece.passed(done - 1) == now { now } else { piece.passed(done) }
    }

    pub(super) fn is_streaming_into(&self, segment: usize) -> bool {
        self.stream.is_some_and(|stream| stream.segment == segment)
    }

    /// Continues the running stream for a request that begins in it or right behind it.
    /// Stopping and starting again would cost a revolution, since the next sector is already
    /// under the head.
    pub(super) fn go_on_reading(&mut self, tag: u64, extent: Extent, ready: Instant, hit: bool) {
        let Some(segment) = self.stream.map(|stream| stream.segment) else { return };
        self.segments.touch(segment);
        let limit = self.limit(segment, extent.end);
        if let Some(stream) = &mut self.stream {
            stream.limit = stream.limit.max(limit);
        }
        self.read_stream(tag, extent, ready, hit);
    }

    /// Reads the stream for a request: computes the request's completion and the end of the
    /// arm's work. `hit` is true if the cache answers, at least in part.
    pub(super) fn read_stream(&mut self, tag: u64, extent: Extent, ready: Instant, hit: bool) {
        let Some(stream) = self.stream else { return };
        let end = extent.end;
        let watermark = extent.start + self.watermark(extent.sectors());
        let mut enough = Instant(0);
        let mut done = Instant(0);
        let mut piece = stream.piece;
        loop {
            if (piece.sector + 1..=piece.end_sector).contains(&watermark) {
                enough = piece.passed(watermark - 1 - piece.sector);
            }
            let first = extent.start.max(piece.sector);
            let last = end.min(piece.end_sector) - 1;
            // Either the bus lags behind the medium, or the medium behind the bus. What was read
            // on arrival follows the sectors in front of it, which come last.
            for sector in [first, piece.landing().clamp(first, last), last] {
                let there = piece.passed(sector - piece.sector);
                done = done.max(there + self.bus(end - sector));
            }
            if piece.end_sector >= end {
                self.work_end = piece.passed(last - piece.sector);
                break;
            }
            piece =
                self.mechanism.piece(piece.end, piece.arm, piece.end_sector, stream.limit, None);
        }
        self.work = Work::Read;
        self.segments.send(stream.segment, end);
        let from = self.read_crosses_from(ready, (!hit).then_some(enough));
        let at =
            done.max(self.send(from, extent.sectors())) + self.parameters.bus.read_completion.0;
        self.endings.push(Ending { at, tag, kind: Kind::Read, bytes: extent.bytes() });
    }

    /// Returns the sectors read so far by a running stream, if requests wait for the arm.
    fn streamed(&mut self, now: Instant) -> Option<Extent> {
        if self.stream.is_none() || self.pending.is_empty() {
            return None;
        }
        self.follow_stream(now);
        self.stream.map(|stream| self.segments.run(stream.segment))
    }

    /// Gives work to the arm while it is free.
    pub(super) fn dispatch(&mut self, now: Instant) {
        while matches!(self.work, Work::None) {
            let streamed = self.streamed(now);
            let arm = self.stream.map_or(self.arm, |stream| stream.piece.arm);
            let request = self.pending.choose(now, arm, streamed, &self.mechanism);
            let cost = request.map_or(u64::MAX, |choice| choice.cost);
            let back = self.choose_run(now, arm, request.is_some(), cost);
            if self.begin_cleaning(now, request.is_none() && back.is_none()) {
                break;
            }
            if let Some((index, _)) = back {
                if !self.write_back(now, index) && !self.clean_one(now) {
                    break;
                }
            } else if let Some(choice) = request {
                let pending = self.pending.take(choice);
                if pending.write {
                    self.write_past_cache(now, &pending);
                } else {
                    self.read_medium(now, pending);
                }
            } else {
                break;
            }
            self.cleaning_has_turn = true;
        }
        let at_rest = matches!(self.work, Work::None) && self.stream.is_none();
        self.power.set_working(now, !at_rest);
    }

    /// Starts to write a run back. Returns false if the log of a shingled disk has no room for
    /// it.
    fn write_back(&mut self, now: Instant, index: usize) -> bool {
        let whole = self.cache.extent(index);
        let (target, part) = match &self.shingles {
            Some(map) => map.target(whole),
            None => (Target::Home, whole),
        };
        let place = match target {
            Target::Home => None,
            Target::Log(place) => Some(place),
            Target::Full => return false,
        };
        let run = self.cache.take(index, part.sectors(), &self.mechanism);
        let free = self.stop_stream(now);
        let sectors = run.extent.sectors();
        let on_medium = place.map_or(run.extent, |place| Extent::new(place, sectors));
        let there = self.arrival((run.first_there, run.last_there), on_medium.end);
        self.write_medium(free, on_medium, &there);
        self.work = Work::WriteBack(run, target);
        true
    }

    fn write_past_cache(&mut self, now: Instant, pending: &Pending) {
        let extent = pending.extent;
        let there = self.write_arrival(pending.data, extent);
        let mut free = self.stop_stream(now).max(pending.ready);
        if self.parameters.write_cache.shares_segments {
            self.segments.take_for_write(extent, None);
        }
        let to = Arm { cylinder: pending.place.cylinder, head: pending.place.head };
        let travel = self.mechanism.travel(self.arm, to, true);
        free = free + self.parameters.least_write_seek.0.saturating_sub(travel);
        if let Some(mut map) = self.shingles.take() {
            let mut rest = extent;
            while !rest.is_empty() {
                let (target, part) = map.target(rest);
                // If the log has no room, the band has to be rewritten at once.
                let on_medium = match target {
                    Target::Log(place) => Extent::new(place, part.sectors()),
                    Target::Home | Target::Full => part,
                };
                let there = self.arrival((there.enough, there.all), on_medium.end);
                self.write_medium(free, on_medium, &there);
                map.written(part, target);
                free = self.work_end;
                rest.start = part.end;
            }
            self.shingles = Some(map);
        } else {
            self.write_medium(free, extent, &there);
        }
        self.work = Work::Write;
        let at = self.write_reported(pending.data, self.work_end, there.all);
        let (tag, bytes) = (pending.tag, extent.bytes());
        self.endings.push(Ending { at, tag, kind: Kind::Write, bytes });
    }

    /// Chooses the run to write back next, if writing back is allowed now and a run is reached
    /// within `most` nanoseconds.
    pub(super) fn choose_run(
        &mut self,
        now: Instant,
        arm: Arm,
        contended: bool,
        most: u64,
    ) -> Option<(usize, u64)> {
        if self.cache.is_empty() {
            return None;
        }
        let flush = self.flushes.front().map(|&(_, generation)| generation);
        let urgent = flush.is_some() || !self.arriving.is_empty() || self.cache.is_urgent(now);
        let rested = now >= self.idle_since + self.parameters.write_cache.delay.0;
        if urgent || (!contended && rested) {
            return self.cache.choose(now, arm, &self.mechanism, flush, most);
        }
        None
    }

    pub(super) fn read_medium(&mut self, now: Instant, pending: Pending) {
        self.follow_stream(now);
        let extent = pending.extent;
        if self.shingles.as_ref().is_some_and(|map| !map.is_home(extent)) {
            self.read_parts(now, &pending);
            return;
        }
        let active = self.stream.map(|stream| stream.segment);
        let found = match self.look_up(extent) {
            Hit::Whole(segment) => {
                // Another request has read it meanwhile.
                self.segments.touch(segment);
                self.segments.send(segment, extent.end);
                let from = self.read_crosses_from(pending.ready, Some(now));
                let at = self.send(from.max(now), extent.sectors());
                let at = at + self.parameters.bus.read_completion.0;
                let (tag, bytes) = (pending.tag, extent.bytes());
                self.endings.push(Ending { at, tag, kind: Kind::Read, bytes });
                return;
            }
            Hit::Beginning(segment) if self.is_streaming_into(segment) => {
                self.go_on_reading(pending.tag, extent, pending.ready, false);
                return;
            }
            Hit::Beginning(segment) => Some(segment),
            Hit::None => None,
        };
        // First, because a stream that is stopped extends its segment, which may be the one taken here.
        let free = self.stop_stream(now);
        let segment = match found {
            Some(segment) => {
                self.segments.touch(segment);
                segment
            }
            None => self.segments.take(extent.start, active),
        };
        let from = self.segments.run(segment).end;
        let limit = self.limit(segment, extent.end);
        let start = free.max(pending.ready).max(self.spinning_from);
        let piece = self.mechanism.piece(start, self.arm, from, limit, None);
        self.counters.seeks += u64::from(piece.arm.cylinder != self.arm.cylinder);
        if self.parameters.read_cache.keeps_passing_sectors && from == extent.start {
            self.segments.extend_back(segment, self.mechanism.passing(&piece));
        }
        self.stream = Some(Stream { segment, piece, limit });
        self.read_stream(pending.tag, extent, pending.ready, false);
    }

    /// Starts a write to the medium.
    pub(super) fn write_medium(&mut self, free: Instant, extent: Extent, there: &Arrival) {
        self.work_end = self.pass(free.max(self.spinning_from), extent, Some(there));
    }

    /// Ends the arm's current work and gives it the next.
    pub(super) fn end_work(&mut self) {
        let at = self.work_end;
        match core::mem::replace(&mut self.work, Work::None) {
            Work::Read | Work::Write => self.idle_since = at,
            Work::WriteBack(run, target) => {
                if let Some(map) = &mut self.shingles {
                    map.written(run.extent, target);
                }
                self.cache.written_back(&run);
                self.take_writes(at);
                self.end_flushes();
            }
            Work::Clean(band) => self.end_cleaning(band),
            Work::None => {}
        }
        self.work_end = Instant::NEVER;
        self.dispatch(at);
    }
}
