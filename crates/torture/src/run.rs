//! A run: takes a plan and returns its outcome.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use hemi_engine::marks::Marks;
use hemi_world::Violation;

use crate::plan::Plan;
use crate::starts::PATIENCE;
use crate::trace::Line;
use crate::world::{Counts, World};

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The promise that was broken, if any.
    pub violation: Option<Violation>,
    /// The counts of the run.
    pub counts: Counts,
    /// A hash of the run, the same for the same seed and the same code.
    pub hash: u64,
    /// The trace of the run, if it was to be kept.
    pub lines: Vec<Line>,
    /// The rare paths of the engine and of recovery that were taken.
    pub marks: Marks,
    /// The number of P4 windows opened.
    pub stall_windows: u64,
    /// The number of P5 examinations of the disks that had something to compare.
    pub exposure_looks: u64,
}

thread_local! {
    /// The place where this thread last panicked.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Notes panics from now on instead of printing them: a broken invariant of the engine is a finding
/// like any other, and is reported with its seed. With `RUST_BACKTRACE` set panics are printed too.
pub fn note_panics() {
    let print = std::env::var_os("RUST_BACKTRACE").is_some().then(std::panic::take_hook);
    std::panic::set_hook(Box::new(move |info| {
        if let Some(print) = &print {
            print(info);
        }
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        PLACE.with_borrow_mut(|known| *known = place);
    }));
}

/// Runs a plan in a world, which is reset for it but keeps its memory.
pub fn run(world: &mut World, plan: &Plan, keeps_lines: bool) -> Outcome {
    let result = catch_unwind(AssertUnwindSafe(|| {
        world.reset(plan, keeps_lines);
        world.live(plan);
    }));
    let panicked = result.is_err();
    if let Err(cause) = result {
        let text = cause
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| cause.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_else(|| "a panic without words".to_owned());
        let place = PLACE.with_borrow_mut(std::mem::take);
        world.broken("engine", format!("{place}: {text}"));
    }
    world.counts.time = world.now.0;
    world.drop_engine();
    let outcome = Outcome {
        violation: world.violation.clone(),
        counts: world.counts,
        hash: world.trace.hash(),
        lines: std::mem::take(&mut world.trace.lines),
        marks: world.marks.clone(),
        stall_windows: world.stall.windows,
        exposure_looks: world.exposure.looks,
    };
    if panicked {
        // The world's state after a panic is unknown.
        let asserts = world.asserts;
        *world = World::default();
        world.asserts = asserts;
    }
    outcome
}

impl World {
    fn live(&mut self, plan: &Plan) {
        self.start_with_all(None);
        self.let_clients_go_on();
        let mut next_fault = 0;
        // The step at which the next fault's request was sent.
        let mut armed: Option<u64> = None;
        let mut last_answer = (self.now, 0);
        while self.violation.is_none() {
            if let Some(planned) = plan.faults.get(next_fault) {
                let all_sent = self.clients.left == 0;
                if armed.is_none() && (all_sent || self.clients.progress > planned.after) {
                    armed = Some(self.counts.steps);
                }
                let steps = u64::from(planned.steps);
                if armed.is_some_and(|since| self.counts.steps - since >= steps) {
                    armed = None;
                    next_fault += 1;
                    self.trace.mix(next_fault as u64);
                    self.strike(&planned.fault);
                    continue;
                }
            } else if self.clients.left == 0 && self.under_way == 0 {
                break;
            }
            if self.counts.operations != last_answer.1 {
                last_answer = (self.now, self.counts.operations);
            }
            let limit = last_answer.0 + PATIENCE;
            if self.step(limit.max(self.now + 1)) {
                self.spring_ambush();
            } else if self.under_way > 0 {
                self.hang(PATIENCE);
                last_answer.0 = self.now;
            } else if next_fault < plan.faults.len() {
                armed = Some(0);
            }
        }
        if self.violation.is_none() {
            self.calm_down();
        }
    }
}
