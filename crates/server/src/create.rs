//! `hemi create`: formats legs into a new volume.
//!
//! Everything is checked before anything is changed, so that a refusal leaves every leg as it
//! was; see [`hemi_io::probe`] for what is asked. What is written in which order is
//! in `create/format.rs`.

use std::io;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use hemi_engine::format::layout::{VOLUME_GRAIN, default_region_bytes};
use hemi_engine::format::superblock::Name;
use hemi_engine::format::{Id, Layout, LegDescription};
use hemi_engine::identifiers::LEGS_MAX;

use hemi_io::blocking::BlockingLeg;
use hemi_io::config::legs::LegSpec;
use hemi_io::leg::{FileOptions, OpenError, OpenLeg, Purpose};
use hemi_io::probe::{Kind, folder_of};
use hemi_io::random;

mod candidate;
mod content;
mod created;
mod error;
mod format;
mod join;
mod largest;
mod prepare;
mod spare;
mod standby;
mod twins;

pub use created::{Created, CreatedLeg};
pub use error::CreateError;
pub use join::{JoinOptions, prepare_join, superblock_of};
pub use spare::{Share, Spare};
pub use standby::{Joined, make_standby, take_standby, unfit, write_standby};
pub use twins::{LegsInUse, check_configured};

use candidate::Candidate;
use created::created;
use format::{FormatError, Plan};
use hemi_io::signature::Signature;
use largest::Room;

/// Minimum number of legs of a new volume.
pub const LEGS_MIN: usize = 2;

/// The word for a second leg that is to be added when the volume is served. Until then its slot is empty,
/// as after a leg has been removed. A file of this name is `./missing`.
pub const MISSING: &str = "missing";

/// The size of a new volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VolumeSize {
    /// A number of bytes, rounded down to a multiple of 4096.
    Bytes(u64),
    /// The largest size that all legs can hold.
    Max,
    /// The largest size that the first leg can hold.
    #[default]
    First,
}

impl From<u64> for VolumeSize {
    fn from(bytes: u64) -> VolumeSize {
        VolumeSize::Bytes(bytes)
    }
}

/// A disk whose content becomes the volume's, in place.
#[derive(Clone, Debug)]
pub struct Adopt {
    /// The disk or file.
    pub path: PathBuf,
    /// The file or device for its metadata; `None` for the end of the disk.
    pub metadata: Option<PathBuf>,
}

impl Adopt {
    /// Returns the leg that it becomes.
    fn spec(&self) -> LegSpec {
        let path = self.path.clone();
        match &self.metadata {
            None => LegSpec::End(path),
            Some(metadata) => LegSpec::External { paths: [path, metadata.clone()] },
        }
    }
}

/// Options for a new volume.
#[derive(Clone, Debug, Default)]
pub struct CreateOptions {
    /// The volume's size.
    pub size: VolumeSize,
    /// The disk that becomes the first leg and keeps its content.
    pub adopt: Option<Adopt>,
    /// The other legs, as on the command line. The first leg gets slot 0. One of two may be [`MISSING`].
    pub legs: Vec<String>,
    /// The volume's name, possibly empty.
    pub name: String,
    /// The region size in bytes; `None` for the default.
    pub region_bytes: Option<u64>,
    /// The smallest request in bytes, 512 or 4096; `None` for the largest block size of the legs.
    pub block_bytes: Option<u32>,
    /// Paths of legs, or of a stripe's members, whose content may be destroyed.
    pub wipe: Vec<PathBuf>,
    /// True to reserve the space of new files instead of leaving them sparse.
    pub reserve: bool,
    /// True to go through the page cache, for file systems that cannot bypass it (O_DIRECT).
    pub cached: bool,
    /// True to zero the data area of legs not known to be zero, so that all start identical.
    pub zero: bool,
    /// The shares of drives to leave unused.
    pub spare: Vec<Spare>,
}

/// Creates a volume.
///
/// # Errors
/// See [`CreateError`].
pub fn create(options: &CreateOptions) -> Result<Created, CreateError> {
    if let VolumeSize::Bytes(size) = options.size {
        // A wrong size is reported first, whatever the legs are.
        layout(rounded(size), options.region_bytes)?;
    }
    let name = name(&options.name)?;
    let candidates = candidate::candidates(options)?;
    let layout = layout(size(options, &candidates)?, options.region_bytes)?;
    let files = FileOptions { direct: !options.cached, sparse: !options.reserve };
    let none = LegsInUse::default();
    candidate::check(&candidates, &layout)
        .map_err(|error| twins::instead_of(error, &candidates, files, &none))?;

    let mut opened = Opened::default();
    for candidate in &candidates {
        let open = |purpose| OpenLeg::open(&candidate.spec, files, purpose);
        opened.open(candidate, &layout, open)?;
    }
    for (candidate, leg) in candidates.iter().zip(&opened.legs) {
        twins::check_unused(&candidate.text, leg, &none)?;
    }
    for (candidate, leg) in candidates.iter().zip(&opened.legs) {
        candidate::check_opened(candidate, leg, &layout)?;
    }
    let block_bytes = block_bytes(options.block_bytes, &candidates, &opened.legs)?;
    twins::check_apart(&candidates, &opened.legs)?;
    let zero_legs = opened.prepare(&candidates, &layout, options.zero)?;
    let mut descriptions = [LegDescription::default(); LEGS_MAX];
    for (description, leg) in descriptions.iter_mut().zip(&opened.legs) {
        *description = leg.describe();
    }
    let volume = random_id()?;
    let signature = Signature { name: name.as_str().into(), volume };
    opened.sign(&candidates, &signature)?;
    let whole = match (&options.adopt, zero_legs) {
        // If no leg is known to be zeros, the first leg's content is the volume's.
        (Some(_), _) | (None, 0) => 1,
        (None, zero_legs) => zero_legs,
    };
    let plan = Plan {
        volume,
        generation: random_id()?,
        legs: candidates.iter().map(|_| random_id()).collect::<Result<_, _>>()?,
        name,
        layout,
        block_bytes,
        created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        whole,
        descriptions,
    };
    let legs: Vec<&dyn BlockingLeg> =
        opened.legs.iter().map(|leg| leg as &dyn BlockingLeg).collect();
    format::format(&plan, &legs).map_err(|FormatError { leg, action, source }| {
        CreateError::Write { action, path: candidates[leg].text.clone(), source }
    })?;
    let places: Vec<_> = opened.legs.iter().map(OpenLeg::metadata_place).collect();
    opened.keep()?;
    prepare::forget_partitions(&candidates);
    let zeros = options.adopt.is_none() && zero_legs != 0;
    Ok(created(&plan, &candidates, places, zeros, options.size))
}

/// Returns the volume's size in bytes.
fn size(options: &CreateOptions, candidates: &[Candidate]) -> Result<u64, CreateError> {
    let legs = match options.size {
        VolumeSize::Bytes(size) => return Ok(rounded(size)),
        VolumeSize::Max => candidates,
        VolumeSize::First => &candidates[..1],
    };
    let mut room = Room::ANY;
    let mut largest = None;
    for candidate in legs {
        room = room.least(candidate.room()?);
        largest = largest::largest_volume(room, options.region_bytes);
        if largest.is_none() {
            return Err(CreateError::NoRoom(candidate.text.clone()));
        }
    }
    largest.ok_or(CreateError::LegCount(legs.len()))
}

/// Parses a new volume's name. Files are named after it, so it must not be a path, although hemi
/// serves older volumes with such names. It must not hold invisible characters either.
fn name(text: &str) -> Result<Name, CreateError> {
    if text.contains('/') || text == "." || text == ".." {
        return Err(CreateError::PathName(text.to_owned()));
    }
    if let Some(character) = text.chars().find(|character| !hemi_text::is_plain(*character)) {
        return Err(CreateError::HiddenCharacter(character));
    }
    Ok(Name::new(text)?)
}

/// Returns a size that a volume can have: the next multiple of its grain below. A size below the grain stays,
/// and is refused as it was given.
pub(crate) fn rounded(size: u64) -> u64 {
    if size < VOLUME_GRAIN { size } else { size / VOLUME_GRAIN * VOLUME_GRAIN }
}

fn layout(size: u64, region_bytes: Option<u64>) -> Result<Layout, CreateError> {
    let region_bytes = region_bytes.unwrap_or_else(|| default_region_bytes(size));
    Layout::new(size, region_bytes).map_err(CreateError::Layout)
}

fn block_bytes(
    asked: Option<u32>,
    candidates: &[Candidate],
    legs: &[OpenLeg],
) -> Result<u32, CreateError> {
    let mut largest = 512;
    for (candidate, leg) in candidates.iter().zip(legs) {
        let block = leg.block();
        if block > 4096 {
            let reason = format!("{} has blocks of {block} bytes", candidate.text);
            return Err(CreateError::BlockBytes { asked: block, reason });
        }
        if asked.is_some_and(|asked| asked < block) {
            let reason = format!(
                "{} has blocks of {block} bytes; use --block-size 4096, or leave it out",
                candidate.text
            );
            return Err(CreateError::BlockBytes { asked: asked.unwrap_or(block), reason });
        }
        largest = largest.max(block);
    }
    match asked {
        None => Ok(if largest > 512 { 4096 } else { 512 }),
        Some(asked @ (512 | 4096)) => Ok(asked),
        Some(asked) => {
            Err(CreateError::BlockBytes { asked, reason: "it must be 512 or 4096".into() })
        }
    }
}

fn random_id() -> Result<Id, CreateError> {
    let id = random::bytes().map_err(CreateError::Random)?;
    // An id of all zeros means none.
    if id == Id::default() { random_id() } else { Ok(id) }
}

/// Open and locked legs. Files created for them are removed on drop, unless they are kept.
#[derive(Default)]
struct Opened {
    legs: Vec<OpenLeg>,
    made: Vec<PathBuf>,
}

impl Opened {
    fn open(
        &mut self,
        candidate: &Candidate,
        layout: &Layout,
        open: impl FnOnce(Purpose) -> Result<OpenLeg, OpenError>,
    ) -> Result<(), CreateError> {
        let missing = candidate.members.iter().filter(|one| one.probe.kind == Kind::Missing);
        self.made.extend(missing.map(|member| member.path.clone()));
        let (size, data_offset) = (layout.leg_bytes(), layout.data_offset());
        match open(Purpose::Create { size, data_offset }) {
            Ok(leg) => {
                self.legs.push(leg);
                Ok(())
            }
            Err(error) => {
                if let OpenError::Io { path, source } = &error
                    && source.kind() == io::ErrorKind::AlreadyExists
                {
                    // Another process created the file just now, so it is not ours to remove.
                    self.made.retain(|made| made != path);
                }
                Err(error.into())
            }
        }
    }

    /// Wipes and zeroes as requested and makes stripes of their members. Returns which legs are
    /// known to be zeros.
    fn prepare(
        &mut self,
        candidates: &[Candidate],
        layout: &Layout,
        zero: bool,
    ) -> Result<u8, CreateError> {
        let mut zero_legs = 0;
        for (index, (candidate, leg)) in candidates.iter().zip(&mut self.legs).enumerate() {
            candidate.discard()?;
            let path = &candidate.text;
            let failed =
                |source| CreateError::Write { action: "prepare", path: path.clone(), source };
            let is_zero = prepare::prepare(candidate, leg, layout, zero).map_err(failed)?;
            leg.format().map_err(failed)?;
            zero_legs |= u8::from(is_zero) << index;
        }
        Ok(zero_legs)
    }

    /// Writes the signature by which other programs recognise the legs.
    fn sign(&self, candidates: &[Candidate], signature: &Signature) -> Result<(), CreateError> {
        for (candidate, leg) in candidates.iter().zip(&self.legs) {
            signature.write(leg).map_err(|source| CreateError::Write {
                action: "prepare",
                path: candidate.text.clone(),
                source,
            })?;
        }
        Ok(())
    }

    /// Keeps the created files and makes their names durable.
    fn keep(mut self) -> Result<(), CreateError> {
        for path in std::mem::take(&mut self.made) {
            let folder = folder_of(&path);
            let synced = std::fs::File::open(folder).and_then(|folder| folder.sync_all());
            synced.map_err(|source| CreateError::Folder { folder: folder.into(), source })?;
        }
        Ok(())
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        for path in &self.made {
            // Best effort: the operator must see the original error instead.
            let _ = std::fs::remove_file(path);
        }
        // Legs are unlocked last, so that nobody takes a file that is about to be removed. A
        // process forked at this moment holds copies of the descriptors, and with them the locks,
        // until it runs another program. So the legs are unlocked explicitly. All I/O has
        // completed.
        for leg in &self.legs {
            leg.unlock();
        }
    }
}

#[cfg(test)]
mod tests;
