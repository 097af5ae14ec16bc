//! Authorities that lost their cache and are given back what the other leg has, which loses
//! its own cache before that is done.

use hemi_core::io::LegEvent;
use hemi_core::units::{Extent, MILLISECOND};

use crate::world::World;
use crate::world::script::{Cache, Landing, What};
use crate::{A, B, LONG, authority, calm, prefer, reopen, two_legs};

/// What a flush covers survives, and the legs become one again.
fn survive(world: &mut World) {
    let token = world.flush();
    assert!(!world.has_failed(token), "it has been said once");
    world.crash(Some(Cache::Dropped), |_| Landing::Not);
    reopen(world);
    world.read_everything();
    world.converge();
    world.read_everything();
}

/// B decides and has lost its cache. A, which gives it back, drops its session with those
/// reads out: nobody has what they were for any more. B's content stands, and reads are
/// answered from it; they do not fail because nobody has said so yet.
#[test]
fn what_nobody_has_any_more_is_read_as_found_at_once() {
    let mut world = two_legs(calm());
    prefer(&mut world, B);
    world.write(0, 64);
    world.flush();
    world.write(0, 64);
    world.wait(MILLISECOND);
    assert_eq!(authority(&world, 0), B);
    // What A has is in its cache: B stays the authority until it is flushed.
    world.hold(A, What::Flushes);
    world.hold(A, What::Reads);
    world.event(B, LegEvent::Gone { removed: false });
    world.event(B, LegEvent::Back);
    world.wait(MILLISECOND);
    assert!(world.is_in_flight(A, What::Reads, Extent::new(0, 64)), "B is given back its data");
    world.event(A, LegEvent::Gone { removed: false });
    world.event(A, LegEvent::Back);
    world.let_come(A);
    world.abort_held(A);
    let token = world.read(0, 64);
    assert!(!world.has_failed(token), "B is there, and its content stands");
    world.wait(LONG);
    world.read_everything();
    let token = world.flush();
    assert!(world.has_failed(token), "what no flush covered may be lost");
    survive(&mut world);
}
