//! Requests with more parts than there is room for.

mod world;

use hemi_core::io::Operation;
use hemi_core::settings::{Limits, Settings};
use hemi_core::units::{Extent, MICROSECOND};
use world::script::What;
use world::{World, settings};

const A: usize = 0;
const B: usize = 1;

/// Room for four operations, each of 4 KiB at most, and a volume with something in it.
fn cramped() -> World {
    let limits = Limits { operations_more: 1, operation_bytes: 4096, ..Limits::default() };
    let mut world = World::new(1, 2, Settings { requests_max: 3, limits, ..settings() });
    for leg in [A, B] {
        world.steady(leg, 100 * MICROSECOND);
    }
    world.write(0, 64);
    world
}

fn reads(world: &World) -> usize {
    [A, B].iter().map(|&leg| world.ids(leg, What::Reads).len()).sum()
}

/// Fails the reads of one place until no leg is left to ask.
fn fail_reads(world: &mut World, extent: Extent) {
    for _ in [A, B] {
        for leg in [A, B] {
            let start = extent.start + world.data_start();
            let found = world.in_flight(leg, What::Reads);
            let id = found.iter().find(|p| p.io.extent.start == start).map(|p| p.io.id);
            if let Some(id) = id {
                world.fail(id);
            }
        }
    }
}

/// A part that fails answers the request: what had no room yet must not be sent for it.
#[test]
fn a_request_that_failed_while_it_was_queued_is_forgotten() {
    let mut world = cramped();
    for leg in [A, B] {
        world.hold(leg, What::Reads);
    }
    let other = world.submit(Operation::Read, Extent::new(32, 24), false);
    let queued = world.submit(Operation::Read, Extent::new(0, 24), false);
    assert_eq!(reads(&world), 4, "three parts of the one, the first of the other");
    fail_reads(&mut world, Extent::new(0, 8));
    assert!(world.is_answered(queued), "no leg can read its first part");
    assert!(!world.is_answered(other));
    assert_eq!(reads(&world), 3, "nothing is read for a request that was answered");
    for leg in [A, B] {
        world.release(leg);
    }
    world.run_until_answered(1_000_000_000);
    assert!(world.is_answered(other));
}
