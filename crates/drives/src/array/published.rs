//! The controllers of the array presets show what was published of such controllers, over
//! members that stand in for an early SLC SSD: one request at a time, 110 us and 320 MB/s.

use hemi_core::units::{Extent, MICROSECOND};
use hemi_random::Rng;

use super::Array;
use super::fixed::FixedService;
use crate::drive::{Drive, Operation};
use crate::preset::{Model, Preset};
use crate::testing::closed_loop;

/// The array of a preset, over members that stand in.
fn array(name: &str) -> Array<FixedService> {
    let Model::Array(parameters) = Preset::built_in(name).unwrap().model else { panic!("{name}") };
    let member = FixedService::new(62_500_000, 110 * MICROSECOND, 1600);
    Array::new(&parameters, vec![member; parameters.count as usize]).unwrap()
}

/// Two reads to a write, 32 at a time; requests a second once the cache is in balance.
fn mixed(name: &str, sectors: u64, is_random: bool) -> f64 {
    let mut array = array(name);
    let places = array.sectors() / sectors;
    let mut rng = Rng::new(17, 0);
    let count = if is_random { 300_000 } else { 60_000 };
    let load: Vec<_> = (0..count)
        .map(|index| {
            let write = rng.one_in(3);
            let operation = if write { Operation::Write { fua: false } } else { Operation::Read };
            let place = if is_random { rng.below(places) } else { index };
            (operation, Extent::new(place * sectors, sectors))
        })
        .collect();
    let lives = closed_loop(&mut array, 32, &load);
    let half = lives.len() / 2;
    let span = lives[lives.len() - 1].done.since(lives[half].done);
    half as f64 / (span as f64 / 1e9)
}

fn sequential(name: &str) -> f64 {
    mixed(name, 128, false)
}

fn random(name: &str) -> f64 {
    mixed(name, 16, true)
}

/// What eight SSDs in RAID-5 do for each thing that four do.
fn four_to_eight(load: fn(&str) -> f64, controller: &str) -> f64 {
    load(&format!("x25e-8-raid5-{controller}")) / load(&format!("x25e-4-raid5-{controller}"))
}

#[test]
fn sequential_loads_fall_from_four_to_eight_on_one_controller_and_grow_on_the_other() {
    let fall = four_to_eight(sequential, "a");
    assert!((0.6..0.9).contains(&fall), "{fall}");
    let growth = four_to_eight(sequential, "b");
    assert!((1.40..1.55).contains(&growth), "{growth}");
    let host = four_to_eight(sequential, "host");
    assert!((1.8..2.05).contains(&host), "{host}");
}

#[test]
fn random_loads_gain_nothing_from_four_to_eight_behind_a_controller() {
    for controller in ["a", "b"] {
        let gain = four_to_eight(random, controller);
        assert!((0.9..1.05).contains(&gain), "{controller}: {gain}");
    }
    assert!(four_to_eight(random, "host") > 1.7);
}

#[test]
fn mirrored_pairs_are_a_little_above_parity_for_random_loads() {
    let gain = random("x25e-8-raid10-b") / random("x25e-8-raid5-b");
    assert!((1.15..1.31).contains(&gain), "{gain}");
}
