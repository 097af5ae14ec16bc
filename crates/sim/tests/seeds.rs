//! A modest torture for every test run: seeds in order, those that once failed, and that a
//! seed names one run.

use hemi_sim::plan::{FAULTS_MIN, Plan};
use hemi_sim::run::{Outcome, note_panics, run};
use hemi_sim::world::World;

/// Seeds of the modest torture.
const SEEDS: u64 = 240;
/// Client requests every seed has to have answered.
const OPERATIONS_MIN: u64 = 2000;

/// The seeds a list names: lines of `seed | promise | cause`, `#` begins a remark.
fn listed(text: &str) -> Vec<u64> {
    let lines = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    let seeds = lines.map(|line| {
        let seed = line.split('|').next().unwrap_or_default().trim();
        seed.parse().unwrap_or_else(|_| panic!("{line:?} does not begin with a seed"))
    });
    seeds.collect()
}

fn check(seed: u64, outcome: &Outcome) {
    if let Some(violation) = &outcome.violation {
        panic!(
            "seed {seed}: {} broken: {}\nlook closer: hemi-torture --seed {seed} --shrink",
            violation.promise, violation.text
        );
    }
    let counts = &outcome.counts;
    assert!(counts.operations >= OPERATIONS_MIN, "seed {seed}: {} requests", counts.operations);
    assert!(counts.faults >= FAULTS_MIN, "seed {seed}: {} faults", counts.faults);
    assert!(counts.crashes >= 1, "seed {seed}: no crash");
}

#[test]
fn seeds_keep_every_promise() {
    note_panics();
    let open = listed(include_str!("../open.txt"));
    let mut world = World::default();
    for seed in (0..SEEDS).filter(|seed| !open.contains(seed)) {
        check(seed, &run(&mut world, &Plan::of_seed(seed), false));
    }
}

#[test]
fn what_was_mended_stays_so() {
    note_panics();
    let mut world = World::default();
    for seed in listed(include_str!("../regressions.txt")) {
        check(seed, &run(&mut world, &Plan::of_seed(seed), false));
    }
}

#[test]
fn a_seed_names_one_run() {
    let mut used = World::default();
    for seed in 0..16 {
        let plan = Plan::of_seed(seed);
        let first = run(&mut used, &plan, false);
        let again = run(&mut World::default(), &plan, true);
        assert_eq!(first.hash, again.hash, "seed {seed}");
        assert_eq!(first.counts, again.counts, "seed {seed}");
        assert!(!again.lines.is_empty());
    }
}
