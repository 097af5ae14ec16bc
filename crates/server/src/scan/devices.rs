//! Devices and files that may hold a leg, each storage only once.

use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::{Other, OtherState};
use crate::device;
use hemi_io::probe::{Identity, backing_file};

/// The directory in which the kernel lists block devices, partitions included.
const BLOCK_DEVICES: &str = "/sys/class/block";
/// Maximum depth of stacked devices that is searched.
const LEVELS_MAX: u32 = 8;

/// A device or file that may hold a leg.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// Its path.
    pub(super) path: PathBuf,
    /// Its identity, which is equal for two paths to the same storage.
    pub(super) storage: Identity,
}

/// Lists the machine's block devices, then the devices and files in `places`, each storage once. Leaves out
/// devices that cannot hold a leg to be served: empty ones, read-only ones, and hemi's own volumes. Adds
/// places that cannot be read to `others`.
pub(super) fn candidates(places: &[PathBuf], others: &mut Vec<Other>) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    let mut add = |path: PathBuf, metadata: &Metadata| {
        let storage = storage_of(metadata);
        if candidates.iter().all(|known: &Candidate| known.storage != storage) {
            candidates.push(Candidate { path, storage });
        }
    };
    let own = device::linked();
    for name in names_in(Path::new(BLOCK_DEVICES)).unwrap_or_default() {
        let sys = Path::new(BLOCK_DEVICES).join(&name);
        let tells = |key: &str| fs::read_to_string(sys.join(key)).unwrap_or_default();
        if own.contains(&name) || tells("size").trim() == "0" || tells("ro").trim() == "1" {
            continue;
        }
        // The kernel writes a slash in a device name as an exclamation mark.
        let path = Path::new("/dev").join(name.replace('!', "/"));
        if let Some(metadata) =
            fs::metadata(&path).ok().filter(|it| it.file_type().is_block_device())
        {
            add(path, &metadata);
        }
    }
    for place in places {
        match within(place) {
            Ok(found) => found.into_iter().for_each(|(path, metadata)| add(path, &metadata)),
            Err(error) => others.push(Other {
                path: place.clone(),
                state: OtherState::Unreadable,
                reason: format!("cannot be looked at: {error}"),
            }),
        }
    }
    candidates
}

/// Returns a file or device itself, or those directly in a directory, without empty files.
fn within(place: &Path) -> std::io::Result<Vec<(PathBuf, Metadata)>> {
    let place = &std::path::absolute(place)?;
    let metadata = fs::metadata(place)?;
    let is_storage = |metadata: &Metadata| {
        let kind = metadata.file_type();
        kind.is_block_device() || (kind.is_file() && metadata.size() > 0)
    };
    if !metadata.is_dir() {
        let found = std::iter::once((place.to_owned(), metadata));
        return Ok(found.filter(|(_, metadata)| is_storage(metadata)).collect());
    }
    let paths = names_in(place)?.into_iter().map(|name| place.join(name));
    let found = paths.filter_map(|path| fs::metadata(&path).ok().map(|metadata| (path, metadata)));
    Ok(found.filter(|(_, metadata)| is_storage(metadata)).collect())
}

/// Lists the names in a directory, sorted. Leaves out names that are not UTF-8, which no leg can have.
fn names_in(directory: &Path) -> std::io::Result<Vec<String>> {
    let mut names: Vec<String> = fs::read_dir(directory)?
        .flatten()
        .filter_map(|it| it.file_name().into_string().ok())
        .collect();
    names.sort();
    Ok(names)
}

fn storage_of(metadata: &Metadata) -> Identity {
    if metadata.file_type().is_block_device() {
        Identity::Block(metadata.rdev())
    } else {
        Identity::File(metadata.dev(), metadata.ino())
    }
}

/// Keeps the uppermost of the devices with the same key, which is the one that other programs use. Drops the
/// devices below it: the disks under a multipath device, the file behind a loop device, a disk covered by its
/// partition.
pub(super) fn keep_uppermost<T, K: PartialEq>(
    found: &mut Vec<(Candidate, T)>,
    key: impl Fn(&T) -> K,
) {
    let is_covered = |index: usize| {
        let (lower, what) = &found[index];
        let mut others = found.iter().enumerate().filter(|(other, _)| *other != index);
        others.any(|(_, (upper, other))| key(other) == key(what) && lies_on(upper, lower))
    };
    let covered: Vec<bool> = (0..found.len()).map(is_covered).collect();
    let mut covered = covered.into_iter();
    found.retain(|_| !covered.next().expect("one for each"));
}

/// Returns true if `upper` shows the content of `lower`.
fn lies_on(upper: &Candidate, lower: &Candidate) -> bool {
    let Identity::Block(number) = upper.storage else { return false };
    let sys = sys_of(number);
    if let Identity::Block(lower) = lower.storage
        && (is_among_slaves(&sys, lower, LEVELS_MAX) || is_partition_from_zero(&sys, lower))
    {
        return true;
    }
    let backing = backing_file(&sys).and_then(|file| fs::metadata(file).ok());
    backing.is_some_and(|metadata| storage_of(&metadata) == lower.storage)
}

/// Returns the sysfs directory of a device.
fn sys_of(number: u64) -> PathBuf {
    PathBuf::from("/sys/dev/block").join(number_text(number))
}

fn number_text(number: u64) -> String {
    format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number))
}

fn is_number(sys: &Path, number: u64) -> bool {
    fs::read_to_string(sys.join("dev")).is_ok_and(|text| text.trim() == number_text(number))
}

/// Returns true if a device is made of the device with this number, directly or through other devices.
fn is_among_slaves(sys: &Path, number: u64, levels: u32) -> bool {
    let slaves = sys.join("slaves");
    levels > 0
        && names_in(&slaves).unwrap_or_default().iter().any(|name| {
            let slave = slaves.join(name);
            is_number(&slave, number) || is_among_slaves(&slave, number, levels - 1)
        })
}

/// Returns true if the device with this number is a partition that begins at the disk's first byte.
fn is_partition_from_zero(disk: &Path, number: u64) -> bool {
    let partition = sys_of(number);
    let begins = fs::read_to_string(partition.join("start")).is_ok_and(|text| text.trim() == "0");
    begins && fs::canonicalize(partition.join("..")).ok() == fs::canonicalize(disk).ok()
}
