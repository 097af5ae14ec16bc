//! Operators and devices act on a volume under load: legs die, come back, are detached, replaced,
//! scrubbed. Volumes are closed, reopened with a leg missing, promoted.

use crate::world;
use crate::world::landing::{Landing, lose_cache};
use crate::world::script::What;
use crate::world::{SECTORS, World, fast, settings};
use hemi_engine::command::{Command, CommandError, ScrubRepair};
use hemi_engine::format::superblock::Superblock;
use hemi_engine::format::{Layout, LegDescription, Membership};
use hemi_engine::identifiers::LegIndex;
use hemi_engine::io::{LegEvent, LegOperation, LegTraits, Notice, Operation, OutReason};
use hemi_engine::recovery::{self, LegImage, Problem};
use hemi_engine::status::LegState;
use hemi_units::{Extent, Instant, MILLISECOND, SECOND};
use hemi_world::disk::Cache;

fn load(world: &mut World, requests: u64) {
    for _ in 0..requests {
        let start = world.random.below(SECTORS - 16);
        let operation = if world.random.one_in(3) { Operation::Read } else { Operation::Write };
        world.submit(operation, Extent::new(start, 8), false);
        world.wait(100_000);
        if world.requests.len() > 32 {
            world.run_until_answered(20 * SECOND);
        }
    }
}

#[test]
fn a_dead_leg_is_marked_out_and_comes_back_by_draining() {
    for seed in 0..20 {
        let mut world = World::new(seed, 2, settings());
        load(&mut world, 50);
        world.freeze(1, Instant(u64::MAX / 2));
        load(&mut world, 50);
        world.wait(5 * SECOND);
        let now = world.status();
        assert_eq!(now.legs[1].state, LegState::Out, "{now:?}");
        load(&mut world, 50);
        let until = world.now;
        world.behaviour[1].frozen_until = until;
        for pending in &mut world.pending {
            pending.due = pending.due.min(until + 1000);
        }
        load(&mut world, 50);
        world.run_until_answered(20 * SECOND);
        world.converge();
        assert!(world.notices.contains(&Notice::In { leg: LegIndex(1) }));
        world.read_everything();
    }
}

#[test]
fn a_leg_that_lost_its_cache_is_not_believed() {
    for seed in 0..20 {
        let mut world = World::new(seed, 2, settings());
        load(&mut world, 60);
        world.run_until_answered(20 * SECOND);
        let now = world.now;
        world.engine().leg_event(now, LegIndex(0), LegEvent::Gone { removed: false });
        world.take_actions();
        let mut random = world::Random(seed);
        world.abort_swapping(0);
        lose_cache(&mut world.disks[0], Cache::Any, &mut random);
        load(&mut world, 20);
        let now = world.now;
        world.engine().leg_event(now, LegIndex(0), LegEvent::Back);
        world.take_actions();
        world.read_everything();
        load(&mut world, 20);
        world.flush();
        world.run_until_answered(20 * SECOND);
        world.converge();
        world.read_everything();
    }
}

#[test]
fn a_removed_leg_is_out_at_once() {
    let mut world = World::new(1, 2, settings());
    load(&mut world, 30);
    let now = world.now;
    world.engine().leg_event(now, LegIndex(1), LegEvent::Gone { removed: true });
    world.abort_swapping(1);
    world.wait(300 * MILLISECOND);
    assert!(world.notices.contains(&Notice::Out { leg: LegIndex(1), reason: OutReason::Removed }));
    load(&mut world, 30);
    world.run_until_answered(20 * SECOND);
    world.read_everything();
}

#[test]
fn detach_leaves_a_whole_image_and_join_makes_a_new_leg() {
    for seed in 0..10 {
        let mut world = World::new(seed, 2, settings());
        load(&mut world, 60);
        let done = world.command(Command::Detach { leg: LegIndex(1) });
        assert_eq!(done, Ok(()));
        world.run_until_answered(20 * SECOND);
        assert_eq!(world.disks[0].contents(), world.disks[1].contents(), "P8");
        load(&mut world, 40);
        world.run_until_answered(20 * SECOND);
        // The slot takes a new leg, with rubbish on it.
        world.put_in_new_disk(1, 1 << 40);
        let join = Command::Join { leg: LegIndex(1), id: [77; 16], traits: fast() };
        assert_eq!(world.command(join), Ok(()));
        load(&mut world, 40);
        world.run_until_answered(20 * SECOND);
        world.converge();
        world.read_everything();
        world.close();
        world.open(&[0, 1]).expect("both are in");
        world.read_everything();
    }
}

/// A new leg takes the slot of one that is out in one step: at no moment is the volume without both.
#[test]
fn a_new_leg_takes_the_slot_of_one_that_is_out_and_gone() {
    let mut world = World::new(2, 2, settings());
    load(&mut world, 30);
    let join = Command::Join { leg: LegIndex(1), id: [77; 16], traits: fast() };
    assert_eq!(world.command(join), Err(CommandError::SlotInUse), "it is in");
    let now = world.now;
    world.engine().leg_event(now, LegIndex(1), LegEvent::Gone { removed: true });
    world.abort_swapping(1);
    world.wait(300 * MILLISECOND);
    load(&mut world, 10);
    world.run_until_answered(20 * SECOND);
    world.put_in_new_disk(1, 1 << 40);
    assert_eq!(world.command(join), Ok(()));
    load(&mut world, 40);
    world.run_until_answered(20 * SECOND);
    world.converge();
    world.close();
    world.open(&[0, 1]).expect("both are in");
    world.read_everything();
    assert_eq!(world.disks[0].contents(), world.disks[1].contents());
}

/// Returns a volume of which one leg was put back to a snapshot between a clean stop and the start
/// just made.
fn opened_with_a_leg_put_back() -> World {
    let mut world = World::new(6, 2, settings());
    world.write(0, 64);
    world.flush();
    world.converge();
    let snapshot = world.disks[1].clone();
    world.write(0, 64);
    world.flush();
    world.converge();
    world.close();
    world.disks[1] = snapshot;
    world.open(&[0, 1]).expect("both are in");
    world
}

/// A leg put back to a snapshot between a clean stop and the next start does not count as whole.
#[test]
fn a_leg_put_back_before_a_clean_close_is_filled_again() {
    let mut world = opened_with_a_leg_put_back();
    world.read_everything();
    world.converge();
    assert_eq!(world.command(Command::Detach { leg: LegIndex(0) }), Ok(()));
    world.run_until_answered(20 * SECOND);
    world.read_everything();
}

/// A leg was put back likewise, and power is cut before any page records that it lacks something.
/// It is still doubted.
#[test]
fn a_leg_that_missed_a_clean_close_is_doubted_after_a_power_cut() {
    let mut world = opened_with_a_leg_put_back();
    world.wait(MILLISECOND);
    assert!(!world.recovered().clean, "the volume is open");
    world.crash(Some(Cache::Kept), |_| Landing::Not);
    world.open(&[0, 1]).expect("both are in");
    assert_eq!(world.recorded(0).whole(), 1, "the leg that was put back lacks it");
    world.converge();
    assert_eq!(world.command(Command::Detach { leg: LegIndex(0) }), Ok(()));
    world.run_until_answered(20 * SECOND);
    world.read_everything();
}

#[test]
fn a_missing_leg_is_named_by_what_the_others_know_of_its_device() {
    let mut world = World::new(5, 2, settings());
    load(&mut world, 10);
    assert_eq!(world.command(Command::Detach { leg: LegIndex(1) }), Ok(()));
    world.run_until_answered(20 * SECOND);
    world.put_in_new_disk(1, 0);
    let description = LegDescription::new("/dev/sdc", "ST4000VN008", "ZGY1");
    let traits = LegTraits { description, ..fast() };
    let join = Command::Join { leg: LegIndex(1), id: [77; 16], traits };
    assert_eq!(world.command(join), Ok(()));
    world.run_until_answered(20 * SECOND);
    world.converge();
    world.close();
    let refusal = world.open(&[0]).expect_err("leg 1 is in");
    let missing = Problem::Missing { leg: LegIndex(1), last: description };
    assert_eq!(refusal.problems, [missing]);
    let text = refusal.describe(&["leg0"]);
    assert!(text.contains("leg 1 (last seen as /dev/sdc, ST4000VN008, serial ZGY1)"), "{text}");
    // A driver that knows nothing of a leg keeps the known description.
    world.open(&[0, 1]).expect("both are in");
    world.close();
    assert_eq!(world.open(&[0]).expect_err("leg 1 is in").problems, refusal.problems);
}

#[test]
fn a_detached_leg_is_refused_as_a_member() {
    let mut world = World::new(3, 2, settings());
    load(&mut world, 20);
    assert_eq!(world.command(Command::Detach { leg: LegIndex(1) }), Ok(()));
    world.run_until_answered(20 * SECOND);
    world.close();
    let refusal = world.open(&[0, 1]).expect_err("a detached leg is no member");
    assert_eq!(refusal.problems, [Problem::Stranger { image: 1, detached: true }]);
    world.open(&[0]).expect("the other decides alone");
    world.read_everything();
    let alone = world.command(Command::Detach { leg: LegIndex(0) });
    assert_eq!(alone, Err(CommandError::OnlyLeg));
}

#[test]
fn an_absent_leg_that_is_in_needs_a_decision_and_a_fork_is_seen() {
    let mut world = World::new(4, 2, settings());
    world.write(0, 64);
    world.flush();
    world.close();
    for leg in [0usize, 1] {
        let refusal = world.open(&[leg]).expect_err("one leg alone may not decide");
        let missing = LegIndex(1 - leg as u8);
        assert_eq!(
            refusal.problems,
            [Problem::Missing { leg: missing, last: LegDescription::default() }]
        );
    }
    // Each is promoted without the other: two histories.
    for leg in [0usize, 1] {
        promote(&mut world, leg);
        world.open(&[leg]).expect("it decides now");
        world.write(8 * leg as u64, 8);
        world.close();
    }
    let refusal = world.open(&[0, 1]).expect_err("a fork is never merged");
    assert_eq!(refusal.problems, [Problem::Fork { image: 0, other: 1 }]);
}

fn promote(world: &mut World, leg: usize) -> Vec<Extent> {
    let image = LegImage { bytes: &world.disks[leg].metadata };
    let promotion = recovery::promote(image, [leg as u8 + 50; 16]).expect("it can be promoted");
    for (address, block) in &promotion.writes {
        let start = *address as usize;
        world.disks[leg].metadata[start..start + 4096].copy_from_slice(&block[..]);
    }
    promotion.lacks
}

#[test]
fn promotion_makes_what_is_known_to_lack_unreadable_until_rewritten() {
    let mut world = World::new(5, 2, settings());
    world.write(0, 8);
    world.flush();
    world.wait(2 * SECOND);
    // Leg 1 misses region 0 and is recorded as not whole there.
    world.freeze(1, Instant(u64::MAX / 2));
    world.write(0, 8);
    world.wait(2 * SECOND);
    let until = world.now;
    for pending in &mut world.pending {
        pending.due = until;
    }
    world.behaviour[1].frozen_until = until;
    world.behaviour[1].write_errors = 1;
    world.wait(2 * SECOND);
    world.kill();
    let lacks = promote(&mut world, 1);
    world.behaviour[1].write_errors = 0;
    world.open(&[1]).expect("it decides alone now");
    assert!(!lacks.is_empty(), "its own metadata knows that it lacks something");
    let before = world.failed_requests;
    world.submit(Operation::Read, lacks[0], false);
    world.run_until_answered(20 * SECOND);
    assert_eq!(world.failed_requests, before + 1, "what is lost answers EIO");
    world.submit(Operation::Write, lacks[0], false);
    world.run_until_answered(20 * SECOND);
    world.submit(Operation::Read, lacks[0], false);
    world.run_until_answered(20 * SECOND);
    assert_eq!(world.failed_requests, before + 1, "what was rewritten can be read");
}

/// A new drive holds rubbish wherever it has not been given anything yet. Its page does not tell
/// that in a region that is dirty.
#[test]
fn a_joining_leg_that_is_promoted_lacks_what_it_has_not_been_given() {
    let mut world = World::new(6, 2, settings());
    let detached = world.command(Command::Detach { leg: LegIndex(1) });
    assert_eq!(detached, Ok(()));
    world.put_in_new_disk(1, 0);
    for sector in 0..SECTORS as usize {
        world.disks[1].corrupt(sector, 1 << 40);
    }
    // All regions are dirty under leg 0 as the new leg joins, which is not given anything.
    for at in (0..SECTORS).step_by(64) {
        world.write(at, 8);
    }
    world.hold(1, What::Writes);
    let join = Command::Join { leg: LegIndex(1), id: [77; 16], traits: fast() };
    assert_eq!(world.command(join), Ok(()));
    world.wait(10 * SECOND);
    world.kill();
    let lacks = promote(&mut world, 1);
    let unsaid: Vec<usize> = (0..SECTORS as usize)
        .filter(|&at| world.disks[1].contents()[at] == 1 << 40)
        .filter(|&at| !lacks.iter().any(|lost| lost.start <= at as u64 && (at as u64) < lost.end))
        .collect();
    assert_eq!(unsaid, [0; 0], "sectors with what was on the drive before");
}

#[test]
fn promotion_cut_short_can_only_be_run_again() {
    let mut world = World::new(6, 2, settings());
    load(&mut world, 40);
    world.kill();
    let before = world.disks[0].metadata.clone();
    let image = LegImage { bytes: &before };
    let promotion = recovery::promote(image, [50; 16]).expect("it can be promoted");
    for cut in 0..=promotion.writes.len() {
        let mut bytes = before.clone();
        for (address, block) in &promotion.writes[..cut] {
            let start = *address as usize;
            bytes[start..start + 4096].copy_from_slice(&block[..]);
        }
        let both = [LegImage { bytes: &bytes }, LegImage { bytes: &world.disks[1].metadata }];
        let alone = recovery::assess(&both[..1]);
        let together = recovery::assess(&both);
        if cut == 0 {
            assert!(alone.is_err() && together.is_ok(), "nothing has happened yet");
        } else if cut < promotion.writes.len() - 1 {
            assert_eq!(alone.expect_err("undecided").problems, [Problem::NoneIn]);
            assert_eq!(together.expect_err("undecided").problems, [Problem::NoneIn]);
            let again = recovery::promote(LegImage { bytes: &bytes }, [51; 16]);
            assert_eq!(again.expect("it can be run again").lacks, promotion.lacks);
        } else {
            let opening = alone.expect("promoted");
            assert_eq!(opening.superblock.legs[0].state, Membership::In);
        }
    }
}

/// Writes all of the volume, and waits until no region is touched any more.
fn written(legs: usize) -> World {
    let mut world = World::new(7, legs, settings());
    for start in (0..SECTORS).step_by(64) {
        world.write(start, 64);
    }
    world.flush();
    world.wait(3 * SECOND);
    world
}

fn scrub(world: &mut World, repair: ScrubRepair) -> Result<(), CommandError> {
    world.command(Command::Scrub { repair, extent: Extent { start: 0, end: SECTORS } })
}

/// Each leg rots once. The register judges what is read afterwards.
#[test]
fn scrub_rewrites_what_differs_from_the_leg_that_is_named() {
    for wrong in 0..3 {
        let mut world = written(3);
        world.disks[wrong].corrupt(333, 1 << 41);
        assert_eq!(scrub(&mut world, ScrubRepair::Nothing), Err(CommandError::Mismatches));
        let found = world.status().scrub_mismatches;
        // Where the first leg is wrong, the two others differ from it.
        assert_eq!(found, if wrong == 0 { 2 } else { 1 });
        let right = LegIndex((wrong as u8 + 1) % 3);
        assert_eq!(scrub(&mut world, ScrubRepair::From(right)), Ok(()));
        world.converge();
        assert_eq!(scrub(&mut world, ScrubRepair::Nothing), Ok(()));
        for _ in 0..4 {
            world.read(333, 1);
        }
    }
}

/// A difference stays known until somebody writes there or decides it, over other scrubs and restarts.
#[test]
fn a_difference_stays_known_until_it_is_settled() {
    let mut world = written(2);
    for sector in [100, 333, 700] {
        world.disks[1].corrupt(sector, 1 << 41);
    }
    let known = |world: &mut World| -> Vec<u64> {
        world.engine().differences().iter().map(|one| one.extent.start).collect()
    };
    assert_eq!(scrub(&mut world, ScrubRepair::Nothing), Err(CommandError::Mismatches));
    assert_eq!(known(&mut world), [100, 333, 700]);
    world.write(333, 1);
    world.wait(SECOND);
    assert_eq!(known(&mut world), [100, 700]);
    assert_eq!(world.status().different, 2);
    let part = Extent { start: 0, end: 64 };
    let command = Command::Scrub { repair: ScrubRepair::Nothing, extent: part };
    assert_eq!(world.command(command), Ok(()));
    assert_eq!(known(&mut world), [100, 700], "that part does not differ");
    let part = Extent { start: 64, end: 256 };
    let command = Command::Scrub { repair: ScrubRepair::From(LegIndex(0)), extent: part };
    assert_eq!(world.command(command), Ok(()));
    world.wait(SECOND);
    assert_eq!(known(&mut world), [700], "the first is rewritten");
    let differences: Vec<_> = world.engine().differences().iter().collect();
    let mut restarted = written(2);
    restarted.engine().know_differences(differences.into_iter(), 8);
    assert_eq!((known(&mut restarted), restarted.status().different), (vec![700], 9));
    assert_eq!(scrub(&mut restarted, ScrubRepair::Nothing), Ok(()));
    assert_eq!(restarted.status().different, 0, "all of the volume was compared");
}

/// Something has overwritten all metadata of a leg while the volume is served. It is written again, and the
/// leg counts at the next start.
#[test]
fn metadata_that_a_leg_has_lost_is_written_again() {
    let mut world = written(2);
    let bytes = world.disks[1].metadata.len() as u64;
    for address in (0..bytes).step_by(4096) {
        world.disks[1].write_metadata(address, &[0; 4096], 0xff);
    }
    assert_eq!(world.command(Command::RewriteMetadata { leg: LegIndex(1) }), Ok(()));
    world.wait(3 * SECOND);
    world.crash(None, |_| Landing::Not);
    // By itself it makes the volume: all of it is there.
    world.open(&[1]).expect_err("the other leg may know more");
    world.open(&[0, 1]).expect("each leg has its metadata");
    world.converge();
    world.read_everything();
}

/// A scrub that could not read the leg that differs has not compared it: the difference stays known.
#[test]
fn a_difference_stays_known_where_its_leg_is_not_compared() {
    let mut world = written(3);
    world.disks[2].corrupt(333, 1 << 41);
    assert_eq!(scrub(&mut world, ScrubRepair::Nothing), Err(CommandError::Mismatches));
    assert_eq!(world.status().different, 1);
    world.behaviour[2].unreadable = Extent::new(world.data_start() + 333, 1);
    assert_eq!(scrub(&mut world, ScrubRepair::Nothing), Err(CommandError::Mismatches));
    assert_eq!(world.status().different, 1);
}

/// Nobody knows which leg is right: a scrub that rewrites what cannot be read leaves both as they are.
#[test]
fn scrub_leaves_a_difference_that_nobody_has_decided() {
    let mut world = written(2);
    world.disks[0].corrupt(333, 1 << 41);
    for _ in 0..2 {
        assert_eq!(scrub(&mut world, ScrubRepair::Unreadable), Err(CommandError::Mismatches));
        assert_eq!(world.status().scrub_mismatches, 1);
        world.wait(SECOND);
    }
    assert_eq!(scrub(&mut world, ScrubRepair::From(LegIndex(1))), Ok(()));
    world.converge();
    world.read(333, 1);
}

/// The leg that is wrong decides its region. It stops being so before it is rewritten, which is said.
#[test]
fn scrub_moves_the_authority_away_from_a_leg_that_is_wrong() {
    let mut world = written(2);
    world.write(333, 1);
    let regions = world.engine().census(0..SECTORS as u32);
    let authority = regions.authority().expect("a write has just touched it");
    let right = LegIndex(1 - authority.0);
    world.disks[authority.index()].corrupt(333, 1 << 41);
    let mut left = scrub(&mut world, ScrubRepair::From(right));
    for _ in 0..8 {
        if left.is_ok() {
            break;
        }
        assert_eq!(left, Err(CommandError::Mismatches));
        world.wait(SECOND);
        left = scrub(&mut world, ScrubRepair::From(right));
    }
    assert_eq!(left, Ok(()));
    world.converge();
    assert_eq!(scrub(&mut world, ScrubRepair::Nothing), Ok(()));
    world.read(333, 1);
}

/// A leg that cannot read an extent is given it by the others, whichever leg differs.
#[test]
fn what_a_leg_cannot_read_counts_by_itself() {
    let mut world = written(2);
    world.behaviour[1].unreadable = Extent::new(world.data_start() + 64, 8);
    assert_eq!(scrub(&mut world, ScrubRepair::Nothing), Err(CommandError::Mismatches));
    let status = world.status();
    assert_eq!(status.scrub_mismatches, 0);
    assert!(status.scrub_unreadable >= 8);
    assert_eq!(scrub(&mut world, ScrubRepair::Unreadable), Ok(()));
    world.converge();
}

#[test]
fn scrub_beside_load_finds_nothing_where_nothing_is_wrong() {
    for seed in 0..10 {
        let mut world = World::new(seed, 3, settings());
        let extent = Extent { start: 0, end: SECTORS };
        let now = world.now;
        world.engine().command(now, 5, Command::Scrub { repair: ScrubRepair::Unreadable, extent });
        world.take_actions();
        load(&mut world, 200);
        world.freeze(1, world.now + 200 * MILLISECOND);
        load(&mut world, 100);
        world.run_until_answered(20 * SECOND);
        world.wait(5 * SECOND);
        assert_eq!(world.commands.get(&5), Some(&Ok(())));
        assert_eq!(world.status().scrub_mismatches, 0);
        world.converge();
        world.read_everything();
    }
}

#[test]
fn a_medium_error_is_answered_from_another_leg_and_rewritten() {
    let mut world = World::new(8, 2, settings());
    world.write(100, 8);
    world.flush();
    world.wait(2 * SECOND);
    for leg in 0..2 {
        world.behaviour[leg].read_errors = 1;
        let other = 1 - leg;
        world.behaviour[other].read_errors = 0;
        for _ in 0..6 {
            world.submit(Operation::Read, Extent::new(100, 8), false);
            world.run_until_answered(20 * SECOND);
        }
    }
    assert_eq!(world.failed_requests, 0, "one leg could always read it");
    assert!(world.status().repairs > 0, "what could not be read was rewritten");
}

#[test]
fn exposure_never_passes_its_bound() {
    for seed in 0..10 {
        let mut world = World::new(seed, 2, settings());
        world.freeze(1, Instant(1500 * MILLISECOND));
        for round in 0..600u64 {
            if world.requests.len() < 40 {
                let start = (round * 40) % (SECTORS - 40);
                world.submit(Operation::Write, Extent::new(start, 32), false);
            }
            world.wait(200_000);
            let now = world.status();
            assert!(now.exposure_bytes <= now.exposure_bytes_bound, "P5: {}", now.exposure_bytes);
        }
        world.run_until_answered(60 * SECOND);
        world.converge();
    }
}

#[test]
fn damage_that_may_hide_the_newest_page_is_refused() {
    let mut world = World::new(9, 2, settings());
    load(&mut world, 60);
    world.kill();
    let images = |world: &World, broken: Option<(usize, u64)>| {
        let mut bytes: Vec<Vec<u8>> = world.disks.iter().map(|d| d.metadata.clone()).collect();
        if let Some((leg, address)) = broken {
            for byte in &mut bytes[leg][address as usize..address as usize + 4096] {
                *byte ^= 0x55;
            }
        }
        bytes
    };
    let intact = images(&world, None);
    let head = recovery::newest_of(&intact[0]).expect("a superblock");
    let layout: Layout = head.layout;
    let mut refused = 0;
    for leg in 0..2 {
        for slot in 0..2 {
            let bytes = images(&world, Some((leg, layout.page_address(0, slot))));
            let legs: Vec<LegImage> = bytes.iter().map(|b| LegImage { bytes: b }).collect();
            match recovery::assess(&legs) {
                Err(refusal) => {
                    assert!(matches!(refusal.problems[0], Problem::PageDamaged { .. }));
                    assert!(refusal.describe(&["left", "right"]).contains("hemi promote"));
                    refused += 1;
                }
                Ok(_) => panic!("a page lost without a trace may have been the newest"),
            }
        }
    }
    assert_eq!(refused, 4);
    // One rotten sector leaves the others to tell the sequence: an old slot may rot.
    let both: Vec<LegImage> = intact.iter().map(|b| LegImage { bytes: b }).collect();
    let opening = recovery::assess(&both).expect("intact");
    let state = opening.objects[0];
    let mut bytes = images(&world, None);
    let old_slot = 1 - state.slot[0];
    let at = layout.page_address(0, old_slot) as usize + 3 * 512 + 9;
    bytes[0][at] ^= 1;
    let legs: Vec<LegImage> = bytes.iter().map(|b| LegImage { bytes: b }).collect();
    assert_eq!(recovery::assess(&legs).expect("an older slot").table, opening.table);
}

#[test]
fn superblocks_are_written_before_changes_take_effect() {
    let mut world = World::new(10, 2, settings());
    load(&mut world, 10);
    for disk in &world.disks {
        let own: Superblock = recovery::newest_of(&disk.metadata).expect("a superblock");
        assert!(own.open, "open is durable on every leg before anything is served");
    }
    world.run_until_answered(20 * SECOND);
    world.close();
    for disk in &world.disks {
        assert!(!recovery::newest_of(&disk.metadata).expect("a superblock").open);
    }
    assert!(
        !world.pending.iter().any(|p| p.io.operation == LegOperation::WriteMetadata),
        "closed means that nothing is in flight"
    );
}

/// A full disk still takes overwrites. That some writes succeed does not make it a leg.
#[test]
fn a_leg_that_has_no_room_for_some_writes_goes_out() {
    let mut world = World::new(5, 2, settings());
    world.behaviour[1].full = Extent::new(world.data_start() + SECTORS / 2, SECTORS / 2);
    let mut is_out = false;
    for _ in 0..2000 {
        for start in [0, SECTORS / 2] {
            let start = start + world.random.below(SECTORS / 2 - 8);
            world.submit(Operation::Write, Extent::new(start, 8), false);
        }
        world.wait(10 * MILLISECOND);
        world.run_until_answered(20 * SECOND);
        is_out = world.status().legs[1].state == LegState::Out;
        if is_out {
            break;
        }
    }
    assert!(is_out, "the full leg stays in");
    let out = Notice::Out { leg: LegIndex(1), reason: OutReason::WriteErrors };
    assert!(world.notices.contains(&out));
    world.read_everything();
}

#[test]
fn a_detach_does_not_wait_for_a_leg_that_stays_silent() {
    let mut world = World::new(6, 2, settings());
    load(&mut world, 50);
    // Leg 1's debts have to be paid first, and cannot be.
    world.freeze(1, Instant(u64::MAX / 2));
    world.submit(Operation::Write, Extent::new(0, 8), false);
    world.wait(MILLISECOND);
    let (now, token) = (world.now, 77);
    world.engine().command(now, token, Command::Detach { leg: LegIndex(0) });
    world.take_actions();
    world.write(0, 8);
    world.wait(4 * SECOND);
    assert_eq!(world.commands.get(&token), Some(&Err(CommandError::LastCompleteLeg)));
    world.write(0, 8);
    world.read_everything();
}

#[test]
fn commands_before_the_volume_is_open_are_taken_up_when_it_is() {
    let mut world = World::new(7, 3, settings());
    world.kill();
    world.open(&[0, 1, 2]).expect("all legs are there");
    let now = world.now;
    assert!(!world.engine().is_serving());
    world.engine().command(now, 1, Command::Detach { leg: LegIndex(2) });
    world.engine().command(now, 2, Command::Detach { leg: LegIndex(1) });
    world.take_actions();
    world.wait(20 * SECOND);
    assert_eq!(world.commands.get(&1), Some(&Ok(())));
    assert_eq!(world.commands.get(&2), Some(&Err(CommandError::Busy)));
}

/// Blocks that only one leg has and cannot read are recorded as lost after some tries. The rest is
/// paid, and a rewrite makes them good.
#[test]
fn what_the_only_fresh_leg_cannot_read_is_lost_and_nothing_else() {
    let mut drawn = settings();
    drawn.copies_reserve = u64::MAX;
    let mut world = World::new(8, 2, drawn);
    world.write(0, 8);
    world.flush();
    world.converge();
    world.freeze(1, Instant(u64::MAX / 2));
    // The other leg is known to be silent before they come, so they are not sent there.
    world.write(256, 8);
    world.wait(SECOND);
    for start in (0..256).step_by(64) {
        world.write(start, 64);
        world.wait(100 * MILLISECOND);
    }
    let bad = Extent::new(40, 3);
    world.behaviour[0].unreadable = Extent::new(world.data_start() + bad.start, bad.sectors());
    let until = world.now;
    world.behaviour[1].frozen_until = until;
    for pending in &mut world.pending {
        pending.due = pending.due.min(until + 1000);
    }
    world.wait(120 * SECOND);
    let now = world.status();
    assert_eq!(now.legs[1].owed_bytes, 0, "{now:?}");
    let lost = world.notices.iter().filter_map(|notice| match notice {
        Notice::Lost { extent } => Some(*extent),
        _ => None,
    });
    assert!(lost.clone().count() > 0 && lost.clone().all(|extent| extent.overlaps(bad)));
    let whole =
        lost.fold(bad, |a, b| Extent { start: a.start.min(b.start), end: a.end.max(b.end) });
    assert_eq!(whole, bad, "more is lost than cannot be read");
    let token = world.submit(Operation::Read, Extent::new(40, 1), false);
    world.run_until_answered(20 * SECOND);
    assert!(world.has_failed(token));
    for (start, count) in [(0, 40), (43, 200)] {
        let token = world.submit(Operation::Read, Extent::new(start, count), false);
        world.run_until_answered(20 * SECOND);
        assert!(!world.has_failed(token));
    }
    world.behaviour[0].unreadable = Extent::default();
    world.write(40, 3);
    world.read_everything();
    world.converge();
}
