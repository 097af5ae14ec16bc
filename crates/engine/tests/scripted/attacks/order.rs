//! Reads beside writes, drains beside writes, discards, and legs of larger blocks.

use hemi_engine::command::{Command, CommandError, ScrubRepair};
use hemi_engine::identifiers::LegIndex;
use hemi_engine::io::Operation;
use hemi_engine::settings::Settings;
use hemi_units::{Extent, MILLISECOND, SECOND};
use hemi_world::disk::Cache;

use super::{A, B, LONG, authority, calm, prefer, reopen, two_legs};
use crate::world::landing::Landing;
use crate::world::script::What;
use crate::world::{SECTORS, Shape, World};

/// Scenario 5: a read must not return a value that a later read then does not. A write does not
/// overtake a read in flight, and a read does not see a write that is not acknowledged.
#[test]
fn s05_reads_beside_an_unacknowledged_write() {
    let mut world = two_legs(calm());
    world.write(0, 8);
    world.flush();
    let extent = Extent::new(0, 8);
    // A read is in flight on a leg, and a write to the same sectors comes.
    world.hold(A, What::Reads);
    world.hold(B, What::Reads);
    let read = world.submit(Operation::Read, extent, false);
    let write = world.submit(Operation::Write, Extent::new(4, 8), false);
    world.wait(MILLISECOND);
    for leg in [A, B] {
        let sent = world.is_in_flight(leg, What::Writes, Extent::new(4, 8));
        assert!(!sent, "the read may return the write from one leg, the next read not");
    }
    world.release(A);
    world.release(B);
    world.run_until_answered(SECOND);
    assert!(world.is_answered(read) && world.is_answered(write));
    // The write is on B alone, unacknowledged, and reads come.
    assert_eq!(authority(&world, 0), A);
    world.hold(A, What::Writes);
    let write = world.submit(Operation::Write, extent, false);
    world.wait(MILLISECOND);
    let reads = [0, 4, 7].map(|at| world.submit(Operation::Read, Extent::new(at, 1), false));
    world.wait(5 * MILLISECOND);
    assert!(!world.is_answered(write), "recovery would choose A, which lacks it");
    for read in reads {
        assert!(!world.is_answered(read), "a kill now makes A's old data come back");
    }
    world.crash(None, |_| Landing::Not);
    reopen(&mut world);
    world.read_everything();
}

/// Scenario 8: the drain has read v1 from A to write it to B, and v2 arrives. It must land on B
/// after v1, whichever is sent first.
#[test]
fn s08_drain_race() {
    let limit = 200 * MILLISECOND;
    let patient = Settings { wait_floor: limit, wait_ceiling: limit, ..calm() };
    let mut world = two_legs(Settings { copies_reserve: u64::MAX, ..patient });
    let extent = Extent::new(0, 64);
    world.write(0, 64);
    world.hold(B, What::Anything);
    world.write(SECTORS - 8, 8);
    world.wait(2 * limit);
    world.write(0, 64);
    // B answers again. The data it owes has no copy, so the drain reads v1 from A.
    world.hold(B, What::Writes);
    world.release_kind(B, What::Anything);
    for id in world.ids(B, What::Writes) {
        world.land(id);
    }
    world.wait(50 * MILLISECOND);
    assert!(world.is_in_flight(B, What::Writes, extent), "the drain has read v1 and writes it");
    let newer = world.submit(Operation::Write, Extent::new(2, 16), false);
    world.run_until_answered(SECOND);
    assert!(world.is_answered(newer));
    let mut rounds = 0;
    while world.status().legs[B].owed_bytes > 0 {
        let sent = world.in_flight(B, What::Writes);
        let extents: Vec<_> = sent.iter().map(|p| p.io.extent).collect();
        for (at, one) in extents.iter().enumerate() {
            let beside = extents[at + 1..].iter().any(|other| other.overlaps(*one));
            assert!(!beside, "two writes to the same sectors of one leg: {extents:?}");
        }
        // Last in, first out: I/Os in flight together may land in any order.
        for id in world.ids(B, What::Writes).into_iter().rev() {
            world.land(id);
        }
        world.wait(20 * MILLISECOND);
        rounds += 1;
        assert!(rounds < 20, "B never catches up");
    }
    assert!(rounds > 1, "v1 and v2 go one after the other");
    world.release(B);
    world.wait(SECOND);
    assert_eq!(world.disks[A].contents(), world.disks[B].contents());
    world.read_everything();
}

/// Scenario 8, the read half: while v1 is being read for B, v2 must not be sent to it, because the
/// data read could be written over it.
#[test]
fn s08_a_range_is_held_from_the_read_on() {
    let mut world = two_legs(Settings { copies_reserve: u64::MAX, ..calm() });
    let extent = Extent::new(0, 64);
    world.write(0, 64);
    world.hold(B, What::Writes);
    world.write(SECTORS - 8, 8);
    let zombie = world.only(B, What::Writes);
    world.wait(LONG);
    world.write(0, 64);
    world.hold(A, What::Reads);
    world.land(zombie);
    world.wait(MILLISECOND);
    assert!(world.is_in_flight(A, What::Reads, extent), "the drain reads v1");
    let newer = world.submit(Operation::Write, Extent::new(2, 16), false);
    world.wait(MILLISECOND);
    assert!(world.is_answered(newer), "A has it");
    assert!(!world.is_in_flight(B, What::Writes, extent), "v1 would be written over v2");
    world.release(A);
    world.release(B);
    world.wait(SECOND);
    assert_eq!(world.disks[A].contents(), world.disks[B].contents());
}

/// Scenario 10: after a discard both legs read alike, and every read gives the same answer. A leg
/// that cannot zero makes a discard do nothing at all.
#[test]
fn s10_discard() {
    for fast in [[true, true], [true, false], [false, false]] {
        let mut world = World::new(1, 2, calm());
        world.crash(None, |_| Landing::Whole);
        world.fast_zeroes = fast.to_vec();
        reopen(&mut world);
        world.write(0, 64);
        world.flush();
        let discard = world.submit(Operation::Discard, Extent::new(8, 16), false);
        world.run_until_answered(SECOND);
        assert!(!world.has_failed(discard));
        world.wait(SECOND);
        let first = world.disks[A].contents();
        assert_eq!(first, world.disks[B].contents());
        let zeroed = first[8..24].iter().all(|&version| version == 0);
        assert_eq!(zeroed, fast == [true, true]);
        for busy in [A, B, A, B] {
            world.steady(busy, 10 * MILLISECOND);
            for _ in 0..3 {
                world.read(0, 64);
            }
            world.steady(busy, 100_000);
        }
        world.crash(Some(Cache::Any), |_| Landing::Whole);
        reopen(&mut world);
        world.read_everything();
        world.converge();
    }
}

/// Scenario 12: one leg has blocks of 4 KiB. None of the engine's own I/O (drains, repairs after an
/// error or a scrub, splits) may cut a block, or the leg would have to read, modify and write data
/// that it may not have. The world refuses any such I/O.
#[test]
fn s12_legs_of_4_kib_blocks() {
    let shape = Shape { block_sectors: 8, ..Shape::default() };
    let settings = Settings { clean_after: 50 * MILLISECOND, drain_bytes: 4096, ..calm() };
    let mut world = World::of_shape(1, 2, settings, shape);
    for start in (0..SECTORS).step_by(64) {
        world.write(start, 64);
    }
    // Debts are split by newer ones, and drained in pieces.
    world.hold(B, What::Anything);
    for start in [0, 64, 256] {
        world.write(start, 64);
        world.wait(LONG);
        world.write(start + 16, 8);
        world.write(start + 40, 16);
    }
    world.release(B);
    world.converge();
    // A medium error is rewritten from the other leg.
    for leg in [A, B] {
        world.behaviour[leg].read_errors = 1;
        world.read(128, 8);
        world.read(160, 8);
        world.behaviour[leg].read_errors = 0;
        world.wait(SECOND);
    }
    // Single sectors have rotted: their blocks are rewritten.
    for sector in [333, 400, 415, 1023] {
        world.disks[B].corrupt(sector, 1 << 41);
    }
    let extent = Extent { start: 0, end: SECTORS };
    let scrub = |world: &mut World, repair| world.command(Command::Scrub { repair, extent });
    assert_eq!(scrub(&mut world, ScrubRepair::Nothing), Err(CommandError::Mismatches));
    assert_eq!(scrub(&mut world, ScrubRepair::From(LegIndex(A as u8))), Ok(()));
    world.converge();
    assert_eq!(scrub(&mut world, ScrubRepair::Nothing), Ok(()));
    world.read_everything();
}

/// Scenario 12, the cost of a sector-sized write on a stale leg: its neighbours stay as they were.
#[test]
fn s12_neighbours_of_a_small_write_stay() {
    let mut world = two_legs(calm());
    world.write(0, 16);
    world.flush();
    prefer(&mut world, A);
    world.hold(B, What::Anything);
    world.write(0, 8);
    world.wait(LONG);
    world.write(3, 1);
    world.release(B);
    world.wait(SECOND);
    assert_eq!(world.disks[A].contents()[..16], world.disks[B].contents()[..16]);
    world.crash(Some(Cache::Any), |_| Landing::Not);
    reopen(&mut world);
    world.read_everything();
    world.converge();
}
