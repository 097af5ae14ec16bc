//! Limits of what a trace can tell: it is too short, too light or too small, or the model is not
//! as the drive.

use hemi_drives::preset::{Model, PresetError};
use hemi_units::SECOND;
use hemi_units::prose::duration;

use crate::advice::SystemAdvice;
use crate::candidates::Candidates;
use crate::load::Load;
use crate::request::Request;
use crate::rounds::NotSimulated;
use crate::units::Stocked;

/// Requests that a 99.9th percentile needs: ten above it.
const FOR_P999: u64 = 10_000;
/// Requests that a 99th percentile needs.
const FOR_P99: u64 = 1_000;
/// Share of time below which no drive is tried.
const LIGHT: f64 = 0.03;
/// Duration below which a day cannot be told.
const SHORT: u64 = 600 * SECOND;
/// Time within which a cache of flash has no pause to empty.
const BURST: u64 = 60 * SECOND;
/// Share of the flash at which what a load writes changes its state.
const MUCH: u64 = 2;

/// Returns what the load cannot tell about these systems, in sentences.
///
/// # Errors
/// Fails if an array's member cannot be found.
pub(crate) fn of(
    load: &Load,
    all: &Candidates,
    systems: &[SystemAdvice],
    request: &Request,
) -> Result<Vec<String>, PresetError> {
    let mut said = load.cautions.clone();
    let requests = load.requests();
    if requests < FOR_P99 {
        said.push(format!(
            "Too small to tell: {requests} requests say nothing of a 99.9th percentile, which \
             needs {FOR_P999}, and little of a 99th."
        ));
    } else if requests < FOR_P999 {
        said.push(format!(
            "Too small for the 99.9th percentile: it needs {FOR_P999} requests, and there are \
             {requests}."
        ));
    }
    if load.duration < SHORT {
        let lasts = duration(load.duration);
        said.push(format!(
            "Too short for days: the trace lasts {lasts}. Wear, energy and the work that drives \
             put off are drawn out from that, as if it went on so day and night."
        ));
    }
    let busiest = systems.iter().map(SystemAdvice::busiest).fold(0.0, f64::max);
    if busiest < LIGHT {
        said.push(format!(
            "Too light to tell drives apart by throughput: none of them is busy more than \
             {:.1} % of the time. What differs is how long a drive takes when it is idle.",
            (busiest * 1000.0).ceil() / 10.0
        ));
    }
    let tails: Vec<f64> = systems.iter().map(|system| system.judged().p999).collect();
    let (least, most) = tails
        .iter()
        .fold((f64::MAX, 0.0_f64), |(least, most), &tail| (least.min(tail), most.max(tail)));
    if systems.len() > 1 && most < least * 1.2 {
        said.push("All candidates look alike: take the cheapest.".into());
    }
    said.extend(divided_too_far(all)?);
    if request.electricity.is_none() {
        said.push(
            "Energy is not priced: give the price of a kilowatt-hour with --electricity.".into(),
        );
    }
    Ok(said)
}

/// Returns which drives have their flash divided beyond their bound.
fn divided_too_far(all: &Candidates) -> Result<Vec<String>, PresetError> {
    let mut said = Vec::new();
    for drive in drives(all) {
        let Some(beyond) = drive.preset.too_small(drive.scale)? else { continue };
        let way_out = match beyond.most {
            0 => "Its own scale is too large: lower `scale` in its file.".to_owned(),
            most => format!("Give a --flash-scale of at most {most}."),
        };
        said.push(format!("{}: {beyond}. {way_out}", drive.preset.name));
    }
    Ok(said)
}

/// Returns the drives of all systems, each once.
fn drives(all: &Candidates) -> Vec<&Stocked> {
    let mut drives: Vec<&Stocked> = Vec::new();
    for unit in all.systems.iter().flat_map(|system| &system.units) {
        if !drives.iter().any(|drive| drive.preset.name == unit.drive.preset.name) {
            drives.push(&unit.drive);
        }
    }
    drives
}

/// Returns the assumptions of the models, in sentences.
pub(crate) fn assumptions(
    load: &Load,
    all: &Candidates,
    request: &Request,
    not_simulated: Option<&NotSimulated>,
) -> Vec<String> {
    let mut said = vec![
        "Requests arrive at their recorded times, whatever the drives do. A client that waits \
         for answers would slow down instead."
            .to_owned(),
    ];
    said.extend(load.assumptions.clone());
    let simulated = all.simulated_volume();
    if about(simulated) != about(all.volume) {
        said.push(format!("The volume is simulated with {}, the least.", about(simulated)));
    }
    use hemi_drives::preset::Precondition;
    said.push(
        match request.state {
            Precondition::Steady => {
                "Flash starts full and worn in, overwritten at random: its worst state."
            }
            Precondition::Sequential => "Flash starts full, written once in order.",
            Precondition::Cached => {
                "Flash starts written once in order, as far as its cache reaches."
            }
            Precondition::None => "Flash starts empty, as out of the box: its best state.",
        }
        .to_owned(),
    );
    said.extend(scaled(load, all));
    if let Some(rest) = not_simulated {
        said.push(format!(
            "{} of {} systems were not simulated: their drives alone cost {:.0} {} or more, and {} \
             that meet what is asked for cost less. --all simulates them.",
            rest.systems.len(),
            all.systems.len(),
            rest.cost,
            all.currency,
            rest.cheaper
        ));
    }
    said
}

/// Returns what the division of the flash's capacity changes.
fn scaled(load: &Load, all: &Candidates) -> Vec<String> {
    let mut said = Vec::new();
    for drive in drives(all) {
        let name = &drive.preset.name;
        let scale = drive.preset.flash_scale().unwrap_or(1) * drive.scale;
        if scale == 1 {
            continue;
        }
        let flash = drive.capacity / scale;
        if load.written_bytes > flash / MUCH {
            said.push(format!(
                "{name}: the load writes {}, and {} of its flash are simulated (1/{scale}): its \
                 write amplification moves faster than the real drive's.",
                about(load.written_bytes),
                about(flash)
            ));
        }
        if all.volume > flash {
            said.push(format!(
                "{name}: {} of its flash are simulated (1/{scale}); addresses beyond wrap around.",
                about(flash)
            ));
        }
        if let Model::Ssd(of) = &drive.preset.model
            && let Some(cache) = &of.slc
        {
            let burst = load.most_written(BURST);
            let (real, model) = (cache.fixed.0, cache.fixed.0 / scale);
            if burst > model && burst <= real {
                said.push(format!(
                    "{name}: its SLC cache is divided too, {} to {}. The load writes up to {} in \
                     a minute, which the real cache takes and the model's does not: the drive \
                     may be better than shown.",
                    about(real),
                    about(model),
                    about(burst)
                ));
            }
        }
    }
    said
}

/// Returns a size in decimal units, with three digits.
fn about(bytes: u64) -> String {
    let (amount, unit) = match bytes {
        bytes if bytes >= 1_000_000_000_000 => (bytes as f64 / 1e12, "TB"),
        bytes if bytes >= 1_000_000_000 => (bytes as f64 / 1e9, "GB"),
        bytes if bytes >= 1_000_000 => (bytes as f64 / 1e6, "MB"),
        bytes => (bytes as f64 / 1e3, "KB"),
    };
    let digits = match amount {
        amount if amount >= 100.0 => 0,
        amount if amount >= 10.0 => 1,
        _ => 2,
    };
    format!("{amount:.digits$} {unit}")
}
