//! Checks that an export that came back is still the same leg.
//!
//! A server restarted on another image, on an empty one or on a rolled-back snapshot answers as
//! readily as before. So after every reconnect the superblock and the stamps are read. They
//! must be this leg's, and no older than the newest ones known to have been durable.

use hemi_engine::format::stamp::{self, Progress};
use hemi_engine::format::{BLOCK_BYTES, Block, Id, Layout, Stamp, Superblock};

use crate::memory::Span;

/// The identity of a leg, from its superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    volume: Id,
    leg: Id,
    sequence: u64,
}

/// The reason why an export is not the leg it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum IdentityError {
    #[error(
        "it has no superblock any more: the image was replaced or emptied. If that was \
         intended, remove the leg and add it as a new one"
    )]
    Gone,
    #[error("it carries another leg's superblock: the server exports another image")]
    Other,
    #[error(
        "its superblock is older (sequence {found}) than one that was durable (sequence \
         {known}): an old snapshot, or a server that loses flushed data"
    )]
    Older { found: u64, known: u64 },
    #[error(
        "it went back: {} was durable on it, and {}. An old snapshot, or a server that loses \
         flushed data. To use it again, remove the leg and add it as a new one",
        Shown(Some(*known)),
        Shown(*found)
    )]
    WentBack { found: Option<Stamp>, known: Stamp },
}

/// A stamp as an error shows it.
struct Shown(Option<Stamp>);

impl std::fmt::Display for Shown {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(Stamp { writer, number }) => {
                write!(formatter, "stamp {number} of {:02x}{:02x}", writer[0], writer[1])
            }
            None => formatter.write_str("it has no stamp"),
        }
    }
}

/// Number of superblock slots.
const SLOTS: u8 = 2;
/// First byte and length of each piece that is read to identify a leg. In memory the pieces
/// follow each other.
pub(super) const PIECES: [(u64, usize); 3] = [
    (Layout::superblock_address(0), BLOCK_BYTES),
    (Layout::superblock_address(1), BLOCK_BYTES),
    (Layout::stamp_address(0), stamp::SLOTS_BYTES),
];
/// Size in bytes of the memory for the pieces.
pub(super) const PIECES_BYTES: usize = SLOTS as usize * BLOCK_BYTES + stamp::SLOTS_BYTES;

/// Returns the offset of a piece in that memory.
pub(super) fn place(piece: usize) -> usize {
    PIECES[..piece].iter().map(|(_, length)| length).sum()
}

impl Identity {
    /// Returns the volume it belongs to.
    pub(super) fn volume(&self) -> Id {
        self.volume
    }

    /// Returns the identity in the pieces as read, if they have a superblock.
    pub(super) fn read(memory: Span) -> Option<Identity> {
        let slot = |slot: u8| {
            let start = place(usize::from(slot));
            Identity::decode(slot, memory.slice(start, BLOCK_BYTES))
        };
        match (slot(0), slot(1)) {
            (Some(a), Some(b)) => Some(if a.sequence >= b.sequence { a } else { b }),
            (a, b) => a.or(b),
        }
    }

    /// Returns the identity in a write to the leg, if that was a write of a superblock.
    pub(super) fn written(offset: u64, data: Span) -> Option<Identity> {
        let slot = (0..SLOTS).find(|slot| Layout::superblock_address(*slot) == offset)?;
        Identity::decode(slot, data)
    }

    fn decode(slot: u8, data: Span) -> Option<Identity> {
        if data.length() != BLOCK_BYTES {
            return None;
        }
        let mut block: Block = hemi_engine::format::block::blank();
        // SAFETY: its read has ended, or its write has not begun.
        block.copy_from_slice(unsafe { data.bytes() });
        let superblock = Superblock::decode(&block, slot).ok()?;
        Some(Identity {
            volume: superblock.volume_id,
            leg: superblock.own_record().id,
            sequence: superblock.sequence,
        })
    }

    /// Returns the newest stamp in the pieces as read.
    pub(super) fn stamp(&self, memory: Span) -> Option<Stamp> {
        let from = place(usize::from(SLOTS));
        let stamps = memory.slice(from, memory.length() - from);
        // SAFETY: the reads into it have ended.
        Stamp::newest(unsafe { stamps.bytes() }, self.volume)
    }

    /// Checks that a leg whose newest stamp is `found` has everything that was reported
    /// durable.
    pub(super) fn verify_stamp(
        progress: Progress,
        found: Option<Stamp>,
    ) -> Result<(), IdentityError> {
        match progress.known {
            Some(known) if !progress.is_kept_by(found) => {
                Err(IdentityError::WentBack { found, known })
            }
            _ => Ok(()),
        }
    }

    /// Remembers the identity of a newer durable superblock.
    pub(super) fn learn(known: &mut Option<Identity>, newer: Identity) {
        if known.is_none_or(|known| known.sequence <= newer.sequence) {
            *known = Some(newer);
        }
    }

    /// Checks that the identity found can follow the one known. If none is known, any can.
    pub(super) fn verify(
        known: Option<Identity>,
        found: Option<Identity>,
    ) -> Result<(), IdentityError> {
        let Some(known) = known else { return Ok(()) };
        let found = found.ok_or(IdentityError::Gone)?;
        if (found.volume, found.leg) != (known.volume, known.leg) {
            return Err(IdentityError::Other);
        }
        if found.sequence < known.sequence {
            let (found, known) = (found.sequence, known.sequence);
            return Err(IdentityError::Older { found, known });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(leg: u8, sequence: u64) -> Identity {
        Identity { volume: [1; 16], leg: [leg; 16], sequence }
    }

    #[test]
    fn only_the_same_leg_no_older_is_accepted() {
        let known = Some(identity(1, 7));
        assert_eq!(Identity::verify(None, None), Ok(()));
        assert_eq!(Identity::verify(None, known), Ok(()));
        assert_eq!(Identity::verify(known, known), Ok(()));
        assert_eq!(Identity::verify(known, Some(identity(1, 8))), Ok(()));
        assert_eq!(Identity::verify(known, None), Err(IdentityError::Gone));
        assert_eq!(Identity::verify(known, Some(identity(2, 9))), Err(IdentityError::Other));
        let older = IdentityError::Older { found: 6, known: 7 };
        assert_eq!(Identity::verify(known, Some(identity(1, 6))), Err(older));
    }

    #[test]
    fn a_stamp_older_than_a_durable_one_is_refused_with_both() {
        let stamp = |number| Some(Stamp { writer: [1; 16], number });
        let progress = Progress { known: stamp(7), writer: [2; 16] };
        assert_eq!(Identity::verify_stamp(progress, stamp(7)), Ok(()));
        for (found, shown) in [(None, "it has no stamp"), (stamp(6), "stamp 6 of 0101")] {
            let error = Identity::verify_stamp(progress, found).expect_err("it went back");
            let error = error.to_string();
            assert!(
                error.contains("stamp 7 of 0101 was durable") && error.contains(shown),
                "{error}"
            );
        }
    }

    #[test]
    fn the_newest_is_remembered() {
        let mut known = None;
        for sequence in [3, 5, 4] {
            Identity::learn(&mut known, identity(1, sequence));
        }
        assert_eq!(known, Some(identity(1, 5)));
    }
}
