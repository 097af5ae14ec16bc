//! Refuses legs that two paths lead to: two new ones on one storage, or a new one on storage that is in use.

use std::io;

use hemi_engine::format::Id;
use hemi_io::config::legs::{LegConfig, LegSpec};
use hemi_io::leg::device::Device;
use hemi_io::leg::{FileOptions, OpenLeg, Purpose, apart};
use hemi_io::twin::{self, InUse, Medium, STAMP_OFFSET, Seen, Users};

use super::CreateError;
use super::candidate::Candidate;

/// The legs that a served volume uses, while another is about to join.
#[derive(Clone, Debug, Default)]
pub struct LegsInUse {
    /// The volume's id; `None` if this process serves no volume.
    pub volume: Option<Id>,
    /// The slots that are in use, with the spec of a remote leg.
    pub slots: Vec<(u8, Option<LegSpec>)>,
}

impl LegsInUse {
    fn find(&self, seen: Seen) -> Option<&(u8, Option<LegSpec>)> {
        self.slots.iter().find(|(slot, _)| *slot == seen.leg.0)
    }
}

impl Users for LegsInUse {
    fn pass_over(&self, process: u32, seen: Option<Seen>) -> bool {
        if process != std::process::id() {
            return false;
        }
        match (self.volume, seen) {
            // They are new legs themselves.
            (None, _) => true,
            // A leg that is out may come back by another path.
            (Some(own), Some(seen)) => seen.volume == own && self.find(seen).is_none(),
            (Some(_), None) => false,
        }
    }

    fn remote(&self, seen: Seen) -> Option<LegSpec> {
        let is_own = self.volume == Some(seen.volume);
        self.find(seen).filter(|_| is_own)?.1.clone()
    }
}

/// Checks that an opened leg is not in use by another path.
///
/// # Errors
/// [`CreateError::OtherPath`] if it is, or if that cannot be ruled out.
pub(super) fn check_unused(name: &str, leg: &OpenLeg, legs: &LegsInUse) -> Result<(), CreateError> {
    let path = |medium: usize| match leg.devices().get(medium) {
        Some(device) => device.path().display().to_string(),
        None => name.to_owned(),
    };
    for (index, medium) in Medium::of(leg).iter().enumerate() {
        check_medium(path(index), medium, legs)?;
    }
    Ok(())
}

fn check_medium(path: String, medium: &Medium<'_>, legs: &LegsInUse) -> Result<(), CreateError> {
    match twin::in_use(medium, legs) {
        Ok(None) => Ok(()),
        Ok(Some(used)) => Err(CreateError::OtherPath { path, used }),
        Err(source) => Err(CreateError::Read { path, source }),
    }
}

/// Returns the error of a leg that is in use by another path instead of the error that it is not empty, whose
/// way out is to wipe it.
pub(super) fn instead_of(
    error: CreateError,
    candidates: &[Candidate],
    files: FileOptions,
    legs: &LegsInUse,
) -> CreateError {
    if !matches!(error, CreateError::NotEmpty { .. }) {
        return error;
    }
    for member in candidates.iter().flat_map(|candidate| &candidate.members) {
        let Ok(device) = Device::open(&member.path, files, Purpose::Serve) else { continue };
        let path = member.path.display().to_string();
        if let Err(other @ CreateError::OtherPath { .. }) =
            check_medium(path, &Medium::local(&device), legs)
        {
            return other;
        }
    }
    error
}

/// Checks that a leg named by its configuration is not in use by another path. A leg that cannot be opened is
/// not looked at.
///
/// # Errors
/// [`CreateError::OtherPath`] if it is, or if that cannot be ruled out.
pub fn check_configured(config: &LegConfig, legs: &LegsInUse) -> Result<(), CreateError> {
    match OpenLeg::configured(config, Purpose::Serve) {
        Ok(leg) => check_unused(&config.path.to_string(), &leg, legs),
        Err(_) => Ok(()),
    }
}

/// Checks that no two files, devices or exports of new legs are one. Nothing that is kept is overwritten.
///
/// # Errors
/// [`CreateError::Same`] if two are.
pub(super) fn check_apart(candidates: &[Candidate], legs: &[OpenLeg]) -> Result<(), CreateError> {
    let mut names = Vec::new();
    let mut media = Vec::new();
    for (candidate, leg) in candidates.iter().zip(legs) {
        for (number, medium) in Medium::of(leg).into_iter().enumerate() {
            let device = leg.devices().get(number);
            names.push(device.map_or_else(|| candidate.text.clone().into(), |it| it.path().into()));
            let stamp = match (&candidate.spec, device) {
                (LegSpec::End(_), Some(device)) => {
                    apart::head_at_end(device.size()).map(|head| head + STAMP_OFFSET)
                }
                (LegSpec::External { .. }, _) if candidate.adopted && number == 0 => None,
                _ => Some(STAMP_OFFSET),
            };
            media.push((medium, stamp));
        }
    }
    let failed = |source: io::Error| CreateError::Write {
        action: "compare the legs with each other:",
        path: candidates.iter().map(|one| &*one.text).collect::<Vec<_>>().join(", "),
        source,
    };
    match twin::twins(&media).map_err(failed)? {
        None => Ok(()),
        Some((first, second)) => Err(CreateError::Same {
            first: std::mem::take(&mut names[first]),
            second: std::mem::take(&mut names[second]),
            what: "storage by two paths (what is written to one is read from the other)",
        }),
    }
}

/// Formats what is known of the storage in use that a path also leads to.
pub(super) fn describe(path: &str, used: &InUse) -> String {
    let user = match used.process {
        Some(process) if process == std::process::id() => "this volume".to_owned(),
        Some(process) => format!("another hemi or program (process {process})"),
        None => "this volume".to_owned(),
    };
    let other = &used.path;
    match &used.unproven {
        None => format!(
            "{path} is another path to {other}, which {user} has in use: what is written to one is read \
             from the other. Name another disk; --wipe does not override this"
        ),
        Some(why) => format!(
            "{path} may be another path to {other}, which {user} has in use ({why}). Release that one \
             first, or name another disk; --wipe does not override this"
        ),
    }
}
