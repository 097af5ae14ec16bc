//! Legs that die one after the other, or that take data with them which the others lack. The
//! remaining legs decide everything, and writers do not wait forever.

use crate::world::landing::Landing;
use crate::world::script::What;
use crate::world::{SECTORS, World, calm, settings};
use hemi_engine::command::Command;
use hemi_engine::identifiers::LegIndex;
use hemi_engine::io::{LegEvent, Notice, Operation, OutReason};
use hemi_engine::settings::{Limits, Settings};
use hemi_units::{Extent, MICROSECOND, MILLISECOND, SECOND};
use hemi_world::disk::Cache;

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;

fn volume(legs: usize) -> World {
    let settings = Settings {
        wait_floor: 20 * MILLISECOND,
        wait_ceiling: 20 * MILLISECOND,
        clean_after: 100 * MILLISECOND,
        out_after: SECOND,
        ..settings()
    };
    let mut world = World::new(1, legs, settings);
    for leg in 0..legs {
        world.steady(leg, 100 * MICROSECOND);
    }
    world.wait(100 * MILLISECOND);
    world
}

fn is_out(world: &World, leg: usize, reason: OutReason) -> bool {
    world.notices.contains(&Notice::Out { leg: LegIndex(leg as u8), reason })
}

/// Returns two legs that are whole for the writes. B cannot read some of them and owes those again
/// from A, which has just fallen silent.
fn unreadable_beside_a_silent_leg() -> World {
    let mut world = volume(2);
    world.write(0, 64);
    world.flush();
    world.converge();
    world.behaviour[B].unreadable = Extent::new(world.data_start() + 8, 1);
    world.steady(A, 5 * MILLISECOND);
    for _ in 0..20 {
        world.read(32, 8);
    }
    world.read(0, 16);
    world.hold(A, What::Anything);
    assert_eq!(world.in_flight(A, What::Reads).len(), 1, "B is to get it from A");
    world
}

/// B is recorded whole, but only A can give all of it.
#[test]
fn a_silent_leg_that_another_has_to_be_repaired_from_is_waited_for() {
    let mut world = unreadable_beside_a_silent_leg();
    world.wait(10 * SECOND);
    assert!(!is_out(&world, A, OutReason::Unresponsive), "no leg is whole without it");
    world.behaviour[B].unreadable = Extent::default();
    world.release(A);
    world.converge();
    world.read_everything();
    assert_eq!(world.failed_requests, 0);
}

/// The same, but the leg does not come back.
#[test]
fn what_the_last_leg_cannot_read_is_lost_with_the_one_that_could() {
    let mut world = unreadable_beside_a_silent_leg();
    world.event(A, LegEvent::Gone { removed: true });
    world.abort(A, |_| Some(Landing::Not));
    world.wait(SECOND);
    assert!(is_out(&world, A, OutReason::Removed));
    let lost = world.notices.iter().find_map(|notice| match notice {
        Notice::Lost { extent } => Some(*extent),
        _ => None,
    });
    let lost = lost.expect("what is lost is said");
    assert!(lost.start <= 8 && lost.end > 8 && lost.end <= 16, "just what was owed: {lost:?}");
    world.write(100, 8);
    for _ in 0..2 {
        let token = world.read(8, 1);
        assert!(world.has_failed(token), "nobody has it");
        let token = world.read(16, 48);
        assert!(!world.has_failed(token), "the rest is there");
        // It is known across restarts, too.
        world.crash(None, |_| Landing::Whole);
        world.open(&[B]).expect("A is out");
    }
    world.behaviour[B].unreadable = Extent::default();
    world.write(0, 16);
    let token = world.read(0, 64);
    assert!(!world.has_failed(token), "rewritten");
}

/// One leg is out for good while another is marked out and comes back again and again. In the end
/// the first is merely older, and no fork.
#[test]
fn a_leg_that_is_out_while_another_comes_and_goes_is_no_fork() {
    let mut world = volume(3);
    world.write(0, 64);
    world.flush();
    world.hold(C, What::Anything);
    world.write(0, 8);
    world.wait(3 * SECOND);
    assert!(is_out(&world, C, OutReason::Unresponsive));
    for _ in 0..70 {
        world.hold(B, What::Anything);
        world.write(0, 8);
        world.wait(2 * SECOND);
        world.let_come(B);
        world.abort_held(B);
        world.wait(4 * SECOND);
    }
    let out = Notice::Out { leg: LegIndex(B as u8), reason: OutReason::Unresponsive };
    let times = world.notices.iter().filter(|notice| **notice == out).count();
    assert!(times > 64, "marked out {times} times");
    world.crash(Some(Cache::Dropped), |_| Landing::Not);
    world.open(&[A, B, C]).expect("all are of one history");
    world.read_everything();
    world.let_come(C);
    world.converge();
}

/// Writes for this long, with at most 16 requests in flight.
fn write_for(world: &mut World, time: u64) {
    let end = world.now + time;
    while world.now < end {
        if world.requests.len() < 16 {
            let start = world.random.below(SECTORS / 32) * 32;
            world.submit(Operation::Write, Extent::new(start, 32), false);
        }
        world.wait(10 * MILLISECOND);
    }
}

/// Runs until a superblock is in flight to each of these legs.
fn until_told(world: &mut World, legs: &[usize]) {
    for _ in 0..1_000_000 {
        if legs.iter().all(|&leg| world.is_told(leg)) {
            return;
        }
        world.wait(10 * MICROSECOND);
    }
    panic!("nothing is told to legs {legs:?}");
}

/// Goes on writing until a superblock is in flight to a leg.
fn until_told_under_load(world: &mut World, leg: usize) {
    for _ in 0..1_000 {
        if world.is_told(leg) {
            return;
        }
        write_for(world, 10 * MILLISECOND);
    }
    panic!("nothing is told to leg {leg}");
}

/// Kills hemi and goes on with the legs given, which have all acknowledged data.
fn reopen(world: &mut World, legs: &[usize]) {
    world.crash(None, |_| Landing::Not);
    world.open(legs).expect("the others are out");
    world.read_everything();
}

/// Two of three legs die within a moment. The superblock that marks the first out never reaches the
/// second.
#[test]
fn two_legs_that_die_together_are_both_marked_out() {
    let mut world = volume(3);
    world.hold(A, What::Anything);
    world.write(0, 8);
    world.wait(100 * MILLISECOND);
    world.hold(B, What::Anything);
    write_for(&mut world, 5 * SECOND);
    for leg in [A, B] {
        assert!(is_out(&world, leg, OutReason::Unresponsive), "leg {leg} is out");
    }
    world.run_until_answered(SECOND);
    let before = world.now;
    for start in 0..100 {
        world.write(start * 16, 16);
    }
    assert!(world.now.since(before) < SECOND, "nobody is waited for");
    reopen(&mut world, &[C]);
}

/// The superblock that marks A out fails on C, whose session drops just then. It is written there
/// again at once. A leg that is being marked out counts for nothing, and must not stay so.
#[test]
fn a_leg_is_out_soon_though_another_was_gone_as_that_was_recorded() {
    let mut world = volume(3);
    write_for(&mut world, 200 * MILLISECOND);
    world.hold(A, What::Anything);
    world.hold(C, What::Metadata);
    until_told_under_load(&mut world, B);
    world.lose_leg(C, Cache::Kept);
    world.event(C, LegEvent::Back);
    world.release(C);
    write_for(&mut world, SECOND);
    assert!(is_out(&world, A, OutReason::Unresponsive));
    world.run_until_answered(SECOND);
    reopen(&mut world, &[B, C]);
}

/// A leg dies while another is coming in, before it has the record of that.
#[test]
fn a_leg_that_dies_while_another_comes_in_is_marked_out() {
    let mut world = volume(3);
    world.hold(C, What::Anything);
    write_for(&mut world, 2 * SECOND);
    assert!(is_out(&world, C, OutReason::Unresponsive));
    world.run_until_answered(SECOND);
    world.abort_held(C);
    world.let_come(C);
    // It drains, and the superblock that takes it in is written to the others.
    until_told(&mut world, &[A, B]);
    world.hold(A, What::Anything);
    write_for(&mut world, 5 * SECOND);
    assert!(is_out(&world, A, OutReason::Unresponsive));
    assert!(world.notices.contains(&Notice::In { leg: LegIndex(C as u8) }));
    world.run_until_answered(SECOND);
    reopen(&mut world, &[B, C]);
}

/// A leg dies as it is coming in: the volume goes on without it.
#[test]
fn a_leg_that_dies_on_its_way_in_stays_out() {
    let mut world = volume(2);
    world.hold(B, What::Anything);
    write_for(&mut world, 2 * SECOND);
    assert!(is_out(&world, B, OutReason::Unresponsive));
    world.run_until_answered(SECOND);
    world.abort_held(B);
    world.let_come(B);
    until_told(&mut world, &[A]);
    until_told(&mut world, &[B]);
    world.hold(B, What::Anything);
    world.notices.clear();
    write_for(&mut world, 5 * SECOND);
    world.run_until_answered(SECOND);
    assert!(!world.notices.contains(&Notice::In { leg: LegIndex(B as u8) }));
    reopen(&mut world, &[A]);
}

/// B is to be marked out, but A falls silent before that is on record, and B comes back. It is
/// given what it missed, and writers go on with it.
#[test]
fn a_leg_that_comes_back_is_not_marked_out_by_one_that_is_silent() {
    let mut world = volume(2);
    world.write(0, 8);
    world.hold(B, What::Anything);
    world.write(0, 8);
    world.wait(800 * MILLISECOND);
    // The region table has to be durable on A first.
    world.hold(A, What::Metadata);
    world.submit(Operation::Write, Extent::new(1024, 8), false);
    let page = Extent::new(1152, 8);
    world.submit(Operation::Write, page, false);
    world.wait(300 * MILLISECOND);
    assert!(!is_out(&world, B, OutReason::Unresponsive));
    world.hold(A, What::Anything);
    world.release(B);
    world.run_until_answered(10 * SECOND);
    world.write(0, 64);
    world.wait(2 * SECOND);
    world.write(64, 64);
    assert!(is_out(&world, A, OutReason::Unresponsive), "the other way round");
    reopen(&mut world, &[B]);
}

/// C is out and answers, B dies, and hemi is killed before A has the record of that. A and B open
/// as they were before, and the record on C makes no fork of it.
#[test]
fn a_leg_that_is_out_hears_of_nothing_that_those_that_are_in_may_not_have() {
    let mut world = volume(3);
    world.behaviour[C].full = Extent::new(world.data_start(), SECTORS);
    for round in 0..200 {
        world.write(round % 16 * 64, 16);
        world.wait(50 * MILLISECOND);
    }
    assert!(is_out(&world, C, OutReason::WriteErrors));
    world.hold(B, What::Anything);
    world.write(0, 16);
    // B is marked out.
    until_told(&mut world, &[A]);
    world.hold(A, What::Metadata);
    world.wait(300 * MILLISECOND);
    world.crash(None, |pending| match pending.io.leg.index() {
        A => Landing::Not,
        _ => Landing::Whole,
    });
    world.open(&[A, B]).expect("C is out by what A and B have recorded");
    world.write(0, 16);
    world.close();
    world.behaviour[C].full = Extent::default();
    world.open(&[A, B, C]).expect("C was never used without them");
    world.converge();
    world.read_everything();
}

/// A writer waits for a region to become clean, and all of them are decided by the leg that is to
/// leave. The detach must not wait for the writer, and both end.
#[test]
fn a_detach_does_not_wait_for_what_waits_for_a_clean_region() {
    let few = Settings { dirty_regions_max: 1, requests_max: 3, ..settings() };
    let mut world = World::new(1, 2, few);
    world.steady(A, 4 * MILLISECOND);
    world.steady(B, 60 * MICROSECOND);
    world.wait(100 * MILLISECOND);
    let region_sectors = world.shape.region_bytes / 512;
    for region in 0..7 {
        world.write(region * region_sectors, 8);
    }
    assert!(world.status().legs[B].authority_regions > 5, "the fast leg decides them");
    let waits = world.submit(Operation::Write, Extent::new(7 * region_sectors, 8), false);
    world.wait(MILLISECOND);
    assert!(!world.is_answered(waits), "as many regions are dirty as may be");
    assert_eq!(world.command(Command::Detach { leg: LegIndex(B as u8) }), Ok(()));
    assert!(world.is_answered(waits));
    assert!(is_out(&world, B, OutReason::Detached));
}

/// One of three legs lacks data for long, but the others both have it.
#[test]
fn what_two_of_three_legs_have_is_not_exposed() {
    let mut world = volume(3);
    world.hold(C, What::Writes);
    world.write(0, 8);
    world.wait(800 * MILLISECOND);
    assert!(world.status().legs[C].owed_bytes > 0);
    assert_eq!((world.status().exposure_bytes, world.status().exposure_age), (0, 0));
    world.hold(B, What::Writes);
    world.write(64, 8);
    world.wait(100 * MILLISECOND);
    let status = world.status();
    assert!(status.exposure_bytes >= 8 * 512, "A alone has the second");
    let ages = 70 * MILLISECOND..=100 * MILLISECOND;
    assert!(ages.contains(&status.exposure_age), "{} ns", status.exposure_age);
}

/// The flush before the leg is released fails, for a while. Writers do not wait for it meanwhile.
#[test]
fn a_detach_goes_on_after_a_flush_that_failed() {
    let mut world = volume(2);
    world.write(0, 8);
    world.behaviour[0].flush_errors = 1;
    let (now, leg) = (world.now, LegIndex(0));
    world.engine().command(now, 9, Command::Detach { leg });
    world.take_actions();
    world.wait(SECOND);
    let write = world.submit(Operation::Write, Extent::new(64, 8), false);
    world.wait(SECOND);
    assert!(world.is_answered(write) && !world.commands.contains_key(&9));
    world.behaviour[0].flush_errors = 0;
    world.wait(5 * SECOND);
    assert_eq!(world.commands.get(&9), Some(&Ok(())));
}

/// The record that B is detached hangs on A. Meanwhile A loses unflushed data, which B has.
#[test]
fn a_detached_leg_gives_back_what_the_last_one_loses_meanwhile() {
    let mut world = volume(2);
    world.write(0, 64);
    world.flush();
    world.write(0, 8);
    world.hold(A, What::Flushes);
    world.hold(A, What::Metadata);
    let (now, leg) = (world.now, LegIndex(B as u8));
    world.engine().command(now, 9, Command::Detach { leg });
    world.take_actions();
    world.wait(50 * MILLISECOND);
    let superblock = world.in_flight(A, What::Metadata);
    assert!(!superblock.is_empty() && world.in_flight(A, What::Writes).is_empty());
    world.hold(B, What::Reads);
    world.lose_leg(A, Cache::Dropped);
    world.event(A, LegEvent::Back);
    world.release(A);
    world.wait(SECOND);
    assert!(!world.commands.contains_key(&9), "B alone has a write");
    world.release(B);
    world.wait(SECOND);
    assert_eq!(world.commands.get(&9), Some(&Ok(())));
    world.read(0, 64);
    assert_eq!(world.failed_requests, 0);
}

/// Opens a volume whose leg A is silent from then on, while B has everything. Returns a client's
/// write.
fn opened_with_a_silent() -> (World, u64) {
    let mut world = volume(2);
    world.write(0, 8);
    world.flush();
    world.converge();
    world.crash(None, |_| Landing::Whole);
    world.hold(A, What::Anything);
    world.open(&[A, B]).expect("both are there");
    let write = world.submit(Operation::Write, Extent::new(0, 8), false);
    (world, write)
}

#[test]
fn a_volume_opens_without_a_leg_that_is_silent_from_the_start() {
    let (mut world, write) = opened_with_a_silent();
    world.wait(5 * SECOND);
    assert!(is_out(&world, A, OutReason::Unresponsive));
    assert!(world.is_answered(write) && !world.has_failed(write));
}

/// A comes back time and again, and its session ends at the first write.
#[test]
fn a_volume_opens_without_a_leg_whose_sessions_end_at_the_first_write() {
    let (mut world, write) = opened_with_a_silent();
    for _ in 0..30 {
        world.wait(100 * MILLISECOND);
        world.event(A, LegEvent::Gone { removed: false });
        world.abort(A, |_| Some(Landing::Not));
        world.wait(100 * MILLISECOND);
        world.event(A, LegEvent::Back);
    }
    assert!(is_out(&world, A, OutReason::Unresponsive));
    assert!(world.is_answered(write) && !world.has_failed(write));
}

/// A comes back time and again, and each session ends before anything is asked of it. Its I/O in
/// flight at the first loss never ends.
#[test]
fn a_volume_opens_without_a_leg_whose_sessions_end_at_once() {
    let (mut world, write) = opened_with_a_silent();
    for _ in 0..30 {
        world.event(A, LegEvent::Gone { removed: false });
        world.wait(200 * MILLISECOND);
        world.event(A, LegEvent::Back);
    }
    assert!(is_out(&world, A, OutReason::Unresponsive));
    assert!(world.is_answered(write) && !world.has_failed(write));
}

/// C is gone for good, and A comes back time and again. It takes data, but its session ends before
/// it has the record of that.
#[test]
fn a_leg_that_takes_data_and_never_the_superblock_is_marked_out() {
    let mut world = volume(3);
    world.hold(A, What::Metadata);
    world.event(C, LegEvent::Gone { removed: true });
    let mut drained = 0;
    for round in 0..30 {
        world.submit(Operation::Write, Extent::new(round % 16 * 64, 8), false);
        world.wait(100 * MILLISECOND);
        world.event(A, LegEvent::Gone { removed: false });
        world.abort(A, |_| Some(Landing::Not));
        world.wait(100 * MILLISECOND);
        world.event(A, LegEvent::Back);
        drained = world.status().legs[A].drained_bytes;
    }
    assert!(drained > 0, "some writes succeed in between");
    assert!(is_out(&world, A, OutReason::Unresponsive));
    assert!(is_out(&world, C, OutReason::Removed));
}

/// B's pages fail for a moment, and nothing is written after that.
#[test]
fn pages_that_failed_for_a_moment_do_not_count_for_ever() {
    let mut world = World::new(1, 2, Settings { out_after: 30 * SECOND, ..settings() });
    world.write(0, 8);
    world.flush();
    world.behaviour[B].write_errors = 1;
    world.wait(2 * SECOND);
    assert!(world.status().legs[B].errors > 2);
    world.behaviour[B].write_errors = 0;
    for _ in 0..10 {
        world.wait(SECOND);
        world.read(0, 8);
    }
    assert!(!is_out(&world, B, OutReason::WriteErrors));
}

/// B takes all writes, and every other flush of it fails.
#[test]
fn a_leg_whose_flushes_keep_failing_is_marked_out() {
    let mut world = volume(2);
    world.behaviour[B].flush_errors = 2;
    for round in 0..200 {
        world.write(round % 16 * 64, 8);
        world.flush();
        world.wait(50 * MILLISECOND);
    }
    assert!(is_out(&world, B, OutReason::WriteErrors));
    world.behaviour[B].flush_errors = 0;
    world.converge();
    world.read_everything();
}

/// B is to leave, and writers wait for a clean region. A, which is to have everything first, fails
/// its flush for a while.
#[test]
fn writers_that_wait_for_a_clean_region_do_not_wait_for_a_flush_that_failed() {
    let limits = Limits { records_per_request: 1, ..Limits::default() };
    let few = Settings { dirty_regions_max: 1, requests_max: 2, limits, ..calm() };
    let mut world = World::new(1, 2, few);
    world.steady(A, 200 * MICROSECOND);
    world.steady(B, 100 * MICROSECOND);
    // B shows that it is the faster one, and decides the regions that follow.
    world.write(0, 8);
    world.wait(SECOND);
    for region in 0..3 {
        world.write(128 * region, 8);
    }
    world.behaviour[A].flush_errors = 1;
    let write = world.submit(Operation::Write, Extent::new(128 * 3, 8), false);
    let (now, leg) = (world.now, LegIndex(B as u8));
    world.engine().command(now, 9, Command::Detach { leg });
    world.take_actions();
    world.wait(SECOND);
    assert!(!world.is_answered(write) && !world.commands.contains_key(&9));
    world.behaviour[A].flush_errors = 0;
    world.wait(5 * SECOND);
    assert!(world.is_answered(write));
    assert_eq!(world.commands.get(&9), Some(&Ok(())));
}

/// B lacks data that A takes with it. B is recorded whole only once its own list records the loss,
/// because hemi may be killed in between, and A be there again.
#[test]
fn a_leg_knows_what_is_lost_before_it_is_recorded_whole() {
    // Debts keep no copy.
    let settings = Settings { clean_after: 300 * MILLISECOND, copies_reserve: u64::MAX, ..calm() };
    let mut world = World::new(1, 2, settings);
    world.write(0, 8);
    world.flush();
    world.wait(200 * MILLISECOND);
    assert!(world.recorded(0).is_dirty(), "by the page of both legs");
    world.hold(B, What::Writes);
    world.write(0, 8);
    world.write(4, 4);
    world.flush();
    world.hold(B, What::Metadata);
    world.event(A, LegEvent::Gone { removed: true });
    world.abort(A, |_| Some(Landing::Not));
    assert_eq!(world.engine().lost_extents(), [Extent::new(4, 4)], "which B owed");
    world.release_kind(B, What::Writes);
    world.wait(600 * MILLISECOND);
    let first_page = hemi_engine::recovery::HEAD_BYTES / 512;
    world.crash(
        None,
        |p| {
            if p.io.extent.start < first_page { Landing::Not } else { Landing::Whole }
        },
    );
    world.open(&[A, B]).expect("both are there");
    world.read_everything();
    world.converge();
}

/// The list of lost extents is full, and a write would make a hole in one of them.
#[test]
fn a_write_into_what_is_lost_fails_where_the_list_has_no_room() {
    const LOST: u64 = 246;
    // Debts keep no copy.
    let settings = Settings { copies_reserve: u64::MAX, owed_extents_max: 1000, ..calm() };
    let mut world = World::new(1, 2, settings);
    world.write(0, SECTORS);
    world.flush();
    world.hold(B, What::Writes);
    // The first few are in flight to B.
    let first = u64::from(settings.leg_window);
    for piece in 0..first + LOST {
        world.write(8 * piece, 3);
    }
    world.flush();
    world.event(A, LegEvent::Gone { removed: true });
    world.abort(A, |_| Some(Landing::Not));
    world.release_kind(B, What::Writes);
    world.wait(SECOND);
    assert_eq!(world.engine().lost_extents().len() as u64, LOST);
    let lost = 8 * first;
    let hole = world.submit(Operation::Write, Extent::new(lost + 1, 1), false);
    world.wait(SECOND);
    assert!(world.has_failed(hole), "there is no room for what is left of it");
    let whole = world.write(lost + 8, 3);
    let hole = world.write(lost + 1, 1);
    assert!(!world.has_failed(whole) && !world.has_failed(hole), "there is room again");
    world.read_everything();
}
