//! The scenarios that break a naive either-leg-first mirror, one test each, step by step. Each test
//! has two legs A and B, names the fault, and asserts what the design demands instead.

mod authority;
mod caches;
mod metadata;
mod order;
mod pace;
mod sieve;
mod suspects;

use crate::world;
use crate::world::{LONG, SECTORS, World, calm};
use hemi_engine::identifiers::LegIndex;
use hemi_engine::settings::Settings;
use hemi_units::{MICROSECOND, MILLISECOND};

const A: usize = 0;
const B: usize = 1;
/// The number of sectors of a region.
const REGION: u64 = world::REGION_BYTES / 512;

/// Returns two legs of one steady latency.
fn two_legs(settings: Settings) -> World {
    world::steady_legs(2, settings)
}

/// Makes `leg` the fastest as far as the engine knows, so that it becomes the authority of clean
/// regions.
fn prefer(world: &mut World, leg: usize) {
    for other in (0..world.disks.len()).filter(|&other| other != leg) {
        world.steady(other, 5 * MILLISECOND);
    }
    for _ in 0..4 {
        world.write(SECTORS - 8, 8);
        world.wait(6 * MILLISECOND);
    }
    for leg in 0..world.disks.len() {
        world.steady(leg, 100 * MICROSECOND);
    }
}

fn authority(world: &World, region: usize) -> usize {
    let entry = world.recorded(region);
    assert!(entry.is_dirty(), "region {region} is dirty: {entry:?}");
    entry.authority().index()
}

/// Returns the newest sequence durable on a leg for page 0.
fn page_sequence(world: &World, leg: usize) -> u64 {
    world.recovered().objects[0].durable[leg]
}

fn index(leg: usize) -> LegIndex {
    LegIndex(leg as u8)
}

/// Opens with both legs. From now on regions are cleaned, so that the volume converges.
fn reopen(world: &mut World) {
    world.settings.clean_after = 100 * MILLISECOND;
    world.open(&[A, B]).expect("both legs are there");
}
