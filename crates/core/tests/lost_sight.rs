//! A leg loses sight of single requests and goes on answering others. What is late is handed over by
//! itself, and the leg goes on being used.

mod world;

use hemi_core::io::Operation;
use hemi_core::settings::Settings;
use hemi_core::units::{Extent, LegIndex, MILLISECOND, SECOND};
use world::script::{Cache, Landing, What};
use world::{Shape, World, calm};

const A: usize = 0;
const B: usize = 1;
const REGION: u64 = 128;

/// Two legs alike and no ledger; the first decides the first region.
fn touched() -> World {
    touched_with(100_000)
}

/// As [`touched`], with the second leg so slow.
fn touched_with(latency: u64) -> World {
    // The wait limit of flushes is twice that of writes then, 40 ms.
    let settings = Settings { clean_after: 2 * SECOND, wait_ceiling: SECOND, ..calm() };
    let mut world = World::new(1, 2, settings);
    world.steady(A, 50_000);
    world.steady(B, latency);
    for _ in 0..100 {
        world.write(0, 8);
    }
    for _ in 0..70 {
        world.write(0, 8);
        world.flush();
    }
    for _ in 0..100 {
        world.read(0, 8);
    }
    assert_eq!(world.recorded(0).authority(), LegIndex(A as u8));
    world
}

/// Other requests that both legs answer, for so long.
fn others(world: &mut World, time: u64) {
    let end = world.now + time;
    while world.now < end {
        world.submit(Operation::Write, Extent::new(64, 8), false);
        world.submit(Operation::Read, Extent::new(80, 8), false);
        world.wait(MILLISECOND);
    }
}

/// Submits a request of which A loses sight while it answers what comes later.
fn lose_sight(world: &mut World, what: What, operation: Operation, extent: Extent) -> u64 {
    world.hold(A, what);
    let token = world.submit(operation, extent, false);
    world.let_come(A);
    token
}

/// The authority loses sight of one write. The leg that has it decides from then on; what lands of it in
/// the end does not overwrite what has been written since.
#[test]
fn a_write_that_its_authority_has_lost_sight_of_is_handed_over() {
    let mut world = touched();
    let write = lose_sight(&mut world, What::Writes, Operation::Write, Extent::new(0, 8));
    let zombie = world.only(A, What::Writes);
    others(&mut world, 25 * MILLISECOND);
    assert!(world.is_answered(write), "it waits for a leg that has lost sight of it");
    assert_eq!(world.status().legs[A].freezes, 0, "the leg answers everything else");
    assert_eq!(world.recorded(0).authority(), LegIndex(B as u8), "the page says so");
    world.write(0, 8);
    world.land(zombie);
    world.read_everything();
    world.crash(Some(Cache::Dropped), |_| Landing::Not);
    world.open(&[A, B]).expect("the pages tell");
    world.read_everything();
    world.converge();
}

/// A page that makes a region dirty is lost sight of. The other leg decides the region.
#[test]
fn a_page_that_its_leg_has_lost_sight_of_is_handed_over() {
    let mut world = touched();
    let write = lose_sight(&mut world, What::Metadata, Operation::Write, Extent::new(REGION, 8));
    others(&mut world, 25 * MILLISECOND);
    assert!(world.is_answered(write), "it waits for a page that its leg has lost sight of");
    assert_eq!(world.recorded(1).authority(), LegIndex(B as u8));
    let zombie = world.only(A, What::Metadata);
    world.land(zombie);
    assert_eq!(world.recorded(1).authority(), LegIndex(B as u8), "an older page has lost");
    world.crash(None, |_| Landing::Not);
    world.open(&[A, B]).expect("the pages tell");
    world.read_everything();
    world.converge();
}

/// Either leg was late with a write a moment ago. The other is given the page all the same.
#[test]
fn a_late_page_is_handed_over_to_a_leg_that_was_late_with_something_else() {
    let mut world = touched();
    for leg in [A, B] {
        world.hold(leg, What::Writes);
        world.submit(Operation::Write, Extent::new(8 + 8 * leg as u64, 8), false);
        world.let_come(leg);
    }
    others(&mut world, 30 * MILLISECOND);
    let write = lose_sight(&mut world, What::Metadata, Operation::Write, Extent::new(REGION, 8));
    others(&mut world, 25 * MILLISECOND);
    assert!(world.is_answered(write), "it waits for a page that its leg has lost sight of");
    assert_eq!(world.recorded(1).authority(), LegIndex(B as u8));
    world.release(A);
    world.release(B);
    world.read_everything();
    world.converge();
}

/// A flush of the authority is lost sight of: a client's flush goes on without it.
#[test]
fn a_flush_that_its_leg_has_lost_sight_of_is_handed_over() {
    let mut world = touched();
    world.write(0, 8);
    world.hold(A, What::Flushes);
    let flush = world.submit(Operation::Flush, Extent::default(), false);
    world.let_come(A);
    world.wait(25 * MILLISECOND);
    assert!(world.is_answered(flush), "it waits for one leg's flush");
    world.crash(Some(Cache::Dropped), |_| Landing::Not);
    world.open(&[A, B]).expect("the pages tell");
    world.read_everything();
    world.converge();
}

/// Reads are lost sight of, more of them than the budget for hedges has room for.
#[test]
fn reads_that_their_leg_has_lost_sight_of_are_handed_over() {
    let mut world = touched_with(10 * MILLISECOND);
    for round in 0..24 {
        let read =
            lose_sight(&mut world, What::Reads, Operation::Read, Extent::new(round % 4 * 8, 8));
        others(&mut world, 35 * MILLISECOND);
        assert!(world.is_answered(read), "read {round} waits for a leg that has lost sight of it");
    }
    world.release(A);
    world.read_everything();
}

/// One leg has lost sight of a read for good, and the other falls silent with the read that was asked of
/// it instead. That is asked for again when the other is back.
#[test]
fn a_read_is_asked_for_again_when_the_other_leg_fell_silent() {
    let mut world = touched();
    let read = lose_sight(&mut world, What::Reads, Operation::Read, Extent::new(0, 8));
    world.hold(B, What::Anything);
    others(&mut world, 60 * MILLISECOND);
    assert!(!world.is_answered(read), "no leg has");
    world.let_come(B);
    world.abort_held(B);
    others(&mut world, 400 * MILLISECOND);
    assert!(world.is_answered(read), "it waits for a leg that has lost sight of it");
    world.release(A);
    world.read_everything();
}

/// A read of several regions cannot be asked of two legs at once: it starts over without the one that
/// is late.
#[test]
fn a_read_in_parts_starts_over_elsewhere() {
    let mut world = touched();
    let read = lose_sight(&mut world, What::Reads, Operation::Read, Extent::new(REGION - 8, 16));
    others(&mut world, 25 * MILLISECOND);
    world.wait(MILLISECOND);
    assert!(world.is_answered(read), "a part of it waits for a leg that has lost sight of it");
    assert_eq!(world.status().legs[A].freezes, 0);
    world.release(A);
    world.read_everything();
}

/// A read started over without the leg that was late with it, and the other leg falls silent. Only the
/// first answers, so it is asked again.
#[test]
fn a_leg_that_was_late_with_a_read_is_asked_again_when_the_other_is_silent() {
    let mut world = touched();
    let read = lose_sight(&mut world, What::Reads, Operation::Read, Extent::new(REGION - 8, 16));
    world.hold(B, What::Anything);
    others(&mut world, 100 * MILLISECOND);
    assert!(world.is_answered(read), "it waits for a silent leg, though the other answers");
    world.release(A);
    world.release(B);
    world.read_everything();
    world.converge();
}

/// A leg that is being rebuilt is read for at a pace that leaves the other to clients.
#[test]
fn a_rebuild_leaves_its_source_to_clients() {
    let settings =
        Settings { clean_after: 2 * SECOND, leg_window: 32, drain_bytes: 64 << 10, ..calm() };
    let shape = Shape { volume_bytes: 16 << 20, memory_sectors: 64 << 10, ..Shape::default() };
    let mut world = World::of_shape(1, 2, settings, shape);
    world.thorough = false;
    for leg in [A, B] {
        world.steady(leg, 100_000);
    }
    for start in (0..world.sectors).step_by(REGION as usize) {
        world.write(start, 8);
    }
    world.kill();
    world.open(&[A, B]).expect("both are there");
    world.behaviour[A].serial = MILLISECOND;
    let mut most = 0;
    for round in 0..200 {
        world.submit(Operation::Read, Extent::new(round % 16 * 8, 8), false);
        world.wait(MILLISECOND);
        let large = world.in_flight(A, What::Reads);
        most = most.max(large.iter().filter(|p| p.io.extent.sectors() > 8).count());
    }
    assert!(most > 0, "nothing is rebuilt");
    assert!(most <= 2, "{most} reads for the rebuild are under way beside those of clients");
    world.run_until_answered(SECOND);
    world.converge();
}

/// A leg that was late with something a moment ago does not get regions to decide, where another leg is
/// as good.
#[test]
fn a_leg_that_loses_sight_of_requests_decides_no_more_regions() {
    let mut world = touched();
    lose_sight(&mut world, What::Writes, Operation::Write, Extent::new(0, 8));
    others(&mut world, 50 * MILLISECOND);
    world.write(2 * REGION, 8);
    assert_eq!(world.recorded(2).authority(), LegIndex(B as u8));
    world.release(A);
    world.wait(11 * SECOND);
    world.write(3 * REGION, 8);
    assert_eq!(world.recorded(3).authority(), LegIndex(A as u8), "it is believed again");
    world.read_everything();
}

/// A leg loses sight of one write in four for 15 s, and later of one in ten for 0.9 s. What it pays
/// meanwhile is no measure of its speed: there is room for all that is written.
#[test]
fn writers_are_not_slowed_by_writes_that_fill_a_window() {
    let settings = Settings { requests_max: 256, exposure_bytes: 128 << 20, ..Settings::default() };
    let shape = Shape { volume_bytes: 256 << 20, region_bytes: 1 << 20, ..Shape::default() };
    let mut world = World::of_shape(1, 2, settings, shape);
    world.thorough = false;
    for leg in [A, B] {
        world.steady(leg, MILLISECOND / 10);
    }
    let begun = world.now;
    while world.now.since(begun) < 60 * SECOND {
        world.behaviour[B].lost_sight = match world.now.since(begun) / SECOND {
            0..3 => (0, 0),
            3..35 => (4, 15 * SECOND),
            _ => (10, 900 * MILLISECOND),
        };
        let start = world.random.below(world.sectors / 8) * 8;
        world.submit(Operation::Write, Extent::new(start, 8), false);
        world.wait(2 * MILLISECOND);
        let waiting = world.requests.len();
        assert!(waiting < 16, "{waiting} writes wait at {:?}", world.now);
    }
    assert!(world.status().exposure_peak > 16 << 20, "B is left behind");
}

/// Few regions may be dirty, so they settle as soon as they can: some while their authority's flush is
/// late and another leg is about to take over. What has settled stays where it is.
#[test]
fn regions_settle_while_a_flush_of_their_authority_is_late() {
    let settings = Settings {
        dirty_regions_max: 2,
        clean_after: 30 * MILLISECOND,
        wait_ceiling: SECOND,
        ..calm()
    };
    let mut world = World::new(1, 2, settings);
    world.steady(A, 50_000);
    world.steady(B, 100_000);
    for round in 0..300 {
        let late = [A, B][round % 2];
        for region in 0..6 {
            world.submit(Operation::Write, Extent::new(region * REGION, 8), false);
        }
        world.hold(late, What::Flushes);
        let flush = world.submit(Operation::Flush, Extent::default(), false);
        let pause = world.random.below(60);
        world.wait(pause * MILLISECOND);
        world.release(late);
        world.wait(pause % 7 * 10 * MILLISECOND);
        assert!(world.is_answered(flush) || pause % 7 < 5, "round {round}");
    }
    world.converge();
    world.read_everything();
}
