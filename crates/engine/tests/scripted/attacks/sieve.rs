//! A slow leg with small scattered debts is paid by few large writes.

use hemi_engine::io::Operation;
use hemi_engine::settings::Settings;
use hemi_units::{Extent, Instant, MILLISECOND, SECOND};

use super::{A, B, calm};
use crate::world::{Shape, World};

/// The number of scattered writes, in one region.
const WRITES: u64 = 64;
/// The sectors of each write, and from one to the next.
const WRITE: u64 = 8;
const STRIDE: u64 = 24;
/// The time that B takes for an I/O of any size, one at a time.
const SEEK: u64 = 20 * MILLISECOND;

/// Returns a world in which B owes most of the scattered writes.
fn scattered() -> World {
    let settings = Settings {
        drain_bytes: 1 << 20,
        dirty_regions_max: 4096,
        owed_extents_max: 8192,
        wait_ceiling: SECOND,
        clean_after: 300 * MILLISECOND,
        ..calm()
    };
    let shape = Shape {
        volume_bytes: 16 << 20,
        region_bytes: 1 << 20,
        memory_sectors: 32 << 10,
        ..Shape::default()
    };
    let mut world = World::of_shape(1, 2, settings, shape);
    world.steady(A, MILLISECOND / 10);
    world.steady(B, MILLISECOND / 10);
    world.behaviour[B].serial = SEEK;
    // Each leg gets a history of its own, of reads and writes.
    for round in 0..80 {
        let start = 4096 + round * 16;
        world.write(start, WRITE);
        world.wait(2 * SEEK);
        world.submit(Operation::Read, Extent::new(start, WRITE), false);
        world.run_until_answered(SECOND);
    }
    for write in 0..WRITES {
        world.write(write * STRIDE, WRITE);
    }
    assert!(world.status().legs[B].owed_bytes > WRITES / 2 * WRITE * 512, "B owes most of them");
    world
}

#[test]
fn scattered_debts_are_paid_by_few_writes() {
    let mut world = scattered();
    let before = world.status().legs[B].clone();
    while world.status().legs[B].owed_bytes > 0 {
        world.wait(SEEK);
    }
    let after = world.status().legs[B].clone();
    assert!(after.drain_ios - before.drain_ios <= 4, "{} I/Os", after.drain_ios - before.drain_ios);
    // The gaps between the debts were not owed, and do not count as paid.
    let paid = after.drained_bytes - before.drained_bytes;
    assert!(paid <= WRITES * WRITE * 512, "{paid} bytes paid");
    world.read_everything();
    world.converge();
}

/// The leg that has everything freezes. The slow one takes the region over with one read of its own
/// and one write, not debt by debt.
#[test]
fn a_slow_leg_takes_over_what_it_owes_at_once() {
    let mut world = scattered();
    let owed = world.status().legs[B].owed_bytes / (WRITE * 512);
    let begin = world.now;
    let thaw = begin + 30 * SECOND;
    world.freeze(A, thaw);
    world.write(WRITES * STRIDE, WRITE);
    let waited = world.now.since(begin);
    assert!(waited < owed * SEEK * 2 / 3, "{waited} ns for {owed} debts");
    world.kill();
    world.behaviour[A].frozen_until = Instant(0);
    world.open(&[A, B]).expect("both legs are there");
    world.read_everything();
    world.converge();
}

/// Newer writes to the gaps and to the debts, while these are being paid, are the ones that remain.
#[test]
fn newer_writes_overtake_the_large_one() {
    let mut world = scattered();
    for _ in 0..200 {
        let start = world.random.below(WRITES * STRIDE - WRITE);
        world.write(start, WRITE);
        world.wait(SEEK / 3);
    }
    world.read_everything();
    world.converge();
}
