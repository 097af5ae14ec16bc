//! The runner of promotions: the leg that is promoted is behind the other, whose metadata
//! looks newer when it comes back.

use hemi_core::io::Operation;
use hemi_core::settings::Settings;
use hemi_core::units::{Extent, MICROSECOND, MILLISECOND, SECOND};

use super::script::What;
use super::{Random, Shape, World, settings};

/// One run of two legs; panics with what recovery got wrong.
pub fn left_behind(seed: u64) {
    let mut random = Random(seed ^ 0x1EF7_0000);
    let settings = Settings {
        out_after: 600 * SECOND,
        clean_after: 30 * MILLISECOND,
        dirty_regions_max: 64,
        ..settings()
    };
    let mut world = World::of_shape(random.next(), 2, settings, Shape::default());
    let behind = random.below(2) as usize;
    world.steady(behind, 5 * MILLISECOND);
    world.steady(1 - behind, 100 * MICROSECOND);
    let regions = world.sectors * 512 / world.shape.region_bytes;
    // The fast leg becomes the usual authority; then the other's metadata hangs.
    for _ in 0..6 {
        write(&mut world, &mut random, 0);
    }
    world.hold(behind, What::Metadata);
    for _ in 0..1 + random.below(4) {
        for region in 0..regions {
            write(&mut world, &mut random, region);
        }
    }
    world.holds.clear();
    world.power_cut();
    world.promote(behind);
    world.checker.adopt(&world.disks[behind].contents(), world.now);
    world.open(&[behind]).expect("a promoted leg decides alone");
    for _ in 0..random.below(3) {
        write(&mut world, &mut random, 0);
    }
    world.run_until_answered(20 * SECOND);
    crash(&mut world, &mut random);
    if random.one_in(2) {
        // Some of its metadata takes several tries.
        world.behaviour[1 - behind].write_errors = 2;
        world.wait((100 + random.below(600)) * MILLISECOND);
    }
    if random.below(3) > 0 {
        world.converge();
    } else {
        world.wait(random.below(400) * MILLISECOND);
    }
    for _ in 0..random.below(3) {
        let region = random.below(regions);
        write(&mut world, &mut random, region);
    }
    crash(&mut world, &mut random);
    world.converge();
    world.read_everything();
}

fn crash(world: &mut World, random: &mut Random) {
    if random.one_in(2) {
        world.kill();
    } else {
        world.power_cut();
    }
    world.open(&[0, 1]).unwrap_or_else(|r| panic!("refused: {}", r.describe(&["a", "b"])));
    world.read_everything();
}

fn write(world: &mut World, random: &mut Random, region: u64) {
    let start = region * world.shape.region_bytes / 512 + random.below(32);
    let fua = random.one_in(3);
    world.submit(Operation::Write, Extent::new(start, 1 + random.below(16)), fua);
    world.wait(MILLISECOND + random.below(2) * 6 * MILLISECOND);
}
