//! The write cache: runs of sectors that are not on the medium yet.

use std::collections::VecDeque;

use hemi_units::{Extent, Instant};
use slab::Slab;

use super::geometry::Place;
use super::mechanism::{Arm, Mechanism};
use super::nearest::{Search, Spot};
use super::parameters;
use super::rotation::Angle;

/// Maximum number of sectors written back at a time, so that other requests need not wait for a
/// long run.
const AT_A_TIME: u64 = 4096;

/// A run of sectors waiting to be written back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// The sectors.
    pub(super) extent: Extent,
    /// Place of the first sector.
    pub(super) place: Place,
    /// Time at which the data of the first sectors is in the cache.
    pub(super) first_there: Instant,
    /// Time at which the data of the last sector is in the cache.
    pub(super) last_there: Instant,
    /// Time at which the oldest sector arrived.
    since: Instant,
    /// Generation: the number of the flush that has to cover the run.
    generation: u64,
}

impl Run {
    /// Returns the time from `now` until an arm free then reaches the run.
    fn cost(&self, now: Instant, arm: Arm, mechanism: &Mechanism) -> u64 {
        let at = now.max(self.first_there);
        at.since(now) + mechanism.positioning(at, arm, &self.place, true)
    }
}

/// A run in the order of sectors, which is also the order of cylinders. Packed, since runs come
/// and go, and many are examined whenever the arm becomes free.
#[derive(Clone, Copy, Debug)]
struct BySector {
    start: u64,
    cylinder: u32,
    angle: Angle,
    /// Key of the run in [`WriteCache::runs`].
    key: u32,
}

impl BySector {
    fn new(run: &Run, key: usize) -> BySector {
        let Place { cylinder, angle, .. } = run.place;
        BySector { start: run.extent.start, cylinder, angle, key: key as u32 }
    }
}

impl Spot for BySector {
    fn cylinder(&self) -> u32 {
        self.cylinder
    }

    fn angle(&self) -> Angle {
        self.angle
    }
}

/// All runs.
#[derive(Clone, Debug)]
pub(super) struct WriteCache {
    runs: Slab<Run>,
    order: Vec<BySector>,
    size: u64,
    most: usize,
    age_limit: u64,
    urgent_at: f64,
    /// Sectors held, including those being written back.
    held: u64,
    /// Runs held or being written back, for each generation from `first_generation` on.
    generations: VecDeque<u64>,
    first_generation: u64,
    /// A time not later than any run's `since`.
    oldest: Instant,
}

impl WriteCache {
    /// Creates an empty cache.
    pub(super) fn new(cache: &parameters::WriteCache) -> WriteCache {
        WriteCache {
            runs: Slab::with_capacity(cache.runs as usize + 1),
            order: Vec::with_capacity(cache.runs as usize + 1),
            size: cache.size.0 / 512,
            most: cache.runs as usize,
            age_limit: cache.age_limit.0,
            urgent_at: cache.urgent_at,
            held: 0,
            generations: VecDeque::from([0]),
            first_generation: 0,
            oldest: Instant::NEVER,
        }
    }

    /// Returns the run at `index` in the order of sectors.
    fn run(&self, index: usize) -> &Run {
        &self.runs[self.order[index].key as usize]
    }

    /// Returns the index of the first run that begins behind `sector`.
    fn first_behind(&self, sector: u64) -> usize {
        self.order.partition_point(|run| run.start <= sector)
    }

    /// Adds a run at `index` in the order of sectors.
    fn insert(&mut self, index: usize, run: Run) {
        self.order.insert(index, BySector::new(&run, self.runs.vacant_key()));
        self.runs.insert(run);
        *self.runs_of(run.generation) += 1;
    }

    /// Removes and returns the run at `index`. It still counts as held, and in its generation.
    fn remove(&mut self, index: usize) -> Run {
        let key = self.order.remove(index).key;
        self.runs.remove(key as usize)
    }

    /// Returns the number of runs of a generation.
    fn runs_of(&mut self, generation: u64) -> &mut u64 {
        &mut self.generations[(generation - self.first_generation) as usize]
    }

    /// Returns true if no run waits to be written back.
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Returns true if all of `extent` is held.
    pub(super) fn holds(&self, extent: Extent) -> bool {
        let after = self.first_behind(extent.start);
        after > 0 && self.run(after - 1).extent.contains(extent)
    }

    /// Returns the range of runs that overlap or touch `extent`.
    fn neighbours(&self, extent: Extent) -> (usize, usize) {
        let mut from = self.first_behind(extent.start);
        let mut to = from;
        while from > 0 && self.run(from - 1).extent.end >= extent.start {
            from -= 1;
        }
        while self.order.get(to).is_some_and(|run| run.start <= extent.end) {
            to += 1;
        }
        (from, to)
    }

    /// Returns the number of sectors of a write, from its beginning, that find room.
    pub(super) fn room(&self, extent: Extent) -> u64 {
        let free = self.size.saturating_sub(self.held);
        if self.order.len() >= self.most {
            let (from, to) = self.neighbours(extent);
            if from == to {
                return 0;
            }
        }
        free.min(extent.sectors())
    }

    /// Adds `extent` to the cache. Its data arrives between the two times in `there`.
    pub(super) fn hold(
        &mut self,
        extent: Extent,
        now: Instant,
        there: (Instant, Instant),
        mechanism: &Mechanism,
    ) {
        self.oldest = self.oldest.min(now);
        let generation = self.first_generation + self.generations.len() as u64 - 1;
        let mut run = Run {
            extent,
            place: Place::default(),
            first_there: there.0,
            last_there: there.1,
            since: now,
            generation,
        };
        let (from, to) = self.neighbours(extent);
        self.held += extent.sectors();
        for index in from..to {
            let old = *self.run(index);
            self.held -= old.extent.intersection(extent).sectors_or_none();
            run.extent.start = run.extent.start.min(old.extent.start);
            run.extent.end = run.extent.end.max(old.extent.end);
            run.since = run.since.min(old.since);
            run.generation = run.generation.min(old.generation);
            *self.runs_of(old.generation) -= 1;
        }
        run.place = match (from < to).then(|| self.run(from)) {
            Some(old) if old.extent.start == run.extent.start => {
                run.first_there = run.first_there.min(old.first_there);
                old.place
            }
            _ => mechanism.geometry.place(run.extent.start),
        };
        for old in self.order.drain(from..to) {
            self.runs.remove(old.key as usize);
        }
        self.insert(from, run);
    }

    /// Forgets the parts of `extent` that are held, because a write bypasses the cache.
    pub(super) fn drop_range(&mut self, extent: Extent, mechanism: &Mechanism) {
        let mut at = self.first_behind(extent.start);
        while at > 0 && self.run(at - 1).extent.end > extent.start {
            at -= 1;
        }
        while self.order.get(at).is_some_and(|run| run.start < extent.end) {
            let run = self.remove(at);
            let before = Extent { start: run.extent.start, end: extent.start };
            let after = Extent { start: extent.end, end: run.extent.end };
            self.held -= run.extent.intersection(extent).sectors();
            *self.runs_of(run.generation) -= 1;
            for rest in [before, after] {
                if !rest.is_empty() {
                    let place = mechanism.geometry.place(rest.start);
                    self.insert(at, Run { extent: rest, place, ..run });
                    at += 1;
                }
            }
        }
    }

    /// Puts everything held now before a flush, and returns the flush's generation.
    pub(super) fn begin_flush(&mut self) -> u64 {
        self.generations.push_back(0);
        self.first_generation + self.generations.len() as u64 - 2
    }

    /// Returns true if everything up to and including `generation` is on the medium.
    pub(super) fn is_flushed(&mut self, generation: u64) -> bool {
        while self.generations.len() > 1 && self.generations[0] == 0 {
            self.generations.pop_front();
            self.first_generation += 1;
        }
        self.first_generation > generation
    }

    /// Returns true if writing back must not wait any longer.
    pub(super) fn is_urgent(&mut self, now: Instant) -> bool {
        self.held as f64 >= self.urgent_at * self.size as f64
            || self.order.len() as f64 >= self.urgent_at * self.most as f64
            || self.too_old(now).is_some()
    }

    /// Returns the oldest run if it is older than the age limit.
    fn too_old(&mut self, now: Instant) -> Option<usize> {
        if now.since(self.oldest) <= self.age_limit {
            return None;
        }
        let oldest = (0..self.order.len()).map(|i| (self.run(i).since, i)).min();
        self.oldest = oldest.map_or(Instant::NEVER, |(since, _)| since);
        oldest.filter(|(since, _)| now.since(*since) > self.age_limit).map(|(_, i)| i)
    }

    /// Chooses the run that an arm free at `now` reaches first and within `most` nanoseconds,
    /// among those up to a generation, and returns its positioning time. If the oldest run has
    /// waited too long, returns it at no cost.
    pub(super) fn choose(
        &mut self,
        now: Instant,
        arm: Arm,
        mechanism: &Mechanism,
        generation: Option<u64>,
        most: u64,
    ) -> Option<(usize, u64)> {
        if let Some(index) = self.too_old(now) {
            return Some((index, 0));
        }
        let generation = generation.unwrap_or(u64::MAX);
        let mut best: Option<(usize, u64)> = None;
        Search::new(mechanism, now, arm, true, most).outwards(&self.order, |index| {
            let run = self.run(index);
            let cost = run.cost(now, arm, mechanism);
            let better = best.map_or(cost <= most, |(_, least)| cost < least);
            (better && run.generation <= generation).then(|| {
                best = Some((index, cost));
                cost
            })
        });
        best
    }

    /// Returns the sectors of a run.
    pub(super) fn extent(&self, index: usize) -> Extent {
        self.run(index).extent
    }

    /// Removes a run, or at most its first `most` sectors, to be written back.
    pub(super) fn take(&mut self, index: usize, most: u64, mechanism: &Mechanism) -> Run {
        let run = *self.run(index);
        let most = most.min(AT_A_TIME);
        if run.extent.sectors() <= most {
            return self.remove(index);
        }
        let middle = run.extent.start + most;
        let key = self.order[index].key as usize;
        let rest = &mut self.runs[key];
        rest.extent.start = middle;
        rest.place = mechanism.geometry.place(middle);
        self.order[index] = BySector::new(rest, key);
        *self.runs_of(run.generation) += 1;
        // The sectors behind it arrived later.
        let last_there = run.first_there;
        Run { extent: Extent { start: run.extent.start, end: middle }, last_there, ..run }
    }

    /// Records that a taken run is on the medium.
    pub(super) fn written_back(&mut self, run: &Run) {
        self.held -= run.extent.sectors();
        *self.runs_of(run.generation) -= 1;
    }
}

/// The length of an intersection that may be empty.
trait SectorsOrNone {
    fn sectors_or_none(self) -> u64;
}

impl SectorsOrNone for Extent {
    fn sectors_or_none(self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

#[cfg(test)]
mod tests;
