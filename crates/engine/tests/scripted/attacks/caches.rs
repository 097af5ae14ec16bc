//! Caches that are lost, zombies that land, legs that die with the only copy.

use hemi_engine::io::{LegEvent, Notice, Operation};
use hemi_engine::settings::Settings;
use hemi_units::{Extent, MILLISECOND, SECOND};
use hemi_world::disk::Cache;

use super::{A, B, LONG, REGION, authority, calm, index, prefer, reopen, two_legs};
use crate::world::SECTORS;
use crate::world::landing::Landing;
use crate::world::script::What;

/// A leg's host loses power and comes back while hemi lives.
fn power_cycle(world: &mut crate::world::World, leg: usize) {
    world.event(leg, LegEvent::Gone { removed: false });
    world.abort(leg, |_| Some(Landing::Not));
    world.disks[leg].drop_cache();
    world.let_come(leg);
    world.event(leg, LegEvent::Back);
}

/// Scenario 4: A completes a write without a flush, and its host power-cycles and comes back. A
/// must not count as fresh, and a flush must not count data that its cache lost.
#[test]
fn s04_lost_cache_while_hemi_lives() {
    let mut world = two_legs(calm());
    world.write(0, 8);
    world.flush();
    world.write(0, 8);
    world.wait(LONG);
    assert_eq!(authority(&world, 0), A);
    world.hold(A, What::Writes);
    power_cycle(&mut world, A);
    // Nothing there may be read from A before it has been rewritten.
    world.steady(B, 10 * MILLISECOND);
    for _ in 0..3 {
        world.read(0, 8);
    }
    world.flush();
    world.crash(Some(Cache::Dropped), |_| Landing::Not);
    reopen(&mut world);
    world.read_everything();
    world.converge();
}

/// Scenario 4, where nobody else has the data: A's lost data cannot be told from what it kept, and
/// the flush that would have covered it fails.
#[test]
fn s04_lost_cache_of_the_only_copy_is_reported() {
    let settings = Settings { copies_reserve: u64::MAX, ..calm() };
    let mut world = two_legs(settings);
    world.write(0, 8);
    world.flush();
    world.hold(B, What::Anything);
    world.write(0, 8);
    world.wait(LONG);
    // A copy of the first is kept for B, but none of this one.
    world.write(8, 8);
    world.register.power_cut();
    power_cycle(&mut world, A);
    let token = world.flush();
    assert!(world.has_failed(token), "the data of an acknowledged write is gone");
    world.release(B);
    let token = world.flush();
    assert!(!world.has_failed(token), "it has been said once");
    world.write(0, 8);
    world.flush();
    world.read_everything();
}

/// Scenario 6: v1 is stuck on B's old session. While v1 can still land, v2 must not go to B,
/// nothing may be read from B there, and B must not be whole.
#[test]
fn s06_zombies_outlive_sessions() {
    for landed in [Landing::Whole, Landing::Torn(0x3C), Landing::Not] {
        let mut world = two_legs(Settings { clean_after: 100 * MILLISECOND, ..calm() });
        world.write(0, 8);
        world.flush();
        world.converge();
        let extent = Extent::new(0, 8);
        world.hold(B, What::Writes);
        world.write(0, 8);
        let zombie = world.only(B, What::Writes);
        world.wait(LONG);
        world.let_come(B);
        world.event(B, LegEvent::Gone { removed: false });
        world.write(0, 8);
        // A new session begins, while I/O of the old one may still land.
        world.event(B, LegEvent::Back);
        for _ in 0..20 {
            world.write(4, 8);
            world.flush();
            world.wait(50 * MILLISECOND);
            let sent = world.ids(B, What::Writes);
            let overlaps = sent.iter().any(|&id| id != zombie);
            assert!(!overlaps, "a rewrite was sent beside the zombie");
            assert!(!world.is_in_flight(B, What::Reads, extent));
            world.steady(A, 5 * MILLISECOND);
            world.read(0, 8);
            world.steady(A, 100_000);
        }
        world.wait(2 * SECOND);
        assert!(!world.status().converged, "B is not whole while a zombie can change it");
        let entry = world.recorded(0);
        assert!(entry.is_dirty() && entry.authority() == index(A) || !entry.is_whole(index(B)));
        // It lands, and the driver now knows that it is over.
        world.land_silently(zombie, landed);
        world.fail(zombie);
        world.converge();
        world.read_everything();
    }
}

/// Scenario 6, across processes: B is closed with a zombie out. Whatever the zombie does before the
/// next start, B is not trusted.
#[test]
fn s06_zombies_outlive_hemi() {
    for kill in [false, true] {
        let mut world = two_legs(Settings { clean_after: 100 * MILLISECOND, ..calm() });
        world.write(0, 8);
        world.flush();
        world.converge();
        world.hold(B, What::Writes);
        world.write(0, 8);
        let zombie = world.only(B, What::Writes);
        world.let_come(B);
        world.wait(LONG);
        world.write(4, 8);
        world.flush();
        if kill {
            world.crash(None, |p| if p.io.id == zombie { Landing::Whole } else { Landing::Not });
        } else {
            world.close();
            assert!(!world.recorded(0).is_whole(index(B)), "a zombie can still change B");
            world.crash(None, |_| Landing::Whole);
        }
        reopen(&mut world);
        world.read_everything();
        world.converge();
    }
}

/// Scenario 11: the only leg with the data fails a flush. Every connection is told, not only the
/// one that asked first.
#[test]
fn s11_flush_error_reaches_every_connection() {
    let mut world = two_legs(Settings { copies_reserve: u64::MAX, ..calm() });
    world.write(0, 8);
    world.flush();
    world.hold(B, What::Anything);
    world.write(0, 8);
    world.wait(LONG);
    world.write(8, 8);
    world.behaviour[A].flush_errors = 1;
    let first = world.submit_on(1, Operation::Flush, Extent::default(), false);
    world.run_until_answered(SECOND);
    assert!(world.has_failed(first));
    world.behaviour[A].flush_errors = 0;
    for connection in [2, 3] {
        let other = world.submit_on(connection, Operation::Flush, Extent::default(), false);
        world.run_until_answered(SECOND);
        assert!(world.has_failed(other), "connection {connection} believes its data durable");
    }
    // B may have the rest of the region: no flush succeeds before that is known.
    world.release(B);
    for connection in [2, 3] {
        let again = world.submit_on(connection, Operation::Flush, Extent::default(), false);
        world.run_until_answered(SECOND);
        assert!(!world.has_failed(again), "it has been told");
    }
    let again = world.submit_on(1, Operation::Flush, Extent::default(), false);
    world.run_until_answered(SECOND);
    assert!(!world.has_failed(again));
}

/// Scenario 11, where another leg has the data: the flush succeeds once it is durable there, and
/// the data that the failing leg lost is rewritten.
#[test]
fn s11_flush_error_of_one_of_two() {
    for leg in [A, B] {
        let mut world = two_legs(calm());
        world.write(0, 8);
        world.flush();
        world.write(0, 8);
        world.wait(LONG);
        world.behaviour[leg].flush_errors = 1;
        let token = world.submit(Operation::Flush, Extent::default(), false);
        world.run_until_answered(5 * SECOND);
        assert!(!world.has_failed(token), "the other leg made it durable");
        // A disk may do this: data that it failed to flush is gone.
        world.crash(Some(Cache::Dropped), |_| Landing::Not);
        world.steady(leg, 100_000);
        reopen(&mut world);
        world.read_everything();
        world.converge();
    }
}

/// Scenario 21: the only leg with the newest data is gone for good. Reads fail there, and stale
/// data is never served, not even after a restart. A rewrite makes it readable.
#[test]
fn s21_the_only_fresh_leg_dies() {
    for copies_kept in [false, true] {
        let copies_reserve = if copies_kept { 0 } else { u64::MAX };
        let mut world = two_legs(Settings { copies_reserve, ..calm() });
        prefer(&mut world, B);
        world.write(0, 32);
        world.flush();
        assert_eq!(authority(&world, 0), B);
        world.hold(A, What::Writes);
        world.write(SECTORS - 8, 8);
        world.wait(LONG);
        world.write(8, 8);
        world.write(REGION, 8);
        world.event(B, LegEvent::Gone { removed: true });
        world.abort(B, |_| Some(Landing::Not));
        if copies_kept {
            world.release(A);
            world.run_until_answered(SECOND);
            world.wait(SECOND);
            world.read_everything();
            assert_eq!(world.failed_requests, 0, "the copies were there to drain from");
            continue;
        }
        world.let_come(A);
        for id in world.ids(A, What::Anything) {
            world.fail(id);
        }
        world.wait(SECOND);
        assert!(world.notices.iter().any(|n| matches!(n, Notice::Lost { .. })));
        for restart in [false, true] {
            if restart {
                world.crash(None, |_| Landing::Whole);
                world.open(&[A]).expect("B is out: A decides");
            }
            let token = world.read(8, 8);
            assert!(world.has_failed(token), "stale data was served");
            let token = world.read(REGION, 8);
            assert!(world.has_failed(token), "stale data was served");
        }
        let token = world.read(16, 8);
        assert!(!world.has_failed(token), "the rest of the region is there");
        world.write(8, 8);
        let token = world.read(8, 8);
        assert!(!world.has_failed(token));
        world.crash(None, |_| Landing::Whole);
        world.open(&[A]).expect("A decides");
        let token = world.read(8, 8);
        assert!(!world.has_failed(token), "a rewritten extent is not lost");
        let token = world.read(REGION, 8);
        assert!(world.has_failed(token), "the other one still is");
    }
}
