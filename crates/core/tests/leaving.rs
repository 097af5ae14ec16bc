//! Legs that die one after the other, or with something on them that the others lack: what is
//! left decides everything, and writers do not wait for ever.

mod world;

use hemi_core::io::{LegEvent, Notice, OutReason};
use hemi_core::settings::Settings;
use hemi_core::units::{Extent, LegIndex, MICROSECOND, MILLISECOND, SECOND};
use world::script::{Landing, What};
use world::{World, settings};

const A: usize = 0;
const B: usize = 1;

fn volume(legs: usize) -> World {
    let settings = Settings {
        wait_floor: 20 * MILLISECOND,
        wait_ceiling: 20 * MILLISECOND,
        clean_after: 100 * MILLISECOND,
        out_after: SECOND,
        ..settings()
    };
    let mut world = World::new(1, legs, settings);
    for leg in 0..legs {
        world.steady(leg, 100 * MICROSECOND);
    }
    world.wait(100 * MILLISECOND);
    world
}

fn is_out(world: &World, leg: usize, reason: OutReason) -> bool {
    world.notices.contains(&Notice::Out { leg: LegIndex(leg as u8), reason })
}

/// Two legs whole for what is written, of which B cannot read some of it and owes it again
/// from A, which has just fallen silent.
fn unreadable_beside_a_silent_leg() -> World {
    let mut world = volume(2);
    world.write(0, 64);
    world.flush();
    world.converge();
    world.behaviour[B].unreadable = Extent::new(world.data_start() + 8, 1);
    world.steady(A, 5 * MILLISECOND);
    for _ in 0..20 {
        world.read(32, 8);
    }
    world.read(0, 16);
    world.hold(A, What::Anything);
    assert_eq!(world.in_flight(A, What::Reads).len(), 1, "B is to get it from A");
    world
}

/// B is recorded whole, but A alone can give all of it.
#[test]
fn a_silent_leg_that_another_has_to_be_repaired_from_is_waited_for() {
    let mut world = unreadable_beside_a_silent_leg();
    world.wait(10 * SECOND);
    assert!(!is_out(&world, A, OutReason::Unresponsive), "no leg is whole without it");
    world.behaviour[B].unreadable = Extent::default();
    world.release(A);
    world.converge();
    world.read_everything();
    assert_eq!(world.failed_requests, 0);
}

/// As before, but the leg does not come back.
#[test]
fn what_the_last_leg_cannot_read_is_lost_with_the_one_that_could() {
    let mut world = unreadable_beside_a_silent_leg();
    world.event(A, LegEvent::Gone { removed: true });
    world.abort(A, |_| Some(Landing::Not));
    world.wait(SECOND);
    assert!(is_out(&world, A, OutReason::Removed));
    let lost = world.notices.iter().find_map(|notice| match notice {
        Notice::Lost { extent } => Some(*extent),
        _ => None,
    });
    let lost = lost.expect("what is lost is said");
    assert!(lost.start <= 8 && lost.end > 8 && lost.end <= 16, "just what was owed: {lost:?}");
    world.write(100, 8);
    for _ in 0..2 {
        let token = world.read(8, 1);
        assert!(world.has_failed(token), "nobody has it");
        let token = world.read(16, 48);
        assert!(!world.has_failed(token), "the rest is there");
        // It is known across restarts, too.
        world.crash(None, |_| Landing::Whole);
        world.open(&[B]).expect("A is out");
    }
    world.behaviour[B].unreadable = Extent::default();
    world.write(0, 16);
    let token = world.read(0, 64);
    assert!(!world.has_failed(token), "rewritten");
}
