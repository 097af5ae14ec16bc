//! A leg that has been let go is no longer written to (P8).

use crate::world::script::What;
use crate::world::{SECTORS, World, calm, steady_legs};
use hemi_engine::command::{Command, ScrubRepair};
use hemi_engine::identifiers::LegIndex;
use hemi_units::{Extent, MILLISECOND};

const A: usize = 0;
const B: usize = 1;
const DETACH: u64 = 9;

/// Begins to detach B and holds back the superblock that says so on A.
fn detaching() -> World {
    let mut world = steady_legs(2, calm());
    world.write(0, 64);
    world.flush();
    world.wait(100 * MILLISECOND);
    world.disks[B].corrupt(5, 1 << 40);
    world.hold(A, What::Metadata);
    begin_detach(&mut world);
    world.wait(5 * MILLISECOND);
    assert!(world.is_told(A) && !world.commands.contains_key(&DETACH));
    world
}

fn begin_detach(world: &mut World) {
    let (now, leg) = (world.now, LegIndex(B as u8));
    world.engine().command(now, DETACH, Command::Detach { leg });
    world.take_actions();
}

/// Fails unless B is let go, with nothing in flight that would change what it holds.
fn is_let_go(world: &mut World) {
    assert_eq!(world.commands.get(&DETACH), Some(&Ok(())), "B is not let go");
    for what in [What::Writes, What::Metadata] {
        assert!(world.in_flight(B, what).is_empty(), "{what:?} to a leg that has been let go");
    }
}

/// A scrub finds what has rotted on B only when B has been made whole and flushed for the last time.
#[test]
fn a_leg_is_not_repaired_once_it_is_being_let_go() {
    let mut world = detaching();
    world.hold(B, What::Writes);
    let (now, extent) = (world.now, Extent::new(0, 64));
    world.engine().command(
        now,
        10,
        Command::Scrub { repair: ScrubRepair::From(LegIndex(0)), extent },
    );
    world.take_actions();
    world.wait(5 * MILLISECOND);
    assert_eq!(world.status().scrub_mismatches, 1);
    world.release(A);
    world.wait(5 * MILLISECOND);
    is_let_go(&mut world);
}

/// The last superblock is on B, and a page written to it before is still in flight.
#[test]
fn a_leg_is_let_go_only_after_its_last_page_write() {
    let mut world = steady_legs(2, calm());
    world.write(0, 64);
    world.flush();
    world.hold(B, What::Metadata);
    world.write(SECTORS / 2, 8);
    // The page is written to B in the background.
    while world.in_flight(B, What::Metadata).is_empty() {
        world.wait(MILLISECOND);
    }
    let page = world.only(B, What::Metadata);
    begin_detach(&mut world);
    world.let_come(B);
    world.wait(10 * MILLISECOND);
    assert_eq!(world.only(B, What::Metadata), page, "its superblock is on it");
    assert!(!world.commands.contains_key(&DETACH), "a page is in flight to it");
    world.land(page);
    world.wait(10 * MILLISECOND);
    is_let_go(&mut world);
}
