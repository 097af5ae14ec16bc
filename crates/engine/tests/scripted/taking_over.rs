//! Moves of authority, and what the leg that takes over has to have before.

use crate::world::landing::Landing;
use crate::world::script::What;
use crate::world::{LONG, calm, steady_legs};
use hemi_engine::io::Operation;
use hemi_units::{Extent, MILLISECOND};
use hemi_world::disk::Cache;

const A: usize = 0;
const B: usize = 1;

/// B has a write with FUA in its cache alone: the first try there failed, and the drain asks for no FUA. No
/// client has flushed. B must flush all the same before it takes over.
#[test]
fn a_leg_that_takes_over_has_flushed_what_was_written_with_fua() {
    let mut world = steady_legs(2, calm());
    world.write(0, 8);
    world.wait(MILLISECOND);
    assert_eq!(world.recorded(0).authority().index(), A);
    world.hold(B, What::Writes);
    let durable = world.submit(Operation::Write, Extent::new(0, 8), true);
    world.wait(MILLISECOND);
    assert!(world.is_answered(durable), "A has it");
    let missed = world.only(B, What::Writes);
    world.fail(missed);
    world.release(B);
    world.wait(200 * MILLISECOND);
    assert_eq!(world.status().legs[B].owed_bytes, 0, "B has it, too");
    world.hold(A, What::Anything);
    world.hold(B, What::Flushes);
    world.submit(Operation::Write, Extent::new(16, 8), false);
    world.wait(LONG);
    world.crash(Some(Cache::Dropped), |_| Landing::Not);
    world.settings.clean_after = 300 * MILLISECOND;
    world.open(&[A, B]).expect("both are there");
    world.read_everything();
    world.converge();
}
