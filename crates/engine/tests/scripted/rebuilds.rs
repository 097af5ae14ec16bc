//! Regions owed as a whole, from the moment they are taken up until the leg has them, and legs that
//! go meanwhile.

use crate::world::landing::Landing;
use crate::world::script::What;
use crate::world::{LONG, REGION_BYTES, Shape, World, calm, fast, settings, steady_legs};
use hemi_engine::command::Command;
use hemi_engine::identifiers::LegIndex;
use hemi_engine::io::{LegEvent, Operation};
use hemi_engine::settings::{Limits, Settings};
use hemi_engine::status::LegState;
use hemi_units::{Extent, MILLISECOND, SECOND};

const FAST: usize = 0;
const SLOW: usize = 1;

fn world() -> World {
    let mut world = World::new(1, 2, settings());
    world.steady(FAST, 50_000);
    world.steady(SLOW, 100_000);
    world
}

/// A leg that is being rebuilt is not fresh just because none of its region waits in the queue.
#[test]
fn a_region_being_rebuilt_is_owed_until_it_is_written() {
    let mut world = world();
    world.write(0, 8);
    world.crash(None, |_| Landing::Whole);
    world.make_differ(SLOW, Extent::new(0, REGION_BYTES / 512));
    world.hold(FAST, What::Reads);
    world.hold(SLOW, What::Writes);
    world.open(&[FAST, SLOW]).expect("both are there");
    world.wait(10 * MILLISECOND);
    let region = Extent::new(0, REGION_BYTES / 512);
    assert!(world.is_in_flight(FAST, What::Reads, region), "it is read from the authority");
    assert_eq!(world.status().legs[SLOW].owed_region_bytes, REGION_BYTES);
    world.release(FAST);
    world.wait(MILLISECOND);
    assert!(world.is_in_flight(SLOW, What::Writes, region), "and written");
    assert_eq!(world.status().legs[SLOW].owed_region_bytes, REGION_BYTES);
    world.release(SLOW);
    world.converge();
    assert_eq!(world.status().legs[SLOW].owed_bytes, 0);
}

/// Data that a leg is given of a region it owes anyway is no exposure, and is not written together
/// with data that is: all of it would count.
#[test]
fn a_rebuild_that_failed_counts_as_exposure_only_where_it_was_written_since() {
    let mut world =
        World::new(1, 2, Settings { leg_window: 1, drain_bytes: 64 << 10, ..settings() });
    world.steady(FAST, 50_000);
    world.steady(SLOW, 100_000);
    let (first, second) = (Extent::new(0, 128), Extent::new(128, 128));
    world.write(first.start, 8);
    world.write(second.start, 8);
    world.crash(None, |_| Landing::Whole);
    world.make_differ(SLOW, first);
    world.make_differ(SLOW, second);
    world.hold(SLOW, What::Writes);
    world.open(&[FAST, SLOW]).expect("both are there");
    world.wait(10 * MILLISECOND);
    assert!(world.is_in_flight(SLOW, What::Writes, first), "it is being rebuilt");
    world.write(16, 4);
    let write = world.only(SLOW, What::Writes);
    world.fail(write);
    // It is tried again after a pause, in which the other one is begun.
    world.wait(30 * MILLISECOND);
    assert!(world.is_in_flight(SLOW, What::Writes, second));
    for _ in 0..4 {
        assert_eq!(world.status().exposure_bytes, 4 * 512);
        let write = world.only(SLOW, What::Writes);
        let is_new = world.is_in_flight(SLOW, What::Writes, Extent::new(16, 4));
        world.land(write);
        world.wait(MILLISECOND);
        if is_new {
            break;
        }
    }
    assert_eq!(world.status().exposure_bytes, 0);
    world.release(SLOW);
    world.converge();
    world.read_everything();
}

/// Writes that fail after their leg has gone out are owed by it, not by the next leg in its slot.
#[test]
fn a_leg_that_joins_owes_nothing_for_the_one_before_it() {
    let mut world = world();
    world.write(0, 8);
    world.wait(SECOND);
    world.hold(SLOW, What::Anything);
    world.submit(Operation::Write, Extent::new(300, 8), false);
    world.wait(SECOND);
    assert!(world.is_in_flight(SLOW, What::Writes, Extent::new(300, 8)), "a zombie");
    let leg = LegIndex(SLOW as u8);
    assert_eq!(world.command(Command::Detach { leg }), Ok(()));
    world.abort(SLOW, |_| Some(Landing::Not));
    world.let_come(SLOW);
    world.put_in_new_disk(SLOW, 0);
    let join = Command::Join { leg, id: [77; 16], traits: fast() };
    assert_eq!(world.command(join), Ok(()));
    world.write(296, 16);
    world.converge();
    world.read_everything();
}

/// Data that a leg was to get with a region it was being given is given by itself when the rest of
/// the region is lost.
#[test]
fn a_write_under_way_reaches_the_heir_of_a_region_taken_up_since() {
    let mut world = World::new(1, 2, Settings { leg_window: 1, ..settings() });
    world.steady(FAST, 50_000);
    world.steady(SLOW, 100_000);
    world.write(0, 8);
    world.write(128, 128);
    world.hold(FAST, What::Reads);
    world.event(SLOW, LegEvent::Gone { removed: false });
    world.event(SLOW, LegEvent::Back);
    world.wait(10 * MILLISECOND);
    let second = Extent::new(128, 128);
    assert!(!world.is_in_flight(FAST, What::Reads, second), "the first region goes first");
    let rewritten = Extent::new(200, 8);
    world.submit(Operation::Flush, Extent::default(), false);
    world.wait(5 * MILLISECOND);
    world.hold(FAST, What::Writes);
    world.submit(Operation::Write, rewritten, false);
    world.wait(MILLISECOND);
    assert!(world.is_in_flight(FAST, What::Writes, rewritten), "the other owes the region");
    while !world.is_in_flight(FAST, What::Reads, second) {
        let read = world.only(FAST, What::Reads);
        world.land(read);
        world.wait(MILLISECOND);
    }
    world.event(FAST, LegEvent::Gone { removed: true });
    assert_eq!(world.engine().lost_extents(), [second]);
    world.event(FAST, LegEvent::Back);
    world.release(FAST);
    world.run_until_answered(10 * SECOND);
    world.write(second.start, rewritten.start - second.start);
    world.write(rewritten.end, second.end - rewritten.end);
    world.converge();
    world.read_everything();
}

/// C owes two regions. A part of the first is only on A, which falls silent.
#[test]
fn a_region_that_waits_for_a_silent_leg_holds_up_no_other() {
    let [a, b, c] = [0, 1, 2];
    let settings = Settings {
        out_after: SECOND,
        leg_window: 1,
        drain_bytes: 64 << 10,
        copies_reserve: u64::MAX,
        ..calm()
    };
    let mut world = steady_legs(3, settings);
    world.hold(c, What::Anything);
    world.write(0, 8);
    world.write(REGION_BYTES / 512, 8);
    world.wait(5 * SECOND);
    assert_eq!(world.status().legs[c].state, LegState::Out);
    world.hold(b, What::Writes);
    world.write(0, 8);
    let write = world.only(b, What::Writes);
    world.fail(write);
    world.let_come(b);
    world.hold(a, What::Anything);
    world.wait(LONG);
    world.release(c);
    world.wait(SECOND);
    assert_eq!(world.status().legs[c].owed_region_bytes, REGION_BYTES, "B has all of the second");
}

/// More regions are rebuilt at once than there are records to spare, and it takes longer than from
/// one tick to the next.
#[test]
fn regions_that_are_being_rebuilt_are_not_owed_anew_for_want_of_records() {
    let settings = Settings {
        requests_max: 4,
        dirty_regions_max: 8,
        owed_extents_max: 64,
        leg_window: 128,
        drain_bytes: REGION_BYTES as u32,
        limits: Limits { region_pieces: 1, ..Limits::default() },
        clean_after: 100 * MILLISECOND,
        out_after: SECOND,
        wait_floor: 10 * SECOND,
        wait_ceiling: 10 * SECOND,
        ..settings()
    };
    let shape = Shape { volume_bytes: 512 * REGION_BYTES, ..Shape::default() };
    let mut world = World::of_shape(1, 2, settings, shape);
    world.steady(FAST, 50_000);
    world.steady(SLOW, 100_000);
    world.event(SLOW, LegEvent::Gone { removed: false });
    world.wait(3 * SECOND);
    assert_eq!(world.status().legs[SLOW].state, LegState::Out);
    for region in 0..512 {
        world.write(region * REGION_BYTES / 512, 8);
    }
    world.behaviour[FAST].serial = 20 * MILLISECOND;
    world.event(SLOW, LegEvent::Back);
    world.wait(60 * SECOND);
    assert_eq!(world.status().legs[SLOW].owed_bytes, 0);
}
