//! Advice: every system with its figures and verdict, best first. Times are in seconds, sizes in
//! bytes.

use hemi_drives::drive::Counters;
use serde::Serialize;

use crate::candidates::{Candidate, LeftOut};
use crate::classes::Kind;
use crate::distribution::{Distribution, seconds};
use crate::freezes::Placed;
use crate::judge::{Deciding, Judgement, judge};
use crate::known;
use crate::load::Load;
use crate::money::{Cost, Wear};
use crate::request::Request;
use crate::rounds::NotSimulated;
use crate::serve::Served;

/// Multiple of the target-less threshold at which a write counts as stalled: ten times the plain
/// mirror's median.
const STALLED: u64 = 10;

/// The answer to which drives to buy.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// The load.
    pub load: LoadReport,
    /// Target, bounds and conditions of the request.
    pub asked: Asked,
    /// Assumptions behind the figures, in sentences.
    pub assumptions: Vec<String>,
    /// Limits of what this trace can tell, in sentences.
    pub cautions: Vec<String>,
    /// Systems, best first.
    pub systems: Vec<SystemAdvice>,
    /// Candidates that could not be among the first, if any were not simulated for that.
    pub not_simulated: Option<NotSimulated>,
    /// Presets and systems that were not considered, with the reasons.
    pub left_out: Vec<LeftOut>,
}

/// The load that all systems served.
#[derive(Clone, Debug, Serialize)]
pub struct LoadReport {
    /// The trace's file.
    pub file: String,
    /// Requests.
    pub requests: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Time from the first request to the last.
    pub duration: f64,
    /// Bytes of the volume.
    pub volume: u64,
    /// The commonest classes of requests, with the share of each.
    pub classes: Vec<(String, f64)>,
}

/// The request, as far as figures depend on it.
#[derive(Clone, Debug, Serialize)]
pub struct Asked {
    /// Target of the 99.9th percentile.
    pub p999: Option<f64>,
    /// Bound of the exposure.
    pub exposure: Option<u64>,
    /// Budget for drives over the years.
    pub budget: Option<f64>,
    /// Years.
    pub years: f64,
    /// Currency of all money.
    pub currency: String,
    /// Price of a kilowatt-hour.
    pub electricity: Option<f64>,
    /// Energy for cooling, as a percentage of the drives' own.
    pub cooling_percent: f64,
    /// The drive one has.
    pub have: Option<String>,
    /// Freezes, as placed.
    pub what_if: Option<Placed>,
    /// Seed of all randomness.
    pub seed: u64,
}

/// One system.
#[derive(Clone, Debug, Serialize)]
pub struct SystemAdvice {
    /// Rank, from 1.
    pub rank: usize,
    /// Name: its drives.
    pub name: String,
    /// Copies of everything.
    pub copies: u32,
    /// Verdict and reasons.
    #[serde(flatten)]
    pub judgement: Judgement,
    /// True if no other system is both cheaper and faster (by `cost.total` and the 99.9th
    /// percentile that was judged).
    pub frontier: bool,
    /// Money.
    pub cost: Cost,
    /// Latencies of all requests.
    pub latency: Distribution,
    /// Latencies of reads.
    pub reads: Option<Distribution>,
    /// Latencies of writes.
    pub writes: Option<Distribution>,
    /// Time after the last arrival until the last answer.
    pub behind: f64,
    /// Highest exposure; zero without a mirror.
    pub exposure_peak: u64,
    /// The plain mirror of the same legs, beside a pair.
    pub plain: Option<Plain>,
    /// The class of requests that decided.
    pub deciding: Option<Deciding>,
    /// Drives.
    pub legs: Vec<LegAdvice>,
    /// The same under the freezes asked for, on the leg where they are worst.
    pub what_if: Option<WhatIf>,
}

/// A plain mirror, which waits for both legs, and what hemi saves against it.
#[derive(Clone, Debug, Serialize)]
pub struct Plain {
    /// Latencies of all requests.
    pub latency: Distribution,
    /// Latency above which a write counts as stalled: the target, or ten times the plain mirror's
    /// median write.
    pub stalled_above: f64,
    /// Writes that the plain mirror stalls.
    pub stalled: u64,
    /// Those of them that hemi does not.
    pub saved: u64,
}

/// A system under freezes of one leg.
#[derive(Clone, Debug, Serialize)]
pub struct WhatIf {
    /// The leg that freezes, from 0.
    pub leg: usize,
    /// Latencies of all requests.
    pub latency: Distribution,
    /// Highest exposure.
    pub exposure_peak: u64,
    /// The plain mirror with the same freezes.
    pub plain: Option<Plain>,
}

/// A drive, or stripe of drives, of a system.
#[derive(Clone, Debug, Serialize)]
pub struct LegAdvice {
    /// The preset.
    pub preset: String,
    /// Number of drives.
    pub drives: u32,
    /// Number of these that one has already.
    pub owned: u32,
    /// Price of one.
    pub price: Option<f64>,
    /// Rent of one for a month.
    pub monthly: Option<f64>,
    /// Date of the price.
    pub date: String,
    /// Source of the price.
    pub source: String,
    /// Divisor of the flash's capacity in the model, the preset's own included; 1 for other drives.
    pub flash_scale: u64,
    /// Share of the time a drive had work, of the average drive.
    pub busy: f64,
    /// Wear.
    pub wear: Wear,
}

/// The runs of one candidate.
pub(crate) struct Runs {
    /// Answers under hemi's policy, or of the single unit.
    pub(crate) served: Served,
    /// Answers of a plain mirror.
    pub(crate) plain: Option<Served>,
    /// The same two with freezes, for each leg.
    pub(crate) frozen: Vec<(Served, Option<Served>)>,
}

/// Returns the advice on a candidate from its runs.
pub(crate) fn of_system(
    candidate: &Candidate,
    runs: &Runs,
    request: &Request,
    load: &Load,
    flash_scales: &[u64],
) -> Option<SystemAdvice> {
    let served = &runs.served;
    let wear: Vec<Wear> = (candidate.units.iter().zip(&served.counters))
        .map(|(unit, counters)| Wear::of(unit, counters, served.time, request.years))
        .collect();
    let cost = Cost::of(candidate, &wear, &served.counters, served.time, request);
    let latency = Distribution::of(served.latencies.iter().copied())?;
    let what_if = worst(runs, request, load);
    let (judged, latencies) = match &what_if {
        Some(what_if) => (what_if.latency, &runs.frozen[what_if.leg].0.latencies),
        None => (latency, &served.latencies),
    };
    let deciding = deciding(candidate, load, latencies, &judged, request);
    let behind = seconds(served.time.saturating_sub(load.duration));
    let judgement = judge(request, &judged, &cost, deciding.as_ref(), behind, load.seconds());
    let of_kind =
        |kind| {
            let own = load.entries.iter().zip(&served.latencies);
            Distribution::of(own.filter_map(|(entry, &latency)| {
                (Kind::of(entry.operation) == kind).then_some(latency)
            }))
        };
    Some(SystemAdvice {
        rank: 0,
        name: candidate.name(),
        copies: candidate.copies(),
        judgement,
        frontier: false,
        cost,
        latency,
        reads: of_kind(Kind::Read),
        writes: of_kind(Kind::Write),
        behind,
        exposure_peak: served.exposure_peak,
        plain: runs.plain.as_ref().and_then(|plain| compared(served, plain, request, load)),
        deciding,
        legs: legs(candidate, &served.counters, served.time, wear, flash_scales),
        what_if,
    })
}

fn legs(
    candidate: &Candidate,
    counters: &[Counters],
    time: u64,
    wear: Vec<Wear>,
    flash_scales: &[u64],
) -> Vec<LegAdvice> {
    let units = candidate.units.iter().zip(counters).zip(wear).zip(flash_scales);
    let leg = |(((unit, counters), wear), &flash_scale): (
        ((&crate::units::Unit, &Counters), Wear),
        &u64,
    )| {
        let purchase = &unit.drive.purchase;
        LegAdvice {
            preset: unit.drive.preset.name.clone(),
            drives: unit.count,
            owned: unit.owned,
            price: purchase.price,
            monthly: purchase.monthly,
            date: purchase.date.clone(),
            source: purchase.source.clone(),
            flash_scale,
            busy: (counters.busy as f64 / time as f64).min(1.0),
            wear,
        }
    };
    units.map(leg).collect()
}

/// Returns the class that decided, by the target or by the system's own tail.
fn deciding(
    candidate: &Candidate,
    load: &Load,
    latencies: &[u64],
    judged: &Distribution,
    request: &Request,
) -> Option<Deciding> {
    let nanoseconds = |seconds: f64| libm::round(seconds * 1e9) as u64;
    let own = [nanoseconds(judged.p999), nanoseconds(judged.p50)];
    let above = request.target.into_iter().chain(own);
    let found =
        above.filter_map(|above| Some((above, load.classes.deciding(latencies, above)?))).next();
    let (above, (class, share)) = found?;
    let known = candidate.units.iter().map(|unit| known::of(&unit.drive.preset, class)).collect();
    Some(Deciding { class: class.to_string(), parts: class, share, above: seconds(above), known })
}

/// Returns what a system saves against the plain mirror of its legs.
fn compared(served: &Served, plain: &Served, request: &Request, load: &Load) -> Option<Plain> {
    let latency = Distribution::of(plain.latencies.iter().copied())?;
    let is_write = |index: usize| Kind::of(load.entries[index].operation) == Kind::Write;
    let above = request.target.unwrap_or_else(|| {
        let mut writes: Vec<u64> = (plain.latencies.iter().enumerate())
            .filter_map(|(index, &latency)| is_write(index).then_some(latency))
            .collect();
        writes.sort_unstable();
        let median = writes.get(writes.len() / 2).copied().unwrap_or(0);
        median.saturating_mul(STALLED)
    });
    let (mut stalled, mut saved) = (0, 0);
    for (index, (&ours, &theirs)) in served.latencies.iter().zip(&plain.latencies).enumerate() {
        if is_write(index) && theirs > above {
            stalled += 1;
            saved += u64::from(ours <= above);
        }
    }
    Some(Plain { latency, stalled_above: seconds(above), stalled, saved })
}

/// Returns the figures with freezes on the leg where they are worst.
fn worst(runs: &Runs, request: &Request, load: &Load) -> Option<WhatIf> {
    let legs = runs.frozen.iter().enumerate().filter_map(|(leg, (served, plain))| {
        Some(WhatIf {
            leg,
            latency: Distribution::of(served.latencies.iter().copied())?,
            exposure_peak: served.exposure_peak,
            plain: plain.as_ref().and_then(|plain| compared(served, plain, request, load)),
        })
    });
    let mut worst: Option<WhatIf> = None;
    for leg in legs {
        let tail = |what: &WhatIf| (what.latency.p999, what.latency.max);
        if worst.as_ref().is_none_or(|worst| tail(&leg) > tail(worst)) {
            worst = Some(leg);
        }
    }
    worst
}

impl SystemAdvice {
    /// Returns the latencies that were judged: with freezes if they were asked for.
    pub fn judged(&self) -> &Distribution {
        self.what_if.as_ref().map_or(&self.latency, |what_if| &what_if.latency)
    }

    /// Returns the share of time the busiest leg had work.
    pub fn busiest(&self) -> f64 {
        self.legs.iter().map(|leg| leg.busy).fold(0.0, f64::max)
    }
}

/// Marks the frontier and puts systems in order: what meets the request before what does not, and
/// the cheaper first; of those that miss it, the faster first. If nothing was asked for, the
/// frontier comes first.
pub(crate) fn rank(systems: &mut [SystemAdvice], request: &Request) {
    for index in 0..systems.len() {
        let (cost, tail) = (systems[index].cost.total, systems[index].judged().p999);
        let beats = |other: &SystemAdvice| {
            let (cheaper, faster) = (other.cost.total, other.judged().p999);
            cheaper <= cost && faster <= tail && (cheaper < cost || faster < tail)
        };
        systems[index].frontier = !systems.iter().any(beats);
    }
    let asked = request.asks();
    systems.sort_by(|a, b| {
        use crate::judge::Verdict::Misses;
        let (one, other) = (a.judgement.verdict, b.judgement.verdict);
        let by_cost = a.cost.total.total_cmp(&b.cost.total);
        let by_tail = a.judged().p999.total_cmp(&b.judged().p999);
        let first = if asked { one.cmp(&other) } else { b.frontier.cmp(&a.frontier) };
        let then = if one == Misses && other == Misses {
            by_tail.then(by_cost)
        } else {
            by_cost.then(by_tail)
        };
        first.then(then).then_with(|| a.name.cmp(&b.name))
    });
    for (rank, system) in (1..).zip(systems) {
        system.rank = rank;
    }
}
