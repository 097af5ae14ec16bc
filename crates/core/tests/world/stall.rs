//! The runner of stalls: one leg freezes at a time, and what a client feels of it is bounded
//! (P4). Afterwards writes go at the fast leg's speed again.

use hemi_core::io::Operation;
use hemi_core::settings::{ExposureMode, Settings};
use hemi_core::units::{Extent, Instant, MICROSECOND, MILLISECOND, SECOND};

use super::{Random, Shape, World, settings};

const FAST: u64 = 60 * MICROSECOND;
const SLOW: u64 = 4 * MILLISECOND;
const WAIT: u64 = 20 * MILLISECOND;
/// What a request may take while a leg is frozen: its wait limit, a look that comes late, and
/// what the others need for moves, flushes and debts, one behind the other.
const BOUND: u64 = WAIT + 100 * MILLISECOND;

/// One run; panics with what a client had to wait for.
pub fn stall(seed: u64, legs: usize) {
    let mut random = Random(seed ^ 0x57A1_1000);
    let fall_behind = random.one_in(2);
    let settings = Settings {
        wait_floor: WAIT,
        wait_ceiling: WAIT,
        out_after: 600 * SECOND,
        clean_after: [100, 300, 5000][random.below(3) as usize] * MILLISECOND,
        exposure_mode: if fall_behind { ExposureMode::FallBehind } else { ExposureMode::Throttle },
        exposure_bytes: 64 << 20,
        exposure_age: 600 * SECOND,
        owed_extents_max: 4096,
        dirty_regions_max: 64,
        ..settings()
    };
    let shape = Shape { memory_sectors: 1 << 16, ..Shape::default() };
    let mut world = World::of_shape(random.next(), legs, settings, shape);
    for leg in 0..legs {
        world.steady(leg, if leg == 0 { FAST } else { SLOW });
    }
    let mut run = Stall { world, random };
    // Histories first: what is usual is not known before.
    run.load(400, 300 * MICROSECOND, None);
    for _ in 0..3 {
        let leg = run.random.below(legs as u64) as usize;
        let until = run.world.now + 2 * SECOND;
        run.world.freeze(leg, until);
        run.load(60, 5 * MILLISECOND, Some(BOUND));
        run.rest(until);
        run.load(100, 20 * MILLISECOND, None);
        if leg == 0 {
            run.is_fast_again();
        }
        run.world.run_until_answered(20 * SECOND);
        run.world.converge();
    }
    run.world.read_everything();
}

struct Stall {
    world: World,
    random: Random,
}

impl Stall {
    /// So many requests, one every `gap`; each may take `bound`.
    fn load(&mut self, count: u32, gap: u64, bound: Option<u64>) {
        for _ in 0..count {
            if self.world.requests.len() < 32 {
                self.request();
            }
            let until = self.world.now + gap;
            self.run(until, bound);
        }
    }

    fn request(&mut self) {
        let start = self.random.below(200);
        let extent = Extent::new(start, 1 + self.random.below(16));
        let (operation, fua) = match self.random.below(10) {
            0..=3 => (Operation::Read, false),
            4..=8 => (Operation::Write, self.random.one_in(6)),
            _ => (Operation::Flush, false),
        };
        self.world.submit(operation, extent, fua);
    }

    fn run(&mut self, until: Instant, bound: Option<u64>) {
        while self.world.step(until) {
            let Some(bound) = bound else { continue };
            for (token, request) in &self.world.requests {
                let waited = self.world.now.since(self.world.checker.invoked_at(*token));
                assert!(
                    waited <= bound,
                    "P4: a client waits for {} ms: {request:?}",
                    waited / MILLISECOND
                );
            }
        }
        self.world.run_until(until);
    }

    fn rest(&mut self, until: Instant) {
        self.run(until + 10 * MILLISECOND, None);
    }

    /// The fast leg has been back for long: it decides again, and writes go at its speed.
    fn is_fast_again(&mut self) {
        for _ in 0..150 {
            self.world.submit(Operation::Write, Extent::new(self.random.below(200), 4), false);
            self.run(self.world.now + 20 * MILLISECOND, None);
        }
        let mut slow = 0;
        for _ in 0..20 {
            self.world.run_until_answered(20 * SECOND);
            let began = self.world.now;
            self.world.submit(Operation::Write, Extent::new(self.random.below(200), 4), false);
            while !self.world.requests.is_empty() && self.world.step(began + SECOND) {}
            slow += u32::from(self.world.now.since(began) >= SLOW);
        }
        assert!(slow < 10, "P4: {slow} of 20 writes go at the slow leg's speed long after");
    }
}
