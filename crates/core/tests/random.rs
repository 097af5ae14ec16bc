//! Random clients against random faults, seed by seed: whatever happens, the checker's rules
//! hold, and afterwards all legs are identical.

mod world;

use hemi_core::settings::{FlushCopies, Policy, Settings};
use world::runner::run_all;
use world::settings;

#[test]
fn two_legs_keep_every_promise_under_freezes_and_crashes() {
    run_all(60, 2, false, settings());
}

#[test]
fn two_legs_keep_every_promise_under_errors_too() {
    run_all(60, 2, true, settings());
}

#[test]
fn three_legs_keep_every_promise() {
    run_all(30, 3, true, settings());
}

#[test]
fn flushes_of_several_copies_keep_every_promise() {
    run_all(20, 3, false, Settings { flush_copies: FlushCopies::Count(2), ..settings() });
}

#[test]
fn other_policies_keep_every_promise() {
    for policy in [Policy::Paper, Policy::All, Policy::WriteBehind] {
        run_all(15, 2, false, Settings { policy, ..settings() });
    }
}
