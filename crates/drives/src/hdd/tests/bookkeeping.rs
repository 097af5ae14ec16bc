//! Every request ends once, and a run with the same seed is identical.

use hemi_random::Rng;
use hemi_units::{Extent, Instant, Operation};
use proptest::prelude::*;

use super::{READ, WRITE, closed_loop, disk, random};
use crate::drive::Drive;
use crate::hdd::parameters::Order;

fn mixed(disk: &crate::hdd::Hdd, rng: &mut Rng) -> (Operation, Extent) {
    let sectors = match rng.below(10) {
        0 => 1 + rng.below(40_000),
        1..3 => 1 + rng.below(512),
        _ => 8,
    };
    let extent = if rng.one_in(3) {
        // Close to others, so that runs meet and overlap.
        Extent::new(5_000_000 + rng.below(100_000), sectors)
    } else {
        random(disk, rng, sectors)
    };
    match rng.below(20) {
        0 => (Operation::Flush, Extent::default()),
        1 => (Operation::Trim, extent),
        2 => (Operation::Write { fua: true }, extent),
        3..=10 => (WRITE, extent),
        11 => (READ, Extent::new(extent.start, 0)),
        _ => (READ, extent),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn every_request_ends_once_and_is_counted(
        seed in any::<u64>(),
        depth in 1_usize..80,
        cached in any::<bool>(),
        shortest in any::<bool>(),
        name in prop::sample::select(vec!["sata-250gb-2008", "cheetah-15k5-300gb", "smr-hdd"]),
    ) {
        let mut disk = disk(name, |p| {
            p.write_cache.enabled = cached;
            p.write_cache.runs = 16;
            if !shortest {
                p.queue.order = Order::FirstComeFirstServed;
            }
        });
        let mut rng = Rng::new(seed, 0);
        let requests: Vec<_> = (0..400).map(|_| mixed(&disk, &mut rng)).collect();
        let (done, _) = closed_loop(&mut disk, depth, requests.len(), |i| requests[i]);
        let mut tags: Vec<u64> = done.iter().map(|one| one.tag).collect();
        tags.sort_unstable();
        prop_assert_eq!(tags, (0..400).collect::<Vec<u64>>());
        prop_assert!(done.windows(2).all(|pair| pair[0].at <= pair[1].at));
        let counters = disk.counters();
        let count = |wanted: fn(&Operation) -> bool| {
            requests.iter().filter(|one| wanted(&one.0) && !one.1.is_empty()).count() as u64
        };
        prop_assert_eq!(counters.reads, count(|one| matches!(one, Operation::Read)));
        prop_assert_eq!(counters.writes, count(|one| matches!(one, Operation::Write { .. })));
        let bytes = |wanted: fn(&Operation) -> bool| {
            requests.iter().filter(|one| wanted(&one.0)).map(|one| one.1.bytes()).sum::<u64>()
        };
        prop_assert_eq!(counters.read_bytes, bytes(|one| matches!(one, Operation::Read)));
        // Left alone, it writes everything back and comes to rest.
        let mut rest = Vec::new();
        let mut steps = 0;
        while disk.next_event() != Instant::NEVER {
            let next = disk.next_event();
            disk.advance(next, &mut rest);
            steps += 1;
            prop_assert!(steps < 1_000_000, "it never rests");
        }
        prop_assert!(rest.is_empty() && disk.cache_is_clean());
        prop_assert!(counters.busy <= done.last().map_or(0, |one| one.at.0));
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || {
        let mut disk = disk("hdd-20tb", |_| ());
        let mut rng = Rng::new(9, 0);
        let requests: Vec<_> = (0..3_000).map(|_| mixed(&disk, &mut rng)).collect();
        let (done, _) = closed_loop(&mut disk, 32, requests.len(), |i| requests[i]);
        (done, disk.counters())
    };
    assert_eq!(run(), run());
}

/// Returns the tags in the order in which a disk ends 40 scattered reads, a flush and 40 more
/// reads, all submitted at once on a clean cache.
fn order_of_ends(queued: bool) -> Vec<u64> {
    let mut disk = disk("hdd-20tb", |p| p.queue.flush_is_queued = queued);
    let mut rng = Rng::new(4, 0);
    let reads: Vec<_> = (0..81).map(|_| (READ, random(&disk, &mut rng, 8))).collect();
    let flush = (Operation::Flush, Extent::default());
    let (done, _) = closed_loop(&mut disk, 81, 81, |i| if i == 40 { flush } else { reads[i] });
    done.iter().map(|one| one.tag).collect()
}

#[test]
fn a_flush_that_is_no_queued_command_runs_alone() {
    // The queue is reordered before it and after it, and not across it.
    let ends = order_of_ends(false);
    assert_eq!(ends[40], 40);
    assert!(ends[..40].iter().all(|&tag| tag < 40) && ends[41..].iter().all(|&tag| tag > 40));
    assert!(!ends[..40].is_sorted(), "{ends:?}");
}

#[test]
fn a_queued_flush_waits_for_no_read() {
    let ends = order_of_ends(true);
    let place = ends.iter().position(|&tag| tag == 40).expect("it ends");
    assert!(ends[place..].iter().any(|&tag| tag < 40), "{ends:?}");
}

#[test]
fn writes_that_were_queued_before_a_flush_are_on_the_medium_after_it() {
    let mut disk = disk("hdd-20tb", |p| p.write_cache.delay = hemi_units::Time(1 << 40));
    let mut rng = Rng::new(5, 0);
    let mut requests: Vec<_> = (0..60).map(|_| (WRITE, random(&disk, &mut rng, 8))).collect();
    requests.push((Operation::Flush, Extent::default()));
    let (done, latencies) = closed_loop(&mut disk, 61, 61, |i| requests[i]);
    assert_eq!(done.last().map(|one| one.tag), Some(60));
    assert!(disk.cache_is_clean());
    assert!(latencies[60] > 100_000_000, "60 scattered writes: {} ns", latencies[60]);
}

/// Returns the latency of one random read every 50 ms by the clock. (In a closed loop every
/// read begins where the platters stood at the end of the one before, and twins would agree.)
fn reads_by_the_clock(seed: u64) -> Vec<u64> {
    let parameters = super::preset("sata-250gb-2008").parameters;
    let mut disk = crate::hdd::Hdd::of_seed(parameters, seed).unwrap();
    let mut rng = Rng::new(9, 0);
    let mut done = Vec::new();
    let read = |tag: u64| {
        let now = Instant(tag * 50_000_000);
        disk.advance(now, &mut done);
        done.clear();
        let extent = random(&disk, &mut rng, 8);
        disk.submit(now, crate::drive::Request { tag, operation: READ, extent });
        while done.is_empty() {
            let next = disk.next_event();
            disk.advance(next, &mut done);
        }
        done[0].at.since(now)
    };
    (0..1_000).map(read).collect()
}

#[test]
fn twins_do_not_turn_in_step_but_each_turns_the_same_again() {
    let (one, other) = (reads_by_the_clock(1), reads_by_the_clock(2));
    assert_eq!(one, reads_by_the_clock(1));
    // Half a millisecond is a sixteenth of a turn, so one in eight is as near by chance.
    let near = one.iter().zip(&other).filter(|(a, b)| a.abs_diff(**b) < 500_000).count();
    assert!(near < 250, "{near} of 1,000");
    // The disks differ only by chance.
    assert!((super::mean(&one) / super::mean(&other) - 1.0).abs() < 0.05);
}
