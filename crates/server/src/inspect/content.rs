//! A leg's own version of the volume's content, for an operator who compares legs.

use std::io;

use hemi_io::config::legs::{LegSpec, LegSpecError};
use hemi_io::leg::{OpenError, OpenLeg};

use super::{open, superblocks};

/// Alignment of direct reads, in bytes.
const ALIGNMENT: u64 = 4096;
/// Bytes read at once.
const PIECE_BYTES: u64 = 1 << 20;

/// The reason why a leg's content cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    /// Its name was not understood.
    #[error(transparent)]
    Spec(#[from] LegSpecError),
    /// It could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It holds no superblock, so that nobody knows where its data begins.
    #[error("it holds no superblock of hemi")]
    NoSuperblock,
    /// The range is not within the volume.
    #[error("{length} bytes from byte {start} are not within the volume of {size} bytes")]
    Range {
        /// The first byte.
        start: u64,
        /// The number of bytes.
        length: u64,
        /// The volume's size.
        size: u64,
    },
    /// The leg could not be read.
    #[error("it cannot be read at byte {at} of the volume: {source}")]
    Read {
        /// The byte of the volume.
        at: u64,
        /// The system's error.
        source: io::Error,
    },
}

/// A leg, opened to read its version of the volume. It may be served meanwhile.
#[derive(Debug)]
pub struct Content {
    leg: OpenLeg,
    data_offset: u64,
    size: u64,
}

impl Content {
    /// Opens the leg named `spec`. It is not locked.
    ///
    /// # Errors
    /// See [`ContentError`].
    pub fn open(spec: &str) -> Result<Content, ContentError> {
        let spec: LegSpec = spec.parse()?;
        let leg = open(&spec)?;
        let (_, superblock) = superblocks(&leg);
        let layout = superblock.ok_or(ContentError::NoSuperblock)?.layout;
        Ok(Content { leg, data_offset: layout.data_offset(), size: layout.volume_bytes() })
    }

    /// Reads a range of the volume, and hands it over piece by piece.
    ///
    /// # Errors
    /// See [`ContentError`].
    pub fn read<E: From<ContentError>>(
        &self,
        start: u64,
        length: u64,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let end = start.saturating_add(length);
        if end > self.size {
            return Err(ContentError::Range { start, length, size: self.size }.into());
        }
        let mut at = start;
        let mut buffer = Vec::new();
        while at < end {
            let piece_start = at - at % ALIGNMENT;
            let piece_end = end.min(piece_start + PIECE_BYTES);
            // A volume ends with a whole block, so that this does not reach beyond it.
            let length = (piece_end - piece_start).next_multiple_of(ALIGNMENT);
            let length = length.min(self.size - piece_start);
            buffer.resize(length as usize, 0);
            self.leg
                .read_at(self.data_offset + piece_start, &mut buffer)
                .map_err(|source| ContentError::Read { at: piece_start, source })?;
            let (skip, upto) = ((at - piece_start) as usize, (piece_end - piece_start) as usize);
            take(&buffer[skip..upto])?;
            at = piece_end;
        }
        Ok(())
    }

    /// Returns the CRC-32C of a range of the volume.
    ///
    /// # Errors
    /// See [`ContentError`].
    pub fn checksum(&self, start: u64, length: u64) -> Result<u32, ContentError> {
        let mut sum = 0;
        self.read(start, length, |piece| {
            sum = crc32c::crc32c_append(sum, piece);
            Ok::<(), ContentError>(())
        })?;
        Ok(sum)
    }
}
