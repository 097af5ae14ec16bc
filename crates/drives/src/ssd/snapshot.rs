//! Snapshots: a preconditioned drive as bytes, so that preconditioning runs only once.
//!
//! Only the contents of the flash are saved, from a drive at rest. A snapshot begins with a
//! magic number, the format's version and its [`Origin`], and ends with a checksum (XXH64); all
//! numbers are little-endian. A snapshot of another origin is refused, so that a file's name
//! never decides a drive's state.

use twox_hash::XxHash64;

use super::Ssd;
use super::translation::Translation;
use crate::preset::Precondition;

const MAGIC: &[u8; 8] = b"hemiflsh";

/// Version of the format and of preconditioning. Raise it with every change that leads to
/// another state, because snapshots outlive the program that made them. (A test pins the states
/// of this version.)
pub(super) const VERSION: u32 = 2;

/// Upper bounds of the numbers in a snapshot for each block, for each lane and for the layer
/// itself.
const OF_BLOCK: u64 = 3;
const OF_LANE: u64 = 12;
const OF_LAYER: u64 = 18;

/// The reason why a snapshot could not be made or used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// Requests are in flight or data is in the buffer.
    #[error("the drive is not at rest: end all requests and flush it before saving")]
    NotAtRest,
    /// The file is not a snapshot.
    #[error("it is not a snapshot of a flash drive")]
    NotASnapshot,
    /// The snapshot has another version.
    #[error("it has format version {0}, not {VERSION}")]
    Version(u32),
    /// The snapshot is of another drive, or of one with another history.
    #[error("it is of a drive with other parameters, preconditioning or seed")]
    Origin,
    /// The snapshot is truncated or changed.
    #[error("it is damaged or truncated")]
    Damaged,
}

/// Everything a preconditioned drive's state depends on: its parameters (with their scale), its
/// seed and its history. Two drives of one origin are identical to the bit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(String);

impl Origin {
    /// Returns a number that is the same for one origin and format on every machine, for use in
    /// a snapshot's file name. (XXH64.)
    pub fn number(&self) -> u64 {
        XxHash64::oneshot(u64::from(VERSION), self.0.as_bytes())
    }
}

/// A reader that takes numbers off the front of a snapshot.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], SnapshotError> {
        let (first, rest) = self.0.split_at_checked(count).ok_or(SnapshotError::Damaged)?;
        self.0 = rest;
        Ok(first)
    }

    /// Returns the next number, or an error at the end.
    pub(super) fn word(&mut self) -> Result<u32, SnapshotError> {
        let (first, rest) = self.0.split_first_chunk::<4>().ok_or(SnapshotError::Damaged)?;
        self.0 = rest;
        Ok(u32::from_le_bytes(*first))
    }

    /// Returns the next 64-bit number.
    pub(super) fn long(&mut self) -> Result<u64, SnapshotError> {
        let (low, high) = (self.word()?, self.word()?);
        Ok(u64::from(low) | u64::from(high) << 32)
    }

    /// Returns the next number, or an error if it is not below `bound`.
    pub(super) fn below(&mut self, bound: u32) -> Result<u32, SnapshotError> {
        self.word()
            .and_then(|word| if word < bound { Ok(word) } else { Err(SnapshotError::Damaged) })
    }
}

impl Ssd {
    /// Returns the origin of a fresh drive that will be preconditioned to `state` with `seed`.
    pub fn origin(&self, state: Precondition, seed: u64) -> Origin {
        let (parameters, chance) = (&self.parameters, self.translation.rng.state());
        Origin(format!("{parameters:?}, chance {chance:x?}, {state:?} with seed {seed}"))
    }

    /// Returns the most bytes that a snapshot of the drive can have.
    pub fn snapshot_bytes(&self, origin: &Origin) -> u64 {
        let shape = self.translation.shape();
        let of_blocks = u64::from(shape.blocks) * OF_BLOCK + u64::from(shape.lanes) * OF_LANE;
        let words = OF_LAYER + of_blocks + u64::from(shape.units);
        (MAGIC.len() + 4 + 4 + origin.0.len() + 8) as u64 + words * 4
    }

    /// Returns the drive's contents and wear as bytes. The drive must be at rest and of that
    /// origin.
    ///
    /// # Errors
    /// Fails if the drive is not at rest.
    pub fn save(&self, origin: &Origin) -> Result<Vec<u8>, SnapshotError> {
        if !self.commands.is_empty() || self.working > 0 || self.buffer.waiting() > 0 {
            return Err(SnapshotError::NotAtRest);
        }
        let mut bytes = Vec::with_capacity(self.snapshot_bytes(origin) as usize);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((origin.0.len() as u32).to_le_bytes());
        bytes.extend(origin.0.as_bytes());
        self.translation.save(&mut |word| bytes.extend(word.to_le_bytes()));
        bytes.extend(XxHash64::oneshot(0, &bytes).to_le_bytes());
        Ok(bytes)
    }

    /// Brings a fresh drive into the saved state. After an error the drive is unchanged.
    ///
    /// # Errors
    /// Fails if the bytes are not a complete snapshot of this format and origin.
    pub fn restore(&mut self, bytes: &[u8], origin: &Origin) -> Result<(), SnapshotError> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(SnapshotError::NotASnapshot)?;
        let mut reader = Reader(rest);
        let version = reader.word()?;
        if version != VERSION {
            return Err(SnapshotError::Version(version));
        }
        let (whole, sum) = bytes.split_last_chunk::<8>().ok_or(SnapshotError::Damaged)?;
        if XxHash64::oneshot(0, whole) != u64::from_le_bytes(*sum) {
            return Err(SnapshotError::Damaged);
        }
        let length = reader.word()?;
        if reader.bytes(length as usize)? != origin.0.as_bytes() {
            return Err(SnapshotError::Origin);
        }
        let body = reader.0.strip_suffix(sum).ok_or(SnapshotError::Damaged)?;
        let mut reader = Reader(body);
        let shape = *self.translation.shape();
        let translation = Translation::restore(shape, &mut reader)?;
        if !reader.0.is_empty() {
            return Err(SnapshotError::Damaged);
        }
        self.translation = translation;
        for lane in 0..shape.lanes {
            self.collector.enqueue(&self.translation, lane);
        }
        self.begin_life_of_run();
        Ok(())
    }
}
