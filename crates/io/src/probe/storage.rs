//! The place of a file's or block device's bytes, and the storage that programs of this machine have locked.
//!
//! All of it comes from the kernel without I/O on the storage, which may hang.

use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::Identity;
use super::system::{partition_names, sys_folder};
use crate::leg::describe;

/// The unit of sizes and places in sysfs, in bytes.
const SYS_SECTOR: u64 = 512;

/// The place of a file's or block device's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    identity: Identity,
    /// The holder of its bytes: the disk of a partition, the file of a loop device, or itself.
    root: Identity,
    /// The byte of `root` at which it begins.
    start: u64,
    size: u64,
    /// The names that its disk gives itself: world-wide name and serial number, where it has them.
    names: Vec<String>,
}

impl Storage {
    /// Returns the place of a regular file's or block device's bytes, or `None` for anything else.
    pub fn of(metadata: &Metadata) -> Option<Storage> {
        if metadata.is_file() {
            let identity = Identity::File(metadata.dev(), metadata.ino());
            let (start, size) = (0, metadata.size());
            return Some(Storage { identity, root: identity, start, size, names: Vec::new() });
        }
        if !metadata.file_type().is_block_device() {
            return None;
        }
        let folder = sys_folder(metadata.rdev());
        let size = number(&folder.join("size"))? * SYS_SECTOR;
        let identity = Identity::Block(metadata.rdev());
        let (disk, mut start) = match number(&folder.join("start")) {
            Some(start) => (folder.parent()?.to_owned(), start * SYS_SECTOR),
            None => (folder, 0),
        };
        let mut root = device_number(&disk).map_or(identity, Identity::Block);
        let file = fs::read_to_string(disk.join("loop/backing_file")).unwrap_or_default();
        if let Ok(file) = fs::metadata(file.trim_end_matches('\n'))
            && file.is_file()
        {
            root = Identity::File(file.dev(), file.ino());
            start += number(&disk.join("loop/offset")).unwrap_or(0);
        }
        Some(Storage { identity, root, start, size, names: names(&disk) })
    }

    /// Returns true if both are one file or one block device.
    pub fn is(&self, other: &Storage) -> bool {
        self.identity == other.identity
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the start and size in bytes of each partition that the kernel knows on it.
    pub fn partitions(&self) -> Vec<(u64, u64)> {
        let Identity::Block(device) = self.identity else { return Vec::new() };
        let folder = sys_folder(device);
        let place = |name: String| {
            let bytes = |file| Some(number(&folder.join(&name).join(file))? * SYS_SECTOR);
            Some((bytes("start")?, bytes("size")?))
        };
        partition_names(&folder).into_iter().filter_map(place).collect()
    }

    /// Returns the place in `other` of this one's byte `at`, if the kernel knows that one has bytes of the
    /// other.
    pub fn place_in(&self, other: &Storage, at: u64) -> Option<u64> {
        let place = (self.start + at).checked_sub(other.start)?;
        (self.root == other.root && place < other.size).then_some(place)
    }

    /// Returns true if it is hardly the same as `other`: another file of one file system, or a disk that calls
    /// itself otherwise.
    pub fn is_unlike(&self, other: &Storage) -> bool {
        match (self.root, other.root) {
            (Identity::File(one, own), Identity::File(another, other)) if one == another => {
                own != other
            }
            _ => {
                let both_named = !self.names.is_empty() && !other.names.is_empty();
                both_named && !self.names.iter().any(|name| other.names.contains(name))
            }
        }
    }

    /// Returns true if the disks' own names and the places on them suggest that both are one. Partitions
    /// share those names, and cheap bridges make them up.
    pub fn resembles(&self, other: &Storage) -> bool {
        (self.start, self.size) == (other.start, other.size)
            && self.names.iter().any(|name| other.names.contains(name))
    }
}

/// Returns the names that a disk gives itself, from its directory in sysfs.
fn names(disk: &Path) -> Vec<String> {
    let wide = ["wwid", "device/wwid"].map(|name| fs::read_to_string(disk.join(name)));
    let wide = wide.into_iter().flatten().map(|name| name.trim().to_owned());
    let (model, serial) = describe::of_disk(disk);
    let serial = (!serial.is_empty()).then(|| format!("{model} {serial}"));
    wide.filter(|name| !name.is_empty()).chain(serial).collect()
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns the number of the block device at `folder` in sysfs.
fn device_number(folder: &Path) -> Option<u64> {
    let text = fs::read_to_string(folder.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// A file or block device that a program of this machine has locked, as hemi locks its legs.
#[derive(Clone, Debug)]
pub struct Locked {
    /// The process.
    pub process: u32,
    /// The path by which the process has it open.
    pub path: PathBuf,
    /// Its place.
    pub storage: Storage,
    /// The link in /proc by which it can be opened, whatever its path leads to by now.
    pub door: PathBuf,
}

impl Locked {
    /// Returns true if the process still has it locked.
    pub fn is_held(&self) -> bool {
        locked_by(self.process).iter().any(|held| held.storage.is(&self.storage))
    }
}

/// Returns the files and block devices that programs of this machine have locked (flock), as far as this
/// user may see them.
pub fn locked() -> Vec<Locked> {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let mut processes: Vec<u32> = locks.lines().filter_map(holder).collect();
    processes.sort_unstable();
    processes.dedup();
    processes.into_iter().flat_map(locked_by).collect()
}

/// Returns the process of a line of /proc/locks, such as "1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF".
fn holder(line: &str) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    let is_lock = words.next() == Some("FLOCK");
    words.nth(2)?.parse().ok().filter(|_| is_lock)
}

fn locked_by(process: u32) -> Vec<Locked> {
    let folder = PathBuf::from(format!("/proc/{process}"));
    let Ok(descriptors) = fs::read_dir(folder.join("fdinfo")) else { return Vec::new() };
    let found = descriptors.flatten().filter_map(|entry| {
        let info = fs::read_to_string(entry.path()).ok()?;
        let is_locked = info
            .lines()
            .filter_map(|line| line.strip_prefix("lock:"))
            .any(|lock| holder(lock) == Some(process));
        let door = folder.join("fd").join(entry.file_name());
        let storage = is_locked.then(|| Storage::of(&fs::metadata(&door).ok()?))??;
        let path = fs::read_link(&door).unwrap_or_else(|_| door.clone());
        Some(Locked { process, path, storage, door })
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_seen_with_its_file_and_process() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("leg");
        let file = fs::File::create(&path).expect("it can be created");
        file.set_len(8192).expect("a sparse file");
        let own = |locked: Vec<Locked>| locked.into_iter().find(|one| one.path == path);
        assert!(own(locked()).is_none(), "it is open and not locked");
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).expect("it is free");
        let found = own(locked()).expect("it is locked");
        assert_eq!(found.process, std::process::id());
        let storage = Storage::of(&file.metadata().expect("it is open")).expect("it is a file");
        assert!(found.storage.is(&storage) && found.storage.size() == 8192);
        assert!(found.is_held());
        drop(file);
        assert!(!found.is_held(), "it is closed");
        assert_eq!(holder("1: -> FLOCK  ADVISORY  WRITE 7 fe:00:1 0 EOF"), None, "it waits");
        assert_eq!(holder("1: OFDLCK ADVISORY  READ  7 fe:00:1 0 EOF"), None);
    }

    #[test]
    fn the_kernel_tells_the_place_of_shared_bytes() {
        let file = Identity::File(1, 2);
        let of = |identity, start, size| Storage {
            identity,
            root: if matches!(identity, Identity::File(..)) { identity } else { file },
            start,
            size,
            names: vec!["naa.5".into()],
        };
        let (whole, part) = (of(file, 0, 100), of(Identity::Block(7), 10, 20));
        assert_eq!(part.place_in(&whole, 5), Some(15));
        assert_eq!(whole.place_in(&part, 15), Some(5));
        assert_eq!(whole.place_in(&part, 9), None, "it lies before");
        assert_eq!(whole.place_in(&part, 30), None, "it lies behind");
        let other = Storage { root: Identity::Block(8), ..part.clone() };
        assert_eq!(part.place_in(&other, 5), None);
        assert!(part.resembles(&other) && !part.resembles(&whole), "the place counts, too");
        assert!(!part.is_unlike(&other) && !part.is_unlike(&whole));
        let renamed = Storage { names: vec!["naa.6".into()], ..other.clone() };
        assert!(part.is_unlike(&renamed), "it calls itself otherwise");
        assert!(!part.is_unlike(&Storage { names: Vec::new(), ..other }), "it does not say");
        assert!(whole.is_unlike(&of(Identity::File(1, 3), 0, 100)), "another file");
        let elsewhere = Storage { root: Identity::File(2, 2), names: Vec::new(), ..whole.clone() };
        assert!(!whole.is_unlike(&elsewhere), "another mount may show the same");
    }
}
