//! Legs on the way to being formatted, and everything that may stand against it.

use std::path::{Path, PathBuf};

use hemi_core::format::Layout;

use super::{CreateError, CreateOptions, LEGS_MIN};
use crate::blocking::BlockingLeg;
use crate::config::legs::LegSpec;
use crate::leg::stripe;
use crate::probe::{Kind, Probe, contents_of_leg, folder_of};
use hemi_core::units::LEGS_MAX;

/// A file or device of a leg.
pub(super) struct Member {
    pub(super) path: PathBuf,
    pub(super) probe: Probe,
    /// Whether its content may be destroyed.
    pub(super) wipe: bool,
}

/// A leg to be.
pub(super) struct Candidate {
    /// As it was named.
    pub(super) text: String,
    pub(super) spec: LegSpec,
    /// What it consists of; nothing for a remote leg.
    pub(super) members: Vec<Member>,
    /// Whether a remote leg's content may be destroyed.
    pub(super) wipe_remote: bool,
}

impl Candidate {
    /// How many bytes each member needs.
    pub(super) fn share(&self, layout: &Layout) -> u64 {
        match &self.spec {
            LegSpec::Stripe { paths, chunk } => {
                let share = layout.leg_bytes().div_ceil(paths.len() as u64);
                stripe::DATA_OFFSET + share.next_multiple_of(chunk.0)
            }
            _ => layout.leg_bytes(),
        }
    }

    /// Whether files were missing: they are made.
    pub(super) fn makes_files(&self) -> bool {
        self.members.iter().any(|member| member.probe.kind == Kind::Missing)
    }
}

/// Understands the legs' names and looks at what is there.
pub(super) fn candidates(options: &CreateOptions) -> Result<Vec<Candidate>, CreateError> {
    if !(LEGS_MIN..=LEGS_MAX).contains(&options.legs.len()) {
        return Err(CreateError::LegCount(options.legs.len()));
    }
    let mut specs = Vec::new();
    for text in &options.legs {
        specs.push((text, text.parse::<LegSpec>()?));
    }
    for wipe in &options.wipe {
        let named = specs.iter().any(|(text, spec)| {
            spec.paths().iter().any(|path| same_path(path, wipe)) || is_text(wipe, text)
        });
        if !named {
            return Err(CreateError::WipeWhat(wipe.clone()));
        }
    }
    let mut candidates = Vec::new();
    for (text, spec) in specs {
        let all = options.wipe.iter().any(|wipe| is_text(wipe, text));
        let mut members = Vec::new();
        for path in spec.paths() {
            members.push(Member {
                path: path.clone(),
                probe: Probe::new(path)?,
                wipe: all || options.wipe.iter().any(|wipe| same_path(path, wipe)),
            });
        }
        candidates.push(Candidate { text: text.clone(), spec, members, wipe_remote: all });
    }
    Ok(candidates)
}

fn is_text(wipe: &Path, text: &str) -> bool {
    wipe.to_str() == Some(text)
}

fn same_path(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

/// Everything that can be said before a leg is opened for writing.
pub(super) fn check(candidates: &[Candidate], layout: &Layout) -> Result<(), CreateError> {
    let members: Vec<_> =
        candidates.iter().flat_map(|leg| leg.members.iter().map(move |one| (leg, one))).collect();
    for (index, (_, member)) in members.iter().enumerate() {
        for (_, other) in &members[..index] {
            check_distinct(other, member)?;
        }
    }
    for (candidate, member) in members {
        let path = member.path.clone();
        if !member.probe.uses.is_empty() {
            return Err(CreateError::InUse { path, uses: member.probe.uses.clone() });
        }
        let (has, needs) = (member.probe.size, candidate.share(layout));
        // A file without content is given its size, like one that is made.
        let fixed = member.probe.kind == Kind::Block || has > 0;
        if fixed && has < needs {
            let volume = layout.volume_bytes();
            return Err(CreateError::TooSmall { path, has, needs, volume });
        }
    }
    candidates.iter().try_for_each(check_members_empty)
}

fn check_distinct(one: &Member, other: &Member) -> Result<(), CreateError> {
    let same = match (one.probe.identity, other.probe.identity) {
        (Some(one), Some(other)) => one == other,
        (None, None) => missing_place(&one.path) == missing_place(&other.path),
        _ => false,
    };
    if !same {
        return Ok(());
    }
    let what = if one.probe.kind == Kind::Block { "block device" } else { "file" };
    Err(CreateError::Same { first: one.path.clone(), second: other.path.clone(), what })
}

/// Where a file that does not exist yet will be, its folder's links resolved.
fn missing_place(path: &Path) -> PathBuf {
    let folder = folder_of(path);
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.into());
    folder.join(path.file_name().unwrap_or_default())
}

fn check_members_empty(candidate: &Candidate) -> Result<(), CreateError> {
    for member in candidate.members.iter().filter(|member| !member.wipe) {
        let contents = member.probe.contents()?;
        if !contents.is_empty() {
            let what = member.path.display().to_string();
            return Err(CreateError::NotEmpty { what, contents });
        }
    }
    Ok(())
}

/// The last look, now that nobody else can come in between.
pub(super) fn check_opened(
    candidate: &Candidate,
    leg: &dyn BlockingLeg,
    layout: &Layout,
) -> Result<(), CreateError> {
    check_members_empty(candidate)?;
    let (has, needs) = (leg.size(), layout.leg_bytes());
    if has < needs {
        let (path, volume) = (candidate.text.clone().into(), layout.volume_bytes());
        return Err(CreateError::TooSmall { path, has, needs, volume });
    }
    if candidate.members.is_empty() && !candidate.wipe_remote {
        let what = candidate.text.clone();
        let contents = contents_of_leg(leg)
            .map_err(|source| CreateError::Read { path: what.clone(), source })?;
        if !contents.is_empty() {
            return Err(CreateError::NotEmpty { what, contents });
        }
    }
    Ok(())
}
