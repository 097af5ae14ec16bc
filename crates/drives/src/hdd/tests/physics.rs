//! Times match the mechanics.

use hemi_random::Rng;
use hemi_units::{Extent, Instant, MILLISECOND, Operation, SECOND, Time};

use super::{READ, WRITE, closed_loop, disk, mean, random, rate};
use crate::drive::{Drive, Request};
use crate::hdd::Hdd;
use crate::hdd::parameters::{Order, Parameters};

#[test]
fn a_random_read_takes_a_seek_half_a_turn_and_the_transfer() {
    for (name, seek) in [("wd-1tb-2009", 8.9e6), ("cheetah-15k5-300gb", 3.5e6)] {
        let mut disk = disk(name, |_| ());
        let mut rng = Rng::new(1, 0);
        let extents: Vec<Extent> = (0..40_000).map(|_| random(&disk, &mut rng, 8)).collect();
        let (_, times) = closed_loop(&mut disk, 1, extents.len(), |i| (READ, extents[i]));
        let turn = disk.mechanism().spindle.revolution() as f64;
        let overhead = disk.parameters().overheads.read_miss.after_read.0 as f64;
        // The outer zones hold more, so seeks are a little shorter than between uniformly drawn
        // cylinders. 4 KiB take some ten microseconds.
        let expected = overhead + seek + turn / 2.0 + turn / 150.0;
        let off = mean(&times) / expected - 1.0;
        assert!((-0.03..0.01).contains(&off), "{name}: {} {expected}", mean(&times));
    }
}

/// Returns the rate of the outermost tracks in bytes per second, skews included.
fn media_rate(disk: &crate::hdd::Hdd) -> f64 {
    let mechanism = disk.mechanism();
    let end = mechanism.geometry.track_end(0);
    let first = mechanism.geometry.place(0).angle;
    let second = mechanism.geometry.place(end).angle;
    // A track takes a turn and its skew.
    let turn = mechanism.spindle.revolution();
    let skew = mechanism.spindle.time(u64::from(second.wrapping_sub(first)));
    end as f64 * 512.0 * 1e9 / (turn + skew) as f64
}

#[test]
fn sequential_reads_and_cached_writes_stream_at_the_mediums_rate() {
    for name in ["sata-250gb-2008", "wd-1tb-2009", "cheetah-15k5-300gb", "hdd-20tb"] {
        for operation in [READ, WRITE] {
            for kib in [64_u64, 1024] {
                let mut disk = disk(name, |_| ());
                let expected = media_rate(&disk);
                let (size, count) = (kib * 2, (256 * 1024 / kib) as usize);
                let (done, _) = closed_loop(&mut disk, 1, count, |i| {
                    (operation, Extent::new(i as u64 * size, size))
                });
                let got = rate(&done, count as u64 * size * 512);
                // The contents of the write cache at the end are not on the medium.
                let cached = disk.parameters().write_cache.size.0 as f64 * 2.0;
                let ahead = if operation == READ { 0.0 } else { cached / (256 * 1_048_576) as f64 };
                let share = got / expected;
                // Reading ahead begins where the head arrives, before a skew made for writes
                // has passed.
                let early = if operation == READ { 0.06 } else { 0.0 };
                assert!(
                    (0.96..1.01 + early + ahead * 1.5).contains(&share),
                    "{name} {operation:?} {kib}: {share}"
                );
            }
        }
    }
}

/// Returns the rate in bytes per second of a sequential stream of chunks, as a disk of a stripe
/// gets it. Each chunk arrives `later` nanoseconds after the previous one in its slot has
/// ended.
fn streamed(name: &str, seed: u64, depth: u64, later: u64) -> f64 {
    streamed_in(128, super::preset(name).parameters, seed, depth, later)
}

/// Does as [`streamed`] with chunks of `sectors` sectors.
fn streamed_in(sectors: u64, parameters: Parameters, seed: u64, depth: u64, later: u64) -> f64 {
    const COUNT: u64 = 4_000;
    let mut disk = Hdd::of_seed(parameters, seed).unwrap();
    let mut due: std::collections::VecDeque<_> = (0..depth).map(|i| Instant(i * later)).collect();
    let (mut done, mut ended, mut tag) = (Vec::new(), 0, 0);
    let mut now = Instant(0);
    while ended < COUNT {
        let arrival = due.front().copied().unwrap_or(Instant::NEVER);
        now = disk.next_event().min(arrival).max(now);
        disk.advance(now, &mut done);
        for one in done.drain(..) {
            ended += 1;
            due.push_back(one.at + later);
        }
        if arrival <= now {
            due.pop_front();
            let extent = Extent::new(sectors * tag, sectors);
            disk.submit(now, Request { tag, operation: READ, extent });
            tag += 1;
        }
    }
    (COUNT * sectors * 512) as f64 * 1e9 / now.0 as f64
}

/// Small requests: the next one's command is worked out while the head passes its sectors.
#[test]
fn small_neighbours_lose_no_revolution_at_any_depth() {
    for name in ["cheetah-15k5-300gb", "wd-1tb-2009", "hdd-20tb"] {
        let parameters = super::preset(name).parameters;
        let one = streamed_in(8, parameters.clone(), 1, 1, 0);
        for depth in 2..=8 {
            let many = streamed_in(8, parameters.clone(), 1, depth, 0);
            assert!(many > 0.9 * one, "{name}: {many:.0} B/s at depth {depth}, {one:.0} at 1");
        }
    }
}

#[test]
fn one_segment_is_enough() {
    for answers_reads in [false, true] {
        let mut parameters = super::preset("hdd-20tb").parameters;
        parameters.read_cache.segments = 1;
        parameters.write_cache.answers_reads = answers_reads;
        parameters.write_cache.shares_segments = answers_reads;
        let mut disk = Hdd::new(parameters).unwrap();
        let (done, latencies) = closed_loop(&mut disk, 4, 2_000, |nth| {
            let operation = if nth % 3 == 2 { WRITE } else { READ };
            let place = if nth % 5 == 0 { nth as u64 * 1_000_003 % 1_000_000 } else { nth as u64 };
            (operation, Extent::new(8 * place, 8))
        });
        assert_eq!(done.len(), 2_000);
        assert!(latencies.iter().all(|&latency| latency < 1_000_000_000), "{latencies:?}");
    }
}

#[test]
fn neighbours_in_the_queue_are_read_in_one_sweep() {
    for name in ["cheetah-15k5-300gb", "wd-1tb-2009", "hdd-20tb"] {
        for (seed, depth, later) in
            [(1, 2, 0), (2, 2, 59_000), (3, 3, 59_000), (4, 4, 96_000), (5, 8, 7_000), (6, 24, 0)]
        {
            let one = streamed(name, seed, 1, 0);
            let many = streamed(name, seed, depth, later);
            // A single reader may gain a little: whole tracks are read ahead from wherever the
            // head arrives, and the skew, made for writes, need not pass.
            assert!(
                many > 0.95 * one,
                "{name} {seed}: {many:.0} B/s at depth {depth}, {later} ns later, {one:.0} at 1"
            );
        }
    }
}

#[test]
fn without_the_write_cache_a_sequential_write_misses_its_turn() {
    let mut disk = disk("wd-1tb-2009", |p| p.write_cache.enabled = false);
    let turn = disk.mechanism().spindle.revolution() as f64;
    let (_, times) = closed_loop(&mut disk, 1, 2_000, |i| (WRITE, Extent::new(i as u64 * 8, 8)));
    assert!((mean(&times) / turn - 1.0).abs() < 0.01, "{}", mean(&times));
}

#[test]
fn a_whole_track_takes_one_turn_wherever_the_head_lands() {
    let mut disk = disk("wd-1tb-2009", |p| {
        p.read_cache.read_ahead = crate::hdd::parameters::ReadAhead::None;
    });
    let track = disk.mechanism().geometry.track_end(0);
    let turn = disk.mechanism().spindle.revolution();
    let mut done = Vec::new();
    for i in 0..20 {
        let now = Instant(SECOND * (i + 1) + i * 777_777);
        disk.advance(now, &mut done);
        let extent = Extent::new(0, track);
        // Written first, so that the read cache holds none of it.
        disk.submit(now, Request { tag: i, operation: Operation::Write { fua: true }, extent });
        while done.is_empty() {
            let next = disk.next_event();
            disk.advance(next, &mut done);
        }
        let took = done.remove(0).at.since(now);
        assert!(took < turn + MILLISECOND * 4, "{took}");
        assert!(took >= turn, "{took}");
    }
}

#[test]
fn a_flush_waits_for_the_medium_and_fua_does() {
    let mut disk = disk("wd-1tb-2009", |_| ());
    let mut rng = Rng::new(3, 0);
    let mut now = Instant(0);
    let mut done = Vec::new();
    for tag in 0..20 {
        let extent = random(&disk, &mut rng, 8);
        disk.submit(now, Request { tag, operation: WRITE, extent });
        while done.is_empty() {
            let next = disk.next_event();
            disk.advance(next, &mut done);
        }
        now = done.remove(0).at;
    }
    assert!(now.0 < 20 * MILLISECOND, "cached writes take no positioning: {now:?}");
    let extent = Extent::default();
    disk.submit(now, Request { tag: 99, operation: Operation::Flush, extent });
    while done.is_empty() {
        let next = disk.next_event();
        disk.advance(next, &mut done);
    }
    let took = done.remove(0).at.since(now);
    // Twenty scattered writes in the best order.
    assert!((60 * MILLISECOND..200 * MILLISECOND).contains(&took), "{took}");
    let now = now + took;
    disk.submit(now, Request { tag: 100, operation: Operation::Flush, extent });
    let next = disk.next_event();
    disk.advance(next, &mut done);
    assert!(done.remove(0).at.since(now) <= MILLISECOND, "nothing is left to flush");
    let (_, times) = closed_loop(&mut disk, 1, 500, |_| {
        (Operation::Write { fua: true }, Extent::new(rng.below(1_000_000_000), 8))
    });
    assert!(mean(&times) > 10e6, "{}", mean(&times));
}

#[test]
fn shortest_positioning_first_more_than_doubles_random_reads_and_starves_none() {
    let run = |order| {
        let mut disk = disk("hdd-20tb", |p| p.queue.order = order);
        let mut rng = Rng::new(4, 0);
        let extents: Vec<Extent> = (0..20_000).map(|_| random(&disk, &mut rng, 8)).collect();
        let (done, times) = closed_loop(&mut disk, 32, extents.len(), |i| (READ, extents[i]));
        let worst = times.iter().copied().max().unwrap_or_default();
        (rate(&done, extents.len() as u64), worst)
    };
    let (in_order, _) = run(Order::FirstComeFirstServed);
    let (shortest, worst) = run(Order::ShortestPositioningFirst);
    assert!((70.0..95.0).contains(&in_order), "{in_order}");
    assert!((2.0..3.0).contains(&(shortest / in_order)), "{shortest} {in_order}");
    // After half a second a request comes next. Others may be as old, but none much older.
    assert!((400 * MILLISECOND..SECOND).contains(&worst), "{worst}");
}

#[test]
fn a_spindle_at_rest_saves_power_and_has_to_come_up() {
    let mut disk = disk("wd-1tb-2009", |p| p.power.spin_down_after = Some(Time(10 * SECOND)));
    let mut done = Vec::new();
    disk.advance(Instant(110 * SECOND), &mut done);
    let joules = disk.counters().energy;
    assert!((joules - (10.0 * 6.1 + 100.0 * 0.7)).abs() < 0.1, "{joules}");
    let request = Request { tag: 0, operation: READ, extent: Extent::new(1_000_000, 8) };
    disk.submit(Instant(110 * SECOND), request);
    while done.is_empty() {
        let next = disk.next_event();
        disk.advance(next, &mut done);
    }
    assert!(done[0].at.since(Instant(122 * SECOND)) > 0 && done[0].at < Instant(123 * SECOND));
}
