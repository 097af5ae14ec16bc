//! Tests of the whole flash drive: its physics, its bookkeeping, its presets.

mod bookkeeping;
mod physics;
mod presets;
mod snapshots;
mod states;

use hemi_random::Rng;
use hemi_units::{Extent, Instant, Operation};

use super::Ssd;
use super::parameters::Parameters;
use crate::drive::{Completion, Drive, Request};

/// A small drive: 8 lanes, 64 MB of 4 KiB units, two to a page, a quarter of spare.
pub(super) const SMALL: &str = r#"
    capacity = "64 MB"
    alpha = 1.25
    page = "8 KiB"
    pages_per_block = 32
    channels = 4
    dies_per_channel = 2
    planes = 1
    mapping_unit = "4 KiB"
    page_read = ["50 us"]
    page_program = ["500 us"]
    block_erase = "2 ms"
    channel_rate = "200 MB/s"
    link_rate = "1000 MB/s"
    full_duplex = true
    queue_depth = 64
    read_command = "1 us"
    write_command = "1 us"
    block_command = "0 us"
    copy_command = "0 us"
    read_latency = "5 us"
    write_latency = "5 us"
    buffer = "256 KiB"
    buffer_hold = "1 ms"
    victim = "greedy"
    reserve = 1
    collection_start = 2
    collection_share = 0.9
    collectors = 8
    power_idle = "1 W"
    power_read = "2 W"
    power_write = "3 W"
"#;

/// Returns the small drive's parameters, changed.
pub(super) fn small(change: impl FnOnce(&mut Parameters)) -> Parameters {
    let mut parameters: Parameters = toml::from_str(SMALL).expect("the text above is right");
    change(&mut parameters);
    parameters
}

/// Returns the small drive, changed.
pub(super) fn drive(change: impl FnOnce(&mut Parameters)) -> Ssd {
    Ssd::new(&small(change), 1).expect("the parameters are right")
}

/// The results of a closed loop.
pub(super) struct Loop {
    pub(super) completions: Vec<Completion>,
    pub(super) latencies: Vec<u64>,
    pub(super) end: u64,
}

impl Loop {
    pub(super) fn rate(&self, begin: u64) -> f64 {
        self.latencies.len() as f64 / (self.end - begin) as f64 * 1e9
    }

    pub(super) fn mean(&self) -> f64 {
        self.latencies.iter().sum::<u64>() as f64 / self.latencies.len() as f64
    }

    pub(super) fn max(&self) -> u64 {
        self.latencies.iter().copied().max().unwrap_or(0)
    }
}

/// Keeps `depth` requests in flight, starting at `begin`, until `count` are done; `next`
/// returns each request.
pub(super) fn closed(
    drive: &mut Ssd,
    begin: u64,
    depth: u64,
    count: u64,
    next: &mut dyn FnMut(u64) -> (Operation, Extent),
) -> Loop {
    let mut started = Vec::new();
    let mut run = Loop { completions: Vec::new(), latencies: Vec::new(), end: begin };
    let mut done = Vec::new();
    drive.advance(Instant(begin), &mut done);
    let mut issue = |drive: &mut Ssd, now: u64| {
        let tag = started.len() as u64;
        if tag < count {
            let (operation, extent) = next(tag);
            drive.submit(Instant(now), Request { tag, operation, extent });
        }
        started.push(now);
    };
    for _ in 0..depth {
        issue(drive, begin);
    }
    let mut seen = vec![false; count as usize];
    let mut latencies = vec![0; count as usize];
    while (run.completions.len() as u64) < count {
        let at = drive.next_event();
        assert_ne!(at, Instant::NEVER, "stands still with requests outstanding");
        drive.advance(at, &mut done);
        for completion in done.drain(..) {
            assert!(completion.at <= at && completion.at.0 >= run.end, "ends in order");
            assert!(!std::mem::replace(&mut seen[completion.tag as usize], true), "ends once");
            run.end = completion.at.0;
            run.completions.push(completion);
            issue(drive, at.0);
        }
    }
    for completion in &run.completions {
        latencies[completion.tag as usize] = completion.at.0 - started[completion.tag as usize];
    }
    run.latencies = latencies;
    run
}

pub(super) const WRITE: Operation = Operation::Write { fua: false };

/// Returns random aligned accesses of `bytes` bytes over the whole drive.
pub(super) fn random(
    drive: &Ssd,
    seed: u64,
    bytes: u64,
    operation: Operation,
) -> impl FnMut(u64) -> (Operation, Extent) + use<> {
    let (mut rng, sectors) = (Rng::new(seed, 9), bytes / 512);
    let places = drive.sectors() / sectors;
    move |_| (operation, Extent::new(rng.below(places) * sectors, sectors))
}

/// Returns sequential accesses from the beginning of the drive.
pub(super) fn sequential(
    drive: &Ssd,
    bytes: u64,
    operation: Operation,
) -> impl FnMut(u64) -> (Operation, Extent) + use<> {
    let sectors = bytes / 512;
    let places = drive.sectors() / sectors;
    move |index| (operation, Extent::new(index % places * sectors, sectors))
}
