//! Comparing after an unclean stop: a leg's debts are read on both sides, and only blocks that
//! differ are written.

use crate::world::landing::Landing;
use crate::world::script::What;
use crate::world::{REGION_BYTES, World, settings};
use hemi_engine::io::Operation;
use hemi_engine::settings::Settings;
use hemi_units::{Extent, MILLISECOND};
use hemi_world::disk::Cache;

const FAST: usize = 0;
const SLOW: usize = 1;
/// The number of sectors of a region.
const REGION: u64 = REGION_BYTES / 512;

/// Returns a volume that was killed with `regions` dirty regions, of which both legs have
/// everything.
fn killed(settings: Settings, regions: u64) -> World {
    let mut world = World::new(1, 2, settings);
    world.steady(FAST, 50_000);
    world.steady(SLOW, 100_000);
    for region in 0..regions {
        world.write(region * REGION, 8);
    }
    world.wait(MILLISECOND);
    world.crash(None, |_| Landing::Whole);
    world
}

fn reopen(world: &mut World) {
    world.open(&[FAST, SLOW]).expect("both legs are there");
}

/// Returns the bytes compared for the slow leg and found equal, and the bytes written.
fn compared_and_written(world: &mut World) -> (u64, u64) {
    let leg = &world.status().legs[SLOW];
    (leg.compared_bytes, leg.drained_bytes)
}

#[test]
fn what_is_equal_is_not_written() {
    let mut world = killed(settings(), 3);
    reopen(&mut world);
    world.converge();
    assert_eq!(compared_and_written(&mut world), (3 * REGION_BYTES, 0));
    world.read_everything();
}

#[test]
fn only_what_differs_is_written() {
    let mut world = killed(Settings { drain_bytes: 64 << 10, ..settings() }, 1);
    world.make_differ(SLOW, Extent::new(40, 9));
    reopen(&mut world);
    world.converge();
    let (_, written) = compared_and_written(&mut world);
    assert!((9 * 512..=16 * 512).contains(&written), "the blocks that differ: {written} bytes");
    world.read_everything();
}

/// A leg that was behind before the stop has little of what it owes.
#[test]
fn a_leg_that_was_not_whole_is_written() {
    let mut world = World::new(1, 2, settings());
    world.hold(SLOW, What::Writes);
    world.write(0, 8);
    world.wait(900 * MILLISECOND);
    world.write(0, 8);
    world.crash(Some(Cache::Kept), |p| {
        if p.io.leg.index() == SLOW { Landing::Not } else { Landing::Whole }
    });
    let entry = world.recorded(0);
    assert!(entry.is_dirty() && !entry.is_whole(hemi_engine::identifiers::LegIndex(SLOW as u8)));
    reopen(&mut world);
    world.converge();
    assert_eq!(compared_and_written(&mut world).0, 0);
}

/// Equal data may be in a cache only: the leg is not whole before it has flushed.
#[test]
fn what_is_equal_may_not_be_durable() {
    let mut world = killed(settings(), 2);
    reopen(&mut world);
    world.converge();
    world.wait(500 * MILLISECOND);
    assert!(!world.recorded(0).is_dirty());
    world.crash(Some(Cache::Dropped), |_| Landing::Not);
    reopen(&mut world);
    world.read_everything();
    world.converge();
}

/// After a failed flush a drive may still show data that it will not keep. It is written instead of
/// compared.
#[test]
fn a_lost_cache_ends_comparing() {
    let mut world = killed(Settings { leg_window: 1, ..settings() }, 4);
    world.hold(SLOW, What::Reads);
    world.hold(SLOW, What::Flushes);
    reopen(&mut world);
    world.wait(MILLISECOND);
    assert_eq!(world.in_flight(SLOW, What::Reads).len(), 1, "a comparison is in progress");
    let flush = world.submit(Operation::Flush, Extent::default(), false);
    world.wait(MILLISECOND);
    let failing = world.only(SLOW, What::Flushes);
    world.fail(failing);
    world.release(SLOW);
    world.converge();
    assert!(world.is_answered(flush));
    assert_eq!(compared_and_written(&mut world), (0, 4 * REGION_BYTES));
    world.read_everything();
}

#[test]
fn what_cannot_be_read_is_written() {
    let mut world = killed(Settings { drain_bytes: 64 << 10, ..settings() }, 1);
    world.hold(SLOW, What::Reads);
    reopen(&mut world);
    world.wait(MILLISECOND);
    let comparing = world.only(SLOW, What::Reads);
    world.fail(comparing);
    world.release(SLOW);
    world.converge();
    assert_eq!(compared_and_written(&mut world), (0, REGION_BYTES));
    world.read_everything();
}

/// A client's write during a comparison comes after it.
#[test]
fn a_write_over_what_is_being_compared_is_not_lost() {
    let mut world = killed(settings(), 1);
    world.make_differ(SLOW, Extent::new(0, REGION));
    world.hold(SLOW, What::Reads);
    reopen(&mut world);
    world.wait(MILLISECOND);
    assert!(!world.in_flight(SLOW, What::Reads).is_empty(), "a comparison is in progress");
    world.write(0, 16);
    world.write(REGION - 8, 8);
    world.release(SLOW);
    world.converge();
    world.read_everything();
}

/// Clients come back soon after a kill. Until then the legs' windows are not filled with comparing
/// either.
#[test]
fn the_first_client_after_a_start_finds_the_legs_free() {
    let settings = Settings { drain_bytes: 64 << 10, leg_window: 32, ..settings() };
    let mut world = killed(settings, 3);
    world.behaviour[FAST].serial = MILLISECOND;
    reopen(&mut world);
    let mut most = 0;
    for _ in 0..40 {
        world.wait(MILLISECOND / 2);
        most = most.max(world.in_flight(FAST, What::Reads).len());
    }
    assert_eq!(most, 1, "reads for comparing are in flight where a client may read");
    world.converge();
    world.read_everything();
}
