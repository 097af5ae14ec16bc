//! After an unclean stop the authority of a region is gone for good before any leg has been
//! compared with it. The engine halts, and records nothing as lost.

use crate::world::landing::Landing;
use crate::world::script::What;
use crate::world::{REGION_BYTES, World, calm, settings};
use hemi_engine::identifiers::LegIndex;
use hemi_engine::io::{LegEvent, Notice, OutReason};
use hemi_engine::settings::Settings;
use hemi_units::{Extent, Instant, MILLISECOND, SECOND};
use hemi_world::disk::Cache;

const FAST: usize = 0;
const SLOW: usize = 1;
/// The number of sectors of a region.
const REGION: u64 = REGION_BYTES / 512;

/// Opens a volume after a kill with three dirty regions. The slow leg cannot be compared there,
/// since it answers no read.
fn uncompared(world: World) -> World {
    uncompared_in(world, 3, &[SLOW])
}

/// Opens a volume after a kill with `regions` dirty regions, decided by the fast leg. The legs
/// `others` answer no read.
fn uncompared_in(mut world: World, regions: u64, others: &[usize]) -> World {
    world.steady(FAST, 50_000);
    for &other in others {
        world.steady(other, 100_000);
    }
    for region in 0..regions {
        world.write(region * REGION, 8);
    }
    world.wait(MILLISECOND);
    world.crash(None, |_| Landing::Whole);
    for &other in others {
        world.hold(other, What::Reads);
    }
    let all: Vec<usize> = [FAST].into_iter().chain(others.iter().copied()).collect();
    world.open(&all).expect("all legs are there");
    world.wait(5 * MILLISECOND);
    world
}

fn remove_fast(world: &mut World) {
    world.event(FAST, LegEvent::Gone { removed: true });
    world.abort(FAST, |_| Some(Landing::Not));
}

fn halts(world: &World) -> Vec<(LegIndex, u32)> {
    let halted = |notice: &Notice| match notice {
        Notice::Halted { leg, regions } => Some((*leg, *regions)),
        _ => None,
    };
    world.notices.iter().filter_map(halted).collect()
}

fn lost(world: &World) -> Vec<Extent> {
    let lost = |notice: &Notice| match notice {
        Notice::Lost { extent } => Some(*extent),
        _ => None,
    };
    world.notices.iter().filter_map(lost).collect()
}

#[test]
fn what_has_not_been_compared_is_not_lost_with_its_authority() {
    for mut world in [World::new(1, 2, settings()), World::with_ledger(1, 2, settings())] {
        world = uncompared(world);
        remove_fast(&mut world);
        assert_eq!(halts(&world), [(LegIndex(FAST as u8), 3)]);
        assert_eq!(lost(&world), []);
        assert!(world.engine().is_halted());
        // The device is back, and all is there.
        world.crash(None, |_| Landing::Not);
        world.open(&[FAST, SLOW]).expect("nothing has been recorded");
        world.release(SLOW);
        world.read_everything();
        world.converge();
    }
}

/// The removed leg takes regions with it that another leg has, and would decide.
#[test]
fn a_halt_leaves_the_ledger_as_it_was() {
    let mut world = uncompared(World::with_ledger(1, 2, settings()));
    world.write(5 * REGION, 8);
    world.wait(5 * MILLISECOND);
    let kept = |world: &World| world.machine.ledger.as_ref().map(|ledger| ledger.bytes());
    let before = kept(&world);
    remove_fast(&mut world);
    assert_eq!(halts(&world).len(), 1);
    assert!(kept(&world) == before, "the next start finds what the halted engine concluded");
}

/// The leg that is to be compared keeps its bit, or the operator could not let it decide.
#[test]
fn a_region_does_not_settle_before_it_is_compared() {
    // The leg that answers no read does not count as frozen meanwhile.
    let patient = Settings { wait_floor: 10 * SECOND, wait_ceiling: 10 * SECOND, ..settings() };
    let mut world = uncompared(World::new(1, 2, patient));
    world.wait(2 * SECOND);
    let entry = world.recorded(0);
    assert!(entry.is_dirty() && entry.is_whole(LegIndex(SLOW as u8)));
    remove_fast(&mut world);
    assert_eq!(halts(&world), [(LegIndex(FAST as u8), 3)]);
}

/// A halted engine is as after a kill: it answers nobody and asks nothing of a leg.
#[test]
fn an_engine_that_has_halted_does_nothing() {
    let mut world = uncompared(World::new(1, 2, settings()));
    world.hold(FAST, What::Reads);
    let read = world.submit(hemi_engine::io::Operation::Read, Extent::new(0, 8), false);
    remove_fast(&mut world);
    let under_way = world.pending.len();
    world.release(SLOW);
    world.event(FAST, LegEvent::Back);
    let now = world.now;
    world.engine().tick(now);
    world.take_actions();
    assert_eq!(world.engine().deadline(), Instant::NEVER);
    assert!(!world.is_answered(read));
    assert!(world.pending.len() <= under_way);
    assert_eq!(halts(&world).len(), 1);
}

/// The operator lets the other leg decide.
#[test]
fn another_leg_can_be_promoted_after_a_halt() {
    let mut world = uncompared(World::new(1, 2, settings()));
    remove_fast(&mut world);
    world.crash(None, |_| Landing::Not);
    assert!(world.open(&[SLOW]).is_err(), "the other leg is in, and missing");
    world.promote(SLOW);
    world.open(&[SLOW]).expect("it decides alone");
    world.release(SLOW);
    for region in 0..3 {
        let read = world.read(region * REGION, 8);
        assert!(!world.has_failed(read), "it has what was written");
    }
}

/// Another leg has been compared, and comes to owe all of the regions again, since it loses its
/// cache. They are lost with the authority, and the volume goes on.
#[test]
fn what_has_been_compared_is_halted_for_no_more() {
    let mut world = uncompared(World::new(1, 2, Settings { copies_reserve: u64::MAX, ..calm() }));
    world.release(SLOW);
    world.wait(SECOND);
    assert_eq!(world.status().legs[SLOW].owed_bytes, 0, "it has been compared");
    world.write(0, 8);
    world.write(2, 4);
    world.wait(MILLISECOND);
    world.lose_leg(SLOW, Cache::Dropped);
    world.hold(SLOW, What::Writes);
    world.event(SLOW, LegEvent::Back);
    assert_eq!(world.status().legs[SLOW].owed_region_bytes, 3 * REGION_BYTES);
    remove_fast(&mut world);
    world.abort_held(SLOW);
    world.release(SLOW);
    world.wait(SECOND);
    assert_eq!(halts(&world), []);
    let out = Notice::Out { leg: LegIndex(FAST as u8), reason: OutReason::Removed };
    assert!(world.notices.contains(&out));
}

/// The engine does not halt for data that an authority has lost with its cache. It is lost with the
/// only other leg that had it, and the authority decides the rest of the region.
#[test]
fn what_an_authority_has_lost_since_is_halted_for_no_more() {
    // Little is compared at a time. Elsewhere the other leg takes writes.
    let settings = Settings { drain_bytes: 4096, ..settings() };
    let mut world = uncompared(World::new(1, 2, settings));
    let written = Extent::new(REGION - 8, 8);
    world.write(written.start, 8);
    world.wait(MILLISECOND);
    world.lose_leg(FAST, Cache::Dropped);
    world.wait(MILLISECOND);
    world.event(FAST, LegEvent::Back);
    world.wait(MILLISECOND);
    assert!(world.status().legs[FAST].owed_bytes > 0, "it owes what it had in its cache");
    world.event(SLOW, LegEvent::Gone { removed: true });
    world.abort(SLOW, |_| Some(Landing::Not));
    world.wait(SECOND);
    assert_eq!(halts(&world), []);
    assert!(lost(&world).contains(&written));
}

/// A region settled without the leg that was to be compared, because writers waited for a record.
/// It is now what the authority holds, and is lost with it as usual.
#[test]
fn what_has_settled_uncompared_is_halted_for_no_more() {
    // The leg that answers no read does not count as frozen meanwhile.
    let patient = Settings { wait_floor: 10 * SECOND, wait_ceiling: 10 * SECOND, ..settings() };
    let few = Settings { dirty_regions_max: 1, requests_max: 1, leg_window: 2, ..patient };
    let mut world = uncompared_in(World::new(1, 2, few), 1, &[SLOW]);
    for region in 1..6 {
        world.write(region * REGION, 8);
    }
    world.wait(SECOND);
    assert_eq!(world.recorded(0).whole(), LegIndex(FAST as u8).bit());
    remove_fast(&mut world);
    world.release(SLOW);
    world.wait(SECOND);
    assert_eq!(halts(&world), []);
    let sectors: u64 = lost(&world).iter().map(|extent| extent.sectors()).sum();
    assert!(sectors > 0, "what had not been read of it yet is lost");
}

/// An authority whose session has dropped may come back with all the data that no leg has been
/// compared with. That holds even if it has lost data that only the missing leg had.
#[test]
fn an_authority_that_may_come_back_is_waited_for() {
    const THIRD: usize = 2;
    let settings = Settings { drain_bytes: 4096, ..settings() };
    let mut world = uncompared_in(World::new(1, 3, settings), 1, &[SLOW, THIRD]);
    world.write(REGION - 8, 8);
    world.wait(MILLISECOND);
    world.lose_leg(FAST, Cache::Kept);
    world.event(FAST, LegEvent::Back);
    world.wait(MILLISECOND);
    world.lose_leg(FAST, Cache::Kept);
    world.wait(MILLISECOND);
    world.event(THIRD, LegEvent::Gone { removed: true });
    world.abort(THIRD, |_| Some(Landing::Not));
    world.wait(SECOND);
    assert_eq!((halts(&world), lost(&world)), (vec![], vec![]));
    world.event(FAST, LegEvent::Back);
    world.release(SLOW);
    world.wait(SECOND);
    assert_eq!(halts(&world), []);
    let read = world.read(0, 8);
    assert!(!world.has_failed(read), "the authority has it");
}

/// A leg that was not to be compared, since it was behind already, has lost what it lacks.
#[test]
fn what_no_other_leg_was_whole_for_is_lost() {
    let mut world = World::new(1, 2, settings());
    world.hold(SLOW, What::Writes);
    world.write(0, 8);
    world.wait(900 * MILLISECOND);
    world.write(0, 8);
    world.crash(Some(Cache::Kept), |p| {
        if p.io.leg.index() == SLOW { Landing::Not } else { Landing::Whole }
    });
    assert!(!world.recorded(0).is_whole(LegIndex(SLOW as u8)));
    world.hold(FAST, What::Reads);
    world.open(&[FAST, SLOW]).expect("both legs are there");
    world.wait(5 * MILLISECOND);
    remove_fast(&mut world);
    assert_eq!(halts(&world), []);
    let sectors: u64 = lost(&world).iter().map(|extent| extent.sectors()).sum();
    assert_eq!(sectors, REGION);
}
