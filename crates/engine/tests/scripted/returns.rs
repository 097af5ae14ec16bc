//! Authority returns to the faster leg wherever it has become complete.

use crate::world;
use crate::world::script::What;
use crate::world::{Shape, World, calm};
use hemi_engine::identifiers::LegIndex;
use hemi_engine::io::Operation;
use hemi_engine::settings::Settings;
use hemi_units::{Extent, MICROSECOND, MILLISECOND, SECOND};

const FAST: usize = 0;
const SLOW: usize = 1;
/// The number of sectors of a region.
const REGION: u64 = world::REGION_BYTES / 512;

/// More regions are older, and have nothing to return, than one tick examines.
#[test]
fn authority_of_a_hot_region_returns_past_many_older_ones() {
    const OLDER: u64 = 6000;
    let settings = Settings {
        dirty_regions_max: 8192,
        owed_extents_max: 16384,
        // Nothing but the slow leg should be in the way.
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
    let hot = Extent::new(OLDER * REGION, 8);
    world.write(hot.start, 8);
    // The fast leg freezes, and authority over the hot region moves.
    world.hold(FAST, What::Anything);
    world.submit(Operation::Write, hot, false);
    world.wait(SECOND);
    assert!(world.requests.is_empty(), "the slow leg has taken over");
    let status = world.status();
    assert!(status.legs[SLOW].authority_regions > 0);
    assert!(status.authority_moves > 0, "the move is counted");
    world.release(FAST);
    for _ in 0..200 {
        world.write(hot.start, 8);
        world.wait(10 * MILLISECOND);
    }
    let hot = world.recorded(OLDER as usize);
    assert_eq!(hot.authority(), LegIndex(FAST as u8), "it has returned");
}

/// Only superblocks have been written to the legs since the start. They tell which leg is slow.
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

/// A leg is slow for some seconds. Another decides meanwhile only where clients write.
#[test]
fn authority_of_idle_regions_leaves_a_leg_that_has_been_slow_for_long() {
    const IDLE: u32 = 10;
    let mut world = World::new(1, 2, Settings { dirty_regions_max: 64, ..calm() });
    let hot = u64::from(IDLE) * REGION;
    world.steady(0, 100 * MICROSECOND);
    world.steady(1, MILLISECOND);
    let write_for = |world: &mut World, seconds: u64| {
        for _ in 0..seconds * 100 {
            world.write(hot, 8);
            world.wait(10 * MILLISECOND);
        }
    };
    write_for(&mut world, 2);
    for region in 0..IDLE {
        world.write(u64::from(region) * REGION, 8);
    }
    write_for(&mut world, 1);
    assert_eq!(world.status().legs[0].authority_regions, IDLE + 1);
    world.steady(0, 10 * MILLISECOND);
    write_for(&mut world, 6);
    assert_eq!(world.status().legs[0].authority_regions, IDLE, "they stay");
    assert_eq!(world.status().legs[1].authority_regions, 1, "clients write here");
    write_for(&mut world, 12);
    assert_eq!(world.status().legs[0].authority_regions, 0, "it has been slow for long");
}
