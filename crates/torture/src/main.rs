//! `hemi-torture`: runs seeds of the simulator and reports the promises they broke.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

use hemi_engine::marks::Mark;
use hemi_torture::exhaustive::{self, Case};
use hemi_torture::guided::{self, Recipe};
use hemi_torture::plan::Plan;
use hemi_torture::run::{Outcome, note_panics, run};
use hemi_torture::shrink;
use hemi_torture::torture::{Failure, Seeds, Summary, Torture, parse_seeds, torture};
use hemi_torture::world::World;
use hemi_world::Violation;

/// Tortures the hemi engine in virtual time and checks that it keeps its promises.
///
/// Each seed is one run: 2,200 client requests, at least 10 faults and a crash. Exits with 1 if a
/// promise was broken.
#[derive(Parser)]
#[command(name = "hemi-torture", version)]
struct Arguments {
    /// Seeds to run, from and up to (not including), as in 0..20000. Separate several ranges with
    /// commas.
    #[arg(long, value_parser = parse_seeds, default_value = "0..1000", value_name = "A..B")]
    seeds: Seeds,
    /// Run this one seed.
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Print everything that happens in the run of --seed or --recipe.
    #[arg(long)]
    trace: bool,
    /// Reduce the run of --seed or --recipe to what it takes to fail, and print it as a story.
    #[arg(long)]
    shrink: bool,
    /// Plant this mistake in the engine first (see hemi-planted).
    #[cfg(feature = "planted")]
    #[arg(long, value_parser = hemi_torture::planted::named, value_name = "BUG")]
    plant: Option<hemi_engine::planted::Planted>,
    /// Number of seeds to run in parallel.
    #[arg(long, default_value_t = 1, value_name = "N")]
    jobs: usize,
    /// Run one seed in sixteen twice and compare.
    #[arg(long)]
    doublecheck: bool,
    /// Keep the seeds done in this file, and resume from it. Valid for one build only.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Instead of seeds: play every order of a small scenario with at most this many events out of
    /// turn.
    #[arg(long, value_name = "D", conflicts_with_all = ["seeds", "seed"])]
    exhaustive: Option<usize>,
    /// Instead of plain seeds: mutate plans that took new pairs of rare paths.
    #[arg(long, conflicts_with = "seed")]
    guided: bool,
    /// Run one plan of --guided, with --trace and --shrink as for --seed.
    #[arg(long, value_name = "RECIPE", conflicts_with_all = ["seeds", "seed", "guided"])]
    recipe: Option<Recipe>,
    /// Play one case of --exhaustive and print everything that happens.
    #[arg(long, value_name = "CASE", conflicts_with_all = ["seeds", "seed", "exhaustive"])]
    case: Option<Case>,
    /// Stop after this many failing seeds.
    #[arg(long, default_value_t = 10, value_name = "N")]
    failures: usize,
    /// Fail if a rare path of the engine was never taken.
    #[arg(long)]
    require_marks: bool,
    /// Start no new seeds after this many seconds.
    #[arg(long, value_name = "SECONDS")]
    time: Option<u64>,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    note_panics();
    #[cfg(feature = "planted")]
    hemi_engine::planted::select(arguments.plant);
    if let Some(case) = &arguments.case {
        return Ok(one_case(case));
    }
    if let Some(deviations) = arguments.exhaustive {
        return Ok(every_order(deviations, arguments.jobs));
    }
    if let Some(recipe) = &arguments.recipe {
        println!("recipe {recipe}");
        return Ok(one_plan(&recipe.plan(), &arguments));
    }
    match arguments.seed {
        Some(seed) => Ok(one_plan(&Plan::of_seed(seed), &arguments)),
        None if arguments.guided => Ok(many_recipes(&arguments)),
        None => many_seeds(&arguments),
    }
}

fn one_case(case: &Case) -> ExitCode {
    let (violation, lines) = exhaustive::tell(case);
    lines.iter().for_each(|line| println!("{line}"));
    match violation {
        Some(violation) => {
            println!("{} broken: {}", violation.promise, violation.text);
            ExitCode::FAILURE
        }
        None => {
            println!("every promise kept");
            ExitCode::SUCCESS
        }
    }
}

fn every_order(deviations: usize, jobs: usize) -> ExitCode {
    let begun = Instant::now();
    let explored = exhaustive::explore(deviations, jobs);
    for (case, violation) in &explored.told {
        println!("case {case}: {} broken: {}", violation.promise, violation.text);
        println!("    look closer: hemi-torture --case {case}");
    }
    println!("scenarios            {:>14}", exhaustive::SCENARIOS);
    println!("events out of turn   {deviations:>14}  (at most)");
    println!("runs                 {:>14}", explored.runs);
    println!("elapsed              {:>14.1}  s", begun.elapsed().as_secs_f64());
    println!("violations           {:>14}", explored.failed);
    if explored.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn one_plan(plan: &Plan, arguments: &Arguments) -> ExitCode {
    println!("seed {}: {:?}", plan.seed, plan.weather);
    println!("{:?}", plan.shape);
    println!("{:?}", plan.settings);
    let outcome = run(&mut World::default(), plan, arguments.trace);
    for line in &outcome.lines {
        println!("{line}");
    }
    print_outcome(&outcome);
    if outcome.violation.is_none() {
        return ExitCode::SUCCESS;
    }
    if arguments.shrink {
        let smallest = shrink::shrink(plan);
        println!("{}", shrink::story(&smallest));
    }
    ExitCode::FAILURE
}

fn print_outcome(outcome: &Outcome) {
    let counts = &outcome.counts;
    println!(
        "{} operations, {} faults, {} crashes, {} events, hash {:016x}",
        counts.operations, counts.faults, counts.crashes, counts.steps, outcome.hash
    );
    match &outcome.violation {
        Some(violation) => println!("{} broken: {}", violation.promise, violation.text),
        None => println!("every promise kept"),
    }
}

fn many_recipes(arguments: &Arguments) -> ExitCode {
    let begun = Instant::now();
    let told = |recipe: &Recipe, violation: &Violation| {
        let text: String = violation.text.chars().take(600).collect();
        println!("recipe {recipe}: {} broken: {text}", violation.promise);
        println!("    look closer: hemi-torture --recipe {recipe} --shrink");
    };
    let failures_max = arguments.failures.max(1);
    let found = guided::explore(&arguments.seeds.span(), arguments.jobs, failures_max, told);
    println!("runs                 {:>14}", found.runs);
    println!("client operations    {:>14}", found.operations);
    println!("plans kept           {:>14}", found.kept);
    println!("pairs of rare paths  {:>14}", found.pairs);
    println!("elapsed              {:>14.1}  s", begun.elapsed().as_secs_f64());
    println!("violations           {:>14}", found.failures.len());
    if found.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn many_seeds(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let what = Torture {
        seeds: arguments.seeds.clone(),
        jobs: arguments.jobs,
        doublecheck: arguments.doublecheck,
        state: arguments.state.clone(),
        failures_max: arguments.failures.max(1),
        time: arguments.time.map(Duration::from_secs),
    };
    let begun = Instant::now();
    let summary = torture(&what, print_failure)?;
    print_summary(&summary, begun.elapsed());
    let unreached = summary.unreached();
    for mark in &unreached {
        println!("never reached: {}", mark.name());
    }
    let reached = unreached.is_empty() || !arguments.require_marks;
    let well = reached && summary.failures.is_empty();
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_failure(failure: &Failure) {
    let Failure { seed, violation } = failure;
    let text: String = violation.text.chars().take(600).collect();
    println!("seed {seed}: {} broken: {text}", violation.promise);
    println!("    look closer: hemi-torture --seed {seed} --shrink");
}

fn print_summary(summary: &Summary, elapsed: Duration) {
    let counts = &summary.counts;
    let rate = counts.operations as f64 / summary.busy.as_secs_f64().max(1e-9);
    println!("seeds                {:>14}  (next: {})", summary.seeds, summary.next);
    println!("client operations    {:>14}", counts.operations);
    println!("  that failed        {:>14}  (for a reason)", counts.failed);
    println!("verifying reads      {:>14}", counts.verifying);
    println!("faults               {:>14}", counts.faults);
    println!("kills and power cuts {:>14}", counts.crashes);
    println!("starts refused       {:>14}  (rightly)", counts.refusals);
    if counts.lies > 0 {
        println!("metadata not written {:>14}  (lost or misdirected)", counts.lies);
        println!("  survived at starts {:>14}", counts.lies_survived);
        println!("  refused by name    {:>14}", counts.lies_refused);
        println!("  not to be noticed  {:>14}", counts.lies_unnoticed);
    }
    if counts.put_back > 0 {
        println!("legs put back        {:>14}  (to an older image, while out)", counts.put_back);
    }
    if counts.judged_owed > 0 {
        println!("hangs waited for     {:>14}  (rightly)", counts.hangs_waited_for);
        println!("  converged beside   {:>14}", counts.hangs_beside);
        println!("copies judged        {:>14}  (of what was flushed)", counts.judged_flushed);
        println!("  and of what is owed{:>14}", counts.judged_owed);
    }
    let per_flush = counts.leg_flushes as f64 / counts.flushes_by_leg.max(1) as f64;
    println!(
        "flushes of legs      {:>14}  ({per_flush:.2} for each of clients)",
        counts.leg_flushes
    );
    println!("P4 windows           {:>14}", summary.stall_windows);
    println!("P5 looks at disks    {:>14}", summary.exposure_looks);
    println!("events               {:>14}", counts.steps);
    println!("virtual time         {:>14}  s", counts.time / 1_000_000_000);
    println!("run twice, alike     {:>14}", summary.doublechecked);
    println!("rate                 {rate:>14.0}  client operations per second of processor time");
    println!("elapsed              {:>14.1}  s", elapsed.as_secs_f64());
    for (mark, count) in Mark::ALL.iter().zip(&summary.marks) {
        println!("{count:>14} × {}", mark.name());
    }
    println!("hash                 {:016x}", summary.hash);
    println!("violations           {:>14}", summary.failures.len());
}
