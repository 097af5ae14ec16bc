//! Shingled recording: fast until the persistent cache is full, then bands are rewritten.

use hemi_random::Rng;
use hemi_units::{Extent, Instant, MILLISECOND, SECOND, Size};

use super::{READ, WRITE, closed_loop, disk, rate};
use crate::drive::Drive;
use crate::hdd::Hdd;

/// Returns a disk with a persistent cache of eight bands, so that it is full soon.
fn small() -> Hdd {
    disk("smr-hdd", |p| {
        if let Some(shingles) = &mut p.shingles {
            shingles.persistent_cache = Size(8 * shingles.band.0);
        }
    })
}

#[test]
fn random_writes_are_fast_until_the_persistent_cache_is_full_and_then_stall() {
    let mut disk = small();
    let mut rng = Rng::new(7, 0);
    let bands = 400;
    let span = bands * (30 << 20) / 512;
    // 240 MiB of persistent cache take 61,440 writes of 4 KiB; the drive's cache takes some
    // more.
    let count = 90_000;
    let (_, times) =
        closed_loop(&mut disk, 1, count, |_| (WRITE, Extent::new(rng.below(span / 8) * 8, 8)));
    let (before, after) = (&times[1_000..50_000], &times[50_000..]);
    let stalls = |times: &[u64]| times.iter().filter(|&&time| time > 300 * MILLISECOND).count();
    let (fast, slow) = (super::mean(before), super::mean(after));
    assert!(fast < 2e6, "into the log, one behind the other: {fast}");
    assert_eq!(stalls(before), 0);
    assert!(slow > 4.0 * fast, "{fast} {slow}");
    assert!(stalls(after) > 10, "{}", stalls(after));
    // Left alone, the disk cleans up and is as good as new.
    let mut done = Vec::new();
    let mut now = Instant(0);
    while disk.next_event() != Instant::NEVER {
        now = disk.next_event();
        disk.advance(now, &mut done);
    }
    assert!(disk.cache_is_clean());
    assert!(now.0 > 50 * SECOND, "hundreds of bands take their time: {now:?}");
    assert!(disk.shingles.as_ref().is_some_and(|map| map.candidate().is_none()));
}

#[test]
fn sequential_writes_go_to_their_place_and_stream() {
    let mut disk = small();
    let (size, count) = (2048, 600);
    let (done, times) =
        closed_loop(&mut disk, 1, count, |i| (WRITE, Extent::new(i as u64 * size, size)));
    let got = rate(&done, count as u64 * size * 512);
    assert!((180e6..240e6).contains(&got), "{got}");
    assert!(times.iter().all(|&time| time < 300 * MILLISECOND));
    assert!(
        disk.shingles
            .as_ref()
            .is_some_and(|map| map.is_home(Extent::new(map.offset(), 500 * size)))
    );
}

#[test]
fn a_file_written_at_random_is_read_back_from_all_over_the_log() {
    let read = |scattered: bool| {
        let mut disk = small();
        let mut rng = Rng::new(8, 0);
        let mut order: Vec<u64> = (0..2_000).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, rng.below(i as u64 + 1) as usize);
        }
        let written = if scattered { order.len() } else { 0 };
        closed_loop(&mut disk, 1, written, |i| (WRITE, Extent::new(order[i] * 128, 128)));
        let mut done = Vec::new();
        let mut now = Instant(0);
        while !disk.cache_is_clean() {
            now = disk.next_event();
            disk.advance(now, &mut done);
        }
        let mut took = 0;
        for i in 0..500 {
            let extent = Extent::new(i * 512, 512);
            let request = crate::drive::Request { tag: i, operation: READ, extent };
            disk.submit(now, request);
            while done.is_empty() {
                let next = disk.next_event();
                disk.advance(next, &mut done);
            }
            let end = done.remove(0).at;
            took += end.since(now);
            now = end;
        }
        took
    };
    let (in_order, scattered) = (read(false), read(true));
    assert!(scattered > 10 * in_order, "{in_order} {scattered}");
}
