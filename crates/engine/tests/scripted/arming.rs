//! Armed regions: they are dirty in their page although every whole leg has flushed all writes to
//! them, so that the next write needs no record first.

use crate::world::landing::Landing;
use crate::world::script::What;
use crate::world::{REGION_BYTES, SECTORS, World, calm, steady_legs};
use hemi_engine::command::{Command, ScrubRepair};
use hemi_engine::identifiers::LegIndex;
use hemi_engine::io::{LegEvent, Operation};
use hemi_engine::settings::Settings;
use hemi_units::{Extent, MILLISECOND, SECOND};
use hemi_world::disk::Cache;

const A: usize = 0;
const B: usize = 1;
/// The number of sectors of a region.
const REGION: u64 = REGION_BYTES / 512;
const REGIONS: u64 = SECTORS / REGION;

/// Returns settings under which regions settle soon, and `regions` of them may stay dirty.
fn arming(regions: u64) -> Settings {
    Settings {
        resync_bytes: regions * REGION_BYTES,
        dirty_regions_max: 64,
        clean_after: 100 * MILLISECOND,
        ..calm()
    }
}

/// Returns the number of records that writes have waited for.
fn records(world: &mut World) -> u64 {
    world.status().regions_dirtied
}

fn is_dirty(world: &World) -> Vec<u64> {
    (0..REGIONS).filter(|&region| world.recorded(region as usize).is_dirty()).collect()
}

#[test]
fn one_record_arms_the_page() {
    let mut world = steady_legs(2, arming(REGIONS));
    for region in 0..REGIONS {
        world.write(region * REGION, 8);
    }
    assert_eq!(records(&mut world), 1, "the first write's record arms all regions of the page");
    assert_eq!(is_dirty(&world).len() as u64, REGIONS);
    world.flush();
    world.crash(Some(Cache::Dropped), |_| Landing::Not);
    world.open(&[A, B]).expect("both legs are there");
    world.read_everything();
    world.converge();
}

#[test]
fn an_idle_region_settles_and_the_next_write_pays_no_record() {
    let mut world = steady_legs(2, arming(REGIONS));
    world.write(0, 8);
    world.converge();
    let status = world.status();
    assert_eq!(status.armed_regions, status.dirty_regions);
    let before: Vec<u64> = status.legs.iter().map(|leg| leg.metadata_writes).collect();
    for _ in 0..10 {
        world.write(0, 8);
        world.converge();
    }
    let after: Vec<u64> = world.status().legs.iter().map(|leg| leg.metadata_writes).collect();
    assert_eq!(after, before, "no page has been written since");
}

#[test]
fn without_room_to_arm_an_idle_region_becomes_clean() {
    let mut world = steady_legs(2, arming(0));
    world.write(0, 8);
    world.converge();
    assert_eq!(world.status().dirty_regions, 0);
    world.write(0, 8);
    assert_eq!(records(&mut world), 2);
}

#[test]
fn no_more_regions_stay_dirty_than_may_be_compared() {
    let mut world = steady_legs(2, arming(8));
    for region in 0..REGIONS {
        world.write(region * REGION, 8);
        world.wait(150 * MILLISECOND);
        let dirty = world.status().dirty_regions;
        assert!(dirty <= 8, "{dirty} regions are dirty after a write to region {region}");
    }
    world.converge();
    world.crash(None, |_| Landing::Whole);
    let dirty = is_dirty(&world);
    assert!(dirty.len() <= 8, "{dirty:?} are dirty on the legs");
}

/// The least recently used regions make room, not those in use.
#[test]
fn the_least_recently_used_becomes_clean() {
    let mut world = steady_legs(2, arming(8));
    for round in 0..4 {
        for region in [0, 1, 6 + 3 * round] {
            world.write(region * REGION, 8);
            world.converge();
        }
    }
    let before = records(&mut world);
    world.write(0, 8);
    world.write(REGION, 8);
    assert_eq!(records(&mut world), before, "regions 0 and 1 are used all the time");
}

/// A leg that has just drained a region may have it only in its cache, so it is no authority there.
#[test]
fn only_regions_for_which_a_leg_is_whole_are_armed_under_it() {
    let mut world = steady_legs(2, arming(0));
    world.write(0, 8);
    world.converge();
    // B misses the write to region 1, which becomes clean without it.
    world.hold(B, What::Writes);
    world.write(REGION, 8);
    world.wait(600 * MILLISECOND);
    assert!(!world.recorded(1).is_whole(LegIndex(B as u8)), "region 1 is clean without B");
    world.crash(Some(Cache::Kept), |p| {
        if p.io.leg.index() == B { Landing::Not } else { Landing::Whole }
    });
    // B gets it from A, and is not flushed for it.
    world.settings = arming(REGIONS);
    world.open(&[A, B]).expect("both legs are there");
    world.hold(B, What::Flushes);
    world.wait(50 * MILLISECOND);
    assert_eq!(world.status().legs[B].owed_bytes, 0, "B has drained");
    // A is away, so B decides the next writes.
    world.lose_leg(A, Cache::Kept);
    world.submit(Operation::Write, Extent::new(4 * REGION, 8), false);
    world.wait(60 * MILLISECOND);
    assert!(world.recorded(4).is_dirty(), "B decides region 4");
    let entry = world.recorded(1);
    let decides = entry.is_dirty() && entry.authority().index() == B;
    assert!(!decides, "B decides region 1, which it may have in its cache alone");
    world.event(A, LegEvent::Back);
    world.release(B);
    world.run_until_answered(SECOND);
    world.converge();
}

/// A region armed under a leg that leaves gets another authority before the leave is recorded.
#[test]
fn a_leg_that_leaves_decides_no_armed_region() {
    let mut world = steady_legs(2, arming(REGIONS));
    world.write(0, 8);
    world.converge();
    let authority = world.recorded(0).authority();
    assert_eq!(world.command(Command::Detach { leg: authority }), Ok(()));
    let other = 1 - authority.index();
    world.write(REGION, 8);
    world.crash(Some(Cache::Kept), |_| Landing::Whole);
    world.open(&[other]).expect("the other leg decides alone");
    world.read_everything();
}

/// A volume that was closed has no dirty region, armed or not.
#[test]
fn closing_leaves_nothing_armed() {
    let mut world = steady_legs(2, arming(REGIONS));
    world.write(0, 8);
    world.converge();
    world.write(3 * REGION, 8);
    world.close();
    assert!(is_dirty(&world).is_empty());
    assert!(world.recovered().clean);
}

/// The repair of an unreadable block goes to the authority of an armed region, and a write comes
/// before another leg has been given the region. The authority must not decide it.
#[test]
fn an_authority_that_is_being_repaired_takes_no_write_without_a_record() {
    let mut world = steady_legs(2, arming(REGIONS));
    world.write(0, 8);
    world.converge();
    let authority = world.recorded(0).authority().index();
    world.hold(authority, What::Reads);
    let read = world.submit(Operation::Read, Extent::new(0, 8), false);
    world.wait(MILLISECOND);
    let reading = world.only(authority, What::Reads);
    // The write waits for the read, and goes on as soon as the other leg has answered that.
    let write = world.submit(Operation::Write, Extent::new(4, 8), false);
    world.fail(reading);
    world.run_until_answered(SECOND);
    assert!(world.is_answered(read) && world.is_answered(write));
    world.release(authority);
    world.converge();
    world.read_everything();
}

/// Returns settings in which a leg with writes in flight does not soon count as frozen.
fn patient(regions: u64) -> Settings {
    Settings { wait_floor: 100 * SECOND, wait_ceiling: 100 * SECOND, ..arming(regions) }
}

/// Has a block of a region fail to be read from a leg, which gets it back only once its writes are
/// released.
fn find_unreadable(world: &mut World, leg: usize, region: u64) {
    let bad = Extent::new(region * REGION + 32, 8);
    world.behaviour[leg].unreadable = Extent::new(world.data_start() + bad.start, bad.sectors());
    world.hold(leg, What::Writes);
    world
        .command(Command::Scrub { extent: bad, repair: ScrubRepair::Unreadable })
        .expect("it is begun");
    world.wait(10 * MILLISECOND);
    assert!(world.status().legs[leg].owed_bytes > 0, "it is being repaired");
}

/// It would be believed after an unclean stop, though it cannot be read.
#[test]
fn no_region_is_armed_under_a_leg_that_is_being_repaired_there() {
    let mut world = steady_legs(2, patient(REGIONS));
    find_unreadable(&mut world, A, 1);
    world.submit(Operation::Write, Extent::new(0, 8), false);
    world.wait(MILLISECOND);
    let entry = world.recorded(0);
    assert!(entry.is_dirty() && entry.authority().index() == A, "{entry:?}");
    assert!(world.recorded(2).is_dirty(), "others are armed along with it");
    assert!(!world.recorded(1).is_dirty(), "A cannot be read there");
}

#[test]
fn an_armed_region_is_not_carried_to_a_leg_that_is_being_repaired_there() {
    let mut world = steady_legs(2, patient(REGIONS));
    world.write(0, 8);
    world.converge();
    assert_eq!(world.recorded(1).authority().index(), A);
    find_unreadable(&mut world, B, 1);
    world.event(A, LegEvent::Gone { removed: false });
    world.submit(Operation::Write, Extent::new(0, 8), false);
    world.wait(10 * MILLISECOND);
    assert_eq!(world.recorded(0).authority().index(), B);
    assert_eq!(world.recorded(2).authority().index(), B, "others go along");
    assert_eq!(world.recorded(1).authority().index(), A);
}

/// A region that was dirty at an unclean stop is not armed: it has just been compared, and need not be again.
#[test]
fn a_region_found_dirty_becomes_clean() {
    let mut world = steady_legs(2, arming(REGIONS));
    world.write(0, 8);
    world.crash(None, |_| Landing::Whole);
    world.open(&[A, B]).expect("both legs are there");
    world.converge();
    world.wait(SECOND);
    assert!(is_dirty(&world).is_empty());
}
