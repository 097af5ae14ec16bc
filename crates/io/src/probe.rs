//! A look at a path that is to become a leg: its kind, its users and its content.
//!
//! `hemi create` destroys the content of its legs, so it checks everything that can be known first: mounts,
//! swap, loop devices, device-mapper and md holders, partitions, the lock of another hemi, a hemi volume, and
//! signatures of other formats (through `wipefs` of util-linux, where installed). Independent of any format,
//! it also looks for a byte that is not zero. In a regular file it reads all data, up to [`SCAN_BYTES_MAX`];
//! a file with more counts as not empty. Reading all of a drive can take a day, so of a device or export it
//! reads the first and last MiB and [`SAMPLES`] samples spread evenly between them.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use hemi_engine::format::Id;
use rustix::io::Errno;
use serde::Serialize;

use crate::blocking::BlockingLeg;
use crate::signature;
use hemi_units::Size;

mod legs;
mod storage;
mod system;

use legs::{hemi, hemi_apart};
pub use legs::{other_spec, superblock_at_end};
pub use storage::{Locked, Storage, locked};
pub use system::backing_file;
pub(crate) use system::{mount_point, partition_names, sys_folder};

/// Bytes searched for a nonzero byte at either end of a device.
const LOOK_BYTES: u64 = 1 << 20;
/// Bound on the data of a regular file that is read in search of a nonzero byte. Holes and preallocated space
/// cost nothing. A file with more data does not count as empty.
pub const SCAN_BYTES_MAX: u64 = 4 << 30;
/// Number of samples read between the ends of a device or export.
pub const SAMPLES: u64 = 128;
/// Size of a sample in bytes.
pub const SAMPLE_BYTES: u64 = 64 << 10;

/// The names by which `wipefs` reports partition tables.
const PARTITION_TABLES: [&str; 8] = ["dos", "gpt", "PMBR", "mac", "sun", "sgi", "bsd", "atari"];

/// Returns true if a range of a regular file is known to read as zeros: a hole, or preallocated and never
/// written.
pub fn reads_as_zeros(file: &File, start: u64, end: u64) -> bool {
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(start)) {
        Err(Errno::NXIO) => true,
        Ok(data) => data >= end,
        Err(_) => false,
    }
}

/// The kind of thing at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Nothing, in a directory that exists.
    Missing,
    /// A regular file.
    File,
    /// A block device.
    Block,
}

/// The identity of the storage behind a path: equal if two paths lead to the same storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// A regular file: device and inode.
    File(u64, u64),
    /// A block device's number.
    Block(u64),
}

/// A use of a file or device that keeps it from becoming a leg.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Use {
    /// It or one of its partitions is mounted.
    Mounted {
        /// The mounted device.
        device: String,
        /// The mount point.
        at: String,
    },
    /// Swap space.
    Swap,
    /// It is part of a device-mapper, md or other stacked device.
    Holder {
        /// The device held: itself or a partition.
        device: String,
        /// The device that holds it.
        holder: String,
    },
    /// It backs a loop device.
    Loop {
        /// The loop device.
        device: String,
    },
    /// It is locked, as the legs of a served volume and the disks of virtual machines are.
    Locked {
        /// The process that holds the lock, if the system tells.
        process: Option<u32>,
    },
}

impl fmt::Display for Use {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Use::Mounted { device, at } => write!(formatter, "{device} is mounted on {at}"),
            Use::Swap => formatter.write_str("it is in use as swap"),
            Use::Holder { device, holder } => write!(formatter, "{device} is held by {holder}"),
            Use::Loop { device } => write!(formatter, "it is attached to {device}"),
            Use::Locked { process: Some(process) } => {
                write!(formatter, "it is locked by another hemi or program (process {process})")
            }
            Use::Locked { process: None } => {
                formatter.write_str("it is locked by another hemi or program")
            }
        }
    }
}

/// A piece of content found on a file or device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// A leg of a hemi volume.
    Hemi {
        /// The volume's name, possibly empty.
        name: String,
        /// Its id in hexadecimal.
        volume: String,
        /// The leg's slot.
        leg: u8,
        /// True if its metadata is at the end of the device and its data at the beginning.
        at_end: bool,
    },
    /// A standby of a hemi volume: a drive that waits to become a leg.
    HemiStandby {
        /// The volume's name, possibly empty.
        name: String,
        /// Its id in hexadecimal.
        volume: String,
    },
    /// A hemi superblock that cannot be used.
    HemiUnusable {
        /// The reason.
        reason: String,
    },
    /// The external metadata of a leg whose data is elsewhere.
    HemiMetadata {
        /// The leg's spec.
        spec: String,
    },
    /// Partitions known to the kernel.
    Partitions {
        /// Their names.
        names: Vec<String>,
    },
    /// A file system, volume manager, partition table or the like.
    Signature {
        /// Its type as `wipefs` names it.
        format: String,
        /// Its label, if it has one.
        label: Option<String>,
    },
    /// A nonzero byte.
    Data {
        /// The byte's offset.
        offset: u64,
    },
    /// More data than is searched: the first [`SCAN_BYTES_MAX`] bytes of it are zeros.
    Unscanned {
        /// Offset at which the part that was not searched begins.
        offset: u64,
    },
}

impl Content {
    /// Returns true if it is a partition table or partitions known to the kernel.
    pub fn is_partition_table(&self) -> bool {
        match self {
            Content::Partitions { .. } => true,
            Content::Signature { format, .. } => PARTITION_TABLES.contains(&format.as_str()),
            _ => false,
        }
    }

    /// Returns true if it belongs to hemi.
    pub fn is_hemi(&self) -> bool {
        matches!(
            self,
            Content::Hemi { .. }
                | Content::HemiStandby { .. }
                | Content::HemiUnusable { .. }
                | Content::HemiMetadata { .. }
        )
    }
}

fn volume_text(formatter: &mut fmt::Formatter<'_>, name: &str, id: &str) -> fmt::Result {
    match name {
        "" => formatter.write_str(id),
        name => write!(formatter, "\"{name}\" ({id})"),
    }
}

impl fmt::Display for Content {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Hemi { name, volume, leg, at_end } => {
                write!(formatter, "leg {leg} of the hemi volume ")?;
                volume_text(formatter, name, volume)?;
                formatter.write_str(if *at_end { ", with its metadata at the end" } else { "" })
            }
            Content::HemiStandby { name, volume } => {
                formatter.write_str("a standby of the hemi volume ")?;
                volume_text(formatter, name, volume)
            }
            Content::HemiMetadata { spec } => {
                write!(formatter, "the metadata of a hemi leg (last seen as {spec})")
            }
            Content::HemiUnusable { reason } => write!(formatter, "a hemi leg ({reason})"),
            Content::Partitions { names } => {
                let names = names.join(", ");
                write!(formatter, "partitions ({names}; one of them can be a leg by itself)")
            }
            Content::Signature { format, .. } if self.is_partition_table() => {
                write!(formatter, "a partition table ({format})")
            }
            Content::Signature { format, label: None } => write!(formatter, "{format}"),
            Content::Signature { format, label: Some(label) } => {
                write!(formatter, "{format} labelled \"{label}\"")
            }
            Content::Data { offset } => write!(formatter, "data (at byte {offset})"),
            Content::Unscanned { offset } => write!(
                formatter,
                "more data than is searched ({}, zeros so far; the rest begins at byte \
                 {offset})",
                Size(SCAN_BYTES_MAX)
            ),
        }
    }
}

/// The reason why a path could not be probed.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// Neither the path nor the directory it would be in exists.
    #[error("{}: there is no directory {} to create it in", path.display(), folder.display())]
    NoFolder {
        /// The path.
        path: PathBuf,
        /// The directory.
        folder: PathBuf,
    },
    /// The path is a directory, a socket or the like.
    #[error("{} is {found}; a leg is a regular file or a block device", path.display())]
    NotStorage {
        /// The path.
        path: PathBuf,
        /// The kind of thing found.
        found: &'static str,
    },
    /// The system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// The result of probing a path.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The path.
    pub path: PathBuf,
    /// The kind of thing at the path.
    pub kind: Kind,
    /// Its size in bytes; 0 if nothing is there.
    pub size: u64,
    /// Identifies the storage, to recognise two paths that lead to it; `None` if nothing is there.
    pub identity: Option<Identity>,
    /// The uses found.
    pub uses: Vec<Use>,
}

impl Probe {
    /// Probes `path` and its users without opening it for writing.
    ///
    /// # Errors
    /// See [`ProbeError`].
    pub fn new(path: &Path) -> Result<Probe, ProbeError> {
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Probe::missing(path),
            Err(source) => return Err(failed("look at", path, source)),
        };
        let file_type = metadata.file_type();
        if file_type.is_file() {
            return Ok(Probe {
                path: path.into(),
                kind: Kind::File,
                size: metadata.size(),
                identity: Some(Identity::File(metadata.dev(), metadata.ino())),
                uses: system::uses_of_file(path, &metadata),
            });
        }
        if !file_type.is_block_device() {
            let found = match file_type {
                kind if kind.is_dir() => "a directory",
                kind if kind.is_char_device() => "a character device",
                kind if kind.is_fifo() => "a pipe",
                kind if kind.is_socket() => "a socket",
                _ => "no regular file",
            };
            return Err(ProbeError::NotStorage { path: path.into(), found });
        }
        let device = File::open(path).map_err(|source| failed("open", path, source))?;
        let size = rustix::fs::seek(&device, rustix::fs::SeekFrom::End(0))
            .map_err(|errno| failed("find the size of", path, errno.into()))?;
        Ok(Probe {
            path: path.into(),
            kind: Kind::Block,
            size,
            identity: Some(Identity::Block(metadata.rdev())),
            uses: system::uses_of_device(&metadata),
        })
    }

    fn missing(path: &Path) -> Result<Probe, ProbeError> {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        if !folder.is_dir() {
            return Err(ProbeError::NoFolder { path: path.into(), folder: folder.into() });
        }
        let kind = Kind::Missing;
        Ok(Probe { path: path.into(), kind, size: 0, identity: None, uses: Vec::new() })
    }

    /// Returns its content, the most telling first. If empty, it is free to be overwritten.
    ///
    /// # Errors
    /// [`ProbeError::Io`] if it cannot be read: an unreadable device may hold anything.
    pub fn contents(&self) -> Result<Vec<Content>, ProbeError> {
        let mut contents = self.known_contents()?;
        if contents.is_empty() && self.kind != Kind::Missing && self.size > 0 {
            let path = &self.path;
            let file = File::open(path).map_err(|source| failed("open", path, source))?;
            let read_at = |offset, into: &mut [u8]| file.read_exact_at(into, offset);
            let found = match self.kind {
                Kind::File => scan_file(&file, self.size, SCAN_BYTES_MAX),
                _ => first_data(self.size, read_at),
            };
            contents.extend(found.map_err(|source| failed("read", path, source))?);
        }
        Ok(contents)
    }

    /// Returns all recognised content, without searching the other bytes.
    ///
    /// # Errors
    /// Those of [`Probe::contents`].
    pub fn known_contents(&self) -> Result<Vec<Content>, ProbeError> {
        if self.kind == Kind::Missing || self.size == 0 {
            return Ok(Vec::new());
        }
        let path = &self.path;
        let file = File::open(path).map_err(|source| failed("open", path, source))?;
        let read = |source| failed("read", path, source);
        let mut contents = Vec::new();
        let read_at = |offset, into: &mut [u8]| file.read_exact_at(into, offset);
        contents.extend(hemi(self.size, read_at).map_err(read)?);
        contents.extend(hemi_apart(&file, self.size).map_err(read)?);
        if let Some(Identity::Block(number)) = self.identity {
            let names = system::partitions(number);
            if !names.is_empty() {
                contents.push(Content::Partitions { names });
            }
        }
        let is_leg = contents.iter().any(Content::is_hemi);
        // The signature of a leg adds nothing to the leg itself.
        let news = |content: &Content| !(is_leg && signature::is_ours(content));
        contents.extend(system::signatures(path).into_iter().filter(news));
        Ok(contents)
    }
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> ProbeError {
    ProbeError::Io { action, path: path.into(), source }
}

/// Returns the content of an opened leg that is not a file or device of this machine.
///
/// # Errors
/// The leg's own error if it cannot be read: an unreadable leg may hold anything.
pub fn contents_of_leg(leg: &dyn BlockingLeg) -> io::Result<Vec<Content>> {
    let read_at = |offset, into: &mut [u8]| leg.read_at(offset, into);
    let mut contents = Vec::from_iter(hemi(leg.size(), read_at)?);
    if contents.is_empty() {
        contents.extend(first_data(leg.size(), read_at)?);
    }
    Ok(contents)
}

/// Finds the first nonzero byte in the first or last [`LOOK_BYTES`] or in one of [`SAMPLES`] samples spread
/// evenly between them.
fn first_data(
    size: u64,
    mut read_at: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
) -> io::Result<Option<Content>> {
    let head = size.min(LOOK_BYTES);
    let mut bytes = vec![0; head as usize];
    let mut look = |start: u64, bytes: &mut [u8]| -> io::Result<Option<Content>> {
        read_at(start, bytes)?;
        Ok(data_in(bytes, start))
    };
    for start in [0, size - head] {
        if let Some(found) = look(start, &mut bytes)? {
            return Ok(Some(found));
        }
    }
    let distance = (size / (SAMPLES + 1)).max(SAMPLE_BYTES) / SAMPLE_BYTES * SAMPLE_BYTES;
    for sample in 1..=SAMPLES {
        let start = sample * distance;
        if start + SAMPLE_BYTES > size {
            break;
        }
        if let Some(found) = look(start, &mut bytes[..SAMPLE_BYTES as usize])? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Finds the first nonzero byte of a file, searching at most `limit` bytes of its data.
fn scan_file(file: &File, size: u64, limit: u64) -> io::Result<Option<Content>> {
    use rustix::fs::{SeekFrom, seek};
    let mut bytes = vec![0; LOOK_BYTES as usize];
    let (mut at, mut left) = (0, limit);
    while at < size {
        let (start, end) = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => (start, seek(file, SeekFrom::Hole(start))?),
            // There is no data from here to the end.
            Err(Errno::NXIO) => break,
            // The file system cannot report holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => (at, size),
            Err(errno) => return Err(errno.into()),
        };
        at = start;
        // The file may grow meanwhile.
        let end = end.min(size);
        while at < end {
            if left == 0 {
                return Ok(Some(Content::Unscanned { offset: at }));
            }
            let length = (end - at).min(LOOK_BYTES).min(left);
            let piece = &mut bytes[..length as usize];
            file.read_exact_at(piece, at)?;
            if let Some(found) = data_in(piece, at) {
                return Ok(Some(found));
            }
            at += length;
            left -= length;
        }
    }
    Ok(None)
}

/// Returns the first nonzero byte in `bytes`, which were read from offset `start`.
fn data_in(bytes: &[u8], start: u64) -> Option<Content> {
    let index = bytes.iter().position(|&byte| byte != 0)?;
    Some(Content::Data { offset: start + index as u64 })
}

/// Formats an id in hexadecimal, grouped like a UUID.
pub fn hex(id: Id) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in id.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// The process that holds the lock of a file or device, as far as the system tells.
pub fn lock_owner(path: &Path) -> Option<Option<u32>> {
    fs::metadata(path).ok().and_then(|metadata| system::lock_owner(&metadata))
}

/// The folder a file is in.
pub fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_files_data_is_found_wherever_it_is_and_holes_cost_nothing() {
        let file = tempfile::tempfile().expect("a temporary file");
        let size = 1 << 40;
        file.set_len(size).expect("a sparse file");
        assert_eq!(scan_file(&file, size, 0).expect("it can be read"), None);
        let (zeros, data) = ([0; 1 << 16], 1 << 35);
        file.write_all_at(&zeros, 1 << 30).expect("zeros");
        assert_eq!(scan_file(&file, size, 1 << 20).expect("it can be read"), None);
        let short = scan_file(&file, size, 4096).expect("it can be read");
        assert_eq!(short, Some(Content::Unscanned { offset: (1 << 30) + 4096 }));
        file.write_all_at(b"x", data + 5).expect("a byte");
        let found = scan_file(&file, size, 1 << 20).expect("it can be read");
        assert_eq!(found, Some(Content::Data { offset: data + 5 }));
    }

    #[test]
    fn a_device_is_sampled_between_its_ends() {
        let size: u64 = 1 << 40;
        let look = |filled: std::ops::Range<u64>| {
            let mut reads = 0;
            let found = first_data(size, |offset, into: &mut [u8]| {
                reads += 1;
                assert!(offset + into.len() as u64 <= size);
                let end = offset + into.len() as u64;
                if filled.start < end && offset < filled.end {
                    into[(filled.start.max(offset) - offset) as usize] = 1;
                }
                Ok(())
            });
            (found.expect("it can be read"), reads)
        };
        assert_eq!(look(0..0), (None, SAMPLES + 2));
        let (found, _) = look(size / 3..size / 3 + size / SAMPLES);
        assert!(matches!(found, Some(Content::Data { .. })));
        // The device is smaller than all its samples together.
        for size in [4096, 3 << 20, 9 << 20] {
            let mut seen = 0;
            let found = first_data(size, |offset, into: &mut [u8]| {
                assert!(offset + into.len() as u64 <= size);
                seen += into.len() as u64;
                Ok(())
            });
            assert_eq!(found.expect("it can be read"), None);
            assert!(seen >= size, "{seen} of {size}");
        }
    }
}
