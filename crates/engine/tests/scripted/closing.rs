//! The end of a volume: which record the next start goes by, whatever the legs do meanwhile.

use crate::world::landing::Landing;
use crate::world::script::What;
use crate::world::{World, calm};
use hemi_engine::command::Command;
use hemi_engine::identifiers::LegIndex;
use hemi_engine::io::{LegEvent, Operation};
use hemi_engine::settings::Settings;
use hemi_units::{Extent, MILLISECOND, SECOND};
use hemi_world::disk::Cache;

const FAST: usize = 0;
const SLOW: usize = 1;
const USED: Extent = Extent { start: 0, end: 8 };

/// Returns a volume with a ledger, and a region that is touched under the first leg.
fn touched() -> World {
    let settings = Settings { clean_after: 2000 * MILLISECOND, ..calm() };
    let mut world = World::with_ledger(1, 2, settings);
    world.steady(FAST, 50_000);
    world.steady(SLOW, 100_000);
    for _ in 0..100 {
        world.write(USED.start, 8);
    }
    world
}

/// Moves authority to the slow leg. Only the ledger says so.
fn move_by_ledger(world: &mut World) {
    world.hold(FAST, What::Anything);
    world.hold(SLOW, What::Metadata);
    let write = world.submit(Operation::Write, USED, false);
    world.wait(3 * MILLISECOND);
    assert!(world.is_answered(write));
    assert_eq!(world.recorded(0).authority(), LegIndex(FAST as u8), "no page says so yet");
}

fn begin_close(world: &mut World, drain: u64) {
    let (now, drain_until) = (world.now, world.now + drain);
    world.engine().command(now, 1 << 60, Command::Close { drain_until });
    world.take_actions();
}

fn end_close(world: &mut World) {
    let end = world.now + 60 * SECOND;
    while !world.closed {
        assert!(world.now < end, "the volume does not close");
        world.wait(10 * MILLISECOND);
    }
}

fn is_retired(world: &World) -> bool {
    world.machine.ledger.as_ref().is_none_or(|ledger| ledger.is_retired())
}

/// The network goes first, then hemi is stopped. The superblocks rely on the ledger, which stays.
#[test]
fn a_stop_while_no_leg_has_a_session_keeps_the_ledger() {
    for touches in [true, false] {
        let mut world = touched();
        if touches {
            move_by_ledger(&mut world);
        } else {
            world.flush();
            world.wait(5 * SECOND);
        }
        for leg in [FAST, SLOW] {
            world.holds.clear();
            world.event(leg, LegEvent::Gone { removed: false });
            world.abort(leg, |_| Some(Landing::Not));
        }
        begin_close(&mut world, SECOND);
        end_close(&mut world);
        assert!(!is_retired(&world), "the superblocks rely on it");
        assert!(world.engine().relies_on_ledger());
        world.crash(None, |_| Landing::Not);
        world.open(&[FAST, SLOW]).expect("the ledger is there");
        world.read_everything();
        world.converge();
    }
}

/// A leg that comes back in time is told that the volume is closed.
#[test]
fn a_stop_waits_for_a_leg_to_come_back() {
    let mut world = touched();
    for leg in [FAST, SLOW] {
        world.event(leg, LegEvent::Gone { removed: false });
        world.abort(leg, |_| Some(Landing::Not));
    }
    begin_close(&mut world, SECOND);
    world.wait(500 * MILLISECOND);
    assert!(!world.closed);
    for leg in [FAST, SLOW] {
        world.event(leg, LegEvent::Back);
    }
    end_close(&mut world);
    assert!(is_retired(&world));
    assert!(!world.engine().relies_on_ledger());
    world.crash(None, |_| Landing::Not);
    world.machine.ledger = None;
    world.open(&[FAST, SLOW]).expect("the pages tell");
    world.read_everything();
}

/// The superblock that relies on no ledger is on its way: what only the ledger would tell is not acknowledged.
#[test]
fn a_write_that_ends_beside_the_last_superblock_is_in_the_pages() {
    let mut world = touched();
    world.hold(FAST, What::Writes);
    world.hold(SLOW, What::Writes);
    let write = world.submit(Operation::Write, USED, false);
    world.wait(MILLISECOND);
    world.hold(FAST, What::Metadata);
    world.hold(SLOW, What::Metadata);
    begin_close(&mut world, 0);
    world.wait(10 * MILLISECOND);
    assert!(world.is_told(FAST) && world.is_told(SLOW), "the last superblock is asked for");
    world.release_kind(SLOW, What::Writes);
    world.wait(100 * MILLISECOND);
    assert!(!world.is_answered(write), "no page names the leg that has it");
    world.release_kind(FAST, What::Metadata);
    world.wait(100 * MILLISECOND);
    world.crash(None, |_| Landing::Not);
    world.machine.ledger = None;
    world.open(&[FAST, SLOW]).expect("the pages tell");
    world.read_everything();
    world.converge();
}

/// A write that waits for an earlier one is not begun once the last superblock is asked for.
#[test]
fn no_write_begins_after_the_last_superblock() {
    let mut world = touched();
    world.hold(FAST, What::Writes);
    world.hold(SLOW, What::Writes);
    world.submit(Operation::Write, USED, false);
    let behind = world.submit(Operation::Write, USED, false);
    world.wait(MILLISECOND);
    begin_close(&mut world, 0);
    for leg in [FAST, SLOW] {
        world.hold(leg, What::Metadata);
    }
    world.wait(10 * MILLISECOND);
    for leg in [FAST, SLOW] {
        world.let_come(leg);
        for id in world.ids(leg, What::Writes) {
            world.land(id);
        }
    }
    world.wait(MILLISECOND);
    assert!(world.has_failed(behind), "it is refused: the volume is closing");
    end_close(&mut world);
    world.crash(Some(Cache::Kept), |_| Landing::Not);
    world.open(&[FAST, SLOW]).expect("the pages tell");
    world.read_everything();
    world.converge();
}

/// No superblock says that the volume is open. A close refuses what waits for that.
#[test]
fn a_close_while_the_volume_opens_serves_nothing() {
    for ledger in [true, false] {
        let new = if ledger { World::with_ledger } else { World::new };
        let mut world = new(1, 2, calm());
        world.crash(None, |_| Landing::Not);
        for leg in [FAST, SLOW] {
            world.hold(leg, What::Metadata);
        }
        world.open(&[FAST, SLOW]).expect("nothing is wrong");
        let write = world.submit(Operation::Write, USED, false);
        world.wait(MILLISECOND);
        assert!(!world.is_answered(write));
        begin_close(&mut world, SECOND);
        world.wait(10 * MILLISECOND);
        assert!(world.has_failed(write));
        assert!(world.in_flight(FAST, What::Writes).is_empty());
        for leg in [FAST, SLOW] {
            world.release(leg);
        }
        end_close(&mut world);
        assert!(!ledger || is_retired(&world));
        world.crash(None, |_| Landing::Not);
        world.machine.ledger = None;
        world.open(&[FAST, SLOW]).expect("the volume is closed");
        world.read_everything();
    }
}

/// Both sessions drop with the last superblock in flight. It waits for them as it did before, and where none is
/// back in time the ledger stays.
#[test]
fn a_stop_does_not_end_when_no_leg_has_the_last_superblock() {
    for comes_back in [true, false] {
        let mut world = touched();
        world.flush();
        begin_close(&mut world, SECOND);
        while !world.is_told(FAST) {
            let until = world.now + SECOND;
            world.step(until);
        }
        for leg in [FAST, SLOW] {
            world.event(leg, LegEvent::Gone { removed: false });
            world.abort(leg, |_| Some(Landing::Not));
        }
        world.wait(SECOND);
        assert!(!world.closed, "no leg knows of it");
        if comes_back {
            for leg in [FAST, SLOW] {
                world.event(leg, LegEvent::Back);
            }
        }
        end_close(&mut world);
        assert_eq!(is_retired(&world), comes_back);
        world.crash(None, |_| Landing::Not);
        world.open(&[FAST, SLOW]).expect("the ledger is there, or not needed");
        world.read_everything();
    }
}

/// No leg gets the page of a move written in time. No superblock says that the pages tell.
#[test]
fn a_stop_without_a_page_tells_no_leg_to_go_by_the_pages() {
    let mut world = touched();
    world.behaviour[SLOW].unwritable = Extent::new(2048, 1 << 20);
    world.behaviour[FAST].unwritable = Extent::new(2048, 1 << 20);
    world.hold(FAST, What::Writes);
    let write = world.submit(Operation::Write, USED, false);
    world.wait(3 * MILLISECOND);
    assert!(world.is_answered(write), "by the ledger");
    world.release(FAST);
    begin_close(&mut world, 0);
    end_close(&mut world);
    assert!(!is_retired(&world), "a move is in the ledger alone");
    world.crash(None, |_| Landing::Not);
    world.behaviour[SLOW].unwritable = Extent::default();
    world.behaviour[FAST].unwritable = Extent::default();
    world.open(&[FAST, SLOW]).expect("the ledger tells");
    world.read_everything();
}
