//! Legs that flap: they pass their wait limit by a little, and answer all the same.

use crate::world::script::What;
use crate::world::{SECTORS, World, settings};
use hemi_engine::identifiers::LegIndex;
use hemi_engine::io::{LegEvent, Notice, Operation};
use hemi_engine::settings::Settings;
use hemi_units::{Extent, MICROSECOND, MILLISECOND, SECOND};
use hemi_world::disk::Cache;

const A: usize = 0;
const B: usize = 1;
const LIMIT: u64 = 20 * MILLISECOND;
/// A time that passes the limit by as little as an I/O can.
const BARELY_LATE: u64 = LIMIT + 50 * MICROSECOND;

/// Returns settings whose wait limits begin at 20 ms, with nothing cleaned, marked out or throttled
/// meanwhile.
fn calm() -> Settings {
    Settings {
        wait_floor: LIMIT,
        wait_ceiling: SECOND,
        clean_after: 1000 * SECOND,
        out_after: 1000 * SECOND,
        exposure_bytes: 64 << 20,
        exposure_age: 1000 * SECOND,
        hedge_permille: 0,
        leg_window: 64,
        ..settings()
    }
}

/// Returns two fast legs with enough history for limits of their own.
fn two_legs(settings: Settings) -> World {
    let mut world = World::new(1, 2, settings);
    for leg in [A, B] {
        world.steady(leg, 100 * MICROSECOND);
    }
    write_each(&mut world, MILLISECOND, 200 * MILLISECOND);
    world
}

/// Sends a write every `gap`, answered or not, for `time`.
fn write_each(world: &mut World, gap: u64, time: u64) {
    let end = world.now + time;
    let mut block = 0;
    while world.now < end {
        block = (block + 1) % 64;
        world.submit(Operation::Write, Extent::new(block * 8, 8), false);
        world.wait(gap);
    }
}

fn freezes(world: &mut World, leg: usize) -> u64 {
    world.status().legs[leg].freezes
}

#[test]
fn a_leg_at_its_limit_raises_the_limit() {
    let mut world = two_legs(calm());
    world.steady(B, BARELY_LATE);
    write_each(&mut world, 5 * MILLISECOND, 300 * MILLISECOND);
    let first = freezes(&mut world, B);
    assert!((1..=3).contains(&first), "it was frozen {first} times");
    write_each(&mut world, 5 * MILLISECOND, SECOND);
    assert_eq!(freezes(&mut world, B), first, "the limit has been raised");
    let limit = world.status().legs[B].write_wait_limit;
    assert!(limit > BARELY_LATE, "to {limit} ns");
}

/// A single freeze, however short, tells nothing of a leg's usual speed.
#[test]
fn one_late_write_does_not_raise_the_limit() {
    let mut world = two_legs(calm());
    world.steady(B, BARELY_LATE);
    world.submit(Operation::Write, Extent::new(0, 8), false);
    world.wait(MILLISECOND);
    world.steady(B, 100 * MICROSECOND);
    world.wait(200 * MILLISECOND);
    write_each(&mut world, MILLISECOND, 200 * MILLISECOND);
    assert_eq!(freezes(&mut world, B), 1);
    assert_eq!(world.status().legs[B].write_wait_limit, LIMIT);
}

/// The limit cannot rise. Each of the writes in flight passes it by itself, a moment after the leg
/// has answered the one before.
#[test]
fn flaps_of_one_trouble_do_not_lengthen_the_probation() {
    let mut world = two_legs(Settings { wait_ceiling: LIMIT, ..calm() });
    world.steady(A, 500 * MICROSECOND);
    for _ in 0..40 {
        world.read(0, 8);
    }
    assert!(reads_go_to_b(&mut world), "it is the faster one");
    world.notices.clear();
    world.steady(B, BARELY_LATE);
    write_each(&mut world, MILLISECOND, 15 * MILLISECOND);
    world.steady(B, 100 * MICROSECOND);
    world.wait(5 * MILLISECOND);
    assert!(!reads_go_to_b(&mut world), "it is on probation");
    world.wait(45 * MILLISECOND);
    let thawed = |notice: &&Notice| matches!(notice, Notice::Thawed { leg: LegIndex(1), .. });
    let flaps = world.notices.iter().filter(thawed).count();
    assert!(flaps >= 10, "{flaps} flaps");
    world.wait(100 * MILLISECOND);
    assert!(reads_go_to_b(&mut world), "its probation is over");
}

/// Returns true if a read of data that both legs have is sent to leg B.
fn reads_go_to_b(world: &mut World) -> bool {
    let before = world.status().legs[B].read_bytes;
    world.read(SECTORS - 8, 8);
    world.status().legs[B].read_bytes > before
}

/// B alone has copies of what it owes, in memory. C lost what it had, and A, which has all of it,
/// is silent. B is paid though it takes longer than its limit for everything.
#[test]
fn a_leg_that_is_always_late_is_paid() {
    const C: usize = 2;
    let settings = Settings { wait_ceiling: LIMIT, drain_bytes: 1 << 20, ..calm() };
    let mut world = World::new(1, 3, settings);
    for leg in [A, B, C] {
        world.steady(leg, 100 * MICROSECOND);
    }
    write_each(&mut world, MILLISECOND, 200 * MILLISECOND);
    world.flush();
    world.wait(SECOND);
    world.hold(B, What::Anything);
    world.write(0, 8);
    world.wait(2 * LIMIT);
    // The writes are scattered, so that one large write pays them best.
    for write in 1..=16 {
        world.write(write * 16, 8);
    }
    world.hold(A, What::Anything);
    world.lose_leg(C, Cache::Dropped);
    world.event(C, LegEvent::Back);
    world.wait(3 * LIMIT);
    world.steady(B, LIMIT + 4 * MILLISECOND);
    world.release(B);
    let write = world.submit(Operation::Write, Extent::new(4, 24), false);
    world.wait(10 * SECOND);
    let owed = world.status().legs[B].owed_bytes;
    assert_eq!(owed, 0, "B still owes {owed} bytes");
    assert!(world.is_answered(write) && !world.has_failed(write));
}
