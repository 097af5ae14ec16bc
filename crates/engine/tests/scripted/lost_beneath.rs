//! A leg loses its cache while writes are in flight to it. Until they have landed it lacks what was
//! acknowledged beneath them.

use crate::world::landing::Landing;
use crate::world::script::What;
use crate::world::{REGION_BYTES, Shape, World, calm, steady_legs};
use hemi_engine::io::{LegEvent, Operation};
use hemi_engine::settings::{Limits, Settings};
use hemi_units::{Extent, MILLISECOND, SECOND};
use hemi_world::disk::Cache;

const A: usize = 0;
const B: usize = 1;

/// A decides, and gets back from B what it lost: all but what a write in flight to it replaces. A flush is
/// not answered before that has landed.
#[test]
fn a_flush_waits_for_what_lies_beneath_a_write_in_flight() {
    // Debts keep no copy.
    let patient = Settings { wait_floor: 10 * SECOND, wait_ceiling: 10 * SECOND, ..calm() };
    let mut world = steady_legs(2, Settings { copies_reserve: u64::MAX, ..patient });
    world.write(0, 8);
    world.flush();
    world.write(0, 8);
    world.wait(MILLISECOND);
    assert_eq!(world.recorded(0).authority().index(), A);
    // B lacks this, so it does not take over.
    world.hold(B, What::Writes);
    world.write(16, 8);
    world.hold(A, What::Writes);
    world.submit(Operation::Write, Extent::new(0, 8), false);
    let replaces = world.only(A, What::Writes);
    world.event(A, LegEvent::Gone { removed: false });
    world.event(A, LegEvent::Back);
    world.disks[A].drop_cache();
    let flush = world.submit(Operation::Flush, Extent::default(), false);
    for _ in 0..2000 {
        world.wait(MILLISECOND);
        for id in world.ids(A, What::Writes) {
            if id != replaces {
                world.land(id);
            }
        }
    }
    assert!(!world.is_answered(flush));
    world.crash(Some(Cache::Dropped), |_| Landing::Not);
    world.settings.clean_after = 300 * MILLISECOND;
    world.open(&[A, B]).expect("both are there");
    world.read_everything();
    world.converge();
}

/// A has no room for a debt in each region that it lost something in. B has all of them.
#[test]
fn a_leg_with_no_room_for_debts_owes_what_another_has_as_whole_regions() {
    let few = Limits { operations_more: 1, ..Limits::default() };
    let settings = Settings {
        requests_max: 3,
        limits: few,
        leg_window: 1,
        dirty_regions_max: 128,
        owed_extents_max: 40,
        copies_reserve: u64::MAX,
        ..calm()
    };
    let shape = Shape { volume_bytes: 128 * REGION_BYTES, ..Shape::default() };
    let mut world = World::of_shape(1, 2, settings, shape);
    for leg in [A, B] {
        world.steady(leg, 100_000);
    }
    for region in 0..100 {
        world.write(region * REGION_BYTES / 512, 8);
        world.wait(MILLISECOND);
    }
    world.hold(A, What::Flushes);
    let flush = world.submit(Operation::Flush, Extent::default(), false);
    world.wait(MILLISECOND);
    let failing = world.only(A, What::Flushes);
    world.disks[A].drop_cache();
    world.fail(failing);
    world.release(A);
    world.run_until_answered(20 * SECOND);
    assert!(!world.has_failed(flush), "nothing is lost");
    world.read_everything();
}
