//! A leg loses sight of single requests and goes on answering others. Late requests are handed over
//! one by one, and the leg stays in use.

use crate::world::landing::Landing;
use crate::world::script::What;
use crate::world::{Shape, World, calm};
use hemi_engine::identifiers::LegIndex;
use hemi_engine::io::Operation;
use hemi_engine::settings::{Limits, Settings};
use hemi_units::{Extent, MILLISECOND, SECOND};
use hemi_world::disk::Cache;

const A: usize = 0;
const B: usize = 1;
const REGION: u64 = 128;

/// Returns two similar legs without a ledger. The first decides the first region.
fn touched() -> World {
    touched_with(100_000)
}

/// Returns the same as [`touched`], with this latency on the second leg.
fn touched_with(latency: u64) -> World {
    // The wait limit of flushes is then twice that of writes, 40 ms.
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

/// Sends other requests, which both legs answer, for this long.
fn others(world: &mut World, time: u64) {
    let end = world.now + time;
    while world.now < end {
        world.submit(Operation::Write, Extent::new(64, 8), false);
        world.submit(Operation::Read, Extent::new(80, 8), false);
        world.wait(MILLISECOND);
    }
}

/// Submits a request of which A loses sight while it answers later ones.
fn lose_sight(world: &mut World, what: What, operation: Operation, extent: Extent) -> u64 {
    world.hold(A, what);
    let token = world.submit(operation, extent, false);
    world.let_come(A);
    token
}

/// Kills hemi, or cuts the power of drives whose cache is given. I/O in flight has not landed.
/// After the next start everything is there.
fn restart(world: &mut World, cache: Option<Cache>) {
    world.crash(cache, |_| Landing::Not);
    world.open(&[A, B]).expect("the pages tell");
    world.read_everything();
    world.converge();
}

/// The authority loses sight of one write. The leg that has it decides from then on. If the late
/// write lands in the end, it does not overwrite newer data.
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
    restart(&mut world, Some(Cache::Dropped));
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
    restart(&mut world, None);
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
    restart(&mut world, Some(Cache::Dropped));
}

/// More reads are lost sight of than the budget for hedges has room for.
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

/// One leg has lost sight of a read for good, and the other falls silent with the read that it was
/// asked for instead. The read is sent again when the other is back.
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

/// A read of several regions cannot be sent to two legs at once. It starts over without the late
/// one.
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

/// A read started over without the leg that was late with it, and the other leg falls silent. Only
/// the first answers, so it is asked again.
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

/// A read goes on part by part. It was given up with a leg that is late with all of them, answers
/// in between, and is the faster one. The rest of it is read from the other leg.
#[test]
fn the_rest_of_a_read_is_not_asked_of_the_leg_it_was_given_up_with() {
    let mut settings = Settings { wait_ceiling: 20 * MILLISECOND, ..calm() };
    settings.limits.operations_per_request = 1;
    let mut world = World::new(1, 2, settings);
    world.steady(A, 15 * MILLISECOND);
    world.steady(B, 100_000);
    for _ in 0..100 {
        world.read(0, 8);
    }
    world.hold(B, What::Reads);
    let read = world.submit(Operation::Read, Extent::new(REGION - 8, 16), false);
    world.wait(25 * MILLISECOND);
    assert_eq!(world.in_flight(A, What::Reads).len(), 1, "B is late with the first part");
    world.release(B);
    world.hold(B, What::Reads);
    world.wait(35 * MILLISECOND);
    assert!(world.is_answered(read), "B is asked again, and is late again");
    world.release(B);
    world.read_everything();
}

/// The source of a rebuild is read at a pace that leaves room for clients.
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
    assert!(most <= 2, "{most} reads for the rebuild are in flight beside those of clients");
    world.run_until_answered(SECOND);
    world.converge();
}

/// A leg that was late with something a moment ago does not get regions to decide, where another
/// leg is as good.
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

/// A leg loses sight of one write in four for 15 s, and later of one in ten for 0.9 s. The rate at
/// which it pays meanwhile is no measure of its speed: there is room for all writes.
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

/// A leg has been late with a page for so long that it counts as steady again. It takes no newer
/// page until then, so it is not given a region of that page to decide. The other leg answers
/// without a wait.
#[test]
fn a_leg_that_is_late_with_a_page_is_given_none_of_its_regions() {
    let mut world = touched();
    lose_sight(&mut world, What::Metadata, Operation::Write, Extent::new(REGION, 8));
    others(&mut world, 25 * MILLISECOND);
    world.wait(30 * SECOND);
    for region in 2..8 {
        let write = world.submit(Operation::Write, Extent::new(region * REGION, 8), false);
        world.wait(7 * MILLISECOND);
        assert!(world.is_answered(write), "it waits for a page that cannot be written");
        assert_eq!(world.recorded(region as usize).authority(), LegIndex(B as u8));
    }
    let zombie = world.only(A, What::Metadata);
    world.land(zombie);
    restart(&mut world, None);
}

/// A leg was late with a page a moment ago, and so the region went to the other. That one is late
/// with its page, too. The first, which has answered since, gets the region back.
#[test]
fn a_late_page_goes_back_to_a_leg_that_answers_again() {
    let mut world = touched();
    world.hold(A, What::Metadata);
    // Others are answered without the page once both legs have them.
    let write = world.submit(Operation::Write, Extent::new(REGION, 8), true);
    world.let_come(A);
    world.hold(B, What::Metadata);
    others(&mut world, 30 * MILLISECOND);
    let zombie = world.only(A, What::Metadata);
    world.land(zombie);
    assert!(!world.is_answered(write), "B is late with its page");
    others(&mut world, 30 * MILLISECOND);
    assert!(world.is_answered(write), "it waits for the second leg that is late with a page");
    assert_eq!(world.recorded(1).authority(), LegIndex(A as u8));
    world.release(B);
    restart(&mut world, None);
}

/// A leg loses sight of a read that no other leg could answer. It is sent once more.
#[test]
fn a_read_that_one_leg_alone_can_answer_is_asked_for_again() {
    let mut world = touched();
    world.hold(B, What::Writes);
    world.write(0, 8);
    world.let_come(B);
    let read = lose_sight(&mut world, What::Reads, Operation::Read, Extent::new(0, 8));
    others(&mut world, 45 * MILLISECOND);
    assert!(world.is_answered(read), "it waits for a leg that has lost sight of it");
    world.release(A);
    world.release(B);
    world.read_everything();
    world.converge();
}

/// A leg takes half a second for every write, however many it is given at once. It is given as many
/// as it needs to keep up.
#[test]
fn a_leg_that_is_late_with_every_write_keeps_up() {
    let limits = Limits { sieves: 1, ..Limits::default() };
    let settings = Settings { requests_max: 256, limits, ..Settings::default() };
    let shape = Shape {
        volume_bytes: 256 << 20,
        region_bytes: 1 << 20,
        memory_sectors: 512 << 10,
        ..Shape::default()
    };
    let mut world = World::of_shape(1, 2, settings, shape);
    world.thorough = false;
    for leg in [A, B] {
        world.steady(leg, MILLISECOND / 10);
    }
    let begun = world.now;
    while world.now.since(begun) < 90 * SECOND {
        if world.now.since(begun) > 3 * SECOND {
            world.behaviour[B].lost_sight = (1, SECOND / 2);
        }
        let start = world.random.below(world.sectors / 8) * 8;
        world.submit(Operation::Write, Extent::new(start, 8), false);
        world.wait(5 * MILLISECOND);
        let waiting = world.requests.len();
        assert!(waiting < 16, "{waiting} writes wait at {:?}", world.now);
    }
    let (behind, most) = (world.status().exposure_bytes, world.status().exposure_peak);
    assert!(behind < 1 << 20, "{behind} bytes behind, {most} at most");
}

/// A leg is late with a page, and the other usually takes longer than that. The other is not asked
/// yet.
#[test]
fn a_late_page_is_not_handed_over_to_a_leg_that_takes_longer() {
    let mut world = touched_with(60 * MILLISECOND);
    let write = lose_sight(&mut world, What::Metadata, Operation::Write, Extent::new(REGION, 8));
    others(&mut world, 30 * MILLISECOND);
    let zombie = world.only(A, What::Metadata);
    world.land(zombie);
    others(&mut world, 5 * MILLISECOND);
    assert!(world.is_answered(write), "it waits for the slower leg");
    world.read_everything();
    world.converge();
}
