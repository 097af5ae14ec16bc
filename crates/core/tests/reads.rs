//! Reads that more than one leg is asked for: hedges, parts, and both.

mod world;

use hemi_core::io::Operation;
use hemi_core::settings::Settings;
use hemi_core::units::{Extent, MICROSECOND, MILLISECOND, SECOND};
use world::script::What;
use world::{World, settings};

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;
const D: usize = 3;

/// Four legs: C lacks the second half of the first 16 sectors, D the first half, each because
/// it is late with a write.
fn halves() -> World {
    let mut world = World::new(1, 4, Settings { wait_floor: 20 * MILLISECOND, ..settings() });
    for leg in [A, B, C, D] {
        world.steady(leg, 100 * MICROSECOND);
    }
    world.write(0, 16);
    // So that it is known how long a read takes.
    for _ in 0..300 {
        world.read(0, 16);
    }
    world.wait(200 * MILLISECOND);
    for (late, start) in [(C, 8), (D, 0)] {
        world.hold(late, What::Writes);
        world.write(start, 8);
        world.let_come(late);
    }
    world
}

/// The legs that a read is out on, once it has been hedged.
fn hedged_read(world: &mut World) -> (u64, Vec<usize>) {
    for leg in [A, B, C, D] {
        world.hold(leg, What::Reads);
    }
    let read = world.submit(Operation::Read, Extent::new(0, 16), false);
    world.wait(5 * MILLISECOND);
    let on = (A..=D).filter(|&leg| !world.in_flight(leg, What::Reads).is_empty()).collect();
    (read, on)
}

/// The parts are all needed, though one of the two reads before them would have done.
#[test]
fn a_read_sent_in_parts_after_its_hedge_failed_waits_for_all_of_them() {
    let mut world = halves();
    let (read, on) = hedged_read(&mut world);
    assert_eq!(on, [A, B], "one leg that has all of it, and the hedge");
    for leg in on {
        let id = world.only(leg, What::Reads);
        world.fail(id);
    }
    let (first, second) = (world.only(C, What::Reads), world.only(D, What::Reads));
    world.land(first);
    assert!(!world.is_answered(read), "half of it is not there yet");
    world.land(second);
    assert!(world.is_answered(read) && !world.has_failed(read));
}

/// Reads for so long, one a millisecond. How many of them leg B answered.
fn reads_of_b(world: &mut World, time: u64) -> u64 {
    let before = world.status().legs[B].reads.count();
    for _ in 0..time / MILLISECOND {
        world.read(0, 16);
        world.wait(MILLISECOND);
    }
    world.status().legs[B].reads.count() - before
}

/// A leg that was slow to read from is asked now and then, and gets the reads once it is fast.
#[test]
fn a_leg_that_was_slow_to_read_from_is_tried_again() {
    let mut world = World::new(1, 2, settings());
    world.steady(A, 200 * MICROSECOND);
    world.steady(B, 1500 * MICROSECOND);
    world.write(0, 16);
    let slow = reads_of_b(&mut world, 60 * SECOND);
    assert!((1..40).contains(&slow), "{slow} of 60,000 reads went to the slow leg");
    world.steady(B, 20 * MICROSECOND);
    reads_of_b(&mut world, 60 * SECOND);
    let fast = reads_of_b(&mut world, 10 * SECOND);
    assert!(fast > 9_900, "{fast} of 10,000 reads go to the leg that became fast");
}
