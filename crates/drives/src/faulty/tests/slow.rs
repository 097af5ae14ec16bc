//! Drives that are slow.

use super::*;
use crate::drive::Counters;
use crate::server::{Server, Service};
use crate::testing::{closed_loop, makespan};

fn slow(at: u64, factor: f64, length: Option<u64>, affected: Affected) -> Slow {
    let spell = Spell { at: Instant(at), length, every: None };
    Slow { spell, factor, over: 0, affected }
}

fn behind<D: Drive>(drive: D, slow: Vec<Slow>) -> Faulty<D> {
    Faulty::new(drive, Faults { slow, ..Faults::default() })
}

/// A drive of one server that takes 100 ns for each request.
fn server() -> Server {
    Server::new(1 << 20, 1, Service::Fixed(100), 1)
}

fn reads(at: &[u64]) -> Vec<(Instant, Operation, Extent)> {
    at.iter().map(|&at| (Instant(at), Operation::Read, Extent::new(0, 8))).collect()
}

#[test]
fn what_is_left_of_a_request_takes_longer() {
    let mut slow = behind(server(), vec![slow(1000, 3.0, Some(600), Affected::All)]);
    // Half of the second is served before. The third begins when the drive's clock, whose steps are
    // three of the host's, shows 1066; the last two queue.
    let lives = open_loop(&mut slow, &reads(&[0, 950, 1200, 1550, 1900, 1900]));
    let done: Vec<u64> = lives.iter().map(|life| life.done.0).collect();
    assert_eq!(done, [100, 950 + 50 + 150, 1000 + 3 * 166, 1600 + 83, 2000, 2100]);
}

#[test]
fn a_slow_drive_has_a_fraction_of_its_rates() {
    for (preset, operation) in [
        ("wd-1tb-2009", Operation::Read),
        ("nvme-consumer", Operation::Write { fua: false }),
        ("gp3", Operation::Read),
        ("gp3-4-raid0-host", Operation::Read),
    ] {
        let drive = Preset::built_in(preset).unwrap().scaled(16).drive(1).unwrap();
        let extent = |number: u64| Extent::new(number * 7919 % 4096 * 8, 8);
        let load: Vec<_> = (0..400).map(|number| (operation, extent(number))).collect();
        let (mut plain, mut faulty) =
            (drive.clone(), behind(drive, vec![slow(0, 4.0, None, Affected::All)]));
        let (usual, slowed) =
            (closed_loop(&mut plain, 8, &load), closed_loop(&mut faulty, 8, &load));
        // Each step on the drive's clock is four of the host's, but for what is left of a step.
        for (usual, slowed) in latencies(&usual).into_iter().zip(latencies(&slowed)) {
            assert!((4 * usual).abs_diff(slowed) <= 4 * 400, "{preset}: {usual}, {slowed}");
        }
        let ratio = makespan(&slowed) / makespan(&usual);
        assert!((ratio - 4.0).abs() < 0.001, "{preset}: {ratio}");
        let (Counters { busy, energy, .. }, own) = (plain.counters(), faulty.counters());
        let same = |one: f64, four: f64| (four - 4.0 * one).abs() <= 0.001 * four;
        assert!(same(busy as f64, own.busy as f64), "{preset}: busy {busy}, {}", own.busy);
        assert!(same(energy, own.energy), "{preset}: {energy} J, {} J", own.energy);
        assert_eq!((own.reads, own.writes), (plain.counters().reads, plain.counters().writes));
    }
}

#[test]
fn reads_alone_may_be_slow() {
    let load: Vec<_> = load(200);
    let mut plain = drive();
    let usual = open_loop(&mut plain, &load);
    for (affected, slowed) in [(Affected::Reads, 0), (Affected::Writes, 1)] {
        let mut faulty = behind(drive(), vec![slow(50 * MS, 3.0, Some(100 * MS), affected)]);
        let lives = open_loop(&mut faulty, &load);
        for (number, (usual, life)) in usual.iter().zip(&lives).enumerate() {
            let in_time = (50 * MS..150 * MS).contains(&usual.done.0);
            let times = if number % 2 == slowed && in_time { 3 } else { 1 };
            let latency = |life: &Life| life.done.since(life.submitted);
            assert_eq!(latency(life), times * latency(usual), "{affected:?}, request {number}");
        }
    }
}

#[test]
fn slowness_grows_gradually_and_ends() {
    let spell = Spell { at: Instant(1_000_000), length: Some(2_000_000), every: Some(5_000_000) };
    let gradual = Slow { spell, factor: 9.0, over: 1_000_000, affected: Affected::All };
    let mut faulty = behind(server(), vec![gradual]);
    let at: Vec<u64> = (0..8000).map(|number| number * 1000).collect();
    let latencies = latencies(&open_loop(&mut faulty, &reads(&at)));
    let at = |time: usize| latencies[time / 1000];
    assert_eq!((at(999_000), at(3_001_000), at(5_999_000)), (100, 100, 100));
    assert!(at(1_500_000).abs_diff(500) <= 8, "half way: {}", at(1_500_000));
    assert!(at(2_001_000).abs_diff(900) <= 9 && at(2_990_000).abs_diff(900) <= 9);
    assert!(at(6_500_000).abs_diff(500) <= 8, "again: {}", at(6_500_000));
    let grows = |pair: &[u64]| pair[1] + 9 >= pair[0];
    assert!(latencies[1000..2000].windows(2).all(grows), "but for a step of the clock");
}

#[test]
fn published_drives_are_as_slow_as_they_were() {
    for (experiment, least, most) in
        [(SlowExperiment::Intermittent, 1.0, 5.0), (SlowExperiment::Sustained, 175.0, 175.0)]
    {
        let mut faulty = behind(server(), vec![experiment.slow(Instant(0), 0.01)]);
        // 30 s in steps of 10 ms.
        let at: Vec<u64> = (0..3000).map(|number| number * 10 * MS).collect();
        let latencies = latencies(&open_loop(&mut faulty, &reads(&at)));
        for (factor, found) in
            [(least, latencies.iter().min().copied()), (most, latencies.iter().max().copied())]
        {
            let off = (found.unwrap() as f64 - factor * 100.0).abs();
            assert!(off <= factor, "{experiment}: {found:?}, not {factor} times 100");
        }
        let slow = latencies.iter().filter(|latency| **latency > 300).count();
        let share = if experiment == SlowExperiment::Sustained { 3000 } else { 900 };
        assert_eq!(slow, share, "{experiment}");
    }
}
