//! P4: while a leg does not answer, clients go on at the speed of the other after the wait limit.

use crate::world::{SECTORS, Shape, World, settings};
use hemi_engine::io::Operation;
use hemi_engine::settings::{Policy, Settings};
use hemi_units::{Extent, Instant, MICROSECOND, MILLISECOND};

/// The longest that any request may take: the wait limit, the other leg's time for its additional
/// work (a flush, a metadata write, the request), and the granularity of timers.
const LONGEST: u64 = 25 * MILLISECOND;

fn generous() -> Settings {
    Settings { exposure_bytes: 64 << 20, owed_extents_max: 4096, leg_window: 64, ..settings() }
}

/// Runs a load of `depth` requests in flight and returns the duration of the slowest.
fn longest(
    world: &mut World,
    depth: usize,
    time: u64,
    next: impl Fn(&mut World) -> (Operation, u64),
) -> u64 {
    let end = world.now + time;
    let mut started = std::collections::BTreeMap::new();
    let mut longest = 0;
    while world.now < end {
        while world.requests.len() < depth {
            let (operation, start) = next(world);
            let extent = match operation {
                Operation::Flush => Extent::default(),
                _ => Extent::new(start, 8),
            };
            let now = world.now;
            let token = world.submit(operation, extent, false);
            started.insert(token, now);
        }
        let step = world.now + 20 * MICROSECOND;
        world.run_until(step);
        let now = world.now;
        started.retain(|token, at| {
            let answered = !world.requests.contains_key(token);
            longest = longest.max(now.since(*at));
            !answered
        });
    }
    longest
}

fn freeze_each_in_turn(depth: usize, flush_every: u64) {
    let mut world = World::new(depth as u64, 2, generous());
    world.thorough = false;
    let load = |world: &mut World| {
        let start = world.random.below(SECTORS / 8) * 8;
        if flush_every > 0 && world.random.one_in(flush_every) {
            (Operation::Flush, 0)
        } else {
            (Operation::Write, start)
        }
    };
    // This history is enough to know the legs' usual latencies.
    longest(&mut world, depth, 200 * MILLISECOND, load);
    for leg in [0, 1, 0, 1] {
        world.freeze(leg, world.now + 150 * MILLISECOND);
        let slowest = longest(&mut world, depth, 300 * MILLISECOND, load);
        assert!(slowest <= LONGEST, "leg {leg}: a request took {slowest} ns");
    }
    assert!(world.status().legs.iter().all(|leg| leg.freezes >= 2), "each leg did freeze");
}

#[test]
fn writes_do_not_stall_at_queue_depth_1() {
    freeze_each_in_turn(1, 0);
}

#[test]
fn writes_do_not_stall_at_queue_depth_16() {
    freeze_each_in_turn(16, 0);
}

#[test]
fn writes_with_flushes_do_not_stall() {
    freeze_each_in_turn(1, 16);
    freeze_each_in_turn(16, 16);
    freeze_each_in_turn(4, 2);
}

/// The survivor is 20 ms slow. Its own time for the debts that stand in the way, the record of its
/// authority and the write itself is added to the wait limit.
#[test]
fn a_slow_leg_takes_over_from_a_fast_one() {
    for (depth, flush_every) in [(1, 0), (8, 0), (8, 16)] {
        let mut world = World::new(depth as u64, 2, generous());
        world.thorough = false;
        world.behaviour[1].latency = 20 * MILLISECOND;
        let load = |world: &mut World| {
            let start = world.random.below(SECTORS / 8) * 8;
            if flush_every > 0 && world.random.one_in(flush_every) {
                (Operation::Flush, 0)
            } else {
                (Operation::Write, start)
            }
        };
        // Paced like a client that a slow leg can just follow.
        for _ in 0..400 {
            longest(&mut world, depth, 20 * MICROSECOND, load);
            let until = world.now + 5 * MILLISECOND;
            world.run_until(until);
        }
        world.freeze(0, world.now + 2000 * MILLISECOND);
        let slowest = longest(&mut world, depth, 1500 * MILLISECOND, load);
        assert!(slowest <= 200 * MILLISECOND, "depth {depth}: a request took {slowest} ns");
    }
}

/// Returns the longest that a write takes while the fast leg is silent. The other takes 20 ms for a
/// write and at most 800 of them per second, and owes more than it can pay in that time.
fn longest_beside_a_backlog(volume_bytes: u64, owed: u64, depth: usize) -> u64 {
    let settings = Settings {
        dirty_regions_max: 1024,
        drain_bytes: 512 << 10,
        exposure_bytes: 256 << 20,
        owed_extents_max: 16_384,
        ..generous()
    };
    let shape = Shape {
        volume_bytes,
        region_bytes: 1 << 20,
        memory_sectors: 128 << 11,
        ..Shape::default()
    };
    let mut world = World::of_shape(depth as u64, 2, settings, shape);
    world.thorough = false;
    world.behaviour[1].latency = 20 * MILLISECOND;
    world.behaviour[1].serial = 1250 * MICROSECOND;
    let load = |world: &mut World| (Operation::Write, world.random.below(volume_bytes / 4096) * 8);
    while world.status().legs[1].owed_bytes < owed {
        longest(&mut world, 4, MILLISECOND, load);
    }
    world.freeze(0, world.now + 2000 * MILLISECOND);
    // Earlier writes are still in flight.
    longest(&mut world, depth, 300 * MILLISECOND, load);
    longest(&mut world, depth, 600 * MILLISECOND, load)
}

/// Debts are so far apart that each takes an I/O of its own. Those that nobody waits for do not
/// fill the queue ahead of those that a writer waits for.
#[test]
fn what_a_writer_waits_for_is_paid_ahead_of_a_backlog() {
    let slowest = longest_beside_a_backlog(512 << 20, 6 << 20, 1);
    assert!(slowest <= 100 * MILLISECOND, "a write took {slowest} ns");
}

/// Debts are close to each other. One large write pays those of a region, from the moment of the
/// freeze on.
#[test]
fn a_survivor_pays_what_a_region_owes_with_one_write() {
    let slowest = longest_beside_a_backlog(64 << 20, 24 << 20, 8);
    assert!(slowest <= 350 * MILLISECOND, "a write took {slowest} ns");
}

#[test]
fn reads_do_not_stall() {
    let mut world = World::new(3, 2, generous());
    let load = |world: &mut World| (Operation::Read, world.random.below(SECTORS / 8) * 8);
    longest(&mut world, 4, 200 * MILLISECOND, load);
    for leg in [0, 1, 0, 1] {
        world.freeze(leg, world.now + 150 * MILLISECOND);
        let slowest = longest(&mut world, 4, 300 * MILLISECOND, load);
        assert!(slowest <= LONGEST, "leg {leg}: a read took {slowest} ns");
    }
}

#[test]
fn mixed_load_does_not_stall() {
    let mut world = World::new(5, 2, generous());
    world.thorough = false;
    let load = |world: &mut World| {
        let start = world.random.below(SECTORS / 8) * 8;
        let operation = if world.random.one_in(2) { Operation::Read } else { Operation::Write };
        (operation, start)
    };
    longest(&mut world, 8, 300 * MILLISECOND, load);
    for leg in [0, 1, 0, 1] {
        world.freeze(leg, world.now + 150 * MILLISECOND);
        let slowest = longest(&mut world, 8, 300 * MILLISECOND, load);
        assert!(slowest <= LONGEST, "leg {leg}: a request took {slowest} ns");
    }
}

/// A plain mirror waits for every leg it sent a write to, but not for one that owes the whole
/// region, even if that is taken up for draining meanwhile.
#[test]
fn a_plain_mirror_does_not_wait_for_a_leg_that_is_being_rebuilt() {
    let settings = Settings { policy: Policy::All, ..generous() };
    for seed in 0..5 {
        let mut world = World::new(seed, 2, settings);
        world.thorough = false;
        let load = |world: &mut World| (Operation::Write, world.random.below(SECTORS / 8) * 8);
        longest(&mut world, 8, 50 * MILLISECOND, load);
        world.kill();
        world.behaviour[1].latency = 5 * MILLISECOND;
        // Dirty regions are owed to the other leg as a whole.
        world.open(&[0, 1]).expect("both are there");
        world.freeze(0, world.now + 100 * MILLISECOND);
        longest(&mut world, 8, 500 * MILLISECOND, load);
        world.run_until_answered(200 * MILLISECOND);
    }
}

/// Each write is flushed at once from the first moment, before the legs have any history.
#[test]
fn flushes_and_fua_go_on_while_either_leg_is_frozen() {
    let mut world = World::new(7, 2, generous());
    // "Open" has to be durable on both before anything is served.
    world.run_until(Instant(10 * MILLISECOND));
    for leg in [0, 1] {
        world.freeze(leg, world.now + 60_000 * MILLISECOND);
        for i in 0..50 {
            world.submit(Operation::Write, Extent::new(i * 8, 8), i % 5 == 0);
            world.run_until_answered(2_000 * MILLISECOND);
            world.submit(Operation::Flush, Extent::default(), false);
            world.run_until_answered(2_000 * MILLISECOND);
        }
        let now = world.now;
        world.behaviour[leg].frozen_until = now;
        for pending in &mut world.pending {
            pending.due = pending.due.min(now + MILLISECOND);
        }
        world.converge();
    }
}

/// Both legs take three times the wait limit for any request. They are waited for longer, instead
/// of each being left for the other again and again.
#[test]
fn legs_that_are_all_slower_than_their_limits_are_waited_for() {
    let limit = 20 * MILLISECOND;
    let settings = Settings { wait_floor: limit, wait_ceiling: limit, ..generous() };
    let mut world = World::new(8, 2, settings);
    world.write(0, 8);
    for leg in [0, 1] {
        world.steady(leg, 3 * limit);
    }
    for round in 0..50 {
        world.submit(Operation::Write, Extent::new(round * 16, 8), round % 5 == 0);
        world.submit(Operation::Read, Extent::new(0, 8), false);
        world.submit(Operation::Flush, Extent::default(), false);
        world.run_until_answered(5_000 * MILLISECOND);
    }
    assert_eq!(world.failed_requests, 0);
    world.converge();
}
