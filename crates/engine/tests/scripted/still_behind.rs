//! A leg that is behind, and what is in flight for it: what others may rely on meanwhile.

use crate::world::landing::Landing;
use crate::world::script::What;
use crate::world::{REGION_BYTES, World, calm, steady_legs};
use hemi_engine::command::Command;
use hemi_engine::identifiers::LegIndex;
use hemi_engine::io::{LegEvent, Notice, Operation};
use hemi_engine::settings::Settings;
use hemi_units::{Extent, MILLISECOND, SECOND};
use hemi_world::disk::Cache;

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;
/// The number of sectors of a region.
const REGION: u64 = REGION_BYTES / 512;

/// Returns settings in which a leg with I/O in flight does not soon count as frozen, and a region is read in
/// one piece to be given to another leg.
fn patient() -> Settings {
    Settings {
        wait_floor: 100 * SECOND,
        wait_ceiling: 100 * SECOND,
        drain_bytes: REGION_BYTES as u32,
        copies_reserve: u64::MAX,
        ..calm()
    }
}

/// A alone is whole for a clean region, and what B lacks there is in flight to it.
#[test]
fn a_leg_is_not_out_while_what_it_alone_has_is_in_flight_to_another() {
    let mut world = steady_legs(2, Settings { clean_after: 100 * MILLISECOND, ..patient() });
    world.hold(B, What::Writes);
    world.write(0, 8);
    world.wait(SECOND);
    let entry = world.recorded(0);
    assert!(!entry.is_dirty() && !entry.is_whole(LegIndex(B as u8)), "{entry:?}");
    world.event(A, LegEvent::Gone { removed: true });
    world.abort(A, |_| Some(Landing::Not));
    for _ in 0..500 {
        world.wait(MILLISECOND);
        assert!(!world.is_told(B), "B does not have it yet");
    }
    world.release(B);
    world.wait(SECOND);
    assert_eq!(world.engine().lost_extents(), []);
    let read = world.read(0, 8);
    assert!(!world.has_failed(read), "B has it");
}

/// Returns a world of `legs` legs in which B owes regions, which have to be read for it.
fn being_read(legs: usize) -> World {
    let mut world = steady_legs(legs, patient());
    for region in 0..4 {
        world.write(region * REGION, 8);
    }
    world.wait(MILLISECOND);
    assert_eq!(world.recorded(0).authority().index(), A);
    for leg in (0..legs).filter(|&leg| leg != B) {
        world.hold(leg, What::Reads);
    }
    world.lose_leg(B, Cache::Dropped);
    world.event(B, LegEvent::Back);
    world
}

#[test]
fn a_leg_is_not_detached_while_what_it_lacks_is_being_read() {
    let mut world = being_read(2);
    let (now, leg) = (world.now, LegIndex(B as u8));
    world.engine().command(now, 9, Command::Detach { leg });
    world.take_actions();
    world.wait(SECOND);
    assert_eq!(world.commands.get(&9), None);
    world.release(A);
    world.wait(SECOND);
    assert_eq!(world.commands.get(&9), Some(&Ok(())));
    assert_eq!(world.disks[A].contents(), world.disks[B].contents());
}

/// B does not have what C lacks, though nothing says since when.
#[test]
fn a_leg_that_owes_whole_regions_makes_no_write_less_exposed() {
    let mut world = being_read(3);
    assert!(world.status().legs[B].owed_region_bytes > REGION_BYTES, "one is not yet read");
    world.hold(C, What::Writes);
    for region in [1, 2, 3] {
        world.write(region * REGION + 64, 8);
    }
    world.wait(SECOND);
    assert!(world.status().exposure_age > SECOND / 2, "{}", world.status().exposure_age);
}

/// B has drained a region and not flushed. Another region of the page moves to it, and a power cut takes what
/// it had not flushed.
#[test]
fn an_armed_region_is_not_carried_to_a_leg_that_has_not_flushed_it() {
    let settings = Settings { clean_after: 100 * MILLISECOND, resync_bytes: 64 << 20, ..calm() };
    let mut world = steady_legs(2, Settings { dirty_regions_max: 64, ..settings });
    world.event(B, LegEvent::Gone { removed: false });
    world.write(REGION, 8);
    world.wait(SECOND);
    world.flush();
    world.hold(B, What::Flushes);
    world.event(B, LegEvent::Back);
    world.wait(10 * MILLISECOND);
    world.write(0, 8);
    world.hold(A, What::Anything);
    world.submit(Operation::Write, Extent::new(0, 8), false);
    world.wait(60 * MILLISECOND);
    world.crash(Some(Cache::Dropped), |_| Landing::Not);
    world.open(&[A, B]).expect("both are there");
    world.read_everything();
    world.converge();
}

const REGIONS: u64 = 14;
/// The last region.
const LAST: Extent = Extent { start: (REGIONS - 1) * REGION, end: REGIONS * REGION };

/// Returns a world in which B owes many regions as a whole, and a write to the last of them, in flight to A
/// alone.
fn writing_to_one_leg() -> (World, u64) {
    let settings = Settings { clean_after: 100 * MILLISECOND, dirty_regions_max: 64, ..patient() };
    let mut world = steady_legs(2, settings);
    world.event(B, LegEvent::Gone { removed: false });
    for region in 0..REGIONS {
        world.write(region * REGION, 8);
    }
    world.wait(SECOND);
    world.hold(A, What::Reads);
    world.hold(A, What::Writes);
    world.event(B, LegEvent::Back);
    let mut last = 0;
    for region in 0..REGIONS {
        last = world.submit(Operation::Write, Extent::new(region * REGION, 8), false);
    }
    world.wait(MILLISECOND);
    assert!(
        world.is_in_flight(A, What::Writes, LAST) && !world.is_in_flight(B, What::Writes, LAST)
    );
    (world, last)
}

/// The regions are lost with A. B gets the writes, and were one in its cache alone when the list names it no
/// more, a power cut would bring back what was there before.
#[test]
fn a_write_over_what_is_lost_meanwhile_waits_for_a_flush() {
    let (mut world, write) = writing_to_one_leg();
    world.hold(B, What::Flushes);
    world.event(A, LegEvent::Gone { removed: true });
    world.abort(A, |_| Some(Landing::Not));
    assert!(world.notices.contains(&Notice::Lost { extent: LAST }));
    world.wait(2 * SECOND);
    assert_ne!(world.disks[B].contents()[LAST.start as usize], 0, "B has the write");
    assert!(!world.is_answered(write), "it is in a cache alone");
    world.release(B);
    world.wait(SECOND);
    assert!(world.is_answered(write) && !world.has_failed(write));
}

#[test]
fn a_write_fails_that_the_only_leg_it_was_sent_to_fails() {
    let (mut world, write) = writing_to_one_leg();
    let start = world.data_start() + LAST.start;
    let on_a = world.in_flight(A, What::Writes);
    let failing = on_a.iter().find(|p| p.io.extent.start == start).expect("it is there").io.id;
    world.fail(failing);
    world.wait(MILLISECOND);
    assert!(world.has_failed(write));
}
