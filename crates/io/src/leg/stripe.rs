//! Several files or block devices as one leg: RAID-0.
//!
//! Consecutive chunks of the leg lie on consecutive members. Each member begins with an
//! identity block (the stripe's id, the member's index, the number of members, the chunk),
//! written when the stripe is formatted. A wrong order, a missing member or a foreign one is
//! thus refused and not served as garbage. The stripe's data begins [`DATA_OFFSET`] into each
//! member: byte 0 of the leg is that byte of member 0. `docs/design/legs.md` draws it.

use std::io;
use std::path::{Path, PathBuf};

use hemi_units::Instant;

use super::device::Device;
use super::file::Task;
use super::open::{FileOptions, OpenError, Purpose};
use super::parts::{PartedIo, Piece};
use super::{LegContext, ResolvedIo};
use crate::random;
use crate::ring::{Completion, Ring};

/// First byte of a member's data, aligned to every unit that drives prefer.
pub const DATA_OFFSET: u64 = 1 << 20;
/// First bytes of a member's identity block.
pub const MAGIC: [u8; 8] = *b"HEMISTRP";
/// Version of the identity block's format.
pub const VERSION: u32 = 1;
/// Size of the identity block in bytes, including the checksum.
pub const IDENTITY_BYTES: usize = 4096;

/// An error that keeps members from making a stripe.
#[derive(Debug, thiserror::Error)]
pub enum StripeError {
    /// A member has no identity.
    #[error("{path:?} is not a member of a stripe yet; hemi create makes it one and erases it")]
    NotFormatted {
        /// The member's path.
        path: PathBuf,
    },
    /// A member's identity is damaged.
    #[error("the stripe identity at the beginning of {path:?} is damaged ({what})")]
    Damaged {
        /// The member's path.
        path: PathBuf,
        /// The damaged part.
        what: &'static str,
    },
    /// A member was written by another version.
    #[error("{path:?} carries stripe format {version}; this hemi knows format {VERSION}")]
    Version {
        /// The member's path.
        path: PathBuf,
        /// The version found.
        version: u32,
    },
    /// A member belongs to another stripe.
    #[error("{path:?} belongs to another stripe than {first:?}")]
    Foreign {
        /// The member's path.
        path: PathBuf,
        /// The first member's path.
        first: PathBuf,
    },
    /// A member is in the wrong place.
    #[error("{path:?} is member {is} of its stripe but named as member {named}; swap the paths")]
    Order {
        /// The member's path.
        path: PathBuf,
        /// Its index, from 0.
        is: u32,
        /// The index it was named at.
        named: u32,
    },
    /// The stripe has another number of members.
    #[error("the stripe on {path:?} has {has} members, {named} are named")]
    Count {
        /// The member's path.
        path: PathBuf,
        /// Number of members it has.
        has: u32,
        /// Number of members named.
        named: u32,
    },
    /// The stripe has another chunk size.
    #[error("the stripe on {path:?} has chunks of {has} bytes, not {named}: write chunk={}K", has >> 10)]
    Chunk {
        /// The member's path.
        path: PathBuf,
        /// Its chunk in bytes.
        has: u64,
        /// The chunk named, in bytes.
        named: u64,
    },
    /// A member is too small.
    #[error("{path:?} has {size} bytes; its stripe needs {needed}")]
    TooSmall {
        /// The member's path.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// Bytes needed.
        needed: u64,
    },
}

/// The identity of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Random id of the stripe, the same on all members.
    pub stripe: [u8; 16],
    /// Index of this member, from 0.
    pub member: u32,
    /// Number of members.
    pub members: u32,
    /// Size of a chunk in bytes.
    pub chunk: u64,
    /// Bytes of data on each member.
    pub data: u64,
}

impl Identity {
    /// Returns the encoded block. Its fields with their sizes in bytes, little-endian, are
    /// magic (8), version (4), member (4), members (4), zero (4), stripe (16), chunk (8), data
    /// (8), zeros, and in the last 4 the CRC-32C of everything before it.
    pub fn encode(&self) -> [u8; IDENTITY_BYTES] {
        let mut block = [0; IDENTITY_BYTES];
        block[0..8].copy_from_slice(&MAGIC);
        block[8..12].copy_from_slice(&VERSION.to_le_bytes());
        block[12..16].copy_from_slice(&self.member.to_le_bytes());
        block[16..20].copy_from_slice(&self.members.to_le_bytes());
        block[24..40].copy_from_slice(&self.stripe);
        block[40..48].copy_from_slice(&self.chunk.to_le_bytes());
        block[48..56].copy_from_slice(&self.data.to_le_bytes());
        let sum = crc32c::crc32c(&block[..IDENTITY_BYTES - 4]);
        block[IDENTITY_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
        block
    }

    /// Decodes a block. `path` is for the error.
    pub fn decode(block: &[u8; IDENTITY_BYTES], path: &Path) -> Result<Identity, StripeError> {
        if block[0..8] != MAGIC {
            return Err(StripeError::NotFormatted { path: path.to_path_buf() });
        }
        let word = |at: usize| u32::from_le_bytes(array(block, at));
        let long = |at: usize| u64::from_le_bytes(array(block, at));
        if word(8) != VERSION {
            return Err(StripeError::Version { path: path.to_path_buf(), version: word(8) });
        }
        if word(IDENTITY_BYTES - 4) != crc32c::crc32c(&block[..IDENTITY_BYTES - 4]) {
            return Err(StripeError::Damaged {
                path: path.to_path_buf(),
                what: "its checksum is wrong",
            });
        }
        let identity = Identity {
            stripe: array(block, 24),
            member: word(12),
            members: word(16),
            chunk: long(40),
            data: long(48),
        };
        let sound = identity.chunk.is_power_of_two()
            && identity.chunk >= crate::config::legs::STRIPE_CHUNK_MIN.0
            && identity.data.is_multiple_of(identity.chunk)
            && identity.member < identity.members;
        if !sound {
            return Err(StripeError::Damaged { path: path.to_path_buf(), what: "its numbers are" });
        }
        Ok(identity)
    }
}

fn array<const N: usize>(block: &[u8; IDENTITY_BYTES], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&block[at..at + N]);
    bytes
}

/// The mapping of the leg's bytes to the members.
#[derive(Clone, Copy, Debug)]
struct Layout {
    members: u64,
    chunk: u64,
    /// Bytes of data on each member.
    data: u64,
}

impl Layout {
    fn size(&self) -> u64 {
        self.members * self.data
    }

    /// Returns the pieces of an extent in the leg's order, each within one chunk.
    fn pieces(self, offset: u64, length: u64) -> impl Iterator<Item = Piece> {
        let mut at = 0;
        std::iter::from_fn(move || {
            if at == length {
                return None;
            }
            let position = offset + at;
            let (chunk, within) = (position / self.chunk, position % self.chunk);
            let piece = Piece {
                device: (chunk % self.members) as u8,
                offset: DATA_OFFSET + chunk / self.members * self.chunk + within,
                length: (self.chunk - within).min(length - at),
                at,
            };
            at += piece.length;
            Some(piece)
        })
    }

    /// Returns the range of an extent on each member. It is one range per member, since the
    /// chunks of a member adjoin.
    fn ranges(self, offset: u64, length: u64) -> impl Iterator<Item = Piece> {
        let end = offset + length;
        (0..self.members).filter_map(move |member| {
            let edge = |position: u64| {
                let row = self.chunk * self.members;
                let within = position % row;
                let before = member * self.chunk;
                position / row * self.chunk + within.saturating_sub(before).min(self.chunk)
            };
            let (from, to) = (edge(offset), edge(end));
            (to > from).then_some(Piece {
                device: member as u8,
                offset: DATA_OFFSET + from,
                length: to - from,
                at: 0,
            })
        })
    }
}

/// An opened stripe.
#[derive(Debug)]
pub struct OpenStripe {
    devices: Vec<Device>,
    layout: Layout,
}

impl OpenStripe {
    pub(super) fn open(
        paths: &[PathBuf],
        chunk: u64,
        options: FileOptions,
        purpose: Purpose,
    ) -> Result<OpenStripe, OpenError> {
        let members = paths.len() as u64;
        let share = match purpose {
            Purpose::Create { size, data_offset } => Purpose::Create {
                size: DATA_OFFSET + size.div_ceil(members).next_multiple_of(chunk),
                data_offset,
            },
            other => other,
        };
        let devices = paths
            .iter()
            .map(|path| Device::open(path, options, share))
            .collect::<Result<Vec<_>, _>>()?;
        let smallest = devices.iter().map(Device::size).min().unwrap_or(0);
        let mut layout =
            Layout { members, chunk, data: smallest.saturating_sub(DATA_OFFSET) / chunk * chunk };
        if !matches!(purpose, Purpose::Create { .. }) {
            layout.data = check(&devices, chunk)?;
        }
        Ok(OpenStripe { devices, layout })
    }

    /// Writes every member's identity durably, with a fresh random stripe id.
    pub(super) fn format(&mut self) -> io::Result<()> {
        let stripe = random::bytes()?;
        for (member, device) in self.devices.iter().enumerate() {
            let identity = Identity {
                stripe,
                member: member as u32,
                members: self.devices.len() as u32,
                chunk: self.layout.chunk,
                data: self.layout.data,
            };
            device.write_at(0, &identity.encode())?;
        }
        self.devices.iter().try_for_each(Device::flush)
    }

    pub(super) fn members(&self) -> &[Device] {
        &self.devices
    }

    pub(super) fn unlock(&self) {
        self.devices.iter().for_each(Device::unlock);
    }

    pub(super) fn size(&self) -> u64 {
        self.layout.size()
    }

    pub(super) fn block(&self) -> u32 {
        self.devices.iter().map(Device::block).max().unwrap_or(512)
    }

    pub(super) fn fast_zeroes(&self) -> bool {
        self.devices.iter().all(Device::fast_zeroes)
    }

    pub(super) fn is_thin(&self) -> bool {
        self.devices.iter().all(Device::is_thin)
    }

    pub(super) fn description(&self) -> String {
        let paths: Vec<String> =
            self.devices.iter().map(|device| device.path().display().to_string()).collect();
        format!("stripe:{}", paths.join(","))
    }

    pub(super) fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        for piece in self.layout.pieces(offset, into.len() as u64) {
            let part = &mut into[piece.at as usize..(piece.at + piece.length) as usize];
            self.devices[usize::from(piece.device)].read_at(piece.offset, part)?;
        }
        Ok(())
    }

    pub(super) fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        for piece in self.layout.pieces(offset, bytes.len() as u64) {
            let part = &bytes[piece.at as usize..(piece.at + piece.length) as usize];
            self.devices[usize::from(piece.device)].write_at(piece.offset, part)?;
        }
        Ok(())
    }

    pub(super) fn flush(&self) -> io::Result<()> {
        self.devices.iter().try_for_each(Device::flush)
    }
}

/// Checks that the members belong together in this order. Returns the bytes of data on each.
fn check(devices: &[Device], chunk: u64) -> Result<u64, OpenError> {
    let mut first: Option<Identity> = None;
    for (named, device) in devices.iter().enumerate() {
        let path = device.path().to_path_buf();
        let mut block = [0; IDENTITY_BYTES];
        device
            .read_at(0, &mut block)
            .map_err(|source| OpenError::Io { path: path.clone(), source })?;
        let identity = Identity::decode(&block, &path)?;
        let named = named as u32;
        let members = devices.len() as u32;
        let first = *first.get_or_insert(identity);
        let needed = DATA_OFFSET.saturating_add(identity.data);
        if identity.stripe != first.stripe {
            let first = devices[0].path().to_path_buf();
            return Err(StripeError::Foreign { path, first }.into());
        }
        if identity.members != members {
            return Err(StripeError::Count { path, has: identity.members, named: members }.into());
        }
        if identity.member != named {
            return Err(StripeError::Order { path, is: identity.member, named }.into());
        }
        if identity.chunk != chunk {
            return Err(StripeError::Chunk { path, has: identity.chunk, named: chunk }.into());
        }
        if device.size() < needed {
            return Err(StripeError::TooSmall { path, size: device.size(), needed }.into());
        }
    }
    Ok(first.map_or(0, |identity| identity.data))
}

/// A stripe attached to the reactor.
#[derive(Debug)]
pub(super) struct StripeLeg {
    io: PartedIo,
    layout: Layout,
}

impl StripeLeg {
    pub(super) fn new(stripe: OpenStripe) -> io::Result<StripeLeg> {
        Ok(StripeLeg { io: PartedIo::new(stripe.devices)?, layout: stripe.layout })
    }

    pub(super) fn submit(&mut self, cx: &mut LegContext<'_>, io: ResolvedIo) {
        let ResolvedIo { operation, offset, length, data, .. } = io;
        let layout = self.layout;
        let task = Task::of(operation);
        if task == Task::Flush {
            self.io.flush(cx, io.id, layout.members as u8);
        } else if data.is_some() {
            self.io.submit(cx, io, task, layout.pieces(offset, length));
        } else {
            self.io.submit(cx, io, task, layout.ranges(offset, length));
        }
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

#[cfg(test)]
mod tests;
