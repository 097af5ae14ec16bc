//! Reads of what has just been written, while the quicker leg does not have it yet. They wait for the
//! write to land there, as long as that is worth it.

use crate::world::script::What;
use crate::world::{REGION_BYTES, World, calm};
use hemi_engine::io::{LegEvent, Operation};
use hemi_engine::marks::Mark;
use hemi_engine::settings::{Policy, Settings};
use hemi_units::{Extent, MICROSECOND, MILLISECOND, SECOND};

/// Slow to read, and first to have a write.
const A: usize = 0;
/// Quick to read.
const B: usize = 1;
const READ: Extent = Extent { start: 0, end: 8 };

/// The time that A takes for a read.
const SLOW: u64 = 10 * MILLISECOND;
/// The time that B takes for a read and, unless it is held up, for a write.
const QUICK: u64 = MILLISECOND;

fn settings(policy: Policy) -> Settings {
    Settings { policy, clean_after: SECOND, ..calm() }
}

/// Lets the engine learn that A takes `slow` for a read, and B less, by requests for `extent`.
fn learn(world: &mut World, extent: Extent, slow: u64) {
    let Extent { start, .. } = extent;
    world.steady(A, 50 * MICROSECOND);
    world.steady(B, QUICK);
    for _ in 0..200 {
        world.write(start, 8);
    }
    // Only A has this, so that it is known how slow A is.
    world.hold(B, What::Writes);
    world.write(start, 8);
    world.steady(A, slow);
    for _ in 0..100 {
        world.read(start, 8);
    }
    world.release(B);
    for _ in 0..100 {
        world.read(start, 8);
    }
}

/// Returns two legs that the engine knows, with a write of [`READ`] that has been acknowledged and that
/// B still has in flight. A takes `slow` for a read.
fn landing_in(settings: Settings, slow: u64) -> World {
    let mut world = World::with_ledger(1, 2, settings);
    learn(&mut world, Extent::new(64, 8), slow);
    world.steady(A, 50 * MICROSECOND);
    world.hold(B, What::Writes);
    let write = world.submit(Operation::Write, READ, false);
    world.wait(200 * MICROSECOND);
    assert!(world.is_answered(write), "A has it");
    world.steady(A, slow);
    world
}

fn landing() -> World {
    landing_in(settings(Policy::First), SLOW)
}

/// Submits a read of what was written and returns it. It waits.
fn waiting(world: &mut World, extent: Extent) -> u64 {
    let read = world.submit(Operation::Read, extent, false);
    world.wait(0);
    for leg in [A, B] {
        assert!(world.in_flight(leg, What::Reads).is_empty(), "it is sent to leg {leg}");
    }
    read
}

/// Submits a read, which is sent to A at once.
fn sent_at_once(world: &mut World, extent: Extent) {
    let waited = |world: &mut World| world.engine().marks().count(Mark::ReadAwaitedLanding);
    let before = waited(world);
    world.submit(Operation::Read, extent, false);
    assert_eq!(waited(world), before, "it waits");
    assert!(world.is_in_flight(A, What::Reads, extent));
}

#[test]
fn a_read_waits_for_a_write_to_land_on_the_quicker_leg() {
    let mut world = landing();
    let read = waiting(&mut world, READ);
    world.release_kind(B, What::Writes);
    assert!(world.is_in_flight(B, What::Reads, READ), "the write has landed");
    world.wait(QUICK);
    assert!(world.is_answered(read));
    world.read_everything();
    world.converge();
}

/// A part of what is read was written long before.
#[test]
fn a_read_waits_for_a_write_to_a_part_of_it() {
    let mut world = landing();
    let read = waiting(&mut world, Extent::new(4, 16));
    world.release_kind(B, What::Writes);
    world.wait(QUICK);
    assert!(world.is_answered(read));
}

/// B does not get on with the write.
#[test]
fn a_read_waits_no_longer_than_a_write_usually_takes() {
    let mut world = landing();
    let read = waiting(&mut world, READ);
    world.wait(SLOW / 2);
    assert!(world.is_in_flight(A, What::Reads, READ), "it still waits");
    world.wait(SLOW / 2 + QUICK);
    assert!(world.is_answered(read));
    world.release(B);
    world.read_everything();
    world.converge();
}

/// A write that is late already says nothing of when it will land.
#[test]
fn a_read_does_not_wait_for_a_late_write() {
    let mut world = landing();
    world.wait(SLOW / 2);
    sent_at_once(&mut world, READ);
}

/// B owes another part of what is read: the write in flight is not all that it lacks.
#[test]
fn a_read_does_not_wait_for_a_leg_that_lacks_more() {
    let mut world = landing();
    world.steady(A, 50 * MICROSECOND);
    world.submit(Operation::Write, Extent::new(8, 8), false);
    world.wait(60 * MICROSECOND);
    world.steady(A, SLOW);
    let write = world.ids(B, What::Writes)[1];
    world.fail(write);
    assert_eq!(world.ids(B, What::Writes).len(), 1, "it is not tried again at once");
    sent_at_once(&mut world, Extent::new(0, 16));
    world.release(B);
    world.read_everything();
    world.converge();
}

/// B lacks so much of the region that it owes it as a whole, what is in flight to it included.
#[test]
fn a_read_does_not_wait_for_a_leg_that_owes_the_region() {
    let settings = Settings { owed_extents_max: 8, ..settings(Policy::First) };
    let mut world = landing_in(settings, SLOW);
    world.steady(A, 10 * MICROSECOND);
    for sector in (16..64).step_by(2) {
        world.submit(Operation::Write, Extent::new(sector, 1), false);
    }
    world.wait(100 * MICROSECOND);
    assert_eq!(world.status().legs[B].owed_region_bytes, REGION_BYTES);
    world.steady(A, SLOW);
    sent_at_once(&mut world, READ);
    world.release(B);
    world.read_everything();
    world.converge();
}

/// Two reads meet the same bad sectors of B. Once A has answered the first, B is given the data to
/// rewrite: the second does not wait for that.
#[test]
fn a_read_does_not_wait_for_a_leg_that_failed_it() {
    let mut world = landing();
    world.release(B);
    world.hold(B, What::Anything);
    let reads = [(); 2].map(|()| world.submit(Operation::Read, READ, false));
    let [first, second] = world.ids(B, What::Reads)[..] else { panic!("B is quicker") };
    world.steady(A, 50 * MICROSECOND);
    world.fail(first);
    world.wait(MILLISECOND);
    assert!(world.is_answered(reads[0]), "A has it");
    assert!(world.is_in_flight(B, What::Writes, READ), "B is not repaired");
    world.fail(second);
    assert!(world.is_in_flight(A, What::Reads, READ), "it waits");
    world.release(B);
    world.wait(SLOW);
    assert!(world.is_answered(reads[1]));
    world.converge();
}

/// The session of B drops, and with it the write.
#[test]
fn a_read_does_not_wait_for_a_leg_that_is_gone() {
    let mut world = landing();
    waiting(&mut world, READ);
    world.event(B, LegEvent::Gone { removed: false });
    assert!(world.is_in_flight(A, What::Reads, READ), "it still waits");
}

/// B fails the write, and owes it.
#[test]
fn a_read_does_not_wait_for_a_write_that_has_failed() {
    let mut world = landing();
    waiting(&mut world, READ);
    let write = world.only(B, What::Writes);
    world.fail(write);
    assert!(world.is_in_flight(A, What::Reads, READ), "it still waits");
    world.release(B);
    world.read_everything();
    world.converge();
}

/// B is no quicker than A.
#[test]
fn a_read_does_not_wait_where_that_gains_nothing() {
    sent_at_once(&mut landing_in(settings(Policy::First), QUICK / 2), READ);
}

/// Other requests go on, a write of the same sectors comes after the read.
#[test]
fn others_do_not_wait_with_the_read() {
    let mut world = landing();
    let read = waiting(&mut world, READ);
    let other = world.submit(Operation::Read, Extent::new(64, 8), false);
    let over = world.submit(Operation::Write, READ, false);
    world.wait(QUICK);
    assert!(world.is_answered(other), "it waits behind another");
    assert!(!world.is_answered(over), "it has overtaken a read");
    world.release(B);
    world.wait(2 * SLOW);
    assert!(world.is_answered(read) && world.is_answered(over));
    world.read_everything();
    world.converge();
}

/// The published rules know no such wait.
#[test]
fn no_read_waits_under_another_policy() {
    let mut world = landing_in(settings(Policy::Paper), SLOW);
    sent_at_once(&mut world, READ);
}
