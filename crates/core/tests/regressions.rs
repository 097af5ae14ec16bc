//! Seeds that once broke a promise, each run again for ever.

mod world;

use hemi_core::settings::{FlushCopies, Policy, Settings};
use world::left_behind::left_behind;
use world::runner::run;
use world::settings;
use world::storm::{Weather, storm};

fn again(seeds: &[u64], legs: usize, errors: bool, settings: Settings) {
    for &seed in seeds {
        if let Err(cause) = std::panic::catch_unwind(|| run(seed, legs, settings, errors)) {
            eprintln!("failed again with seed {seed}");
            std::panic::resume_unwind(cause);
        }
    }
}

fn storm_again(seeds: &[u64], weather: Weather) {
    for &seed in seeds {
        let legs = 2 + (seed % 3) as usize;
        if let Err(cause) = std::panic::catch_unwind(|| storm(seed, legs, weather)) {
            eprintln!("failed again with seed {seed}");
            std::panic::resume_unwind(cause);
        }
    }
}

#[test]
fn two_legs() {
    again(&[18, 49, 78, 420, 945], 2, false, settings());
}

#[test]
fn two_legs_with_errors() {
    again(&[0, 288, 565], 2, true, settings());
}

#[test]
fn three_legs_with_errors() {
    again(&[1, 5, 136, 208], 3, true, settings());
}

#[test]
fn flushes_of_two_copies_on_three_legs() {
    again(&[1257], 3, false, Settings { flush_copies: FlushCopies::Count(2), ..settings() });
}

#[test]
fn other_policies() {
    for policy in [Policy::Paper, Policy::All, Policy::WriteBehind] {
        again(&[3, 31, 464, 1155], 2, false, Settings { policy, ..settings() });
    }
}

#[test]
fn storms() {
    let errors = Weather { errors: true, ..Weather::default() };
    let everything = Weather {
        flush_errors: true,
        gone: true,
        caches: true,
        removed: true,
        members: true,
        policies: true,
        ..errors
    };
    storm_again(&[40, 193, 554], everything);
    storm_again(&[115, 238, 286], Weather { blocks: true, scrub: true, ..errors });
    storm_again(&[369, 510], Weather { gone: true, removed: true, ..Weather::default() });
    storm_again(&[852], Weather { flush_errors: true, caches: true, ..Weather::default() });
}

/// A write out on a leg that dropped its session failed after the region had been owed as a
/// whole and taken up again: two debts for the same sectors.
#[test]
fn a_write_that_fails_in_a_region_taken_up_meanwhile() {
    storm(789, 2, Weather { policies: true, gone: true, rot: true, ..Weather::default() });
}

/// The write of the superblock that takes a leg in failed, once, and nobody wrote it again.
#[test]
fn a_leg_comes_in_though_its_superblock_takes_several_tries() {
    left_behind(153);
    left_behind(957);
}
