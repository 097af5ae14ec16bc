//! Shows that the checker finds what it exists to find: a bug is planted in the engine
//! ([`hemi_engine::planted`]), and the torture's own seeds are run until one breaks a promise.
//!
//! A seed is a **catch** if the checker finds a broken promise, judged by what clients, disks and
//! operators can see, and the same seed passes without the bug. The engine's own assertions do not
//! count, and the thorough ones are off, so that they do not end a run that the checker would have
//! judged.
//!
//! Each bug is hunted in a process of its own ([`hunt_apart`] runs [`hunt`]): the planted bug
//! applies to the whole process, and some end in a crash or an endless loop.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use hemi_engine::planted::{Planted, select};
use hemi_world::Violation;

use crate::plan::Plan;
use crate::run::run;
use crate::world::World;

/// A seed that takes longer is in an endless loop.
const HUNG_AFTER: Duration = Duration::from_secs(60);
/// The most characters reported of a violation.
const TEXT_MAX: usize = 90;

/// The result of a hunt.
#[derive(Clone, Debug, Default)]
pub struct Hunted {
    /// The number of seeds it took and the promise broken.
    pub caught: Option<(u64, String)>,
    /// The same for the first failed assertion of the engine, crash or endless loop.
    pub asserted: Option<(u64, String)>,
}

/// Returns the bug of this name.
///
/// # Errors
/// Fails if there is none.
pub fn named(name: &str) -> Result<Planted, String> {
    let bug = Planted::ALL.iter().find(|bug| format!("{bug:?}") == name);
    bug.copied().ok_or(format!("{name:?} is no planted bug"))
}

/// Runs seed after seed in the child process, and reports each to the parent, until one is a catch.
pub fn hunt(bug: Planted, seeds: std::ops::Range<u64>) {
    let mut world = World::default();
    world.asserts = false;
    for seed in seeds {
        println!("seed {seed}");
        let plan = Plan::of_seed(seed);
        select(Some(bug));
        let outcome = run(&mut world, &plan, false);
        select(None);
        let Some(violation) = outcome.violation else { continue };
        // A seed that also fails without the bug proves nothing.
        if run(&mut world, &plan, false).violation.is_some() {
            continue;
        }
        let is_seen = is_seen(&violation);
        let text = violation.text.replace('\n', " ");
        println!("{} {}: {text}", if is_seen { "caught" } else { "asserted" }, violation.promise);
        if is_seen {
            return;
        }
    }
}

/// Returns true if the checker found it, not an assertion of the engine.
fn is_seen(violation: &Violation) -> bool {
    violation.promise.starts_with('P')
}

/// Hunts a bug in child processes that run `program`, which must call [`hunt`] when it is given
/// `--hunt BUG --seeds A..B`.
///
/// # Errors
/// Fails if the program cannot be started.
pub fn hunt_apart(
    program: &Path,
    bug: Planted,
    seeds: &std::ops::Range<u64>,
) -> anyhow::Result<Hunted> {
    let mut hunted = Hunted::default();
    let mut next = seeds.start;
    while next < seeds.end {
        let mut follower = Follower { from: seeds.start, next, hunted };
        let ended = follower.follow(program, bug, seeds.end)?;
        (next, hunted) = (follower.next, follower.hunted);
        if ended || hunted.caught.is_some() {
            break;
        }
        let took = next - seeds.start;
        hunted.asserted.get_or_insert((took, "the process ended or hung".into()));
    }
    Ok(hunted)
}

/// The parent's view of one child.
struct Follower {
    from: u64,
    /// The seed after the last one begun.
    next: u64,
    hunted: Hunted,
}

impl Follower {
    /// Follows one child and returns true if it came to its end.
    fn follow(&mut self, program: &Path, bug: Planted, end: u64) -> anyhow::Result<bool> {
        let mut child = Command::new(program)
            .args(["--hunt", &format!("{bug:?}"), "--seeds", &format!("{}..{end}", self.next)])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let (received, reader) = read_lines(&mut child);
        let mut hung = false;
        loop {
            match received.recv_timeout(HUNG_AFTER) {
                Ok(line) => self.note(&line),
                Err(RecvTimeoutError::Timeout) => {
                    hung = true;
                    child.kill().context("stopping a hunt that hangs")?;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let status = child.wait().context("waiting for a hunt")?;
        reader.join().expect("reading lines does not panic");
        Ok(!hung && status.success())
    }

    fn note(&mut self, line: &str) {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        let told = || (self.next - self.from, rest.chars().take(TEXT_MAX).collect());
        match kind {
            "seed" => self.next = rest.parse().map_or(self.next, |seed: u64| seed + 1),
            "caught" => self.hunted.caught = Some(told()),
            "asserted" if self.hunted.asserted.is_none() => self.hunted.asserted = Some(told()),
            _ => {}
        }
    }
}

fn read_lines(child: &mut Child) -> (Receiver<String>, JoinHandle<()>) {
    let output = child.stdout.take().expect("it was asked for as a pipe");
    let (lines, received) = channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                return;
            }
        }
    });
    (received, reader)
}
