//! A modest torture for every test run: seeds in order, seeds that once failed, and a check that a
//! seed names one run.

use hemi_torture::exhaustive::{self, Case};
use hemi_torture::plan::{FAULTS_MIN, OPERATIONS, Plan};
use hemi_torture::run::{Outcome, note_panics, run};
use hemi_torture::wider::WIDER_FROM;
use hemi_torture::world::World;

/// The number of seeds of the modest torture.
const SEEDS: u64 = 240;

/// Returns the seeds of a list with lines of `seed | promise | cause`, where `#` begins a remark.
fn listed(text: &str) -> Vec<u64> {
    let lines = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    let seeds = lines.map(|line| {
        let seed = line.split('|').next().unwrap_or_default().trim();
        seed.parse().unwrap_or_else(|_| panic!("{line:?} does not begin with a seed"))
    });
    seeds.collect()
}

/// Runs a seed and checks that it kept every promise and did what it planned.
fn check(world: &mut World, seed: u64) -> Outcome {
    let plan = Plan::of_seed(seed);
    let outcome = run(world, &plan, false);
    if let Some(violation) = &outcome.violation {
        panic!(
            "seed {seed}: {} broken: {}\nlook closer: hemi-torture --seed {seed} --shrink",
            violation.promise, violation.text
        );
    }
    let counts = &outcome.counts;
    // A crash loses the requests in flight, and nothing else may leave one unanswered.
    let in_flight: u64 = plan.shape.depths.iter().map(|&depth| u64::from(depth)).sum();
    let planned = u64::from(OPERATIONS);
    let lost_max = counts.crashes * in_flight;
    assert!(counts.operations + lost_max >= planned, "seed {seed}: {} requests", counts.operations);
    assert!(counts.faults >= FAULTS_MIN, "seed {seed}: {} faults", counts.faults);
    assert!(counts.crashes >= 1, "seed {seed}: no crash");
    outcome
}

#[test]
fn seeds_keep_every_promise() {
    note_panics();
    let open = listed(include_str!("../open.txt"));
    let mut world = World::default();
    for seed in (0..SEEDS).filter(|seed| !open.contains(seed)) {
        check(&mut world, seed);
    }
}

/// Seeds with metadata writes that are lost or misdirected meet every outcome.
#[test]
fn lost_and_misdirected_metadata_writes_are_survived_or_told() {
    note_panics();
    let mut world = World::default();
    let (mut survived, mut refused, mut unnoticed) = (0, 0, 0);
    for seed in (20_004..20_400).step_by(8) {
        let outcome = run(&mut world, &Plan::of_seed(seed), false);
        if let Some(violation) = &outcome.violation {
            panic!("seed {seed}: {} broken: {}", violation.promise, violation.text);
        }
        survived += outcome.counts.lies_survived;
        refused += outcome.counts.lies_refused;
        unnoticed += outcome.counts.lies_unnoticed;
    }
    assert!(survived > 0 && refused > 0, "{survived} survived, {refused} refused");
    // A write lost on the only leg that was given a record: it happens, and the format cannot see
    // it.
    assert!(unnoticed > 0, "none went unnoticed: is anything lost?");
}

/// Hangs, judges of copies and small constants take effect, and what is judged holds.
#[test]
fn wider_seeds_meet_what_they_are_for() {
    note_panics();
    let mut world = World::default();
    let (mut waited, mut beside, mut flushed, mut owed) = (0, 0, 0, 0);
    for seed in WIDER_FROM..WIDER_FROM + 200 {
        let counts = check(&mut world, seed).counts;
        waited += counts.hangs_waited_for;
        beside += counts.hangs_beside;
        flushed += counts.judged_flushed;
        owed += counts.judged_owed;
    }
    assert!(waited > 0 && beside > 0, "{waited} hangs waited for, {beside} converged beside");
    assert!(flushed > 0 && owed > 0, "{flushed} judged by flushes, {owed} by what is owed");
}

#[test]
fn what_was_mended_stays_so() {
    note_panics();
    let mut world = World::default();
    for seed in listed(include_str!("../regressions.txt")) {
        check(&mut world, seed);
    }
}

/// Three writes, a flush, a read and a freeze, with any one event out of turn and a crash anywhere.
#[test]
fn every_order_with_one_event_out_of_turn_keeps_every_promise() {
    note_panics();
    let explored = exhaustive::explore(1, 2);
    if let Some((case, violation)) = explored.told.first() {
        panic!(
            "case {case}: {} broken: {}\nlook closer: hemi-torture --case {case}",
            violation.promise, violation.text
        );
    }
    assert!(explored.failed == 0 && explored.runs > 4000, "{} runs", explored.runs);
}

#[test]
fn a_case_is_named_as_it_is_read() {
    for name in ["0/12+2,20+1/kill@33", "3//power@0", "1/4+1/"] {
        assert_eq!(name.parse::<Case>().map(|case| case.to_string()), Ok(name.into()));
    }
    for wrong in ["", "9//", "0/1/", "0/1+x/kill@2", "0/1+1/kill@"] {
        assert!(wrong.parse::<Case>().is_err(), "{wrong:?}");
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
