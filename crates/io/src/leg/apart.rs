//! Legs whose data begins at the first byte of a file or block device. Their metadata lies
//! apart from it, at the end of the same device or on another one. A disk with data thus
//! becomes a leg without moving a byte, and remains usable without hemi.
//!
//! The addresses of such a leg are those of every leg: metadata first, data from the data
//! offset on. Only their places on the device differ. With metadata at the end, where *E* is
//! the size of the device rounded down to a mebibyte, the places are:
//!
//! ```text
//! leg 0 .. 1 MiB              E - 1 MiB ..            superblocks, lost lists
//! leg 1 MiB .. data offset    E - data offset ..      region table
//! leg data offset ..          0 ..                    data
//! ```
//!
//! The head's place depends only on the device's size, so that the superblock can be found
//! before the volume's sizes are known. External metadata begins at [`METADATA_OFFSET`] of its
//! file or device, after an identity block. Without that block it would look like a leg of its
//! own.

mod identity;

use std::io;
use std::path::{Path, PathBuf};

use hemi_engine::format::{LegDescription, Superblock, SuperblockError};
use hemi_engine::recovery::{HEAD_BYTES, newest_of};
use hemi_units::Instant;
use serde::Serialize;

use super::describe;
use super::device::Device;
use super::file::Task;
use super::open::{FileOptions, OpenError, Purpose};
use super::parts::{PartedIo, Piece};
use super::{LegContext, ResolvedIo};
use crate::config::legs::LegSpec;
use crate::ring::{Completion, Ring};

pub use identity::{IDENTITY_BYTES, Identity, MAGIC, VERSION};

/// The unit that a device's size is rounded down to. The result is its end.
const END_GRAIN: u64 = 1 << 20;
/// First byte of external metadata in its file or device.
pub const METADATA_OFFSET: u64 = 1 << 20;

/// A reason why a leg's metadata was not found at the place that its spec names.
#[derive(Debug, thiserror::Error)]
pub enum ApartError {
    /// No superblock was found at the end.
    #[error(
        "there is no hemi superblock at the end of {path:?} (at byte {place}: {found}). If the \
         device or file has changed size since it became a leg, restore that size and keep it. \
         Otherwise serve the volume from its other legs, and make this a new leg with \
         hemi leg replace"
    )]
    NoSuperblock {
        /// Path of the device.
        path: PathBuf,
        /// The byte at which a superblock was expected.
        place: u64,
        /// The error in decoding that place.
        found: SuperblockError,
    },
    /// The file or device is too small for a leg.
    #[error("{path:?} has {size} bytes: too few for a leg with its metadata at the end")]
    TooSmall {
        /// Path of the device.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
    },
    /// The file or device named as metadata has no identity block.
    #[error("{path:?} does not hold the external metadata of a leg; check the path")]
    NotMetadata {
        /// Path of the file or device.
        path: PathBuf,
    },
    /// The identity block is damaged.
    #[error("the identity of the external metadata in {path:?} is damaged (its {what})")]
    Damaged {
        /// Path of the file or device.
        path: PathBuf,
        /// The damaged part.
        what: &'static str,
    },
    /// The identity block has another version.
    #[error(
        "{path:?} holds external metadata of format {version}; this hemi knows format {VERSION}"
    )]
    Version {
        /// Path of the file or device.
        path: PathBuf,
        /// The version found.
        version: u32,
    },
    /// The metadata belongs to another device than the one named for the data.
    #[error(
        "the metadata in {metadata:?} belongs to the disk with the serial number {expected:?} \
         ({name}); {data:?} has the serial number {found:?}. Name the disk it belongs to"
    )]
    OtherDisk {
        /// Path of the metadata.
        metadata: PathBuf,
        /// Path named for the data.
        data: PathBuf,
        /// Path of the disk when it became a leg.
        name: String,
        /// Serial number of that disk.
        expected: String,
        /// The serial number found.
        found: String,
    },
    /// The device of the data or of the metadata has shrunk.
    #[error(
        "{path:?} has {size} bytes, and had {needed} when it became a part of its leg: it was \
         truncated, or is a different one"
    )]
    CutShort {
        /// Path of the device.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// Bytes needed.
        needed: u64,
    },
}

/// Returns the first byte of a leg's first [`HEAD_BYTES`] on a device or file of `size` bytes
/// with its metadata at the end, or `None` if it is too small for a leg.
pub fn head_at_end(size: u64) -> Option<u64> {
    let end = end_of(size);
    (end > HEAD_BYTES).then(|| end - HEAD_BYTES)
}

/// Returns the end of a device or file of `size` bytes. A leg uses only the bytes before it.
pub fn end_of(size: u64) -> u64 {
    size / END_GRAIN * END_GRAIN
}

/// Returns the size in bytes that a device or file needs for a leg of `leg_bytes` with its
/// metadata at the end.
pub fn size_for(leg_bytes: u64) -> u64 {
    leg_bytes.next_multiple_of(END_GRAIN)
}

/// The place of metadata that lies apart from its data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MetadataPlace {
    /// The file or device.
    pub path: PathBuf,
    /// The first byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

/// The place of the metadata, for the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The end of the only device, which is this byte.
    End(u64),
    /// The second device.
    External,
}

/// The leg's addresses on its devices. The first device has the data.
#[derive(Clone, Copy, Debug)]
struct Map {
    data_offset: u64,
    place: Place,
}

impl Map {
    /// Returns the device and the byte of an address, and the end of the addresses that adjoin
    /// it there.
    fn place_of(self, address: u64) -> (u8, u64, u64) {
        let Map { data_offset, place } = self;
        if address >= data_offset {
            return (0, address - data_offset, u64::MAX);
        }
        match place {
            Place::External => (1, METADATA_OFFSET + address, data_offset),
            Place::End(end) if address < HEAD_BYTES => (0, end - HEAD_BYTES + address, HEAD_BYTES),
            Place::End(end) => (0, end - data_offset + (address - HEAD_BYTES), data_offset),
        }
    }

    /// Returns the pieces of an extent in the leg's order. Each of the engine's I/Os is one
    /// piece.
    fn pieces(self, offset: u64, length: u64) -> impl Iterator<Item = Piece> {
        let mut at = 0;
        std::iter::from_fn(move || {
            if at == length {
                return None;
            }
            let (device, place, border) = self.place_of(offset + at);
            let room = border - (offset + at);
            let piece = Piece { device, offset: place, length: room.min(length - at), at };
            at += piece.length;
            Some(piece)
        })
    }
}

/// An opened leg whose data begins at its first byte.
#[derive(Debug)]
pub struct OpenApart {
    /// The device with the data, then the one with external metadata, if any.
    devices: Vec<Device>,
    map: Map,
    spec: LegSpec,
}

impl OpenApart {
    pub(super) fn open(
        spec: &LegSpec,
        options: FileOptions,
        purpose: Purpose,
    ) -> Result<OpenApart, OpenError> {
        let (devices, map) = match spec {
            LegSpec::External { paths } => open_external(paths, options, purpose)?,
            other => {
                let path = other.paths().first().map_or(Path::new(""), PathBuf::as_path);
                open_end(path, options, purpose)?
            }
        };
        Ok(OpenApart { devices, map, spec: spec.clone() })
    }

    /// Writes the identity block of external metadata durably.
    pub(super) fn format(&mut self) -> io::Result<()> {
        let [data, metadata] = &self.devices[..] else { return Ok(()) };
        let path = std::path::absolute(data.path()).unwrap_or_else(|_| data.path().into());
        let identity = Identity {
            data_offset: self.map.data_offset,
            data_bytes: data.size(),
            name: path.to_string_lossy().into_owned(),
            serial: describe::device(data).serial().to_owned(),
        };
        metadata.write_at(0, &identity.encode())?;
        metadata.flush()
    }

    pub(super) fn devices(&self) -> &[Device] {
        &self.devices
    }

    pub(super) fn metadata_place(&self) -> MetadataPlace {
        let data_offset = self.map.data_offset;
        let (device, start) = match self.map.place {
            Place::End(end) => (&self.devices[0], end - data_offset),
            Place::External => (&self.devices[1], METADATA_OFFSET),
        };
        MetadataPlace { path: device.path().into(), start, end: start + data_offset }
    }

    pub(super) fn unlock(&self) {
        self.devices.iter().for_each(Device::unlock);
    }

    /// Returns the size of the metadata and of the space for data, in bytes.
    pub(super) fn size(&self) -> u64 {
        match self.map.place {
            Place::End(end) => end,
            Place::External => self.map.data_offset.saturating_add(self.devices[0].size()),
        }
    }

    /// Returns the block size of the data's device. Metadata is written in blocks of 4096
    /// bytes, which every device accepts.
    pub(super) fn block(&self) -> u32 {
        self.devices[0].block()
    }

    pub(super) fn fast_zeroes(&self) -> bool {
        self.devices[0].fast_zeroes()
    }

    pub(super) fn is_thin(&self) -> bool {
        self.devices[0].is_thin()
    }

    pub(super) fn description(&self) -> String {
        self.spec.to_string()
    }

    /// Describes the leg: its devices and what they are.
    pub fn describe(&self) -> LegDescription {
        let spec = self.spec.absolute().unwrap_or_else(|_| self.spec.clone());
        describe::named(&spec.to_string(), &self.devices[0])
    }

    pub(super) fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        for piece in self.map.pieces(offset, into.len() as u64) {
            let part = &mut into[piece.at as usize..(piece.at + piece.length) as usize];
            self.devices[usize::from(piece.device)].read_at(piece.offset, part)?;
        }
        Ok(())
    }

    pub(super) fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        for piece in self.map.pieces(offset, bytes.len() as u64) {
            let part = &bytes[piece.at as usize..(piece.at + piece.length) as usize];
            self.devices[usize::from(piece.device)].write_at(piece.offset, part)?;
        }
        Ok(())
    }

    pub(super) fn flush(&self) -> io::Result<()> {
        self.devices.iter().try_for_each(Device::flush)
    }
}

fn open_end(
    path: &Path,
    options: FileOptions,
    purpose: Purpose,
) -> Result<(Vec<Device>, Map), OpenError> {
    let share = match purpose {
        Purpose::Create { size, data_offset } => {
            Purpose::Create { size: size_for(size), data_offset }
        }
        other => other,
    };
    let device = Device::open(path, options, share)?;
    let size = device.size();
    let too_small = || ApartError::TooSmall { path: path.into(), size };
    let place = head_at_end(size).ok_or_else(too_small)?;
    let data_offset = match purpose {
        Purpose::Create { data_offset, .. } => data_offset,
        _ => match superblock_at(&device, place)? {
            Ok(superblock) => superblock.layout.data_offset(),
            // The superblock is unreadable, so the place of the rest is unknown, but its slots
            // can be inspected.
            Err(_) if purpose == Purpose::Inspect => HEAD_BYTES,
            Err(found) => {
                return Err(ApartError::NoSuperblock { path: path.into(), place, found }.into());
            }
        },
    };
    if data_offset > end_of(size) {
        return Err(too_small().into());
    }
    Ok((vec![device], Map { data_offset, place: Place::End(end_of(size)) }))
}

fn superblock_at(
    device: &Device,
    place: u64,
) -> Result<Result<Superblock, SuperblockError>, OpenError> {
    let mut head = vec![0; HEAD_BYTES as usize];
    let path = device.path().to_path_buf();
    device.read_at(place, &mut head).map_err(|source| OpenError::Io { path, source })?;
    Ok(newest_of(&head))
}

fn open_external(
    [data, metadata]: &[PathBuf; 2],
    options: FileOptions,
    purpose: Purpose,
) -> Result<(Vec<Device>, Map), OpenError> {
    let (for_data, for_metadata) = match purpose {
        Purpose::Create { size, data_offset } => (
            Purpose::Create { size: size - data_offset, data_offset },
            Purpose::Create { size: METADATA_OFFSET + data_offset, data_offset },
        ),
        other => (other, other),
    };
    let data = Device::open(data, options, for_data)?;
    // The space is always reserved: it is small, and a leg that cannot write it is out.
    let reserved = FileOptions { sparse: false, ..options };
    let metadata = Device::open(metadata, reserved, for_metadata)?;
    let data_offset = match purpose {
        Purpose::Create { data_offset, .. } => data_offset,
        _ => check_identity(&data, &metadata)?,
    };
    Ok((vec![data, metadata], Map { data_offset, place: Place::External }))
}

/// Checks that the metadata belongs to this data, as far as that can be checked. Returns the
/// data offset.
fn check_identity(data: &Device, metadata: &Device) -> Result<u64, OpenError> {
    let path = metadata.path().to_path_buf();
    let mut block = [0; IDENTITY_BYTES];
    if metadata.size() < METADATA_OFFSET {
        return Err(ApartError::NotMetadata { path }.into());
    }
    metadata
        .read_at(0, &mut block)
        .map_err(|source| OpenError::Io { path: path.clone(), source })?;
    let Identity { data_offset, data_bytes, name, serial } = Identity::decode(&block, &path)?;
    let found = describe::device(data).serial().to_owned();
    if !serial.is_empty() && !found.is_empty() && found != serial {
        let (metadata, data) = (path, data.path().into());
        return Err(ApartError::OtherDisk { metadata, data, name, expected: serial, found }.into());
    }
    let needs = [(data, data_bytes), (metadata, METADATA_OFFSET.saturating_add(data_offset))];
    for (device, needed) in needs {
        if device.size() < needed {
            let (path, size) = (device.path().into(), device.size());
            return Err(ApartError::CutShort { path, size, needed }.into());
        }
    }
    Ok(data_offset)
}

/// A leg of this kind attached to the reactor.
#[derive(Debug)]
pub(super) struct ApartLeg {
    io: PartedIo,
    map: Map,
}

impl ApartLeg {
    pub(super) fn new(opened: OpenApart) -> io::Result<ApartLeg> {
        Ok(ApartLeg { io: PartedIo::new(opened.devices)?, map: opened.map })
    }

    pub(super) fn submit(&mut self, cx: &mut LegContext<'_>, io: ResolvedIo) {
        let ResolvedIo { operation, offset, length, .. } = io;
        let mut task = Task::of(operation);
        if task == Task::Flush {
            // Metadata is durable once it is written, so only the data's device is flushed.
            self.io.flush(cx, io.id, 1);
            return;
        }
        if let Task::Write { durable } = &mut task {
            *durable |= offset < self.map.data_offset;
        }
        self.io.submit(cx, io, task, self.map.pieces(offset, length));
    }

    pub(super) fn completion(&mut self, cx: &mut LegContext<'_>, completion: Completion) {
        self.io.completion(cx, completion);
    }

    pub(super) fn deadline(&self) -> Instant {
        self.io.deadline()
    }

    pub(super) fn tick(&mut self, cx: &mut LegContext<'_>) {
        self.io.tick(cx);
    }

    pub(super) fn detach(self, ring: &mut Ring) {
        self.io.detach(ring);
    }
}

/// Returns the pieces of an extent of a leg with its metadata at the end: places on the disk and lengths,
/// in bytes. `data_offset` is where a leg without that arrangement has its data. For simulated drives.
pub fn places_at_end(size: u64, data_offset: u64, offset: u64, length: u64) -> Vec<(u64, u64)> {
    let map = Map { data_offset, place: Place::End(end_of(size)) };
    map.pieces(offset, length).map(|piece| (piece.offset, piece.length)).collect()
}

#[cfg(test)]
mod tests;
