//! The census of the regions agrees with the status and with the writes.

use crate::world::script::What;
use crate::world::{REGION_BYTES, SECTORS, World, calm, steady_legs};
use hemi_engine::identifiers::LegIndex;
use hemi_engine::settings::Settings;
use hemi_engine::status::RegionCounts;
use hemi_units::MILLISECOND;

/// The number of sectors of a region.
const REGION: u64 = REGION_BYTES / 512;
const REGIONS: u32 = (SECTORS / REGION) as u32;

fn census(world: &mut World, cells: u32) -> Vec<RegionCounts> {
    let engine = world.engine();
    assert_eq!(engine.region_count(), REGIONS);
    let cell = |index: u32| index * REGIONS / cells..(index + 1) * REGIONS / cells;
    (0..cells).map(|index| engine.census(cell(index))).collect()
}

fn sum(cells: &[RegionCounts]) -> RegionCounts {
    let mut sum = RegionCounts::default();
    cells.iter().for_each(|cell| sum += *cell);
    sum
}

#[test]
fn parts_add_up_to_the_whole_and_to_the_status() {
    let settings = Settings { clean_after: 100 * MILLISECOND, ..calm() };
    let mut world = steady_legs(2, settings);
    assert_eq!(sum(&census(&mut world, 1)).touched(), 0);
    world.write(0, 8);
    world.write(3 * REGION, 8);
    let whole = census(&mut world, 1)[0];
    let parts = census(&mut world, 4);
    assert_eq!(sum(&parts), whole);
    let status = world.status();
    assert_eq!(whole.regions, REGIONS);
    assert_eq!(whole.touched() + whole.armed, status.dirty_regions);
    assert_eq!(whole.armed, status.armed_regions);
    let of_leg = |leg: u8| status.legs.iter().find(|known| known.leg == leg);
    for leg in [0, 1] {
        let known = of_leg(leg).map(|known| known.authority_regions);
        assert_eq!(Some(whole.decided[usize::from(leg)]), known);
    }
    assert!(parts[0].authority().is_some());
    assert_eq!(world.engine().census(REGIONS..REGIONS + 5), RegionCounts::default());
}

#[test]
fn what_a_leg_owes_shows_where_it_owes_it() {
    let settings = Settings { clean_after: 100 * MILLISECOND, ..calm() };
    let mut world = steady_legs(2, settings);
    world.write(0, 8);
    world.hold(1, What::Writes);
    world.write(2 * REGION, 8);
    let engine = world.engine();
    assert_eq!(engine.census(2..3).owed, 1, "the leg has not answered");
    assert_eq!(engine.census(2..3).authority(), Some(LegIndex(0)));
    world.release(1);
    world.converge();
    assert_eq!(sum(&census(&mut world, 1)).owed, 0);
}
