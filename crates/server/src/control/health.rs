//! The one judge of a volume's health.
//!
//! [`fill_in`] is a function of the published status alone. It says which conditions hold, each in one
//! sentence, and what the volume's state is. Everything that speaks of health shows what it says: status,
//! list, top, the dashboard, `/healthz`, the metrics, events and mail. The table in `docs/metrics.md` lists
//! the conditions, and tests hold it to this module.

use hemi_engine::identifiers::LegIndex;
use hemi_engine::settings::{ExposureMode, FlushCopies, Policy, Settings};
use hemi_engine::status::LegState;
use serde::{Deserialize, Serialize};

use super::api::{LegStatus, OutReason, Risk, VolumeStatus};
use super::routes::SNAPSHOT_AGE_MAX;
use super::volume::Phase;
use crate::notices::{self, capital};
use crate::opening::GivenUp;
use hemi_units::prose::{bytes, duration};

/// [`SNAPSHOT_AGE_MAX`] in nanoseconds.
const STATUS_AGE_MAX_NS: u64 = SNAPSHOT_AGE_MAX.as_nanos() as u64;

/// The state of a volume in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Health {
    /// Clients are served, and everything but what [`Exposure`](super::api::Exposure) bounds is on two legs
    /// or more.
    Healthy,
    /// Clients are served, but something is at risk or lost.
    Degraded,
    /// Clients are not served, or wait.
    #[default]
    NotServing,
}

/// A condition of a volume that its operator should know, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// The volume is not open, or is being stopped.
    NotOpen,
    /// The data path does not move.
    Stuck,
    /// No leg that is in answers.
    NoLegAnswers,
    /// Acknowledged data is on no leg any more.
    Lost,
    /// One leg alone is in.
    SoleLeg,
    /// A leg that is in owes whole regions: it is being filled, or compared after an unclean stop.
    RegionsOwed,
    /// A leg does not hold its metadata any more.
    MetadataLost,
    /// Legs are known to differ.
    Differences,
    /// A leg that is in does not answer.
    LegSilent,
    /// More data is on one leg only, or for longer, than exposure allows.
    ExposurePastBound,
    /// A leg is out although nobody detached it, and two legs or more are in.
    LegOut,
    /// A flush is durable on fewer legs than `flush_copies` asks for.
    FlushCopies,
    /// This start gave up legs that were missing.
    GivenUp,
    /// Data of the last moments is on one leg only, within the bounds.
    Exposed,
    /// Writers are slowed down to keep exposure within its bounds.
    Throttled,
    /// The policy makes clients wait for a leg that stalls.
    PolicyWaits,
    /// A leg is being filled beside two or more that are in.
    Filling,
    /// A leg that answers owes what was written a while ago.
    Lagging,
}

impl Condition {
    /// All conditions, worst first.
    pub const ALL: [Condition; 18] = [
        Condition::NotOpen,
        Condition::Stuck,
        Condition::NoLegAnswers,
        Condition::Lost,
        Condition::SoleLeg,
        Condition::RegionsOwed,
        Condition::MetadataLost,
        Condition::Differences,
        Condition::LegSilent,
        Condition::ExposurePastBound,
        Condition::LegOut,
        Condition::FlushCopies,
        Condition::GivenUp,
        Condition::Exposed,
        Condition::Throttled,
        Condition::PolicyWaits,
        Condition::Filling,
        Condition::Lagging,
    ];

    /// Returns its name in metrics and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Condition::NotOpen => "not-open",
            Condition::Stuck => "stuck",
            Condition::NoLegAnswers => "no-leg-answers",
            Condition::Lost => "lost",
            Condition::SoleLeg => "sole-leg",
            Condition::RegionsOwed => "regions-owed",
            Condition::MetadataLost => "metadata-lost",
            Condition::Differences => "differences",
            Condition::LegSilent => "leg-silent",
            Condition::ExposurePastBound => "exposure-past-bound",
            Condition::LegOut => "leg-out",
            Condition::FlushCopies => "flush-copies",
            Condition::GivenUp => "given-up",
            Condition::Exposed => "exposed",
            Condition::Throttled => "throttled",
            Condition::PolicyWaits => "policy-waits",
            Condition::Filling => "filling",
            Condition::Lagging => "lagging",
        }
    }

    /// Returns the state of a volume for which it is the worst condition.
    pub fn health(self) -> Health {
        match self {
            Condition::NotOpen | Condition::Stuck | Condition::NoLegAnswers => Health::NotServing,
            Condition::Lost
            | Condition::SoleLeg
            | Condition::RegionsOwed
            | Condition::MetadataLost
            | Condition::Differences
            | Condition::LegSilent
            | Condition::ExposurePastBound
            | Condition::LegOut
            | Condition::FlushCopies => Health::Degraded,
            Condition::GivenUp
            | Condition::Exposed
            | Condition::Throttled
            | Condition::PolicyWaits
            | Condition::Filling
            | Condition::Lagging => Health::Healthy,
        }
    }

    /// Returns the promise that does not hold in full meanwhile, `P1` to `P8`.
    fn promise(self) -> Option<&'static str> {
        Some(match self {
            Condition::NotOpen => return None,
            Condition::Lost | Condition::SoleLeg | Condition::RegionsOwed | Condition::GivenUp => {
                "P1"
            }
            Condition::MetadataLost | Condition::FlushCopies => "P3",
            Condition::Stuck
            | Condition::NoLegAnswers
            | Condition::LegSilent
            | Condition::PolicyWaits => "P4",
            Condition::ExposurePastBound | Condition::Exposed | Condition::Throttled => "P5",
            Condition::Differences
            | Condition::LegOut
            | Condition::Filling
            | Condition::Lagging => "P6",
        })
    }
}

/// The state of a volume, and the worst of its conditions in one sentence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The state in one word, as [`VolumeStatus::health`].
    pub state: Health,
    /// The worst condition in one sentence, with figures.
    pub text: String,
    /// Advice for the operator; `null` if nothing needs to be done.
    pub advice: Option<String>,
}

/// The judgement on a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Judgement {
    /// The worst condition, or that all is well.
    summary: Summary,
    /// All conditions but [`Condition::NotOpen`], worst first.
    risks: Vec<Risk>,
    /// Bytes that are known, or may have to be taken, to be on one leg only.
    one_copy_bytes: u64,
    /// The part of them in regions that legs owe.
    one_copy_region_bytes: u64,
    /// True if every leg is whole and no difference is known.
    alike: bool,
}

/// Judges a volume, and writes the judgement into its status. Everything else must be filled in: `converged`
/// with the engine's, which known differences and lost metadata overrule.
pub fn fill_in(status: &mut VolumeStatus, settings: &Settings) {
    let judgement = judge(status, settings);
    let Judgement { summary, risks, one_copy_bytes, one_copy_region_bytes, alike } = judgement;
    status.health = summary.state;
    status.degraded = summary.state == Health::Degraded;
    status.converged = alike;
    (status.one_copy_bytes, status.one_copy_region_bytes) = (one_copy_bytes, one_copy_region_bytes);
    (status.summary, status.risks) = (summary, risks);
}

/// Returns what is to be said of the legs of a volume that is no longer served, as if it were: nobody waits
/// for an answer, but what is on one leg only stays so.
pub(super) fn at_rest(status: &VolumeStatus, settings: &Settings) -> Summary {
    let served = VolumeStatus { phase: Phase::Serving, age_ns: 0, ..status.clone() };
    let risks = judge(&served, settings).risks;
    let worst = risks.into_iter().find(|risk| risk.condition.health() == Health::Degraded);
    match worst {
        Some(Risk { text, advice, .. }) => Summary { state: Health::Degraded, text, advice },
        None => Summary { state: Health::Healthy, text: all_is_well(&served), advice: None },
    }
}

/// Judges a volume by its status, in which everything but the judgement itself is filled in.
fn judge(status: &VolumeStatus, settings: &Settings) -> Judgement {
    let mut found = Findings::default();
    let (mut one_copy_bytes, mut one_copy_region_bytes) = (0, 0);
    match status.phase {
        Phase::Serving => {
            (one_copy_bytes, one_copy_region_bytes) = bytes_with_one_copy(status);
            find(status, settings, &mut found);
        }
        Phase::Opening => {
            let why = status.waits_for.as_deref();
            let text = why.map_or_else(
                || "The volume is being opened.".to_owned(),
                |why| format!("The volume is not open: it waits for legs. {why}"),
            );
            let advice = why
                .map(|_| "Bring the missing legs, or see hemi serve --help on --start-degraded.");
            found.add(Condition::NotOpen, "opening", text, advice);
        }
        Phase::Closing => {
            found.add(Condition::NotOpen, "closing", "The volume is being stopped.", None)
        }
        Phase::Closed => found.add(Condition::NotOpen, "closed", "The volume is stopped.", None),
        Phase::Upgrading => {
            let text = "Another program is taking over; clients wait.";
            found.add(Condition::NotOpen, "upgrading", text, None);
        }
    }
    found.0.sort_by_key(|risk| risk.condition);
    let summary = match found.0.first() {
        Some(worst) if worst.condition.health() > Health::Healthy => Summary {
            state: worst.condition.health(),
            text: worst.text.clone(),
            advice: worst.advice.clone(),
        },
        _ => Summary { state: Health::Healthy, text: all_is_well(status), advice: None },
    };
    found.0.retain(|risk| risk.condition != Condition::NotOpen);
    let alike = status.phase == Phase::Serving
        && status.converged
        && status.scrub.different_bytes == 0
        && status.legs.iter().all(|leg| leg.metadata_lost.is_none());
    Judgement { summary, risks: found.0, one_copy_bytes, one_copy_region_bytes, alike }
}

#[derive(Default)]
struct Findings(Vec<Risk>);

impl Findings {
    fn add(
        &mut self,
        condition: Condition,
        brief: impl Into<String>,
        text: impl Into<String>,
        advice: Option<&str>,
    ) {
        self.0.push(Risk {
            promise: condition.promise().unwrap_or_default().to_owned(),
            condition,
            brief: brief.into(),
            text: text.into(),
            advice: advice.map(str::to_owned),
        });
    }
}

fn find(status: &VolumeStatus, settings: &Settings, found: &mut Findings) {
    if status.age_ns > STATUS_AGE_MAX_NS {
        let text = format!(
            "The data path has not moved for {}, and clients wait.",
            duration(status.age_ns)
        );
        found.add(Condition::Stuck, "stuck", text, Some("See the log of hemi serve."));
    }
    let inside: Vec<&LegStatus> = status.legs.iter().filter(|leg| is_in(leg)).collect();
    if !inside.iter().any(|leg| answers(leg)) {
        let advice = "Look at the drives and servers that the legs are on.";
        found.add(
            Condition::NoLegAnswers,
            "no leg answers",
            "No leg answers, and clients wait.",
            Some(advice),
        );
    }
    lost(status, found);
    match inside[..] {
        [sole] => sole_leg(status, sole, found),
        _ => {
            regions_owed(&inside, found);
            legs_out(status, found);
        }
    }
    metadata(status, found);
    differences(status, found);
    silent_legs(&inside, found);
    exposure(status, &inside, found);
    flush_copies(status, settings, inside.len(), found);
    given_up(status, found);
    policy(settings, found);
    for leg in &inside {
        if leg.state == LegState::Lagging && leg.owed_region_bytes == 0 {
            let text = format!("{} owes {} and drains.", label(leg), bytes(leg.owed_bytes));
            let brief = format!("leg {} lagging", leg.leg);
            found.add(Condition::Lagging, brief, capital(text), None);
        }
    }
}

/// Returns the sentence of a volume that has no condition worse than [`Health::Healthy`].
fn all_is_well(status: &VolumeStatus) -> String {
    let inside = status.legs.iter().filter(|leg| is_in(leg)).count();
    match status.exposure.bytes {
        0 => format!("Everything that was acknowledged is on all {inside} legs."),
        _ => format!("All {inside} legs answer; {}.", exposed(status)),
    }
}

/// Returns the bytes that are on one leg only: everything if one leg is in, and otherwise what
/// [exposure](super::api::Exposure) counts and what is owed as whole regions, which is returned apart, too.
/// With three legs or more it is an upper bound.
fn bytes_with_one_copy(status: &VolumeStatus) -> (u64, u64) {
    let inside: Vec<&LegStatus> = status.legs.iter().filter(|leg| is_in(leg)).collect();
    if inside.len() < 2 {
        return (status.size_bytes, 0);
    }
    let whole = inside.iter().filter(|leg| leg.owed_region_bytes == 0).count();
    // A region is on one leg only if all others owe it.
    let owed: u64 = inside.iter().map(|leg| leg.owed_region_bytes).sum();
    let regions = if whole > 1 { 0 } else { owed / (inside.len() as u64 - 1) };
    let all = (status.exposure.bytes + regions).min(status.size_bytes);
    (all, regions.min(all))
}

fn lost(status: &VolumeStatus, found: &mut Findings) {
    if status.lost_bytes > 0 {
        let text = format!(
            "{} of acknowledged data are on no leg any more; reading them fails until they are written \
             again.",
            bytes(status.lost_bytes)
        );
        let advice = "Write them again from a backup; hemi inspect shows which they are.";
        let brief = format!("{} lost", bytes(status.lost_bytes));
        found.add(Condition::Lost, brief, text, Some(advice));
    }
}

fn sole_leg(status: &VolumeStatus, sole: &LegStatus, found: &mut Findings) {
    let filling = status.legs.iter().find(|leg| leg.out_reason == Some(OutReason::Joining));
    let alone = format!("All data is on {} alone; if it is lost, the volume is lost", label(sole));
    let (text, advice) = match filling {
        Some(leg) => {
            (format!("{alone}. {} is being filled: {}.", capital(label(leg)), to_go(leg)), None)
        }
        None if status.legs.len() > 1 => (
            format!("{alone}."),
            Some("Bring the other leg back (hemi leg attach) or replace it (hemi leg replace)."),
        ),
        None => (format!("{alone}."), Some("Add a leg: hemi leg add.")),
    };
    let others: Vec<String> = status
        .legs
        .iter()
        .filter(|leg| leg.leg != sole.leg)
        .map(|leg| format!("leg {} {}", leg.leg, state(leg)))
        .collect();
    let brief = if others.is_empty() { "one leg".to_owned() } else { others.join(", ") };
    found.add(Condition::SoleLeg, brief, text, advice);
}

fn regions_owed(inside: &[&LegStatus], found: &mut Findings) {
    for leg in inside.iter().filter(|leg| leg.owed_region_bytes > 0) {
        let others: Vec<&LegStatus> =
            inside.iter().copied().filter(|other| other.leg != leg.leg).collect();
        let elsewhere = match others[..] {
            [other] => format!("{} alone holds them", label(other)),
            _ => format!("{} hold them", list(&others)),
        };
        let text = format!(
            "{} is not known to hold {}, and has to be filled or compared there: {elsewhere}; {}.",
            label(leg),
            bytes(leg.owed_region_bytes),
            to_go(leg),
        );
        let brief = format!("leg {} owes {}", leg.leg, bytes(leg.owed_region_bytes));
        found.add(Condition::RegionsOwed, brief, capital(text), None);
    }
}

fn legs_out(status: &VolumeStatus, found: &mut Findings) {
    for leg in status.legs.iter().filter(|leg| leg.state == LegState::Out) {
        let brief = format!("leg {} {}", leg.leg, state(leg));
        match leg.out_reason {
            Some(OutReason::Detached) => {}
            Some(OutReason::Joining) => {
                let text = format!("{} is being filled: {}.", label(leg), to_go(leg));
                found.add(Condition::Filling, brief, capital(text), None);
            }
            _ => {
                let text = format!("{} is out and lacks {}.", label(leg), bytes(leg.owed_bytes));
                let advice = "Bring it back (hemi leg attach) or replace it (hemi leg replace).";
                found.add(Condition::LegOut, brief, capital(text), Some(advice));
            }
        }
    }
}

fn metadata(status: &VolumeStatus, found: &mut Findings) {
    for leg in &status.legs {
        if let Some(why) = &leg.metadata_lost {
            let text = format!("{} does not hold its metadata any more: {why}.", label(leg));
            let advice = "Find out who wrote to the drive. hemi scrub writes the metadata again.";
            let brief = format!("leg {} lost its metadata", leg.leg);
            found.add(Condition::MetadataLost, brief, capital(text), Some(advice));
        }
    }
}

fn differences(status: &VolumeStatus, found: &mut Findings) {
    if status.scrub.different_bytes > 0 {
        let text = format!(
            "Legs are known to differ in {}: a read may return either.",
            bytes(status.scrub.different_bytes)
        );
        let advice = "hemi scrub --show lists where. Decide which leg is right, then hemi scrub \
                      --repair --from LEG.";
        found.add(Condition::Differences, "legs differ", text, Some(advice));
    }
}

fn silent_legs(inside: &[&LegStatus], found: &mut Findings) {
    for leg in inside.iter().filter(|leg| !answers(leg)) {
        let since =
            leg.state_age_ns.map_or_else(String::new, |age| format!(" for {}", duration(age)));
        // What every other leg owes as whole regions is on this leg alone.
        let alone = inside
            .iter()
            .filter(|other| other.leg != leg.leg)
            .map(|other| other.owed_region_bytes)
            .min()
            .unwrap_or(0);
        let text = match leg.owed_bytes {
            0 if alone > 0 => format!(
                "{} has not answered{since}: it alone holds {}, and reads of them wait.",
                label(leg),
                bytes(alone)
            ),
            0 => format!("{} has not answered{since}.", label(leg)),
            owed => {
                format!("{} has not answered{since}, and lacks {}.", label(leg), bytes(owed))
            }
        };
        let advice = "If it does not come back, replace it: hemi leg replace.";
        let brief = format!("leg {} {}", leg.leg, state(leg));
        found.add(Condition::LegSilent, brief, capital(text), Some(advice));
    }
}

fn exposure(status: &VolumeStatus, inside: &[&LegStatus], found: &mut Findings) {
    let exposure = &status.exposure;
    if exposure.bytes > 0 && inside.len() > 1 {
        let by_bytes = exposure.bytes > exposure.bound_bytes;
        if by_bytes || exposure.age_ns > exposure.bound_age_ns {
            let bound = match by_bytes {
                true => bytes(exposure.bound_bytes),
                false => duration(exposure.bound_age_ns),
            };
            let why = match exposure.mode {
                ExposureMode::FallBehind => "exposure mode fall-behind lets it grow",
                ExposureMode::Throttle if inside.iter().any(|leg| !answers(leg)) => {
                    "the leg that owes it does not answer"
                }
                ExposureMode::Throttle => "the leg that owes it is slower than clients write",
            };
            let text =
                format!("Exposure is past its bound of {bound}, since {why}: {}.", exposed(status));
            found.add(Condition::ExposurePastBound, "exposure past its bound", text, None);
        }
        let holders: Vec<&LegStatus> =
            inside.iter().copied().filter(|leg| leg.owed_bytes == 0).collect();
        // If exactly one leg owes nothing, it holds all exposed data. Otherwise each of several legs may be
        // the only holder of some of it.
        let place = match holders[..] {
            [sole] => format!("on {} only, and are lost with it", label(sole)),
            _ => format!("on one leg only: any of {} may alone hold some of them", list(inside)),
        };
        let text = format!(
            "{} of the last {} are {place}.",
            bytes(exposure.bytes),
            duration(exposure.age_ns)
        );
        found.add(Condition::Exposed, "exposed", text, None);
    }
    if exposure.throttling {
        let text = format!(
            "Writers are being slowed to keep exposure below {} and {}.",
            bytes(exposure.bound_bytes),
            duration(exposure.bound_age_ns)
        );
        found.add(Condition::Throttled, "writers slowed", text, None);
    }
}

fn flush_copies(status: &VolumeStatus, settings: &Settings, inside: usize, found: &mut Findings) {
    let wanted = match settings.flush_copies {
        FlushCopies::Count(1) => return,
        FlushCopies::Count(count) => usize::from(count),
        FlushCopies::All => status.legs.len(),
    };
    if inside < wanted {
        let text = format!(
            "A flush is durable on {inside} of the {wanted} legs that flush_copies requires."
        );
        found.add(Condition::FlushCopies, "flush copies missing", text, None);
    }
}

fn given_up(status: &VolumeStatus, found: &mut Findings) {
    let Some(given_up) = &status.given_up else { return };
    let name = |leg: u8| {
        let known = status.legs.iter().find(|known| known.leg == leg);
        known.map_or_else(|| format!("leg {leg}"), label)
    };
    let legs: Vec<String> = given_up.legs.iter().map(|&leg| name(leg)).collect();
    found.add(Condition::GivenUp, "gave up a leg", gave_up(given_up, legs), None);
}

/// Says that a start gave up legs, which are named, and what is lost with them.
pub(super) fn gave_up(given_up: &GivenUp, legs: Vec<String>) -> String {
    let (was, they) = if legs.len() == 1 { ("was", "it") } else { ("were", "they") };
    format!(
        "This start gave up {}, which {was} missing (start_degraded): acknowledged writes that {they} alone \
         held are lost, {}.",
        listed(legs),
        given_up.lost(),
    )
}

fn policy(settings: &Settings, found: &mut Findings) {
    let text = match settings.policy {
        Policy::First | Policy::Paper => return,
        Policy::All => "Policy all waits for every leg: while one stalls, writes stall.".to_owned(),
        Policy::WriteBehind => format!(
            "Policy write-behind waits for every leg but leg {}, and for all on a flush: while one stalls, \
             writes or flushes stall.",
            settings.slow_leg
        ),
    };
    found.add(Condition::PolicyWaits, "waits by policy", text, None);
}

/// Describes the data that exposure counts.
fn exposed(status: &VolumeStatus) -> String {
    format!(
        "{} of the last {} are on one leg only",
        bytes(status.exposure.bytes),
        duration(status.exposure.age_ns)
    )
}

/// Describes the rest of a leg's debt: its size, and the time if it is known.
fn to_go(leg: &LegStatus) -> String {
    let size = bytes(leg.owed_bytes);
    match leg.remaining_ns {
        Some(time) => format!("{size} to go, some {}", duration(time)),
        None => format!("{size} to go"),
    }
}

/// Returns the state of a volume in a word: its phase, or its health while it is served.
pub fn word(status: &VolumeStatus) -> &'static str {
    match (status.phase, status.health) {
        (Phase::Opening, _) => "opening",
        (Phase::Closing, _) => "closing",
        (Phase::Closed, _) => "closed",
        (Phase::Upgrading, _) => "upgrading",
        (Phase::Serving, Health::Healthy) => "healthy",
        (Phase::Serving, Health::Degraded) => "degraded",
        (Phase::Serving, Health::NotServing) => "not serving",
    }
}

/// Returns a leg's state in a word or two.
pub fn state(leg: &LegStatus) -> &'static str {
    match (leg.state, leg.out_reason) {
        (LegState::Out, Some(OutReason::Joining)) => "filling",
        (LegState::Out, Some(OutReason::Unresponsive)) => "out: unresponsive",
        (LegState::Out, Some(OutReason::Removed)) => "out: removed",
        (LegState::Out, Some(OutReason::WriteErrors)) => "out: write errors",
        (LegState::Out, Some(OutReason::Detached)) => "detached",
        (LegState::Healthy | LegState::Lagging, _) if leg.stalled => "stalled",
        (state, _) => state.name(),
    }
}

fn answers(leg: &LegStatus) -> bool {
    matches!(leg.state, LegState::Healthy | LegState::Lagging) && !leg.stalled
}

fn is_in(leg: &LegStatus) -> bool {
    !matches!(leg.state, LegState::Out | LegState::Empty)
}

/// Returns the leg's name with its slot, by which commands know it.
fn label(leg: &LegStatus) -> String {
    notices::label(&leg.name, LegIndex(leg.leg))
}

fn list(legs: &[&LegStatus]) -> String {
    listed(legs.iter().map(|leg| label(leg)).collect())
}

/// Joins names as in a sentence.
fn listed(mut names: Vec<String>) -> String {
    match names.pop() {
        None => "no leg".to_owned(),
        Some(one) if names.is_empty() => one,
        Some(last) => format!("{} and {last}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests;
