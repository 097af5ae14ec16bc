//! Metadata whose outcome is unknown, or that is rotten, of another generation, or of another leg.

use hemi_engine::command::Command;
use hemi_engine::format::LegDescription;
use hemi_engine::io::{LegOperation, Operation};
use hemi_engine::recovery::{self, LegImage, Problem};
use hemi_engine::settings::Settings;
use hemi_units::{Extent, MILLISECOND, SECOND};
use hemi_world::disk::Cache;

use super::{A, B, LONG, REGION, authority, calm, index, page_sequence, prefer, reopen, two_legs};
use crate::world::landing::Landing;
use crate::world::script::What;
use crate::world::{World, fast};

/// Scenario 1: A's page that takes over from B has been submitted, and its outcome is unknown. B
/// answers. Data that B alone holds from then on must not be overruled by that page.
#[test]
fn s01_metadata_write_of_unknown_outcome() {
    for (cache, landing) in [
        (Cache::Dropped, Landing::Whole),
        (Cache::Kept, Landing::Not),
        (Cache::Any, Landing::Torn(0x0F)),
    ] {
        let mut world = two_legs(calm());
        prefer(&mut world, B);
        world.write(0, 8);
        world.flush();
        assert_eq!(authority(&world, 0), B);
        // B is frozen, and the move to A stops short of durable.
        world.hold(B, What::Anything);
        world.hold(A, What::Metadata);
        let first = world.submit(Operation::Write, Extent::new(0, 8), false);
        world.wait(25 * MILLISECOND);
        let zombie = world.only(A, What::Metadata);
        assert!(!world.is_answered(first), "recovery would still choose B, which lacks it");
        // B answers. The page may still land, so B must record its authority with a higher
        // sequence.
        world.hold(B, What::Metadata);
        world.holds.retain(|hold| hold.what != What::Anything);
        for id in world.ids(B, What::Writes) {
            world.land(id);
        }
        world.wait(15 * MILLISECOND);
        assert!(!world.is_answered(first), "acknowledged while A's page may land and say A");
        let second = world.submit(Operation::Write, Extent::new(4, 8), false);
        world.wait(LONG);
        assert!(!world.is_answered(second));
        let louder = world.only(B, What::Metadata);
        let held = |world: &World, id| {
            world.pending.iter().find(|p| p.io.id == id).map(|p| p.metadata.clone())
        };
        assert_ne!(held(&world, zombie), held(&world, louder));
        world.holds.retain(|hold| hold.leg != B);
        world.land(louder);
        world.run_until_answered(SECOND);
        let flush = world.submit(Operation::Flush, Extent::default(), false);
        world.run_until_answered(SECOND);
        assert!(!world.has_failed(flush));
        // The zombie lands, then power is cut.
        world.crash(Some(cache), |p| if p.io.id == zombie { landing } else { Landing::Not });
        assert_eq!(authority(&world, 0), B, "the page that was never relied upon wins");
        reopen(&mut world);
        world.read_everything();
        world.converge();
    }
}

/// Scenario 2: B went on to a higher page sequence. A is promoted without it and writes. When B
/// comes back its newer-looking pages must not win, neither then nor after it has drained.
#[test]
fn s02_sequences_across_generations() {
    for drained in [false, true] {
        let mut world = two_legs(calm());
        prefer(&mut world, B);
        // Pages go only to B until the next background tick. The data goes to both.
        let begin = world.now;
        let ahead = page_sequence(&world, A);
        for region in 0..12 {
            world.write(region * REGION, 8);
        }
        assert!(world.now.since(begin) < 100 * MILLISECOND, "no tick in between");
        world.wait(MILLISECOND);
        assert!(page_sequence(&world, B) >= ahead + 12);
        assert_eq!(page_sequence(&world, A), ahead);
        world.crash(None, |_| Landing::Whole);
        // B is away, A is promoted and writes.
        assert_eq!(world.promote(A), []);
        world.open(&[A]).expect("A decides alone");
        world.write(0, 8);
        world.flush();
        world.crash(None, |_| Landing::Whole);
        // B comes back.
        let recovered = world.recovered();
        assert!(recovered.table.iter().all(|entry| !entry.is_whole(index(B))));
        reopen(&mut world);
        world.read_everything();
        if drained {
            world.converge();
            for region in 0..4 {
                world.write(region * REGION + 3, 8);
            }
            world.flush();
        }
        world.crash(Some(Cache::Dropped), |_| Landing::Not);
        reopen(&mut world);
        world.read_everything();
        world.converge();
    }
}

/// Scenario 3: the page that moved the region to B exists only on B and rots. A's older page must
/// not quietly stand in for it.
#[test]
fn s03_rotted_newest_page() {
    let mut world = two_legs(calm());
    world.write(0, 8);
    world.flush();
    assert_eq!(authority(&world, 0), A);
    world.hold(A, What::Anything);
    world.write(0, 8);
    world.write(8, 8);
    assert_eq!(authority(&world, 0), B);
    world.crash(None, |_| Landing::Not);
    let state = world.recovered().objects[0];
    assert!(state.durable[B] > state.durable[A], "the move exists on B only");
    let address = {
        let layout = recovery::newest_of(&world.disks[B].metadata).expect("a superblock").layout;
        layout.page_address(0, state.slot[B]) as usize
    };
    let intact = world.disks[B].metadata.clone();
    // A byte, a sector, all of it, all but one sector.
    for rot in [100..101, 1024..1536, 0..4096, 512..4096] {
        world.disks[B].metadata[address + rot.start..address + rot.end].fill(0xAA);
        let refusal = recovery::assess(&world.images()).expect_err("A must not stand in for B");
        assert!(
            matches!(refusal.problems[..], [Problem::PageDamaged { image: B, page: 0, .. }]),
            "{refusal:?}"
        );
        assert!(refusal.describe(&["a", "b"]).contains("hemi promote"));
        world.disks[B].metadata.clone_from(&intact);
    }
    assert_eq!(authority(&world, 0), B);
    world.open(&[A, B]).expect("nothing is rotten");
    world.read_everything();
}

/// A was silent when the volume was closed. Its page says that it decides a region which B decides
/// since, and both of B's pages are rotten.
#[test]
fn s03_a_leg_that_missed_a_clean_close_does_not_stand_in_for_rotten_pages() {
    let mut world = two_legs(calm());
    prefer(&mut world, A);
    world.write(0, 8);
    world.wait(SECOND);
    assert_eq!(authority(&world, 0), A);
    world.hold(A, What::Anything);
    world.write(0, 8);
    world.close();
    world.crash(None, |_| Landing::Not);
    let intact = world.disks[B].metadata.clone();
    let layout = world.recovered().superblock.layout;
    for slot in 0..2 {
        let address = layout.page_address(0, slot) as usize;
        world.disks[B].metadata[address..address + 4096].fill(0xAA);
    }
    let refusal = recovery::assess(&world.images()).expect_err("A has missed the close");
    assert!(matches!(refusal.problems[0], Problem::PageDamaged { image: B, page: 0, .. }));
    world.disks[B].metadata = intact;
    reopen(&mut world);
    world.read_everything();
}

/// Scenario 2, but only one of B's two slots is rewritten before it is in again. The other one
/// still holds the earlier page.
#[test]
fn s02_a_slot_left_over_from_another_generation() {
    let patient = Settings { wait_floor: SECOND, wait_ceiling: SECOND, ..calm() };
    let mut world = two_legs(patient);
    prefer(&mut world, B);
    for region in 0..12 {
        world.write(region * REGION, 8);
    }
    world.wait(MILLISECOND);
    world.crash(None, |_| Landing::Whole);
    assert_eq!(world.promote(A), []);
    world.open(&[A]).expect("A decides alone");
    world.write(0, 8);
    world.flush();
    world.crash(None, |_| Landing::Whole);
    world.settings.clean_after = 10 * MILLISECOND;
    world.open(&[A, B]).expect("B follows A");
    world.wait(90 * MILLISECOND);
    world.hold(B, What::Metadata);
    world.wait(600 * MILLISECOND);
    assert!(world.status().legs[B].owed_bytes == 0, "B has drained");
    // The page write fails. The next one goes to the same slot and records B as whole.
    for id in world.ids(B, What::Metadata) {
        world.fail(id);
    }
    world.release(B);
    world.converge();
    world.settings.clean_after = 1000 * SECOND;
    world.crash(Some(Cache::Dropped), |_| Landing::Not);
    assert!(!world.recorded(0).is_dirty(), "nothing has been written since it was clean");
    reopen(&mut world);
    world.read_everything();
}

/// A torn page write leaves its sequence behind in some sectors. The next write there must have a
/// higher one, or a second torn write would mix the two into one valid-looking page.
#[test]
fn s03_two_torn_pages_do_not_make_a_valid_one() {
    let mut world = two_legs(calm());
    prefer(&mut world, B);
    world.write(0, 8);
    world.flush();
    world.wait(150 * MILLISECOND);
    assert_eq!(authority(&world, 0), B);
    // B freezes, a move to A is in progress, and power is cut in the middle of A's page.
    world.hold(B, What::Anything);
    world.hold(A, What::Metadata);
    let lost = world.submit(Operation::Write, Extent::new(0, 8), false);
    world.wait(25 * MILLISECOND);
    let page = world.only(A, What::Metadata);
    assert!(!world.is_answered(lost));
    world.crash(Some(Cache::Kept), |p| {
        if p.io.id == page { Landing::Torn(0x0F) } else { Landing::Not }
    });
    // B decides again, and acknowledges a write that A does not have.
    assert_eq!(authority(&world, 0), B);
    world.open(&[A, B]).expect("a torn page may be ignored");
    world.read(3 * REGION, 8);
    world.hold(A, What::Writes);
    world.hold(A, What::Metadata);
    world.submit(Operation::Write, Extent::new(0, 8), true);
    world.run_until_answered(SECOND);
    // A's next page is torn as well, the other way round.
    world.submit(Operation::Write, Extent::new(2 * REGION, 8), false);
    world.wait(MILLISECOND);
    let page = world.only(A, What::Metadata);
    world.crash(Some(Cache::Kept), |p| {
        if p.io.id == page { Landing::Torn(0xF0) } else { Landing::Not }
    });
    assert_eq!(authority(&world, 0), B, "two halves were taken for a page");
    reopen(&mut world);
    world.read_everything();
    world.converge();
}

/// The same with a promotion in between: what it writes over a torn page has a higher sequence.
#[test]
fn s03_a_promotion_goes_past_a_torn_page() {
    let mut world = two_legs(calm());
    prefer(&mut world, B);
    world.write(0, 8);
    world.wait(150 * MILLISECOND);
    world.hold(B, What::Anything);
    world.hold(A, What::Metadata);
    world.submit(Operation::Write, Extent::new(0, 8), false);
    world.wait(25 * MILLISECOND);
    let page = world.only(A, What::Metadata);
    let known = page_sequence(&world, A);
    world.crash(Some(Cache::Kept), |p| {
        if p.io.id == page { Landing::Torn(0x0F) } else { Landing::Not }
    });
    let torn = world.recovered().objects[0].sequence - 1;
    assert!(torn > known, "the page was torn");
    world.promote(A);
    let image = LegImage { bytes: &world.disks[A].metadata };
    let state = recovery::assess(&[image]).expect("A decides alone").objects[0];
    assert!(state.durable[A] > torn + 1, "both slots are past it");
}

/// Scenario 7: B is replaced by B′ in the same slot. Records about B must not be believed of B′,
/// wherever the volume dies meanwhile.
#[test]
fn s07_slot_reuse() {
    let replaced = |steps: u64| {
        let mut world = two_legs(Settings { clean_after: 50 * MILLISECOND, ..calm() });
        for region in 0..8 {
            world.write(region * REGION, 16);
        }
        world.flush();
        world.converge();
        assert_eq!(world.command(Command::Detach { leg: index(B) }), Ok(()));
        world.put_in_new_disk(B, 1 << 40);
        let now = world.now;
        let join = Command::Join { leg: index(B), id: [77; 16], traits: fast() };
        world.engine().command(now, 5, join);
        world.take_actions();
        // After `steps` steps the power is cut.
        for _ in 0..steps {
            let until = world.now + SECOND;
            world.step(until);
        }
        world
    };
    for steps in 0..60 {
        for landing in [Landing::Not, Landing::Whole, Landing::Torn(0x2D)] {
            let mut world = replaced(steps);
            world.crash(Some(Cache::Dropped), |_| landing);
            let images: &[usize] = match recovery::newest_of(&world.disks[B].metadata) {
                Ok(_) => &[A, B],
                // It is no leg yet.
                Err(_) => &[A],
            };
            let legs: Vec<LegImage> =
                images.iter().map(|&l| LegImage { bytes: &world.disks[l].metadata }).collect();
            match recovery::assess(&legs) {
                Ok(opening) => {
                    let rubbish = |region: usize| {
                        let range = region * REGION as usize..(region + 1) * REGION as usize;
                        world.disks[B].contents()[range].contains(&(1 << 40))
                    };
                    for (region, entry) in opening.table.iter().enumerate() {
                        assert!(
                            images.len() == 1 || !(entry.is_whole(index(B)) && rubbish(region)),
                            "after {steps} steps region {region} is whole on a leg full of rubbish"
                        );
                    }
                }
                Err(refusal) => assert!(
                    matches!(refusal.problems[..], [Problem::Stranger { image: 1, .. }]),
                    "after {steps} steps: {refusal:?}"
                ),
            }
            let legs = if recovery::assess(&legs).is_ok() { images } else { &[A] };
            world.open(legs).expect("A decides");
            world.read_everything();
        }
    }
}

/// Scenario 9: both legs are closed cleanly. A alone serves and writes. B alone, although cleanly
/// closed, must not open and serve old data.
#[test]
fn s09_closed_leg_alone() {
    let mut world = two_legs(calm());
    world.write(0, 8);
    world.flush();
    world.close();
    for leg in [A, B] {
        let refusal = world.open(&[leg]).expect_err("the other may have gone on");
        assert_eq!(
            refusal.problems,
            [Problem::Missing { leg: index(1 - leg), last: LegDescription::default() }]
        );
    }
    assert_eq!(world.promote(A), []);
    world.open(&[A]).expect("A was told to decide");
    world.write(0, 8);
    world.flush();
    world.close();
    let refusal = world.open(&[B]).expect_err("B does not know of A's writes");
    assert_eq!(
        refusal.problems,
        [Problem::Missing { leg: index(A), last: LegDescription::default() }]
    );
    reopen(&mut world);
    assert!(
        !world
            .pending
            .iter()
            .any(|p| p.io.leg.index() == B && p.io.operation == LegOperation::Read)
    );
    world.read_everything();
    world.converge();
    world.close();
    world.open(&[A, B]).expect("both are in again");
    world.read_everything();
}
