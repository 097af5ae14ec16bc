//! Copies that are the last of what was acknowledged: no leg has it, or none that answers.

use crate::world::landing::{Landing, lose_cache};
use crate::world::script::What;
use crate::world::{LONG, REGION_BYTES, World, calm, steady_legs};
use hemi_engine::io::{LegEvent, Operation};
use hemi_engine::settings::Settings;
use hemi_units::{Extent, MICROSECOND, MILLISECOND, SECOND};
use hemi_world::disk::Cache;

const A: usize = 0;
const B: usize = 1;
/// The first sector of the second region.
const SECOND_REGION: u64 = REGION_BYTES / 512;

/// Drops a session with none of its I/O landed, and the cache with it.
fn drop_session(world: &mut World, leg: usize) {
    world.event(leg, LegEvent::Gone { removed: false });
    world.abort(leg, |_| Some(Landing::Not));
    lose_cache(&mut world.disks[leg], Cache::Dropped, &mut world.random);
}

/// A write spans two regions. A has its second part and loses it with its cache, while the write to B
/// is in flight: A is given it from there. Both sessions drop before either write lands. The write is
/// not answered yet, so what it wrote must be there when it is.
#[test]
fn the_last_copy_is_kept_past_the_budget_until_a_leg_has_it() {
    let settings = Settings { copies_reserve: u64::MAX, ..calm() };
    let mut world = World::with_ledger(1, 2, settings);
    world.steady(A, 100 * MICROSECOND);
    world.steady(B, 300 * MICROSECOND);
    world.wait(LONG);
    let extent = Extent { start: SECOND_REGION - 8, end: SECOND_REGION + 8 };
    for _ in 0..20 {
        world.write(extent.start, extent.sectors());
    }
    world.flush();
    assert_eq!(world.recorded(1).authority().index(), A);
    world.hold(A, What::Writes);
    world.hold(B, What::Writes);
    let write = world.submit(Operation::Write, extent, false);
    world.wait(0);
    let parts = world.ids(A, What::Writes);
    assert_eq!(parts.len(), 2, "one for each region");
    world.land(parts[1]);
    drop_session(&mut world, A);
    world.event(A, LegEvent::Back);
    world.wait(MILLISECOND);
    let second = Extent { start: SECOND_REGION, end: extent.end };
    assert!(world.is_in_flight(A, What::Writes, second), "A is given it from what B is sent");
    drop_session(&mut world, A);
    drop_session(&mut world, B);
    world.event(A, LegEvent::Back);
    world.event(B, LegEvent::Back);
    world.release(A);
    world.release(B);
    world.run_until_answered(20 * SECOND);
    assert!(!world.has_failed(write), "hemi has had a copy all along");
    world.read_everything();
    let flush = world.flush();
    assert!(!world.has_failed(flush), "nothing is lost");
    world.wait(SECOND);
    world.read_everything();
}

/// Past the budget for copies a write fails on B. A, which has it, is away, and the copy is the last that B can
/// be given at present.
#[test]
fn a_copy_is_kept_for_what_a_leg_that_is_away_has() {
    let mut world = steady_legs(2, Settings { copies_reserve: u64::MAX, ..calm() });
    world.hold(B, What::Writes);
    world.write(0, 8);
    world.event(A, LegEvent::Gone { removed: false });
    let failing = world.only(B, What::Writes);
    world.fail(failing);
    world.release(B);
    world.wait(LONG);
    assert_ne!(world.disks[B].contents()[0], 0, "it is written from the copy");
}

/// The same, and C has it, which answers but is out: it decides nothing, and may go at any time.
#[test]
fn a_copy_is_kept_for_what_a_leg_that_is_out_has() {
    const C: usize = 2;
    let settings = Settings { out_after: SECOND, copies_reserve: u64::MAX, ..calm() };
    let mut world = steady_legs(3, settings);
    world.event(C, LegEvent::Gone { removed: false });
    world.write(SECOND_REGION, 8);
    world.wait(2 * SECOND);
    // It has no room for what it owes, and stays out.
    world.behaviour[C].full = Extent::new(world.data_start() + SECOND_REGION, 8);
    world.event(C, LegEvent::Back);
    world.wait(5 * SECOND);
    assert!(world.status().legs[C].out_reason.is_some(), "it is out");
    world.hold(B, What::Writes);
    world.write(0, 8);
    world.wait(10 * MILLISECOND);
    assert_ne!(world.disks[C].contents()[0], 0, "C has it");
    world.event(A, LegEvent::Gone { removed: false });
    world.hold(C, What::Reads);
    let failing = world.only(B, What::Writes);
    world.fail(failing);
    world.event(C, LegEvent::Gone { removed: true });
    world.abort(C, |_| Some(Landing::Not));
    world.release(B);
    world.wait(LONG);
    assert_ne!(world.disks[B].contents()[0], 0, "it is written from the copy");
}
