//! Shrinking: a failing run is reduced to the requests and faults it takes to fail, and told as a
//! short story.
//!
//! A plan consists of lists, so it is reduced by leaving parts out (delta debugging: halves first,
//! then ever smaller pieces) for as long as the same promise is still broken. Latencies are drawn
//! as the run goes, so leaving something out shifts what follows: a smaller plan that fails is a
//! failure in its own right, seldom the same one to the nanosecond.

use std::fmt::Write as _;

use crate::plan::{Plan, PlannedFault, PlannedRequest};
use crate::run::run;
use crate::trace::{Line, Topic};
use crate::world::World;

/// The most runs spent on one reduction.
const RUNS_MAX: u32 = 1500;
/// The most lines of a story.
const LINES_MAX: usize = 80;

struct Shrinker {
    world: World,
    promise: &'static str,
    runs: u32,
}

impl Shrinker {
    fn fails(&mut self, plan: &Plan) -> bool {
        self.runs += 1;
        let outcome = run(&mut self.world, plan, false);
        outcome.violation.is_some_and(|violation| violation.promise == self.promise)
    }

    /// Leaves out pieces of `list` for as long as the run fails. Returns true if any could be left
    /// out.
    fn reduce<T: Clone>(
        &mut self,
        plan: &mut Plan,
        list: impl Fn(&mut Plan) -> &mut Vec<T>,
    ) -> bool {
        let mut smaller = false;
        let mut piece = list(plan).len().div_ceil(2);
        while piece > 0 && self.runs < RUNS_MAX {
            let mut at = 0;
            while at < list(plan).len() && self.runs < RUNS_MAX {
                let end = (at + piece).min(list(plan).len());
                let mut candidate = plan.clone();
                list(&mut candidate).drain(at..end);
                if self.fails(&candidate) {
                    *plan = candidate;
                    smaller = true;
                } else {
                    at = end;
                }
            }
            piece /= 2;
        }
        smaller
    }
}

/// Returns the smallest plan found that breaks the same promise. The plan given must fail.
pub fn shrink(plan: &Plan) -> Plan {
    let mut world = World::default();
    let Some(violation) = run(&mut world, plan, false).violation else { return plan.clone() };
    let mut shrinker = Shrinker { world, promise: violation.promise, runs: 0 };
    let mut smallest = plan.clone();
    // Requests after the failure do not matter, so the first halves go quickly.
    loop {
        let faults = shrinker.reduce::<PlannedFault>(&mut smallest, |plan| &mut plan.faults);
        let requests = shrinker.reduce::<PlannedRequest>(&mut smallest, |plan| &mut plan.requests);
        if !faults && !requests || shrinker.runs >= RUNS_MAX {
            return smallest;
        }
    }
}

/// Tells the story of a failing plan: the writes, the freezes, the losses.
pub fn story(plan: &Plan) -> String {
    let outcome = run(&mut World::default(), plan, true);
    let mut text = String::new();
    let legs = plan.shape.legs;
    let _ = writeln!(
        text,
        "seed {}, reduced to {} requests and {} faults; {legs} legs, {:?}, flush copies {:?}",
        plan.seed,
        plan.requests.len(),
        plan.faults.len(),
        plan.settings.policy,
        plan.settings.flush_copies,
    );
    let Some(violation) = outcome.violation else {
        text.push_str("every promise kept\n");
        return text;
    };
    let sector = violation.sector;
    let is_told = |line: &&Line| match (line.topic, line.extent, sector) {
        (Topic::Fault | Topic::Verdict | Topic::Notice, ..) => true,
        (Topic::Client, None, _) | (Topic::Client, _, None) => true,
        (Topic::Leg, None, _) => sector.is_none(),
        (Topic::Leg, _, None) => false,
        (_, Some(extent), Some(sector)) => (extent.start..extent.end).contains(&sector),
    };
    let told: Vec<&Line> = outcome.lines.iter().filter(is_told).collect();
    if told.len() > LINES_MAX {
        let _ = writeln!(text, "({} lines before)", told.len() - LINES_MAX);
    }
    for line in &told[told.len().saturating_sub(LINES_MAX)..] {
        let _ = writeln!(text, "{line}");
    }
    let _ = writeln!(text, "{} broken: {}", violation.promise, violation.text);
    text
}
