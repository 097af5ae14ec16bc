//! Every order of a small scenario: two legs, one region, three writes, a flush, a read and a
//! freeze. At each step any pending I/O or timer may come next instead of the earliest. Every run
//! with at most a given number of these deviations is played, and each once more for every step
//! after its last deviation, with a crash there.
//!
//! A **case** names one such run by its scenario, its deviations as `step+passed` (the number of
//! earlier events that are passed over), and its crash, as in `0/12+2,20+1/kill@33`.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use hemi_engine::io::Operation;
use hemi_engine::settings::{FlushCopies, Limits, Settings};
use hemi_units::{MICROSECOND, MILLISECOND};
use hemi_world::Violation;

use crate::plan::{Ending, Fault, Pace, Plan, PlannedFault, PlannedRequest, Shape, Start, Weather};
use crate::starts::PATIENCE;
use crate::trace::Line;
use crate::world::World;

/// The number of scenarios: either leg freezes, and a flush has to be on one leg or on both.
pub const SCENARIOS: u8 = 4;
/// The most failing cases that are reported.
const TOLD_MAX: usize = 10;

/// A step at which earlier events are passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Deviation {
    step: u64,
    passes: usize,
}

/// A run by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    scenario: u8,
    deviations: Vec<Deviation>,
    crash: Option<(Ending, u64)>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.scenario)?;
        for (number, Deviation { step, passes }) in self.deviations.iter().enumerate() {
            write!(f, "{}{step}+{passes}", if number > 0 { "," } else { "" })?;
        }
        match self.crash {
            Some((Ending::PowerCut, step)) => write!(f, "/power@{step}"),
            Some((_, step)) => write!(f, "/kill@{step}"),
            None => write!(f, "/"),
        }
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Case, String> {
        let wrong = || format!("{text:?} is no case; write it as 0/12+2,20+1/kill@33");
        let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
        let [scenario, deviations, crash] =
            text.split('/').collect::<Vec<_>>().try_into().map_err(|_| wrong())?;
        let scenario = scenario.parse().map_err(|_| wrong())?;
        let mut case = Case { scenario, deviations: Vec::new(), crash: None };
        for deviation in deviations.split(',').filter(|part| !part.is_empty()) {
            let (step, passes) = deviation.split_once('+').ok_or_else(wrong)?;
            let (step, passes) = (number(step)?, number(passes)? as usize);
            case.deviations.push(Deviation { step, passes });
        }
        if let Some((how, step)) = crash.split_once('@') {
            let ending = if how == "power" { Ending::PowerCut } else { Ending::Kill };
            case.crash = Some((ending, number(step)?));
        }
        if case.scenario < SCENARIOS { Ok(case) } else { Err(wrong()) }
    }
}

/// The outcome of all cases.
#[derive(Clone, Debug, Default)]
pub struct Explored {
    /// The number of runs played.
    pub runs: u64,
    /// The number of runs that broke a promise.
    pub failed: u64,
    /// Some of the failing cases.
    pub told: Vec<(Case, Violation)>,
}

/// Returns the plan that all runs of a scenario have in common.
fn plan_of(scenario: u8) -> Plan {
    let pace = |micros: u64| Pace { latency: micros * MICROSECOND, jitter: 0, serial: 0 };
    let shape = Shape {
        legs: 2,
        volume_bytes: 64 << 10,
        region_bytes: 64 << 10,
        block_sectors: 1,
        page_regions: u32::MAX,
        memory_sectors: 8192,
        ledger: false,
        paces: vec![pace(50), pace(80)],
        fast_zeroes: 0xFF,
        clients: 1,
        depths: vec![8],
    };
    let copies = if scenario & 2 == 0 { FlushCopies::Count(1) } else { FlushCopies::All };
    let settings = Settings {
        flush_copies: copies,
        wait_floor: MILLISECOND,
        wait_ceiling: MILLISECOND,
        requests_max: 16,
        owed_extents_max: 16,
        clean_after: 20 * MILLISECOND,
        limits: Limits { operations_more: 64, ..Limits::default() },
        ..Settings::default()
    };
    let ask = |number: u32, micros: u64, operation: Operation, start: u64, sectors: u64| {
        let gap = micros * MICROSECOND;
        PlannedRequest { number, client: 0, gap, operation, start, sectors, fua: false }
    };
    let requests = vec![
        ask(0, 0, Operation::Write, 0, 8),
        ask(1, 30, Operation::Write, 4, 8),
        ask(2, 20, Operation::Flush, 0, 0),
        ask(3, 10, Operation::Write, 0, 4),
        ask(4, 10, Operation::Read, 0, 16),
    ];
    let freeze = Fault::Freeze(scenario & 1, 4 * MILLISECOND);
    let faults = vec![PlannedFault { after: 1, steps: 1, fault: freeze }];
    let seed = u64::from(scenario);
    Plan { seed, weather: Weather::default(), shape, settings, requests, faults }
}

/// Plays every case with at most `deviations` deviations, on `jobs` threads.
pub fn explore(deviations: usize, jobs: usize) -> Explored {
    let explored = Mutex::new(Explored::default());
    // The work is divided by scenario and first deviation.
    let mut firsts: Vec<Case> = Vec::new();
    let mut world = World::default();
    for scenario in 0..SCENARIOS {
        let case = Case { scenario, deviations: Vec::new(), crash: None };
        let (violation, choices) = play(&mut world, &case);
        if violation.is_none() && deviations > 0 {
            firsts.extend(deviating(&case, &choices));
        }
        firsts.push(case);
    }
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                let mut world = World::default();
                while let Some(case) = firsts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut found = Explored::default();
                    let left = if case.deviations.is_empty() { 0 } else { deviations - 1 };
                    explore_from(&mut world, case, left, &mut found);
                    let mut all = explored.lock().expect("no thread panics holding this");
                    all.runs += found.runs;
                    all.failed += found.failed;
                    all.told.extend(found.told);
                    all.told.truncate(TOLD_MAX);
                }
            });
        }
    });
    explored.into_inner().expect("as above")
}

/// Plays a case, with a crash after each step, and with up to `left` more deviations.
fn explore_from(world: &mut World, case: &Case, left: usize, found: &mut Explored) {
    let note = |case: &Case, violation: Option<Violation>, found: &mut Explored| {
        found.runs += 1;
        if let Some(violation) = violation {
            found.failed += 1;
            if found.told.len() < TOLD_MAX {
                found.told.push((case.clone(), violation));
            }
        }
    };
    let (violation, choices) = play(world, case);
    let failed = violation.is_some();
    note(case, violation, found);
    if failed {
        return;
    }
    let from = case.deviations.last().map_or(0, |last| last.step);
    for step in from..choices.len() as u64 {
        for ending in [Ending::Kill, Ending::PowerCut] {
            let crashing = Case { crash: Some((ending, step)), ..case.clone() };
            let (violation, _) = play(world, &crashing);
            note(&crashing, violation, found);
        }
    }
    if left > 0 {
        for more in deviating(case, &choices) {
            explore_from(world, &more, left - 1, found);
        }
    }
}

/// Returns the cases that have one more deviation, later than the last.
fn deviating(case: &Case, choices: &[usize]) -> Vec<Case> {
    let from = case.deviations.last().map_or(0, |last| last.step as usize + 1);
    let later = choices.iter().enumerate().skip(from);
    later
        .flat_map(|(step, &count)| {
            (1..count).map(move |passes| Deviation { step: step as u64, passes })
        })
        .map(|deviation| {
            let mut more = case.clone();
            more.deviations.push(deviation);
            more
        })
        .collect()
}

/// Plays a case. Returns the promise it broke, if any, and the number of events that could have
/// come next at each step.
fn play(world: &mut World, case: &Case) -> (Option<Violation>, Vec<usize>) {
    let plan = plan_of(case.scenario);
    let result = catch_unwind(AssertUnwindSafe(|| {
        world.reset(&plan, false);
        world.play_out(&plan, case)
    }));
    match result {
        Ok(choices) => {
            world.drop_engine();
            (world.violation.clone(), choices)
        }
        Err(_) => {
            *world = World::default();
            let text = "the engine panicked: play the case alone with RUST_BACKTRACE=1".to_owned();
            (Some(Violation { promise: "engine", text, sector: None }), Vec::new())
        }
    }
}

/// Plays a case and keeps the trace. Returns the promise it broke, if any, and the lines.
pub fn tell(case: &Case) -> (Option<Violation>, Vec<Line>) {
    let plan = plan_of(case.scenario);
    let mut world = World::default();
    world.reset(&plan, true);
    world.play_out(&plan, case);
    (world.violation.clone(), std::mem::take(&mut world.trace.lines))
}

impl World {
    fn play_out(&mut self, plan: &Plan, case: &Case) -> Vec<usize> {
        self.start_with_all(None);
        self.let_clients_go_on();
        let mut choices = Vec::new();
        let mut faults = plan.faults.iter().peekable();
        while self.violation.is_none() && (self.clients.left > 0 || self.under_way > 0) {
            let step = choices.len() as u64;
            if let Some((ending, _)) = case.crash.filter(|(_, at)| *at == step) {
                self.restart(ending, Start::All, plan.settings, false);
                return choices;
            }
            if let Some(planned) = faults.next_if(|fault| self.clients.progress > fault.after) {
                self.strike(&planned.fault);
            }
            choices.push(self.choices());
            let now = case.deviations.iter().find(|deviation| deviation.step == step);
            let went_on = match now {
                Some(deviation) => self.step_out_of_turn(deviation.passes),
                None => self.step(self.now + PATIENCE),
            };
            if !went_on {
                self.hang(PATIENCE);
            }
        }
        if self.violation.is_none() && case.crash.is_none() {
            self.calm_down();
        }
        choices
    }
}
