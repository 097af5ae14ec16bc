//! A drive's translation layer as bytes, so that preconditioning is paid for once.
//!
//! Only what lies on flash is saved, of a drive at rest. The file begins with a magic number,
//! the format's version and a fingerprint of the layer's shape, and ends with a checksum;
//! all numbers are little-endian.

use super::Ssd;
use super::translation::{Shape, Translation};

const MAGIC: &[u8; 8] = b"hemiflsh";
const VERSION: u32 = 1;

/// Why a snapshot could not be made or used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// Requests are under way or data is in the buffer.
    #[error("the drive is not at rest: end all requests and flush it before saving")]
    NotAtRest,
    /// Not such a file.
    #[error("this is no snapshot of a flash drive")]
    NotASnapshot,
    /// Another version.
    #[error("the snapshot has format version {0}, and {VERSION} is right: make it anew")]
    Version(u32),
    /// Made of a drive of another shape.
    #[error(
        "the snapshot is of a drive with other parameters (fingerprint {found:016x}, and \
         {right:016x} is right): make it anew"
    )]
    Parameters {
        /// The snapshot's.
        found: u64,
        /// The drive's.
        right: u64,
    },
    /// Cut short or changed.
    #[error("the snapshot is damaged: make it anew")]
    Damaged,
}

/// FNV-1a over 64-bit words, which is quick enough for gigabytes and enough to notice damage.
fn checksum(bytes: &[u8]) -> u64 {
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        sum = (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01b3);
        sum ^= sum >> 29;
    }
    sum
}

/// What two drives must have in common to share a snapshot.
fn fingerprint(shape: &Shape) -> u64 {
    checksum(format!("{shape:?}").as_bytes())
}

/// Reads numbers off the front.
pub(super) struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    /// The next number; an error at the end.
    pub(super) fn word(&mut self) -> Result<u32, SnapshotError> {
        let (first, rest) = self.0.split_first_chunk::<4>().ok_or(SnapshotError::Damaged)?;
        self.0 = rest;
        Ok(u32::from_le_bytes(*first))
    }

    /// The next number, which is below `bound`.
    pub(super) fn below(&mut self, bound: u32) -> Result<u32, SnapshotError> {
        self.word()
            .and_then(|word| if word < bound { Ok(word) } else { Err(SnapshotError::Damaged) })
    }
}

impl Ssd {
    /// The drive's content and wear as bytes. It must be at rest.
    pub fn save(&self) -> Result<Vec<u8>, SnapshotError> {
        if !self.commands.is_empty() || self.working > 0 || self.buffer.waiting() > 0 {
            return Err(SnapshotError::NotAtRest);
        }
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(fingerprint(self.translation.shape()).to_le_bytes());
        self.translation.save(&mut |word| bytes.extend(word.to_le_bytes()));
        bytes.extend(checksum(&bytes).to_le_bytes());
        Ok(bytes)
    }

    /// Brings a drive just made into the state that was saved; chance from the seed.
    pub fn restore(&mut self, bytes: &[u8], seed: u64) -> Result<(), SnapshotError> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(SnapshotError::NotASnapshot)?;
        let (version, rest) = rest.split_first_chunk::<4>().ok_or(SnapshotError::Damaged)?;
        let version = u32::from_le_bytes(*version);
        if version != VERSION {
            return Err(SnapshotError::Version(version));
        }
        let (found, rest) = rest.split_first_chunk::<8>().ok_or(SnapshotError::Damaged)?;
        let found = u64::from_le_bytes(*found);
        let right = fingerprint(self.translation.shape());
        if found != right {
            return Err(SnapshotError::Parameters { found, right });
        }
        let (body, sum) = rest.split_last_chunk::<8>().ok_or(SnapshotError::Damaged)?;
        let end = bytes.len() - 8;
        if checksum(&bytes[..end]) != u64::from_le_bytes(*sum) {
            return Err(SnapshotError::Damaged);
        }
        let shape = *self.translation.shape();
        let mut reader = Reader(body);
        self.translation = Translation::restore(shape, seed, &mut reader)?;
        if !reader.0.is_empty() {
            return Err(SnapshotError::Damaged);
        }
        for lane in 0..shape.lanes {
            self.collector.enqueue(&self.translation, lane);
        }
        Ok(())
    }
}
