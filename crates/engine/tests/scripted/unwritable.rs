//! A leg that cannot write one page of its region table, and does all else.

use crate::world::script::What;
use crate::world::{Shape, World, calm};
use hemi_engine::command::{Command, CommandError};
use hemi_engine::format::Layout;
use hemi_engine::identifiers::LegIndex;
use hemi_engine::io::{Notice, Operation, OutReason};
use hemi_engine::settings::Settings;
use hemi_units::{Extent, MICROSECOND, MILLISECOND, SECOND};

/// The first sector of a region of the second page.
const SECOND_PAGE: u64 = 1800 * 128;

/// Returns two legs with two pages, and regions of both in use. The first page cannot be written on one of
/// them any more, which is returned with the other, that decides the first region.
fn world(has_ledger: bool) -> (World, usize, usize) {
    let settings = Settings { out_after: 10 * SECOND, ..calm() };
    let shape = Shape { volume_bytes: 128 << 20, ..Shape::default() };
    let mut world = World::of_shape(1, 2, settings, shape);
    world.thorough = false;
    world.close();
    world.has_ledger = has_ledger;
    world.open(&[0, 1]).expect("both are in");
    for leg in 0..2 {
        world.steady(leg, 100 * MICROSECOND);
    }
    world.write(0, 8);
    world.write(SECOND_PAGE, 8);
    world.flush();
    world.wait(2 * SECOND);
    let authority = world.recorded(0).authority();
    let other = 1 - authority.index();
    let layout = Layout::new(shape.volume_bytes, shape.region_bytes).expect("a good size");
    let [first, second] = [0, 1].map(|slot| layout.page_address(0, slot) / 512);
    world.behaviour[other].unwritable = Extent { start: first, end: second + 8 };
    (world, other, authority.index())
}

/// The authority is late with a write, so that the leg takes over which cannot say so in its page.
fn flushed_in_time(has_ledger: bool) -> (World, usize) {
    let (mut world, bad, healthy) = world(has_ledger);
    world.hold(healthy, What::Writes);
    world.submit(Operation::Write, Extent::new(0, 8), false);
    world.wait(5 * MILLISECOND);
    world.release(healthy);
    world.wait(MILLISECOND);
    let flush = world.submit(Operation::Flush, Extent::default(), false);
    world.wait(25 * MILLISECOND);
    assert!(world.is_answered(flush), "it waits for a page that cannot be written ({has_ledger})");
    assert_eq!(world.recorded(0).authority(), LegIndex(healthy as u8));
    (world, bad)
}

/// Writes regions of the second page for long enough that a leg which fails the first is marked out.
fn use_other_page(world: &mut World) {
    for step in 0..100 {
        world.write(SECOND_PAGE + 128 * step, 8);
        world.flush();
        world.wait(100 * MILLISECOND);
    }
}

#[test]
fn a_flush_does_not_wait_for_a_page_that_its_leg_cannot_write() {
    for has_ledger in [false, true] {
        flushed_in_time(has_ledger);
    }
}

/// Its other pages can be written, and are.
#[test]
fn a_leg_that_cannot_write_one_page_is_marked_out() {
    for has_ledger in [false, true] {
        let (mut world, bad) = flushed_in_time(has_ledger);
        use_other_page(&mut world);
        let out = Notice::Out { leg: LegIndex(bad as u8), reason: OutReason::WriteErrors };
        assert!(world.notices.contains(&out), "ledger: {has_ledger}");
    }
}

/// Nobody uses the volume, and nobody waits for the page.
#[test]
fn a_page_that_cannot_be_written_is_tried_at_intervals_at_rest() {
    for has_ledger in [false, true] {
        let (mut world, bad) = flushed_in_time(has_ledger);
        use_other_page(&mut world);
        world.wait(10 * SECOND);
        world.notices.clear();
        world.wait(60 * SECOND);
        let is_error =
            |notice: &&Notice| matches!(notice, Notice::LegError { leg, .. } if leg.index() == bad);
        let errors = world.notices.iter().filter(is_error).count();
        assert!((1..60).contains(&errors), "{errors} tries in a minute ({has_ledger})");
    }
}

/// A leg that is out and fails all writes owes something, and will go on owing it.
#[test]
fn a_close_does_not_wait_for_a_leg_that_is_out_and_fails_its_writes() {
    const CLOSE: u64 = 9;
    let bad = 1;
    let settings = Settings { out_after: 10 * SECOND, clean_after: 5 * SECOND, ..calm() };
    let mut world = World::new(1, 2, settings);
    world.thorough = false;
    world.behaviour[bad].write_errors = 1;
    for step in 0..100 {
        world.write(128 * (step % 16), 8);
        world.wait(100 * MILLISECOND);
    }
    let out = Notice::Out { leg: LegIndex(bad as u8), reason: OutReason::WriteErrors };
    assert!(world.notices.contains(&out));
    world.write(0, 8);
    let now = world.now;
    let close = Command::Close { drain_until: now + 60 * SECOND };
    world.engine().command(now, CLOSE, close);
    world.take_actions();
    world.wait(2 * SECOND);
    assert_eq!(world.commands.get(&CLOSE), Some(&Ok(())), "it waits for what cannot be paid");
}

/// The other leg is late with each page, so that authority comes back to the failing leg again and again.
#[test]
fn a_leg_that_cannot_write_a_page_is_marked_out_beside_one_that_is_late_with_each() {
    let (mut world, bad, healthy) = world(false);
    world.hold(healthy, What::Metadata);
    for step in 0..1200 {
        if world.requests.len() < 8 {
            world.submit(Operation::Write, Extent::new(128 * (step % 16), 8), step % 2 == 0);
        }
        let late = world.ids(healthy, What::Metadata);
        world.wait(23 * MILLISECOND);
        for id in late {
            world.land(id);
        }
    }
    let out = Notice::Out { leg: LegIndex(bad as u8), reason: OutReason::WriteErrors };
    assert!(world.notices.contains(&out), "{:?}", world.notices);
    world.release(healthy);
    world.wait(SECOND);
    assert!(world.requests.is_empty(), "nothing stands in their way");
}

/// The page says which leg decides, and has to be durable before the one that decided is let go.
#[test]
fn a_detach_is_given_up_if_the_leg_that_stays_cannot_write_a_page() {
    const DETACH: u64 = 9;
    for has_ledger in [false, true] {
        let (mut world, bad, healthy) = world(has_ledger);
        let (now, leg) = (world.now, LegIndex(healthy as u8));
        world.engine().command(now, DETACH, Command::Detach { leg });
        world.take_actions();
        world.wait(10 * MILLISECOND);
        let write = world.submit(Operation::Write, Extent::new(0, 8), false);
        world.wait(6 * SECOND);
        let result = world.commands.get(&DETACH);
        assert_eq!(result, Some(&Err(CommandError::Unrecorded)), "ledger: {has_ledger}");
        assert!(world.is_answered(write), "ledger: {has_ledger}");
        world.wait(10 * SECOND);
        let out = Notice::Out { leg: LegIndex(bad as u8), reason: OutReason::WriteErrors };
        assert!(world.notices.contains(&out), "ledger: {has_ledger}");
        world.write(0, 8);
        world.flush();
        world.read_everything();
    }
}

/// It was to go out while it was silent. What goes before that cannot be recorded on the other.
#[test]
fn a_leg_that_comes_back_stays_if_the_other_cannot_write_a_page() {
    let (mut world, bad, healthy) = world(true);
    world.hold(healthy, What::Anything);
    world.submit(Operation::Write, Extent::new(0, 8), false);
    world.wait(15 * SECOND);
    assert!(world.engine().is_leaving(LegIndex(healthy as u8)));
    world.release(healthy);
    world.wait(15 * SECOND);
    let out = Notice::Out { leg: LegIndex(bad as u8), reason: OutReason::WriteErrors };
    assert!(world.notices.contains(&out));
    world.write(0, 8);
    world.flush();
    world.read_everything();
}
