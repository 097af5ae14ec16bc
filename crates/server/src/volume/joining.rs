//! Legs that join a volume being served. They are checked and prepared on another thread and
//! then handed to the reactor.

use std::path::Path;

use hemi_engine::format::{Layout, Membership, Superblock};
use hemi_engine::identifiers::{LEGS_MAX, LegIndex};
use hemi_engine::io::OutReason;
use hemi_engine::status::LegState;

use super::{on_a_thread, refusal};
use crate::control::volume::{LegIdentity, Outcome, Refusal, RefusalKind, Snapshot};
use crate::create::{
    CreateError, JoinOptions, LegsInUse, Share, check_configured, prepare_join, superblock_of,
};
use crate::messages::{ReactorHandle, ReactorMessage};
use crate::opening::is_path;
use hemi_io::config::legs::{LegConfig, LegSpec};
use hemi_io::probe::other_spec;

/// The way in which a leg joins.
#[derive(Clone, Copy, Debug)]
pub(super) enum Coming {
    /// It joins a free slot.
    Add { leg: Option<u8>, wipe: bool, spare: Option<Share> },
    /// It takes the slot of a leg that is out or gone.
    Replace { leg: u8, wipe: bool, spare: Option<Share> },
    /// It returns to its own slot.
    Attach { wipe: bool },
}

/// Checks, prepares and joins a leg on a thread of its own. Reading a drive blocks, and the
/// thread completes even if the caller is gone, so that no half-prepared leg is left behind.
pub(super) fn join(reactor: ReactorHandle, config: LegConfig, coming: Coming) -> Outcome {
    let what = "making the leg ready";
    on_a_thread("hemi-join", what, move || join_blocking(&reactor, &config, coming))
}

fn join_blocking(
    reactor: &ReactorHandle,
    config: &LegConfig,
    coming: Coming,
) -> Result<(), Refusal> {
    let (leg, opened, id) = make_ready(&reactor.snapshot(), config, coming)?;
    let name = name_of(&reactor.snapshot().legs, leg, config, coming);
    let opened = Box::new(opened);
    reactor
        .wait_for(|reply| ReactorMessage::Attach { leg, opened, name, id, reply })
        .map_err(refusal)
}

/// Returns the name of a leg that joins. One that was in the slot before keeps its name, even
/// if its path is spelled differently now, so that log lines, metrics and the history continue
/// under it.
fn name_of(known: &[LegIdentity], leg: LegIndex, config: &LegConfig, coming: Coming) -> String {
    if let Some(name) = &config.name {
        return name.clone();
    }
    let before = known.iter().find(|known| known.leg == leg.0);
    let is_same = |known: &&LegIdentity| {
        let own_name = matches!(coming, Coming::Attach { .. }) && known.name != known.path;
        own_name || is_place(config, &known.path)
    };
    before.filter(is_same).map_or_else(|| config.label(), |known| known.name.clone())
}

/// Returns true if the spec of a configured leg leads to the same place as `known`.
pub(crate) fn is_place(config: &LegConfig, known: &str) -> bool {
    let known = Path::new(known);
    // A path may have been spelled differently. A spec that is not a path is compared as it is.
    let resolved = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path));
    let same = match (&config.path, resolved(known)) {
        (LegSpec::Path(own), Ok(known)) => resolved(own).is_ok_and(|own| own == known),
        (_, Ok(known)) => is_path(config, &known),
        _ => false,
    };
    same || is_path(config, known)
}

type Ready = (LegIndex, hemi_io::leg::OpenLeg, [u8; 16]);

fn make_ready(snapshot: &Snapshot, config: &LegConfig, coming: Coming) -> Result<Ready, Refusal> {
    config.check("config").map_err(|error| {
        let way_out = "docs/configuration.md lists the options of a leg.";
        Refusal::new(RefusalKind::BadRequest, error.to_string(), way_out)
    })?;
    let (leg, wipe, spare) = match coming {
        Coming::Add { leg, wipe, spare } => (free_slot(snapshot, leg)?, wipe, spare),
        Coming::Replace { leg, wipe, spare } => (vacant_slot(snapshot, leg)?, wipe, spare),
        // Its content is known to be from this volume's past, and the drain overwrites all of
        // it.
        Coming::Attach { wipe } => (own_slot(snapshot, config, wipe)?, true, None),
    };
    let options = join_options(snapshot, config, wipe, spare)?;
    let (opened, id) = prepare_join(&options).map_err(unprepared)?;
    Ok((leg, opened, id))
}

/// Returns the options by which a drive is made ready for the volume.
pub(super) fn join_options(
    snapshot: &Snapshot,
    config: &LegConfig,
    wipe: bool,
    spare: Option<Share>,
) -> Result<JoinOptions, Refusal> {
    let identity = &snapshot.identity;
    let layout = Layout::new(identity.size_bytes, identity.region_bytes).map_err(|error| {
        Refusal::new(RefusalKind::Failed, error.to_string(), "Report it: this is a defect.")
    })?;
    Ok(JoinOptions {
        config: config.clone(),
        layout,
        block_bytes: identity.block_bytes,
        wipe,
        spare,
        volume: identity.id,
        in_use: legs_in_use(snapshot),
        name: identity.name.clone(),
    })
}

/// Returns the legs that the volume uses.
fn legs_in_use(snapshot: &Snapshot) -> LegsInUse {
    let is_used = |leg: &&LegIdentity| {
        matches!(state(snapshot, leg.leg), LegState::Healthy | LegState::Lagging | LegState::Frozen)
    };
    let remote = |leg: &LegIdentity| leg.path.parse().ok().filter(LegSpec::is_remote);
    let slots = snapshot.legs.iter().filter(is_used).map(|leg| (leg.leg, remote(leg))).collect();
    LegsInUse { volume: Some(snapshot.identity.id), slots }
}

/// Returns the state of the leg in a slot.
pub(crate) fn state(snapshot: &Snapshot, leg: u8) -> LegState {
    let found = snapshot.status.legs.iter().find(|status| status.leg == leg);
    found.map_or(LegState::Empty, |status| status.state)
}

fn slot(leg: u8) -> Result<LegIndex, Refusal> {
    if usize::from(leg) < LEGS_MAX {
        return Ok(LegIndex(leg));
    }
    let what = format!("there is no slot {leg}");
    Err(Refusal::new(RefusalKind::BadRequest, what, format!("Use 0 to {}.", LEGS_MAX - 1)))
}

/// Returns the requested slot if it is free, or the first free one.
pub(crate) fn free_slot(snapshot: &Snapshot, asked: Option<u8>) -> Result<LegIndex, Refusal> {
    let Some(leg) = asked else {
        let free = (0..LEGS_MAX as u8).find(|leg| state(snapshot, *leg) == LegState::Empty);
        return free.map(LegIndex).ok_or_else(|| {
            let what = format!("all {LEGS_MAX} slots hold legs");
            let way_out = "Detach and remove one first, or replace one that is out.";
            Refusal::new(RefusalKind::Conflict, what, way_out)
        });
    };
    if state(snapshot, leg) != LegState::Empty {
        let what = format!("slot {leg} holds a leg already");
        let way_out = "Use a free slot, or hemi leg replace.";
        return Err(Refusal::new(RefusalKind::Conflict, what, way_out));
    }
    slot(leg)
}

/// Returns the slot of a leg that can be replaced.
fn vacant_slot(snapshot: &Snapshot, leg: u8) -> Result<LegIndex, Refusal> {
    let way_out = match state(snapshot, leg) {
        LegState::Out | LegState::Gone => return slot(leg),
        LegState::Empty => {
            slot(leg)?;
            let what = format!("slot {leg} holds no leg to replace");
            let way_out = format!("hemi leg add --slot {leg} puts one there.");
            return Err(Refusal::new(RefusalKind::NotFound, what, way_out));
        }
        LegState::Frozen => "Wait until it is out (engine.out_after), or detach it.",
        LegState::Healthy | LegState::Lagging => "Detach it first: hemi leg detach.",
    };
    let what = format!("leg {leg} is still part of the volume");
    Err(Refusal::new(RefusalKind::Conflict, what, way_out))
}

/// Returns the slot that a leg of this volume had, if no data that exists only on it would be
/// lost. A detached leg is a disk image of its own and may only be overwritten with `wipe`.
fn own_slot(snapshot: &Snapshot, config: &LegConfig, wipe: bool) -> Result<LegIndex, Refusal> {
    let label = config.label();
    let found = superblock_of(config).map_err(unprepared)?;
    // A disk in the place of a leg that is out has that leg's slot.
    let mut out = snapshot.legs.iter().filter(|known| {
        matches!(state(snapshot, known.leg), LegState::Out | LegState::Gone)
            && is_place(config, &known.path)
    });
    let command = match out.next() {
        Some(LegIdentity { leg, .. }) => format!("hemi leg replace {leg} {label}"),
        None => format!("hemi leg add {label}"),
    };
    let Some(superblock) = found else {
        let what = other_spec(&config.path);
        let what = what.unwrap_or_else(|| format!("{label} is not a leg of any volume"));
        let way_out = format!("{command} makes a leg of it (--wipe destroys what it holds).");
        return Err(Refusal::new(RefusalKind::BadRequest, what, way_out));
    };
    if superblock.volume_id != snapshot.identity.id {
        let what = format!("{label} is a leg of another volume, {:?}", superblock.name.as_str());
        let way_out = format!(
            "{command} --wipe makes a leg of this volume of it, if that one is not needed any more."
        );
        return Err(Refusal::new(RefusalKind::Unsafe, what, way_out));
    }
    check_history(snapshot, &label, &superblock)?;
    if superblock.own_record().state == Membership::Out(OutReason::Detached) && !wipe {
        let what = format!(
            "{label} was detached and may have been used without hemi since: attaching it \
             overwrites everything on it"
        );
        let way_out = "Save what you need from it, then add --wipe.";
        return Err(Refusal::new(RefusalKind::Unsafe, what, way_out));
    }
    let leg = superblock.leg.0;
    match state(snapshot, leg) {
        LegState::Empty | LegState::Out | LegState::Gone => slot(leg),
        LegState::Healthy | LegState::Lagging | LegState::Frozen => {
            check_configured(config, &legs_in_use(snapshot)).map_err(unprepared)?;
            let what = format!("slot {leg}, which {label} had, holds another leg");
            let way_out = "hemi leg add --wipe puts it into a free slot.";
            Err(Refusal::new(RefusalKind::Conflict, what, way_out))
        }
    }
}

/// Refuses a leg that was used without the others, because it may hold data that no other leg
/// has. It is filled anew only if explicitly requested.
fn check_history(snapshot: &Snapshot, label: &str, superblock: &Superblock) -> Result<(), Refusal> {
    if snapshot.generations.contains(&superblock.generation) {
        return Ok(());
    }
    let what = format!("{label} was used without the other legs: it may hold what they do not");
    let way_out = "Look at it first (hemi inspect). hemi leg add --wipe destroys what it holds.";
    Err(Refusal::new(RefusalKind::Unsafe, what, way_out))
}

/// Returns the reason why a leg was not prepared, with its kind.
pub(super) fn unprepared(error: CreateError) -> Refusal {
    let (kind, way_out) = match &error {
        CreateError::NotEmpty { what, contents } => {
            let contents: Vec<String> = contents.iter().map(ToString::to_string).collect();
            let what = format!("{what} is not empty; it holds {}", contents.join(", "));
            let way_out = "Add --wipe if that may be destroyed.";
            return Refusal::new(RefusalKind::Unsafe, what, way_out);
        }
        CreateError::InUse { .. } | CreateError::Same { .. } | CreateError::OtherPath { .. } => {
            (RefusalKind::Unsafe, "")
        }
        CreateError::TooSmall { .. } | CreateError::BlockBytes { .. } => {
            (RefusalKind::Conflict, "Use another drive.")
        }
        CreateError::Spare { .. } | CreateError::NoSpare { .. } => (RefusalKind::Conflict, ""),
        _ => (RefusalKind::Failed, "Look at the drive and its path."),
    };
    Refusal::new(kind, error.to_string(), way_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leg_that_comes_back_keeps_its_name() {
        let known =
            |name: &str, path: &str| [LegIdentity { leg: 1, name: name.into(), path: path.into() }];
        let name = |known: &[LegIdentity], spec: &str, coming| {
            let config = LegConfig::new(spec.parse().expect("a spec"));
            name_of(known, LegIndex(1), &config, coming)
        };
        let here = std::path::absolute("b.img").expect("there is a directory");
        let here = here.to_str().expect("it is UTF-8");
        let (attach, add) =
            (Coming::Attach { wipe: true }, Coming::Add { leg: None, wipe: false, spare: None });
        for coming in [attach, add] {
            assert_eq!(name(&known("b.img", "b.img"), here, coming), "b.img", "the same file");
            assert_eq!(name(&known("/x/b.img", "/x/b.img"), "/y/b.img", coming), "/y/b.img");
            assert_eq!(name(&[], here, coming), here, "nothing was there");
        }
        assert_eq!(name(&known("hdd", "/dev/sdb"), "/dev/sdc", attach), "hdd", "it has moved");
        assert_eq!(name(&known("hdd", "/dev/sdb"), "/dev/sdc", add), "/dev/sdc", "it is another");
        let config = LegConfig {
            name: Some("new".into()),
            ..LegConfig::new("/dev/sdb".parse().expect("a path"))
        };
        assert_eq!(name_of(&known("hdd", "/dev/sdb"), LegIndex(1), &config, attach), "new");
    }
}
