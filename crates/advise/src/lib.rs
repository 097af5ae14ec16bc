//! Advice on which drives to buy for a recorded load.
//!
//! A [`Load`] is a trace, perhaps sped up or multiplied. It is replayed at its own times on every
//! [candidate](candidates): single drives, stripes, and pairs under hemi's engine beside the plain
//! mirror of the same legs. Drives are the models of [`hemi_drives`] that have a price with a
//! source. [`advise`] returns every system with its latencies, cost, wear and energy, the verdict
//! on what was [asked](Request), the class of requests that decided, and how far the models are
//! known to be off for it.
//!
//! Everything is simulated in virtual time and depends on the seed alone, not on the number of
//! cores.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;

use hemi_simulate::parallel;
use hemi_simulate::stock::Stock;
use hemi_simulate::system::PolicyName;
use hemi_units::SECOND;

use crate::advice::{Advice, Asked, LoadReport, Runs, SystemAdvice};
use crate::candidates::{Candidate, Candidates, LeftOut};
pub use crate::error::AdviseError;
use crate::freezes::Placed;
pub use crate::load::Load;
pub use crate::request::Request;
use crate::rounds::Rounds;
use crate::serve::{Bench, ServeError};

pub mod advice;
mod arrivals;
pub mod candidates;
mod cautions;
pub mod classes;
pub mod distribution;
mod error;
pub mod freezes;
pub mod judge;
pub mod known;
pub mod load;
pub mod money;
pub mod prices;
pub mod request;
pub mod rounds;
mod serve;
#[cfg(test)]
mod testing;
pub mod units;

/// Currency of the presets' prices, used unless a user's prices name another.
pub const CURRENCY: &str = "USD";

/// Number of classes of requests that are reported.
const CLASSES: usize = 8;

/// A step of the work, for a display of its progress.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// This number of pieces of flash is brought into its state.
    Preparing(usize),
    /// One of them is ready.
    Prepared,
    /// This number of systems is simulated.
    Simulating(usize),
    /// The simulation of a system began.
    Began(&'a str),
    /// The simulation of a system ended.
    Ended(&'a str),
}

/// Returns the advice on a load. Flash comes from `stock`; `told` is called with each step, from
/// several threads.
///
/// # Errors
/// Fails if the request is impossible, a preset cannot be read, or no system is left.
pub fn advise(
    load: &Load,
    request: &Request,
    stock: &Stock,
    told: &(dyn Fn(Step<'_>) + Sync),
) -> Result<Advice, AdviseError> {
    request.check()?;
    let all = Candidates::of(request, load)?;
    let bench = Bench {
        load,
        stock,
        state: request.state,
        seed: request.seed,
        volume: all.simulated_volume(),
        exposure: request.exposure,
    };
    let placed = request.what_if.map(|rate| Placed::in_load(rate, load));
    let mut left_out = all.left_out.clone();
    let mut systems = Vec::new();
    let mut prepared = Prepared::default();
    let mut rounds = Rounds::of(&all.systems, request);
    loop {
        let round = rounds.next(&systems);
        if round.is_empty() {
            break;
        }
        prepared.bring(&bench, &round, request.jobs, told)?;
        told(Step::Simulating(round.len()));
        let results = parallel::each(&round, request.jobs, |candidate| {
            let name = candidate.name();
            told(Step::Began(&name));
            let result = system(&bench, candidate, request, placed.as_ref());
            told(Step::Ended(&name));
            result
        });
        for (candidate, result) in round.iter().zip(results) {
            match result {
                Ok(Some(advice)) => systems.push(advice),
                Ok(None) => {}
                Err(ServeError::Preset(error)) => return Err(error.into()),
                Err(ServeError::Mirror(error)) => {
                    left_out.push(LeftOut { name: candidate.name(), why: error.to_string() });
                }
            }
        }
    }
    if systems.is_empty() {
        let reasons = left_out.first().map_or(String::new(), |left| left.why.clone());
        return Err(AdviseError::Nothing { reasons });
    }
    advice::rank(&mut systems, request);
    left_out.sort();
    let not_simulated = rounds.rest();
    Ok(Advice {
        load: report(load, all.volume),
        assumptions: cautions::assumptions(load, &all, request, not_simulated.as_ref()),
        cautions: cautions::of(load, &all, &systems, request)?,
        asked: asked(request, &all, placed),
        systems,
        not_simulated,
        left_out,
    })
}

/// The flash that is in its state already: presets and seeds.
#[derive(Default)]
struct Prepared(BTreeSet<(String, u64)>);

impl Prepared {
    /// Brings the flash of these candidates into its state, each piece once.
    fn bring(
        &mut self,
        bench: &Bench<'_>,
        candidates: &[&Candidate],
        jobs: Option<usize>,
        told: &(dyn Fn(Step<'_>) + Sync),
    ) -> Result<(), AdviseError> {
        let mut pieces = Vec::new();
        for candidate in candidates {
            for (slot, unit) in (0..).zip(&candidate.units) {
                if !units::has_flash(&unit.drive.preset)? {
                    continue;
                }
                for (preset, seed) in bench.flash(unit, slot) {
                    if self.0.insert((preset.name.clone(), seed)) {
                        pieces.push((preset, seed));
                    }
                }
            }
        }
        told(Step::Preparing(pieces.len()));
        let made = parallel::each(&pieces, jobs, |(preset, seed)| {
            let made = bench.prepare(preset, *seed);
            told(Step::Prepared);
            made
        });
        made.into_iter().collect::<Result<(), _>>().map_err(AdviseError::from)
    }
}

/// Simulates a candidate.
fn system(
    bench: &Bench<'_>,
    candidate: &Candidate,
    request: &Request,
    placed: Option<&Placed>,
) -> Result<Option<SystemAdvice>, ServeError> {
    let units: Vec<&units::Unit> = candidate.units.iter().collect();
    let pair = candidate.is_pair();
    let policy = if pair { PolicyName::First } else { PolicyName::Single };
    let both = |freezes: Option<(usize, &Placed)>| {
        let served = bench.serve(&units, policy, freezes)?;
        let plain = pair.then(|| bench.serve(&units, PolicyName::All, freezes)).transpose()?;
        Ok::<_, ServeError>((served, plain))
    };
    let (served, plain) = both(None)?;
    let frozen = match placed {
        None => Vec::new(),
        Some(placed) => (0..units.len())
            .map(|leg| both(Some((leg, placed))))
            .collect::<Result<Vec<_>, ServeError>>()?,
    };
    let scales = candidate
        .units
        .iter()
        .map(|unit| Ok(unit.drive.preset.flash_scale()? * unit.drive.scale))
        .collect::<Result<Vec<u64>, ServeError>>()?;
    let runs = Runs { served, plain, frozen };
    Ok(advice::of_system(candidate, &runs, request, bench.load, &scales))
}

fn report(load: &Load, volume: u64) -> LoadReport {
    let share = |count: u64| count as f64 / load.requests() as f64;
    let classes = load.classes.counts().into_iter().take(CLASSES);
    LoadReport {
        file: load.file.clone(),
        requests: load.requests(),
        reads: load.reads,
        writes: load.writes,
        read_bytes: load.read_bytes,
        written_bytes: load.written_bytes,
        duration: load.duration as f64 / SECOND as f64,
        volume,
        classes: classes.map(|(class, count)| (class.to_string(), share(count))).collect(),
    }
}

fn asked(request: &Request, all: &Candidates, placed: Option<Placed>) -> Asked {
    Asked {
        p999: request.target.map(distribution::seconds),
        exposure: request.exposure.map(|size| size.0),
        budget: request.budget,
        years: request.years,
        currency: all.currency.clone(),
        electricity: request.electricity,
        cooling_percent: request.cooling_percent,
        have: request.have.clone(),
        what_if: placed,
        seed: request.seed,
    }
}
