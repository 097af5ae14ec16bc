use hemi_units::Operation;
use proptest::prelude::*;

use super::{Access, AccessSpec};
use crate::seeds::Seeds;
use crate::testing::chi_square;

const MIX: &str = "mix = { read_percent = 70 }";

fn spec(text: &str) -> AccessSpec {
    toml::from_str(text).unwrap()
}

/// Returns the first requests of a thread: operation, first sector, sectors.
fn draw(access: &Access, thread: u64, count: usize) -> Vec<(Operation, u64, u64)> {
    let mut stream = access.stream(Seeds::new(7), thread);
    let draws = (0..count).map(|_| access.next(&mut stream));
    draws.map(|(operation, extent)| (operation, extent.start, extent.sectors())).collect()
}

fn built(text: &str, volume_sectors: u64) -> Access {
    spec(&format!("{text}\n{MIX}")).build(volume_sectors).unwrap()
}

#[test]
fn uniform_addresses_are_everywhere_as_often() {
    let access = built("addresses = \"uniform\"\nsizes = \"4 KiB\"", 8 * 100);
    let mut counts = [0; 100];
    for (_, start, sectors) in draw(&access, 0, 100_000) {
        assert_eq!((start % 8, sectors), (0, 8));
        counts[(start / 8) as usize] += 1;
    }
    // 99 degrees of freedom: the 99.9th percentile is 148.2.
    assert!(chi_square(&counts, &[1000.0; 100]) < 148.2, "{counts:?}");
}

#[test]
fn sizes_of_a_range_come_as_often_and_fit() {
    let text = "addresses = \"uniform\"\n\
                sizes = { from = \"10 KiB\", to = \"500 KiB\", step = \"10 KiB\" }";
    let access = built(text, 4096);
    let mut counts = [0; 50];
    for (_, start, sectors) in draw(&access, 0, 100_000) {
        assert!(start % 20 == 0 && start + sectors <= 4096);
        counts[(sectors / 20 - 1) as usize] += 1;
    }
    // 49 degrees of freedom: 85.4.
    assert!(chi_square(&counts, &[2000.0; 50]) < 85.4, "{counts:?}");
}

#[test]
fn weighted_sizes_come_by_their_weights() {
    let text = "addresses = \"uniform\"\nsizes = [{ size = \"4 KiB\", weight = 67 }, \
                { size = \"8 KiB\", weight = 10 }, { size = \"512 B\", weight = 4 }]";
    let mut counts = [0; 3];
    for (_, _, sectors) in draw(&built(text, 1 << 20), 0, 81_000) {
        counts[[8, 16, 1].iter().position(|&known| known == sectors).unwrap()] += 1;
    }
    // 2 degrees of freedom: 13.8.
    assert!(chi_square(&counts, &[67_000.0, 10_000.0, 4_000.0]) < 13.8, "{counts:?}");
}

#[test]
fn zones_get_their_shares() {
    let zoned = "zoned = [{ accesses = 50, space = 5 }, { accesses = 30, space = 15 }, \
                 { accesses = 20, space = 80 }]";
    for (addresses, bounds, shares) in [
        (zoned, vec![50, 200, 1000], vec![0.5, 0.3, 0.2]),
        ("hot_cold = { accesses = 80, space = 20 }", vec![200, 1000], vec![0.8, 0.2]),
        ("hot_cold = { accesses = 100, space = 10 }", vec![100], vec![1.0]),
    ] {
        let access = built(&format!("addresses = {{ {addresses} }}\nsizes = \"4 KiB\""), 8000);
        let mut zones = vec![0; bounds.len()];
        let mut blocks = vec![0_u64; 1000];
        for (_, start, _) in draw(&access, 0, 100_000) {
            let block = start / 8;
            blocks[block as usize] += 1;
            zones[bounds.iter().position(|&bound| block < bound).unwrap()] += 1;
        }
        let expected: Vec<f64> = shares.iter().map(|share| share * 100_000.0).collect();
        assert!(chi_square(&zones, &expected) < 13.8, "{addresses}: {zones:?}");
        // Within the first zone, uniform: at most 199 degrees of freedom, 266.
        let first = &blocks[..bounds[0] as usize];
        let each = vec![zones[0] as f64 / first.len() as f64; first.len()];
        assert!(chi_square(first, &each) < 266.0, "{addresses}");
    }
}

#[test]
fn popular_blocks_are_popular_and_scattered() {
    let access = built("addresses = { zipf = { skew = 0.99 } }\nsizes = \"4 KiB\"", 8 * 10_000);
    let mut counts = vec![0_u64; 10_000];
    for (_, start, _) in draw(&access, 0, 200_000) {
        counts[(start / 8) as usize] += 1;
    }
    let mut halves = [0; 2];
    let mut by_count: Vec<usize> = (0..10_000).collect();
    by_count.sort_by_key(|&block| std::cmp::Reverse(counts[block]));
    by_count[..100].iter().for_each(|&block| halves[block / 5000] += 1);
    assert!(halves.iter().all(|n| (30..=70).contains(n)), "{halves:?}");
    // The first rank has 1 / (sum of k^-0.99) = 9.8 % of all requests, the first 100 have 51 %.
    let share =
        |n: usize| by_count[..n].iter().map(|&block| counts[block]).sum::<u64>() as f64 / 200_000.0;
    let weight = |n: u32| (1..=n).map(|k| libm::pow(k.into(), -0.99)).sum::<f64>();
    for n in [1, 10, 100] {
        let expected = weight(n) / weight(10_000);
        assert!((share(n as usize) / expected - 1.0).abs() < 0.02, "{n}: {}", share(n as usize));
    }
    // The popular blocks are the same for another seed.
    let mut stream = access.stream(Seeds::new(8), 3);
    let hot = by_count[0] as u64 * 8;
    let hits = (0..10_000).filter(|_| access.next(&mut stream).1.start == hot).count();
    assert!((800..1200).contains(&hits), "{hits}");
}

#[test]
fn sequential_threads_wrap_and_start_apart() {
    let access = built("addresses = \"sequential\"\nsizes = \"4 KiB\"\nspan = \"40 KiB\"", 1000);
    let starts = |thread| -> Vec<u64> {
        draw(&access, thread, 12).iter().map(|(_, start, _)| start / 8).collect()
    };
    assert_eq!(starts(0), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]);
    assert_eq!(starts(1)[..6], [5, 6, 7, 8, 9, 0]);
    assert_eq!(starts(2)[0], 2);
    assert_eq!(starts(3)[0], 7);
}

#[test]
fn mixes_have_their_shares() {
    let text = "addresses = \"uniform\"\nsizes = \"4 KiB\"\n\
                mix = { read_percent = 62.5, trim_percent = 5, fua_percent = 20 }";
    let access = spec(text).build(1 << 20).unwrap();
    let mut counts = [0; 4];
    for (operation, _, _) in draw(&access, 0, 200_000) {
        counts[match operation {
            Operation::Read => 0,
            Operation::Trim => 1,
            Operation::Write { fua: false } => 2,
            Operation::Write { fua: true } => 3,
            Operation::Flush => panic!("no flush was asked for"),
        }] += 1;
    }
    // 3 degrees of freedom: 16.3.
    let expected = [125_000.0, 10_000.0, 52_000.0, 13_000.0];
    assert!(chi_square(&counts, &expected) < 16.3, "{counts:?}");
    for (percent, read) in [(0.0, false), (100.0, true)] {
        let text = text.replace("62.5", &format!("{percent:?}")).replace("= 5,", "= 0,");
        let draws = draw(&spec(&text).build(1 << 20).unwrap(), 0, 10_000);
        assert!(draws.iter().all(|(operation, _, _)| (*operation == Operation::Read) == read));
    }
}

#[test]
fn flushes_come_after_so_many_writes() {
    for every in [1, 16] {
        let text = format!(
            "addresses = \"uniform\"\nsizes = \"4 KiB\"\n\
             mix = {{ read_percent = 50, flush_every = {every} }}"
        );
        let (mut writes, mut flushes) = (0, 0);
        for (operation, _, sectors) in draw(&spec(&text).build(1 << 20).unwrap(), 0, 20_000) {
            match operation {
                Operation::Flush => {
                    assert_eq!((writes, sectors), (every, 0));
                    (writes, flushes) = (0, flushes + 1);
                }
                Operation::Write { .. } => writes += 1,
                _ => {}
            }
            assert!(writes <= every);
        }
        assert!(flushes > 500);
    }
}

#[test]
fn what_cannot_be_is_named() {
    for (text, expected) in [
        (
            "addresses = \"uniform\"\nsizes = \"10 kB\"",
            "sizes = 10000 B: write a multiple of 512 B",
        ),
        ("addresses = \"uniform\"\nsizes = \"1 MiB\"", "sizes = up to 1048576 B"),
        (
            "addresses = \"uniform\"\nsizes = []",
            "sizes = a list of 0: write a list of 1 to 65536 entries",
        ),
        (
            "addresses = \"uniform\"\nsizes = [{ size = \"4 KiB\", weight = 0 }]",
            "sizes[0].weight = 0",
        ),
        (
            "addresses = \"uniform\"\n\
             sizes = { from = \"4 KiB\", to = \"9 KiB\", step = \"4 KiB\" }",
            "sizes.to = 9216 B: write a whole number of steps above `from`",
        ),
        (
            "addresses = \"uniform\"\n\
             sizes = { from = \"1 KiB\", to = \"1 GiB\", step = \"1 KiB\" }",
            "sizes.step = 1024 B: write a range of at most 65536 sizes",
        ),
        ("addresses = { zoned = [] }\nsizes = \"4 KiB\"", "addresses.zoned = a list of 0: "),
        ("addresses = \"uniform\"\nsizes = \"4 KiB\"\nalignment = \"100 B\"", "alignment = 100 B"),
        ("addresses = \"uniform\"\nsizes = \"4 KiB\"\nspan = \"1 MiB\"", "span = 0 B to 1048576 B"),
        (
            "addresses = \"uniform\"\nsizes = \"4 KiB\"\n\
             span = { from = \"16777215 TiB\", length = \"16777215 TiB\" }",
            "span = 18446742974197923840 B to 36893485948395847680 B",
        ),
        ("addresses = { zipf = { skew = 0.0 } }\nsizes = \"4 KiB\"", "addresses.zipf.skew = 0"),
        (
            "addresses = { hot_cold = { accesses = 101, space = 1 } }\nsizes = \"4 KiB\"",
            "addresses.hot_cold.accesses = 101",
        ),
        (
            "addresses = { zoned = [{ accesses = 50, space = 100 }] }\nsizes = \"4 KiB\"",
            "addresses.zoned.accesses = 50 in all: write percentages that add up to 100",
        ),
        (
            "addresses = { hot_cold = { accesses = 90, space = 0.1 } }\nsizes = \"4 KiB\"",
            "addresses.hot_cold[0].space = 0.1",
        ),
    ] {
        let error = spec(&format!("{text}\n{MIX}")).build(1000).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    for (mix, expected) in [
        ("read_percent = 101", "mix.read_percent = 101: write a percentage, 0 to 100"),
        ("read_percent = nan", "mix.read_percent = NaN"),
        ("read_percent = 70, trim_percent = 40", "mix.trim_percent = 40"),
        ("read_percent = 70, flush_every = 0", "mix.flush_every = 0"),
    ] {
        let text = format!("addresses = \"uniform\"\nsizes = \"4 KiB\"\nmix = {{ {mix} }}");
        let error = spec(&text).build(1000).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

proptest! {
    #[test]
    fn every_request_lies_within_the_span_and_is_aligned(
        from in 0..5000_u64,
        length in 1..5000_u64,
        alignment in 1..64_u64,
        (smallest, step, steps) in (1..64_u64, 1..64_u64, 0..8_u64),
        addresses in prop::sample::select(vec![
            "\"uniform\"",
            "\"sequential\"",
            "{ zipf = { skew = 1.0 } }",
            "{ hot_cold = { accesses = 90, space = 33.3 } }",
            "{ zoned = [{ accesses = 10, space = 10 }, { accesses = 0, space = 50 }, \
             { accesses = 90, space = 40 }] }",
        ]),
    ) {
        let text = format!(
            "addresses = {addresses}\nalignment = \"{} B\"\n\
             span = {{ from = \"{} B\", length = \"{} B\" }}\n\
             sizes = {{ from = \"{} B\", to = \"{} B\", step = \"{} B\" }}\n{MIX}",
            alignment * 512, from * 512, length * 512,
            smallest * 512, (smallest + steps * step) * 512, step * 512,
        );
        // Impossible specs are refused; all others keep to their span.
        if let Ok(access) = spec(&text).build(8000) {
            for (_, start, sectors) in draw(&access, 5, 200) {
                prop_assert!(start >= from && start + sectors <= from + length);
                prop_assert!((start - from).is_multiple_of(alignment));
                prop_assert!(sectors >= smallest && (sectors - smallest).is_multiple_of(step));
            }
        }
    }
}
