//! The runner of relays: one leg thaws as the other freezes, over and over, with writes that
//! take the place of what the first still owes; then power goes.

use hemi_core::io::Operation;
use hemi_core::settings::Settings;
use hemi_core::units::{Extent, MICROSECOND, MILLISECOND, SECOND};

use super::{Random, Shape, World, settings};

/// One run; panics with what was lost.
pub fn relay(seed: u64, legs: usize) {
    let mut random = Random(seed ^ 0x2E1A_7000);
    let settings = Settings {
        out_after: 600 * SECOND,
        wait_ceiling: 20 * MILLISECOND,
        clean_after: 5 * SECOND,
        exposure_bytes: 4 << 20,
        copies_reserve: if random.one_in(3) { u64::MAX } else { 0 },
        ..settings()
    };
    let mut world = World::of_shape(random.next(), legs, settings, Shape::default());
    let all: Vec<usize> = (0..legs).collect();
    for _ in 0..200 {
        write(&mut world, &mut random, false);
        world.wait(300 * MICROSECOND);
    }
    for _ in 0..6 {
        hand_over(&mut world, &mut random);
        if random.below(4) > 0 {
            world.power_cut();
        } else {
            world.kill();
        }
        for behaviour in &mut world.behaviour {
            *behaviour = Default::default();
        }
        world.open(&all).unwrap_or_else(|r| panic!("refused: {}", r.describe(&[])));
        world.read_everything();
    }
    world.converge();
    world.read_everything();
}

/// All but one leg freeze, and owe what is written and flushed meanwhile; as they thaw that
/// one freezes.
fn hand_over(world: &mut World, random: &mut Random) {
    let keeper = random.below(world.disks.len() as u64) as usize;
    let until = world.now + (60 + random.below(60)) * MILLISECOND;
    for leg in (0..world.disks.len()).filter(|&leg| leg != keeper) {
        world.freeze(leg, until);
    }
    for _ in 0..4 + random.below(8) {
        let fua = random.one_in(2);
        write(world, random, fua);
        world.wait(random.below(5) * MILLISECOND);
    }
    world.submit(Operation::Flush, Extent::default(), false);
    world.run_until(until);
    // A little before, or after, the others are back.
    if random.one_in(2) {
        world.wait(random.below(300) * MICROSECOND);
    }
    world.freeze(keeper, until + 400 * MILLISECOND);
    for _ in 0..1 + random.below(4) {
        write(world, random, false);
    }
    let longest = [500, 30_000, 60_000, 100_000][random.below(4) as usize];
    world.wait(random.below(longest) * MICROSECOND);
}

fn write(world: &mut World, random: &mut Random, fua: bool) {
    if world.requests.len() < 32 && world.can_submit() {
        let extent = Extent::new(random.below(80), 1 + random.below(12));
        world.submit(Operation::Write, extent, fua);
    }
}
