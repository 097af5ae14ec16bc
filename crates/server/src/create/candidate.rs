//! Legs that are about to be formatted, and the checks that may forbid it.

use std::path::{Path, PathBuf};

use hemi_engine::format::Layout;

use super::largest::Room;
use super::spare::{self, Share};
use super::{CreateError, CreateOptions, LEGS_MIN, MISSING, content};
use hemi_engine::identifiers::LEGS_MAX;
use hemi_io::blocking::BlockingLeg;
use hemi_io::config::legs::LegSpec;
use hemi_io::leg::{FileOptions, OpenLeg, Purpose, apart, stripe};
use hemi_io::probe::{Kind, Probe, contents_of_leg, folder_of};

/// A file or device of a leg.
pub(super) struct Member {
    pub(super) path: PathBuf,
    pub(super) probe: Probe,
    /// True if its content may be destroyed.
    pub(super) wipe: bool,
}

/// A leg about to be formatted.
pub(super) struct Candidate {
    /// Its name on the command line.
    pub(super) text: String,
    pub(super) spec: LegSpec,
    /// Its files or devices; empty for a remote leg.
    pub(super) members: Vec<Member>,
    /// True if a remote leg's content may be destroyed.
    pub(super) wipe_remote: bool,
    /// True if the content of its first member stays and becomes the volume's.
    pub(super) adopted: bool,
    /// The share of each member to leave unused.
    pub(super) spare: Option<Share>,
}

impl Candidate {
    /// Returns the number of bytes that a member needs.
    pub(super) fn share(&self, member: usize, layout: &Layout) -> u64 {
        match &self.spec {
            LegSpec::Stripe { paths, chunk } => {
                let share = layout.leg_bytes().div_ceil(paths.len() as u64);
                stripe::DATA_OFFSET + share.next_multiple_of(chunk.0)
            }
            LegSpec::End(_) => apart::size_for(layout.leg_bytes()),
            LegSpec::External { .. } if member == 0 => layout.volume_bytes(),
            LegSpec::External { .. } => apart::METADATA_OFFSET + layout.data_offset(),
            LegSpec::Path(_) | LegSpec::NbdTcp { .. } | LegSpec::NbdUnix { .. } => {
                layout.leg_bytes()
            }
        }
    }

    /// Returns the room it has for a volume.
    pub(super) fn room(&self) -> Result<Room, CreateError> {
        let size = |member: &Member| match member.probe.size {
            0 => Err(CreateError::SizeOfNothing(member.path.clone())),
            _ => Ok(self.usable(member)),
        };
        let leg = match (&self.spec, &self.members[..]) {
            (LegSpec::Stripe { chunk, .. }, members) => {
                let sizes = members.iter().map(size).collect::<Result<Vec<_>, _>>()?;
                let smallest = sizes.into_iter().min().unwrap_or(0);
                let share = smallest.saturating_sub(stripe::DATA_OFFSET) / chunk.0 * chunk.0;
                share * members.len() as u64
            }
            (LegSpec::External { .. }, [data, metadata]) => {
                let room = match metadata.probe.size {
                    0 => u64::MAX,
                    size => size.saturating_sub(apart::METADATA_OFFSET),
                };
                return Ok(Room { data: size(data)?, metadata: room, ..Room::ANY });
            }
            (LegSpec::End(_), [only]) => apart::end_of(size(only)?),
            (_, [only]) => size(only)?,
            // Its size is known only once there is a session.
            (spec, _) => OpenLeg::open(spec, FileOptions::default(), Purpose::Inspect)?.size(),
        };
        Ok(Room { leg, ..Room::ANY })
    }

    /// Returns true if some of its files do not exist and will be created.
    pub(super) fn makes_files(&self) -> bool {
        self.members.iter().any(|member| member.probe.kind == Kind::Missing)
    }
}

/// Parses the legs' names and probes what they name.
pub(super) fn candidates(options: &CreateOptions) -> Result<Vec<Candidate>, CreateError> {
    let mut specs = Vec::new();
    if let Some(adopt) = &options.adopt {
        let spec = adopt.spec();
        let text = spec.to_string();
        let named = |wipe: &&PathBuf| same_path(&adopt.path, wipe) || is_text(wipe, &text);
        if let Some(wipe) = options.wipe.iter().find(named) {
            return Err(CreateError::WipeAdopted(wipe.clone()));
        }
        if options.zero {
            return Err(CreateError::ZeroAdopted);
        }
        specs.push((text, spec));
    }
    let (missing, named): (Vec<_>, Vec<_>) = options.legs.iter().partition(|leg| *leg == MISSING);
    for text in named {
        specs.push((text.clone(), text.parse::<LegSpec>()?));
    }
    match (specs.len(), missing.len()) {
        (LEGS_MIN..=LEGS_MAX, 0) | (1, 1) => {}
        (legs, 0) => return Err(CreateError::LegCount(legs)),
        (legs, missing) => return Err(CreateError::Missing { legs, missing }),
    }
    for wipe in &options.wipe {
        let named = specs.iter().any(|(text, spec)| {
            spec.paths().iter().any(|path| same_path(path, wipe)) || is_text(wipe, text)
        });
        if !named {
            return Err(CreateError::WipeWhat(wipe.clone()));
        }
    }
    let texts: Vec<String> = specs.iter().map(|(text, _)| text.clone()).collect();
    let shares = spare::shares(&options.spare, &texts)?;
    let mut candidates = Vec::new();
    for (index, ((text, spec), spare)) in specs.into_iter().zip(shares).enumerate() {
        let all = options.wipe.iter().any(|wipe| is_text(wipe, &text));
        let mut members = Vec::new();
        for path in spec.paths() {
            members.push(Member {
                path: path.clone(),
                probe: Probe::new(path)?,
                wipe: all || options.wipe.iter().any(|wipe| same_path(path, wipe)),
            });
        }
        let adopted = index == 0 && options.adopt.is_some();
        if let Some(Member { path, probe, .. }) = members.first().filter(|_| adopted)
            && (probe.kind == Kind::Missing || probe.size == 0)
        {
            let reason = "there is nothing at this path".into();
            return Err(CreateError::Adopt { path: path.clone(), reason });
        }
        candidates.push(Candidate { text, spec, members, wipe_remote: all, adopted, spare });
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

/// Makes all checks that are possible before a leg is opened for writing.
pub(super) fn check(candidates: &[Candidate], layout: &Layout) -> Result<(), CreateError> {
    let members = || {
        candidates.iter().flat_map(|leg| {
            leg.members.iter().enumerate().map(move |(number, one)| (leg, number, one))
        })
    };
    for (index, (_, _, member)) in members().enumerate() {
        for (_, _, other) in members().take(index) {
            check_distinct(other, member)?;
        }
    }
    for (candidate, number, member) in members() {
        let path = member.path.clone();
        if !member.probe.uses.is_empty() {
            return Err(CreateError::InUse { path, uses: member.probe.uses.clone() });
        }
        let (has, needs) = (member.probe.size, candidate.share(number, layout));
        // An empty file is extended to its size, like one that is created.
        let fixed = member.probe.kind == Kind::Block || has > 0;
        let (volume, usable) = (layout.volume_bytes(), candidate.usable(member));
        if let Some(share) = candidate.spare.filter(|_| has >= needs && usable < needs) {
            return Err(CreateError::NoSpare { path, share, usable, needs, volume });
        }
        if fixed && has < needs {
            return Err(CreateError::TooSmall { path, has, needs, volume });
        }
    }
    candidates.iter().try_for_each(Candidate::check_spare)?;
    candidates.iter().try_for_each(|candidate| check_members(candidate, layout))
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

/// Returns the path that a missing file will have, with its directory's links resolved.
fn missing_place(path: &Path) -> PathBuf {
    let folder = folder_of(path);
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.into());
    folder.join(path.file_name().unwrap_or_default())
}

/// Checks that a leg's members are empty, or that the content of an adopted one can stay.
fn check_members(candidate: &Candidate, layout: &Layout) -> Result<(), CreateError> {
    for (number, member) in candidate.members.iter().enumerate() {
        if candidate.adopted && number == 0 {
            content::check(&member.probe, &candidate.spec, layout)?;
            continue;
        }
        if member.wipe {
            continue;
        }
        let contents = member.probe.contents()?;
        if !contents.is_empty() {
            let what = member.path.display().to_string();
            return Err(CreateError::NotEmpty { what, contents });
        }
    }
    Ok(())
}

/// Checks a leg once more, now that it is locked.
pub(super) fn check_opened(
    candidate: &Candidate,
    leg: &dyn BlockingLeg,
    layout: &Layout,
) -> Result<(), CreateError> {
    check_members(candidate, layout)?;
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
