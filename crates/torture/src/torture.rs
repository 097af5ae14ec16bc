//! Runs of many seeds: in parallel, counted in order, with a state file so that a long torture can
//! be stopped and resumed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use hemi_engine::marks::Mark;
use hemi_world::Violation;
use rustix::time::{ClockId, clock_gettime};

use crate::plan::Plan;
use crate::run::{Outcome, run};
use crate::world::{Counts, World};

/// `--doublecheck` runs one seed in this many twice.
const DOUBLECHECK_EVERY: u64 = 16;
/// The time between two writes of the state file.
const SAVE_EVERY: Duration = Duration::from_secs(5);

/// Ranges of seeds, in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seeds(Vec<std::ops::Range<u64>>);

impl Seeds {
    /// Returns the first seed of the ranges that is not below `seed`, or `None`.
    pub fn from(&self, seed: u64) -> Option<u64> {
        let range = self.0.iter().find(|range| range.end > seed)?;
        Some(range.start.max(seed))
    }

    /// Returns the range from the lowest seed to the highest.
    pub fn span(&self) -> std::ops::Range<u64> {
        self.0[0].start..self.0[self.0.len() - 1].end
    }
}

/// The task of a torture.
#[derive(Clone, Debug)]
pub struct Torture {
    /// The seeds, in this order.
    pub seeds: Seeds,
    /// The number of threads.
    pub jobs: usize,
    /// Run a sample twice and compare.
    pub doublecheck: bool,
    /// The state file.
    pub state: Option<PathBuf>,
    /// Stop after this many failing seeds.
    pub failures_max: usize,
    /// Start no new seeds after this time.
    pub time: Option<Duration>,
}

/// A seed that broke a promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The promise it broke.
    pub violation: Violation,
}

/// The totals of a torture.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The first seed not done.
    pub next: u64,
    /// The seeds done, those of earlier sessions included.
    pub seeds: u64,
    /// The counts of all runs.
    pub counts: Counts,
    /// P4: windows in which one leg was frozen and nothing else was wrong.
    pub stall_windows: u64,
    /// P5: examinations of the disks.
    pub exposure_looks: u64,
    /// The number of times each rare path was taken, in the order of [`Mark::ALL`].
    pub marks: Vec<u64>,
    /// The hashes of all runs, mixed.
    pub hash: u64,
    /// The seeds that failed.
    pub failures: Vec<Failure>,
    /// The seeds run twice with the same outcome.
    pub doublechecked: u64,
    /// The processor time spent in runs, summed over threads.
    pub busy: Duration,
}

impl Summary {
    fn add(&mut self, seed: u64, outcome: &Outcome, twice: bool, time: Duration) {
        let (to, from) = (&mut self.counts, &outcome.counts);
        to.operations += from.operations;
        to.verifying += from.verifying;
        to.faults += from.faults;
        to.crashes += from.crashes;
        to.refusals += from.refusals;
        to.lies += from.lies;
        to.put_back += from.put_back;
        to.lies_survived += from.lies_survived;
        to.lies_refused += from.lies_refused;
        to.lies_unnoticed += from.lies_unnoticed;
        to.hangs_waited_for += from.hangs_waited_for;
        to.hangs_beside += from.hangs_beside;
        to.judged_flushed += from.judged_flushed;
        to.judged_owed += from.judged_owed;
        to.failed += from.failed;
        to.leg_flushes += from.leg_flushes;
        to.flushes_by_leg += from.flushes_by_leg;
        to.steps += from.steps;
        to.time += from.time;
        self.marks.resize(Mark::ALL.len(), 0);
        for (count, (_, more)) in self.marks.iter_mut().zip(outcome.marks.iter()) {
            *count += more;
        }
        self.stall_windows += outcome.stall_windows;
        self.exposure_looks += outcome.exposure_looks;
        self.hash = (self.hash ^ outcome.hash).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31);
        self.next = seed + 1;
        self.seeds += 1;
        self.doublechecked += u64::from(twice);
        self.busy += time;
        if let Some(violation) = &outcome.violation {
            self.failures.push(Failure { seed, violation: violation.clone() });
        }
    }

    /// Returns the rare paths that were never taken.
    pub fn unreached(&self) -> Vec<Mark> {
        let counts = || self.marks.iter().copied().chain(std::iter::repeat(0));
        let all = Mark::ALL.iter().zip(counts());
        all.filter(|(_, count)| *count == 0).map(|(mark, _)| *mark).collect()
    }

    fn numbers(&mut self) -> [&mut u64; 25] {
        let counts = &mut self.counts;
        [
            &mut self.next,
            &mut self.seeds,
            &mut counts.operations,
            &mut counts.verifying,
            &mut counts.faults,
            &mut counts.crashes,
            &mut counts.refusals,
            &mut counts.lies,
            &mut counts.lies_survived,
            &mut counts.lies_refused,
            &mut counts.lies_unnoticed,
            &mut counts.put_back,
            &mut counts.hangs_waited_for,
            &mut counts.hangs_beside,
            &mut counts.judged_flushed,
            &mut counts.judged_owed,
            &mut counts.failed,
            &mut counts.leg_flushes,
            &mut counts.flushes_by_leg,
            &mut counts.steps,
            &mut counts.time,
            &mut self.stall_windows,
            &mut self.exposure_looks,
            &mut self.hash,
            &mut self.doublechecked,
        ]
    }
}

/// Parses a range of seeds, such as `0..20000`.
///
/// # Errors
/// Fails if it is no range or an empty one.
pub fn parse_range(text: &str) -> Result<std::ops::Range<u64>, String> {
    let wrong = || format!("{text:?} is not a range of seeds; write it as 0..20000");
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let range = from.parse().map_err(|_| wrong())?..to.parse().map_err(|_| wrong())?;
    if range.is_empty() { Err(format!("{text:?} holds no seed")) } else { Ok(range) }
}

/// Parses ranges of seeds: `0..20000`, or several with commas between.
///
/// # Errors
/// Fails if one is no range, is empty, or begins before the previous one ends.
pub fn parse_seeds(text: &str) -> Result<Seeds, String> {
    let ranges = text.split(',').map(parse_range).collect::<Result<Vec<_>, _>>()?;
    match ranges.windows(2).find(|pair| pair[1].start < pair[0].end) {
        Some(pair) => {
            Err(format!("{}..{} is not above {}", pair[1].start, pair[1].end, pair[0].end))
        }
        None => Ok(Seeds(ranges)),
    }
}

/// A finished seed on its way to the summary.
struct Done {
    outcome: Outcome,
    twice: bool,
    time: Duration,
}

/// Returns the hash of this program: a state file is valid only for the code that wrote it.
fn program() -> anyhow::Result<u64> {
    let path = std::env::current_exe().context("finding this program")?;
    let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3);
    Ok(bytes.iter().fold(0xCBF2_9CE4_8422_2325, mix))
}

fn load(path: &Path, program: u64) -> anyhow::Result<Option<Summary>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
    };
    let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
    if numbers.next().and_then(Result::ok) != Some(program) {
        return Ok(None);
    }
    let mut summary = Summary::default();
    for field in summary.numbers() {
        let number = numbers.next().and_then(Result::ok);
        *field = number.with_context(|| format!("{}: cut short; delete it", path.display()))?;
    }
    summary.busy = Duration::from_nanos(numbers.next().and_then(Result::ok).unwrap_or(0));
    summary.marks = numbers.filter_map(Result::ok).collect();
    Ok(Some(summary))
}

fn save(path: &Path, program: u64, summary: &mut Summary) -> anyhow::Result<()> {
    let mut text = program.to_string();
    for number in summary.numbers() {
        let _ = write!(text, " {number}");
    }
    let _ = write!(text, " {}", summary.busy.as_nanos());
    summary.marks.iter().for_each(|count| {
        let _ = write!(text, " {count}");
    });
    text.push('\n');
    let new = path.with_extension("new");
    std::fs::write(&new, text).with_context(|| format!("writing {}", new.display()))?;
    std::fs::rename(&new, path).with_context(|| format!("replacing {}", path.display()))
}

/// Runs the seeds and calls `told` for every failure as it is found.
///
/// # Errors
/// Fails if the state file cannot be read or written.
pub fn torture(torture: &Torture, told: impl Fn(&Failure) + Sync) -> anyhow::Result<Summary> {
    let program = program()?;
    let known = match &torture.state {
        Some(path) => load(path, program)?,
        None => None,
    };
    let mut summary = known.unwrap_or_default();
    summary.next = summary.next.max(torture.seeds.span().start);
    let next = Mutex::new(summary.next);
    let stop = AtomicBool::new(false);
    let begun = Instant::now();
    let done: Mutex<(Summary, BTreeMap<u64, Done>, Instant)> =
        Mutex::new((summary, BTreeMap::new(), begun));
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..torture.jobs.max(1) {
            scope.spawn(|| {
                let mut world = World::default();
                while !stop.load(Ordering::Relaxed) {
                    let late = torture.time.is_some_and(|time| begun.elapsed() >= time);
                    let Some(seed) = take(&torture.seeds, &next).filter(|_| !late) else { return };
                    let one = run_seed(&mut world, seed, torture.doublecheck);
                    let mut guard = done.lock().expect("no thread panics holding this");
                    let (summary, waiting, saved) = &mut *guard;
                    waiting.insert(seed, one);
                    // In order of seeds, so that totals and hash never depend on threads.
                    while let Some(seed) = torture.seeds.from(summary.next)
                        && let Some(one) = waiting.remove(&seed)
                    {
                        summary.add(seed, &one.outcome, one.twice, one.time);
                        if one.outcome.violation.is_some() {
                            told(summary.failures.last().expect("it was just added"));
                        }
                        if summary.failures.len() >= torture.failures_max {
                            stop.store(true, Ordering::Relaxed);
                            return;
                        }
                    }
                    let due = saved.elapsed() >= SAVE_EVERY && summary.failures.is_empty();
                    if let Some(path) = torture.state.as_ref().filter(|_| due) {
                        *saved = Instant::now();
                        if let Err(error) = save(path, program, summary) {
                            *failed.lock().expect("as above") = Some(error);
                            stop.store(true, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    if let Some(error) = failed.into_inner().expect("as above") {
        return Err(error);
    }
    let (mut summary, _, _) = done.into_inner().expect("as above");
    if let Some(path) = torture.state.as_ref().filter(|_| summary.failures.is_empty()) {
        save(path, program, &mut summary)?;
    }
    Ok(summary)
}

/// Takes the next seed that nobody has taken.
fn take(seeds: &Seeds, next: &Mutex<u64>) -> Option<u64> {
    let mut next = next.lock().expect("no thread panics holding this");
    let seed = seeds.from(*next)?;
    *next = seed + 1;
    Some(seed)
}

/// Returns the processor time that this thread has used. Other programs on the machine hardly
/// change it.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.try_into().expect("a thread has used no less than nothing")
}

fn run_seed(world: &mut World, seed: u64, doublecheck: bool) -> Done {
    let plan = Plan::of_seed(seed);
    let begun = processor_time();
    let mut outcome = run(world, &plan, false);
    let time = processor_time().saturating_sub(begun);
    let twice = doublecheck && seed.is_multiple_of(DOUBLECHECK_EVERY);
    if twice {
        // In a world of its own: nothing may be left over from other seeds.
        let again = run(&mut World::default(), &plan, false);
        if again.hash != outcome.hash || again.counts != outcome.counts {
            let text = format!("two runs differ: hash {:016x}, {:016x}", outcome.hash, again.hash);
            let violation = Violation { promise: "simulator", text, sector: None };
            outcome.violation.get_or_insert(violation);
        }
    }
    Done { outcome, twice, time }
}

#[cfg(test)]
mod tests {
    use super::{parse_seeds, take};
    use std::sync::Mutex;

    #[test]
    fn seeds_come_range_by_range() {
        let seeds = parse_seeds("3..5,9..11").expect("two ranges");
        let next = Mutex::new(4);
        let taken: Vec<u64> = std::iter::from_fn(|| take(&seeds, &next)).collect();
        assert_eq!(taken, [4, 9, 10]);
        for wrong in ["", "3", "5..3", "3..5,", "3..5,4..6"] {
            assert!(parse_seeds(wrong).is_err(), "{wrong:?}");
        }
    }
}
