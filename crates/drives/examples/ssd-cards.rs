//! Runs the cards of flash drive presets as closed loops and prints published against model.
//!
//!     cargo run --release -p hemi-drives --example ssd-cards -- PRESET.toml ... [--scale N]
//!
//! A helper for who writes presets.

use std::collections::BTreeMap;

use hemi_core::units::{Extent, Instant};
use hemi_drives::drive::{Drive, Operation, Request};
use hemi_drives::quantity::Size;
use hemi_drives::ssd::Ssd;
use hemi_drives::ssd::parameters::Parameters;
use hemi_drives::ssd::precondition::Precondition;
use hemi_random::Rng;
use serde::Deserialize;

#[derive(Deserialize)]
struct Preset {
    title: String,
    parameters: Parameters,
    sources: BTreeMap<String, String>,
    #[serde(default)]
    card: Vec<Card>,
}

#[derive(Deserialize)]
struct Card {
    figure: String,
    load: Load,
    measure: String,
    published: f64,
    #[serde(default)]
    fitted: bool,
}

#[derive(Deserialize)]
struct Load {
    read_percent: u64,
    size: Size,
    pattern: String,
    queue_depth: u64,
    span: Option<Size>,
    precondition: Option<String>,
}

struct Result {
    iops: f64,
    bandwidth: f64,
    mean: f64,
    deviation: f64,
    latencies: Vec<u64>,
    watts: f64,
    amplification: f64,
    wall: f64,
}

fn run(drive: &mut Ssd, load: &Load, seconds: f64, requests: u64) -> Result {
    let mut rng = Rng::new(7, 1);
    let sectors = load.size.0 / 512;
    let span = load.span.map_or(drive.sectors(), |span| {
        (span.0 / 512 / u64::from(drive.parameters().scale)).min(drive.sectors())
    });
    let places = span / sectors;
    let (mut next, mut done) = (0, Vec::new());
    let mut started = vec![0; load.queue_depth as usize];
    let mut latencies = Vec::new();
    let mut issue = |drive: &mut Ssd, now: u64, tag: u64, started: &mut Vec<u64>| {
        let place = if load.pattern == "random" { rng.below(places) } else { next % places };
        next += 1;
        let read = rng.below(100) < load.read_percent;
        let operation = if read { Operation::Read } else { Operation::Write { fua: false } };
        started[tag as usize] = now;
        let extent = Extent::new(place * sectors, sectors);
        drive.submit(Instant(now), Request { tag, operation, extent });
    };
    let begin = std::time::Instant::now();
    let before = drive.counters();
    for tag in 0..load.queue_depth {
        issue(drive, 0, tag, &mut started);
    }
    let mut now = 0;
    while latencies.len() < requests as usize && now < (seconds * 1e9) as u64 {
        now = drive.next_event().0;
        assert_ne!(now, u64::MAX, "the drive stands still");
        drive.advance(Instant(now), &mut done);
        for completion in done.drain(..) {
            latencies.push(completion.at.0 - started[completion.tag as usize]);
            issue(drive, now, completion.tag, &mut started);
        }
    }
    let wall = begin.elapsed().as_secs_f64();
    let (count, time) = (latencies.len() as f64, now as f64 * 1e-9);
    let mean = latencies.iter().map(|&l| l as f64).sum::<f64>() / count;
    let square = latencies.iter().map(|&l| (l as f64 - mean) * (l as f64 - mean)).sum::<f64>();
    let counters = drive.counters().since(&before);
    latencies.sort_unstable();
    Result {
        iops: count / time,
        bandwidth: count * load.size.0 as f64 / time,
        mean: mean * 1e-9,
        deviation: (square / count).sqrt() * 1e-9,
        watts: counters.energy / time,
        amplification: counters.write_amplification(),
        wall: wall / count,
        latencies,
    }
}

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut number = |name: &str, default: f64| -> f64 {
        let Some(at) = arguments.iter().position(|word| word == name) else { return default };
        let value = arguments.remove(at + 1).parse().expect("a number");
        arguments.remove(at);
        value
    };
    let scale = number("--scale", 0.0);
    let (seconds, requests) = (number("--seconds", 20.0), number("--requests", 2e6));
    for path in arguments {
        let text = std::fs::read_to_string(&path).expect(&path);
        let mut preset: Preset =
            toml::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
        if scale > 0.0 {
            preset.parameters.scale = scale as u32;
        }
        let table: toml::Table = toml::from_str(&text).expect(&path);
        for key in table["parameters"].as_table().expect("parameters").keys() {
            assert!(preset.sources.contains_key(key), "{path}: no source for {key}");
        }
        let of = &preset.parameters;
        println!("== {} (alpha {}, scale {})", preset.title, of.alpha, of.scale);
        let mut states: BTreeMap<String, Ssd> = BTreeMap::new();
        for card in &preset.card {
            let state = card.load.precondition.clone().unwrap_or("none".into());
            let drive = states.entry(state.clone()).or_insert_with(|| {
                let mut drive = Ssd::new(of, 1).unwrap_or_else(|error| panic!("{path}: {error}"));
                let begin = std::time::Instant::now();
                let state = match state.as_str() {
                    "steady" => Precondition::Steady,
                    "sequential" => Precondition::Sequential,
                    _ => Precondition::Fresh,
                };
                let amplification = drive.precondition(state, 1);
                let wall = begin.elapsed().as_secs_f64();
                println!("   {state:?}: write amplification {amplification:.3}, {wall:.1} s, {} lanes of {} blocks", of.lanes(), of.shape().blocks / of.lanes());
                drive
            });
            let mut drive = drive.clone();
            if card.load.read_percent == 100 && state == "none" {
                drive.precondition(Precondition::Sequential, 1);
            }
            let result = run(&mut drive, &card.load, seconds, requests as u64);
            let at = |share: f64| {
                let index = (result.latencies.len() as f64 * share) as usize;
                result.latencies[index.min(result.latencies.len() - 1)] as f64 * 1e-9
            };
            let ours = match card.measure.as_str() {
                "iops" => result.iops,
                "bandwidth" => result.bandwidth,
                "mean" => result.mean,
                "stddev" => result.deviation,
                "p50" => at(0.5),
                "p99" => at(0.99),
                "max" => at(1.0),
                "watts" => result.watts,
                other => panic!("measure {other}"),
            };
            let off = 100.0 * (ours / card.published - 1.0);
            let fitted = if card.fitted { "fitted" } else { "" };
            println!(
                "{:<62} {:>8} {:>12.6} {ours:>12.6} {off:>+6.1} % {fitted}",
                card.figure, card.measure, card.published
            );
            println!(
                "      {:.0} IOPS {:.1} MB/s mean {:.3} ms sd {:.3} p50 {:.3} p99 {:.3} p99.9 {:.3} max {:.3} WA {:.3} {:.2} W freezes {} | {:.0} req/s",
                result.iops,
                result.bandwidth / 1e6,
                result.mean * 1e3,
                result.deviation * 1e3,
                at(0.5) * 1e3,
                at(0.99) * 1e3,
                at(0.999) * 1e3,
                at(1.0) * 1e3,
                result.amplification,
                result.watts,
                drive.freezes(),
                1.0 / result.wall
            );
        }
    }
}
