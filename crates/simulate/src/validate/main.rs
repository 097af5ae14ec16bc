//! `make validate`: the models against theory and against measured drives.
//!
//! Each part prints a table of what should come out and what does, and whether it is within
//! its bound. The exit code says whether all are.

mod collection;
mod disks;
mod queueing;

use std::process::ExitCode;

/// A part's name, and what prints its table and says whether all of it is within bounds.
type Part = (&'static str, fn() -> bool);

const PARTS: [Part; 3] = [
    ("collection of garbage", collection::run),
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
