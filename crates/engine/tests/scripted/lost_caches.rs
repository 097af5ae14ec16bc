//! Legs whose session drops, and whose cache goes with it, again and again under load. The writes
//! they completed since their last flush are owed again, and nobody reads those there meanwhile.

use crate::world;
use crate::world::landing::{Landing, lose_cache};
use crate::world::script::What;
use crate::world::{LONG, Random, SECTORS, Shape, World, calm, settings, steady_legs};
use hemi_engine::command::{Command, ScrubRepair};
use hemi_engine::identifiers::{IoId, LegIndex};
use hemi_engine::io::{LegError, LegEvent, Notice, Operation};
use hemi_engine::settings::{Limits, Settings};
use hemi_engine::status::LegState;
use hemi_units::{Extent, Instant, MICROSECOND, MILLISECOND, SECOND};
use hemi_world::disk::Cache;

fn request(world: &mut World) {
    let r = world.random.below(20);
    let hot = world.random.below(3) > 0;
    let start = world.random.below(if hot { 200 } else { SECTORS - 24 });
    let count = 1 + world.random.below(23);
    let (op, fua) = match r {
        0..=6 => (Operation::Read, false),
        7..=15 => (Operation::Write, r == 7),
        16 => (Operation::WriteZeroes { may_unmap: true }, false),
        _ => (Operation::Flush, false),
    };
    world.submit(op, Extent::new(start, count), fua);
}
fn run(seed: u64, legs: usize) {
    let mut world = World::new(seed, legs, settings());
    let mut gone: Option<(usize, Instant)> = None;
    for step in 0..600u64 {
        if world.requests.len() < 16 && world.can_submit() && step % 60 < 45 {
            request(&mut world);
        }
        if let Some((leg, until)) = gone {
            if world.now >= until {
                let now = world.now;
                if world.trace {
                    println!("{:>12} BACK {leg}", now.0);
                }
                world.engine().leg_event(now, LegIndex(leg as u8), LegEvent::Back);
                world.take_actions();
                gone = None;
            }
        } else if world.random.one_in(30) {
            let s = world.status();
            let leg = world.random.below(legs as u64) as usize;
            let others_full = s.legs.iter().all(|l| {
                l.leg as usize == leg || l.owed_bytes == 0 && l.state == LegState::Healthy
            });
            let nothing_waits = world.requests.values().all(|r| r.operation == Operation::Read);
            if others_full && nothing_waits {
                let now = world.now;
                if world.trace {
                    println!("{:>12} GONE {leg}", now.0);
                }
                world.engine().leg_event(
                    now,
                    LegIndex(leg as u8),
                    LegEvent::Gone { removed: false },
                );
                world.take_actions();
                world.abort_swapping(leg);
                let mut random = Random(world.random.next());
                lose_cache(&mut world.disks[leg], Cache::Any, &mut random);
                let dt = world.random.below(1500) * MILLISECOND;
                gone = Some((leg, world.now + dt));
            }
        }
        let gap = [0, 20_000, 200_000, 5_000_000, 60_000_000][world.random.below(5) as usize];
        let until = world.now + gap;
        world.run_until(until);
    }
    if let Some((leg, _)) = gone {
        let now = world.now;
        if world.trace {
            println!("{:>12} BACK {leg}", now.0);
        }
        world.engine().leg_event(now, LegIndex(leg as u8), LegEvent::Back);
        world.take_actions();
    }
    world.run_until_answered(60_000 * MILLISECOND);
    world.read_everything();
    world.converge();
    world.read_everything();
}
#[test]
fn legs_that_lose_their_caches_come_back_by_draining() {
    for legs in [2, 3] {
        for seed in 0..60 {
            let result = std::panic::catch_unwind(|| run(seed, legs));
            if let Err(cause) = result {
                eprintln!("failed with seed {seed}, {legs} legs");
                std::panic::resume_unwind(cause);
            }
        }
    }
}

/// The seed in which a move of authority was asked for once, put off for a flush and forgotten.
#[test]
fn a_forced_move_that_has_to_wait_is_made_later() {
    run(96, 2);
}

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;

/// Returns legs of one steady latency that keep no copies of data (zeros need none).
fn without_copies(legs: usize) -> World {
    let mut world = World::new(1, legs, Settings { copies_reserve: u64::MAX, ..calm() });
    for leg in 0..legs {
        world.steady(leg, 100 * MICROSECOND);
    }
    world.wait(LONG);
    world
}

/// B owes zeros, and before them data of which there is no copy. A write over both is in flight to
/// it. Data that A loses with its cache and that B's debt keeps must be given back to A.
#[test]
fn a_copy_is_found_behind_what_is_in_flight() {
    let mut world = without_copies(2);
    world.hold(B, What::Writes);
    world.write(0, 32);
    world.write(0, 8);
    world.flush();
    let zeroes = Operation::WriteZeroes { may_unmap: false };
    let zeros = world.submit(zeroes, Extent::new(16, 8), false);
    world.wait(MILLISECOND);
    assert!(world.is_answered(zeros), "acknowledged on A alone");
    world.lose_leg(A, Cache::Dropped);
    world.event(A, LegEvent::Back);
    world.read(16, 8);
    world.wait(SECOND);
    assert_eq!(world.disks[A].contents()[16..24], [0; 8], "A has the zeros again");
    world.release(B);
    world.wait(SECOND);
    world.read_everything();
}

/// Drops a session, which reconnects at once. I/O in flight may still land.
fn reconnect(world: &mut World, leg: usize) {
    world.event(leg, LegEvent::Gone { removed: false });
    world.event(leg, LegEvent::Back);
}

/// Ends I/O that was in flight when a session dropped: none of it has landed.
fn end_with_session(world: &mut World, ended: &[IoId]) {
    for &id in ended {
        let index = world.complete_id(id).expect("it is in flight");
        world.pending.remove(index);
        let now = world.now;
        world.engine().complete(now, id, Err(LegError::Gone));
        world.take_actions();
    }
}

/// Runs a load on a fast leg and a slow one until the fast leg's session drops, which ends a flush that
/// was in flight there, and later the rest. Returns true if a flush of a client fails meanwhile.
fn tells_of_a_loss_while_a_leg_is_away(seed: u64, copies_reserve: u64) -> bool {
    let mut world = World::new(seed, 2, Settings { copies_reserve, ..settings() });
    world.steady(B, 3 * MILLISECOND);
    for _ in 0..50 + seed % 50 {
        if world.requests.len() < 16 && world.can_submit() {
            request(&mut world);
        }
        let gap = [0, 20_000, 200_000, 5_000_000][world.random.below(4) as usize];
        let until = world.now + gap;
        world.run_until(until);
    }
    world.hold(A, What::Anything);
    world.event(A, LegEvent::Gone { removed: false });
    let flushes = world.ids(A, What::Flushes);
    end_with_session(&mut world, &flushes);
    world.wait(SECOND);
    let failed = world.failed.iter().any(|(_, operation)| *operation == Operation::Flush);
    let rest = world.ids(A, What::Anything);
    end_with_session(&mut world, &rest);
    world.let_come(A);
    world.event(A, LegEvent::Back);
    world.converge();
    world.read_everything();
    failed
}

/// A flush that ends with its session says nothing of the leg's cache. What A may have lost is judged
/// once it is back: until then B gets what is in flight to it, what copies hold and what clients write
/// anew.
#[test]
fn a_flush_that_ends_with_its_session_tells_of_no_loss() {
    for copies_reserve in [0, u64::MAX] {
        let tells = |&seed: &u64| tells_of_a_loss_while_a_leg_is_away(seed, copies_reserve);
        let seeds: Vec<u64> = (0..500).filter(tells).collect();
        assert!(seeds.is_empty(), "with a reserve of {copies_reserve}, seeds {seeds:?}");
    }
}

/// Three sessions drop one after the other. B is giving back to A, the authority, and to C what
/// they may have lost, when B may have lost it as well. A's content stands.
#[test]
fn a_read_finds_the_authority_when_the_last_that_had_it_lost_its_cache() {
    let mut world = without_copies(3);
    world.write(0, 8);
    world.flush();
    // From now on a leg has to flush before it takes over.
    world.write(0, 8);
    world.wait(MILLISECOND);
    assert_eq!(world.recorded(0).authority().index(), A);
    world.hold(B, What::Anything);
    reconnect(&mut world, A);
    let for_a = world.ids(B, What::Reads);
    assert!(!for_a.is_empty(), "A is given back what B has");
    reconnect(&mut world, C);
    let read = |id: &IoId| !for_a.contains(id);
    let for_c: Vec<IoId> = world.ids(B, What::Reads).into_iter().filter(read).collect();
    assert!(!for_c.is_empty(), "and so is C");
    let others = world.ids(B, What::Anything);
    world.let_come(B);
    reconnect(&mut world, B);
    end_with_session(&mut world, &for_a);
    end_with_session(&mut world, &for_c);
    let read = world.read(0, 8);
    assert!(!world.has_failed(read), "A has it");
    let is_other = |id: &IoId| !for_a.contains(id) && !for_c.contains(id);
    let others: Vec<IoId> = others.into_iter().filter(is_other).collect();
    end_with_session(&mut world, &others);
    world.read_everything();
    assert_eq!(world.failed_requests, 0);
}

/// Data that A lost with its cache is only in flight to B. It is given back to A from there, and
/// neither write lands: their sessions drop, and no copy is kept. A's content stands.
#[test]
fn a_read_finds_the_authority_when_the_last_write_in_flight_has_failed() {
    let mut world = without_copies(2);
    world.write(0, 8);
    world.flush();
    world.wait(MILLISECOND);
    world.hold(B, What::Writes);
    world.write(0, 8);
    let to_b = world.only(B, What::Writes);
    assert_eq!(world.recorded(0).authority().index(), A);
    world.hold(A, What::Writes);
    reconnect(&mut world, A);
    let to_a = world.only(A, What::Writes);
    reconnect(&mut world, A);
    end_with_session(&mut world, &[to_a]);
    reconnect(&mut world, B);
    end_with_session(&mut world, &[to_b]);
    let read = world.read(0, 8);
    assert!(!world.has_failed(read), "A has it");
    world.release(A);
    world.release(B);
    world.wait(SECOND);
    world.read_everything();
    assert_eq!(world.failed_requests, 0);
}

/// A is giving back to B what it may have lost. A's drive has read the data, and before its answer
/// arrives a flush fails that takes it away. A's present content stands, and B must not come to
/// have A's earlier one.
#[test]
fn what_a_leg_had_before_it_lost_its_cache_is_not_written_to_another() {
    let mut world = without_copies(2);
    world.write(0, 8);
    world.flush();
    world.write(0, 8);
    world.wait(MILLISECOND);
    world.hold(A, What::Anything);
    reconnect(&mut world, B);
    let read = world.ids(A, What::Reads)[0];
    let index = world.complete_id(read).expect("it is in flight");
    let io = world.pending.remove(index).io;
    let seen = world.disks[A].read(io.extent).to_vec();
    world.submit(Operation::Flush, Extent::default(), false);
    let failing = world.only(A, What::Flushes);
    world.disks[A].drop_cache();
    world.wait(MICROSECOND);
    world.fail(failing);
    let now = world.now;
    let at = io.buffer.expect("a read has one");
    world.engine().buffers_mut().part_mut(at, io.extent.sectors()).copy_from_slice(&seen);
    world.engine().complete(now, read, Ok(()));
    world.take_actions();
    world.release(A);
    world.wait(SECOND);
    assert_eq!(world.disks[A].contents()[..8], world.disks[B].contents()[..8]);
    world.note_cache_lost();
    world.read_everything();
}

/// Neither leg has all of a region any more: A was removed, for all that was known, and B has lost
/// its cache since. A's content stands, and a write that was in flight meanwhile is on both.
#[test]
fn a_write_under_way_reaches_a_leg_that_stands_as_it_was_found() {
    const A: usize = 0;
    const B: usize = 1;
    let mut world = steady_legs(2, Settings { leg_window: 1, ..calm() });
    world.write(0, 8);
    world.hold(A, What::Reads);
    world.event(B, LegEvent::Gone { removed: false });
    world.event(B, LegEvent::Back);
    world.hold(A, What::Flushes);
    world.hold(B, What::Flushes);
    world.wait(5 * MILLISECOND);
    world.submit(Operation::Flush, Extent::default(), false);
    world.wait(5 * MILLISECOND);
    world.event(A, LegEvent::Gone { removed: true });
    world.abort(A, |_| None);
    assert_ne!(world.engine().lost_extents(), [], "B owed the region");
    world.hold(B, What::Writes);
    // B has room for one write. The other is a debt, which goes with its cache.
    world.submit(Operation::Write, Extent::new(512, 8), false);
    world.wait(5 * MILLISECOND);
    let write = world.submit(Operation::Write, Extent::new(16, 8), false);
    let flush = world.only(B, What::Flushes);
    world.fail(flush);
    world.release(A);
    world.release(B);
    world.event(A, LegEvent::Back);
    world.wait(5 * SECOND);
    assert!(world.is_answered(write) && !world.has_failed(write));
    let [on_a, on_b] = [A, B].map(|leg| world.disks[leg].contents()[16..24].to_vec());
    assert_eq!(on_a, on_b);
}

/// A device that was reported removed is back, with all its data. Data that it alone had has been
/// given up, and B still has the earlier data in flight.
#[test]
fn a_leg_that_is_back_is_not_given_what_is_older_than_what_was_lost_with_it() {
    const A: usize = 0;
    const B: usize = 1;
    // Debts keep no copy.
    let mut world = steady_legs(2, Settings { copies_reserve: u64::MAX, ..calm() });
    world.write(0, 8);
    world.flush();
    world.hold(B, What::Writes);
    world.write(0, 8);
    world.write(4, 4);
    for leg in [A, B] {
        world.hold(leg, What::Metadata);
    }
    world.event(A, LegEvent::Gone { removed: true });
    world.abort(A, |_| Some(Landing::Not));
    assert_eq!(world.engine().lost_extents(), [Extent::new(4, 4)], "which B owed");
    world.event(A, LegEvent::Back);
    world.wait(10 * MILLISECOND);
    // The list of lost extents is on neither leg.
    world.crash(None, |_| Landing::Not);
    world.open(&[A, B]).expect("both are there");
    world.read(0, 8);
    world.read_everything();
}

/// The number of sectors of a region.
const REGION: u64 = 128;

/// Returns settings and a shape in which each leg has room for 64 debts.
fn few_debts() -> (Settings, Shape) {
    let few = Limits { operations_more: 1, ..Limits::default() };
    let settings = Settings {
        requests_max: 3,
        limits: few,
        leg_window: 1,
        dirty_regions_max: 64,
        // With twice four operations and twice the widest window that makes 64.
        owed_extents_max: 40,
        copies_reserve: u64::MAX,
        ..calm()
    };
    (settings, Shape { volume_bytes: 4 << 20, ..Shape::default() })
}

/// Returns two legs with room for 64 debts each. A is the authority of the first 27 regions.
fn room_for_few_debts() -> World {
    let (settings, shape) = few_debts();
    let mut world = World::of_shape(1, 2, settings, shape);
    world.steady(A, 100 * MICROSECOND);
    world.steady(B, 200 * MICROSECOND);
    world.wait(LONG);
    for region in 0..27 {
        world.write(region * REGION, 8);
    }
    world.wait(LONG);
    world
}

/// Writes `pieces` pieces, more than 25, that B comes to owe, to as many regions. The data that A
/// loses in each region with its cache is on B in one more piece.
fn write_pieces(world: &mut World, pieces: u64) {
    for number in 0..pieces {
        let region = 2 + number % 25;
        let extent = Extent::new(region * REGION + 16 + 24 * (number / 25), 8);
        let write = world.submit(Operation::Write, extent, false);
        world.wait(120 * MICROSECOND);
        assert!(world.is_answered(write));
    }
}

/// A gives B what B owes, and B gives A back what A lost with its cache, which takes all of A's
/// room for debts. Writes come into another region, where A alone has everything. A write that A
/// cannot take at once must not make it owe that region.
#[test]
fn an_authority_with_no_room_for_debts_does_not_come_to_owe_its_region() {
    let mut world = room_for_few_debts();
    world.hold(B, What::Anything);
    world.write(8, 8);
    world.wait(LONG);
    // B owes this to region 1, from A.
    world.write(REGION + 16, 8);
    world.flush();
    // A comes to owe 63, and the next needs two places.
    write_pieces(&mut world, 38);
    world.lose_leg(A, Cache::Dropped);
    world.hold(A, What::Writes);
    world.event(A, LegEvent::Back);
    let first = world.submit(Operation::Write, Extent::new(REGION + 64, 8), false);
    let second = world.submit(Operation::Write, Extent::new(REGION + 80, 8), false);
    let read = world.submit(Operation::Read, Extent::new(REGION + 16, 8), false);
    world.wait(MILLISECOND);
    assert!(world.is_answered(read) && !world.has_failed(read), "only A has it");
    world.release(B);
    world.release(A);
    world.wait(SECOND);
    assert!(world.is_answered(first) && world.is_answered(second));
    world.read(REGION + 16, 8);
    let region = REGION as usize..2 * REGION as usize;
    assert_eq!(world.disks[A].contents()[region.clone()], world.disks[B].contents()[region]);
}

/// The data that B is to give back to A takes all of A's room for debts. Then a write fails that
/// was in flight to A, in a region where A alone has everything. To have room for it A owes all of
/// a region that B decides.
#[test]
fn an_authority_with_no_room_for_debts_makes_some_for_a_write_that_failed() {
    let mut world = room_for_few_debts();
    world.steady(A, 250 * MICROSECOND);
    for _ in 0..100 {
        world.write(0, 8);
    }
    world.write(30 * REGION, 8);
    world.steady(A, 100 * MICROSECOND);
    world.wait(LONG);
    let decides = [1, 30].map(|region| world.recorded(region).authority().index());
    assert_eq!(decides, [A, B]);
    world.hold(B, What::Writes);
    world.write(0, 8);
    // B owes this to region 1, from A.
    world.write(REGION + 16, 8);
    world.flush();
    // A comes to owe 62.
    write_pieces(&mut world, 37);
    world.hold(A, What::Writes);
    let failing = world.submit(Operation::Write, Extent::new(REGION + 64, 8), false);
    let in_flight = world.only(A, What::Writes);
    // A's window has no room for this one. It is the 63rd, and the next needs two places.
    let other = world.submit(Operation::Write, Extent::new(30 * REGION + 64, 8), false);
    world.hold(A, What::Flushes);
    world.submit(Operation::Flush, Extent::default(), false);
    let flush = world.only(A, What::Flushes);
    world.disks[A].drop_cache();
    world.fail(flush);
    let owed = world.status().legs[A].owed_region_bytes;
    world.fail(in_flight);
    assert_eq!(world.status().legs[A].owed_region_bytes - owed, world::REGION_BYTES);
    let read = world.submit(Operation::Read, Extent::new(REGION + 16, 8), false);
    world.wait(MILLISECOND);
    assert!(world.is_answered(read) && !world.has_failed(read), "only A has it");
    world.release(A);
    world.release(B);
    world.run_until_answered(SECOND);
    assert!(!world.has_failed(failing) && !world.has_failed(other));
    world.wait(SECOND);
    assert_eq!(world.disks[A].contents(), world.disks[B].contents());
    world.read(REGION + 16, 8);
    // B did not have everything that A has lost.
    world.note_cache_lost();
    world.read_everything();
}

/// The same, and A decides every region that it owes anything in: it can give none of them up. Even so
/// nothing is lost in the region of the write that failed, where B lacks what A has flushed.
#[test]
fn an_authority_that_can_make_no_room_loses_nothing_by_a_write_that_failed() {
    let mut world = room_for_few_debts();
    world.hold(B, What::Writes);
    world.write(0, 8);
    // B owes this to region 1, from A.
    world.write(REGION + 16, 8);
    world.flush();
    // A comes to owe 63, and the next needs two places.
    write_pieces(&mut world, 38);
    world.hold(A, What::Writes);
    let failing = world.submit(Operation::Write, Extent::new(REGION + 64, 8), false);
    let in_flight = world.only(A, What::Writes);
    world.hold(A, What::Flushes);
    world.submit(Operation::Flush, Extent::default(), false);
    let flush = world.only(A, What::Flushes);
    world.disks[A].drop_cache();
    world.fail(flush);
    world.fail(in_flight);
    world.release(A);
    world.release(B);
    world.run_until_answered(SECOND);
    assert!(!world.has_failed(failing), "A takes it when it is tried again");
    world.wait(SECOND);
    assert_eq!(world.disks[A].contents(), world.disks[B].contents());
    let read = world.read(REGION + 16, 8);
    assert!(!world.has_failed(read), "A has it, and had flushed it");
    // B did not have everything that A has lost.
    world.note_cache_lost();
    world.read_everything();
}

/// Returns two legs. B has been silent and is out. It answers again and is sent what clients write, but it
/// stays out: what it has missed is to be read from A, and such reads do not end.
fn back_but_out(settings: Settings, shape: Shape) -> World {
    let settings = Settings { out_after: 300 * MILLISECOND, ..settings };
    let mut world = World::of_shape(1, 2, settings, shape);
    world.steady(A, 100 * MICROSECOND);
    world.steady(B, 200 * MICROSECOND);
    world.wait(LONG);
    world.hold(B, What::Anything);
    world.write(world.sectors - 8, 8);
    world.wait(SECOND);
    world.flush();
    world.hold(A, What::Reads);
    world.release(B);
    world.wait(LONG);
    assert_eq!(world.status().legs[B].state, LegState::Out);
    world
}

/// B's device is removed while a client reads there what only B has. B is out already, so nothing changes in
/// who is in. Returns the read.
fn read_as_b_is_removed(world: &mut World, extent: Extent) -> u64 {
    let read = world.submit(Operation::Read, extent, false);
    world.wait(MILLISECOND);
    assert!(world.is_in_flight(B, What::Reads, extent), "A lacks it");
    assert!(!world.is_answered(read));
    world.event(B, LegEvent::Gone { removed: true });
    world.abort(B, |_| None);
    world.wait(MILLISECOND);
    read
}

/// Clients are told of the loss. B is back after all, and is given what stands.
fn come_back_alike(world: &mut World) {
    world.read_everything();
    let flush = world.flush();
    assert!(world.has_failed(flush), "the loss is told");
    world.release(B);
    world.event(B, LegEvent::Back);
    world.wait(10 * SECOND);
    assert_eq!(world.disks[A].contents(), world.disks[B].contents());
    world.read_everything();
    assert_eq!(world.failed_requests, 1, "no other fails");
}

/// B has alone what A has lost with its cache, and is removed. A's content stands. A read that was in flight
/// on B gets that, and so it does before A looks again for somebody who has what it owes.
#[test]
fn a_read_finds_the_authority_when_the_last_that_had_it_is_removed() {
    let mut world = back_but_out(calm(), Shape::default());
    world.write(0, 8);
    world.flush();
    let flushed = world.disks[A].contents()[..8].to_vec();
    world.write(0, 8);
    world.wait(MILLISECOND);
    world.lose_leg(A, Cache::Dropped);
    world.note_cache_lost();
    world.let_come(A);
    world.hold(B, What::Reads);
    world.event(A, LegEvent::Back);
    let read = read_as_b_is_removed(&mut world, Extent::new(0, 8));
    assert!(world.is_answered(read) && !world.has_failed(read), "A has it");
    come_back_alike(&mut world);
    assert_eq!(world.disks[A].contents()[..8], flushed);
}

/// B has alone what A has lost with its cache, in as many regions as A has room for debts, and B is
/// removed. A's content stands: ceasing to owe it takes no room.
#[test]
fn an_authority_with_no_room_for_debts_stands_where_nobody_else_has_anything() {
    let (settings, shape) = few_debts();
    let mut world = back_but_out(settings, shape);
    for region in 0..63 {
        world.write(region * REGION, 8);
    }
    world.wait(MILLISECOND);
    world.lose_leg(A, Cache::Dropped);
    world.note_cache_lost();
    world.let_come(A);
    // The first of it takes up A's window, and a part of a region makes up for it.
    world.hold(A, What::Writes);
    world.event(A, LegEvent::Back);
    world.wait(MILLISECOND);
    world.only(A, What::Writes);
    world.hold(B, What::Reads);
    let read = read_as_b_is_removed(&mut world, Extent::new(40 * REGION, 8));
    assert!(world.is_answered(read) && !world.has_failed(read), "A has it");
    world.release(A);
    come_back_alike(&mut world);
}

/// While an authority is away that may have lost its unflushed data, a silent leg that also has it
/// is not given up for one that lacks it.
#[test]
fn a_silent_leg_stays_while_an_authority_is_away_that_may_have_lost_its_cache() {
    let (a, b, c) = (0, 1, 2);
    let settings = Settings { out_after: 300 * MILLISECOND, owed_extents_max: 0, ..calm() };
    let mut world = steady_legs(3, settings);
    world.write(0, 8);
    world.wait(MILLISECOND);
    // It owes the region.
    world.hold(c, What::Anything);
    world.write(8, 8);
    world.wait(LONG);
    world.write(0, 8);
    world.wait(MILLISECOND);
    assert_eq!(world.status().legs[a].authority_regions, 1);
    world.hold(b, What::Anything);
    world.submit(Operation::Write, Extent::new(SECTORS - 8, 8), false);
    world.wait(LONG);
    world.lose_leg(a, Cache::Dropped);
    world.release(c);
    world.wait(SECOND);
    assert_eq!(world.status().legs[b].state, LegState::Frozen);
    world.event(a, LegEvent::Back);
    world.wait(SECOND);
    assert_eq!(world.status().legs[b].state, LegState::Frozen);
    world.release(b);
    world.run_until_answered(SECOND);
    world.read(0, 8);
}

/// A device that was removed is not counted on: the data that the other kept stands. If the device
/// comes back with data that the other lost, nobody reads it there.
#[test]
fn a_removed_leg_that_comes_back_does_not_have_what_stands_otherwise() {
    let (a, b) = (0, 1);
    let settings = Settings { out_after: 1000 * SECOND, copies_reserve: 0, ..calm() };
    let mut world = steady_legs(2, settings);
    world.write(0, 8);
    world.flush();
    world.wait(MILLISECOND);
    // Durably on B, but only in A's cache.
    world.hold(a, What::Flushes);
    world.write(0, 8);
    let flush = world.submit(Operation::Flush, Extent::new(0, 0), false);
    world.wait(5 * MILLISECOND);
    world.hold(b, What::Anything);
    world.event(b, LegEvent::Gone { removed: true });
    world.abort(b, |_| None);
    world.lose_leg(a, Cache::Dropped);
    world.release(a);
    world.event(a, LegEvent::Back);
    world.wait(5 * MILLISECOND);
    world.release(b);
    world.event(b, LegEvent::Back);
    world.run_until_answered(SECOND);
    assert!(world.has_failed(flush), "the loss is said");
    world.note_cache_lost();
    for _ in 0..20 {
        world.read(0, 8);
    }
    let contents = [a, b].map(|leg| world.disks[leg].contents()[..8].to_vec());
    assert_eq!(contents[a], contents[b]);
}

/// Makes A, the authority, lose its newest write with its cache. B owes that write, so there is a
/// copy, but `give` keeps it from A, which is to get the write from B instead. Then B loses it,
/// too. B had flushed everything when A lost its cache, but this came later, and B never had what
/// was flushed on A before it. A's content stands.
fn lose_what_was_given_since(give: impl FnOnce(&mut World, IoId, IoId)) {
    let mut world = steady_legs(2, calm());
    world.write(0, 8);
    world.flush();
    world.hold(B, What::Writes);
    world.write(0, 8);
    let flushed = world.disks[A].contents()[..8].to_vec();
    let missed = world.only(B, What::Writes);
    world.fail(missed);
    world.flush();
    world.write(0, 8);
    assert_eq!(world.recorded(0).authority().index(), A);
    world.wait(LONG);
    let to_b = world.only(B, What::Writes);
    world.hold(B, What::Flushes);
    world.hold(A, What::Writes);
    reconnect(&mut world, A);
    world.disks[A].drop_cache();
    let to_a = world.only(A, What::Writes);
    give(&mut world, to_a, to_b);
    let failing = world.only(B, What::Flushes);
    world.disks[B].drop_cache();
    world.fail(failing);
    world.let_come(A);
    world.release(B);
    world.wait(SECOND);
    for leg in [A, B] {
        assert_eq!(world.disks[leg].contents()[..8], flushed, "leg {leg}");
    }
    world.note_cache_lost();
    world.read_everything();
}

/// B has the write when the copy fails to be written to A.
#[test]
fn a_leg_that_had_what_a_copy_could_not_give_back_is_not_trusted() {
    lose_what_was_given_since(|world, to_a, to_b| {
        world.land(to_b);
        world.fail(to_a);
    });
}

/// A block of A could not be read. A has it back, only in its cache, when its flush fails, while C
/// still waits for a block of its own. A's data in the region was on it before, so B has nothing to
/// give it.
#[test]
fn a_leg_that_loses_repairs_with_its_cache_owes_nothing() {
    let mut world = steady_legs(3, Settings { clean_after: 100 * MILLISECOND, ..calm() });
    world.write(0, 64);
    world.flush();
    world.converge();
    let scrub = |world: &mut World, leg: usize, bad: Extent| {
        let start = world.data_start() + bad.start;
        world.behaviour[leg].unreadable = Extent::new(start, bad.sectors());
        let now = world.now;
        let scrub = Command::Scrub { extent: bad, repair: ScrubRepair::Unreadable };
        world.engine().command(now, bad.start, scrub);
        world.take_actions();
        world.wait(5 * MILLISECOND);
    };
    world.hold(A, What::Flushes);
    world.hold(C, What::Writes);
    scrub(&mut world, C, Extent::new(32, 8));
    scrub(&mut world, A, Extent::new(0, 8));
    let repaired = |leg: usize| {
        let leg = LegIndex(leg as u8);
        world.notices.iter().any(|n| matches!(n, Notice::Repaired { leg: on, .. } if *on == leg))
    };
    assert!(repaired(A) && !repaired(C));
    world.behaviour[A].unreadable = Extent::default();
    world.submit(Operation::Flush, Extent::default(), false);
    world.wait(MILLISECOND);
    let flush = world.only(A, What::Flushes);
    world.fail(flush);
    assert_eq!(world.status().legs[A].owed_region_bytes, 0);
    world.behaviour[C].unreadable = Extent::default();
    world.release(A);
    world.release(C);
    world.converge();
    world.read_everything();
    assert_eq!(world.failed_requests, 0);
}

/// Returns two legs that both have a write in their caches, and what they had flushed beneath it. No
/// copies are kept, and a silent leg is soon marked out.
fn written_over() -> (World, Vec<u64>) {
    let out_after = 300 * MILLISECOND;
    let mut world = steady_legs(2, Settings { out_after, copies_reserve: u64::MAX, ..calm() });
    world.write(0, 8);
    world.flush();
    let flushed = world.disks[A].contents()[..8].to_vec();
    world.write(0, 8);
    world.wait(MILLISECOND);
    (world, flushed)
}

/// B is out, and silent. A has lost with its cache what B alone has now, and a client's write over it
/// fails on A. A waits for B's data: what it has there itself is older than what was acknowledged.
#[test]
fn a_failed_write_leaves_what_only_a_leg_that_is_out_has() {
    let (mut world, _) = written_over();
    let newest = world.disks[B].contents()[..8].to_vec();
    world.hold(B, What::Anything);
    world.submit(Operation::Read, Extent::new(64, 8), false);
    world.submit(Operation::Write, Extent::new(SECTORS - 8, 8), false);
    world.wait(SECOND);
    assert_eq!(world.status().legs[B].state, LegState::Out);
    world.hold(A, What::Flushes);
    world.submit(Operation::Flush, Extent::default(), false);
    let flush = world.only(A, What::Flushes);
    world.disks[A].drop_cache();
    world.fail(flush);
    world.hold(A, What::Writes);
    let others = world.ids(A, What::Writes);
    let write = world.submit(Operation::Write, Extent::new(0, 8), false);
    let to_a = world.ids(A, What::Writes).into_iter().find(|id| !others.contains(id));
    world.fail(to_a.expect("the write goes to A"));
    world.wait(MILLISECOND);
    assert!(world.has_failed(write));
    world.release(A);
    world.release(B);
    world.wait(10 * SECOND);
    for leg in [A, B] {
        assert_eq!(world.disks[leg].contents()[..8], newest, "leg {leg}");
    }
    world.read_everything();
}

/// B is silent, and the record that marks it out is in flight to A when A loses its cache. B is not waited
/// for, so what A has kept stands, and B does not have that.
#[test]
fn a_leg_that_is_marked_out_does_not_have_what_stands_without_it() {
    let (mut world, flushed) = written_over();
    world.hold(B, What::Anything);
    world.submit(Operation::Write, Extent::new(SECTORS - 8, 8), false);
    world.wait(LONG);
    world.hold(A, What::Metadata);
    world.wait(SECOND);
    assert!(world.is_told(A), "B is being marked out");
    world.hold(A, What::Flushes);
    let flush = world.submit(Operation::Flush, Extent::default(), false);
    world.wait(MILLISECOND);
    world.disks[A].drop_cache();
    for id in world.ids(A, What::Flushes) {
        world.fail(id);
    }
    world.release(A);
    world.wait(SECOND);
    assert!(world.has_failed(flush), "the loss is told");
    world.note_cache_lost();
    world.release(B);
    world.wait(10 * SECOND);
    for leg in [A, B] {
        assert_eq!(world.disks[leg].contents()[..8], flushed, "leg {leg}");
    }
    world.read_everything();
}
