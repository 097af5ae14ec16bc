//! P5 and its price: the data that counts as exposed, and the requests that wait for it.

use crate::world;
use crate::world::landing::Landing;
use crate::world::script::What;
use crate::world::{LONG, SECTORS, Shape, World, calm, steady_legs};
use hemi_engine::io::Operation;
use hemi_engine::settings::{ExposureMode, Settings};
use hemi_units::{Extent, MILLISECOND, SECOND};

const A: usize = 0;
const B: usize = 1;

#[test]
fn what_a_newer_write_takes_the_place_of_is_exposed_until_it_has_landed() {
    let mut world = steady_legs(2, calm());
    world.write(0, 8);
    world.hold(B, What::Writes);
    for _ in 0..2 {
        world.submit(Operation::Write, Extent::new(0, 8), false);
        world.wait(MILLISECOND);
    }
    assert!(world.requests.is_empty(), "acknowledged on A alone");
    let before = world.only(B, What::Writes);
    // It covers four of the eight sectors that B owes, and is on no leg yet.
    world.hold(A, What::Writes);
    let newer = world.submit(Operation::Write, Extent::new(4, 64), false);
    world.land(before);
    world.wait(MILLISECOND);
    assert!(!world.is_answered(newer));
    assert_eq!(world.status().exposure_bytes, 8 * 512, "A alone has eight sectors");
    assert_eq!(world.status().legs[B].owed_bytes, 8 * 512);
    world.release(A);
    world.release(B);
    world.wait(SECOND);
    assert_eq!(world.status().exposure_bytes, 0);
}

/// A region that B owes as a whole stays owed while a write that replaces a part of it is in
/// flight.
#[test]
fn what_a_newer_write_takes_the_place_of_in_an_owed_region_is_owed() {
    let mut world = steady_legs(2, Settings { leg_window: 1, ..calm() });
    world.write(0, 8);
    world.crash(None, |_| Landing::Whole);
    world.open(&[A, B]).expect("both are there");
    for leg in [A, B] {
        world.hold(leg, What::Writes);
        world.hold(leg, What::Reads);
    }
    world.wait(5 * MILLISECOND);
    let owing = if world.status().legs[A].owed_bytes > 0 { A } else { B };
    assert_eq!(world.status().legs[owing].owed_bytes, world::REGION_BYTES);
    let write = world.submit(Operation::Write, Extent::new(64, 64), false);
    world.wait(5 * MILLISECOND);
    assert!(!world.is_answered(write));
    assert_eq!(world.status().legs[owing].owed_bytes, world::REGION_BYTES);
    assert_eq!(world.status().exposure_bytes, 0);
}

/// Writers that wait at the bound hold up no reader.
#[test]
fn reads_go_on_while_writers_wait_at_the_bound() {
    let settings = Settings { exposure_bytes: 64 << 10, requests_max: 256, ..calm() };
    let mut world = steady_legs(2, settings);
    world.write(0, 8);
    world.hold(B, What::Anything);
    for _ in 0..200 {
        let all = Extent { start: 0, end: SECTORS };
        world.submit(Operation::WriteZeroes { may_unmap: false }, all, false);
    }
    world.wait(LONG);
    assert!(world.requests.len() > 190, "the writers wait");
    let status = world.status();
    assert!(status.exposure_bytes <= 64 << 10, "{} bytes exposed", status.exposure_bytes);
    // Nobody writes there before the bound is reached.
    let read = world.submit(Operation::Read, Extent::new(SECTORS - 8, 8), false);
    world.wait(LONG);
    assert!(world.is_answered(read), "it waits for no writer");
    assert!(!world.has_failed(read));
}

/// Returns two legs with regions of 1 MiB, checked only at the end of a test.
fn of_long_regions(settings: Settings) -> World {
    let shape = Shape { volume_bytes: 64 << 20, region_bytes: 1 << 20, ..Shape::default() };
    let mut world = World::of_shape(1, 2, settings, shape);
    world.thorough = false;
    world
}

/// Sends one write to each of many regions, while a leg is frozen.
fn write_sparsely(mode: ExposureMode) {
    const REGIONS: u64 = 1200;
    let settings =
        Settings { exposure_mode: mode, owed_extents_max: 1000, dirty_regions_max: 64, ..calm() };
    let shape = Shape { volume_bytes: REGIONS * world::REGION_BYTES, ..Shape::default() };
    let mut world = World::of_shape(1, 2, settings, shape);
    world.thorough = false;
    for leg in [A, B] {
        world.steady(leg, MILLISECOND / 10);
    }
    world.write(0, 8);
    world.hold(B, What::Anything);
    world.wait(LONG);
    for region in 0..REGIONS {
        let write = world.submit(Operation::Write, Extent::new(region * 128 + 8, 8), false);
        let begun = world.now;
        while !world.is_answered(write) {
            world.wait(MILLISECOND);
            assert!(world.now.since(begun) < SECOND, "the write to region {region} waits");
        }
    }
    world.release(B);
    world.settings.clean_after = 100 * MILLISECOND;
    world.wait(60 * SECOND);
    world.thorough = true;
    world.read_everything();
    let status = world.status();
    assert_eq!((status.legs[B].owed_bytes, status.legs[B].owed_region_bytes), (0, 0));
}

#[test]
fn sparse_writes_beside_a_frozen_leg_do_not_run_out_of_records() {
    write_sparsely(ExposureMode::Throttle);
    write_sparsely(ExposureMode::FallBehind);
}

/// One leg loses sight of one request in three for five seconds. Each of them makes the exposure
/// old, and slower writers would make it no younger.
#[test]
fn writers_are_not_slowed_for_requests_that_a_leg_has_lost_sight_of() {
    let settings = Settings { requests_max: 256, exposure_bytes: 64 << 20, ..Settings::default() };
    let mut world = of_long_regions(settings);
    for leg in [A, B] {
        world.steady(leg, MILLISECOND / 10);
    }
    let begun = world.now;
    while world.now.since(begun) < 60 * SECOND {
        if world.now.since(begun) > 3 * SECOND {
            // By now the leg's usual speed is known.
            world.behaviour[B].lost_sight = (3, 5 * SECOND);
        }
        for operation in [Operation::Write, Operation::Read] {
            let start = world.random.below(world.sectors / 8) * 8;
            world.submit(operation, Extent::new(start, 8), false);
        }
        // All are answered by the time the next two come: nobody waits for B.
        world.wait(6 * MILLISECOND);
        assert!(world.requests.is_empty(), "{:?}", world.requests);
    }
    let status = world.status();
    assert!(status.exposure_peak > 4 << 20, "B is left behind");
}

/// Writes that fit the bound are let in at once, whatever the leg that owes them does.
#[test]
fn writers_are_not_slowed_before_the_bound_is_near() {
    let bound = 2 << 20;
    let settings =
        Settings { exposure_bytes: bound, owed_extents_max: 8192, requests_max: 256, ..calm() };
    let mut world = of_long_regions(settings);
    for leg in [A, B] {
        world.steady(leg, MILLISECOND / 10);
    }
    world.write(0, 8);
    world.hold(B, What::Anything);
    world.wait(LONG);
    let mut at = 8;
    while world.status().exposure_bytes < bound * 8 / 10 {
        let begun = world.now;
        world.write(at, 8);
        at += 8;
        assert!(world.now.since(begun) < 30 * MILLISECOND, "{:?}", world.now.since(begun));
        assert!(!world.status().throttling);
    }
    // Near the bound they are slowed.
    for _ in 0..200 {
        world.submit(Operation::Write, Extent::new(at, 8), false);
        at += 8;
        world.wait(MILLISECOND);
    }
    assert!(world.status().throttling);
    world.wait(60 * SECOND);
    assert!(!world.requests.is_empty(), "the bound is a bound");
    assert!(world.status().exposure_bytes <= bound);
}

/// The exposure is far below the bound in bytes, but more than the leg that owes it pays within the
/// bound in age.
#[test]
fn writers_are_slowed_where_a_leg_cannot_pay_in_time() {
    let settings = Settings {
        exposure_bytes: 16 << 20,
        exposure_age: 5 * SECOND,
        owed_extents_max: 8192,
        requests_max: 256,
        leg_window: 1,
        drain_bytes: 4096,
        wait_ceiling: SECOND,
        ..calm()
    };
    let mut world = of_long_regions(settings);
    world.steady(A, MILLISECOND / 10);
    world.steady(B, 0);
    // B pays 1 MiB within the 5 s.
    world.behaviour[B].serial = 18 * MILLISECOND;
    for round in 0..100 {
        world.write(round * 8, 8);
        world.wait(20 * MILLISECOND);
    }
    for round in 0..2000 {
        while world.requests.len() < 32 {
            let start = world.random.below(world.sectors / 8) * 8;
            world.submit(Operation::Write, Extent::new(start, 8), false);
        }
        world.wait(MILLISECOND);
        assert!(round < 1000 || world.status().throttling, "after {round} ms");
    }
    let status = world.status();
    assert!(status.exposure_peak < 2 << 20, "{} bytes exposed", status.exposure_peak);
}

/// Requests that a leg does not answer make the exposure old, which is shown. Slower writers would
/// make it no younger.
#[test]
fn a_request_that_a_leg_has_lost_sight_of_slows_no_writer() {
    let settings = Settings { exposure_age: 5 * SECOND, owed_extents_max: 8192, ..calm() };
    let mut world = of_long_regions(settings);
    for leg in [A, B] {
        world.steady(leg, MILLISECOND / 10);
    }
    for round in 0..500 {
        world.write(round * 8, 8);
    }
    world.hold(B, What::Writes);
    world.write(0, 8);
    let lost = world.only(B, What::Writes);
    world.let_come(B);
    let mut oldest = 0;
    for round in 0..2000 {
        let begun = world.now;
        world.write(512 + round % 8000 * 8, 8);
        assert!(world.now.since(begun) < 30 * MILLISECOND, "{:?}", world.now.since(begun));
        let status = world.status();
        oldest = oldest.max(status.exposure_age);
        assert!(!status.throttling);
        world.wait(10 * MILLISECOND);
    }
    assert!(oldest > 15 * SECOND, "it is shown: {oldest}");
    world.land(lost);
    world.wait(10 * SECOND);
    assert_eq!(world.status().exposure_bytes, 0);
}
