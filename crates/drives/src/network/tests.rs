//! Tests of network volumes.

use hemi_random::Rng;
use hemi_units::{Extent, Instant, MICROSECOND, MILLISECOND, Operation, Rate, SECOND, Size, Time};
use proptest::prelude::*;

use super::limits::Limits;
use super::{ByteLimit, Hiccups, Latency, Network, Parameters, Pauses, RequestLimit, Tail};
use crate::drive::{Drive, Request};
use crate::testing::{Life, closed_loop, makespan, open_loop};

/// Returns a volume with constant latency, so that the effect of the limits shows exactly.
fn steady() -> Parameters {
    let latency = Latency { median: Time(500 * MICROSECOND), sigma: 0.0, tail: None };
    Parameters {
        capacity: Size(100 << 30),
        iops: RequestLimit { sustained: 3000, peak: None, credit: None },
        bandwidth: ByteLimit { sustained: Rate(125_000_000), peak: None, credit: None },
        window: Time(10 * MILLISECOND),
        accounting_size: Size(256 << 10),
        merge_sequential: true,
        queue_depth: 64,
        transfer: Rate(1 << 50),
        read: latency,
        write: latency,
        flush: latency,
        hiccups: None,
    }
}

fn volume(parameters: Parameters) -> Network {
    Network::new(parameters, 1).unwrap()
}

/// Returns reads of `bytes` spread over the volume.
fn reads(count: u64, bytes: u64) -> Vec<(Operation, Extent)> {
    let mut rng = Rng::new(9, 0);
    let mut at = || Extent::new(rng.below(190_000_000) & !7, bytes / 512);
    (0..count).map(|_| (Operation::Read, at())).collect()
}

/// Returns the rate, in requests per second, of requests that ended after request `from`.
fn rate(lives: &[Life], from: usize) -> f64 {
    let last = lives.last().unwrap().done;
    (lives.len() - 1 - from) as f64 / (last.since(lives[from].done) as f64 / 1e9)
}

#[test]
fn small_requests_go_at_the_provisioned_rate() {
    let lives = closed_loop(&mut volume(steady()), 32, &reads(30_000, 4096));
    assert!((rate(&lives, 1000) / 3000.0 - 1.0).abs() < 0.01, "{}", rate(&lives, 1000));
}

#[test]
fn large_requests_go_at_the_provisioned_bandwidth() {
    let lives = closed_loop(&mut volume(steady()), 32, &reads(3000, 128 << 10));
    let bandwidth = rate(&lives, 200) * f64::from(128 << 10);
    assert!((bandwidth / 125e6 - 1.0).abs() < 0.01, "{bandwidth}");
}

#[test]
fn a_shallow_queue_goes_at_its_latency() {
    let lives = closed_loop(&mut volume(steady()), 1, &reads(1000, 4096));
    assert!((rate(&lives, 0) - 2000.0).abs() < 0.01);
    let narrow = Parameters { queue_depth: 1, ..steady() };
    let lives = closed_loop(&mut volume(narrow), 32, &reads(1000, 4096));
    assert!((rate(&lives, 0) - 2000.0).abs() < 0.01);
}

#[test]
fn a_long_request_counts_as_several() {
    let many = Parameters {
        iops: RequestLimit { sustained: 100, peak: None, credit: None },
        bandwidth: ByteLimit { sustained: Rate(1 << 40), peak: None, credit: None },
        ..steady()
    };
    let lives = closed_loop(&mut volume(many.clone()), 32, &reads(500, 1 << 20));
    assert!((rate(&lives, 20) / 25.0 - 1.0).abs() < 0.05);
    // Sequential requests of 32 KiB count together, eight at a time.
    let sequential: Vec<_> =
        (0..8000).map(|i| (Operation::Read, Extent::new(i * 64, 64))).collect();
    let lives = closed_loop(&mut volume(many.clone()), 32, &sequential);
    assert!((rate(&lives, 160) / 800.0 - 1.0).abs() < 0.05);
    let apart = Parameters { merge_sequential: false, ..many };
    let lives = closed_loop(&mut volume(apart), 32, &sequential[..1000]);
    assert!((rate(&lives, 100) / 100.0 - 1.0).abs() < 0.05);
}

#[test]
fn credit_lasts_as_long_as_the_rates_say() {
    let bursting = Parameters {
        iops: RequestLimit { sustained: 300, peak: Some(3000), credit: Some(5400) },
        ..steady()
    };
    let lives = closed_loop(&mut volume(bursting), 32, &reads(9000, 4096));
    // 5,400 credits last for two seconds at 3,000 − 300 a second, in which 6,000 pass.
    let before = lives.iter().filter(|life| life.done.0 < 2 * SECOND).count();
    assert!((before as f64 / 6000.0 - 1.0).abs() < 0.01, "{before}");
    assert!((rate(&lives, 6100) / 300.0 - 1.0).abs() < 0.03, "{}", rate(&lives, 6100));
}

#[test]
fn a_flush_is_a_round_trip_and_takes_no_tokens() {
    let flushes = vec![(Operation::Flush, Extent::default()); 50_000];
    let mut drive = volume(steady());
    let lives = closed_loop(&mut drive, 8, &flushes);
    assert!((rate(&lives, 0) / 16_000.0 - 1.0).abs() < 0.001);
    assert_eq!(drive.counters().flushes, 50_000);
    assert!((drive.counters().busy as f64 / 1e9 - makespan(&lives)).abs() < 1e-9);
}

#[test]
fn a_hiccup_delays_everything_under_way() {
    let hiccups = Hiccups {
        every: Time(SECOND),
        median: Time(100 * MILLISECOND),
        sigma: 0.0,
        longest: Time(SECOND),
    };
    let pausing = Parameters { hiccups: Some(hiccups), ..steady() };
    let load: Vec<_> = (0..200_000_u64)
        .map(|i| (Instant(i * MILLISECOND), Operation::Read, Extent::new(i * 8, 8)))
        .collect();
    let lives = open_loop(&mut volume(pausing), &load);
    let slow = lives.iter().filter(|life| life.done.since(life.submitted) > 600 * MICROSECOND);
    // A pause hits requests that arrive during it and those in flight: 100.5 ms in 1.1 s.
    let share = slow.count() as f64 / lives.len() as f64;
    assert!((share / (100.5 / 1100.0) - 1.0).abs() < 0.15, "{share}");
    let worst = lives.iter().map(|life| life.done.since(life.submitted)).max().unwrap();
    assert!(worst >= 99 * MILLISECOND, "{worst}");
}

fn everything() -> Parameters {
    let tail =
        Tail { share: 0.01, from: Time(3 * MILLISECOND), exponent: 1.5, longest: Time(SECOND) };
    let latency = Latency { median: Time(500 * MICROSECOND), sigma: 0.4, tail: Some(tail) };
    let hiccups = Hiccups {
        every: Time(200 * MILLISECOND),
        median: Time(20 * MILLISECOND),
        sigma: 1.0,
        longest: Time(SECOND),
    };
    Parameters {
        iops: RequestLimit { sustained: 300, peak: Some(3000), credit: Some(200) },
        read: latency,
        write: latency,
        flush: latency,
        hiccups: Some(hiccups),
        ..steady()
    }
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        5 => Just(Operation::Read),
        5 => any::<bool>().prop_map(|fua| Operation::Write { fua }),
        1 => Just(Operation::Trim),
        1 => Just(Operation::Flush),
    ]
}

/// Returns requests with their times, from the pauses before them and from their first sectors and
/// lengths.
fn at_times(load: Vec<(u64, Operation, u64, u64)>) -> Vec<(Instant, Operation, Extent)> {
    let mut now = 0;
    let at = |(pause, operation, start, sectors)| {
        now += pause;
        (Instant(now), operation, Extent::new(start, sectors))
    };
    load.into_iter().map(at).collect()
}

/// Returns the time at which each request ends on a volume that lets them pass one by one, each when
/// its time has come.
fn one_by_one(
    parameters: &Parameters,
    seed: u64,
    load: &[(Instant, Operation, Extent)],
) -> Vec<Instant> {
    let mut rng = Rng::new(seed, 0);
    let mut limits = Limits::new(parameters);
    let mut pauses = Pauses::new(parameters.hiccups, Rng::new(seed, 1));
    let (mut now, mut arrived, mut passed) = (Instant(0), 0, 0);
    // Ends on the volume's clock.
    let mut in_flight: Vec<(u64, usize)> = Vec::new();
    let mut ends = vec![Instant::NEVER; load.len()];
    let request = |at: usize| Request { tag: 0, operation: load[at].1, extent: load[at].2 };
    loop {
        let arrival = load.get(arrived).map_or(Instant::NEVER, |next| next.0);
        let may_pass = passed < arrived && in_flight.len() < parameters.queue_depth as usize;
        let gate = if may_pass { limits.ready(now, &request(passed)) } else { Instant::NEVER };
        let first = in_flight.iter().min().copied();
        let end = first.map_or(Instant::NEVER, |first| pauses.real_time(first.0));
        now = end.min(gate).min(arrival);
        if now == Instant::NEVER {
            return ends;
        }
        pauses.pass(now);
        if let Some(first) = first
            && first.0 <= pauses.volume_time(now)
        {
            ends[first.1] = now;
            in_flight.retain(|other| *other != first);
        } else if gate == now {
            let next = request(passed);
            limits.take(now, &next);
            let (latency, bytes) = match next.operation {
                Operation::Read => (&parameters.read, next.extent.bytes()),
                Operation::Write { .. } => (&parameters.write, next.extent.bytes()),
                Operation::Trim => (&parameters.write, 0),
                Operation::Flush => (&parameters.flush, 0),
            };
            let lasts = latency.draw(&mut rng) + parameters.transfer.time_of(bytes);
            in_flight.push((pauses.volume_time(now) + lasts, passed));
            passed += 1;
        } else if arrival == now {
            arrived += 1;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// That the volume lets requests pass ahead of time shows nowhere.
    #[test]
    fn requests_end_as_if_they_passed_one_by_one(
        seed: u64,
        depth in 1_u32..40,
        load in prop::collection::vec(
            // Many arrive together.
            (
                (0_u64..4_000_000).prop_map(|pause| pause.saturating_sub(3_000_000)),
                operation(),
                0_u64..1_000_000,
                1_u64..3000,
            ),
            1..300,
        ),
    ) {
        let load = at_times(load);
        let parameters = Parameters { queue_depth: depth, ..everything() };
        let mut drive = Network::new(parameters.clone(), seed).unwrap();
        let ends: Vec<_> = open_loop(&mut drive, &load).iter().map(|life| life.done).collect();
        prop_assert_eq!(ends, one_by_one(&parameters, seed, &load));
    }

    #[test]
    fn every_request_ends_once_and_the_same_seed_ends_it_at_the_same_time(
        seed: u64,
        depth in 1_u32..40,
        load in prop::collection::vec(
            (0_u64..20_000_000, operation(), 0_u64..1_000_000, 1_u64..3000),
            1..300,
        ),
    ) {
        let load = at_times(load);
        let parameters = Parameters { queue_depth: depth, ..everything() };
        let run = || {
            let mut drive = Network::new(parameters.clone(), seed).unwrap();
            (open_loop(&mut drive, &load), drive.counters())
        };
        let (lives, counters) = run();
        prop_assert_eq!((&lives, counters), (&run().0, run().1));
        let of = |wanted: fn(&Operation) -> bool| {
            load.iter().filter(|(_, operation, _)| wanted(operation)).count() as u64
        };
        prop_assert_eq!(counters.reads, of(|o| *o == Operation::Read));
        prop_assert_eq!(counters.writes, of(|o| matches!(o, Operation::Write { .. })));
        prop_assert_eq!(counters.flushes, of(|o| *o == Operation::Flush));
    }

    #[test]
    fn no_window_exceeds_the_rates_and_the_burst(
        peak in 100_u64..10_000,
        share in 1_u64..10,
        credit in 1_u64..2000,
        bandwidth in 1_000_000_u64..1_000_000_000,
        load in prop::collection::vec((0_u64..5_000_000, 1_u64..600), 10..300),
    ) {
        let sustained = (peak / share).max(1);
        let parameters = Parameters {
            iops: RequestLimit { sustained, peak: Some(peak), credit: Some(credit) },
            bandwidth: ByteLimit { sustained: Rate(bandwidth), peak: None, credit: None },
            queue_depth: 1000,
            merge_sequential: false,
            ..steady()
        };
        let mut now = 0;
        let load: Vec<_> = load
            .into_iter()
            .map(|(pause, sectors)| {
                now += pause;
                (Instant(now), Operation::Read, Extent::new(now % 1_000_000, sectors))
            })
            .collect();
        let lives = open_loop(&mut volume(parameters), &load);
        // All latencies are equal, so the gaps between ends equal the gaps between admissions.
        for first in 0..lives.len() {
            let (mut requests, mut bytes) = (0.0, 0.0);
            for (life, (_, _, extent)) in lives.iter().zip(&load).skip(first) {
                let window = life.done.since(lives[first].done) as f64 / 1e9;
                let cost = extent.bytes().div_ceil(256 << 10) as f64;
                requests += cost;
                bytes += extent.bytes() as f64;
                let short = (peak as f64 / 100.0).max(1.0);
                prop_assert!(requests <= peak as f64 * window + short + 2.0 + 1e-3);
                prop_assert!(requests <= sustained as f64 * window + credit as f64 + 2.0 + 1e-3);
                let depth = bandwidth as f64 / 100.0;
                let longest = 600.0 * 512.0;
                prop_assert!(bytes <= bandwidth as f64 * window + depth + longest + 1.0);
            }
        }
    }
}

#[test]
fn what_no_volume_can_be_is_refused_by_name() {
    let wrong = |parameters: Parameters| Network::new(parameters, 0).unwrap_err().to_string();
    let iops = RequestLimit { sustained: 300, peak: Some(30), credit: Some(1) };
    let error = wrong(Parameters { iops, ..steady() });
    assert_eq!(error, "`iops.peak` is 30: at least the sustained rate");
    let iops = RequestLimit { sustained: 300, peak: None, credit: Some(1) };
    assert!(wrong(Parameters { iops, ..steady() }).contains("`iops.credit`"));
    let read = Latency { sigma: f64::NAN, ..steady().read };
    assert!(wrong(Parameters { read, ..steady() }).contains("`read.sigma` is NaN"));
    assert!(wrong(Parameters { queue_depth: 0, ..steady() }).contains("`queue_depth`"));
}
