//! While clients write, legs are seldom asked for pages and flushes that nobody waits for.

use crate::world;
use crate::world::script::What;
use crate::world::{LONG, Shape, World, calm, steady_legs};
use hemi_engine::identifiers::LegIndex;
use hemi_engine::io::{LegEvent, Operation};
use hemi_engine::settings::Settings;
use hemi_units::{Extent, MILLISECOND, SECOND};

const A: usize = 0;
const B: usize = 1;
const REGIONS: u64 = 500;
const REGION: u64 = world::REGION_BYTES / 512;

/// Writes to one region after another, each of which settles half a second later. A flush takes as
/// long as a write, 8 ms.
fn write_for(time: u64) -> World {
    let settings = Settings {
        clean_after: SECOND / 2,
        resync_bytes: 1 << 40,
        dirty_regions_max: 65536,
        owed_extents_max: 65536,
        wait_ceiling: SECOND,
        ..calm()
    };
    let shape = Shape { volume_bytes: REGIONS * world::REGION_BYTES, ..Shape::default() };
    let mut world = World::of_shape(1, 2, settings, shape);
    world.thorough = false;
    for leg in 0..2 {
        world.steady(leg, 8 * MILLISECOND);
    }
    let begun = world.now;
    let mut round = 0;
    while world.now.since(begun) < time {
        world.write(round % REGIONS * REGION, 8);
        world.wait(50 * MILLISECOND);
        round += 1;
    }
    world
}

fn flushes(world: &mut World) -> u64 {
    world.status().legs.iter().map(|leg| leg.flushes.count()).sum()
}

/// A drive with a cache stalls for a flush, and writers with it.
#[test]
fn legs_flush_seldom_for_what_nobody_waits_for() {
    let mut world = write_for(40 * SECOND);
    let seen = flushes(&mut world);
    // Each leg flushes once in 256 times 8 ms.
    assert!((10..=44).contains(&seen), "{seen} flushes in 40 s");
    // Once clients have stopped, regions settle as soon as they may.
    world.wait(3 * SECOND);
    world.thorough = true;
    world.converge();
}

/// A client's flush is not put off.
#[test]
fn flushes_of_clients_do_not_wait_for_that() {
    let mut world = write_for(5 * SECOND);
    for round in 0..50 {
        world.write(round * REGION, 8);
        let begun = world.now;
        world.flush();
        assert!(world.now.since(begun) < 40 * MILLISECOND, "{} ns", world.now.since(begun));
    }
}

/// A leg that is silent loses its bit in one region after another, as each settles.
#[test]
fn pages_that_nobody_waits_for_are_written_seldom() {
    let mut world = write_for(5 * SECOND);
    for leg in 0..2 {
        world.steady(leg, MILLISECOND / 10);
    }
    world.hold(1, What::Anything);
    let written = |world: &mut World| world.status().legs[0].metadata_writes;
    let before = written(&mut world);
    let begun = world.now;
    let mut round = 0;
    while world.now.since(begun) < 20 * SECOND {
        world.write(round % REGIONS * REGION, 8);
        world.wait(50 * MILLISECOND);
        round += 1;
    }
    let pages = written(&mut world) - before;
    assert!((1..=8).contains(&pages), "{pages} pages written in 20 s");
    // They are not put off forever.
    world.wait(3 * SECOND);
    assert!(written(&mut world) > before + pages);
}

/// B is paid what was written while it was silent, and is recorded whole after a flush. Nobody
/// waits for that while A answers, but when A is gone only B can take a write there.
#[test]
fn a_leg_is_flushed_at_once_for_what_makes_it_whole_when_another_is_missing() {
    let settings = Settings { clean_after: 2 * SECOND, copies_reserve: u64::MAX, ..calm() };
    let mut world = steady_legs(2, settings);
    for leg in [A, B] {
        world.steady(leg, 5 * MILLISECOND);
    }
    world.hold(B, What::Anything);
    world.write(0, 8);
    world.wait(LONG);
    world.write(8, 8);
    world.wait(5 * SECOND);
    world.release(B);
    // B's debt is read from A after a flush. The next flush comes only after 256 times as long.
    world.hold(A, What::Reads);
    world.write(REGION, 8);
    world.flush();
    world.release(A);
    world.wait(200 * MILLISECOND);
    assert_eq!(world.status().legs[B].owed_bytes, 0);
    assert!(!world.recorded(0).is_whole(LegIndex(B as u8)), "what B has is not flushed");
    world.event(A, LegEvent::Gone { removed: false });
    let write = world.submit(Operation::Write, Extent::new(0, 8), false);
    world.wait(300 * MILLISECOND);
    assert!(world.is_answered(write));
}
