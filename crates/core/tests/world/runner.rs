//! The runner of random runs: clients and faults drawn from one seed, and what must hold.
//!
//! `tests/regressions.rs` names seeds of this runner that once failed: what it draws, and in
//! which order, stays as it is.

use hemi_core::io::Operation;
use hemi_core::settings::Settings;
use hemi_core::units::{Extent, MILLISECOND};

use super::{Random, SECTORS, World};

fn random_extent(random: &mut Random) -> Extent {
    // Mostly a hot corner, so that operations overlap.
    let hot = random.below(3) > 0;
    let start = random.below(if hot { 200 } else { SECTORS - 1 });
    let longest = if random.one_in(10) { 300 } else { 24 };
    let count = (1 + random.below(longest)).min(SECTORS - start);
    Extent::new(start, count)
}

fn random_request(world: &mut World) {
    let mut random = Random(world.random.next());
    let extent = random_extent(&mut random);
    let (operation, fua) = match random.below(20) {
        0..=6 => (Operation::Read, false),
        7..=14 => (Operation::Write, random.one_in(6)),
        15 => (Operation::WriteZeroes { may_unmap: random.one_in(2) }, random.one_in(6)),
        16 => (Operation::Discard, false),
        _ => (Operation::Flush, false),
    };
    world.submit(operation, extent, fua);
}

fn random_fault(world: &mut World, errors: bool) {
    let leg = world.random.below(world.disks.len() as u64) as usize;
    match world.random.below(6) {
        0 | 1 => {
            let length = (1 + world.random.below(300)) * MILLISECOND;
            let until = world.now + length;
            world.freeze(leg, until);
        }
        2 => world.behaviour[leg].latency = (1 + world.random.below(20)) * MILLISECOND,
        3 => world.behaviour[leg].latency = 50_000,
        4 if errors => {
            world.behaviour[leg].read_errors = world.random.below(2) * 10;
            world.behaviour[leg].write_errors = world.random.below(2) * 10;
        }
        _ => {
            world.behaviour[leg].read_errors = 0;
            world.behaviour[leg].write_errors = 0;
        }
    }
}

/// One run of 400 steps with four crashes; panics with the checker's findings.
pub fn run(seed: u64, legs: usize, settings: Settings, errors: bool) {
    let mut world = World::new(seed, legs, settings);
    let all: Vec<usize> = (0..legs).collect();
    for step in 0..400u64 {
        if world.requests.len() < 32 && world.can_submit() {
            random_request(&mut world);
        }
        if world.random.one_in(25) {
            random_fault(&mut world, errors);
        }
        let gap = [0, 1_000, 20_000, 200_000, 5_000_000][world.random.below(5) as usize];
        let until = world.now + gap;
        world.run_until(until);
        if step % 100 == 99 {
            let kill = world.random.one_in(2);
            if kill {
                world.kill()
            } else {
                world.power_cut()
            }
            for behaviour in &mut world.behaviour {
                *behaviour = Default::default();
            }
            world
                .open(&all)
                .unwrap_or_else(|r| panic!("refused: {}", r.describe(&["a", "b", "c"])));
            world.read_everything();
        }
    }
    for behaviour in &mut world.behaviour {
        *behaviour = Default::default();
    }
    world.run_until_answered(60_000 * MILLISECOND);
    world.converge();
    world.read_everything();
    world.close();
    assert_eq!(world.engine().buffers().in_use(), 0, "a buffer was never given back");
    world.open(&all).unwrap_or_else(|r| panic!("refused: {}", r.describe(&["a", "b", "c"])));
    world.read_everything();
}

/// The seeds to run: one named by `SEED`, as many as `SEEDS` says, or `default`.
pub fn seeds(default: u64) -> std::ops::Range<u64> {
    if let Ok(seed) = std::env::var("SEED") {
        let seed = seed.parse().expect("SEED is a number");
        return seed..seed + 1;
    }
    let count = std::env::var("SEEDS").map_or(default, |s| s.parse().expect("SEEDS is a number"));
    0..count
}

/// Runs many seeds and names the one that fails.
pub fn run_all(default: u64, legs: usize, errors: bool, settings: Settings) {
    for seed in seeds(default) {
        let result = std::panic::catch_unwind(|| run(seed, legs, settings, errors));
        if let Err(cause) = result {
            eprintln!("failed with seed {seed}");
            std::panic::resume_unwind(cause);
        }
    }
}
