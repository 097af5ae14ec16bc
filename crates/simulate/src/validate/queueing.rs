//! Runs compared with queueing theory: one server, Poisson arrivals, and service times that are
//! exponential (M/M/1) or constant (M/D/1). The mean time in the system is known in closed form
//! (Pollaczek and Khinchine), and Little's law holds for any run.

use std::path::Path;

use hemi_drives::server::{Server, Service};
use hemi_simulate::run::Run;
use hemi_units::{Instant, MICROSECOND, SECOND};
use hemi_workload::spec::WorkloadSpec;

/// Mean service time.
const SERVICE: u64 = 100 * MICROSECOND;
/// Largest deviation of the mean.
const BOUND: f64 = 0.02;
/// Independent runs for each mean, for its confidence interval.
const RUNS: u64 = 10;
/// Student's t for 95 % with nine degrees of freedom.
const STUDENT: f64 = 2.262;

pub(crate) fn run() -> bool {
    println!("system   load   theory µs   measured µs   95 % ±   difference   Little");
    let mut all = true;
    for exponential in [true, false] {
        for load in [0.5, 0.8, 0.95] {
            all &= cell(exponential, load);
        }
    }
    all
}

/// Checks one system at one load.
fn cell(exponential: bool, load: f64) -> bool {
    // Means of a busy queue settle slowly, and more slowly the busier it is.
    let requests = if load > 0.9 { 6_000_000 } else { 1_000_000 };
    let runs: Vec<(f64, f64)> =
        (0..RUNS).map(|seed| one(exponential, load, requests, seed)).collect();
    let count = RUNS as f64;
    let mean = runs.iter().map(|run| run.0).sum::<f64>() / count;
    let spread = runs.iter().map(|run| (run.0 - mean) * (run.0 - mean)).sum::<f64>();
    let interval = STUDENT * libm::sqrt(spread / (count - 1.0) / count);
    let waiting = load / (1.0 - load) * if exponential { 1.0 } else { 0.5 };
    let theory = SERVICE as f64 / SECOND as f64 * (1.0 + waiting);
    let off = mean / theory - 1.0;
    let little = runs.iter().map(|run| run.1).fold(0.0, f64::max);
    let holds = off.abs() <= BOUND && little < 1e-9;
    println!(
        "{}    {load:.2}   {:9.1}   {:11.1}   {:6.1}   {:+9.2} %   {}   {}",
        if exponential { "M/M/1" } else { "M/D/1" },
        theory * 1e6,
        mean * 1e6,
        interval * 1e6,
        off * 100.0,
        if little < 1e-9 { "holds " } else { "BROKEN" },
        if holds { "ok" } else { "MISSED" },
    );
    holds
}

/// Returns the mean time in the system in seconds, and the relative error of Little's law.
fn one(exponential: bool, load: f64, requests: u64, seed: u64) -> (f64, f64) {
    let service = if exponential { Service::Exponential(SERVICE) } else { Service::Fixed(SERVICE) };
    let mut server = Server::new(1 << 20, 1, service, seed);
    let rate = load * SECOND as f64 / SERVICE as f64;
    let spec = format!(
        "[[phases]]
        measured = false
        requests = {}
        workload.open.rate = {rate}
        workload.open.access.addresses = \"uniform\"
        workload.open.access.sizes = \"4 KiB\"
        workload.open.access.mix.read_percent = 100
        [[phases]]
        requests = {requests}",
        requests / 20
    );
    let spec: WorkloadSpec = toml::from_str(&spec).expect("a good workload");
    let mut workload = spec.build(1 << 20, seed + 100, Path::new("")).expect("it fits");
    let mut run = Run::new(3600 * SECOND);
    run.until(Instant::NEVER, &mut server, &mut workload, |_| true);
    let little = run.little();
    let mean = run.figures().all.moments().mean();
    (mean, (little.in_system / little.rate_by_stay - 1.0).abs())
}
