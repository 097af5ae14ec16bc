//! The memory of copies that are kept for debts, and the time at which it is given back.

use crate::world::script::What;
use crate::world::{LONG, Shape, World, calm, steady_legs};
use hemi_engine::io::{LegEvent, Operation};
use hemi_engine::settings::{ExposureMode, Limits, Settings};
use hemi_engine::status::LegState;
use hemi_units::{Extent, MICROSECOND, MILLISECOND, SECOND, SECTOR_BYTES};

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;

/// A has been marked out, has come back, and falls silent with a debt.
#[test]
fn a_leg_that_is_out_and_silent_keeps_no_copies() {
    let settings = Settings { out_after: SECOND, clean_after: 100 * MILLISECOND, ..calm() };
    let mut world = steady_legs(2, settings);
    world.event(A, LegEvent::Gone { removed: false });
    world.wait(5 * SECOND);
    assert_eq!(world.status().legs[A].state, LegState::Out);
    world.event(A, LegEvent::Back);
    world.hold(A, What::Anything);
    for _ in 0..2 {
        world.write(0, 8);
    }
    let leg = &world.status().legs[A];
    assert!(leg.owed_bytes > leg.owed_region_bytes, "it owes a write, with a copy");
    world.wait(5 * SECOND);
    assert_eq!(world.status().legs[A].state, LegState::Out);
    let in_flight: u64 =
        world.in_flight(A, What::Writes).iter().map(|p| p.io.extent.sectors()).sum();
    assert_eq!(world.engine().buffers().used_sectors(), in_flight, "zombies keep theirs");
}

/// Copies for C, which is silent, take all memory. A has all of the data.
#[test]
fn copies_for_a_silent_leg_make_room_for_what_another_is_paid_from() {
    const MEMORY: u64 = 60;
    let settings = Settings { exposure_mode: ExposureMode::FallBehind, ..calm() };
    let shape = Shape { memory_sectors: MEMORY, ..Shape::default() };
    let mut world = World::of_shape(1, 3, settings, shape);
    for leg in [A, B, C] {
        world.steady(leg, 100 * MICROSECOND);
    }
    world.wait(LONG);
    world.hold(C, What::Anything);
    world.write(0, 8);
    world.wait(LONG);
    for piece in 1..=MEMORY / 8 {
        world.write(piece * 8, 8);
    }
    assert!(
        world.engine().buffers().used_sectors() > MEMORY - 8,
        "no room for what B is to be paid"
    );
    world.hold(B, What::Writes);
    let write = world.submit(Operation::Write, Extent::new(0, 8), false);
    world.wait(MILLISECOND);
    assert!(world.is_answered(write), "A has it");
    let on_b = world.only(B, What::Writes);
    world.fail(on_b);
    world.let_come(B);
    world.wait(SECOND);
    assert_eq!(world.status().legs[B].owed_bytes, 0, "it has been read from A");
}

/// A writer that is held back, and copies, take all memory. B's first debt has no copy, and there
/// is no room to read it.
#[test]
fn copies_for_a_leg_that_is_paid_nothing_make_room() {
    const MEMORY: u64 = 128;
    const OWED: u64 = 8 + 32 + 32 + 40;
    let limits = Limits { oldest_looked_at: 2, sweep_skips: 1, ..Limits::default() };
    let settings = Settings {
        limits,
        leg_window: 1,
        copies_reserve: 79 * SECTOR_BYTES,
        exposure_bytes: OWED * SECTOR_BYTES,
        exposure_age: 200 * MILLISECOND,
        ..calm()
    };
    let shape = Shape { memory_sectors: MEMORY, ..Shape::default() };
    let mut world = World::of_shape(1, 2, settings, shape);
    for leg in [A, B] {
        world.steady(leg, 100 * MICROSECOND);
    }
    world.wait(LONG);
    world.hold(B, What::Writes);
    world.write(0, 8);
    world.hold(A, What::Reads);
    world.hold(B, What::Reads);
    world.submit(Operation::Read, Extent::new(400, 40), false);
    for place in [128, 64] {
        world.submit(Operation::Write, Extent::new(place, 32), false);
        world.wait(MILLISECOND);
    }
    for leg in [A, B] {
        world.release_kind(leg, What::Reads);
    }
    world.wait(MILLISECOND);
    for piece in 0..5 {
        world.write(192 + 16 * piece, 8);
    }
    let write = world.submit(Operation::Write, Extent::new(400, 64), false);
    world.wait(300 * MILLISECOND);
    assert!(!world.is_answered(write), "it is held back");
    assert_eq!(world.engine().buffers().used_sectors(), MEMORY - 16);
    world.release(B);
    world.wait(SECOND);
    assert!(world.is_answered(write) && !world.has_failed(write));
    assert_eq!(world.status().legs[B].owed_bytes, 0);
}
