//! Authority returns to the faster leg wherever it has become complete.

mod world;

use hemi_core::io::Operation;
use hemi_core::settings::Settings;
use hemi_core::units::{Extent, LegIndex, MICROSECOND, MILLISECOND, SECOND};
use world::script::What;
use world::{Shape, World, calm};

const FAST: usize = 0;
const SLOW: usize = 1;
/// Sectors of a region.
const REGION: u64 = world::REGION_BYTES / 512;
/// What is written in the region after all others.
const HOT: Extent = Extent { start: OLDER * REGION, end: OLDER * REGION + 8 };

const OLDER: u64 = 6000;

/// Many regions are touched and one is hot. The fast leg, which decides them all, freezes, and comes back
/// once the slow one has taken over the hot region and, with its page, others.
fn taken_over() -> World {
    let settings = Settings {
        dirty_regions_max: 8192,
        owed_extents_max: 16384,
        // Beside a slow leg nothing else is to be in the way.
        leg_window: 64,
        ..calm()
    };
    let volume_bytes = (OLDER + 1) * world::REGION_BYTES;
    let mut world = World::of_shape(1, 2, settings, Shape { volume_bytes, ..Shape::default() });
    world.thorough = false;
    world.steady(FAST, 100 * MICROSECOND);
    world.steady(SLOW, 5 * MILLISECOND);
    for _ in 0..40 {
        world.write(0, 8);
        world.wait(6 * MILLISECOND);
    }
    for region in 0..OLDER {
        world.write(region * REGION, 8);
        if region % 32 == 0 {
            world.wait(10 * MILLISECOND);
        }
    }
    world.wait(SECOND);
    world.write(HOT.start, 8);
    world.hold(FAST, What::Anything);
    world.submit(Operation::Write, HOT, false);
    world.wait(SECOND);
    assert!(world.requests.is_empty(), "the slow leg has taken over");
    let status = world.status();
    assert!(status.legs[SLOW].authority_regions > 1);
    assert!(status.authority_moves > 1, "moves are counted");
    world.release(FAST);
    world
}

fn write_hot_region(world: &mut World) {
    for _ in 0..200 {
        world.write(HOT.start, 8);
        world.wait(10 * MILLISECOND);
    }
}

/// More regions are older, and have nothing to return, than one tick looks at.
#[test]
fn authority_of_a_hot_region_returns_past_many_older_ones() {
    let mut world = taken_over();
    write_hot_region(&mut world);
    assert_eq!(world.recorded(OLDER as usize).authority(), LegIndex(FAST as u8));
}

/// Legs that are the faster one by turns do not have all touched regions go to and fro.
#[test]
fn authority_of_regions_that_nobody_writes_to_stays() {
    let settings = Settings { clean_after: 600 * SECOND, dirty_regions_max: 64, ..calm() };
    let mut world = World::with_ledger(1, 2, settings);
    world.steady(FAST, 100 * MICROSECOND);
    world.steady(SLOW, 5 * MILLISECOND);
    for region in 0..world::SECTORS / REGION {
        world.write(region * REGION, 8);
        world.wait(10 * MILLISECOND);
    }
    let before = world.status();
    assert_eq!(before.legs[SLOW].authority_regions, 0);
    world.steady(FAST, 60 * MILLISECOND);
    for _ in 0..200 {
        world.write(0, 8);
        world.wait(10 * MILLISECOND);
    }
    let status = world.status();
    assert!(status.legs[FAST].slow, "it is the slower one now");
    assert_eq!(status.legs[SLOW].authority_regions, 1, "the one that is written to has gone");
    assert!(status.authority_moves - before.authority_moves <= 3);
    // Decided by the other only while that was the slower one.
    world.steady(FAST, 100 * MICROSECOND);
    for _ in 0..400 {
        world.write(0, 8);
        world.wait(10 * MILLISECOND);
    }
    let status = world.status();
    assert_eq!(status.legs[SLOW].authority_regions, 0, "it has returned");
    assert!(status.authority_moves - before.authority_moves <= 6);
}

/// Nothing has been written to any leg since the start but superblocks. They tell which leg is slow.
#[test]
fn the_first_write_is_decided_by_the_leg_whose_superblocks_were_written_faster() {
    let mut world = World::new(1, 2, calm());
    world.steady(0, 15 * MILLISECOND);
    world.steady(1, 50_000);
    world.close();
    world.open(&[0, 1]).expect("it was closed");
    world.wait(100 * MILLISECOND);
    world.write(0, 8);
    assert_eq!(world.recorded(0).authority(), LegIndex(1));
}
