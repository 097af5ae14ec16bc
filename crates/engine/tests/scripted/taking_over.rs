//! Moves of authority, and what the leg that takes over has to have before.

use crate::world::landing::Landing;
use crate::world::script::What;
use crate::world::{LONG, REGION_BYTES, World, calm, steady_legs};
use hemi_engine::io::{LegEvent, Operation};
use hemi_engine::settings::Settings;
use hemi_units::{Extent, MILLISECOND, SECOND};
use hemi_world::disk::Cache;

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;
/// The number of sectors of a region.
const REGION: u64 = REGION_BYTES / 512;

/// B has a write with FUA in its cache alone: the first try there failed, and the drain asks for no FUA. No
/// client has flushed. B must flush all the same before it takes over.
#[test]
fn a_leg_that_takes_over_has_flushed_what_was_written_with_fua() {
    let mut world = steady_legs(2, calm());
    world.write(0, 8);
    world.wait(MILLISECOND);
    assert_eq!(world.recorded(0).authority().index(), A);
    world.hold(B, What::Writes);
    let durable = world.submit(Operation::Write, Extent::new(0, 8), true);
    world.wait(MILLISECOND);
    assert!(world.is_answered(durable), "A has it");
    let missed = world.only(B, What::Writes);
    world.fail(missed);
    world.release(B);
    world.wait(200 * MILLISECOND);
    assert_eq!(world.status().legs[B].owed_bytes, 0, "B has it, too");
    world.hold(A, What::Anything);
    world.hold(B, What::Flushes);
    world.submit(Operation::Write, Extent::new(16, 8), false);
    world.wait(LONG);
    world.crash(Some(Cache::Dropped), |_| Landing::Not);
    world.settings.clean_after = 300 * MILLISECOND;
    world.open(&[A, B]).expect("both are there");
    world.read_everything();
    world.converge();
}

/// A write is on B alone, which takes over, and whose session has dropped when its page says so. It may have
/// lost the write.
#[test]
fn a_write_on_a_leg_without_a_session_is_not_acknowledged() {
    let mut world = steady_legs(2, calm());
    world.write(0, 8);
    world.wait(MILLISECOND);
    assert_eq!(world.recorded(0).authority().index(), A);
    world.hold(A, What::Anything);
    world.hold(B, What::Metadata);
    let write = world.submit(Operation::Write, Extent::new(0, 8), false);
    world.wait(LONG);
    let page = world.only(B, What::Metadata);
    world.event(B, LegEvent::Gone { removed: false });
    world.land(page);
    world.wait(MILLISECOND);
    assert_eq!(world.recorded(0).authority().index(), B);
    assert!(!world.is_answered(write), "B may have lost it");
    world.event(B, LegEvent::Back);
    world.release(A);
    world.release(B);
    world.wait(SECOND);
    assert!(world.is_answered(write) && !world.has_failed(write));
    world.read_everything();
}

/// A cannot take the write, and B has it.
#[test]
fn a_write_that_its_authority_cannot_take_is_handed_over_at_once() {
    let mut world = steady_legs(2, calm());
    world.write(0, 8);
    world.wait(MILLISECOND);
    world.behaviour[A].full = Extent::new(world.data_start(), 8);
    let write = world.submit(Operation::Write, Extent::new(0, 8), false);
    world.wait(5 * MILLISECOND);
    assert!(world.is_answered(write) && !world.has_failed(write));
    assert_eq!(world.recorded(0).authority().index(), B);
}

/// The region has been touched after the last flush, which asked for nothing there.
#[test]
fn a_region_touched_after_the_last_flush_moves_without_one() {
    let mut world = steady_legs(2, calm());
    world.write(0, 8);
    world.flush();
    world.write(REGION, 8);
    world.wait(MILLISECOND);
    world.hold(A, What::Anything);
    world.hold(B, What::Flushes);
    let write = world.submit(Operation::Write, Extent::new(REGION, 8), false);
    world.wait(LONG);
    assert!(world.is_answered(write), "it waits for a flush of B");
}

/// A has lost its cache, and B takes over with all that it had. When B is late later and answers before A can
/// take over, it stays.
#[test]
fn a_leg_that_took_over_for_a_lost_cache_is_not_in_doubt_for_that() {
    let mut world = steady_legs(2, calm());
    world.write(0, 8);
    world.wait(MILLISECOND);
    world.hold(A, What::Flushes);
    world.submit(Operation::Flush, Extent::default(), false);
    let failing = world.only(A, What::Flushes);
    world.disks[A].drop_cache();
    world.fail(failing);
    world.release(A);
    world.wait(5 * SECOND);
    assert_eq!(world.status().legs[A].owed_bytes, 0);
    world.flush();
    world.write(0, 8);
    world.wait(MILLISECOND);
    assert_eq!(world.recorded(0).authority().index(), B);
    world.hold(A, What::Flushes);
    world.hold(B, What::Flushes);
    world.hold(B, What::Anything);
    world.submit(Operation::Write, Extent::new(0, 8), false);
    world.wait(LONG);
    world.release_kind(B, What::Anything);
    world.wait(MILLISECOND);
    world.release(A);
    world.wait(5 * MILLISECOND);
    assert_eq!(world.recorded(0).authority().index(), B);
    assert_eq!(world.status().authority_moves, 1);
}

/// B has drained a region that was flushed without it, and has not been flushed since. The region has been
/// touched after that flush.
#[test]
fn a_leg_that_takes_over_has_flushed_what_it_drained() {
    let mut world = steady_legs(2, Settings { clean_after: 100 * MILLISECOND, ..calm() });
    world.event(B, LegEvent::Gone { removed: false });
    world.write(REGION, 8);
    world.wait(SECOND);
    world.flush();
    world.hold(B, What::Flushes);
    world.event(B, LegEvent::Back);
    world.wait(10 * MILLISECOND);
    assert_eq!(world.status().legs[B].owed_bytes, 0);
    world.write(REGION + 16, 8);
    world.hold(A, What::Anything);
    let write = world.submit(Operation::Write, Extent::new(REGION + 16, 8), false);
    world.wait(LONG);
    assert!(!world.is_answered(write), "B has not flushed what was flushed before");
    world.crash(Some(Cache::Dropped), |_| Landing::Not);
    world.open(&[A, B]).expect("both are there");
    world.read_everything();
}

/// The first region can move without a flush. The second has been flushed on A alone, and does not go along.
#[test]
fn a_region_that_needs_a_flush_does_not_move_along_with_others() {
    let mut world = steady_legs(2, calm());
    world.write(REGION, 8);
    world.wait(MILLISECOND);
    world.lose_leg(B, Cache::Dropped);
    world.flush();
    world.event(B, LegEvent::Back);
    world.wait(5 * SECOND);
    assert_eq!(world.status().legs[B].owed_bytes, 0, "B has drained");
    world.hold(B, What::Flushes);
    world.write(0, 8);
    world.wait(MILLISECOND);
    world.event(A, LegEvent::Gone { removed: false });
    world.wait(MILLISECOND);
    assert_eq!(world.recorded(0).authority().index(), B);
    assert_eq!(world.recorded(1).authority().index(), A);
    world.crash(Some(Cache::Dropped), |_| Landing::Not);
    world.open(&[A, B]).expect("both are there");
    world.read_everything();
}

/// Nobody uses the region. A may have lost its cache, and would decide it after a kill.
#[test]
fn authority_leaves_a_leg_without_a_session_though_nobody_waits() {
    let mut world = steady_legs(2, calm());
    world.write(0, 8);
    world.wait(MILLISECOND);
    world.lose_leg(A, Cache::Dropped);
    world.wait(5 * MILLISECOND);
    assert_eq!(world.recorded(0).authority().index(), B);
    world.crash(None, |_| Landing::Not);
    world.open(&[A, B]).expect("both are there");
    world.read_everything();
}

/// Authority moves to B and, since its page is late, to C. The flush came in between: B's page will do.
#[test]
fn a_flush_does_not_wait_for_the_page_of_a_later_move() {
    let mut world = World::with_ledger(1, 3, Settings { clean_after: 100 * SECOND, ..calm() });
    for leg in [A, B, C] {
        world.steady(leg, 100_000 + 10_000 * leg as u64);
    }
    world.wait(LONG);
    for _ in 0..20 {
        world.write(0, 8);
    }
    world.wait(MILLISECOND);
    world.flush();
    assert_eq!(world.recorded(0).authority().index(), A);
    world.hold(A, What::Anything);
    world.hold(B, What::Metadata);
    world.hold(C, What::Metadata);
    world.write(0, 8);
    let flush = world.submit(Operation::Flush, Extent::default(), false);
    world.wait(LONG);
    assert_eq!(world.status().authority_moves, 2);
    for id in world.ids(B, What::Metadata) {
        world.land(id);
    }
    world.wait(5 * MILLISECOND);
    assert!(world.is_answered(flush));
}
