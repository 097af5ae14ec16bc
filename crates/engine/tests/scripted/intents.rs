//! The first write of a region while its page is late on every leg. Authority goes to and fro between them;
//! the write need not wait until the page is durable on the leg that it has just moved to.

use crate::world::landing::Landing;
use crate::world::script::What;
use crate::world::{Pending, REGION_BYTES, World, calm};
use hemi_engine::identifiers::LegIndex;
use hemi_engine::io::{LegEvent, Operation};
use hemi_engine::marks::Mark;
use hemi_engine::settings::Settings;
use hemi_units::{Extent, Instant, MICROSECOND, MILLISECOND, SECOND, SECTOR_BYTES};
use hemi_world::disk::Cache;

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;
/// Region 0 is in use, so that both legs are seen to answer.
const USED: Extent = Extent { start: 0, end: 8 };
/// The region of the write, not touched before.
const REGION: usize = 1;
const FIRST: Extent =
    Extent { start: REGION_BYTES / SECTOR_BYTES, end: REGION_BYTES / SECTOR_BYTES + 8 };
/// Longer than a page write may take before another leg is asked.
const LATE: u64 = 25 * MILLISECOND;

fn busy(world: &mut World, time: u64) {
    let until = world.now + time;
    while world.now < until {
        world.submit(Operation::Write, USED, false);
        world.wait(MILLISECOND);
    }
}

/// Returns a volume with the first write of a region, whose page both legs are late with, and the write.
/// The page that names A is in flight to A, and authority has moved to B.
fn late_on_both() -> (World, u64) {
    let mut world = World::with_ledger(1, 2, Settings { clean_after: SECOND, ..calm() });
    world.steady(A, 100 * MICROSECOND);
    world.steady(B, 200 * MICROSECOND);
    busy(&mut world, LATE);
    world.hold(A, What::Metadata);
    world.hold(B, What::Metadata);
    let first = world.submit(Operation::Write, FIRST, false);
    busy(&mut world, LATE);
    assert_eq!(world.in_flight(A, What::Metadata).len(), 1);
    assert_eq!(world.in_flight(B, What::Metadata).len(), 1, "authority has not moved");
    assert!(!world.is_answered(first) && !world.is_in_flight(A, What::Writes, FIRST));
    (world, first)
}

#[test]
fn the_first_page_that_lands_lets_the_first_write_go() {
    let (mut world, first) = late_on_both();
    world.release(A);
    world.wait(MILLISECOND);
    assert!(world.is_answered(first), "it waits for the page of the leg that took over");
    assert_eq!(world.engine().marks().count(Mark::IntentOnAnotherLeg), 1);
    assert_eq!(world.in_flight(B, What::Metadata).len(), 1);
    world.release(B);
    world.read_everything();
    world.converge();
}

/// After a crash the legs differ where such a write reached only one of them. After a kill the ledger tells,
/// and after a power cut the page that let the write go.
#[test]
fn the_page_that_let_it_go_says_that_the_region_is_dirty() {
    for cache in [None, Some(Cache::Dropped)] {
        for on in [A, B] {
            let (mut world, _) = late_on_both();
            world.hold(on, What::Writes);
            world.release_kind(A, What::Metadata);
            world.wait(MILLISECOND);
            assert!(world.is_in_flight(on, What::Writes, FIRST));
            world.crash(
                cache,
                |p| {
                    if p.io.leg.index() == on { Landing::Not } else { Landing::Whole }
                },
            );
            assert!(world.recovered().table[REGION].is_dirty());
            world.open(&[A, B]).expect("pages and ledger tell");
            world.read_everything();
            world.converge();
        }
    }
}

/// B comes back while it is being marked out, and takes a page that was asked for before. That page counts for nothing
/// once B is out, so the first write of a region waits for A's.
/// Returns a volume whose leg B is being marked out, and answers again once it is released.
fn marking_b_out(ledger: bool, legs: usize) -> World {
    let settings = Settings { clean_after: SECOND, out_after: SECOND, ..calm() };
    let b = LegIndex(B as u8);
    let new = if ledger { World::with_ledger } else { World::new };
    let mut world = new(1, legs, settings);
    for leg in 0..legs {
        world.steady(leg, if leg == B { 100 } else { 200 } * MICROSECOND);
    }
    busy(&mut world, LATE);
    world.hold(B, What::Anything);
    for region in [2, 3] {
        world.submit(Operation::Write, Extent::new(region * FIRST.start, 8), false);
        world.wait(MILLISECOND);
    }
    while !world.engine().is_leaving(b) {
        let until = world.now + MILLISECOND;
        world.submit(Operation::Write, USED, false);
        while !world.engine().is_leaving(b) && world.step(until) {}
        assert!(world.now < Instant(60 * SECOND), "B is not marked out");
    }
    world
}

fn is_superblock(p: &Pending) -> bool {
    p.io.extent.start < 256 && What::Metadata.is(p.io.operation)
}

#[test]
fn the_page_of_a_leg_that_is_being_marked_out_lets_no_write_go() {
    for ledger in [true, false] {
        let mut world = marking_b_out(ledger, 2);
        world.hold(A, What::Metadata);
        let first = world.submit(Operation::Write, FIRST, false);
        world.release(B);
        world.wait(10 * MILLISECOND);
        assert!(world.engine().is_leaving(LegIndex(B as u8)));
        assert!(!world.is_answered(first), "A has no page that says that the region is dirty");
        assert_eq!(world.disks[A].contents()[FIRST.start as usize], 0, "the write went");
        world.crash(Some(Cache::Kept), |p| {
            let lands = p.io.leg.index() == A && is_superblock(p);
            if lands { Landing::Whole } else { Landing::Not }
        });
        world.open(&[A, B]).expect("A decides");
        world.read_everything();
        world.converge();
    }
}

/// The write is on one of the legs that stay. Where no page of theirs says so, they differ and count as whole.
#[test]
fn legs_that_stay_do_not_differ_after_a_write_that_the_page_of_a_leaving_leg_let_go() {
    for ledger in [true, false] {
        let mut world = marking_b_out(ledger, 3);
        world.hold(A, What::Anything);
        world.hold(C, What::Metadata);
        world.submit(Operation::Write, FIRST, false);
        world.release(B);
        world.wait(10 * MILLISECOND);
        assert!(world.engine().is_leaving(LegIndex(B as u8)));
        world.crash(Some(Cache::Kept), |p| {
            if is_superblock(p) { Landing::Whole } else { Landing::Not }
        });
        world.open(&[A, B, C]).expect("A and C decide");
        world.read_everything();
        world.converge();
    }
}

/// B is out and answers. It gets pages in the background, and they count for nothing: the write waits for A's.
#[test]
fn the_page_of_a_leg_that_is_out_lets_no_write_go() {
    let patient = Settings { wait_floor: 100 * SECOND, wait_ceiling: 100 * SECOND, ..calm() };
    let mut world = World::with_ledger(1, 2, Settings { out_after: SECOND, ..patient });
    world.steady(B, 200 * MICROSECOND);
    world.event(B, LegEvent::Gone { removed: false });
    world.write(USED.start, 8);
    world.wait(2 * SECOND);
    // It has no room for what it owes, and stays out.
    world.behaviour[B].full = Extent::new(world.data_start(), 8);
    world.event(B, LegEvent::Back);
    world.wait(5 * SECOND);
    assert!(world.status().legs[B].out_reason.is_some(), "it is out");
    world.hold(A, What::Metadata);
    world.hold(B, What::Writes);
    let first = world.submit(Operation::Write, FIRST, false);
    world.wait(10 * SECOND);
    assert!(!world.is_answered(first), "A has no page that says that the region is dirty");
    world.crash(Some(Cache::Kept), |_| Landing::Not);
    world.behaviour[B].full = Extent::default();
    world.settings.clean_after = SECOND;
    world.open(&[A, B]).expect("A decides");
    world.read_everything();
    world.converge();
}

/// Hemi was killed before any page said that the region is dirty, and the ledger says so. The next hemi waits
/// for a page before it writes there.
#[test]
fn a_region_that_only_the_ledger_knows_as_dirty_needs_a_record() {
    let mut world = World::with_ledger(1, 2, calm());
    world.write(USED.start, 8);
    world.wait(MILLISECOND);
    world.hold(A, What::Metadata);
    world.hold(B, What::Metadata);
    world.submit(Operation::Write, FIRST, false);
    world.wait(MILLISECOND);
    world.crash(None, |_| Landing::Not);
    world.open(&[A, B]).expect("the ledger tells");
    while !world.engine().is_serving() {
        let until = world.now + MILLISECOND;
        world.step(until);
    }
    world.hold(A, What::Metadata);
    world.hold(B, What::Metadata);
    world.hold(B, What::Writes);
    world.submit(Operation::Write, FIRST, false);
    world.wait(5 * MILLISECOND);
    assert!(!world.recorded(REGION).is_dirty(), "no page says so");
    assert_eq!(world.disks[A].contents()[FIRST.start as usize], 0, "the write went");
}
