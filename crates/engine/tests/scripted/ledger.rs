//! The ledger: an acknowledgement waits for no page and for no late leg, and the authority in the
//! ledger survives a kill.

use crate::world;
use crate::world::landing::Landing;
use crate::world::script::What;
use crate::world::{World, calm};
use hemi_engine::command::Command;
use hemi_engine::format::ledger::{LedgerError, SimulatedMemory};
use hemi_engine::identifiers::LegIndex;
use hemi_engine::io::{LegEvent, Operation};
use hemi_engine::recovery::{self, LedgerWord, LegImage, Outlived, Problem, Promotion};
use hemi_engine::settings::Settings;
use hemi_units::{Extent, MILLISECOND};
use hemi_world::disk::Cache;

const FAST: usize = 0;
const SLOW: usize = 1;

/// Returns a volume with a ledger, two similar legs, and a region that is touched under the first.
fn touched() -> World {
    let settings = Settings { clean_after: 2000 * MILLISECOND, ..calm() };
    let mut world = World::with_ledger(1, 2, settings);
    world.steady(FAST, 50_000);
    world.steady(SLOW, 100_000);
    for _ in 0..100 {
        world.write(0, 8);
    }
    assert_eq!(world.recorded(0).authority(), LegIndex(FAST as u8));
    world
}

/// The leg that decides falls silent. The other has the write, and answers long before the wait
/// limit of 20 ms is over.
#[test]
fn a_late_authority_is_not_waited_for() {
    let mut world = touched();
    world.hold(FAST, What::Anything);
    let write = world.submit(Operation::Write, Extent::new(0, 8), false);
    world.wait(3 * MILLISECOND);
    assert!(world.is_answered(write));
    assert_eq!(world.recorded(0).authority(), LegIndex(FAST as u8), "no page says so yet");
    world.crash(None, |p| if p.io.leg.index() == FAST { Landing::Not } else { Landing::Whole });
    world.open(&[FAST, SLOW]).expect("the ledger tells");
    world.read_everything();
    world.converge();
}

/// A write that must be durable waits for the page: a power cut leaves nothing else.
#[test]
fn a_durable_write_waits_for_the_page() {
    let mut world = touched();
    world.hold(FAST, What::Anything);
    world.hold(SLOW, What::Metadata);
    let write = world.submit(Operation::Write, Extent::new(0, 8), false);
    world.wait(3 * MILLISECOND);
    assert!(world.is_answered(write), "authority has moved");
    let durable = world.submit(Operation::Write, Extent::new(16, 8), true);
    world.wait(10 * MILLISECOND);
    assert!(!world.is_answered(durable), "no page names the leg that has it");
    world.release(SLOW);
    world.wait(10 * MILLISECOND);
    assert!(world.is_answered(durable));
    world.crash(Some(Cache::Dropped), |_| Landing::Not);
    world.open(&[FAST, SLOW]).expect("the pages tell");
    world.read_everything();
    world.converge();
}

/// A flush waits for the pages of earlier moves, not for those of later ones.
#[test]
fn a_flush_waits_for_the_page_of_a_move() {
    let mut world = touched();
    world.hold(FAST, What::Anything);
    world.hold(SLOW, What::Metadata);
    world.write(0, 8);
    let flush = world.submit(Operation::Flush, Extent::default(), false);
    world.wait(60 * MILLISECOND);
    assert!(!world.is_answered(flush));
    world.release(SLOW);
    world.wait(60 * MILLISECOND);
    assert!(world.is_answered(flush));
    world.crash(Some(Cache::Dropped), |_| Landing::Not);
    world.open(&[FAST, SLOW]).expect("the pages tell");
    world.read_everything();
}

/// The same, and hemi was killed meanwhile: the next one knows of that move by the ledger alone.
#[test]
fn a_flush_after_a_kill_waits_for_the_page_of_a_move_before_it() {
    let (mut world, _) = taken_over();
    world.open(&[FAST, SLOW]).expect("the ledger tells");
    while !world.engine().is_serving() {
        let until = world.now + MILLISECOND;
        world.step(until);
    }
    world.hold(FAST, What::Metadata);
    world.hold(SLOW, What::Metadata);
    let flush = world.submit(Operation::Flush, Extent::default(), false);
    world.wait(15 * MILLISECOND);
    assert!(!world.is_answered(flush), "no page names the leg that has it");
    world.release(SLOW);
    world.wait(100 * MILLISECOND);
    assert!(world.is_answered(flush));
    world.crash(Some(Cache::Dropped), |_| Landing::Not);
    world.open(&[FAST, SLOW]).expect("the pages tell");
    world.read_everything();
}

/// The authority has lost its cache while the leg that has everything was silent. A flush that came
/// meanwhile waits for the page of the move to that leg: the pages still name the one that lost its
/// cache.
#[test]
fn a_flush_waits_for_the_page_of_a_move_off_a_lost_cache() {
    let mut world = touched();
    world.write(0, 8);
    world.hold(FAST, What::Flushes);
    world.submit(Operation::Flush, Extent::default(), false);
    world.wait(MILLISECOND);
    world.hold(SLOW, What::Anything);
    world.submit(Operation::Write, Extent::new(8, 8), false);
    world.let_come(FAST);
    world.wait(100 * MILLISECOND);
    world.lose_leg(FAST, Cache::Dropped);
    world.event(FAST, LegEvent::Back);
    world.wait(100 * MILLISECOND);
    let flush = world.submit(Operation::Flush, Extent::default(), false);
    world.wait(10 * MILLISECOND);
    assert!(!world.is_answered(flush), "a silent leg alone has it");
    world.hold(SLOW, What::Metadata);
    world.release_kind(SLOW, What::Anything);
    world.wait(50 * MILLISECOND);
    assert!(!world.is_answered(flush), "no page names the leg that has it");
    world.release(SLOW);
    world.wait(100 * MILLISECOND);
    assert!(world.is_answered(flush));
    world.crash(Some(Cache::Dropped), |_| Landing::Not);
    world.open(&[FAST, SLOW]).expect("the pages tell");
    world.read_everything();
    world.converge();
}

/// Nothing but the ledger tells which leg has the acknowledged data, and hemi does not guess.
#[test]
fn a_start_without_the_ledger_is_refused() {
    let mut world = touched();
    world.crash(None, |_| Landing::Not);
    let ledger = world.machine.ledger.take();
    let refusal = world.open(&[FAST, SLOW]).expect_err("the ledger was relied on");
    assert_eq!(refusal.problems, [Problem::Ledger { error: None }]);
    assert!(refusal.describe(&["a", "b"]).contains("--accept-loss"));
    world.machine.ledger = ledger;
    world.open(&[FAST, SLOW]).expect("it is back");
    world.read_everything();
}

/// After a restart of the machine the pages decide, and no ledger is needed.
#[test]
fn a_restart_of_the_machine_needs_no_ledger() {
    let mut world = touched();
    world.crash(Some(Cache::Kept), |_| Landing::Not);
    world.machine.ledger = None;
    world.open(&[FAST, SLOW]).expect("nothing was relied on that outlives the machine");
    world.read_everything();
}

/// Armed regions count as clean at a start by the ledger: only touched regions are compared.
#[test]
fn only_what_was_touched_is_compared() {
    let settings = Settings {
        clean_after: 100 * MILLISECOND,
        resync_bytes: 64 << 20,
        dirty_regions_max: 64,
        ..calm()
    };
    let mut world = World::with_ledger(1, 2, settings);
    for region in 0..4 {
        world.write(region * world::REGION_BYTES / 512, 8);
    }
    world.wait(1000 * MILLISECOND);
    world.write(0, 8);
    world.crash(None, |_| Landing::Whole);
    world.open(&[FAST, SLOW]).expect("the ledger tells");
    world.converge();
    let compared: u64 = world.status().legs.iter().map(|leg| leg.compared_bytes).sum();
    assert_eq!(compared, world::REGION_BYTES);
    world.read_everything();
}

/// Closing leaves nothing that depends on the ledger.
#[test]
fn a_closed_volume_relies_on_no_ledger() {
    let mut world = touched();
    world.close();
    assert!(world.machine.ledger.take().expect("there was one").is_retired());
    world.open(&[FAST, SLOW]).expect("the pages tell");
    world.read_everything();
}

/// Returns the promotion of a leg of a killed volume, given these bytes of a ledger.
fn promotion(world: &World, metadata: &[u8], boot: u8, ledger: Option<&[u8]>) -> Promotion {
    let boot = world.machine.boot().map(|byte| byte.wrapping_add(boot));
    let outlived = Outlived { boot, ledger, accept_loss: false };
    let image = LegImage { bytes: metadata };
    recovery::promote_outlived(image, [77; 16], &outlived).expect("it can be promoted")
}

/// Returns a volume that was killed when another leg had taken over region 0, and only the ledger
/// says so.
fn taken_over() -> (World, Vec<u8>) {
    let mut world = touched();
    world.hold(FAST, What::Anything);
    world.hold(SLOW, What::Metadata);
    world.write(0, 8);
    world.crash(None, |_| Landing::Not);
    let ledger = world.machine.ledger.as_ref().map(SimulatedMemory::bytes).expect("there is one");
    (world, ledger)
}

/// The pages of the leg that decided until then call it complete.
#[test]
fn promotion_asks_the_ledger_what_a_leg_lacks() {
    let (world, ledger) = taken_over();
    let metadata = |leg: usize| &world.disks[leg].metadata;
    let region = Extent::new(0, world::REGION_BYTES / 512);
    let by_ledger = promotion(&world, metadata(FAST), 0, Some(&ledger));
    assert_eq!(by_ledger.ledger, LedgerWord::Read);
    assert_eq!(by_ledger.uncertain, [region], "what the other leg has taken over");
    assert!(by_ledger.lacks.is_empty(), "it may have all that was flushed there");
    let by_pages = promotion(&world, metadata(FAST), 0, None);
    assert!(by_pages.uncertain.is_empty(), "no page of this leg says so");

    // The leg that took over has all of it.
    let by_ledger = promotion(&world, metadata(SLOW), 0, Some(&ledger));
    assert_eq!((by_ledger.ledger, by_ledger.uncertain_regions), (LedgerWord::Read, 0));
    assert!(by_ledger.lacks.is_empty());
}

#[test]
fn promotion_does_not_believe_a_ledger_that_is_not_valid() {
    let (world, ledger) = taken_over();
    let metadata = &world.disks[FAST].metadata;
    let word = |boot, ledger: Option<&[u8]>| {
        let promotion = promotion(&world, metadata, boot, ledger);
        assert!(promotion.lacks.is_empty(), "by its pages it has everything");
        promotion.ledger
    };
    let mut damaged = ledger.clone();
    // The first region's word, after a page of header and one of sequences.
    damaged[8192] ^= 1;
    let error = LedgerError::Damaged { region: 0 };
    assert_eq!(word(0, Some(&damaged)), LedgerWord::Unknown(Some(error)));
    assert_eq!(word(0, None), LedgerWord::Unknown(None));
    assert_eq!(word(1, Some(&ledger)), LedgerWord::OfAnotherBoot);
}

/// A leg was put back to its state before its pages were written.
#[test]
fn promotion_of_an_older_leg_does_without_the_ledger() {
    let settings = Settings { clean_after: 2000 * MILLISECOND, ..calm() };
    let mut world = World::with_ledger(1, 2, settings);
    world.wait(100 * MILLISECOND);
    let older = world.disks[FAST].metadata.clone();
    for _ in 0..100 {
        world.write(0, 8);
    }
    world.wait(4000 * MILLISECOND);
    world.crash(None, |_| Landing::Whole);
    let ledger = world.machine.ledger.as_ref().map(SimulatedMemory::bytes);
    let now = promotion(&world, &world.disks[FAST].metadata, 0, ledger.as_deref());
    assert_eq!(now.ledger, LedgerWord::Read);
    let before = promotion(&world, &older, 0, ledger.as_deref());
    let error = LedgerError::LegOlder { leg: FAST as u8 };
    assert_eq!(before.ledger, LedgerWord::Unknown(Some(error)));
}

/// Whatever part of a promotion was written, the next one has the same result.
#[test]
fn a_promotion_by_the_ledger_can_be_cut_short() {
    let (world, ledger) = taken_over();
    for leg in [FAST, SLOW] {
        let before = &world.disks[leg].metadata;
        let whole = promotion(&world, before, 0, Some(&ledger));
        // With only the last superblock write missing it decides already, and relies on no ledger.
        for cut in 0..whole.writes.len() - 1 {
            let mut bytes = before.clone();
            for (address, block) in &whole.writes[..cut] {
                let start = *address as usize;
                bytes[start..start + 4096].copy_from_slice(&block[..]);
            }
            let again = promotion(&world, &bytes, 0, Some(&ledger));
            assert_eq!(again.ledger, LedgerWord::Read, "cut after {cut}");
            assert_eq!(again.lacks, whole.lacks, "cut after {cut}");
            assert_eq!(again.uncertain, whole.uncertain, "cut after {cut}");
        }
        assert_eq!(whole.superblock.ledger, None);
    }
}

/// A dirty entry under the leg itself, or a clean one, does not tell that it is behind. The ledger
/// does, as of the last settling.
#[test]
fn promotion_by_the_ledger_names_armed_regions_in_which_a_leg_is_behind() {
    let settings = Settings { clean_after: 100 * MILLISECOND, ..calm() };
    let mut world = World::with_ledger(1, 2, settings);
    world.steady(FAST, 50_000);
    world.steady(SLOW, 100_000);
    world.write(0, 8);
    world.hold(SLOW, What::Writes);
    world.write(0, 8);
    world.wait(2000 * MILLISECOND);
    world.crash(None, |_| Landing::Not);
    let ledger = world.machine.ledger.as_ref().map(SimulatedMemory::bytes);
    let metadata = &world.disks[SLOW].metadata;
    let by_pages = promotion(&world, metadata, 0, None);
    let by_ledger = promotion(&world, metadata, 0, ledger.as_deref());
    assert_eq!(by_ledger.ledger, LedgerWord::Read);
    assert_eq!(by_ledger.uncertain, [Extent::new(0, world::REGION_BYTES / 512)]);
    assert!(by_pages.uncertain.is_empty(), "no page of this leg says so");
}

/// A leg that joined is whole after a kill: the ledger's bits of its slot are those of the new leg.
#[test]
fn the_ledger_tells_of_a_leg_that_joined() {
    let settings = Settings { clean_after: 100 * MILLISECOND, ..calm() };
    let mut world = World::with_ledger(1, 2, settings);
    world.write(0, 8);
    let leg = LegIndex(SLOW as u8);
    assert_eq!(world.command(Command::Detach { leg }), Ok(()));
    world.put_in_new_disk(SLOW, 1 << 40);
    let join = Command::Join { leg, id: [77; 16], traits: world::fast() };
    assert_eq!(world.command(join), Ok(()));
    world.converge();
    world.crash(None, |_| Landing::Not);
    world.open(&[FAST, SLOW]).expect("the ledger tells");
    world.wait(MILLISECOND);
    assert_eq!(world.status().legs[SLOW].owed_bytes, 0, "it has everything");
    world.read_everything();
}
