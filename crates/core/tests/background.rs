//! Legs are seldom asked, while clients write, for pages and flushes that nobody waits for.

mod world;

use hemi_core::settings::Settings;
use hemi_core::units::{MILLISECOND, SECOND};
use world::script::What;
use world::{Shape, World, calm};

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

/// A drive with a cache stands still for a flush, and writers with it.
#[test]
fn legs_flush_seldom_for_what_nobody_waits_for() {
    let mut world = write_for(40 * SECOND);
    let seen = flushes(&mut world);
    // Each leg once in 256 times 8 ms.
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
    // They are not put off for ever.
    world.wait(3 * SECOND);
    assert!(written(&mut world) > before + pages);
}
