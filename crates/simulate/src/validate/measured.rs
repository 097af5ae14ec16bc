//! A drive's model compared with requests measured on the drive.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use hemi_drives::any::AnyDrive;
use hemi_drives::disksim::{drive, trace};
use hemi_drives::drive::{Drive, Request};
use hemi_drives::hdd::{self, Hdd};
use hemi_drives::preset::{Model, Preset};
use hemi_units::{Extent, Instant, Operation};

use super::cdf::{Cdf, distance};

/// Number of angles from which each trace is run.
pub(crate) const ANGLES: u32 = 8;

/// Largest deviation of the mean.
pub(crate) const MEAN_BOUND: f64 = 0.10;

/// A filter for the requests to evaluate.
type Wanted = dyn Fn(&trace::Measured) -> bool;

/// A drive to compare.
pub(crate) enum Subject {
    /// A disk; it runs from several angles.
    Disk(Box<hdd::Parameters>),
    /// Any other drive; it runs with several seeds.
    Other(Box<Preset>),
}

impl Subject {
    /// Loads the drive in `path`: a DiskSim description or a preset. Prints what has no effect.
    pub(crate) fn load(path: &Path) -> Result<Subject> {
        if path.extension().is_some_and(|end| end == "toml") {
            let preset = Preset::load(path)?;
            return Ok(match preset.model {
                Model::Hdd(parameters) => Subject::Disk(parameters),
                _ => Subject::Other(Box::new(preset)),
            });
        }
        let description = drive::load_file(path)?;
        for ignored in &description.ignored {
            println!("  ignored: {ignored}");
        }
        Ok(Subject::Disk(Box::new(description.parameters)))
    }

    /// Returns the drive for the run with number `index` of [`ANGLES`].
    fn drive(&self, index: u32) -> Result<AnyDrive> {
        Ok(match self {
            Subject::Disk(parameters) => {
                let disk = Hdd::turned((**parameters).clone(), (u32::MAX / ANGLES) * index)?;
                AnyDrive::Hdd(Box::new(disk))
            }
            Subject::Other(preset) => preset.drive(u64::from(index))?,
        })
    }
}

/// Replays the requests one after another and returns measured and modelled times in
/// milliseconds.
fn replay(mut drive: AnyDrive, requests: &[trace::Measured]) -> Vec<(f64, f64)> {
    let mut now = Instant(0);
    let mut done = Vec::new();
    let mut times = Vec::with_capacity(requests.len());
    for (tag, request) in requests.iter().enumerate() {
        drive.advance(now, &mut done);
        let operation =
            if request.write { Operation::Write { fua: false } } else { Operation::Read };
        let extent = Extent::new(request.sector, request.sectors);
        drive.submit(now, Request { tag: tag as u64, operation, extent });
        while done.is_empty() {
            let next = drive.next_event();
            drive.advance(next, &mut done);
        }
        let end = done.remove(0).at;
        times.push((request.service as f64 / 1e6, end.since(now) as f64 / 1e6));
        now = end + request.pause;
    }
    times
}

fn mean(times: &[f64]) -> f64 {
    times.iter().sum::<f64>() / times.len().max(1) as f64
}

/// Compares a drive with the requests in `trace` and prints a table. Writes the times of each
/// request into the file `out`, if given. Returns true if the mean is within its bound, and the
/// distance if it has one.
pub(crate) fn compare(
    subject: &Subject,
    trace: &Path,
    published: Option<&Cdf>,
    bound: Option<f64>,
    out: Option<&Path>,
) -> Result<bool> {
    let file = trace.display().to_string();
    let text = std::fs::read_to_string(trace).with_context(|| file.clone())?;
    let requests = trace::read(&file, &text, subject.drive(0)?.sectors())?;
    let runs: Vec<Vec<(f64, f64)>> = (0..ANGLES)
        .map(|index| Ok(replay(subject.drive(index)?, &requests)))
        .collect::<Result<_>>()?;
    if let Some(out) = out {
        write_requests(out, &requests, &runs[0]).with_context(|| out.display().to_string())?;
    }
    println!("             requests  measured     model    diff.      rms distance     bound");
    let mut right = true;
    let kinds: [(&str, &Wanted); 3] =
        [("all", &|_| true), ("reads", &|one| !one.write), ("writes", &|one| one.write)];
    for (kind, wanted) in kinds {
        let of = |run: &Vec<(f64, f64)>| -> (Vec<f64>, Vec<f64>) {
            let pairs = run.iter().zip(&requests).filter(|pair| wanted(pair.1));
            pairs.map(|(times, _)| *times).unzip()
        };
        let all: Vec<(Vec<f64>, Vec<f64>)> = runs.iter().map(of).collect();
        let count = all[0].0.len();
        if count == 0 {
            continue;
        }
        let measured = mean(&all[0].0);
        let model = mean(&all.iter().map(|run| mean(&run.1)).collect::<Vec<_>>());
        let off = model / measured - 1.0;
        let distances: Vec<f64> = all.iter().map(|run| distance(&run.0, &run.1)).collect();
        let least = distances.iter().copied().fold(f64::MAX, f64::min);
        let most = distances.iter().copied().fold(0.0, f64::max);
        print!(
            "  {kind:<9} {count:>9}  {measured:>5.3} ms  {model:>5.3} ms  {:>+5.1} %  {least:.3} \
             to {most:.3} ms",
            off * 100.0
        );
        if kind == "all" {
            let within = off.abs() <= MEAN_BOUND && bound.is_none_or(|bound| most <= bound);
            let bound = bound.map_or("       -".to_owned(), |bound| format!("{bound:>5.3} ms"));
            println!("   {bound}  {}", if within { "ok" } else { "MISSED" });
            right &= within;
        } else {
            println!();
        }
        if kind == "all"
            && let Some(published) = published
        {
            let distances = all.iter().map(|run| published.distance(&run.1));
            println!(
                "  published distribution: mean {:.3} ms ({:+.1} %), rms distance at most {:.3} ms",
                published.mean(),
                (model / published.mean() - 1.0) * 100.0,
                distances.fold(0.0, f64::max)
            );
        }
    }
    Ok(right)
}

/// Writes a line for each request: its kind, first sector, sectors, and times in milliseconds.
fn write_requests(out: &Path, requests: &[trace::Measured], times: &[(f64, f64)]) -> Result<()> {
    let mut file = BufWriter::new(File::create(out)?);
    writeln!(file, "operation,sector,sectors,measured_ms,model_ms")?;
    for (request, (measured, model)) in requests.iter().zip(times) {
        let trace::Measured { write, sector, sectors, .. } = request;
        let operation = if *write { "write" } else { "read" };
        writeln!(file, "{operation},{sector},{sectors},{measured},{model}")?;
    }
    file.flush().map_err(Into::into)
}

/// The files of a comparison.
pub(crate) struct Files<'f> {
    /// A DiskSim description or a preset.
    pub(crate) drive: &'f Path,
    /// The measured requests.
    pub(crate) trace: &'f Path,
    /// A published distribution.
    pub(crate) cdf: Option<&'f Path>,
    /// The file into which the times of each request are written.
    pub(crate) requests: Option<&'f Path>,
}

/// Compares a drive with what was measured on it; see [`compare`].
pub(crate) fn files(files: &Files<'_>, bound: Option<f64>) -> Result<bool> {
    println!("{}", files.drive.display());
    let subject = Subject::load(files.drive).with_context(|| files.drive.display().to_string())?;
    let published = match files.cdf {
        Some(path) => {
            let file = path.display().to_string();
            let text = std::fs::read_to_string(path).with_context(|| file.clone())?;
            Some(Cdf::parse(&file, &text)?)
        }
        None => None,
    };
    compare(&subject, files.trace, published.as_ref(), bound, files.requests)
}
