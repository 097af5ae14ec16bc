//! The list of what is lost, and the metadata that has to be durable before a leg is out or decides
//! anything.

use crate::world::landing::Landing;
use crate::world::script::What;
use crate::world::{LONG, REGION_BYTES, SECTORS, World, calm, steady_legs};
use hemi_engine::command::Command;
use hemi_engine::identifiers::{IoId, LegIndex};
use hemi_engine::io::{LegEvent, Operation};
use hemi_engine::recovery::{self, LegImage};
use hemi_engine::settings::Settings;
use hemi_engine::status::LegState;
use hemi_units::{Extent, MICROSECOND, MILLISECOND, SECOND};
use hemi_world::disk::Cache;

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;
/// The number of sectors of a region.
const REGION: u64 = REGION_BYTES / 512;
/// The slots of the lost list on a leg, in sectors.
const LISTS: Extent = Extent { start: 256, end: 272 };

/// Returns settings in which a leg with writes in flight does not soon count as frozen.
fn patient() -> Settings {
    Settings { wait_floor: 10 * SECOND, wait_ceiling: 10 * SECOND, ..calm() }
}

/// Returns the metadata writes in flight to a leg that are not of the lost list.
fn beside_the_list(world: &World, leg: usize) -> Vec<IoId> {
    let writes = world.in_flight(leg, What::Metadata);
    writes.iter().filter(|p| !p.io.extent.overlaps(LISTS)).map(|p| p.io.id).collect()
}

/// Ends metadata writes to a leg but those of the list for a while. Returns true if it is told of a
/// superblock meanwhile.
fn is_told_before_the_list(world: &mut World, leg: usize) -> bool {
    for _ in 0..300 {
        world.wait(MILLISECOND);
        if world.is_told(leg) {
            return true;
        }
        for id in beside_the_list(world, leg) {
            world.land(id);
        }
    }
    false
}

/// Returns a world in which B decides and has lost its cache, and A alone has what B lost. Another part of the
/// region is in flight to A, which is to be removed.
fn with_a_loss_to_come() -> World {
    // Debts keep no copy.
    let mut world = steady_legs(2, Settings { copies_reserve: u64::MAX, ..patient() });
    world.steady(A, 200 * MICROSECOND);
    world.steady(B, 50 * MICROSECOND);
    for _ in 0..100 {
        world.write(REGION, 8);
    }
    world.wait(SECOND);
    world.write(REGION, 8);
    world.flush();
    assert_eq!(world.recorded(1).authority().index(), B);
    world.write(REGION, 8);
    world.wait(MILLISECOND);
    // A lacks this, so it does not take over.
    world.hold(A, What::Anything);
    world.write(REGION + 16, 8);
    world.lose_leg(B, Cache::Dropped);
    world.event(B, LegEvent::Back);
    world
}

/// B decides, has lost its cache, and A is gone for good with what B lost. No region moves. Were A out
/// before B's list says so, a start after a kill would serve what B had before.
#[test]
fn a_leg_is_not_out_before_the_list_of_what_it_takes_along_is_durable() {
    let mut world = with_a_loss_to_come();
    world.hold(B, What::Metadata);
    assert_eq!(world.status().legs[A].authority_regions, 0, "nothing moves off it");
    world.event(A, LegEvent::Gone { removed: true });
    world.abort(A, |_| Some(Landing::Not));
    assert!(!is_told_before_the_list(&mut world, B), "the list comes first");
    world.release(B);
    world.wait(SECOND);
    world.crash(None, |_| Landing::Whole);
    world.open(&[B]).expect("A is out");
    let read = world.read(REGION, 8);
    assert!(world.has_failed(read), "it is known to be lost");
}

/// The newest page is durable only on the leg that is detached. It is told to the other before that
/// decides alone.
#[test]
fn a_page_that_only_the_leg_that_leaves_has_does_not_go_before_its_leave() {
    let mut world = steady_legs(2, Settings { clean_after: 100 * MILLISECOND, ..patient() });
    world.write(0, 8);
    world.flush();
    world.hold(A, What::Metadata);
    world.wait(3 * SECOND);
    assert!(!world.recorded(0).is_dirty(), "only B has that page");
    let (now, leg) = (world.now, LegIndex(B as u8));
    world.engine().command(now, 9, Command::Detach { leg });
    world.take_actions();
    for _ in 0..100 {
        world.wait(MILLISECOND);
        assert!(!world.is_told(A), "the page comes first");
    }
    world.release(A);
    world.wait(SECOND);
    assert_eq!(world.commands.get(&9), Some(&Ok(())));
    world.submit(Operation::Flush, Extent::default(), false);
    world.read_everything();
}

/// B lacks what A takes along, and C, which is silent, has it.
#[test]
fn what_a_silent_leg_may_have_is_not_lost_with_another() {
    // Debts keep no copy.
    let mut world = steady_legs(3, Settings { copies_reserve: u64::MAX, ..calm() });
    world.write(0, 8);
    world.wait(MILLISECOND);
    world.hold(B, What::Writes);
    world.write(0, 8);
    world.wait(MILLISECOND);
    world.hold(A, What::Reads);
    world.hold(C, What::Anything);
    let missed = world.only(B, What::Writes);
    world.fail(missed);
    world.submit(Operation::Write, Extent::new(REGION, 8), false);
    world.release(B);
    world.wait(LONG);
    assert_eq!(world.status().legs[C].state, LegState::Frozen);
    world.event(A, LegEvent::Gone { removed: true });
    world.abort(A, |_| Some(Landing::Not));
    world.wait(SECOND);
    assert_eq!(world.engine().lost_extents(), []);
    world.release(C);
    world.wait(SECOND);
    let read = world.read(0, 8);
    assert!(!world.has_failed(read), "C has it");
}

/// A part of the request was on A alone, and is lost with it before the rest is written.
#[test]
fn a_request_fails_when_a_part_that_was_done_is_lost() {
    let mut world = steady_legs(2, Settings { copies_reserve: u64::MAX, ..calm() });
    world.write(0, 8);
    world.write(REGION, 8);
    world.flush();
    for leg in [A, B] {
        world.hold(leg, What::Writes);
    }
    let write = world.submit(Operation::Write, Extent::new(REGION - 8, 16), false);
    let first = Extent::new(world.data_start() + REGION - 8, 8);
    let part = |world: &World, leg: usize| {
        let writes = world.in_flight(leg, What::Writes);
        writes.iter().find(|p| p.io.extent == first).map(|p| p.io.id).expect("it is in flight")
    };
    let (on_a, on_b) = (part(&world, A), part(&world, B));
    world.land(on_a);
    world.fail(on_b);
    world.hold(A, What::Reads);
    world.event(A, LegEvent::Gone { removed: true });
    world.abort(A, |_| Some(Landing::Not));
    world.release(B);
    world.wait(SECOND);
    assert_eq!(world.engine().lost_extents(), [Extent::new(REGION - 8, 8)]);
    assert!(world.has_failed(write), "a part of it is lost");
}

/// The list of what is lost is full, and a write would make a hole in it. It fails once no leg is writing it
/// any more.
#[test]
fn a_write_that_the_list_has_no_room_for_fails_when_its_last_io_has_ended() {
    const LOST: u64 = 246;
    let settings = Settings { copies_reserve: u64::MAX, owed_extents_max: 1000, ..patient() };
    let mut world = steady_legs(3, settings);
    world.write(0, SECTORS);
    world.flush();
    for leg in [B, C] {
        world.hold(leg, What::Writes);
    }
    // The first few are in flight.
    let first = u64::from(settings.leg_window);
    for piece in 0..first + LOST {
        world.write(8 * piece, 3);
    }
    world.event(A, LegEvent::Gone { removed: true });
    world.abort(A, |_| Some(Landing::Not));
    world.release(B);
    world.release(C);
    world.wait(SECOND);
    assert_eq!(world.engine().lost_extents().len() as u64, LOST);
    world.write(8 * first - 8, 1);
    let other = B + C - world.recorded(0).authority().index();
    world.hold(other, What::Writes);
    let hole = world.submit(Operation::Write, Extent::new(8 * first + 1, 1), false);
    world.wait(SECOND);
    assert!(!world.is_answered(hole), "it is in flight to one");
    world.release(other);
    world.wait(SECOND);
    assert!(world.has_failed(hole));
    world.read_everything();
}

/// Ends metadata writes to a leg but those of the list for some milliseconds.
fn end_all_but_the_list(world: &mut World, leg: usize, milliseconds: u64) {
    for _ in 0..milliseconds {
        world.wait(MILLISECOND);
        for id in beside_the_list(world, leg) {
            world.land(id);
        }
    }
}

/// C was removed with what it alone had, B's list does not say so yet, and hemi was killed. C is there again
/// at the next start. B gets what A has of the region, and by its own records it must not be whole before its
/// list names the loss.
#[test]
fn a_leg_is_not_whole_before_it_knows_what_was_lost_before_the_start() {
    let settings = Settings { copies_reserve: u64::MAX, clean_after: SECOND, ..patient() };
    let mut world = steady_legs(3, settings);
    world.steady(C, 50 * MICROSECOND);
    for leg in [A, B] {
        world.steady(leg, 200 * MICROSECOND);
    }
    for _ in 0..100 {
        world.write(REGION, 8);
    }
    world.wait(SECOND);
    world.write(REGION, 8);
    world.flush();
    assert_eq!(world.recorded(1).authority().index(), C);
    for leg in [A, B] {
        world.hold(leg, What::Writes);
    }
    world.hold(B, What::Metadata);
    world.submit(Operation::Write, Extent::new(REGION, 8), false);
    end_all_but_the_list(&mut world, B, 10);
    for leg in [A, B] {
        let missed = world.only(leg, What::Writes);
        world.fail(missed);
    }
    world.event(C, LegEvent::Gone { removed: true });
    world.abort(C, |_| Some(Landing::Not));
    world.release(A);
    world.release_kind(B, What::Writes);
    end_all_but_the_list(&mut world, B, 1000);
    let lost = Extent::new(REGION, 8);
    assert_eq!(world.engine().lost_extents(), [lost]);
    world.crash(None, |_| Landing::Not);
    world.open(&[A, B, C]).expect("all are in");
    world.hold(B, What::Metadata);
    end_all_but_the_list(&mut world, B, 6000);
    let image = LegImage { bytes: &world.disks[B].metadata };
    let promotion = recovery::promote(image, [5; 16]).expect("it can be promoted");
    let mut doubted = promotion.lacks.iter().chain(&promotion.uncertain);
    assert!(doubted.any(|extent| extent.contains(lost)), "nothing tells that B lacks {lost:?}");
    world.crash(None, |_| Landing::Not);
}
