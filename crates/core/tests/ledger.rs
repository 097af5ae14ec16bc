//! The ledger: an acknowledgement waits for no page and for no leg that is late, and what it named
//! outlives a kill.

mod world;

use hemi_core::io::Operation;
use hemi_core::recovery::Problem;
use hemi_core::settings::Settings;
use hemi_core::units::{Extent, LegIndex, MILLISECOND};
use world::script::{Cache, Landing, What};
use world::{World, calm};

const FAST: usize = 0;
const SLOW: usize = 1;

/// A volume with a ledger, two legs alike, and a region that is touched under the first.
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
/// limit, 20 ms, is over.
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

/// What is to be durable waits for the page: a power cut leaves nothing else.
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

/// A flush waits for the pages of moves made before, not for those of later ones.
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

/// Without the ledger nothing tells which leg has what was acknowledged: that is not guessed.
#[test]
fn a_start_without_the_ledger_is_refused() {
    let mut world = touched();
    world.crash(None, |_| Landing::Not);
    let ledger = world.ledger.take();
    let refusal = world.open(&[FAST, SLOW]).expect_err("the ledger was relied on");
    assert_eq!(refusal.problems, [Problem::Ledger { error: None }]);
    assert!(refusal.describe(&["a", "b"]).contains("--accept-loss"));
    world.ledger = ledger;
    world.open(&[FAST, SLOW]).expect("it is back");
    world.read_everything();
}

/// After a restart of the machine the pages decide, with no word of a ledger.
#[test]
fn a_restart_of_the_machine_needs_no_ledger() {
    let mut world = touched();
    world.crash(Some(Cache::Kept), |_| Landing::Not);
    world.ledger = None;
    world.open(&[FAST, SLOW]).expect("nothing was relied on that outlives the machine");
    world.read_everything();
}

/// Armed regions count as clean at a start by the ledger: only what was touched is compared.
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
    assert!(world.ledger.take().expect("there was one").is_retired());
    world.open(&[FAST, SLOW]).expect("the pages tell");
    world.read_everything();
}
