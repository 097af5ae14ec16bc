//! The write cache: runs of sectors that are not on the medium yet.

use std::collections::VecDeque;

use hemi_units::{Extent, Instant};

use super::geometry::Place;
use super::mechanism::{Arm, Mechanism};
use super::parameters;

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

/// All runs, by sector.
#[derive(Clone, Debug)]
pub(super) struct WriteCache {
    runs: Vec<Run>,
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
            runs: Vec::with_capacity(cache.runs as usize + 1),
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

    /// Returns true if no run waits to be written back.
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns true if all of `extent` is held.
    pub(super) fn holds(&self, extent: Extent) -> bool {
        let after = self.runs.partition_point(|run| run.extent.start <= extent.start);
        after > 0 && self.runs[after - 1].extent.contains(extent)
    }

    /// Returns the range of runs that overlap or touch `extent`.
    fn neighbours(&self, extent: Extent) -> (usize, usize) {
        let from = self.runs.partition_point(|run| run.extent.end < extent.start);
        let mut to = from;
        while self.runs.get(to).is_some_and(|run| run.extent.start <= extent.end) {
            to += 1;
        }
        (from, to)
    }

    /// Returns the number of sectors of a write, from its beginning, that find room.
    pub(super) fn room(&self, extent: Extent) -> u64 {
        let free = self.size.saturating_sub(self.held);
        if self.runs.len() >= self.most {
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
        for old in &self.runs[from..to] {
            self.held -= old.extent.intersection(extent).sectors_or_none();
            run.extent.start = run.extent.start.min(old.extent.start);
            run.extent.end = run.extent.end.max(old.extent.end);
            run.since = run.since.min(old.since);
            run.generation = run.generation.min(old.generation);
            self.generations[(old.generation - self.first_generation) as usize] -= 1;
        }
        self.generations[(run.generation - self.first_generation) as usize] += 1;
        run.place = match self.runs[from..to].first() {
            Some(old) if old.extent.start == run.extent.start => {
                run.first_there = run.first_there.min(old.first_there);
                old.place
            }
            _ => mechanism.geometry.place(run.extent.start),
        };
        if from == to {
            self.runs.insert(from, run);
        } else {
            self.runs[from] = run;
            self.runs.drain(from + 1..to);
        }
    }

    /// Forgets the parts of `extent` that are held, because a write bypasses the cache.
    pub(super) fn drop_range(&mut self, extent: Extent, mechanism: &Mechanism) {
        let mut at = self.runs.partition_point(|run| run.extent.end <= extent.start);
        while let Some(&run) = self.runs.get(at) {
            if run.extent.start >= extent.end {
                break;
            }
            let before = Extent { start: run.extent.start, end: extent.start };
            let after = Extent { start: extent.end, end: run.extent.end };
            self.held -= run.extent.intersection(extent).sectors();
            self.runs.remove(at);
            self.generations[(run.generation - self.first_generation) as usize] -= 1;
            for rest in [before, after] {
                if !rest.is_empty() {
                    let place = mechanism.geometry.place(rest.start);
                    self.runs.insert(at, Run { extent: rest, place, ..run });
                    self.generations[(run.generation - self.first_generation) as usize] += 1;
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
            || self.runs.len() as f64 >= self.urgent_at * self.most as f64
            || self.too_old(now).is_some()
    }

    /// Returns the oldest run if it is older than the age limit.
    fn too_old(&mut self, now: Instant) -> Option<usize> {
        if now.since(self.oldest) <= self.age_limit {
            return None;
        }
        let oldest = self.runs.iter().enumerate().map(|(i, run)| (run.since, i)).min();
        self.oldest = oldest.map_or(Instant::NEVER, |(since, _)| since);
        oldest.filter(|(since, _)| now.since(*since) > self.age_limit).map(|(_, i)| i)
    }

    /// Chooses the run that an arm free at `now` reaches first, among those up to a generation,
    /// and returns its positioning time. If the oldest run has waited too long, returns it at
    /// no cost.
    pub(super) fn choose(
        &mut self,
        now: Instant,
        arm: Arm,
        mechanism: &Mechanism,
        generation: Option<u64>,
    ) -> Option<(usize, u64)> {
        if let Some(index) = self.too_old(now) {
            return Some((index, 0));
        }
        let generation = generation.unwrap_or(u64::MAX);
        let middle = self.runs.partition_point(|run| run.place.cylinder < arm.cylinder);
        let mut best: Option<(usize, u64)> = None;
        let (mut least, mut reach) = (u64::MAX, u32::MAX);
        let mut weigh = |index: usize, run: &Run| {
            // No run further out on this side can be reached sooner.
            if run.place.cylinder.abs_diff(arm.cylinder) >= reach {
                return false;
            }
            if run.generation <= generation {
                let at = now.max(run.first_there);
                let cost = at.since(now) + mechanism.positioning(at, arm, &run.place, true);
                if cost < least {
                    least = cost;
                    reach = mechanism.reach(cost);
                    best = Some((index, cost));
                }
            }
            true
        };
        let mut up = middle;
        let mut down = middle;
        let (mut go_up, mut go_down) = (true, true);
        while go_up || go_down {
            if go_up {
                go_up = self.runs.get(up).is_some_and(|run| weigh(up, run));
                up += 1;
            }
            if go_down {
                go_down = down > 0 && weigh(down - 1, &self.runs[down - 1]);
                down = down.saturating_sub(1);
            }
        }
        best
    }

    /// Returns the sectors of a run.
    pub(super) fn extent(&self, index: usize) -> Extent {
        self.runs[index].extent
    }

    /// Removes a run, or at most its first `most` sectors, to be written back.
    pub(super) fn take(&mut self, index: usize, most: u64, mechanism: &Mechanism) -> Run {
        let run = self.runs[index];
        let most = most.min(AT_A_TIME);
        if run.extent.sectors() <= most {
            return self.runs.remove(index);
        }
        let middle = run.extent.start + most;
        let rest = &mut self.runs[index];
        rest.extent.start = middle;
        rest.place = mechanism.geometry.place(middle);
        self.generations[(run.generation - self.first_generation) as usize] += 1;
        // The sectors behind it arrived later.
        let last_there = run.first_there;
        Run { extent: Extent { start: run.extent.start, end: middle }, last_there, ..run }
    }

    /// Records that a taken run is on the medium.
    pub(super) fn written_back(&mut self, run: &Run) {
        self.held -= run.extent.sectors();
        self.generations[(run.generation - self.first_generation) as usize] -= 1;
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
