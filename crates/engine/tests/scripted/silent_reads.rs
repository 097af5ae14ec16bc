//! P4, P5, P6: the engine's own reads on a leg that has stopped answering hold nobody up.

use crate::world::script::What;
use crate::world::{LONG, SECTORS, World, calm, steady_legs};
use hemi_engine::command::{Command, ScrubRepair};
use hemi_engine::identifiers::LegIndex;
use hemi_engine::io::Operation;
use hemi_engine::settings::Settings;
use hemi_engine::status::LegState;
use hemi_units::{Extent, MILLISECOND, SECOND};

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;

fn start_scrub(world: &mut World) {
    let (now, extent) = (world.now, Extent { start: 0, end: SECTORS });
    world.engine().command(now, 7, Command::Scrub { repair: ScrubRepair::Nothing, extent });
    world.take_actions();
}

#[test]
fn nobody_waits_behind_a_scrub_of_a_silent_leg() {
    let mut world = steady_legs(2, calm());
    world.write(0, 64);
    world.hold(A, What::Anything);
    start_scrub(&mut world);
    assert_eq!(world.in_flight(A, What::Reads).len(), 1, "the first piece is being read");
    let write = world.submit(Operation::Write, Extent::new(8, 8), false);
    let read = world.submit(Operation::Read, Extent::new(32, 8), false);
    world.wait(LONG);
    assert!(world.is_answered(write), "B takes writes");
    assert!(world.is_answered(read), "B answers reads");
    // The piece is compared once the leg answers again, and not skipped.
    world.wait(SECOND);
    assert!(!world.commands.contains_key(&7), "the scrub waits for the leg");
    let end = SECTORS as usize - 1;
    world.disks[A].corrupt(end, 999);
    world.release(A);
    world.wait(10 * SECOND);
    assert!(world.commands[&7].is_err(), "the scrub has compared both legs to the end");
    world.disks[A].corrupt(end, 0);
}

/// A scrub that waits for a leg goes on with the others once that leg has been marked out.
#[test]
fn a_scrub_goes_on_without_a_leg_that_is_marked_out() {
    let settings = Settings { out_after: SECOND, clean_after: 100 * MILLISECOND, ..calm() };
    let mut world = steady_legs(3, settings);
    world.write(0, 64);
    world.hold(A, What::Anything);
    start_scrub(&mut world);
    world.wait(10 * SECOND);
    assert_eq!(world.status().legs[A].state, LegState::Out);
    assert_eq!(world.commands.get(&7), Some(&Ok(())));
}

/// Returns settings that keep no copies of debts, which are read from another leg.
fn without_copies() -> Settings {
    Settings { copies_reserve: u64::MAX, ..calm() }
}

/// Makes a leg owe 64 KiB that are being read for it from `source`, which does not answer.
fn with_a_read_for(world: &mut World, owing: usize, source: usize) {
    world.write(0, 8);
    world.hold(owing, What::Writes);
    for _ in 0..2 {
        let write = world.submit(Operation::Write, Extent::new(0, 8), false);
        world.wait(MILLISECOND);
        assert!(world.is_answered(write), "the other leg has it");
    }
    let before = world.only(owing, What::Writes);
    world.hold(source, What::Anything);
    world.land(before);
    world.let_come(owing);
    world.wait(MILLISECOND);
    assert_eq!(world.in_flight(source, What::Reads).len(), 1, "the debt is being read");
}

#[test]
fn a_write_over_what_is_read_from_a_silent_leg_is_answered() {
    let mut world = steady_legs(2, without_copies());
    with_a_read_for(&mut world, B, A);
    // It covers everything that B lacks: with it B has everything.
    let write = world.submit(Operation::Write, Extent::new(0, 8), false);
    world.wait(SECOND);
    assert!(world.is_answered(write), "B has all there is");
    assert!(!world.has_failed(write));
}

#[test]
fn a_debt_is_read_from_another_leg_when_its_source_falls_silent() {
    let settings =
        Settings { out_after: SECOND, clean_after: 100 * MILLISECOND, ..without_copies() };
    let mut world = steady_legs(3, settings);
    // B may have it as well only after A has been asked.
    world.hold(B, What::Reads);
    with_a_read_for(&mut world, C, A);
    world.release_kind(B, What::Reads);
    world.wait(10 * SECOND);
    let status = world.status();
    assert_eq!(status.legs[A].state, LegState::Out);
    for leg in [B, C] {
        assert_eq!(status.legs[leg].owed_bytes, 0, "leg {leg} has everything");
        assert_eq!(status.legs[leg].state, LegState::Healthy);
    }
    assert_eq!(status.exposure_age, 0);
}

/// A leg is released while a debt is being read from it, which never ends.
#[test]
fn a_debt_is_read_from_another_leg_when_its_source_is_detached() {
    let mut world = steady_legs(3, without_copies());
    world.write(0, 8);
    world.hold(C, What::Writes);
    for _ in 0..2 {
        world.write(0, 8);
    }
    let before = world.only(C, What::Writes);
    world.hold(A, What::Reads);
    world.hold(B, What::Reads);
    world.land(before);
    world.let_come(C);
    world.wait(MILLISECOND);
    assert_eq!(world.in_flight(A, What::Reads).len(), 1, "the debt is being read");
    world.release_kind(B, What::Reads);
    assert_eq!(world.command(Command::Detach { leg: LegIndex(A as u8) }), Ok(()));
    world.wait(5 * SECOND);
    assert_eq!(world.status().legs[C].owed_bytes, 0);
}
