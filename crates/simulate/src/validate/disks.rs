//! The hard disk model compared with three real drives: the model serves the requests measured
//! on them, and its service times are compared with theirs.
//!
//! Nothing is fitted to the measurements: all parameters are those of the drives' descriptions.
//! They do not give the platters' angle at the first request, but it hardly matters. A request
//! comes a fixed time after the one before has ended, and the platters decide that end, so a
//! run turned by an angle is the same run from the first read on. To show this, every trace
//! runs from several angles, and the worst of them is checked against the bound. (The angle of
//! the real platters at a given request cannot be predicted either: the speed of the spindle is
//! known only to some ten-thousandths, and some tens of milliseconds pass between two requests.
//! So the distributions are compared, not each request's time.)

use std::path::Path;

use hemi_drives::disksim::{drive, trace};
use hemi_drives::drive::{Drive, Request};
use hemi_drives::hdd::Hdd;
use hemi_units::{Extent, Instant, Operation};

/// A drive and the distance (in ms) that DiskSim's authors publish for their own model.
struct Reference {
    title: &'static str,
    name: &'static str,
    published: f64,
}

const DRIVES: [Reference; 3] = [
    Reference { title: "Seagate Cheetah 9LP", name: "cheetah9LP", published: 0.107 },
    Reference { title: "IBM Ultrastar 18ES", name: "ibm18es", published: 0.135 },
    Reference { title: "Quantum Atlas 10K", name: "atlas10k", published: 0.268 },
];

/// Number of angles from which each trace is run.
const ANGLES: u32 = 8;

/// Largest deviation of the mean.
const MEAN_BOUND: f64 = 0.10;

/// Largest multiple of DiskSim's own distance.
const DISTANCE_BOUND: f64 = 2.0;

/// A filter for the requests to evaluate.
type Wanted = dyn Fn(&trace::Measured) -> bool;

/// Figures of one kind of request, in milliseconds.
struct Figures {
    count: usize,
    measured: f64,
    model: f64,
    distance: f64,
}

/// Returns the root mean square of the horizontal distance between two distributions of the
/// same number of times: Ruemmler and Wilkes's demerit figure.
fn distance(measured: &[f64], model: &[f64]) -> f64 {
    let sorted = |times: &[f64]| {
        let mut times = times.to_vec();
        times.sort_by(f64::total_cmp);
        times
    };
    let pairs = sorted(measured).into_iter().zip(sorted(model));
    let sum: f64 = pairs.map(|(a, b)| (a - b) * (a - b)).sum();
    libm::sqrt(sum / measured.len().max(1) as f64)
}

fn figures(pairs: &[(f64, f64)]) -> Figures {
    let measured: Vec<f64> = pairs.iter().map(|pair| pair.0).collect();
    let model: Vec<f64> = pairs.iter().map(|pair| pair.1).collect();
    let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len().max(1) as f64;
    Figures {
        count: pairs.len(),
        measured: mean(&measured),
        model: mean(&model),
        distance: distance(&measured, &model),
    }
}

/// Replays the requests one after another and returns measured and modelled times in
/// milliseconds.
fn replay(mut disk: Hdd, requests: &[trace::Measured]) -> Vec<(f64, f64)> {
    let mut now = Instant(0);
    let mut done = Vec::new();
    let mut times = Vec::with_capacity(requests.len());
    for (tag, request) in requests.iter().enumerate() {
        disk.advance(now, &mut done);
        let operation =
            if request.write { Operation::Write { fua: false } } else { Operation::Read };
        let extent = Extent::new(request.sector, request.sectors);
        disk.submit(now, Request { tag: tag as u64, operation, extent });
        while done.is_empty() {
            let next = disk.next_event();
            disk.advance(next, &mut done);
        }
        let end = done.remove(0).at;
        times.push((request.service as f64 / 1e6, end.since(now) as f64 / 1e6));
        now = end + request.pause;
    }
    times
}

fn check(reference: &Reference) -> anyhow::Result<bool> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../drives/data/disksim");
    let read =
        |name: &str| std::fs::read_to_string(folder.join(name)).map_err(|error| error.to_string());
    let name = reference.name;
    let parameters = drive::load(&format!("{name}.diskspecs"), &read)?;
    let disk = |angle| Hdd::turned(parameters.clone(), angle);
    let file = format!("{name}.trace");
    let text = read(&file).map_err(anyhow::Error::msg)?;
    let requests = trace::read(&file, &text, disk(0)?.sectors())?;

    let mut runs = Vec::new();
    for i in 0..ANGLES {
        runs.push(replay(disk((u32::MAX / ANGLES) * i)?, &requests));
    }
    let of = |wanted: &Wanted| -> Vec<Figures> {
        let one = |run: &Vec<(f64, f64)>| {
            let pairs = run.iter().zip(&requests).filter(|pair| wanted(pair.1));
            figures(&pairs.map(|pair| *pair.0).collect::<Vec<_>>())
        };
        runs.iter().map(one).collect()
    };
    let mean = |all: &[Figures], pick: fn(&Figures) -> f64| {
        all.iter().map(pick).sum::<f64>() / all.len() as f64
    };
    println!("{}", reference.title);
    println!("             requests  measured     model    diff.      rms distance     bound");
    let mut right = true;
    let kinds: [(&str, &Wanted); 3] =
        [("all", &|_| true), ("reads", &|one| !one.write), ("writes", &|one| one.write)];
    for (kind, wanted) in kinds {
        let all = of(wanted);
        let (measured, model) = (all[0].measured, mean(&all, |one| one.model));
        let off = model / measured - 1.0;
        let least = all.iter().map(|one| one.distance).fold(f64::MAX, f64::min);
        let most = all.iter().map(|one| one.distance).fold(0.0, f64::max);
        let bound = DISTANCE_BOUND * reference.published;
        print!(
            "  {kind:<9} {:>9}  {measured:>5.3} ms  {model:>5.3} ms  {:>+5.1} %  {least:.3} to {most:.3} ms",
            all[0].count,
            off * 100.0
        );
        if kind == "all" {
            let within = off.abs() <= MEAN_BOUND && most <= bound;
            println!("   {bound:.3} ms  {}", if within { "ok" } else { "MISSED" });
            right &= within;
        } else {
            println!();
        }
    }
    Ok(right)
}

pub(crate) fn run() -> bool {
    println!(
        "10,000 measured requests each; no parameter fitted; from {ANGLES} initial angles; \
         bounds: mean within {:.0} %, distance at most {DISTANCE_BOUND} times DiskSim's own",
        MEAN_BOUND * 100.0
    );
    let mut all = true;
    for reference in &DRIVES {
        match check(reference) {
            Ok(right) => all &= right,
            Err(error) => {
                println!("{}: {error:#}", reference.title);
                all = false;
            }
        }
    }
    all
}
