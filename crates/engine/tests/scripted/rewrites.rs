//! Writes over extents recorded as lost: the lost list forgets the extent before the write is
//! acknowledged, and has it again if the write is lost meanwhile.

use crate::world::landing::Landing;
use crate::world::script::What;
use crate::world::{LONG, World, calm, steady_legs};
use hemi_engine::io::{LegEvent, Operation};
use hemi_engine::settings::Settings;
use hemi_engine::status::LegState;
use hemi_units::{Extent, MILLISECOND, SECOND};

const A: usize = 0;
const B: usize = 1;
/// The lost extent, in the first region.
const LOST: Extent = Extent { start: 4, end: 8 };

/// Returns a world in which A alone held the newest of an extent and was removed. It is back, and
/// its data is lost: both legs hold something older there, which has been flushed.
fn with_something_lost() -> World {
    let mut world = steady_legs(2, Settings { copies_reserve: u64::MAX, ..calm() });
    world.write(0, 8);
    world.flush();
    world.wait(SECOND);
    world.hold(B, What::Writes);
    world.write(0, 8);
    world.write(LOST.start, LOST.sectors());
    world.event(A, LegEvent::Gone { removed: true });
    world.abort(A, |_| Some(Landing::Not));
    assert_eq!(world.engine().lost_extents(), [LOST]);
    world.release(B);
    world.event(A, LegEvent::Back);
    world.wait(5 * SECOND);
    assert_eq!(world.engine().lost_extents(), [LOST]);
    assert_eq!(world.status().legs.iter().map(|leg| leg.owed_bytes).sum::<u64>(), 0);
    world
}

/// Sends a write over the lost extent that its authority has but the other leg does not, and holds
/// back the list that does not name the extent any more. Returns authority, other leg and write.
fn rewrite(world: &mut World) -> (usize, usize, u64) {
    // A first write has the region decided.
    world.write(32, 8);
    let authority = world.recorded(0).authority().index();
    let other = 1 - authority;
    world.hold(authority, What::Flushes);
    world.submit(Operation::Flush, Extent::default(), false);
    world.wait(MILLISECOND);
    world.hold(other, What::Writes);
    let write = world.submit(Operation::Write, LOST, false);
    world.hold(authority, What::Metadata);
    world.hold(other, What::Metadata);
    world.wait(5 * MILLISECOND);
    assert!(!world.is_answered(write), "the list has still to be written");
    assert_eq!(world.engine().lost_extents(), [], "the list forgets it");
    (authority, other, write)
}

/// The authority's flush fails, and the write must be presumed lost with it. The other leg has the
/// earlier data there.
#[test]
fn what_a_write_had_rewritten_is_lost_again_with_the_cache_that_held_it() {
    let mut world = with_something_lost();
    let (authority, other, write) = rewrite(&mut world);
    let flush = world.only(authority, What::Flushes);
    world.fail(flush);
    assert_eq!(world.engine().lost_extents(), [LOST]);
    let failing = world.only(other, What::Writes);
    world.fail(failing);
    world.release(authority);
    world.release(other);
    world.run_until_answered(SECOND);
    assert!(!world.has_failed(write), "it is tried again");
    assert_eq!(world.engine().lost_extents(), []);
    world.wait(SECOND);
    world.note_cache_lost();
    world.read_everything();
}

/// The authority falls silent, and the other leg takes over without having the write. Until it has
/// it, it must not count as having anything there.
#[test]
fn a_leg_that_takes_over_knows_what_is_lost() {
    let mut world = with_something_lost();
    let (authority, other, write) = rewrite(&mut world);
    world.hold(authority, What::Anything);
    world.release_kind(other, What::Metadata);
    world.wait(SECOND);
    assert_eq!(world.recorded(0).authority().index(), other, "it has taken over");
    assert!(!world.is_answered(write), "its write is held back");
    assert_eq!(world.engine().lost_extents(), [LOST]);
    world.release(other);
    world.wait(SECOND);
    assert!(world.is_answered(write) && !world.has_failed(write));
    assert_eq!(world.engine().lost_extents(), []);
    world.release(authority);
    world.wait(SECOND);
    world.read_everything();
}

/// The authority takes a little longer than its wait limit for each list, so that it answers again
/// each time before the other leg has the list by which it would take over.
#[test]
fn a_write_over_what_is_lost_ends_though_its_authority_is_late_with_every_list() {
    let mut world = with_something_lost();
    let (authority, other, write) = rewrite(&mut world);
    world.release(other);
    world.steady(other, MILLISECOND);
    for _ in 0..10 {
        for _ in 0..200 {
            world.wait(MILLISECOND / 2);
            if world.status().legs[authority].state == LegState::Frozen {
                break;
            }
        }
        for id in world.ids(authority, What::Anything) {
            world.land(id);
        }
    }
    assert!(world.is_answered(write) && !world.has_failed(write));
    assert_eq!(world.recorded(0).authority().index(), other, "it has taken over");
    world.release(authority);
    world.wait(SECOND);
    world.read_everything();
}

/// The list that no longer names the extent is on the other leg when the write is lost with the authority's
/// cache, and then fails on both. The other leg is not counted on before its list names the extent again.
#[test]
fn a_leg_is_not_whole_before_its_list_names_again_what_is_lost_again() {
    let mut world = with_something_lost();
    world.settings.clean_after = 100 * MILLISECOND;
    world.settings.wait_floor = 10 * SECOND;
    world.settings.wait_ceiling = 10 * SECOND;
    world.close();
    world.open(&[A, B]).expect("both are there");
    world.wait(LONG);
    let (authority, other, write) = rewrite(&mut world);
    let list = world.only(other, What::Metadata);
    world.land(list);
    let flush = world.only(authority, What::Flushes);
    world.fail(flush);
    assert_eq!(world.engine().lost_extents(), [LOST]);
    world.hold(authority, What::Writes);
    while !world.is_answered(write) {
        world.wait(MILLISECOND);
        for leg in [A, B] {
            for id in world.ids(leg, What::Writes) {
                world.fail(id);
            }
        }
    }
    assert!(world.has_failed(write));
    world.release(authority);
    world.release_kind(other, What::Writes);
    world.wait(3 * SECOND);
    let entry = world.recorded(0);
    assert!(entry.is_dirty() && entry.authority().index() == authority, "{entry:?}");
    world.release(other);
    world.wait(3 * SECOND);
    assert!(!world.recorded(0).is_dirty(), "both lists name it");
    world.crash(None, |_| Landing::Not);
    world.open(&[A, B]).expect("both are there");
    let read = world.read(LOST.start, LOST.sectors());
    assert!(world.has_failed(read), "the data is lost");
}

/// The same where the other leg is away, and nobody can take over.
#[test]
fn what_a_write_had_rewritten_is_lost_again_though_no_other_leg_is_there() {
    let mut world = with_something_lost();
    let (authority, other, _) = rewrite(&mut world);
    world.event(other, LegEvent::Gone { removed: false });
    let flush = world.only(authority, What::Flushes);
    world.fail(flush);
    assert_eq!(world.engine().lost_extents(), [LOST]);
}
