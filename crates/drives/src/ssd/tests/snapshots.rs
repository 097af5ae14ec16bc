//! A snapshot restores the same drive and is refused for any other.

use hemi_units::Extent;
use twox_hash::XxHash64;

use super::super::snapshot::{SnapshotError, VERSION};
use super::super::victim::Policy;
use super::super::{Parameters, Ssd};
use super::{WRITE, closed, random, small};
use crate::drive::Drive;
use crate::preset::Precondition;

const STEADY: Precondition = Precondition::Steady;

fn new(parameters: &Parameters, seed: u64) -> Ssd {
    Ssd::new(parameters, seed).expect("right")
}

/// Returns a preconditioned drive and its snapshot.
fn original(parameters: &Parameters, state: Precondition, seed: u64) -> (Ssd, Vec<u8>) {
    let mut drive = new(parameters, seed);
    let origin = drive.origin(state, seed);
    drive.precondition(state, seed);
    let bytes = drive.save(&origin).expect("at rest");
    assert!(bytes.len() as u64 <= drive.snapshot_bytes(&origin));
    (drive, bytes)
}

#[test]
fn a_restored_drive_goes_on_as_the_one_that_was_saved() {
    let policies =
        [Policy::Greedy, Policy::Fifo, Policy::Choices(2), Policy::CostBenefit, Policy::Random];
    for policy in policies {
        for state in [Precondition::Sequential, STEADY] {
            let parameters = small(|of| {
                (of.victim, of.wear_threshold, of.slc) = (policy, Some(4), None);
            });
            let (original, bytes) = original(&parameters, state, 3);
            let mut restored = new(&parameters, 3);
            let origin = restored.origin(state, 3);
            restored.restore(&bytes, &origin).expect("its own");
            assert_eq!(restored.save(&origin), Ok(bytes), "{policy:?}");
            assert_eq!(restored.counters(), original.counters());
            let [first, second] = [original, restored].map(|mut drive| {
                let mut next = random(&drive, 5, 4096, WRITE);
                let done = closed(&mut drive, 0, 32, 30_000, &mut next).completions;
                (done, drive.counters())
            });
            assert!(first.0.len() == 30_000 && first == second, "{policy:?} after {state:?}");
        }
    }
}

#[test]
fn what_is_not_whole_or_not_of_this_drive_is_refused_and_changes_nothing() {
    let parameters = small(|_| {});
    let (_, bytes) = original(&parameters, STEADY, 1);
    let refused = |of: &Parameters, seed: u64, state: Precondition, bytes: &[u8]| {
        let mut drive = new(of, seed);
        let origin = drive.origin(state, seed);
        let error = drive.restore(bytes, &origin).expect_err("not this drive's");
        drive.precondition(Precondition::Sequential, 1);
        let mut fresh = new(of, seed);
        fresh.precondition(Precondition::Sequential, 1);
        assert_eq!(drive.save(&origin), fresh.save(&origin), "as if nothing had been tried");
        error
    };
    let none = |bytes: &[u8]| refused(&parameters, 1, STEADY, bytes);

    let slower = small(|of| of.queue_depth += 1);
    assert_eq!(refused(&slower, 1, STEADY, &bytes), SnapshotError::Origin);
    let smaller = small(|of| of.scale = 2);
    assert_eq!(refused(&smaller, 1, STEADY, &bytes), SnapshotError::Origin);
    assert_eq!(refused(&parameters, 2, STEADY, &bytes), SnapshotError::Origin);
    let other = Precondition::Sequential;
    assert_eq!(refused(&parameters, 1, other, &bytes), SnapshotError::Origin);

    for at in [12, 40, bytes.len() / 2, bytes.len() - 1] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert_eq!(none(&damaged), SnapshotError::Damaged, "byte {at}");
    }
    for length in [8, 11, 15, 100, bytes.len() - 9, bytes.len() - 1] {
        assert_eq!(none(&bytes[..length]), SnapshotError::Damaged, "{length} bytes");
    }
    assert_eq!(none(b"something else"), SnapshotError::NotASnapshot);
    assert_eq!(none(b""), SnapshotError::NotASnapshot);
    let mut newer = bytes;
    newer[8] = 9;
    assert_eq!(none(&newer), SnapshotError::Version(9));
}

#[test]
fn a_drive_at_work_is_not_saved() {
    let (mut drive, _) = original(&small(|_| {}), STEADY, 1);
    let origin = drive.origin(STEADY, 1);
    let write = |_| (WRITE, Extent::new(0, 8));
    closed(&mut drive, 0, 1, 1, &mut { write });
    assert_eq!(drive.save(&origin), Err(SnapshotError::NotAtRest));
}

/// Snapshots outlive the program that made them. If this fails because preconditioning now
/// leads to another state, or because the format has changed, raise `VERSION` and note the new
/// sums.
#[test]
fn the_version_says_which_states_preconditioning_comes_to() {
    let sum = |policy: Policy, state: Precondition| {
        let parameters = small(|of| (of.victim, of.wear_threshold) = (policy, Some(4)));
        let (drive, _) = original(&parameters, state, 7);
        let mut words = Vec::new();
        drive.translation.save(&mut |word| words.extend(word.to_le_bytes()));
        XxHash64::oneshot(0, &words)
    };
    let sums = [
        sum(Policy::Greedy, Precondition::Sequential),
        sum(Policy::Greedy, STEADY),
        sum(Policy::Choices(3), STEADY),
        sum(Policy::CostBenefit, STEADY),
    ];
    let known = [
        7_164_741_646_471_944_040,
        8_847_374_297_775_423_175,
        13_210_189_637_682_875_497,
        9_496_511_396_798_582_756,
    ];
    assert_eq!((VERSION, sums), (2, known));
}
