//! Moves of authority by the thousand: an input tries a few, and each goes once it can.

use crate::world::script::What;
use crate::world::{self, Shape, World, calm};
use hemi_engine::io::{LegEvent, Operation};
use hemi_engine::settings::Settings;
use hemi_units::{Extent, MICROSECOND, MILLISECOND, SECOND};

const FAST: usize = 0;
const SLOW: usize = 1;
/// The number of sectors of a region.
const REGION: u64 = world::REGION_BYTES / 512;
/// Touched regions: many more than an input tries to move or looks at.
const REGIONS: u64 = 3000;
/// The most that an input may do: moves tried, and records looked at twice for each of the two reasons.
const STEPS: u64 = 64 + 4 * 16 * 64;

/// Returns a world with all regions touched under the fast leg, which has flushed nothing, and owed by the slow one.
fn lagging() -> World {
    let settings = Settings {
        dirty_regions_max: 8192,
        owed_extents_max: 16384,
        clean_after: 600 * SECOND,
        exposure_bytes: 1 << 30,
        exposure_age: 600 * SECOND,
        out_after: 600 * SECOND,
        ..calm()
    };
    let volume_bytes = REGIONS * world::REGION_BYTES;
    let shape = Shape { volume_bytes, memory_sectors: 128 << 10, ..Shape::default() };
    let mut world = World::of_shape(1, 2, settings, shape);
    world.thorough = false;
    world.steady(FAST, 100 * MICROSECOND);
    world.steady(SLOW, MILLISECOND);
    for _ in 0..40 {
        world.write(0, 8);
        world.wait(2 * MILLISECOND);
    }
    world.flush();
    world.wait(SECOND);
    world.hold(SLOW, What::Writes);
    for region in 0..REGIONS {
        world.write(region * REGION, 8);
        if region % 32 == 0 {
            world.wait(10 * MILLISECOND);
        }
    }
    world.wait(SECOND);
    assert!(world.requests.is_empty(), "the fast leg has all");
    assert_eq!(u64::from(world.status().legs[FAST].authority_regions), REGIONS);
    world
}

/// A flush depends on every region, and the leg that decides them is frozen. The other pays its debts first.
#[test]
fn an_input_tries_few_of_thousands_of_moves() {
    let mut world = lagging();
    world.hold(FAST, What::Anything);
    let flush = world.submit(Operation::Flush, Extent::default(), false);
    world.wait(2 * SECOND);
    assert!(!world.is_answered(flush), "nobody else has it all");
    assert_eq!(u64::from(world.status().legs[FAST].authority_regions), REGIONS);
    // Debts are paid one by one, and regions move with them.
    world.release(SLOW);
    world.wait(30 * SECOND);

    assert!(world.is_answered(flush), "the other leg has everything, durably");
    assert!(!world.has_failed(flush));
    assert_eq!(world.status().legs[FAST].authority_regions, 0, "all have moved");
    let (total, most) = world.move_steps;
    assert!(most <= STEPS, "an input takes {most} steps");
    assert!(total < 200 * REGIONS, "{total} steps altogether");
}

/// The moves need nothing but that a leg answers again.
#[test]
fn thousands_of_moves_go_as_soon_as_a_leg_answers() {
    let mut world = lagging();
    world.release(SLOW);
    world.wait(30 * SECOND);
    assert_eq!(world.status().legs[SLOW].owed_bytes, 0, "it has caught up");
    world.flush();
    world.wait(SECOND);
    world.event(SLOW, LegEvent::Gone { removed: false });
    world.event(FAST, LegEvent::Gone { removed: false });
    world.wait(2 * SECOND);
    let before = world.move_steps.0;
    world.wait(10 * SECOND);
    let idle = world.move_steps.0 - before;
    assert!(idle < 15 * REGIONS, "{idle} steps in ten seconds without an event");
    assert_eq!(u64::from(world.status().legs[FAST].authority_regions), REGIONS);
    // All are tried once a second, whatever happens, and authority returns at a tick. That is past.
    let tried = world.move_steps.0;
    while world.move_steps.0 == tried {
        world.wait(10 * MILLISECOND);
    }
    world.wait(330 * MILLISECOND);
    world.event(SLOW, LegEvent::Back);
    world.wait(50 * MILLISECOND);
    assert_eq!(world.status().legs[FAST].authority_regions, 0, "all have moved");
    let (_, most) = world.move_steps;
    assert!(most <= STEPS, "an input takes {most} steps");
}
