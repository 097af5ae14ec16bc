//! Legs that were put back to an older state, in by the newest superblock or out.

use crate::world;
use crate::world::landing::Landing;
use crate::world::script::What;
use crate::world::{World, calm};
use hemi_engine::command::Command;
use hemi_engine::format::ledger::LedgerError;
use hemi_engine::format::stamp::{Progress, Stamp};
use hemi_engine::format::superblock::Name;
use hemi_engine::format::{BLOCK_BYTES, Block, Id, Layout, Membership, Superblock};
use hemi_engine::identifiers::LegIndex;
use hemi_engine::recovery::{self, Problem};
use hemi_engine::settings::Settings;
use hemi_units::{Extent, MILLISECOND, SECOND};
use hemi_world::disk::{Cache, Disk};

const A: usize = 0;
const B: usize = 1;
/// The number of sectors of a region.
const REGION: u64 = world::REGION_BYTES / 512;

/// Returns settings in which a silent leg is out after a second.
fn impatient() -> Settings {
    Settings { clean_after: 50 * MILLISECOND, out_after: SECOND, ..calm() }
}

fn world(has_ledger: bool) -> World {
    match has_ledger {
        true => World::with_ledger(1, 2, impatient()),
        false => World::new(1, 2, impatient()),
    }
}

/// Writes to both legs until they are alike. Returns B as it was before.
fn older(world: &mut World) -> Disk {
    world.write(REGION, 8);
    world.converge();
    let older = world.disks[B].clone();
    world.write(0, 8);
    world.flush();
    world.converge();
    older
}

/// Has B fall silent for so long that it is out.
fn silence(world: &mut World) {
    world.hold(B, What::Anything);
    world.write(2 * REGION, 8);
    world.wait(2 * SECOND);
    assert!(world.status().legs[B].out_reason.is_some(), "it is out");
}

/// Has B answer again, and stay out: it has no room for what it owes of one region.
fn keep_out(world: &mut World) {
    world.behaviour[B].full = Extent::new(world.data_start() + 2 * REGION, 8);
    world.release(B);
    world.wait(5 * SECOND);
    assert!(world.status().legs[B].out_reason.is_some(), "it is out");
}

fn sequence(world: &World, leg: usize) -> u64 {
    recovery::newest_of(&world.disks[leg].metadata).expect("a superblock").sequence
}

fn is_whole(world: &World, region: usize) -> bool {
    world.recorded(region).is_whole(LegIndex(B as u8))
}

/// Opens with every leg, and compares them once all are in.
fn open_and_compare(world: &mut World) {
    world.behaviour[B].full = Extent::default();
    let legs: Vec<usize> = (0..world.disks.len()).collect();
    world.open(&legs).expect("the others decide");
    world.read_everything();
    world.converge();
}

/// B's bits in the pages are of a state that it was put back from while hemi was stopped.
#[test]
fn a_leg_that_is_out_and_was_put_back_before_a_clean_stop_is_filled_again() {
    for has_ledger in [false, true] {
        let mut world = world(has_ledger);
        let older = older(&mut world);
        silence(&mut world);
        world.close();
        world.holds.clear();
        world.pending.clear();
        world.disks[B] = older;
        open_and_compare(&mut world);
    }
}

#[test]
fn a_leg_that_is_out_and_was_put_back_after_a_kill_is_filled_again() {
    for (has_ledger, cache) in [(false, None), (true, None), (true, Some(Cache::Kept))] {
        let mut world = world(has_ledger);
        let older = older(&mut world);
        silence(&mut world);
        world.crash(cache, |_| Landing::Not);
        world.disks[B] = older;
        open_and_compare(&mut world);
    }
}

/// Once the volume is open its superblock is on that leg, too, and does not tell any more.
#[test]
fn a_leg_that_is_out_and_was_put_back_is_doubted_after_a_power_cut() {
    let mut world = world(false);
    let older = older(&mut world);
    silence(&mut world);
    world.crash(None, |_| Landing::Not);
    world.disks[B] = older;
    world.open(&[A, B]).expect("A decides");
    while sequence(&world, B) < sequence(&world, A) {
        let until = world.now + SECOND;
        world.step(until);
    }
    world.crash(Some(Cache::Kept), |_| Landing::Not);
    assert!(!is_whole(&world, 0), "no page has been written since");
    open_and_compare(&mut world);
}

/// The same beside a region that is dirty under A and whole on B alone: that B is whole there keeps
/// nobody from doubting it.
#[test]
fn a_leg_that_is_out_is_doubted_where_it_alone_was_whole() {
    let mut world = world(false);
    let older = older(&mut world);
    let region = 3 * REGION;
    world.hold(A, What::Writes);
    world.write(region, 8);
    world.wait(500 * MILLISECOND);
    world.release(A);
    world.wait(5 * MILLISECOND);
    world.write(region, 8);
    assert_eq!(world.recorded(3).whole(), 1 << B);
    world.hold(B, What::Anything);
    while world.status().legs[B].out_reason.is_none() {
        world.write(region, 8);
        world.wait(10 * MILLISECOND);
    }
    world.crash(None, |_| Landing::Not);
    let by_a = recovery::assess(&world.images()[..1]).expect("B is out");
    assert!(by_a.table[3].is_dirty() && by_a.table[3].whole() == 1 << B);
    world.disks[B] = older;
    world.open(&[A, B]).expect("A decides");
    while sequence(&world, B) < sequence(&world, A) {
        let until = world.now + SECOND;
        world.step(until);
    }
    world.crash(Some(Cache::Kept), |_| Landing::Not);
    assert!(!is_whole(&world, 0), "no page has been written since");
    open_and_compare(&mut world);
}

/// B has heard of a superblock that the others have not, and they went on in a generation of their own.
#[test]
fn a_leg_that_is_out_is_doubted_whatever_the_sequence_of_another_generation() {
    let mut world = world(false);
    let older = older(&mut world);
    silence(&mut world);
    world.crash(None, |_| Landing::Not);
    world.disks[B] = older;
    let mut own = recovery::newest_of(&world.disks[B].metadata).expect("a superblock");
    own.sequence = sequence(&world, A);
    assert_ne!(own.generation, world.recovered().superblock.generation);
    for slot in 0..2 {
        let mut block = [0; 4096];
        own.encode(&mut block, slot);
        world.disks[B].write_metadata(Layout::superblock_address(slot), &block, 0xFF);
    }
    open_and_compare(&mut world);
}

/// The superblock that says it is closed is on a leg that is out as well. What that has drained it
/// keeps.
#[test]
fn a_leg_that_is_out_and_answers_is_told_of_a_clean_stop() {
    for has_ledger in [false, true] {
        let mut world = world(has_ledger);
        older(&mut world);
        silence(&mut world);
        keep_out(&mut world);
        let now = world.now;
        world.engine().command(now, 1, Command::Close { drain_until: now });
        world.take_actions();
        while !world.closed {
            let until = world.now + SECOND;
            world.step(until);
        }
        // Whatever hemi still wants is never done.
        world.crash(None, |_| Landing::Not);
        assert_eq!(sequence(&world, A), sequence(&world, B));
        assert!(is_whole(&world, 0) && !is_whole(&world, 2));
        open_and_compare(&mut world);
    }
}

/// It would have to be filled anew if hemi were killed before it has that superblock.
#[test]
fn a_leg_that_is_out_and_answers_is_told_at_once_that_the_volume_is_open() {
    let mut world = world(false);
    older(&mut world);
    silence(&mut world);
    keep_out(&mut world);
    world.crash(None, |_| Landing::Not);
    world.open(&[A, B]).expect("A decides");
    world.wait(10 * MILLISECOND);
    assert_eq!(sequence(&world, A), sequence(&world, B));
}

/// A leg that is out and fails every write is not waited for.
#[test]
fn a_clean_stop_does_not_wait_for_a_leg_that_is_out_and_cannot_be_told() {
    let mut world = world(false);
    older(&mut world);
    silence(&mut world);
    keep_out(&mut world);
    world.behaviour[B].write_errors = 1;
    let begin = world.now;
    world.close();
    assert!(world.now.since(begin) < 2 * SECOND, "it took {} ns", world.now.since(begin));
    assert!(world.recovered().clean);
}

/// A leg that is in was put back after a clean stop. Beside it only one that is out is whole in a region,
/// and that does not decide it: the leg that was put back goes on doing so.
#[test]
fn a_leg_that_is_out_does_not_vouch_for_what_one_that_was_put_back_decides() {
    const C: usize = 2;
    let mut world = World::new(1, 3, Settings { out_after: 10 * SECOND, ..impatient() });
    world.hold(C, What::Anything);
    world.write(2 * REGION, 8);
    world.wait(20 * SECOND);
    let data = world.data_start();
    world.behaviour[C].full = Extent::new(data + 2 * REGION, 8);
    world.behaviour[B].full = Extent::new(data, 8);
    world.release(C);
    world.write(0, 8);
    world.wait(2 * SECOND);
    let older = world.disks[A].clone();
    let now = world.now;
    world.engine().command(now, 1, Command::Close { drain_until: now });
    while !world.closed {
        world.wait(MILLISECOND);
    }
    world.crash(None, |_| Landing::Not);
    let recovered = world.recovered();
    assert!(recovered.clean && recovered.superblock.legs[C].state != Membership::In);
    assert_eq!(recovered.table[0].whole(), 1 << A | 1 << C);
    world.disks[A] = older;
    // Where B is whole, too, the old pages go on speaking for A until they are rewritten.
    world.thorough = false;
    world.open(&[A, B, C]).expect("A decides the region");
    world.read_everything();
}

/// Two legs that are in fell silent before a clean stop, and nobody else has a region. One of them was put
/// back: they need not be alike, and one alone decides it.
#[test]
fn of_two_legs_that_missed_a_clean_stop_one_decides_what_no_other_has() {
    const C: usize = 2;
    let mut world = World::new(1, 3, Settings { out_after: 60 * SECOND, ..impatient() });
    world.behaviour[A].full = Extent::new(world.data_start(), 8);
    let older = world.disks[C].clone();
    world.write(0, 8);
    world.wait(2 * SECOND);
    world.hold(B, What::Anything);
    world.hold(C, What::Anything);
    let now = world.now;
    world.engine().command(now, 1, Command::Close { drain_until: now });
    while !world.closed {
        world.wait(SECOND);
    }
    world.crash(None, |_| Landing::Not);
    let recovered = world.recovered();
    assert!(recovered.clean && !recovered.table[0].is_whole(LegIndex(A as u8)));
    world.disks[C] = older;
    world.behaviour[A].full = Extent::default();
    world.steady(C, MILLISECOND / 100);
    // Where A is whole, too, the old pages go on speaking for B until they are rewritten.
    world.thorough = false;
    open_and_compare(&mut world);
}

/// It has the newest superblock, and older pages than the ledger knows to be durable there.
#[test]
fn a_leg_that_is_out_and_older_than_the_ledger_knows_is_filled_again() {
    let mut world = world(true);
    older(&mut world);
    silence(&mut world);
    keep_out(&mut world);
    let older = world.disks[B].clone();
    world.write(0, 8);
    world.flush();
    world.wait(5 * SECOND);
    assert!(is_whole(&world, 0), "it has drained and flushed the region");
    world.crash(None, |_| Landing::Not);
    world.disks[B] = older;
    assert_eq!(sequence(&world, A), sequence(&world, B));
    open_and_compare(&mut world);
}

/// It has filled a region since, which the ledger alone says by then.
#[test]
fn a_leg_that_is_out_and_was_put_back_is_not_whole_by_the_ledger_either() {
    let mut world = world(true);
    let older = older(&mut world);
    silence(&mut world);
    world.crash(None, |_| Landing::Not);
    world.disks[B] = older;
    world.behaviour[B].full = Extent::new(world.data_start() + 2 * REGION, 8);
    world.open(&[A, B]).expect("A decides");
    world.step(world.now + SECOND);
    let older = world.disks[B].clone();
    world.crash(None, |_| Landing::Not);
    world.open(&[A, B]).expect("A decides");
    let by_ledger = |world: &World| {
        let images = world.images();
        let opening =
            world.machine.with_outlived(|outlived| recovery::assess_outlived(&images, outlived));
        opening.expect("A decides").table[0].is_whole(LegIndex(B as u8))
    };
    while !by_ledger(&world) {
        let until = world.now + SECOND;
        world.step(until);
    }
    assert!((0..4).all(|region| !is_whole(&world, region)), "by the pages B is whole nowhere");
    world.crash(None, |_| Landing::Not);
    world.disks[B] = older;
    assert!(!by_ledger(&world), "the superblock of the last start is not on it");
    open_and_compare(&mut world);
}

/// Returns a volume with a ledger that was killed, and B as it was some writes before.
fn killed() -> (World, Disk) {
    let mut world = world(true);
    let older = older(&mut world);
    world.crash(None, |_| Landing::Not);
    (world, older)
}

const OLDER: [Problem; 1] =
    [Problem::Ledger { error: Some(LedgerError::LegOlder { leg: B as u8 }) }];

#[test]
fn a_leg_older_than_the_ledger_knows_keeps_the_volume_from_opening() {
    let (mut world, older) = killed();
    let newest = std::mem::replace(&mut world.disks[B], older);
    let refusal = world.open(&[A, B]).expect_err("B was put back");
    assert_eq!(refusal.problems, OLDER);
    world.disks[B] = newest;
    open_and_compare(&mut world);
}

/// Writes a stamp to a leg.
fn stamp(disk: &mut Disk, volume: Id, stamp: Stamp) {
    let mut block = [0; 4096];
    let slot = stamp.slot(0);
    stamp.encode(&mut block, slot, volume);
    disk.write_metadata(Layout::stamp_address(slot), &block, 0xFF);
}

/// All that tells is the stamp that a remote leg gets with each flush.
#[test]
fn a_leg_with_an_older_stamp_than_the_ledger_knows_is_not_taken_for_what_it_was() {
    let writer = [9; 16];
    for is_out in [false, true] {
        let mut world = world(true);
        older(&mut world);
        if is_out {
            silence(&mut world);
            keep_out(&mut world);
        }
        let volume = world.recovered().superblock.volume_id;
        stamp(&mut world.disks[B], volume, Stamp { writer, number: 1 });
        let older = world.disks[B].clone();
        let known = Stamp { writer, number: 2 };
        stamp(&mut world.disks[B], volume, known);
        let progress = Progress { known: Some(known), writer };
        world.engine().leg_progressed(LegIndex(B as u8), &progress);
        world.crash(None, |_| Landing::Not);
        let opened = |world: &World| {
            let images = world.images();
            world.machine.with_outlived(|outlived| recovery::assess_outlived(&images, outlived))
        };
        let opening = opened(&world).expect("nothing is older");
        assert!(opening.table[0].is_whole(LegIndex(B as u8)));
        world.disks[B] = older;
        match opened(&world) {
            Ok(opening) => assert!(is_out && !opening.table[0].is_whole(LegIndex(B as u8))),
            Err(refusal) => assert!(!is_out && refusal.problems == OLDER),
        }
    }
}

/// Hemi is killed while it opens the volume. What the ledger knows of the legs is what they held.
#[test]
fn a_leg_put_back_after_a_kill_during_opening_keeps_the_volume_from_opening() {
    let mut world = world(true);
    let older = older(&mut world);
    world.close();
    world.open(&[A, B]).expect("it was closed");
    world.crash(None, |p| if p.io.leg.index() == A { Landing::Whole } else { Landing::Not });
    assert!(!world.recovered().clean, "A says that it is open");
    world.disks[B] = older;
    let refusal = world.open(&[A, B]).expect_err("B was put back");
    assert_eq!(refusal.problems, OLDER);
}

/// A damaged page tells that something has been written since both legs were closed, though both have been put
/// back but for that page.
#[test]
fn a_damaged_page_newer_than_a_clean_stop_keeps_the_volume_from_opening() {
    let mut world = World::new(1, 2, impatient());
    world.write(0, 8);
    world.converge();
    world.close();
    let closed = [A, B].map(|leg| world.disks[leg].metadata.clone());
    world.open(&[A, B]).expect("both are there");
    world.write(0, 8);
    world.wait(10 * MILLISECOND);
    world.crash(None, |_| Landing::Not);
    let opening = world.recovered();
    let at = opening.superblock.layout.page_address(0, opening.objects[0].slot[A]) as usize;
    let newer = world.disks[A].metadata[at..at + 4096].to_vec();
    for (disk, closed) in world.disks.iter_mut().zip(closed) {
        disk.metadata = closed;
    }
    world.disks[A].metadata[at..at + 4096].copy_from_slice(&newer);
    world.disks[A].metadata[at + 1024..at + 1536].fill(0xAA);
    let refusal = recovery::assess(&world.images()).expect_err("the page was newer");
    assert!(matches!(refusal.problems[..], [Problem::PageDamaged { image: A, page: 0, .. }]));
}

/// The newest superblock calls the volume by another name than a leg that counts itself in. Names never change,
/// and files are named after them.
#[test]
fn one_leg_does_not_rename_the_volume() {
    let mut world = world(false);
    world.write(0, 8);
    world.converge();
    world.close();
    for slot in 0..2 {
        let at = Layout::superblock_address(slot) as usize;
        let bytes = &mut world.disks[B].metadata[at..at + BLOCK_BYTES];
        let mut block: Block = (&*bytes).try_into().expect("its size");
        let mut superblock = Superblock::decode(&block, slot).expect("it is valid");
        superblock.name = Name::new("/../../etc/passwd").expect("a name");
        superblock.sequence += 10;
        superblock.encode(&mut block, slot);
        bytes.copy_from_slice(&block);
    }
    let refusal = world.open(&[A, B]).expect_err("they contradict each other");
    let [Problem::Renamed { image: 1, other: 0, name, .. }] = &refusal.problems[..] else {
        panic!("{:?}", refusal.problems)
    };
    assert_eq!(name, "/../../etc/passwd");
    let text = refusal.describe(&["a", "b"]);
    assert!(
        text.starts_with("b says that the volume is called \"/../../etc/passwd\", and a says"),
        "{text}"
    );
}
