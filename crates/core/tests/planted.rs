//! Shows that the checker sees what it is there to see: each planted bug in turn, seed after
//! seed until a run breaks a promise.
//!
//! A bug counts as caught only by what a client or an operator could see: a wrong or missing
//! answer, a bound passed, legs that differ. Panics of the engine's own assertions are shown
//! in a column of their own and count for nothing.
//!
//! Arguments: names of bugs (all without any), `--seeds N` at most (1000), `--none` to run the
//! seeds without any bug (`--from N` on). What `--hunt` says is between the program and itself.

mod world;

use std::cell::RefCell;
use std::io::{BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use hemi_core::planted::{Planted, select};
use world::left_behind::left_behind;
use world::relay::relay;
use world::stall::stall;
use world::storm::{Weather, storm};

/// A seed that takes longer goes round for ever.
const HUNG_AFTER: Duration = Duration::from_secs(60);
/// What the median bug may take.
const MEDIAN_MAX: u64 = 100;

/// The kinds of runs, one after the other.
const KINDS: u64 = 12;

fn run(seed: u64) {
    let round = seed / KINDS;
    let legs = [2, 3, 2, 4][(round / 2 % 4) as usize];
    let calm = Weather { keen: round % 2 == 1, ..Weather::default() };
    match seed % KINDS {
        0 => storm(seed, legs, Weather { scrub: true, ..calm }),
        1 => storm(seed, legs, Weather { errors: true, ..calm }),
        2 => storm(seed, legs, Weather { members: true, ..calm }),
        3 => storm(seed, legs, Weather { gone: true, ..calm }),
        4 => stall(seed, legs),
        5 => storm(seed, 2, Weather { promotions: true, rot: true, ..calm }),
        6 => storm(seed, legs, Weather { gone: true, removed: true, ..calm }),
        7 => storm(seed, 2, Weather { keen: true, ..calm }),
        8 => storm(seed, legs, Weather { errors: true, flush_errors: true, members: true, ..calm }),
        9 => left_behind(seed),
        10 => relay(seed, legs),
        _ => storm(seed, legs, Weather { policies: true, gone: true, rot: true, ..calm }),
    }
}

/// Where a run ended, if it did not end well.
#[derive(Clone)]
struct Failure {
    file: String,
    line: u32,
    message: String,
}

impl Failure {
    /// By the checker, not by an assertion of the engine's.
    fn is_seen(&self) -> bool {
        self.file.contains("tests/world/")
    }
}

thread_local! {
    static LAST: RefCell<Option<Failure>> = const { RefCell::new(None) };
}

fn note_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location();
        let payload = info.payload();
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or(payload.downcast_ref::<&str>().copied()).unwrap_or("");
        let failure = Failure {
            file: place.map_or(String::new(), |p| p.file().into()),
            line: place.map_or(0, std::panic::Location::line),
            message: text.lines().next().unwrap_or("").chars().take(90).collect(),
        };
        LAST.with(|last| last.replace(Some(failure)));
    }));
}

fn attempt(seed: u64) -> Option<Failure> {
    match catch_unwind(AssertUnwindSafe(|| run(seed))) {
        Ok(()) => None,
        Err(_) => LAST.with(RefCell::take),
    }
}

#[derive(Default)]
struct Outcome {
    /// Seeds it took, and what was seen.
    caught: Option<(u64, String)>,
    /// The same for an assertion of the engine's, or its crash.
    asserted: Option<(u64, String)>,
}

/// The child's part: seed after seed from `from`, telling the parent of each.
fn hunt(bug: Planted, from: u64, seeds: u64) -> ExitCode {
    note_panics();
    for seed in from..seeds {
        println!("seed {seed}");
        select(Some(bug));
        let Some(failure) = attempt(seed) else { continue };
        // A seed that fails without the bug as well says nothing.
        select(None);
        if attempt(seed).is_some() {
            continue;
        }
        if failure.is_seen() {
            println!("caught {}", failure.message);
            break;
        }
        println!("asserted {}:{} {}", failure.file, failure.line, failure.message);
    }
    ExitCode::SUCCESS
}

/// Hunts in a process of its own: some mistakes end in a crash or go round for ever.
fn hunt_apart(bug: Planted, seeds: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut next = 0;
    while next < seeds && outcome.caught.is_none() {
        let from = next;
        let ended = follow(bug, from, seeds, &mut next, &mut outcome);
        if ended || outcome.caught.is_some() {
            break;
        }
        outcome.asserted.get_or_insert((next, "the process ended or hung".into()));
    }
    outcome
}

/// Follows one child; whether it came to its end. `next` is the seed after the last begun.
fn follow(bug: Planted, from: u64, seeds: u64, next: &mut u64, outcome: &mut Outcome) -> bool {
    let program = std::env::current_exe().expect("a running program has a path");
    let mut child = Command::new(program)
        .args(["--hunt", &format!("{bug:?}"), &from.to_string(), &seeds.to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program can run itself");
    let output = child.stdout.take().expect("it is piped");
    let (lines, received) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                return;
            }
        }
    });
    let mut hung = false;
    loop {
        match received.recv_timeout(HUNG_AFTER) {
            Ok(line) => note_line(&line, next, outcome),
            Err(RecvTimeoutError::Timeout) => {
                hung = true;
                let _ = child.kill();
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let status = child.wait();
    let _ = reader.join();
    !hung && status.is_ok_and(|status| status.success())
}

fn note_line(line: &str, next: &mut u64, outcome: &mut Outcome) {
    let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
    match kind {
        "seed" => *next = rest.parse().map_or(*next, |seed: u64| seed + 1),
        "caught" => outcome.caught = Some((*next, rest.into())),
        "asserted" => {
            outcome.asserted.get_or_insert((*next, rest.into()));
        }
        _ => {}
    }
}

struct Arguments {
    bugs: Vec<Planted>,
    seeds: u64,
    none: bool,
    /// Without a bug: the first seed.
    from: u64,
    /// Of a child: the bug and the first seed.
    child: Option<(Planted, u64)>,
}

fn number(argument: Option<String>) -> Result<u64, String> {
    let text = argument.unwrap_or_default();
    text.parse().map_err(|_| format!("{text:?}: give a number of seeds"))
}

fn named(name: &str) -> Result<Planted, String> {
    let bug = Planted::ALL.iter().find(|bug| format!("{bug:?}") == name);
    bug.copied().ok_or(format!("{name:?} is no planted bug; run without names for all"))
}

fn arguments() -> Result<Arguments, String> {
    let mut given = Arguments { bugs: Vec::new(), seeds: 1000, none: false, from: 0, child: None };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--none" => given.none = true,
            "--from" => given.from = number(arguments.next())?,
            "--seeds" => given.seeds = number(arguments.next())?,
            "--hunt" => {
                let bug = named(&arguments.next().unwrap_or_default())?;
                given.child = Some((bug, number(arguments.next())?));
                given.seeds = number(arguments.next())?;
            }
            name => given.bugs.push(named(name)?),
        }
    }
    if given.bugs.is_empty() {
        given.bugs = Planted::ALL.to_vec();
    }
    Ok(given)
}

fn main() -> ExitCode {
    let given = match arguments() {
        Ok(given) => given,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    match given.child {
        Some((bug, from)) => hunt(bug, from, given.seeds),
        None if given.none => without_bugs(given.from, given.seeds),
        None => hunt_all(&given.bugs, given.seeds),
    }
}

fn hunt_all(bugs: &[Planted], seeds: u64) -> ExitCode {
    println!("{:<24} {:>6} {:>9}  reported", "bug", "seeds", "asserted");
    let mut took: Vec<u64> = Vec::new();
    for &bug in bugs {
        let outcome = hunt_apart(bug, seeds);
        let asserted = outcome.asserted.as_ref().map_or("-".into(), |(at, _)| at.to_string());
        let name = format!("{bug:?}");
        if let Some((at, message)) = outcome.caught {
            println!("{name:<24} {at:>6} {asserted:>9}  {message}");
            took.push(at);
        } else {
            let why = outcome.asserted.map_or(String::new(), |(_, m)| format!(" (only: {m})"));
            println!("{name:<24} {:>6} {asserted:>9}  not caught:{}{why}", "-", bug.describe());
        }
    }
    took.sort_unstable();
    let median = took.get(took.len() / 2).copied().unwrap_or(0);
    println!("caught {} of {}, median {median} seeds", took.len(), bugs.len());
    let good = took.len() == bugs.len() && median <= MEDIAN_MAX;
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Without a bug nothing may be reported, or what is reported with one says nothing.
fn without_bugs(from: u64, seeds: u64) -> ExitCode {
    note_panics();
    let mut failures = 0;
    for seed in from..from + seeds {
        if let Some(failure) = attempt(seed) {
            failures += 1;
            println!("seed {seed}: {}:{} {}", failure.file, failure.line, failure.message);
        }
    }
    println!("{failures} of {seeds} seeds report something without any bug");
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
