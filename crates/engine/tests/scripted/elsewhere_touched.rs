//! Armed regions that a write takes under another leg than the one that decides them: only the ledger
//! says so, and the pages have to say at least that the region is dirty.

use crate::world::landing::Landing;
use crate::world::script::What;
use crate::world::{LONG, REGION_BYTES, SECTORS, World, calm};
use hemi_engine::io::Operation;
use hemi_engine::settings::Settings;
use hemi_units::{Extent, MICROSECOND, MILLISECOND};
use hemi_world::disk::Cache;

const FAST: usize = 0;
const SLOW: usize = 1;
/// The number of sectors of a region.
const REGION: u64 = REGION_BYTES / 512;

/// The first write's record arms the regions beside it under the fast leg, which falls silent before
/// it is durable. After a power cut no page says that the legs may differ in the next region: the
/// other leg must not take a write there before a page of its own does.
#[test]
fn a_region_armed_by_a_page_on_its_way_is_not_written_elsewhere_without_a_record() {
    let settings = Settings { resync_bytes: SECTORS * 512, dirty_regions_max: 64, ..calm() };
    let mut world = World::with_ledger(1, 2, settings);
    world.steady(FAST, 50 * MICROSECOND);
    world.steady(SLOW, 100 * MICROSECOND);
    world.wait(LONG);
    world.hold(FAST, What::Anything);
    world.hold(SLOW, What::Metadata);
    world.submit(Operation::Write, Extent::new(0, 8), false);
    world.wait(LONG);
    assert!(world.status().armed_regions > 0, "the record arms the regions beside it");
    let there = Extent::new(REGION, 8);
    let write = world.submit(Operation::Write, there, false);
    world.wait(MILLISECOND);
    assert!(!world.recorded(1).is_dirty(), "no page says so yet");
    assert!(!world.is_answered(write), "the legs would differ, and no page says so");
    world.crash(Some(Cache::Kept), |_| Landing::Not);
    world.open(&[FAST, SLOW]).expect("the pages tell");
    world.read_everything();
    world.converge();
}
