//! Requests with more parts than there is room for.

use crate::world::script::What;
use crate::world::{Shape, World, settings};
use hemi_engine::io::{LegEvent, Operation};
use hemi_engine::settings::{Limits, Settings};
use hemi_units::{Extent, MICROSECOND, MILLISECOND, SECOND};

const A: usize = 0;
const B: usize = 1;

/// Returns a volume with data, little memory, and room for four operations of at most 4 KiB each.
fn cramped() -> World {
    let limits = Limits { operations_more: 1, operation_bytes: 4096, ..Limits::default() };
    let settings = Settings { requests_max: 3, limits, ..settings() };
    let shape = Shape { memory_sectors: 40, ..Shape::default() };
    let mut world = World::of_shape(1, 2, settings, shape);
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

/// A part that fails answers the request. Parts that had no room yet must not be sent any more.
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

/// A alone has some of the data to be read, and its session drops. The read has parts that wait for
/// room, and when it has to start over there is no memory for it. It must then wait only for
/// memory. If it waited for a leg as well, the engine would look for it after B has answered it.
#[test]
fn a_read_that_waits_for_room_does_not_wait_for_a_leg_as_well() {
    let mut world = cramped();
    // Data that B has is read from B.
    world.steady(A, MILLISECOND);
    for _ in 0..20 {
        world.read(32, 24);
    }
    world.hold(B, What::Anything);
    world.write(0, 8);
    let other = world.submit(Operation::Read, Extent::new(32, 24), false);
    let queued = world.submit(Operation::Read, Extent::new(0, 24), false);
    assert_eq!(world.ids(B, What::Reads).len(), 3, "all of the one");
    assert_eq!(world.ids(A, What::Reads).len(), 1, "and the first part of the other");
    world.event(A, LegEvent::Gone { removed: false });
    world.abort(A, |_| None);
    assert_eq!(reads(&world), 3, "there is no memory for the other");
    let to_b = world.only(B, What::Writes);
    world.land(to_b);
    world.release(B);
    assert!(world.is_answered(other), "and has left its memory");
    // Any request that comes next.
    world.read(64, 8);
    assert!(!world.has_failed(queued));
    world.event(A, LegEvent::Back);
    world.wait(SECOND);
    world.read_everything();
}
