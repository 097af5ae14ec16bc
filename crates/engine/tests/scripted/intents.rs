//! The first write of a region while its page is late on every leg. Authority goes to and fro between them;
//! the write need not wait until the page is durable on the leg that it has just moved to.

use crate::world::landing::Landing;
use crate::world::script::What;
use crate::world::{REGION_BYTES, World, calm};
use hemi_engine::io::Operation;
use hemi_engine::marks::Mark;
use hemi_engine::settings::Settings;
use hemi_engine::status::LegState;
use hemi_units::{Extent, MICROSECOND, MILLISECOND, SECOND, SECTOR_BYTES};
use hemi_world::disk::Cache;

const A: usize = 0;
const B: usize = 1;
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
fn late_on_both(ledger: bool) -> (World, u64) {
    let new = if ledger { World::with_ledger } else { World::new };
    let mut world = new(1, 2, Settings { clean_after: SECOND, ..calm() });
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
    for ledger in [true, false] {
        let (mut world, first) = late_on_both(ledger);
        world.release(A);
        world.wait(MILLISECOND);
        assert!(world.is_answered(first), "it waits for the page of the leg that took over");
        assert_eq!(world.engine().marks().count(Mark::IntentOnAnotherLeg), 1);
        assert_eq!(world.in_flight(B, What::Metadata).len(), 1);
        world.release(B);
        world.read_everything();
        world.converge();
    }
}

/// A write that a leg lacks waits for the page of the leg that decides. Without a ledger only that page says so.
#[test]
fn a_write_that_one_leg_lacks_waits_for_the_page_of_the_leg_that_decides() {
    for lacking in [A, B] {
        let (mut world, first) = late_on_both(false);
        world.hold(lacking, What::Writes);
        world.release_kind(A, What::Metadata);
        world.wait(MILLISECOND);
        assert!(world.is_in_flight(lacking, What::Writes, FIRST));
        assert!(!world.is_in_flight(A + B - lacking, What::Writes, FIRST), "the other has it");
        assert!(!world.is_answered(first), "a kill would lose it where leg {lacking} decides");
        world.crash(None, |_| Landing::Not);
        world.open(&[A, B]).expect("both are there");
        world.read_everything();
    }
}

/// After a kill, whichever leg decides has a write that was answered since all of them had it.
#[test]
fn a_write_that_all_legs_have_outlives_a_kill_before_the_page_of_the_leg_that_decides() {
    for lands in [Landing::Not, Landing::Whole] {
        let (mut world, first) = late_on_both(false);
        world.release_kind(A, What::Metadata);
        world.wait(MILLISECOND);
        assert!(world.is_answered(first));
        world.crash(None, |_| lands);
        world.open(&[A, B]).expect("both are there");
        world.read_everything();
        world.converge();
    }
}

/// After a crash the legs differ where such a write reached only one of them. After a kill the ledger tells,
/// and after a power cut the page that let the write go.
#[test]
fn the_page_that_let_it_go_says_that_the_region_is_dirty() {
    for cache in [None, Some(Cache::Dropped)] {
        for on in [A, B] {
            let (mut world, _) = late_on_both(true);
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

/// C decides, falls silent and owes the region. The write is on both others. After a kill C's page, which
/// nothing newer has taken the place of, would have C decide.
#[test]
fn a_write_waits_for_the_page_where_a_leg_that_owes_the_region_may_decide() {
    const C: usize = 2;
    let settings = Settings { clean_after: SECOND, owed_extents_max: 0, ..calm() };
    let mut world = World::new(1, 3, settings);
    for leg in [A, B] {
        world.steady(leg, 200 * MICROSECOND);
    }
    world.steady(C, 50 * MICROSECOND);
    busy(&mut world, LATE);
    world.write(FIRST.start, 8);
    assert_eq!(world.recorded(REGION).authority().index(), C);
    busy(&mut world, 4 * LATE);
    world.hold(C, What::Anything);
    world.hold(A, What::Metadata);
    world.hold(B, What::Metadata);
    world.submit(Operation::Write, FIRST, false);
    for _ in 0..100 {
        if world.status().legs[C].state != LegState::Frozen {
            world.wait(MILLISECOND);
        }
    }
    let other = Extent { start: FIRST.end, end: FIRST.end + 8 };
    let write = world.submit(Operation::Write, other, false);
    world.wait(MILLISECOND);
    assert_ne!(world.status().legs[C].owed_region_bytes, 0);
    let at = other.start as usize;
    let [on_a, on_b, on_c] = [A, B, C].map(|leg| world.disks[leg].contents()[at]);
    assert!(on_a == on_b && on_a != on_c, "A and B have it");
    assert!(!world.is_answered(write), "C would decide, and lacks it");
    world.crash(None, |_| Landing::Not);
    world.open(&[A, B, C]).expect("all are there");
    assert_eq!(world.recorded(REGION).authority().index(), C);
    world.read_everything();
}
