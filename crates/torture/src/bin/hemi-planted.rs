//! `hemi-planted`: plants each known bug in the engine and shows that the torture's checker catches
//! it. Built only with the feature `planted`.

use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use clap::Parser;
use hemi_engine::planted::Planted;
use hemi_torture::planted::{Hunted, hunt, hunt_apart, named};
use hemi_torture::run::note_panics;
use hemi_torture::torture::parse_range;

/// The most seeds that the median bug may take.
const MEDIAN_MAX: u64 = 100;

/// Plants each known bug in the engine and runs seeds of the torture until one catches it.
///
/// A seed counts if the checker finds a broken promise, and the seed passes without the bug. Exits
/// with 1 if a bug is not caught, or if half of them take more than 100 seeds.
#[derive(Parser)]
#[command(name = "hemi-planted", version)]
struct Arguments {
    /// The bugs to plant (default: all).
    #[arg(value_parser = named)]
    bugs: Vec<Planted>,
    /// Seeds to run for each bug, from and up to (not including).
    #[arg(long, value_parser = parse_range, default_value = "8000000000000..8000000001000", value_name = "A..B")]
    seeds: Range<u64>,
    /// A list of bugs and the scripted tests that catch them. Those marked with a * are hunted only
    /// if they are named. A bug with `seed N` in place of a test is hunted on that seed alone. So
    /// is one with `asserted N`, where the engine's own assertion counts: it ends every run before
    /// the checker sees anything.
    #[arg(long, value_name = "FILE")]
    scripted: Option<PathBuf>,
    /// Number of bugs to hunt in parallel.
    #[arg(long, default_value_t = 1, value_name = "N")]
    jobs: usize,
    /// Internal: hunt one bug and report each seed to the parent.
    #[arg(long, value_parser = named, hide = true, value_name = "BUG")]
    hunt: Option<Planted>,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    note_panics();
    if let Some(bug) = arguments.hunt {
        hunt(bug, arguments.seeds);
        return Ok(ExitCode::SUCCESS);
    }
    let all = hunt_all(&arguments)?;
    let mut took: Vec<u64> =
        all.iter().filter_map(|hunted| Some(hunted.caught.as_ref()?.0)).collect();
    took.sort_unstable();
    let median = took.get(took.len() / 2).copied().unwrap_or(0);
    println!("caught {} of {}, median {median} seeds", took.len(), all.len());
    let well = took.len() == all.len() && median <= MEDIAN_MAX;
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the hunts: the bugs that are named, or all but those left to scripted tests alone.
fn bugs_to_hunt(arguments: &Arguments) -> anyhow::Result<Vec<Hunt>> {
    let list = match &arguments.scripted {
        Some(path) => std::fs::read_to_string(path)
            .with_context(|| format!("reading the list of scripted tests {}", path.display()))?,
        None => String::new(),
    };
    let only_scripted = |bug: &Planted| list.contains(&format!("\n{bug:?}* "));
    let bugs = if arguments.bugs.is_empty() {
        Planted::ALL.iter().copied().filter(|bug| !only_scripted(bug)).collect()
    } else {
        arguments.bugs.clone()
    };
    bugs.into_iter().map(|bug| hunt_of(bug, &list, &arguments.seeds)).collect()
}

/// A bug, the seeds it is hunted on, and the evidence that counts as a catch.
struct Hunt {
    bug: Planted,
    seeds: Range<u64>,
    /// The engine's own assertion is a catch.
    assertion_counts: bool,
}

/// Returns how a bug is hunted: on the seed that the list names for it, or on all.
fn hunt_of(bug: Planted, list: &str, all: &Range<u64>) -> anyhow::Result<Hunt> {
    let named = |kind: &str| {
        let start = format!("{bug:?} {kind} ");
        list.lines().find_map(|line| line.strip_prefix(&start))
    };
    let asserted = named("asserted");
    let assertion_counts = asserted.is_some();
    let Some(seed) = asserted.or(named("seed")) else {
        return Ok(Hunt { bug, seeds: all.clone(), assertion_counts });
    };
    let seed: u64 = seed.trim().parse().with_context(|| format!("the seed for {bug:?}: {seed}"))?;
    Ok(Hunt { bug, seeds: seed..seed + 1, assertion_counts })
}

/// Hunts every bug and prints each result as its hunt ends.
fn hunt_all(arguments: &Arguments) -> anyhow::Result<Vec<Hunted>> {
    let program = std::env::current_exe().context("finding this program")?;
    let bugs = &bugs_to_hunt(arguments)?[..];
    println!("{:<24} {:>6} {:>9}  broken", "bug", "seeds", "asserted");
    let next = AtomicUsize::new(0);
    let done: Mutex<anyhow::Result<Vec<Hunted>>> = Mutex::new(Ok(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs.max(1) {
            scope.spawn(|| {
                while let Some(hunt) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let hunted = hunt_apart(&program, hunt.bug, &hunt.seeds).map(|mut hunted| {
                        if hunt.assertion_counts {
                            hunted.caught = hunted.caught.or_else(|| hunted.asserted.clone());
                        }
                        hunted
                    });
                    let mut done = done.lock().expect("no thread panics holding this");
                    match (&mut *done, hunted) {
                        (Ok(all), Ok(hunted)) => {
                            print_hunted(hunt.bug, &hunted);
                            all.push(hunted);
                        }
                        (Ok(_), Err(error)) => *done = Err(error),
                        (Err(_), _) => return,
                    }
                }
            });
        }
    });
    done.into_inner().expect("as above")
}

fn print_hunted(bug: Planted, hunted: &Hunted) {
    let asserted = hunted.asserted.as_ref().map_or("-".into(), |(at, _)| at.to_string());
    let name = format!("{bug:?}");
    match (&hunted.caught, &hunted.asserted) {
        (Some((at, text)), _) => println!("{name:<24} {at:>6} {asserted:>9}  {text}"),
        (None, asserts) => {
            let only =
                asserts.as_ref().map_or(String::new(), |(_, text)| format!("; only: {text}"));
            println!("{name:<24} {:>6} {asserted:>9}  NOT CAUGHT:{}{only}", "-", bug.describe());
        }
    }
}
