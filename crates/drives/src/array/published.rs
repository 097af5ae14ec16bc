//! Array presets reproduce results published for such controllers.

use hemi_random::Rng;
use hemi_units::{Extent, Operation};

use crate::drive::Drive;
use crate::preset::{Precondition, Preset};
use crate::testing::closed_loop;

/// Returns the rate, in requests per second, of a mix of two reads to a write, 64 in flight, on
/// an array of smaller drives. The measurement starts after `warm_up` requests, when the cache
/// has come into balance.
fn mixed(name: &str, sectors: u64, state: Precondition, warm_up: usize, count: usize) -> f64 {
    let is_random = state == Precondition::Steady;
    // The data a sequential load writes has to fit into the drives' spare space.
    let scale = if is_random { 4 } else { 2 };
    let mut array = Preset::built_in(name).unwrap().scaled(scale).drive(1).unwrap();
    array.precondition(state, 1);
    let places = array.sectors() / sectors;
    let mut rng = Rng::new(17, 0);
    let load: Vec<_> = (0..(warm_up + count) as u64)
        .map(|index| {
            let write = rng.one_in(3);
            let operation = if write { Operation::Write { fua: false } } else { Operation::Read };
            let place = if is_random { rng.below(places) } else { index };
            (operation, Extent::new(place * sectors, sectors))
        })
        .collect();
    let lives = closed_loop(&mut array, 64, &load);
    let span = lives[lives.len() - 1].done.since(lives[warm_up].done);
    count as f64 / (span as f64 / 1e9)
}

/// Returns the rate of sequential requests of 512 KiB on drives written once from end to end.
fn sequential(name: &str) -> f64 {
    mixed(name, 1024, Precondition::Sequential, 6000, 3000)
}

/// Returns the rate of random requests of 8 KiB on drives that are worn in.
fn random(name: &str) -> f64 {
    mixed(name, 16, Precondition::Steady, 100_000, 30_000)
}

/// Returns the rate of eight SSDs in RAID-5 relative to four.
fn four_to_eight(load: fn(&str) -> f64, controller: &str) -> f64 {
    load(&format!("x25e-8-raid5-{controller}")) / load(&format!("x25e-4-raid5-{controller}"))
}

#[test]
fn sequential_loads_fall_from_four_to_eight_on_one_controller_and_grow_on_the_other() {
    let fall = four_to_eight(sequential, "a");
    assert!((0.8..0.97).contains(&fall), "{fall}");
    let growth = four_to_eight(sequential, "b");
    assert!((1.25..1.69).contains(&growth), "{growth}");
    let host = four_to_eight(sequential, "host");
    assert!((1.7..2.05).contains(&host), "{host}");
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
    assert!((1.08..1.31).contains(&gain), "{gain}");
}
