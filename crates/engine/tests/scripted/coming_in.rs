//! A leg that was out has drained and is coming in: the record of that is in flight, and clients go
//! on writing.

use crate::world::landing::Landing;
use crate::world::script::What;
use crate::world::{SECTORS, World, settings};
use hemi_engine::command::Command;
use hemi_engine::identifiers::LegIndex;
use hemi_engine::io::{LegEvent, Notice, Operation};
use hemi_engine::settings::Settings;
use hemi_engine::status::LegState;
use hemi_units::{Extent, Instant, MICROSECOND, MILLISECOND, SECOND};

/// Returns a world in which every region is dirty, so that writes need no metadata, and leg 1,
/// which was out, is coming in. Metadata writes of that record do not end on leg `held`.
fn coming_in(held: usize) -> World {
    coming_in_beside_clean(held, SECTORS)
}

/// Does the same, with the regions behind this sector clean.
fn coming_in_beside_clean(held: usize, dirty: u64) -> World {
    let calm = Settings { clean_after: 20 * SECOND, dirty_regions_max: 64, ..settings() };
    let mut world = World::new(7, 2, calm);
    world.steady(0, 200 * MICROSECOND);
    world.steady(1, 200 * MICROSECOND);
    world.write(0, 1);
    world.freeze(1, Instant(u64::MAX / 2));
    for start in (0..dirty).step_by(64) {
        world.write(start, 1);
    }
    world.wait(5 * SECOND);
    assert_eq!(world.status().legs[1].state, LegState::Out);
    world.behaviour[1].frozen_until = world.now;
    let now = world.now;
    for pending in &mut world.pending {
        pending.due = pending.due.min(now + 1000);
    }
    let end = world.now + 60 * SECOND;
    // Leg 1 hears last.
    for leg in 0..=held {
        while !world.is_told(leg) {
            assert!(world.now < end, "it drains and is taken in");
            world.wait(50 * MICROSECOND);
        }
    }
    world.hold(held, What::Metadata);
    world.wait(MILLISECOND);
    assert_eq!(world.status().legs[1].state, LegState::Out);
    world
}

/// Writes far more than the exposure bound lets in, with the writes to leg 1 held.
fn write_too_much(world: &mut World) {
    world.hold(1, What::Writes);
    for number in 0..40 {
        let extent = Extent::new(number * 32 % (SECTORS - 32), 32);
        world.submit(Operation::Write, extent, false);
    }
    world.wait(5 * MILLISECOND);
}

fn is_in(world: &World) -> bool {
    world.notices.contains(&Notice::In { leg: LegIndex(1) })
}

#[test]
fn what_a_leg_comes_to_lack_as_it_is_taken_in_is_bounded() {
    let mut world = coming_in(0);
    write_too_much(&mut world);
    assert!(!is_in(&world));
    world.release_kind(0, What::Metadata);
    world.wait(MILLISECOND);
    let end = world.now + 60 * SECOND;
    world.release_kind(1, What::Writes);
    while !world.requests.is_empty() {
        assert!(world.now < end, "writers go on");
        let status = world.status();
        assert!(status.exposure_bytes <= status.exposure_bytes_bound, "P5: {status:?}");
        world.wait(20 * MICROSECOND);
    }
    world.converge();
    assert!(is_in(&world));
    world.read_everything();
}

#[test]
fn a_leg_whose_write_hangs_as_it_is_taken_in_counts_at_once() {
    let mut world = coming_in(0);
    write_too_much(&mut world);
    world.release_kind(0, What::Metadata);
    world.wait(MILLISECOND);
    let status = world.status();
    assert!(is_in(&world), "nothing stands against it: what it lacks is within the bound");
    assert!(status.exposure_bytes > 0, "what it lacks is shown");
    assert!(status.exposure_bytes <= status.exposure_bytes_bound, "P5: {status:?}");
    world.release(1);
    world.run_until_answered(60 * SECOND);
    world.converge();
}

#[test]
fn a_leg_that_is_removed_as_it_is_taken_in_stays_out() {
    let mut world = coming_in(1);
    world.event(1, LegEvent::Gone { removed: true });
    world.abort(1, |_| None);
    world.wait(SECOND);
    world.write(0, 64);
    assert_eq!(world.status().legs[1].state, LegState::Out);
    assert!(!is_in(&world));
    assert_eq!(world.command(Command::Remove { leg: LegIndex(1) }), Ok(()), "not busy for ever");
    world.read_everything();
}

#[test]
fn a_leg_that_is_silent_as_it_is_taken_in_comes_in_later() {
    let mut world = coming_in(1);
    world.hold(1, What::Anything);
    for round in 0..100 {
        world.write(round * 16 % (SECTORS - 16), 16);
        world.wait(50 * MILLISECOND);
    }
    let outs = world.notices.iter().filter(|notice| matches!(notice, Notice::Out { .. }));
    assert_eq!(outs.count(), 2, "it is given up");
    world.release(1);
    world.wait(SECOND);
    world.converge();
    assert!(is_in(&world));
    world.read_everything();
}

/// It lacks a part of that. Writes that were let in while it was silent wait for a record, and are sent when
/// it answers again.
#[test]
fn a_leg_that_would_lack_too_much_of_what_was_let_in_is_not_in_yet() {
    let mut world = coming_in_beside_clean(1, SECTORS / 2);
    world.hold(1, What::Anything);
    for number in 0..6 {
        world.write(number * 32, 32);
    }
    world.wait(SECOND);
    world.hold(0, What::Metadata);
    for number in 0..20 {
        world.submit(Operation::Write, Extent::new(SECTORS / 2 + number * 32, 32), false);
    }
    world.wait(MILLISECOND);
    world.let_come(1);
    world.hold(1, What::Writes);
    world.hold(1, What::Reads);
    for id in world.ids(1, What::Metadata) {
        world.land(id);
    }
    world.wait(MILLISECOND);
    world.release(0);
    for _ in 0..100 {
        world.wait(MILLISECOND / 10);
        let (exposed, bound) = (world.status().exposure_bytes, world.settings.exposure_bytes);
        assert!(exposed <= bound, "P5: {exposed} bytes");
    }
    world.release(1);
    world.converge();
    assert!(is_in(&world));
    world.read_everything();
}

/// Otherwise leg 0, started without it after a crash, would go on in a generation of its own, and
/// the two could not be told from a fork.
#[test]
fn a_leg_does_not_hear_alone_that_it_is_in() {
    let mut world = coming_in(0);
    world.wait(15 * MILLISECOND);
    assert!(world.is_told(0) && !world.is_told(1));
    world.crash(None, |_| Landing::Not);
    world.open(&[0]).expect("leg 0 has everything");
    world.write(0, 64);
    world.kill();
    world.open(&[0, 1]).expect("leg 1 has only been away");
    world.converge();
    assert!(is_in(&world));
    world.read_everything();
}

/// Otherwise leg 0, which alone has the record, would wait for leg 1 at the next start.
#[test]
fn a_volume_closes_when_a_leg_that_is_taken_in_has_heard_of_it() {
    let mut world = coming_in(1);
    let (now, token) = (world.now, 9);
    world.engine().command(now, token, Command::Close { drain_until: now + SECOND });
    world.take_actions();
    world.wait(5 * SECOND);
    assert!(!world.closed, "leg 1 has not heard that it is in");
    world.release(1);
    world.wait(5 * SECOND);
    assert!(world.closed);
    world.open(&[0, 1]).expect("both are in");
    world.converge();
}
