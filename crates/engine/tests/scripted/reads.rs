//! Reads that are sent to more than one leg: hedges, parts, and both.

use crate::world::script::What;
use crate::world::{LONG, SECTORS, World, calm, fast, settings, steady_legs};
use hemi_engine::command::Command;
use hemi_engine::identifiers::LegIndex;
use hemi_engine::io::Operation;
use hemi_engine::settings::Settings;
use hemi_engine::status::LegState;
use hemi_units::{Extent, MICROSECOND, MILLISECOND, SECOND};

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;
const D: usize = 3;

/// Returns four legs. C lacks the second half of the first 16 sectors, D the first half, each
/// because it is late with a write.
fn halves() -> World {
    let mut world = World::new(1, 4, Settings { wait_floor: 20 * MILLISECOND, ..settings() });
    for leg in [A, B, C, D] {
        world.steady(leg, 100 * MICROSECOND);
    }
    world.write(0, 16);
    // This teaches the engine how long a read takes.
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

/// Submits a read that is hedged. Returns it and the legs on which it is in flight.
fn hedged_read(world: &mut World) -> (u64, Vec<usize>) {
    for leg in [A, B, C, D] {
        world.hold(leg, What::Reads);
    }
    let read = world.submit(Operation::Read, Extent::new(0, 16), false);
    world.wait(5 * MILLISECOND);
    let on = (A..=D).filter(|&leg| !world.in_flight(leg, What::Reads).is_empty()).collect();
    (read, on)
}

/// The parts are all needed, though one of the two earlier reads would have been enough.
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

/// Reads for this long, once per millisecond. Returns the number of reads that leg B answered.
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

/// The extent that the tests below read.
const READ: Extent = Extent { start: 0, end: 1024 };

/// Returns two legs, of which A cannot read the extent.
fn unreadable_on_a(settings: Settings) -> World {
    let mut world = steady_legs(2, settings);
    world.write(READ.start, READ.sectors());
    world.flush();
    let start = world.data_start();
    world.behaviour[A].unreadable = Extent { start: start + READ.start, end: start + READ.end };
    world
}

/// B answers one by one, most of it later than its limit.
#[test]
fn a_read_waits_for_a_late_leg_where_the_other_has_failed() {
    let mut world = unreadable_on_a(calm());
    world.behaviour[B].serial = 15 * MILLISECOND;
    let read = world.submit(Operation::Read, READ, false);
    world.wait(10 * SECOND);
    assert!(world.is_answered(read) && !world.has_failed(read));
}

/// B is silent. A can later read what it could not read at first.
#[test]
fn a_leg_that_has_failed_is_asked_again_beside_one_that_is_silent_for_long() {
    let mut world = unreadable_on_a(Settings { out_after: SECOND, ..calm() });
    // B cannot be marked out, because A lacks some of this.
    world.hold(A, What::Writes);
    world.write(SECTORS - 8, 8);
    let only_on_b = world.only(A, What::Writes);
    world.fail(only_on_b);
    world.hold(B, What::Anything);
    let read = world.submit(Operation::Read, READ, false);
    world.wait(10 * SECOND);
    assert_eq!(world.status().legs[B].state, LegState::Frozen);
    assert!(!world.is_answered(read));
    world.behaviour[A].unreadable = Extent::default();
    world.wait(SECOND);
    assert!(world.is_answered(read) && !world.has_failed(read));
}

/// B is silent, and marked out.
#[test]
fn a_read_fails_where_what_is_left_has_failed() {
    let mut world = unreadable_on_a(Settings { out_after: SECOND, ..calm() });
    world.hold(B, What::Anything);
    let read = world.submit(Operation::Read, READ, false);
    world.wait(10 * SECOND);
    assert_eq!(world.status().legs[B].state, LegState::Out);
    assert!(world.has_failed(read));
}

/// B is silent, and detached.
#[test]
fn a_read_does_not_wait_for_a_leg_that_is_detached() {
    let mut world = unreadable_on_a(calm());
    world.hold(B, What::Anything);
    let read = world.submit(Operation::Read, READ, false);
    world.wait(MILLISECOND);
    let (now, leg) = (world.now, LegIndex(B as u8));
    world.engine().command(now, 9, Command::Detach { leg });
    world.take_actions();
    world.wait(10 * SECOND);
    assert_eq!(world.commands.get(&9), Some(&Ok(())));
    assert!(world.has_failed(read));
}

/// B is silent and has the first half of the extent, and A cannot read the second. While B is
/// waited for, another leg takes the slot of C, which has been detached.
#[test]
fn a_read_that_no_leg_can_serve_fails_though_a_leg_leaves_its_slot() {
    let mut world = steady_legs(3, Settings { copies_reserve: u64::MAX, ..calm() });
    world.write(0, 16);
    let leg = LegIndex(C as u8);
    assert_eq!(world.command(Command::Detach { leg }), Ok(()));
    world.hold(B, What::Anything);
    world.write(300, 8);
    world.wait(LONG);
    world.write(8, 8);
    world.hold(A, What::Reads);
    let read = world.submit(Operation::Read, Extent::new(0, 16), false);
    let id = world.only(A, What::Reads);
    world.fail(id);
    assert_eq!(world.in_flight(B, What::Reads).len(), 1, "B is asked for what it has");
    world.put_in_new_disk(C, 0);
    let join = Command::Join { leg, id: [77; 16], traits: fast() };
    world.let_come(A);
    // It ends when B has the record of it.
    let now = world.now;
    world.engine().command(now, 7, join);
    world.take_actions();
    assert!(!world.is_answered(read));
    world.release(B);
    world.wait(MILLISECOND);
    assert!(world.has_failed(read), "nobody could read its second half");
}
