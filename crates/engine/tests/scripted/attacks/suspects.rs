//! Authorities that lost their cache are given back data by the other leg, which loses its own
//! cache before that is done.

use hemi_engine::io::{LegEvent, Operation};
use hemi_engine::settings::Settings;
use hemi_units::{Extent, MILLISECOND};
use hemi_world::disk::Cache;

use super::{A, B, LONG, REGION, authority, calm, prefer, reopen, two_legs};
use crate::world::World;
use crate::world::landing::Landing;
use crate::world::script::What;

/// Returns a world in which B decides the first region. Its first `flushed` sectors are flushed on
/// both legs, and its first `since` have been written to both since.
fn unflushed(settings: Settings, flushed: u64, since: u64) -> World {
    let mut world = two_legs(settings);
    prefer(&mut world, B);
    world.write(0, flushed);
    world.flush();
    world.write(0, since);
    world.wait(MILLISECOND);
    assert_eq!(authority(&world, 0), B);
    world
}

/// Checks that flushed data survives, and that the legs become identical again.
fn survive(world: &mut World) {
    let token = world.flush();
    assert!(!world.has_failed(token), "it has been said once");
    world.crash(Some(Cache::Dropped), |_| Landing::Not);
    reopen(world);
    world.read_everything();
    world.converge();
    world.read_everything();
}

/// B decides and has lost its cache. A, which gives the data back, drops its session with those
/// reads in flight, so nobody has the data any more. B's content stands. Reads are answered from it
/// at once, and do not fail for lack of a record of that.
#[test]
fn what_nobody_has_any_more_is_read_as_found_at_once() {
    let mut world = unflushed(calm(), 64, 64);
    // A's data is in its cache: B stays the authority until it is flushed.
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

/// B decides, has lost its cache and gets back A's data. A has flushed since, so it keeps what it
/// had by then, whatever it loses afterwards, and B goes on getting it from there.
#[test]
fn what_was_flushed_after_an_authority_lost_its_cache_is_not_lost() {
    let mut world = unflushed(Settings { drain_bytes: 4096, ..calm() }, REGION, 96);
    // A lacks something there, so it cannot take over.
    world.hold(A, What::Writes);
    world.write(112, 8);
    world.hold(A, What::Reads);
    world.event(B, LegEvent::Gone { removed: false });
    world.abort(B, |_| Some(Landing::Not));
    world.disks[B].drop_cache();
    world.event(B, LegEvent::Back);
    let flush = world.submit(Operation::Flush, Extent::default(), false);
    world.wait(MILLISECOND);
    assert!(!world.is_answered(flush), "B has not everything again");
    assert!(world.in_flight(A, What::Flushes).is_empty(), "A has flushed");
    // A has it now, and is asked to flush it before it takes over. It loses its cache instead.
    world.behaviour[A].flush_errors = 1;
    world.hold(A, What::Flushes);
    world.release_kind(A, What::Writes);
    let failing = world.only(A, What::Flushes);
    world.disks[A].drop_cache();
    world.fail(failing);
    world.behaviour[A].flush_errors = 0;
    world.release(A);
    world.run_until_answered(1000 * MILLISECOND);
    let token = world.read(0, REGION);
    assert!(!world.has_failed(token));
    world.read_everything();
    world.flush();
    survive(&mut world);
}

/// B decides. Its session drops, and its cache with it. Nobody can acknowledge new writes
/// meanwhile, and A, which is silent for a while, comes to owe more of them than is kept piece by
/// piece. A is still the only leg with the data that B has lost, and must not come to owe the whole
/// region.
#[test]
fn what_may_be_all_there_is_is_not_owed_with_the_rest_of_its_region() {
    let mut world = unflushed(Settings { owed_extents_max: 4, ..calm() }, 16, 16);
    world.hold(A, What::Writes);
    world.write(32, 8);
    world.event(B, LegEvent::Gone { removed: false });
    world.abort(B, |_| Some(Landing::Not));
    world.disks[B].drop_cache();
    for number in 0..6 {
        world.submit(Operation::Write, Extent::new(48 + number * 8, 4), false);
    }
    world.wait(LONG);
    assert_eq!(world.status().legs[A].owed_region_bytes, 0);
    world.event(B, LegEvent::Back);
    world.release(A);
    world.run_until_answered(1000 * MILLISECOND);
    world.read(0, 16);
    world.read_everything();
    world.flush();
    survive(&mut world);
}
