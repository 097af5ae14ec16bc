//! Coverage-guided torture. A run is worth keeping if two rare paths of the engine were taken
//! within a few steps of each other for the first time ([`Pairs`]). Its plan is kept and mutated
//! for further runs: a fault comes at another moment, or twice, or some faults of another seed are
//! inserted.
//!
//! A **recipe** names such a plan: a seed and the changes made to it, as in
//! `8000000000012~shift:3:120:4~double:2:500:0~splice:8000000000044:10:3:700`.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use hemi_engine::marks::{Mark, Marks};
use hemi_random::Rng;
use hemi_world::Violation;

use crate::plan::{Fault, Plan, Weather};
use crate::run::run;
use crate::world::World;

/// The most steps between two rare paths that count as a pair.
const WINDOW: u64 = 12;
/// The number of recipes kept.
const KEPT_MAX: usize = 512;
/// The most changes of a recipe.
const CHANGES_MAX: usize = 12;
/// The most faults of another seed that are inserted at once.
const SPLICED_MAX: u64 = 8;

const MARKS: usize = Mark::ALL.len();

/// The pairs of rare paths of which one was taken shortly after the other.
#[derive(Clone, Debug)]
pub(crate) struct Pairs {
    seen: Vec<bool>,
    /// Rare paths taken lately, and the step of each.
    recent: VecDeque<(usize, u64)>,
    /// The engine's counts at the step before.
    before: Marks,
}

impl Default for Pairs {
    fn default() -> Pairs {
        let seen = vec![false; MARKS * MARKS];
        Pairs { seen, recent: VecDeque::new(), before: Marks::default() }
    }
}

impl Pairs {
    /// Takes in the engine's counts at this step.
    pub(crate) fn note(&mut self, marks: &Marks, step: u64) {
        if *marks == self.before {
            return;
        }
        while self.recent.front().is_some_and(|(_, at)| at + WINDOW < step) {
            self.recent.pop_front();
        }
        for (number, ((_, now), (_, before))) in marks.iter().zip(self.before.iter()).enumerate() {
            // A new engine begins at zero.
            if now == before || now == 0 {
                continue;
            }
            for (earlier, _) in &self.recent {
                self.seen[earlier * MARKS + number] = true;
            }
            self.recent.push_back((number, step));
        }
        self.before.clone_from(marks);
    }

    /// Adds the pairs of another and returns the number of new ones.
    fn merge(&mut self, other: &Pairs) -> usize {
        let mut new = 0;
        for (seen, other) in self.seen.iter_mut().zip(&other.seen) {
            new += usize::from(*other && !*seen);
            *seen |= *other;
        }
        new
    }

    fn count(&self) -> usize {
        self.seen.iter().filter(|seen| **seen).count()
    }
}

/// A change of a plan's faults. Numbers of faults are taken modulo their count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// A fault comes at another moment.
    Shift { fault: usize, after: u32, steps: u32 },
    /// A fault comes once more.
    Double { fault: usize, after: u32, steps: u32 },
    /// Some of another seed's faults come too, the first of them at this moment.
    Splice { seed: u64, fault: usize, count: usize, after: u32 },
}

/// A plan by name: a seed and the changes made to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    seed: u64,
    changes: Vec<Change>,
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.seed)?;
        for change in &self.changes {
            match change {
                Change::Shift { fault, after, steps } => {
                    write!(f, "~shift:{fault}:{after}:{steps}")?;
                }
                Change::Double { fault, after, steps } => {
                    write!(f, "~double:{fault}:{after}:{steps}")?;
                }
                Change::Splice { seed, fault, count, after } => {
                    write!(f, "~splice:{seed}:{fault}:{count}:{after}")?;
                }
            }
        }
        Ok(())
    }
}

impl FromStr for Recipe {
    type Err = String;

    fn from_str(text: &str) -> Result<Recipe, String> {
        let wrong = || format!("{text:?} is no recipe; write it as 8000000000012~shift:3:120:4");
        let mut parts = text.split('~');
        let seed = parts.next().and_then(|seed| seed.parse().ok()).ok_or_else(wrong)?;
        let mut recipe = Recipe { seed, changes: Vec::new() };
        for part in parts {
            let mut fields = part.split(':');
            let kind = fields.next().unwrap_or_default();
            let numbers: Vec<u64> =
                fields.map(str::parse).collect::<Result<_, _>>().map_err(|_| wrong())?;
            recipe.changes.push(match (kind, &numbers[..]) {
                ("shift", &[fault, after, steps]) => {
                    let (after, steps) = (after as u32, steps as u32);
                    Change::Shift { fault: fault as usize, after, steps }
                }
                ("double", &[fault, after, steps]) => {
                    let (after, steps) = (after as u32, steps as u32);
                    Change::Double { fault: fault as usize, after, steps }
                }
                ("splice", &[seed, fault, count, after]) => {
                    let (fault, count) = (fault as usize, count as usize);
                    Change::Splice { seed, fault, count, after: after as u32 }
                }
                _ => return Err(wrong()),
            });
        }
        Ok(recipe)
    }
}

impl Recipe {
    /// Returns the plan that the recipe names.
    pub fn plan(&self) -> Plan {
        let mut plan = Plan::of_seed(self.seed);
        for change in &self.changes {
            change.apply(&mut plan);
        }
        plan
    }

    /// Returns the recipe with one more change, drawn at random. Other seeds are taken from
    /// `seeds`.
    fn changed(&self, random: &mut Rng, seeds: &Range<u64>) -> Recipe {
        let mut recipe = self.clone();
        if recipe.changes.len() == CHANGES_MAX {
            recipe.changes.remove(random.below(CHANGES_MAX as u64) as usize);
        }
        let plan = self.plan();
        let fault = random.below(plan.faults.len().max(1) as u64) as usize;
        // Mostly near an event that happens anyway, because that is where pairs come from.
        let near = plan.faults.get(random.below(plan.faults.len().max(1) as u64) as usize);
        let after = match near {
            Some(near) if !random.one_in(3) => near.after + random.below(4) as u32,
            _ => random.below(plan.requests.len().max(1) as u64) as u32,
        };
        let steps = random.below(40) as u32;
        recipe.changes.push(match random.below(4) {
            0 => Change::Double { fault, after, steps },
            1 => {
                let seed = seeds.start + random.below(seeds.end - seeds.start);
                let count = 1 + random.below(SPLICED_MAX) as usize;
                Change::Splice { seed, fault: random.below(40) as usize, count, after }
            }
            _ => Change::Shift { fault, after, steps },
        });
        recipe
    }
}

impl Change {
    fn apply(self, plan: &mut Plan) {
        let count = plan.faults.len().max(1);
        match self {
            Change::Shift { fault, after, steps } => {
                if let Some(planned) = plan.faults.get_mut(fault % count) {
                    (planned.after, planned.steps) = (after, steps);
                }
            }
            Change::Double { fault, after, steps } => {
                if let Some(mut planned) = plan.faults.get(fault % count).copied() {
                    (planned.after, planned.steps) = (after, steps);
                    plan.faults.push(planned);
                }
            }
            Change::Splice { seed, fault, count, after } => splice(plan, seed, fault, count, after),
        }
        plan.faults.sort_by_key(|planned| (planned.after, planned.steps));
    }
}

/// Inserts faults of another seed into a plan, if its weather includes theirs.
fn splice(plan: &mut Plan, seed: u64, fault: usize, count: usize, after: u32) {
    let other = Plan::of_seed(seed);
    if !covers(plan.weather, other.weather) {
        return;
    }
    let from = fault % other.faults.len().max(1);
    let taken = &other.faults[from..(from + count).min(other.faults.len())];
    let Some(first) = taken.first().map(|planned| planned.after) else { return };
    let sectors = plan.shape.volume_bytes / 512;
    for planned in taken {
        let mut planned = *planned;
        planned.after = after + (planned.after - first);
        if let Some(leg) = planned.fault.leg_mut() {
            *leg %= plan.shape.legs as u8;
        }
        match &mut planned.fault {
            Fault::Unreadable { start, sectors: count, .. } => {
                let block = plan.shape.block_sectors;
                if !start.is_multiple_of(block) || !count.is_multiple_of(block) {
                    continue;
                }
                if *start + *count > sectors {
                    continue;
                }
            }
            Fault::Restart { settings, .. }
            | Fault::Ambush { settings, .. }
            | Fault::PutBack { settings, .. } => *settings = plan.settings,
            _ => {}
        }
        plan.faults.push(planned);
    }
}

/// Returns true if everything that may happen in `other` may happen in `weather`.
fn covers(weather: Weather, other: Weather) -> bool {
    let flags = |weather: Weather| {
        let Weather {
            errors,
            flush_errors,
            gone,
            caches,
            removed,
            members,
            scrub,
            blocks: _,
            promotions,
            rot,
            lies,
        } = weather;
        [errors, flush_errors, gone, caches, removed, members, scrub, promotions, rot, lies]
    };
    // Where metadata writes lie, starts are with all that is there.
    let alike = weather.lies == other.lies;
    alike && flags(weather).into_iter().zip(flags(other)).all(|(has, needs)| has || !needs)
}

/// The outcome of a guided run.
#[derive(Debug, Default)]
pub struct Found {
    /// The number of runs played.
    pub runs: u64,
    /// The number of client operations in them.
    pub operations: u64,
    /// The number of pairs of rare paths seen.
    pub pairs: usize,
    /// The number of plans kept for a new pair.
    pub kept: u64,
    /// The plans that broke a promise.
    pub failures: Vec<(Recipe, Violation)>,
}

/// Plays one run per seed, every other one a seed as it is. With one job the same seeds give the
/// same runs. Ends after `failures_max` failures and calls `told` for each.
pub fn explore(
    seeds: &Range<u64>,
    jobs: usize,
    failures_max: usize,
    told: impl Fn(&Recipe, &Violation) + Sync,
) -> Found {
    let next = AtomicU64::new(seeds.start);
    let all = Mutex::new((Found::default(), Pairs::default()));
    std::thread::scope(|scope| {
        for job in 0..jobs.max(1) as u64 {
            let (next, all, told) = (&next, &all, &told);
            scope.spawn(move || {
                let mut world = World::default();
                let mut random = Rng::new(seeds.start + job, 7);
                let mut kept: Vec<Recipe> = Vec::new();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let recipe = if kept.is_empty() || random.one_in(2) {
                        Recipe { seed, changes: Vec::new() }
                    } else {
                        let at = random.below(kept.len() as u64) as usize;
                        kept[at].changed(&mut random, seeds)
                    };
                    world.pairs = Some(Box::default());
                    let outcome = run(&mut world, &recipe.plan(), false);
                    let pairs = world.pairs.take();
                    let mut all = all.lock().expect("no thread panics holding this");
                    let (found, seen) = &mut *all;
                    found.runs += 1;
                    found.operations += outcome.counts.operations;
                    if let Some(violation) = outcome.violation {
                        told(&recipe, &violation);
                        found.failures.push((recipe, violation));
                    } else if pairs.is_some_and(|pairs| seen.merge(&pairs) > 0) {
                        found.kept += 1;
                        if kept.len() == KEPT_MAX {
                            kept.remove(random.below(KEPT_MAX as u64) as usize);
                        }
                        kept.push(recipe);
                    }
                    if found.failures.len() >= failures_max {
                        return;
                    }
                }
            });
        }
    });
    let (mut found, seen) = all.into_inner().expect("as above");
    found.pairs = seen.count();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipe_is_named_as_it_is_read() {
        let name = "8000000000012~shift:3:120:4~double:2:500:0~splice:8000000000044:10:3:700";
        let recipe: Recipe = name.parse().expect("it is one");
        assert_eq!(recipe.to_string(), name);
        for wrong in ["", "x", "1~shift", "1~shift:1:2", "1~splice:1:2:3", "1~other:1:2:3"] {
            assert!(wrong.parse::<Recipe>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn changes_change_the_faults() {
        let seed = 8_000_000_000_001;
        let before = Plan::of_seed(seed);
        let after = |changes: &str| format!("{seed}{changes}").parse::<Recipe>().unwrap().plan();
        let moments = |plan: &Plan| -> Vec<(u32, u32)> {
            plan.faults.iter().map(|planned| (planned.after, planned.steps)).collect()
        };
        assert_eq!(moments(&after("")), moments(&before));
        let shifted = after("~shift:0:1234:5");
        assert_eq!(shifted.faults.len(), before.faults.len());
        assert!(moments(&shifted).contains(&(1234, 5)));
        assert_eq!(after("~double:0:1234:5").faults.len(), before.faults.len() + 1);
        assert!(after(&format!("~splice:{seed}:0:4:100")).faults.len() > before.faults.len());
        assert!(moments(&after("~double:0:1234:5")).is_sorted());
    }

    #[test]
    fn rare_paths_shortly_after_each_other_are_a_pair() {
        let (first, second) = (Mark::ALL[3], Mark::ALL[5]);
        let mut pairs = Pairs::default();
        let mut marks = Marks::default();
        marks.add(first);
        pairs.note(&marks, 10);
        marks.add(second);
        pairs.note(&marks, 10 + WINDOW);
        assert_eq!(pairs.count(), 1);
        marks.add(first);
        pairs.note(&marks, 11 + 2 * WINDOW);
        assert_eq!(pairs.count(), 1, "too late");
        let mut all = Pairs::default();
        assert_eq!((all.merge(&pairs), all.merge(&pairs)), (1, 0));
    }

    #[test]
    fn the_same_seeds_find_the_same_with_one_job() {
        let seeds = 8_000_000_000_000..8_000_000_000_012;
        let once = || explore(&seeds, 1, 1, |_, _| ());
        let (one, other) = (once(), once());
        assert_eq!((one.runs, one.pairs, one.kept), (other.runs, other.pairs, other.kept));
        assert!(one.kept > 0 && one.pairs > 100, "{} kept, {} pairs", one.kept, one.pairs);
    }
}
