//! A table of thousands of regions: what one input looks at does not grow with it. Steps are
//! counted, not time.

use crate::world::landing::Landing;
use crate::world::script::What;
use crate::world::{REGION_BYTES, Shape, World, calm};
use hemi_engine::identifiers::LegIndex;
use hemi_engine::io::{LegEvent, Notice, Operation, OutReason};
use hemi_engine::settings::{Limits, Settings};
use hemi_units::{Extent, MICROSECOND, MILLISECOND, SECOND};
use hemi_world::disk::Cache;

const A: usize = 0;
const B: usize = 1;
/// The regions of the volume.
const REGIONS: u64 = 8192;
/// The sectors of a region.
const REGION: u64 = REGION_BYTES / 512;
/// Regions looked at in one go.
const IN_ONE_GO: usize = 16;
/// Debts of a leg that are owed exactly.
const OWED_EXACTLY: u64 = 16;
/// Looks at entries that one input may take, each region some times.
const LOOKS_MAX: u64 = 1024;

fn settings() -> Settings {
    Settings {
        dirty_regions_max: 1024,
        owed_extents_max: OWED_EXACTLY as u32,
        leg_window: 4,
        clean_after: 100 * MILLISECOND,
        limits: Limits {
            cleans_per_tick: IN_ONE_GO,
            heals_per_tick: IN_ONE_GO,
            returns_per_tick: IN_ONE_GO,
            ..Limits::default()
        },
        ..calm()
    }
}

fn volume(settings: Settings) -> World {
    let volume_bytes = REGIONS * REGION_BYTES;
    let mut world = World::of_shape(1, 2, settings, Shape { volume_bytes, ..Shape::default() });
    world.thorough = false;
    for leg in [A, B] {
        world.steady(leg, 100 * MICROSECOND);
    }
    world.wait(100 * MILLISECOND);
    world
}

fn is_out(world: &World, leg: usize, reason: OutReason) -> bool {
    world.notices.contains(&Notice::Out { leg: LegIndex(leg as u8), reason })
}

/// Lets time pass. Returns the most looks at regions that any input took.
fn most_looks_in(world: &mut World, time: u64) -> u64 {
    let until = world.now + time;
    let mut most = 0;
    loop {
        let before = world.engine().region_looks();
        if !world.step(until) {
            world.now = until;
            return most;
        }
        most = most.max(world.engine().region_looks() - before);
    }
}

/// Writes to these regions while B is silent, and lets them settle without it.
fn settle_without_b(world: &mut World, regions: core::ops::Range<u64>) {
    world.hold(B, What::Anything);
    world.write(0, 8);
    world.wait(SECOND);
    for region in regions {
        world.write(region * REGION, 8);
    }
    for _ in 0..1000 {
        if world.status().dirty_regions == 0 {
            return;
        }
        world.wait(50 * MILLISECOND);
    }
    panic!("they do not settle");
}

/// B has everything, but only a flush will record it as whole in one of thousands of regions.
#[test]
fn a_silent_leg_beside_one_that_is_behind_costs_no_walk_over_the_table() {
    let mut world = volume(Settings { out_after: 2 * SECOND, ..settings() });
    world.steady(B, MILLISECOND);
    settle_without_b(&mut world, 7..8);
    world.release(B);
    world.hold(B, What::Flushes);
    world.wait(200 * MILLISECOND);
    assert_eq!(world.status().legs[B].owed_bytes, 0);
    world.event(A, LegEvent::Gone { removed: false });
    let most = most_looks_in(&mut world, 10 * SECOND);
    assert!(most < LOOKS_MAX, "{most} looks for one input");
    assert!(!is_out(&world, A, OutReason::Unresponsive), "B may have it in its cache alone");
    world.release(B);
    let most = most_looks_in(&mut world, 2 * SECOND);
    assert!(most < LOOKS_MAX, "{most} looks for one input");
    assert!(is_out(&world, A, OutReason::Unresponsive), "B is whole");
    world.engine().check_thoroughly();
}

/// B owes hundreds of regions that only A has.
#[test]
fn what_a_removed_leg_alone_had_is_told_in_full_some_regions_at_a_time() {
    let regions = 100..700;
    let owed_exactly = 100..100 + OWED_EXACTLY;
    let mut world = volume(Settings { copies_reserve: u64::MAX, ..settings() });
    settle_without_b(&mut world, regions.clone());
    world.hold(A, What::Reads);
    world.release(B);
    world.wait(5 * MILLISECOND);
    let told = |world: &World| {
        let lost = |notice: &&Notice| matches!(notice, Notice::Lost { .. });
        world.notices.iter().filter(lost).count()
    };
    world.event(A, LegEvent::Gone { removed: true });
    world.abort(A, |_| Some(Landing::Not));
    assert!(told(&world) <= 2 * IN_ONE_GO, "{} at once", told(&world));
    for _ in 0..100_000 {
        if is_out(&world, A, OutReason::Removed) {
            break;
        }
        let (lost, looks) = (told(&world), world.engine().region_looks());
        let until = world.now + MILLISECOND;
        if !world.step(until) {
            world.now = until;
        }
        let (lost, looks) = (told(&world) - lost, world.engine().region_looks() - looks);
        assert!(lost <= IN_ONE_GO, "{lost} regions in one go");
        assert!(looks < LOOKS_MAX, "{looks} looks for one input");
    }
    assert!(is_out(&world, A, OutReason::Removed));
    world.engine().check_thoroughly();
    // Some regions B owed exactly, the others as a whole.
    let exactly = |region| Extent::new(region * REGION, 8);
    let whole = Extent { start: owed_exactly.end * REGION, end: regions.end * REGION };
    let lost: Vec<Extent> = owed_exactly.map(exactly).chain([whole]).collect();
    assert_eq!(world.engine().lost_extents(), lost);
    let token = world.flush();
    assert!(world.has_failed(token), "it is said to who flushes");
    world.crash(None, |_| Landing::Whole);
    world.open(&[B]).expect("A is out");
    for region in [regions.start, regions.end - 1] {
        let token = world.read(region * REGION, 8);
        assert!(world.has_failed(token), "region {region} is lost");
    }
    for region in [regions.start - 1, regions.end] {
        let token = world.read(region * REGION, 8);
        assert!(!world.has_failed(token), "region {region} is there");
    }
}

/// Hundreds of regions are to be told as lost, and a client writes to another that A decided.
#[test]
fn a_write_does_not_wait_until_all_that_a_removed_leg_alone_had_has_been_told() {
    let mut world = volume(Settings { copies_reserve: u64::MAX, ..settings() });
    settle_without_b(&mut world, 100..700);
    world.write(1000 * REGION, 8);
    world.hold(A, What::Reads);
    world.release(B);
    world.wait(5 * MILLISECOND);
    world.event(A, LegEvent::Gone { removed: true });
    world.abort(A, |_| Some(Landing::Not));
    world.submit(Operation::Write, Extent::new(1000 * REGION, 16), false);
    world.wait(SECOND);
    assert!(world.requests.is_empty(), "it is answered");
    assert!(!is_out(&world, A, OutReason::Removed), "others are still to be told");
}

/// A leg is back without its cache, and its flush fails later.
#[test]
fn a_lost_cache_costs_no_walk_over_the_table() {
    let mut world = volume(settings());
    settle_without_b(&mut world, 7..8);
    world.release(B);
    world.hold(B, What::Flushes);
    world.wait(200 * MILLISECOND);
    assert_eq!(world.status().legs[B].owed_bytes, 0);
    world.lose_leg(B, Cache::Dropped);
    let looks = world.engine().region_looks();
    world.event(B, LegEvent::Back);
    let looks = world.engine().region_looks() - looks;
    assert!(looks < LOOKS_MAX, "{looks} looks when it is back");
    assert!(world.status().legs[B].owed_bytes > 0, "it has lost what it had drained");
    world.wait(200 * MILLISECOND);
    assert_eq!(world.status().legs[B].owed_bytes, 0);
    let flush = world.only(B, What::Flushes);
    let looks = world.engine().region_looks();
    world.fail(flush);
    let looks = world.engine().region_looks() - looks;
    assert!(looks < LOOKS_MAX, "{looks} looks when its flush fails");
    assert!(world.status().legs[B].owed_bytes > 0, "it may have lost it again");
    world.release(B);
    world.converge();
}

/// Thousands of regions are armed, and B cannot take over one that is touched.
#[test]
fn a_leg_that_waits_to_be_marked_out_costs_no_walk_over_the_armed_regions() {
    let mut world = volume(Settings {
        dirty_regions_max: 2 * REGIONS as u32,
        resync_bytes: 2 * REGIONS * REGION_BYTES,
        out_after: 2 * SECOND,
        ..settings()
    });
    for page in 0..REGIONS / 1736 {
        world.write((page * 1736 + 1) * REGION, 8);
    }
    world.wait(2 * SECOND);
    assert!(world.status().armed_regions > 4000);
    world.hold(B, What::Writes);
    world.write(7 * REGION, 8);
    world.event(A, LegEvent::Gone { removed: false });
    world.wait(3 * SECOND);
    let most = most_looks_in(&mut world, 10 * SECOND);
    assert!(most < LOOKS_MAX, "{most} looks for one input");
    assert!(!is_out(&world, A, OutReason::Unresponsive), "only A has the write");
    assert!(world.status().armed_regions > 4000, "others stay armed");
    world.release(B);
    world.wait(SECOND);
    assert!(is_out(&world, A, OutReason::Unresponsive), "B has the write");
}

/// B decides thousands of touched regions, and cannot take over the one that A decides.
#[test]
fn a_leg_that_waits_to_be_marked_out_costs_no_walk_over_the_touched_regions() {
    const TOUCHED: u64 = 4000;
    let mut world = volume(Settings {
        dirty_regions_max: REGIONS as u32,
        clean_after: 1000 * SECOND,
        out_after: 2 * SECOND,
        ..settings()
    });
    world.steady(A, MILLISECOND);
    for _ in 0..50 {
        world.write(0, 8);
        world.wait(2 * MILLISECOND);
    }
    for region in 0..TOUCHED {
        world.write(region * REGION, 8);
        world.wait(MILLISECOND / 2);
    }
    world.wait(SECOND);
    // Of another page: authority moves page by page.
    let last = (REGIONS - 1) * REGION;
    world.write(last, 8);
    world.hold(B, What::Writes);
    world.write(last, 8);
    assert_eq!(world.status().legs[A].authority_regions, 1, "it has taken the late write over");
    world.event(A, LegEvent::Gone { removed: false });
    for write in world.ids(B, What::Writes) {
        world.fail(write);
    }
    world.wait(3 * SECOND);
    assert_eq!(world.status().legs[B].authority_regions, TOUCHED as u32);
    let most = most_looks_in(&mut world, 10 * SECOND);
    assert!(most < LOOKS_MAX, "{most} looks for one input");
    assert!(!is_out(&world, A, OutReason::Unresponsive), "only A has the write");
    world.release(B);
    world.wait(60 * SECOND);
    assert!(is_out(&world, A, OutReason::Unresponsive), "B has the write");
}
