//! `make validate`: compares the models with theory and with measured drives.
//!
//! Each part prints a table of expected and actual results, and whether each is within its
//! bound. The exit code tells whether all are.

mod collection;
mod disks;
mod queueing;

use std::process::ExitCode;

/// A part's name and its function, which prints the table and returns true if all results are
/// within bounds.
type Part = (&'static str, fn() -> bool);

const PARTS: [Part; 3] = [
    ("garbage collection", collection::run),
    ("measured hard disks", disks::run),
    ("queueing", queueing::run),
];

fn main() -> ExitCode {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let mut all = true;
    for (name, run) in PARTS {
        if asked.is_empty() || asked.iter().any(|word| name.contains(word.as_str())) {
            println!("== {name}");
            all &= run();
            println!();
        }
    }
    if all { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
