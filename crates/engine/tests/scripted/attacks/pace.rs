//! Dead legs, slow legs, huge volumes: nothing hangs, floods or falls off a cliff.

use std::collections::BTreeMap;

use hemi_engine::io::{Notice, Operation, OutReason};
use hemi_engine::settings::{ExposureMode, Settings};
use hemi_engine::status::LegState;
use hemi_units::{Extent, Instant, MICROSECOND, MILLISECOND, SECOND};

use super::{A, B, LONG, calm, index, two_legs};
use crate::world::script::What;
use crate::world::{SECTORS, Shape, World};

/// Returns settings in which only the bound under test is reached.
fn roomy() -> Settings {
    Settings { dirty_regions_max: 4096, owed_extents_max: 8192, ..calm() }
}

/// Scenario 16: a leg dies while writers are throttled at the exposure bound. It is marked out
/// after `out_after`, and they go on.
#[test]
fn s16_a_dead_leg_does_not_hang_the_volume() {
    let out_after = 2 * SECOND;
    let mut world = two_legs(Settings { out_after, exposure_bytes: 128 << 10, ..calm() });
    world.write(0, 8);
    world.flush();
    world.hold(B, What::Anything);
    let died = world.now;
    let mut stopped = None;
    for round in 0u64.. {
        if world.requests.len() < 16 {
            world.submit(Operation::Write, Extent::new(round * 32 % (SECTORS - 32), 32), false);
        }
        world.wait(MILLISECOND);
        let status = world.status();
        assert!(status.exposure_bytes <= 128 << 10, "P5: {}", status.exposure_bytes);
        if status.throttling && stopped.is_none() {
            stopped = Some(world.now);
        }
        if status.legs[B].state == LegState::Out {
            break;
        }
        assert!(world.now.since(died) < 2 * out_after, "the volume hangs");
    }
    assert!(stopped.is_some(), "the bound was reached first");
    assert!(world.now.since(died) >= out_after, "not marked out before its time");
    let reason = OutReason::Unresponsive;
    assert!(world.notices.contains(&Notice::Out { leg: index(B), reason }));
    world.run_until_answered(SECOND);
    let begin = world.now;
    for round in 0..200 {
        world.write(round * 8, 8);
    }
    assert!(world.now.since(begin) < SECOND, "degraded writes are not throttled");
    world.flush();
    world.read_everything();
}

/// Scenario 18: random writes all over a huge volume must not cost a metadata write each, and
/// zeroing all of it must not write a page per region.
#[test]
fn s18_random_writes_over_a_huge_volume() {
    let shape = Shape { volume_bytes: 64 << 20, ..Shape::default() };
    let regions = (64 << 20) / crate::world::REGION_BYTES;
    let settings = Settings { dirty_regions_max: 2048, ..calm() };
    let mut world = World::of_shape(1, 2, settings, shape);
    world.thorough = false;
    let metadata = |world: &mut World| -> u64 {
        world.status().legs.iter().map(|leg| leg.metadata_writes).sum()
    };
    let random_writes = |world: &mut World, count: u64| {
        for _ in 0..count {
            while world.requests.len() >= 32 {
                world.wait(50_000);
            }
            let start = world.random.below(world.sectors / 8) * 8;
            world.submit(Operation::Write, Extent::new(start, 8), false);
        }
        world.run_until_answered(SECOND);
    };
    random_writes(&mut world, 6 * regions);
    let warm = metadata(&mut world);
    // A pause cleans nothing.
    world.wait(SECOND);
    random_writes(&mut world, 4 * regions);
    let cost = metadata(&mut world) - warm;
    assert!(cost < regions / 10, "{cost} metadata writes for {} random writes", 4 * regions);
    assert!(warm < 2 * regions, "{warm} metadata writes to dirty {regions} regions");
    // mkfs discards all of it.
    let shape = Shape { volume_bytes: 64 << 20, ..Shape::default() };
    let mut world = World::of_shape(1, 2, settings, shape);
    world.thorough = false;
    let begin = metadata(&mut world);
    let all = Extent { start: 0, end: world.sectors };
    world.submit(Operation::Discard, all, false);
    world.run_until_answered(10 * SECOND);
    let cost = metadata(&mut world) - begin;
    assert!(cost < regions / 4, "{cost} metadata writes to zero {regions} regions");
}

/// Scenario 18, with a cap much smaller than the written part: the amount that a crash would have
/// to copy stays bounded.
#[test]
fn s18_dirty_regions_stay_bounded() {
    let shape = Shape { volume_bytes: 64 << 20, ..Shape::default() };
    let settings = Settings { dirty_regions_max: 32, requests_max: 16, ..calm() };
    let mut world = World::of_shape(1, 2, settings, shape);
    world.thorough = false;
    for _ in 0..4000 {
        while world.requests.len() >= 16 {
            world.wait(50_000);
        }
        let start = world.random.below(world.sectors / 8) * 8;
        world.submit(Operation::Write, Extent::new(start, 8), false);
        let dirty = world.status().dirty_regions;
        assert!(dirty <= 32 + 2 * 16, "{dirty} dirty regions");
    }
    world.run_until_answered(60 * SECOND);
}

/// Scenario 19: a slow leg that serves one I/O after another is not flooded, and counts as slow,
/// not frozen. Once in a while it is tried with twice its window, which gains nothing.
#[test]
fn s19_a_slow_leg_is_not_flooded() {
    let mut world =
        two_legs(Settings { wait_ceiling: SECOND, clean_after: 300 * MILLISECOND, ..roomy() });
    world.thorough = false;
    world.behaviour[B].serial = 5 * MILLISECOND;
    let window = world.settings.leg_window as usize;
    let end = world.now + 6 * SECOND;
    let mut tried = 0;
    let mut started: BTreeMap<u64, Instant> = BTreeMap::new();
    let mut longest = 0;
    while world.now < end {
        while world.requests.len() < 32 {
            let start = world.random.below(SECTORS / 8) * 8;
            let token = world.submit(Operation::Write, Extent::new(start, 8), false);
            started.insert(token, world.now);
        }
        world.wait(100_000);
        let now = world.now;
        started.retain(|&token, begin| {
            let waits = world.requests.contains_key(&token);
            if !waits {
                longest = longest.max(now.since(*begin));
            }
            waits
        });
        let sent = world.in_flight(B, What::Writes).len();
        assert!(sent <= 2 * window, "{sent} writes in flight on the slow leg");
        tried += u64::from(sent > window) * 100_000;
    }
    assert!(tried < 3 * SECOND / 2, "more than its window is in flight for {tried} ns");
    assert!(world.in_flight(B, What::Writes).len() <= window, "it got no further");
    let status = world.status();
    assert_eq!(status.legs[B].freezes, 0, "slow is not frozen");
    assert!(status.legs[B].slow && !status.legs[A].slow);
    assert!(longest < 5 * MILLISECOND, "writes wait for the slow leg: {longest} ns");
    world.run_until_answered(SECOND);
    world.behaviour[B].serial = 0;
    world.converge();
}

/// Scenario 20: as exposure nears its bound, writers slow down by degrees and never stop. The drain
/// gets its share under a load that never pauses.
#[test]
fn s20_no_cliff_at_the_exposure_bound() {
    // An eighth of it, in which writers slow down, lasts for several windows.
    let bound = 8 << 20;
    let settings = Settings { exposure_bytes: bound, exposure_age: 60 * SECOND, ..roomy() };
    // One debt per I/O makes the drain slow.
    let settings = Settings { wait_ceiling: SECOND, drain_bytes: 4096, ..settings };
    let shape = Shape { volume_bytes: 64 << 20, ..Shape::default() };
    let mut world = World::of_shape(1, 2, settings, shape);
    world.thorough = false;
    // B takes 200 writes per second, A a thousand.
    world.steady(A, MILLISECOND);
    world.steady(B, MILLISECOND);
    world.behaviour[B].serial = 5 * MILLISECOND;
    let mut per_window = Vec::new();
    let mut longest = 0;
    let mut drained = 0;
    for _ in 0..140 {
        let until = world.now + 100 * MILLISECOND;
        let mut done = 0u64;
        while world.now < until {
            let start = world.random.below(world.sectors / 8) * 8;
            let begin = world.now;
            world.write(start, 8);
            longest = longest.max(world.now.since(begin));
            done += 1;
            let exposure = world.status().exposure_bytes;
            assert!(exposure <= bound, "P5: {exposure}");
        }
        per_window.push(done);
        let total = world.status().legs[B].drained_bytes;
        assert!(total > drained || !world.status().throttling, "the drain waits for idle");
        drained = total;
    }
    let first = per_window[..10].iter().sum::<u64>() / 10;
    let last = per_window[120..].iter().sum::<u64>() / 20;
    assert!(first > 2 * last, "it was never throttled: {per_window:?}");
    assert!(per_window.iter().all(|&n| n > 0), "a full stop: {per_window:?}");
    assert!(longest <= 100 * MILLISECOND, "a write waited {longest} ns");
    // By degrees: some windows have rates between full speed and the drain's.
    let full = *per_window.iter().max().expect("there are windows");
    let slowing = per_window.iter().skip_while(|&&n| n < full);
    let between = slowing.filter(|&&n| n < full * 3 / 4 && n > last * 3 / 2).count();
    assert!(between >= 3, "from full speed to the drain's rate at once: {per_window:?}");
    world.behaviour[B].serial = 0;
    world.run_until_answered(SECOND);
}

/// Scenario 20, reads: B is read from all the time, and is paid what it owes all the same.
#[test]
fn s20_debts_are_paid_beside_reads() {
    let mut world = two_legs(roomy());
    world.thorough = false;
    world.steady(A, 2 * MILLISECOND);
    world.steady(B, 100_000);
    for _ in 0..40 {
        world.read(0, 8);
    }
    world.hold(B, What::Writes);
    for debt in 0..20 {
        world.write(debt * 16, 8);
    }
    world.wait(LONG);
    world.let_come(B);
    let zombies = world.ids(B, What::Writes);
    for token in 0..6000u64 {
        if token == 10 {
            zombies.iter().for_each(|&id| world.land(id));
        }
        // This is more than A has in flight, at 2 ms each, so there is always one for B, too.
        if world.requests.len() < 60 {
            let start = 512 + token % 64 * 8;
            world.submit(Operation::Read, Extent::new(start, 8), false);
        }
        world.wait(50_000);
    }
    assert!(!world.in_flight(B, What::Reads).is_empty(), "B is read from");
    assert_eq!(world.status().legs[B].owed_bytes, 0, "B is paid only when nobody reads");
}

/// Somebody always waits for B: each write goes to both legs, and B begins on it before A has
/// answered. B's earlier debts are paid all the same, long before their age reaches the bound.
#[test]
fn an_old_debt_gets_its_turn_beside_what_is_waited_for() {
    let settings = Settings {
        exposure_mode: ExposureMode::FallBehind,
        exposure_age: 2 * SECOND,
        leg_window: 1,
        // A decides, however long it takes.
        wait_floor: SECOND,
        wait_ceiling: SECOND,
        ..roomy()
    };
    let mut world = two_legs(settings);
    world.steady(A, 12 * MILLISECOND);
    world.steady(B, 0);
    world.behaviour[B].serial = 10 * MILLISECOND;
    let old = Extent::new(0, 8);
    let load = |world: &mut World, time: u64| {
        let end = world.now + time;
        while world.now < end {
            let start = 16 + world.random.below(SECTORS / 16 - 1) * 16;
            world.submit(Operation::Write, Extent::new(start, 8), false);
            world.wait(8 * MILLISECOND);
        }
    };
    load(&mut world, SECOND / 10);
    world.submit(Operation::Write, old, false);
    load(&mut world, SECOND / 10);
    let is_on_b = |world: &mut World| world.engine().copies(old).1 & index(B).bit() != 0;
    assert!(!is_on_b(&mut world), "B owes it");
    load(&mut world, 3 * SECOND / 2);
    assert!(is_on_b(&mut world), "B still owes it");
    world.run_until_answered(SECOND);
    world.read_everything();
}

/// B pays 4 KiB every 18 ms, a twentieth of the bound in bytes per second, which is not yet known
/// when the burst comes. Writers are held back before the exposure gets old.
#[test]
fn a_burst_of_long_writes_does_not_pass_the_bound_in_age() {
    let settings = Settings {
        exposure_bytes: 4 << 20,
        exposure_age: 5 * SECOND,
        leg_window: 1,
        drain_bytes: 4096,
        wait_ceiling: SECOND,
        ..roomy()
    };
    let shape = Shape { volume_bytes: 64 << 20, memory_sectors: 64 << 10, ..Shape::default() };
    let mut world = World::of_shape(1, 2, settings, shape);
    world.thorough = false;
    world.steady(A, 100 * MICROSECOND);
    world.steady(B, 0);
    world.behaviour[B].serial = 18 * MILLISECOND;
    for round in 0..100 {
        world.write(round * 8, 8);
        world.wait(20 * MILLISECOND);
    }
    assert_eq!(world.status().exposure_bytes, 0);
    let mut sent = 0;
    for _ in 0..4000 {
        while world.requests.len() < 32 {
            let longest = if world.random.one_in(8) { 1024 } else { 24 };
            let sectors = 8 + world.random.below(longest);
            let start = world.random.below(world.sectors - sectors);
            world.submit(Operation::Write, Extent::new(start, sectors), false);
            sent += 1;
        }
        world.wait(5 * MILLISECOND);
        let age = world.status().exposure_age;
        assert!(age <= 5 * SECOND, "exposed for {age} ns");
    }
    // About as much as B can pay.
    assert!(sent > 100, "{sent} writes");
}
