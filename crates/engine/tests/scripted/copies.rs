//! Flushes that have to reach several legs, and the rules by which data counts as being on a leg.

use crate::world;
use crate::world::landing::Landing;
use crate::world::script::What;
use crate::world::{LONG, World, calm, steady_legs};
use hemi_engine::identifiers::{IoId, LegIndex};
use hemi_engine::io::{LegEvent, Notice, Operation};
use hemi_engine::settings::{FlushCopies, Limits, Settings};
use hemi_engine::status::LegState;
use hemi_units::{Extent, MILLISECOND, SECOND};
use hemi_world::disk::Cache;

const A: usize = 0;
const B: usize = 1;
/// Returns two legs, both of which a flush has to reach.
fn two_copies() -> World {
    two_copies_with(strict())
}

fn strict() -> Settings {
    Settings { flush_copies: FlushCopies::Count(2), ..calm() }
}

fn two_copies_with(settings: Settings) -> World {
    steady_legs(2, settings)
}

/// Ends the leg's held I/O, and lets it answer from now on.
fn let_go(world: &mut World, leg: usize) {
    world.release(leg);
    world.wait(SECOND);
}

#[test]
fn a_write_with_fua_into_a_clean_region_is_on_both_legs() {
    let mut world = two_copies();
    world.hold(B, What::Writes);
    // The write is sent only once the intent is durable, later than it was accepted.
    let write = world.submit(Operation::Write, Extent::new(0, 8), true);
    world.wait(LONG);
    assert!(!world.is_answered(write), "B has nothing of it");
    let_go(&mut world, B);
    assert!(world.is_answered(write) && !world.has_failed(write));
}

/// Makes leg B owe an acknowledged write, behind another that is in flight to it. Returns the
/// latter.
fn with_a_debt(world: &mut World) -> IoId {
    world.write(0, 8);
    world.wait(MILLISECOND);
    world.hold(B, What::Writes);
    for _ in 0..2 {
        let write = world.submit(Operation::Write, Extent::new(0, 8), false);
        world.wait(MILLISECOND);
        assert!(world.is_answered(write), "acknowledged on A alone");
    }
    world.only(B, What::Writes)
}

#[test]
fn a_newer_write_over_a_debt_does_not_make_a_leg_catch_up() {
    let mut world = two_copies();
    let before = with_a_debt(&mut world);
    world.hold(A, What::Flushes);
    let flush = world.submit(Operation::Flush, Extent::default(), false);
    world.wait(MILLISECOND);
    // It covers B's debt, and is on no leg yet.
    world.hold(A, What::Writes);
    let newer = world.submit(Operation::Write, Extent::new(0, 8), false);
    world.wait(MILLISECOND);
    assert!(!world.is_answered(newer));
    world.land(before);
    world.release_kind(A, What::Flushes);
    world.wait(5 * MILLISECOND);
    assert!(!world.is_answered(flush), "B has neither the older write nor the newer");
    let_go(&mut world, A);
    let_go(&mut world, B);
    for request in [flush, newer] {
        assert!(world.is_answered(request) && !world.has_failed(request));
    }
}

#[test]
fn what_is_being_read_for_a_leg_is_not_on_it() {
    // Debts keep no copy: they are read from the other leg.
    let mut world = two_copies_with(Settings { copies_reserve: u64::MAX, ..strict() });
    let before = with_a_debt(&mut world);
    world.hold(A, What::Reads);
    world.land(before);
    world.wait(MILLISECOND);
    assert_eq!(world.in_flight(A, What::Reads).len(), 1, "the debt is being read");
    let flush = world.submit(Operation::Flush, Extent::default(), false);
    world.wait(5 * MILLISECOND);
    assert!(!world.is_answered(flush), "B lacks what is being read for it");
    let_go(&mut world, A);
    let_go(&mut world, B);
    assert!(world.is_answered(flush) && !world.has_failed(flush));
}

/// B has everything that a flush covers, and loses its cache before it has flushed it. B ends
/// another flush when it is back, before it has been given the lost data again.
#[test]
fn a_flush_before_a_lost_write_is_back_does_not_make_it_durable() {
    let mut world = two_copies();
    world.write(0, 8);
    world.wait(MILLISECOND);
    world.hold(B, What::Flushes);
    let flush = world.submit(Operation::Flush, Extent::default(), false);
    world.wait(5 * MILLISECOND);
    assert!(!world.is_answered(flush), "B has not flushed");
    world.lose_leg(B, Cache::Dropped);
    world.let_come(B);
    world.hold(B, What::Writes);
    world.event(B, LegEvent::Back);
    let another = world.submit(Operation::Flush, Extent::default(), false);
    world.wait(5 * MILLISECOND);
    assert!(!world.is_answered(flush), "B has nothing of it");
    assert!(world.in_flight(B, What::Flushes).is_empty(), "B has flushed what is left");
    // B gets it back, and no later flush of it ends.
    world.hold(B, What::Flushes);
    world.release_kind(B, What::Writes);
    world.wait(LONG);
    assert!(!world.is_answered(flush), "B has it in its cache alone");
    let_go(&mut world, B);
    for request in [flush, another] {
        assert!(world.is_answered(request) && !world.has_failed(request));
    }
}

/// A world in which B is frozen by a write that is not answered, and owes another, which a flush
/// covers.
struct Behind {
    world: World,
    /// The write that B does not answer.
    unanswered: IoId,
    flush: u64,
}

impl Behind {
    fn new() -> Behind {
        let mut world = two_copies();
        world.hold(B, What::Writes);
        world.submit(Operation::Write, Extent::new(64, 8), false);
        world.wait(LONG);
        let unanswered = world.only(B, What::Writes);
        world.write(0, 8);
        let flush = world.submit(Operation::Flush, Extent::default(), false);
        world.wait(MILLISECOND);
        Behind { world, unanswered, flush }
    }

    /// Writes over B's debt. B answers again and is given that write, while A has not got it yet.
    fn write_over(&mut self) -> u64 {
        self.world.hold(A, What::Writes);
        let newer = self.world.submit(Operation::Write, Extent::new(0, 8), false);
        self.world.wait(MILLISECOND);
        self.world.land(self.unanswered);
        self.world.wait(MILLISECOND);
        assert_eq!(self.world.in_flight(B, What::Writes).len(), 1, "B is given the newer write");
        newer
    }
}

/// B lacks data that a flush covers. A write over it makes B's debt younger than the flush.
#[test]
fn what_a_newer_write_takes_the_place_of_has_been_lacked_for_longer() {
    let Behind { mut world, unanswered, flush } = Behind::new();
    let newer = world.submit(Operation::Write, Extent::new(0, 8), false);
    world.wait(MILLISECOND);
    assert!(world.is_answered(newer), "A has it");
    world.land(unanswered);
    world.wait(5 * MILLISECOND);
    assert!(!world.is_answered(flush), "B has neither the older write nor the newer");
    let_go(&mut world, B);
    assert!(world.is_answered(flush) && !world.has_failed(flush));
}

/// The same, with the newer write in flight to B when it is acknowledged.
#[test]
fn a_write_in_flight_over_a_debt_has_been_lacked_for_as_long_as_that() {
    let mut behind = Behind::new();
    let newer = behind.write_over();
    let Behind { mut world, flush, .. } = behind;
    world.release_kind(A, What::Writes);
    world.wait(MILLISECOND);
    assert!(world.is_answered(newer), "A has it");
    let another = world.submit(Operation::Flush, Extent::default(), false);
    world.wait(5 * MILLISECOND);
    assert!(!world.is_answered(flush), "B has neither the older write nor the newer");
    let_go(&mut world, B);
    for request in [flush, another] {
        assert!(world.is_answered(request) && !world.has_failed(request));
    }
}

/// A write to B fails and is tried again, after a younger one that is in flight by then.
#[test]
fn what_is_tried_again_behind_a_younger_write_is_still_lacked() {
    /// The time after which a failed write is tried again.
    const RETRIED: u64 = 20 * MILLISECOND;
    let mut world = two_copies();
    world.hold(B, What::Writes);
    world.submit(Operation::Write, Extent::new(0, 8), false);
    world.wait(MILLISECOND);
    let first = world.only(B, What::Writes);
    world.fail(first);
    let flush = world.submit(Operation::Flush, Extent::default(), false);
    world.wait(RETRIED - 10 * MILLISECOND);
    world.submit(Operation::Write, Extent::new(64, 8), false);
    world.wait(15 * MILLISECOND);
    assert_eq!(world.in_flight(B, What::Writes).len(), 2, "the first is tried again");
    world.submit(Operation::Flush, Extent::default(), false);
    world.wait(3 * MILLISECOND);
    assert!(!world.is_answered(flush), "B has not got it");
    let_go(&mut world, B);
    assert!(world.is_answered(flush) && !world.has_failed(flush));
}

/// B lacks data that a flush covers, and a write over it fails on both legs.
#[test]
fn what_a_failed_write_takes_the_place_of_is_still_lacked() {
    let mut behind = Behind::new();
    let newer = behind.write_over();
    let Behind { mut world, flush, .. } = behind;
    let (on_a, on_b) = (world.only(A, What::Writes), world.only(B, What::Writes));
    world.fail(on_a);
    world.fail(on_b);
    world.wait(5 * MILLISECOND);
    assert!(world.has_failed(newer));
    assert!(!world.is_answered(flush), "B has not got the older write");
    let_go(&mut world, A);
    let_go(&mut world, B);
    assert!(world.is_answered(flush) && !world.has_failed(flush));
}

/// Returns settings under which regions are cleaned soon, and sooner without a leg that is silent.
fn soon_clean() -> Settings {
    Settings { clean_after: 100 * MILLISECOND, ..strict() }
}

/// B has everything again, but its own metadata still says that it is not whole. Alone, it would
/// have lost the region.
#[test]
fn a_leg_does_not_count_before_it_says_itself_that_it_is_whole() {
    let mut world = two_copies_with(soon_clean());
    world.hold(B, What::Writes);
    world.submit(Operation::Write, Extent::new(0, 8), false);
    world.wait(SECOND);
    assert!(!world.recorded(0).is_dirty() && !world.recorded(0).is_whole(LegIndex(B as u8)));
    world.hold(B, What::Metadata);
    world.release_kind(B, What::Writes);
    world.wait(20 * MILLISECOND);
    assert_eq!(world.status().legs[B].owed_bytes, 0, "B has it again");
    let flush = world.submit(Operation::Flush, Extent::default(), false);
    world.wait(5 * MILLISECOND);
    assert!(!world.is_answered(flush), "alone, B would have lost the region");
    let_go(&mut world, B);
    assert!(world.is_answered(flush) && !world.has_failed(flush));
    assert_eq!(world.without_engine().promote(B), []);
}

/// A lost extent has been rewritten, and A has the data. But A's own list still records it as lost.
#[test]
fn a_leg_does_not_count_while_it_names_as_lost_what_has_been_rewritten() {
    // Debts keep no copy.
    let mut world = two_copies_with(Settings { copies_reserve: u64::MAX, ..strict() });
    world.write(0, 8);
    world.flush();
    world.hold(B, What::Writes);
    world.write(0, 8);
    world.write(4, 4);
    world.event(A, LegEvent::Gone { removed: true });
    world.abort(A, |_| Some(Landing::Not));
    assert_eq!(world.engine().lost_extents(), [Extent::new(4, 4)], "which B owed");
    let_go(&mut world, B);
    world.event(A, LegEvent::Back);
    let told = world.submit(Operation::Flush, Extent::default(), false);
    world.wait(SECOND);
    assert!(world.has_failed(told), "the loss is told once");
    assert_eq!(world.status().legs[A].state, LegState::Healthy);
    world.hold(A, What::Metadata);
    world.write(0, 8);
    let flush = world.submit(Operation::Flush, Extent::default(), false);
    world.wait(5 * MILLISECOND);
    assert!(!world.is_answered(flush), "alone, A would answer EIO");
    let_go(&mut world, A);
    assert!(world.is_answered(flush) && !world.has_failed(flush));
    assert_eq!(world.without_engine().promote(A), []);
}

/// A region that both legs have flushed is cleaned while B is silent.
#[test]
fn a_silent_leg_stays_whole_where_it_has_everything() {
    let mut world = two_copies_with(soon_clean());
    world.write(0, 8);
    world.flush();
    world.hold(B, What::Anything);
    let other = Extent::new(2 * world::REGION_BYTES / 512, 8);
    world.submit(Operation::Write, other, false);
    world.wait(SECOND);
    assert_eq!(world.status().legs[B].state, LegState::Frozen);
    assert!(!world.recorded(0).is_dirty() && world.recorded(0).is_whole(LegIndex(B as u8)));
    assert!(!world.recorded(2).is_whole(LegIndex(B as u8)), "which B has nothing of");
}

/// Records of clean regions stay in use for B's debts there, and there are more of them than a tick
/// examines.
#[test]
fn regions_become_clean_behind_those_that_wait_for_a_leg() {
    const PINNED: u64 = 5;
    let limits = Limits { cleans_per_tick: 2, ..Limits::default() };
    let mut world = two_copies_with(Settings { limits, ..soon_clean() });
    world.hold(B, What::Anything);
    for region in 0..PINNED {
        world.write(region * world::REGION_BYTES / 512, 8);
    }
    world.wait(SECOND);
    assert_eq!(world.status().dirty_regions, 0);
    world.write(PINNED * world::REGION_BYTES / 512, 8);
    world.wait(SECOND);
    assert_eq!(world.status().dirty_regions, 0, "behind the records that B's debts keep");
}

/// A page had landed on one leg alone when hemi was killed.
#[test]
fn a_flush_after_a_crash_waits_for_the_pages_that_a_leg_missed() {
    let mut world = two_copies();
    world.hold(B, What::Metadata);
    world.write(0, 8);
    world.wait(LONG);
    world.crash(
        None,
        |pending| {
            if pending.io.leg.index() == A { Landing::Whole } else { Landing::Not }
        },
    );
    world.open(&[A, B]).expect("both are there");
    let flush = world.submit(Operation::Flush, Extent::default(), false);
    world.wait(SECOND);
    assert!(world.is_answered(flush) && !world.has_failed(flush));
}

/// B's medium has just failed to read a block, which is read from A. B's next I/O of this kind is
/// held. Returns the client's read, too.
fn with_a_bad_block_on_b(held: What) -> (World, u64) {
    let mut world = two_copies_with(soon_clean());
    world.write(0, 8);
    world.flush();
    world.hold(A, What::Reads);
    let read = world.submit(Operation::Read, Extent::new(0, 8), false);
    world.hold(B, What::Reads);
    world.wait(30 * MILLISECOND);
    let on_b = world.only(B, What::Reads);
    world.let_come(B);
    world.hold(B, held);
    world.release(A);
    world.fail(on_b);
    (world, read)
}

/// B's medium could not read a block. It is being rewritten while the region is cleaned.
#[test]
fn a_leg_stays_whole_while_a_block_is_repaired() {
    let (mut world, read) = with_a_bad_block_on_b(What::Writes);
    world.wait(SECOND);
    assert!(world.is_answered(read) && !world.has_failed(read));
    assert_eq!(world.in_flight(B, What::Writes).len(), 1, "the repair");
    assert!(!world.recorded(0).is_dirty() && world.recorded(0).is_whole(LegIndex(B as u8)));
}

/// B falls silent right after an unreadable block was repaired, and before it has flushed that. It
/// holds what it held before.
#[test]
fn a_silent_leg_stays_whole_where_a_block_was_repaired() {
    let (mut world, read) = with_a_bad_block_on_b(What::Flushes);
    world.wait(MILLISECOND);
    assert!(world.is_answered(read) && !world.has_failed(read));
    let repaired = |notice: &Notice| matches!(notice, Notice::Repaired { leg: LegIndex(1), .. });
    assert!(world.notices.iter().any(repaired), "B has the block again");
    // B is silent while the region becomes clean, and hears of it later.
    world.hold(B, What::Anything);
    world.submit(Operation::Write, Extent::new(2 * world::REGION_BYTES / 512, 8), false);
    world.wait(SECOND);
    assert_eq!(world.status().legs[B].state, LegState::Frozen);
    assert!(!world.recorded(0).is_dirty() && world.recorded(0).is_whole(LegIndex(B as u8)));
    let_go(&mut world, B);
    world.converge();
    world.read_everything();
}

/// B's session drops and reconnects at the very moment at which it was sent a flush, which ends
/// later.
#[test]
fn a_flush_of_a_session_that_dropped_is_not_taken_for_a_later_one() {
    let mut world = two_copies();
    world.write(0, 8);
    world.wait(MILLISECOND);
    world.hold(B, What::Flushes);
    let flush = world.submit(Operation::Flush, Extent::default(), false);
    let of_last_session = world.only(B, What::Flushes);
    world.event(B, LegEvent::Gone { removed: false });
    world.event(B, LegEvent::Back);
    world.wait(5 * MILLISECOND);
    let is_newer = |id: &IoId| *id != of_last_session;
    let before_it_has_all = world.ids(B, What::Flushes).into_iter().find(is_newer);
    world.land(before_it_has_all.expect("it is flushed anew"));
    world.wait(MILLISECOND);
    assert_eq!(world.in_flight(B, What::Flushes).len(), 2, "for what B has again");
    world.land(of_last_session);
    assert!(!world.is_answered(flush), "which has not ended");
    let_go(&mut world, B);
    assert!(world.is_answered(flush) && !world.has_failed(flush));
}
