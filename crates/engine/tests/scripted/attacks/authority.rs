//! The conditions under which a leg may take over.

use hemi_engine::io::Operation;
use hemi_engine::settings::Settings;
use hemi_units::{Extent, MILLISECOND, SECOND};
use hemi_world::disk::Cache;

use super::{A, B, LONG, REGION, World, authority, calm, index, reopen, two_legs};
use crate::world::SECTORS;
use crate::world::landing::Landing;
use crate::world::script::What;

/// Scenario 13: after a flush on A alone B is not whole. It holds everything all the same, and must
/// be able to take over when A freezes.
#[test]
fn s13_not_whole_does_not_prevent_a_takeover() {
    let mut world = two_legs(calm());
    world.write(0, 8);
    world.hold(B, What::Flushes);
    world.flush();
    world.wait(LONG);
    world.write(8, 8);
    world.flush();
    world.release(B);
    world.wait(LONG);
    assert_eq!(authority(&world, 0), A);
    world.hold(A, What::Anything);
    let token = world.submit(Operation::Write, Extent::new(16, 8), false);
    world.wait(LONG);
    assert!(world.is_answered(token), "B has everything and may not take over");
    assert_eq!(authority(&world, 0), B);
    // Flushed data has to be on B durably before B decides.
    world.crash(Some(Cache::Dropped), |_| Landing::Not);
    reopen(&mut world);
    world.read_everything();
    world.converge();
}

/// Scenario 13, with a region that was cleaned without B. The page does not record B as whole
/// there, but B has everything by now, and the region is dirty again.
#[test]
fn s13_a_leg_that_has_drained_takes_over() {
    let mut world = two_legs(Settings { clean_after: 100 * MILLISECOND, ..calm() });
    world.hold(B, What::Writes);
    world.write(0, 8);
    world.wait(SECOND);
    assert!(!world.recorded(0).is_dirty() && !world.recorded(0).is_whole(index(B)));
    world.release(B);
    world.wait(5 * MILLISECOND);
    world.write(8, 8);
    assert!(world.recorded(0).is_dirty() && !world.recorded(0).is_whole(index(B)));
    world.hold(A, What::Anything);
    let token = world.submit(Operation::Write, Extent::new(16, 8), false);
    world.wait(LONG);
    assert!(world.is_answered(token), "B has everything and may not take over");
    assert_eq!(authority(&world, 0), B);
}

/// Scenario 13, the other way round: the region is clean, and B has drained it into its cache. Only a
/// whole leg decides it, or what was flushed would be gone with that cache.
#[test]
fn s13_a_leg_that_has_drained_a_clean_region_does_not_decide_it() {
    let mut world = two_legs(Settings { clean_after: 100 * MILLISECOND, ..calm() });
    world.hold(B, What::Writes);
    world.write(0, 8);
    world.flush();
    world.wait(SECOND);
    assert!(!world.recorded(0).is_dirty() && !world.recorded(0).is_whole(index(B)));
    world.behaviour[B].flush_errors = 1;
    world.release(B);
    world.wait(100 * MILLISECOND);
    assert_eq!(world.status().legs[B].owed_bytes, 0, "it has drained");
    world.hold(A, What::Anything);
    world.write(5 * REGION, 8);
    // Now A is known to be silent when somebody has to decide the region.
    let token = world.submit(Operation::Write, Extent::new(16, 8), false);
    world.wait(SECOND);
    assert!(!world.is_answered(token), "A alone has durably what was flushed");
    world.crash(Some(Cache::Dropped), |_| Landing::Not);
    reopen(&mut world);
    world.read_everything();
    world.behaviour[B].flush_errors = 0;
    world.converge();
}

/// Scenario 14, many debts: those of the region that has to move go first.
#[test]
fn s14_debts_of_a_region_that_moves_go_first() {
    let settings = Settings { drain_bytes: 4096, leg_window: 1, ..calm() };
    let mut world = two_legs(settings);
    let last = SECTORS - REGION;
    world.hold(B, What::Writes);
    for debt in 0..40 {
        world.write(debt * 16, 8);
    }
    world.write(last, 8);
    world.wait(LONG);
    // One debt takes B 5 ms.
    world.steady(B, 5 * MILLISECOND);
    world.hold(A, What::Anything);
    world.release(B);
    let token = world.submit(Operation::Write, Extent::new(last + 16, 8), false);
    world.wait(100 * MILLISECOND);
    assert!(world.is_answered(token), "B pays what it owes elsewhere first");
    assert!(world.status().legs[B].owed_bytes > 20 * 4096, "the rest is still owed");
}

/// Scenario 14: B owes one sector of the region, and A freezes. The debt is drained from its copy
/// first, and writes elsewhere in the region go on.
#[test]
fn s14_one_owed_sector_does_not_block_a_region() {
    let mut world = two_legs(calm());
    world.write(0, 64);
    world.flush();
    // B fails one write and owes it. It has the rest of the region.
    world.behaviour[B].write_errors = 1;
    let token = world.submit(Operation::Write, Extent::new(5, 1), false);
    world.run_until_answered(SECOND);
    assert!(!world.has_failed(token));
    world.steady(B, 100_000);
    assert!(world.status().legs[B].owed_bytes > 0, "B owes a sector");
    world.hold(A, What::Anything);
    let tokens: Vec<_> = [32u64, 48, 120]
        .map(|start| world.submit(Operation::Write, Extent::new(start, 8), false))
        .into();
    world.wait(3 * LONG);
    for token in tokens {
        assert!(world.is_answered(token), "one owed sector blocks its whole region");
    }
    assert_eq!(authority(&world, 0), B);
    world.crash(None, |_| Landing::Not);
    reopen(&mut world);
    world.read_everything();
    world.converge();
}

/// Scenario 15: a write spans two regions of different authority. It is acknowledged when each part
/// is safe by its own region's rule, and no sooner.
#[test]
fn s15_a_write_across_two_authorities() {
    for slower in [A, B] {
        let mut world = two_legs(calm());
        world.hold(A, What::Anything);
        world.write(SECTORS - 8, 8);
        world.write(REGION, 8);
        world.release(A);
        // This is long enough for A to be trusted again.
        world.wait(11 * SECOND);
        world.write(0, 8);
        assert_eq!((authority(&world, 0), authority(&world, 1)), (A, B));
        world.hold(slower, What::Writes);
        let token = world.submit(Operation::Write, Extent::new(REGION - 8, 16), false);
        world.wait(MILLISECOND);
        assert!(!world.is_answered(token), "one half's authority lacks it");
        world.wait(LONG);
        assert!(world.is_answered(token), "no single leg decides both regions");
        let faster = 1 - slower;
        assert_eq!((authority(&world, 0), authority(&world, 1)), (faster, faster));
        let flush = world.flush();
        assert!(!world.has_failed(flush));
        world.crash(Some(Cache::Dropped), |_| Landing::Not);
        reopen(&mut world);
        world.read_everything();
        world.converge();
    }
}

/// Writes with pauses for a time, and returns the duration of the longest write.
fn load_for(world: &mut World, time: u64, pause: u64, mut write: impl FnMut(&mut World)) -> u64 {
    let end = world.now + time;
    let mut longest = 0;
    while world.now < end {
        let begin = world.now;
        write(world);
        longest = longest.max(world.now.since(begin));
        world.wait(pause);
    }
    longest
}

/// Scenario 17, with flushes under a load that never pauses: the fast leg has to flush before
/// authority returns, and at each check there are newer writes.
#[test]
fn s17_authority_comes_back_under_writes_that_never_pause() {
    let mut world = two_legs(calm());
    world.steady(B, 4 * MILLISECOND);
    let load = |world: &mut World, time: u64| {
        load_for(world, time, 0, |world| {
            world.write(0, 8);
        })
    };
    load(&mut world, SECOND);
    world.flush();
    assert!(world.status().legs[B].slow);
    world.hold(A, What::Anything);
    load(&mut world, 200 * MILLISECOND);
    assert_eq!(authority(&world, 0), B, "B takes over meanwhile");
    world.release(A);
    load(&mut world, 5 * SECOND);
    let usual = load(&mut world, 500 * MILLISECOND);
    assert!(usual <= 2 * MILLISECOND, "writes still run at B's speed: {usual} ns");
}

/// Scenario 17: authority goes to the slow leg while the fast one is frozen, and must come back.
/// Otherwise hot regions never become clean, and writes run at the slow leg's speed forever.
#[test]
fn s17_authority_comes_back_to_the_fast_leg() {
    let mut world = two_legs(Settings { clean_after: 100 * MILLISECOND, ..calm() });
    world.steady(B, 4 * MILLISECOND);
    let mut at = 0u64;
    let mut load = |world: &mut World, time: u64| {
        load_for(world, time, MILLISECOND, |world| {
            world.write(at % 128, 8);
            at += 8;
        })
    };
    load(&mut world, SECOND);
    assert!(world.status().legs[B].slow);
    world.hold(A, What::Anything);
    load(&mut world, 200 * MILLISECOND);
    assert_eq!(authority(&world, 0), B, "B takes over meanwhile");
    world.release(A);
    load(&mut world, 5 * SECOND);
    assert_eq!(world.status().legs[B].authority_regions, 0, "B keeps hot regions");
    let usual = load(&mut world, 500 * MILLISECOND);
    assert!(usual <= 2 * MILLISECOND, "writes still run at B's speed: {usual} ns");
    world.wait(10 * SECOND);
    assert!(!world.recorded(0).is_dirty(), "a region that was hot gets clean");
    assert!(world.recorded(0).is_whole(index(A)));
}
