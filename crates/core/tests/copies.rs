//! Flushes that have to reach several legs: what counts as being on a leg.

mod world;

use hemi_core::io::{LegEvent, Operation};
use hemi_core::settings::{FlushCopies, Settings};
use hemi_core::units::{Extent, IoId, MILLISECOND, SECOND};
use world::script::{Cache, What};
use world::{LONG, World, calm, steady_legs};

const A: usize = 0;
const B: usize = 1;
/// Two legs, both of which a flush has to reach.
fn two_copies() -> World {
    two_copies_with(strict())
}

fn strict() -> Settings {
    Settings { flush_copies: FlushCopies::Count(2), ..calm() }
}

fn two_copies_with(settings: Settings) -> World {
    steady_legs(2, settings)
}

/// The leg lets go of what it was given, and answers from now on.
fn let_go(world: &mut World, leg: usize) {
    world.release(leg);
    world.wait(SECOND);
}

#[test]
fn a_write_with_fua_into_a_clean_region_is_on_both_legs() {
    let mut world = two_copies();
    world.hold(B, What::Writes);
    // It is sent only once the intent is durable, later than it was accepted.
    let write = world.submit(Operation::Write, Extent::new(0, 8), true);
    world.wait(LONG);
    assert!(!world.is_answered(write), "B has nothing of it");
    let_go(&mut world, B);
    assert!(world.is_answered(write) && !world.has_failed(write));
}

/// Leg B owes an acknowledged write, behind another that is in flight to it. Returns the latter.
fn with_a_debt(world: &mut World) -> IoId {
    world.write(0, 8);
    world.wait(MILLISECOND);
    world.hold(B, What::Writes);
    for _ in 0..2 {
        let write = world.submit(Operation::Write, Extent::new(0, 8), false);
        world.wait(MILLISECOND);
        assert!(world.is_answered(write), "acknowledged on A alone");
    }
    world.only(B, What::Writes)
}

#[test]
fn a_newer_write_over_a_debt_does_not_make_a_leg_catch_up() {
    let mut world = two_copies();
    let before = with_a_debt(&mut world);
    world.hold(A, What::Flushes);
    let flush = world.submit(Operation::Flush, Extent::default(), false);
    world.wait(MILLISECOND);
    // Over what B owes, and on no leg yet.
    world.hold(A, What::Writes);
    let newer = world.submit(Operation::Write, Extent::new(0, 8), false);
    world.wait(MILLISECOND);
    assert!(!world.is_answered(newer));
    world.land(before);
    world.release_kind(A, What::Flushes);
    world.wait(5 * MILLISECOND);
    assert!(!world.is_answered(flush), "B has neither the older write nor the newer");
    let_go(&mut world, A);
    let_go(&mut world, B);
    for request in [flush, newer] {
        assert!(world.is_answered(request) && !world.has_failed(request));
    }
}

#[test]
fn what_is_being_read_for_a_leg_is_not_on_it() {
    // Debts keep no copy: they are read from the other leg.
    let mut world = two_copies_with(Settings { copies_reserve: u64::MAX, ..strict() });
    let before = with_a_debt(&mut world);
    world.hold(A, What::Reads);
    world.land(before);
    world.wait(MILLISECOND);
    assert_eq!(world.in_flight(A, What::Reads).len(), 1, "the debt is being read");
    let flush = world.submit(Operation::Flush, Extent::default(), false);
    world.wait(5 * MILLISECOND);
    assert!(!world.is_answered(flush), "B lacks what is being read for it");
    let_go(&mut world, A);
    let_go(&mut world, B);
    assert!(world.is_answered(flush) && !world.has_failed(flush));
}

/// B has everything a flush covers, and loses its cache before it has flushed that. For another
/// flush it does so when it is back, before it has been given again what it lost.
#[test]
fn a_flush_before_a_lost_write_is_back_does_not_make_it_durable() {
    let mut world = two_copies();
    world.write(0, 8);
    world.wait(MILLISECOND);
    world.hold(B, What::Flushes);
    let flush = world.submit(Operation::Flush, Extent::default(), false);
    world.wait(5 * MILLISECOND);
    assert!(!world.is_answered(flush), "B has not flushed");
    world.lose_leg(B, Cache::Dropped);
    world.let_come(B);
    world.hold(B, What::Writes);
    world.event(B, LegEvent::Back);
    let another = world.submit(Operation::Flush, Extent::default(), false);
    world.wait(5 * MILLISECOND);
    assert!(!world.is_answered(flush), "B has nothing of it");
    assert!(world.in_flight(B, What::Flushes).is_empty(), "B has flushed what is left");
    // B gets it back, and no later flush of it ends.
    world.hold(B, What::Flushes);
    world.release_kind(B, What::Writes);
    world.wait(LONG);
    assert!(!world.is_answered(flush), "B has it in its cache alone");
    let_go(&mut world, B);
    for request in [flush, another] {
        assert!(world.is_answered(request) && !world.has_failed(request));
    }
}
