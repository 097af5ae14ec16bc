//! `make validate`: compares the models with theory and with measured drives.
//!
//! Each part prints a table of expected and actual results, and whether each is within its
//! bound. The exit code tells whether all are. With `--drive` and `--trace`, or with
//! `--collection`, it compares drives whose files are not part of hemi.

mod cdf;
mod collection;
mod disks;
mod measured;
mod queueing;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// A part's name and its function, which prints the table and returns true if all results are
/// within bounds.
type Part = (&'static str, fn() -> bool);

const PARTS: [Part; 3] = [
    ("garbage collection", collection::run),
    ("measured hard disks", disks::run),
    ("queueing", queueing::run),
];

/// Compare the models with theory and with measured drives.
///
/// Without options, runs what comes with hemi. The exit status is 0 if all results are within
/// their bounds.
#[derive(Debug, Parser)]
#[command(after_help = "\
Examples:
  hemi-validate disks
  hemi-validate --drive disk.parv --trace disk.trace
  hemi-validate --drive disk.toml --trace disk.trace --cdf published.cdf --published 0.254
  hemi-validate --collection disksim-4.0/valid")]
struct Arguments {
    /// Parts to run, by a word of their name: garbage, disks, queueing [default: all].
    #[arg(value_name = "PART")]
    parts: Vec<String>,

    /// Compare this drive: a DiskSim description (.diskspecs, .parv) or a preset file (.toml).
    #[arg(long, value_name = "FILE", requires = "trace", conflicts_with = "parts")]
    drive: Option<PathBuf>,

    /// Requests measured on the drive, as in DiskSim's validation traces.
    #[arg(long, value_name = "FILE", requires = "drive")]
    trace: Option<PathBuf>,

    /// Published distribution of service times: lines of milliseconds and a share from 0 to 1.
    #[arg(long, value_name = "FILE", requires = "drive")]
    cdf: Option<PathBuf>,

    /// Distance (in ms) published for another model of the drive; twice it is the bound.
    #[arg(long, value_name = "MS", requires = "drive")]
    published: Option<f64>,

    /// Write the times of each request, measured and modelled, into this CSV file.
    #[arg(long, value_name = "OUT", requires = "drive")]
    requests: Option<PathBuf>,

    /// Compare the disks of DiskSim's own validation whose files are in this directory.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["parts", "drive"])]
    collection: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let all = if let Some(folder) = &arguments.collection {
        disks::collection(folder)
    } else if let (Some(drive), Some(trace)) = (&arguments.drive, &arguments.trace) {
        let files = measured::Files {
            drive,
            trace,
            cdf: arguments.cdf.as_deref(),
            requests: arguments.requests.as_deref(),
        };
        let bound = arguments.published.map(|published| published * disks::DISTANCE_BOUND);
        match measured::files(&files, bound) {
            Ok(right) => right,
            Err(error) => {
                eprintln!("hemi-validate: {error:#}");
                return ExitCode::from(2);
            }
        }
    } else {
        parts(&arguments.parts)
    };
    if all { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn parts(asked: &[String]) -> bool {
    let mut all = true;
    for (name, run) in PARTS {
        if asked.is_empty() || asked.iter().any(|word| name.contains(word.as_str())) {
            println!("== {name}");
            all &= run();
            println!();
        }
    }
    all
}
