//! `make bench-sim`: measures the speed of the simulation, in simulated requests per second of
//! processor time on one core. Processor time is used because others may share the machine.
//! Arguments restrict it to the loads whose names contain one of them.

use std::path::Path;

use hemi_drives::drive::Drive as _;
use hemi_drives::preset::Precondition;
use hemi_engine::settings::Policy;
use hemi_simulate::mirror::Mirror;
use hemi_simulate::run::Run;
use hemi_simulate::stock::Stock;
use hemi_simulate::system::{EngineSpec, System};
use hemi_units::{Instant, SECOND};
use hemi_workload::spec::WorkloadSpec;
use rustix::time::{ClockId, clock_gettime};

/// Runs of each load. The best counts, since caches shared with others can only slow a run
/// down.
const ROUNDS: u32 = 3;

/// A simulated load and its target speed.
struct Load {
    name: &'static str,
    legs: &'static [&'static str],
    scale: u64,
    precondition: Precondition,
    volume: u64,
    read_percent: u32,
    requests: u64,
    target: f64,
}

/// A mirror under hemi's default policy, 70 % reads, on a volume of 64 GiB.
const MIRROR: Load = Load {
    name: "",
    legs: &[],
    scale: 1,
    precondition: Precondition::None,
    volume: 64 << 30,
    read_percent: 70,
    requests: 500_000,
    target: 1e6,
};

const LOADS: [Load; 4] = [
    Load {
        name: "mirror, policy first, over two hard disks, shortest positioning first",
        legs: &["wd-1tb-2009", "wd-1tb-2009"],
        ..MIRROR
    },
    Load {
        name: "mirror, policy first, over two network volumes",
        legs: &["gp3-16k", "gp3-16k"],
        requests: 1_000_000,
        ..MIRROR
    },
    Load {
        name: "mirror, policy first, over a hard disk and a network volume",
        legs: &["gp3-16k", "wd-1tb-2009"],
        ..MIRROR
    },
    Load {
        name: "flash drive in steady state, writes",
        legs: &["nvme-enterprise"],
        scale: 8,
        precondition: Precondition::Steady,
        volume: 0,
        read_percent: 0,
        requests: 1_000_000,
        target: 3e5,
    },
];

fn main() {
    println!("4 KiB at random, queue depth 32, one core; best of {ROUNDS} runs");
    let stock = Stock::default();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |load: &&Load| {
        words.is_empty() || words.iter().any(|word| load.name.contains(word.as_str()))
    };
    for load in LOADS.iter().filter(wanted) {
        let best = (0..ROUNDS).map(|_| speed(load, &stock)).fold(0.0, f64::max);
        let verdict = if best >= load.target { "met" } else { "MISSED" };
        println!(
            "{:>9.0} requests/s (target {:>7.0}, {verdict}): {}",
            best, load.target, load.name
        );
    }
}

fn speed(load: &Load, stock: &Stock) -> f64 {
    let legs = (1..).zip(load.legs).map(|(seed, name)| {
        let drive = stock.drive(name, Path::new(""), load.scale, load.precondition, seed);
        drive.expect("a built-in preset")
    });
    let mut legs: Vec<_> = legs.collect();
    let engine = EngineSpec::default();
    let mut system = match legs.len() {
        1 => System::Single(legs.remove(0)),
        _ => {
            let settings = engine.settings(Policy::First, legs.len());
            let mirror = Mirror::new(legs, engine.shape(load.volume), settings, 1);
            System::Mirror(Box::new(mirror.expect("it fits")))
        }
    };
    let spec = format!(
        "[closed]
        threads = 1
        queue_depth = 32
        requests = {}
        access = {{ addresses = \"uniform\", sizes = \"4 KiB\", mix = {{ read_percent = {} }} }}",
        load.requests, load.read_percent
    );
    let spec: WorkloadSpec = toml::from_str(&spec).expect("a good workload");
    let workload = spec.build(system.sectors(), 1, Path::new(""));
    let mut workload = workload.expect("it fits");
    let mut run = Run::new(SECOND);
    let begin = processor_time();
    run.until(Instant::NEVER, &mut system, &mut workload, |_| true);
    run.requests() as f64 / (processor_time() - begin)
}

/// Returns the seconds of processor time this thread has used.
fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / SECOND as f64
}
