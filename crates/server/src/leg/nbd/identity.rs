//! Whether an export that came back is still the leg it was.
//!
//! A server restarted on another image, on an empty one or on a rolled-back snapshot answers
//! as readily as before. So after every reconnect the superblock is read: it must be this
//! leg's, and no older than the newest one known to have been durable.

use hemi_core::format::{BLOCK_BYTES, Block, Id, Layout, Superblock};

use crate::memory::Span;

/// What is known of the leg from its superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    volume: Id,
    leg: Id,
    sequence: u64,
}

/// Why an export is not the leg it was.
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
}

/// The two superblock slots in `memory`, one after the other.
pub(super) const SLOTS: u8 = 2;
/// Bytes of memory the slots need.
pub(super) const SLOTS_BYTES: usize = SLOTS as usize * BLOCK_BYTES;

impl Identity {
    /// From both slots as read.
    pub(super) fn read(memory: Span) -> Option<Identity> {
        let slot = |slot: u8| {
            let start = usize::from(slot) * BLOCK_BYTES;
            Identity::decode(slot, &memory.bytes()[start..start + BLOCK_BYTES])
        };
        match (slot(0), slot(1)) {
            (Some(a), Some(b)) => Some(if a.sequence >= b.sequence { a } else { b }),
            (a, b) => a.or(b),
        }
    }

    /// From a write to the leg, if it was one of a superblock.
    pub(super) fn written(offset: u64, data: Span) -> Option<Identity> {
        let slot = (0..SLOTS).find(|slot| Layout::superblock_address(*slot) == offset)?;
        Identity::decode(slot, data.bytes())
    }

    fn decode(slot: u8, bytes: &[u8]) -> Option<Identity> {
        if bytes.len() != BLOCK_BYTES {
            return None;
        }
        let mut block: Block = hemi_core::format::block::blank();
        block.copy_from_slice(bytes);
        let superblock = Superblock::decode(&block, slot).ok()?;
        Some(Identity {
            volume: superblock.volume_id,
            leg: superblock.own_record().id,
            sequence: superblock.sequence,
        })
    }

    /// Notes a newer durable superblock.
    pub(super) fn learn(known: &mut Option<Identity>, newer: Identity) {
        if known.is_none_or(|known| known.sequence <= newer.sequence) {
            *known = Some(newer);
        }
    }

    /// Whether what was found can follow what was known. Where nothing was known, anything.
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
    fn the_newest_is_remembered() {
        let mut known = None;
        for sequence in [3, 5, 4] {
            Identity::learn(&mut known, identity(1, sequence));
        }
        assert_eq!(known, Some(identity(1, 5)));
    }
}
