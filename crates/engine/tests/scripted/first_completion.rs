//! Writes that a leg has before their authority, with a ledger. Between clients' flushes the first
//! completion acknowledges them. While clients flush they wait for the authority, until it is late.

use crate::world::landing::Landing;
use crate::world::script::What;
use crate::world::{Behaviour, REGION_BYTES, World, calm};
use hemi_engine::identifiers::LegIndex;
use hemi_engine::io::Operation;
use hemi_engine::marks::Mark;
use hemi_engine::settings::Settings;
use hemi_units::{Extent, MICROSECOND, MILLISECOND, SECOND};

/// The authority.
const A: usize = 0;
const B: usize = 1;
const WRITE: Extent = Extent { start: 0, end: 8 };
/// The time that A usually takes for a write, and after which it is late. B usually takes a little
/// longer.
const USUAL: u64 = 2 * MILLISECOND;
/// The time that B takes now.
const QUICK: u64 = 500 * MICROSECOND;

fn world() -> World {
    let mut world = World::with_ledger(1, 2, Settings { clean_after: SECOND, ..calm() });
    world.steady(A, USUAL);
    world.steady(B, USUAL + QUICK);
    for _ in 0..100 {
        world.write(WRITE.start, 8);
    }
    // B has the last one, too.
    world.wait(USUAL);
    assert_eq!(world.recorded(0).authority(), LegIndex(A as u8));
    world.steady(B, QUICK);
    world
}

/// Submits a write that B has and A has not, and returns it.
fn on_one_leg(world: &mut World) -> u64 {
    world.hold(A, What::Writes);
    let write = world.submit(Operation::Write, WRITE, false);
    world.wait(2 * QUICK);
    write
}

/// Fails unless a write that B has waits for A, as long as A is not late.
fn waits(mut world: World) {
    let write = on_one_leg(&mut world);
    assert!(!world.is_answered(write), "it does not wait for its authority");
    world.wait(USUAL);
    assert!(world.is_answered(write), "it waits for an authority that is late");
    assert_eq!(world.engine().marks().count(Mark::AuthorityNotAwaited), 0);
    world.release(A);
    world.read_everything();
    world.converge();
}

#[test]
fn the_first_completion_acknowledges_where_no_client_flushes() {
    let mut world = world();
    let write = on_one_leg(&mut world);
    assert!(world.is_answered(write), "it waits for its authority");
    assert_eq!(world.engine().marks().count(Mark::AuthorityNotAwaited), 1);
    assert_eq!(world.recorded(0).authority(), LegIndex(A as u8), "a page says so already");
    world.crash(None, |p| if p.io.leg.index() == A { Landing::Not } else { Landing::Whole });
    world.open(&[A, B]).expect("the ledger tells");
    world.read_everything();
    world.converge();
}

#[test]
fn a_write_waits_for_its_authority_while_clients_flush() {
    let mut world = world();
    world.flush();
    waits(world);
}

#[test]
fn a_write_with_fua_counts_as_a_flush() {
    let mut world = world();
    let durable = world.submit(Operation::Write, Extent::new(64, 8), true);
    world.wait(4 * USUAL);
    assert!(world.is_answered(durable));
    waits(world);
}

#[test]
fn flushes_of_long_ago_do_not_count() {
    let mut world = world();
    world.flush();
    world.wait(SECOND);
    let write = on_one_leg(&mut world);
    assert!(world.is_answered(write), "it waits for its authority");
    world.release(A);
    world.read_everything();
    world.converge();
}

/// Once authority has moved for one write, the others that its new leg has there need not wait until the old
/// authority is late for each of them as well.
#[test]
fn a_move_acknowledges_every_write_of_the_region_that_the_new_authority_has() {
    let mut world = world();
    world.flush();
    let first = on_one_leg(&mut world);
    let second = world.submit(Operation::Write, Extent::new(WRITE.end, 8), false);
    world.wait(2 * QUICK - 1);
    assert!(!world.is_answered(first) && !world.is_answered(second), "the authority is late");
    while !world.is_answered(first) {
        world.wait(QUICK / 100);
    }
    assert!(world.is_answered(second), "it waits for an authority that has moved");
    world.release(A);
    world.read_everything();
    world.converge();
}

/// The flush after such a write has to wait for the page that names B.
#[test]
fn the_next_flush_makes_the_move_durable() {
    let mut world = world();
    let write = on_one_leg(&mut world);
    assert!(world.is_answered(write));
    world.flush();
    assert_eq!(world.recorded(0).authority(), LegIndex(B as u8));
    world.release(A);
    world.read_everything();
    world.converge();
}

/// Two drives of one kind are the quicker one by turns, and clients flush every five seconds. In between a move to
/// the leg that has a write would each time take a flush that nobody has asked for.
#[test]
fn rare_flushes_of_clients_are_not_multiplied() {
    const CLIENT_FLUSHES: u64 = 4;
    let mut world = World::with_ledger(1, 2, calm());
    for leg in 0..2 {
        world.behaviour[leg] =
            Behaviour { latency: 100_000, jitter: 100_000, ..Behaviour::default() };
    }
    let write = |world: &mut World| {
        let region = world.random.below(4) * REGION_BYTES / 512;
        world.submit(Operation::Write, Extent::new(region, 8), false);
        world.wait(5 * MILLISECOND);
    };
    world.flush();
    world.flushes = 0;
    for _ in 0..CLIENT_FLUSHES {
        for _ in 0..1000 {
            write(&mut world);
        }
        world.flush();
    }
    assert!(
        world.flushes <= 2 * 2 * CLIENT_FLUSHES,
        "{} flushes of two legs for {CLIENT_FLUSHES} of clients",
        world.flushes
    );
    world.read_everything();
}
