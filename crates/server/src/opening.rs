//! Opens a volume: opens its legs, finds those that are absent, and lets recovery decide.
//!
//! A leg is **absent** if its path is gone, its drive fails every read, or its server does not answer. That
//! alone is no error. Recovery decides by the other legs: the volume is served without a leg that is durably
//! out, but not without one that is in.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use hemi_engine::format::{Ledger, Membership, Superblock};
use hemi_engine::identifiers::{LEGS_MAX, LegIndex};
use hemi_engine::recovery::{self, LegImage, Opening, Outlived, PROMOTE, Problem, Refusal};

use crate::config::place::Place;
use crate::config::scan::ScanConfig;
use crate::control::volume::{Identity, LegIdentity};
use crate::control::waiting::WaitingRoom;
use crate::ledger::{LedgerStatus, Ledgers};
use crate::quarantine;
use crate::serve::ServeError;
use candidate::{Candidate, State, Unfit};
use give_up::{NotGivenUp, give_up_missing, lacks_legs_only};
use hemi_io::config::legs::{LegConfig, LegSpec};
use hemi_io::leg::OpenLeg;
use hemi_io::probe::other_spec;
use search::Search;

mod candidate;
mod give_up;
mod passed_over;
mod search;

pub use give_up::GivenUp;

/// Pause between two attempts to open an absent leg.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// A volume whose legs are open and locked, and the outcome of its recovery.
pub struct OpenedVolume {
    /// The state with which the engine opens.
    pub opening: Opening,
    pub(crate) legs: Vec<(LegIndex, OpenLeg)>,
    /// The ledger it is served with.
    pub(crate) ledger: Option<Ledger>,
    /// The ledger's file, or the reason why there is none.
    pub(crate) ledger_status: LedgerStatus,
    pub(crate) identities: Vec<LegIdentity>,
    /// The specs and options of its legs, absent ones included.
    pub(crate) configs: Vec<LegConfig>,
    /// The loss that this start accepted, if there was one.
    pub(crate) given_up: Option<GivenUp>,
}

/// Returns a volume's name, or the beginning of its id if it has none.
pub(crate) fn volume_name(superblock: &Superblock) -> String {
    match superblock.name.as_str() {
        "" => superblock.volume_id.iter().take(4).map(|byte| format!("{byte:02x}")).collect(),
        name => name.to_owned(),
    }
}

impl OpenedVolume {
    /// Returns the volume's name, or the beginning of its id if it has none.
    pub fn name(&self) -> String {
        volume_name(&self.opening.superblock)
    }

    /// Returns the volume's properties that do not change while it is served.
    pub(crate) fn identity(&self) -> Identity {
        let superblock = &self.opening.superblock;
        Identity {
            name: self.name(),
            id: superblock.volume_id,
            size_bytes: superblock.layout.volume_bytes(),
            block_bytes: superblock.block_bytes,
            region_bytes: superblock.layout.region_bytes(),
            ledger: self.ledger_status.clone(),
            given_up: self.given_up.clone(),
        }
    }

    /// Returns the name of the leg in a slot, as used by status and logs.
    pub(crate) fn leg_name(&self, slot: LegIndex) -> String {
        let known = self.identities.iter().find(|identity| identity.leg == slot.0);
        known.map_or_else(|| format!("leg {}", slot.0), |identity| identity.name.clone())
    }
}

/// Options for opening a volume.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions<'a> {
    /// The volume whose legs are searched for, besides the named ones.
    pub scan: Option<&'a ScanConfig>,
    /// Time to wait for a leg that is needed and absent.
    pub patience: Duration,
    /// True if legs still missing after that are given up, although they may hold newer data.
    pub start_degraded: bool,
    /// The ledger's place.
    pub ledger: &'a Place,
    /// True if an existing ledger is read even if none is to be kept, and no new one is created.
    pub settle: bool,
    /// True if the operator accepts the loss of what only a missing or damaged ledger could tell.
    pub accept_loss: bool,
    /// The configuration file, for the command in a refusal.
    pub file: Option<&'a Path>,
    /// True if the previous server has seen all its writes end, so that remote legs need no quarantine.
    pub settled: bool,
    /// The place that says what the start waits for.
    pub waiting: Option<&'a WaitingRoom<'a>>,
}

/// Opens and locks legs, reads their metadata and the ledger, and lets recovery decide. If recovery needs an
/// absent leg, it is tried again. `configs` are the named legs; others may be searched for.
///
/// # Errors
/// Fails if a leg that is present cannot be opened, with [`ServeError::Absent`] if no leg is present, with
/// [`ServeError::Ledger`] if the ledger cannot be read or kept, and with every objection of recovery.
pub fn open(configs: &[LegConfig], options: OpenOptions) -> Result<OpenedVolume, ServeError> {
    let mut ledgers = Ledgers::new(options.ledger)?;
    let deadline = Instant::now() + options.patience;
    let mut candidates = Vec::new();
    for config in configs {
        candidates.push(Candidate::new(config.clone(), None)?);
    }
    let mut search = options.scan.map(Search::new);
    let (mut told, mut given_up) = (false, None);
    let mut opening = loop {
        if let Some(search) = &mut search
            && let Err(contradiction) = search.search(&mut candidates)?
        {
            // The paths to a disk appear before the multipath device that joins them.
            if Instant::now() >= deadline {
                return Err(ServeError::Refused(contradiction.to_string()));
            }
            tell_waiting(&contradiction.to_string(), &options, &mut told);
            sleep(RETRY_INTERVAL);
            continue;
        }
        passed_over::set_aside_standbys(&mut candidates);
        let refusal = match assess(&candidates, &mut ledgers, &options)? {
            Ok(opening) => {
                passed_over::check(&opening, &mut candidates)?;
                if passed_over::set_aside_short(&opening, &mut candidates) {
                    continue;
                }
                break opening;
            }
            Err(refusal) => refusal,
        };
        if let Some(error) = passed_over::needed(&mut candidates) {
            return Err(error);
        }
        if passed_over::set_aside_strangers(&refusal, &mut candidates) {
            continue;
        }
        let text =
            || refused(&refusal, &candidates, &ledgers, search.as_ref(), &options).to_string();
        let set_aside = passed_over::set_aside(&refusal, &candidates, text);
        if !set_aside.is_empty() {
            for (index, unfit) in set_aside {
                candidates[index].state = State::Unfit(unfit);
            }
            continue;
        }
        let waits = waits_for_legs(&refusal, &candidates, search.is_some());
        if waits && Instant::now() < deadline {
            let absent = match &search {
                Some(search) if candidates.is_empty() => search.nothing_found(),
                _ => absences(&candidates).join("; "),
            };
            tell_waiting(&absent, &options, &mut told);
            sleep(RETRY_INTERVAL);
            for candidate in &mut candidates {
                if candidate.wanted.is_none() {
                    candidate.try_again()?;
                }
            }
            continue;
        }
        let mut why_not = None;
        let may_give_up = options.start_degraded && given_up.is_none();
        if may_give_up && !candidates.is_empty() && lacks_legs_only(&refusal) {
            // The promotion locks the ledger, so it is released here.
            ledgers = Ledgers::new(options.ledger)?;
            match give_up_missing(&refusal, &mut candidates, options.ledger) {
                Ok(done) => {
                    tell_given_up(&done, &candidates);
                    given_up = Some(done);
                    continue;
                }
                Err(NotGivenUp::Failed(error)) => return Err(error),
                Err(NotGivenUp::Unfit(reason)) => why_not = Some(reason),
            }
        }
        let mut text = refused(&refusal, &candidates, &ledgers, search.as_ref(), &options);
        if let (Some(reason), ServeError::Refused(text)) = (why_not, &mut text) {
            text.push_str(&format!("\nstart_degraded gives up nothing here: {reason}"));
        }
        return Err(text);
    };
    let late = !opening.clean && !options.settled;
    if late && quarantine::wait_out(present(&candidates).map(|(_, leg, _)| leg)) {
        candidates.iter_mut().for_each(Candidate::read_again);
        opening = assess(&candidates, &mut ledgers, &options)?.map_err(|refusal| {
            refused(&refusal, &candidates, &ledgers, search.as_ref(), &options)
        })?;
    }
    passed_over::tell(&opening, &candidates);
    for absence in absences(&candidates) {
        tracing::warn!(absence, "the volume is served without a leg that is out");
    }
    let identities = identities(&opening, &candidates);
    let configs = candidates.iter().map(|candidate| candidate.config.clone()).collect();
    let opened = candidates.into_iter().filter_map(|candidate| match candidate.state {
        State::Present { leg, .. } => Some(leg),
        State::Absent(_) | State::Unfit(_) | State::NoLeg(_) => None,
    });
    let legs = opening.slots.iter().copied().zip(opened).collect();
    let (ledger, ledger_status) = ledgers.keep(&opening, options.settle)?;
    Ok(OpenedVolume { opening, legs, configs, ledger, ledger_status, identities, given_up })
}

/// Reports the legs that a start waits for: once to the log, and repeatedly to systemd and whoever asks.
fn tell_waiting(absent: &str, options: &OpenOptions, told: &mut bool) {
    if let Some(room) = options.waiting {
        room.say(absent);
    }
    if !std::mem::replace(told, true) {
        let seconds = options.patience.as_secs_f64();
        tracing::warn!(seconds, absent, "waiting for absent legs (wait_for_legs)");
    }
}

fn tell_given_up(given_up: &GivenUp, candidates: &[Candidate]) {
    let absent = absences(candidates).join("; ");
    tracing::error!(
        legs = given_up.legs.iter().map(u8::to_string).collect::<Vec<_>>().join(", "),
        lacks_bytes = given_up.lacks_bytes,
        uncertain_bytes = given_up.uncertain_bytes,
        absent,
        "start_degraded: missing legs are given up, and another decides alone; acknowledged writes that \
         only they held are lost"
    );
}

/// Lets recovery decide by the legs that are present, and by the ledger if one of them relies on it.
fn assess(
    candidates: &[Candidate],
    ledgers: &mut Ledgers<'_>,
    options: &OpenOptions<'_>,
) -> Result<Result<Opening, Refusal>, ServeError> {
    let views: Vec<LegImage<'_>> =
        present(candidates).map(|(_, _, metadata)| LegImage { bytes: metadata }).collect();
    let boot = ledgers.boot();
    let volume = views.iter().find_map(|view| {
        let superblock = recovery::newest_of(view.bytes).ok()?;
        superblock.ledger.filter(|mark| mark.boot == boot).map(|_| superblock.volume_id)
    });
    let ledger = volume.map(|volume| ledgers.read(volume)).transpose()?.flatten();
    let outlived = Outlived { boot, ledger, accept_loss: options.accept_loss };
    Ok(recovery::assess_outlived(&views, &outlived))
}

fn present(candidates: &[Candidate]) -> impl Iterator<Item = (&LegConfig, &OpenLeg, &[u8])> {
    candidates.iter().filter_map(|candidate| match &candidate.state {
        State::Present { leg, metadata } => Some((&candidate.config, leg, &metadata[..])),
        State::Absent(_) | State::Unfit(_) | State::NoLeg(_) => None,
    })
}

/// Returns the reason for each leg's absence.
fn absences(candidates: &[Candidate]) -> Vec<String> {
    let absent = candidates.iter().filter_map(|candidate| match &candidate.state {
        State::Present { .. } | State::Unfit(_) | State::NoLeg(_) => None,
        State::Absent(reason) => {
            Some(format!("leg {} is absent: {reason}", candidate.config.label()))
        }
    });
    absent.collect()
}

/// Returns true if recovery may need no more than the return of an absent leg. During a search, a leg may
/// also appear that no other leg names.
fn waits_for_legs(refusal: &Refusal, candidates: &[Candidate], searches: bool) -> bool {
    let for_a_leg = |problem: &Problem| {
        matches!(problem, Problem::Missing { .. } | Problem::NoLegs | Problem::Undecided { .. })
    };
    let any_absent = searches || candidates.iter().any(Candidate::is_absent);
    any_absent && refusal.problems.iter().all(for_a_leg)
}

/// Describes a refusal, with the reasons why legs are absent.
fn refused(
    refusal: &Refusal,
    candidates: &[Candidate],
    ledgers: &Ledgers<'_>,
    search: Option<&Search<'_>>,
    options: &OpenOptions<'_>,
) -> ServeError {
    if let Some(search) = search.filter(|_| candidates.is_empty()) {
        return ServeError::Absent(search.nothing_found());
    }
    let mut lines = absences(candidates);
    if !candidates.is_empty() && lines.len() == candidates.len() {
        lines.push("Check the paths, or create the volume with hemi create.".into());
        return ServeError::Absent(lines.join("\n"));
    }
    let labels: Vec<String> = present(candidates).map(|(config, ..)| config.label()).collect();
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    lines.insert(0, refusal.describe(&labels));
    lines.extend(otherwise_named(refusal, candidates));
    lines.extend(no_legs(refusal, candidates));
    lines.extend(looked_for(refusal, candidates, ledgers));
    lines.extend(candidates.iter().filter_map(|candidate| match &candidate.state {
        State::Unfit(Unfit { why, .. }) => {
            Some(format!("leg {} is out and cannot be used: {why}", candidate.config.label()))
        }
        _ => None,
    }));
    lines.extend(search.into_iter().flat_map(Search::doubts));
    let text = lines.join("\n");
    if !text.contains(PROMOTE) {
        return ServeError::Refused(text);
    }
    let legs: Vec<&LegConfig> = present(candidates).map(|(config, ..)| config).collect();
    let command = promote_command(&legs, options);
    ServeError::Refused(format!(
        "{}\n'{command}' says what would be lost, and changes nothing without --accept-loss",
        text.replace(PROMOTE, &command)
    ))
}

/// Returns the command that lets one of these legs decide.
fn promote_command(legs: &[&LegConfig], options: &OpenOptions<'_>) -> String {
    let quoted = |text: &str| match text.contains(|letter: char| " '\"\\$&;()*?`".contains(letter))
    {
        true => format!("'{}'", text.replace('\'', "'\\''")),
        false => text.to_owned(),
    };
    let leg = match legs {
        [only] => quoted(&only.label()),
        _ => "LEG".to_owned(),
    };
    if let Some(file) = options.file {
        return format!("hemi promote {} {leg}", quoted(&file.to_string_lossy()));
    }
    let mut command = format!("hemi promote {leg}");
    if legs.iter().any(|leg| !leg.direct) {
        command.push_str(" --no-direct");
    }
    if let Place::Directory(ledger) = options.ledger {
        command.push_str(&format!(" --ledger {}", quoted(&ledger.to_string_lossy())));
    }
    command
}

/// Names the paths where a missing ledger was looked for.
fn looked_for(
    refusal: &Refusal,
    candidates: &[Candidate],
    ledgers: &Ledgers<'_>,
) -> Option<String> {
    let is_missing = |problem: &Problem| matches!(problem, Problem::Ledger { error: None });
    let superblock = refusal.problems.iter().any(is_missing).then(|| {
        present(candidates).find_map(|(_, _, metadata)| recovery::newest_of(metadata).ok())
    });
    let paths = ledgers.paths(superblock??.volume_id);
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    Some(format!(
        "it was looked for at {}; another place is named by --ledger",
        paths.join(" and ")
    ))
}

/// Returns the right specs of legs that were configured by their path alone although their metadata is at the
/// end or elsewhere.
fn otherwise_named(refusal: &Refusal, candidates: &[Candidate]) -> Vec<String> {
    let legs: Vec<_> = present(candidates).collect();
    let not_legs = refusal.problems.iter().filter_map(|problem| match problem {
        Problem::NotALeg { image, .. } => legs.get(*image),
        _ => None,
    });
    let superblocks = || legs.iter().filter_map(|(.., bytes)| recovery::newest_of(bytes).ok());
    not_legs
        .filter_map(|(config, ..)| {
            other_spec(&config.path).or_else(|| {
                // A disk whose metadata is elsewhere carries no trace of it, but the other legs know.
                let LegSpec::Path(path) = &config.path else { return None };
                let own = std::path::absolute(path).ok()?;
                let specs = superblocks().flat_map(|superblock| {
                    superblock.descriptions.map(|last| last.path().parse::<LegSpec>().ok())
                });
                let spec =
                    specs.flatten().find(|spec| spec.is_apart() && spec.paths().contains(&own))?;
                Some(format!("{} was a leg of the volume by the name {spec}", path.display()))
            })
        })
        .collect()
}

/// Names what is no leg by the leg that was at its path before, whose superblock was overwritten or whose place
/// another disk has taken, and says how it becomes one.
fn no_legs(refusal: &Refusal, candidates: &[Candidate]) -> Vec<String> {
    let legs: Vec<_> = present(candidates).collect();
    let superblocks: Vec<_> =
        legs.iter().filter_map(|(_, _, metadata)| recovery::newest_of(metadata).ok()).collect();
    let mut lines = Vec::new();
    for problem in &refusal.problems {
        let Problem::NotALeg { image, .. } = problem else { continue };
        let Some((config, leg, _)) = legs.get(*image) else { continue };
        let (label, path) = (config.label(), leg.describe());
        let known = superblocks.iter().find_map(|superblock| {
            let mut legs = superblock.descriptions.iter().zip(0..);
            legs.find(|(last, _)| !last.is_empty() && last.path() == path.path())
        });
        if let Some((last, slot)) = known {
            lines.push(format!(
                "{label}: leg {slot} of the volume was here ({last}); its superblock was overwritten, \
                 or the path leads to another disk now. If that leg is lost, let another decide with \
                 '{PROMOTE}', and then fill this one with 'hemi leg replace {slot} {label}'"
            ));
        } else if !superblocks.is_empty() && other_spec(&config.path).is_none() {
            lines.push(format!(
                "{label}: it becomes a new leg with 'hemi leg add {label}' once the volume is served"
            ));
        }
    }
    lines
}

/// Names every leg of the volume by its slot: a present leg by its configuration, and an absent one by the
/// configuration if it still tells, else by what the other legs know of it.
fn identities(opening: &Opening, candidates: &[Candidate]) -> Vec<LegIdentity> {
    let named = |leg: LegIndex, config: &LegConfig| LegIdentity {
        leg: leg.0,
        name: config.label(),
        path: config.path.to_string(),
    };
    let configs = present(candidates).map(|(config, ..)| config);
    let mut identities: Vec<LegIdentity> =
        opening.slots.iter().zip(configs).map(|(slot, config)| named(*slot, config)).collect();
    let superblock = &opening.superblock;
    for slot in (0..LEGS_MAX as u8).map(LegIndex) {
        let is_member = superblock.legs[slot.index()].state != Membership::Empty;
        let last = superblock.descriptions[slot.index()];
        if !is_member || opening.slots.contains(&slot) || last.is_empty() {
            continue;
        }
        let absent = candidates.iter().filter(|one| !one.is_present() && one.wanted.is_none());
        let same = |config: &&LegConfig| is_path(config, Path::new(last.path()));
        identities.push(match absent.map(|one| &one.config).find(same) {
            Some(config) => named(slot, config),
            None => LegIdentity {
                leg: slot.0,
                name: last.path().to_owned(),
                path: last.path().to_owned(),
            },
        });
    }
    identities.sort_by_key(|identity| identity.leg);
    identities
}

/// Returns true if a leg is configured by this path or spec.
pub(crate) fn is_path(config: &LegConfig, path: &Path) -> bool {
    match &config.path {
        LegSpec::Path(own) => std::path::absolute(own).is_ok_and(|own| own == path),
        LegSpec::End(_) | LegSpec::External { .. } => {
            let own = config.path.absolute().map(|spec| spec.to_string());
            own.is_ok_and(|own| own == path.to_string_lossy())
        }
        _ => config.path.to_string() == path.to_string_lossy(),
    }
}
