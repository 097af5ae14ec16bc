//! Every kind of system under one load: all requests are answered, and identically each time.

use hemi_drives::server::{Server, Service};
use hemi_engine::settings::{Policy, Settings};
use hemi_random::Rng;
use hemi_simulate::mirror::{Mirror, MirrorError, Shape};
use hemi_simulate::oracle::Oracle;
use hemi_simulate::published::{Published, Rule};
use hemi_simulate::run::{Run, Watched};
use hemi_units::{Extent, Instant, MICROSECOND, MILLISECOND, Operation, SECOND};
use hemi_workload::{Issue, Workload};

const GIB: u64 = 2 << 20;

/// A closed loop of random requests of 4 KiB, 70 % reads.
struct Closed {
    rng: Rng,
    sectors: u64,
    left: u64,
    to_start: u32,
    under_way: u32,
}

impl Closed {
    fn new(sectors: u64, depth: u32, requests: u64) -> Closed {
        Closed { rng: Rng::new(5, 0), sectors, left: requests, to_start: depth, under_way: 0 }
    }

    fn issue(&mut self, now: Instant, tag: u32, issues: &mut Vec<Issue>) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        self.under_way += 1;
        let operation = match self.rng.below(100) {
            0..70 => Operation::Read,
            70..99 => Operation::Write { fua: false },
            _ => Operation::Flush,
        };
        let extent = match operation {
            Operation::Flush => Extent::default(),
            _ => Extent::new(self.rng.below(self.sectors / 8) * 8, 8),
        };
        issues.push(Issue { tag, operation, extent, intended: now });
    }
}

impl Workload for Closed {
    fn next_event(&self) -> Instant {
        if self.to_start > 0 { Instant(0) } else { Instant::NEVER }
    }

    fn advance(&mut self, now: Instant, issues: &mut Vec<Issue>) {
        for tag in 0..std::mem::take(&mut self.to_start) {
            self.issue(now, tag, issues);
        }
    }

    fn completed(&mut self, now: Instant, tag: u32, issues: &mut Vec<Issue>) {
        self.under_way -= 1;
        self.issue(now, tag, issues);
    }

    fn is_over(&self) -> bool {
        self.left == 0 && self.under_way == 0
    }
}

fn drives() -> Vec<Server> {
    let fast = Server::new(GIB, 8, Service::Exponential(100 * MICROSECOND), 1);
    let slow = Server::new(GIB, 4, Service::Exponential(2 * MILLISECOND), 2);
    vec![fast, slow]
}

fn shape(volume_bytes: u64, buffer_bytes: u64) -> Shape {
    Shape { volume_bytes, buffer_bytes, ..Shape::default() }
}

fn mirror(policy: Policy) -> Mirror<Server> {
    let settings = Settings { policy, ..Settings::default() };
    Mirror::new(drives(), shape(0, 256 << 20), settings, 7).expect("two good legs")
}

/// Runs the load and returns the requests answered, the virtual time, and the sum of latencies.
fn played<D: Watched>(mut drive: D, requests: u64) -> (u64, u64, f64) {
    let mut workload = Closed::new(drive.sectors(), 32, requests);
    let mut run = Run::new(SECOND);
    run.until(Instant(1000 * SECOND), &mut drive, &mut workload, |_| true);
    assert!(workload.is_over(), "all is answered");
    let little = run.little();
    assert!((little.in_system / little.rate_by_stay - 1.0).abs() < 1e-9, "{little:?}");
    let figures = run.figures();
    (figures.all.count(), run.now().0, figures.all.moments().mean())
}

/// The name of a system and a run of it.
type Played = (&'static str, fn() -> (u64, u64, f64));

#[test]
fn every_system_answers_everything_and_always_the_same_way() {
    let requests = 20_000;
    let runs: [Played; 7] = [
        ("single", || played(drives().remove(0), 20_000)),
        ("first", || played(mirror(Policy::First), 20_000)),
        ("paper", || played(mirror(Policy::Paper), 20_000)),
        ("all", || played(mirror(Policy::All), 20_000)),
        ("write-behind", || played(mirror(Policy::WriteBehind), 20_000)),
        ("published", || played(Published::new(drives(), Rule::default()), 20_000)),
        ("oracle", || played(Oracle::new(drives()), 20_000)),
    ];
    let mut means = Vec::new();
    for (name, run) in runs {
        let first = run();
        assert_eq!(first.0, requests, "{name}");
        assert_eq!(first, run(), "{name}");
        means.push(first.2);
    }
    let [_, first, _, all, _, _, oracle] = means[..] else { unreachable!("seven runs") };
    // The oracle's choice of leg for reads is an estimate too, and may be worse.
    assert!(oracle <= 1.05 * first && first < all, "oracle {oracle}, first {first}, all {all}");
}

#[test]
fn a_volume_that_does_not_fit_is_refused() {
    let wrong = Mirror::new(drives(), shape(2 << 30, 1 << 20), Settings::default(), 0);
    assert!(matches!(wrong.err(), Some(MirrorError::TooSmall { .. })));
    let one = Mirror::new(vec![drives().remove(0)], shape(0, 1 << 20), Settings::default(), 0);
    assert_eq!(one.err(), Some(MirrorError::Legs(1)));
}

#[test]
#[ignore = "prints how fast the simulation is"]
fn speed() {
    let begin = std::time::Instant::now();
    let (count, time, _) = played(mirror(Policy::First), 2_000_000);
    let seconds = begin.elapsed().as_secs_f64();
    println!("{:.0} requests a second, virtual {} s", count as f64 / seconds, time / SECOND);
}
