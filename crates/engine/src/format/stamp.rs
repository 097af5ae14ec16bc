//! The stamps: marks that show how far a remote leg has come.
//!
//! After each flush, and each write that had to be durable, the driver of a remote leg writes
//! a stamp with a higher number, durably, and only then reports the flush or the write. A
//! leg whose newest stamp is older than one that is known to have been durable has lost what
//! was reported since: its server went back to a snapshot, or loses flushed data.
//!
//! A stamp goes to one of two slots in turn, so that a write that is cut in two leaves the
//! one before. Each session of a driver with its server has a pair of slots of its own, one
//! of [`PAIRS`] in turn: the last write of a lost session may land late, and must not
//! overwrite a newer stamp.

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute_mut, transmute_ref,
};

use super::block::{self, BLOCK_BYTES, BLOCK_SECTORS, Block, BlockState, Kind, Sector};
use super::{Id, Layout};

/// Pairs of slots.
pub const PAIRS: u64 = 8;
/// Slots in all.
pub const SLOTS: usize = 2 * PAIRS as usize;
/// Bytes of all slots, which follow each other.
pub const SLOTS_BYTES: usize = SLOTS * BLOCK_BYTES;

/// A mark that everything reported durable before it is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// A random name of the driver that wrote it: two histories of a leg have different ones.
    pub writer: Id,
    /// Higher than that of every stamp before; at least one.
    pub number: u64,
}

/// The progress of a leg: its newest stamp, and who writes the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The newest stamp known to be durable; none before the first.
    pub known: Option<Stamp>,
    /// The driver that writes the next ones.
    pub writer: Id,
}

impl Progress {
    /// Says whether a leg whose newest stamp is `found` has all that was reported durable: it
    /// has the stamp that is known, or one that was written after it.
    pub fn is_kept_by(&self, found: Option<Stamp>) -> bool {
        let Some(known) = self.known else { return true };
        let follows = |found: Stamp| found.writer == self.writer && found.number > known.number;
        found == self.known || found.is_some_and(follows)
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawPayload {
    writer: Id,
    reserved: [u8; block::SECTOR_PAYLOAD_BYTES - size_of::<Id>()],
}
const _: () = assert!(size_of::<RawPayload>() == block::SECTOR_PAYLOAD_BYTES);

type RawStamp = [Sector<RawPayload>; BLOCK_SECTORS];
const _: () = assert!(size_of::<RawStamp>() == BLOCK_BYTES);

impl Stamp {
    /// Returns the slot of this stamp when it is written in a driver's session of this number.
    pub fn slot(&self, session: u64) -> usize {
        ((session % PAIRS) * 2 + self.number % 2) as usize
    }

    /// Fills a block with this stamp, for one slot of a leg of this volume.
    pub fn encode(&self, block: &mut Block, slot: usize, volume: Id) {
        *block = block::blank();
        let raw: &mut RawStamp = transmute_mut!(block);
        for sector in raw {
            sector.payload.writer = self.writer;
        }
        block::seal(block, Kind::STAMP, Layout::stamp_address(slot), volume, self.number);
    }

    /// Returns the stamp in a slot; none if it holds none that is whole.
    pub fn decode(block: &Block, slot: usize, volume: Id) -> Option<Stamp> {
        let state = block::open(block, Kind::STAMP, Layout::stamp_address(slot), volume);
        let BlockState::Valid { sequence: number } = state else { return None };
        let raw: &RawStamp = transmute_ref!(block);
        Some(Stamp { writer: raw[0].payload.writer, number })
    }

    /// Returns the newest stamp of a leg, of which these are the first bytes; none if there is
    /// none.
    pub fn newest_of(leg: &[u8], volume: Id) -> Option<Stamp> {
        let start = Layout::stamp_address(0) as usize;
        Stamp::newest(leg.get(start..start + SLOTS_BYTES)?, volume)
    }

    /// Returns the newest stamp in the bytes of all slots; none if there is none.
    pub fn newest(slots: &[u8], volume: Id) -> Option<Stamp> {
        let blocks = slots.chunks_exact(BLOCK_BYTES).take(SLOTS).enumerate();
        let stamps = blocks.filter_map(|(slot, bytes)| {
            let mut block = block::blank();
            block.copy_from_slice(bytes);
            Stamp::decode(&block, slot, volume)
        });
        stamps.max_by_key(|stamp| stamp.number)
    }
}

#[cfg(test)]
mod tests {
    extern crate alloc;

    use alloc::vec;

    use super::*;

    const VOLUME: Id = [7; 16];

    #[test]
    fn the_newest_whole_stamp_counts() {
        let mut slots = vec![0; SLOTS_BYTES];
        assert_eq!(Stamp::newest(&slots, VOLUME), None);
        let write = |slots: &mut [u8], number, session| {
            let stamp = Stamp { writer: [9; 16], number };
            let slot = stamp.slot(session);
            let mut block = block::blank();
            stamp.encode(&mut block, slot, VOLUME);
            let at = slot * BLOCK_BYTES;
            slots[at..at + BLOCK_BYTES].copy_from_slice(&block);
            (stamp, at)
        };
        let (first, _) = write(&mut slots, 41, 3);
        assert_eq!(Stamp::newest(&slots, VOLUME), Some(first));
        let (second, at) = write(&mut slots, 42, 3);
        assert_eq!(Stamp::newest(&slots, VOLUME), Some(second));
        assert_eq!(Stamp::newest(&slots, [8; 16]), None, "another volume's");
        // Cut in two.
        slots[at + 512..at + BLOCK_BYTES].fill(0);
        assert_eq!(Stamp::newest(&slots, VOLUME), Some(first));
    }

    #[test]
    fn what_is_older_than_a_durable_stamp_or_of_another_history_is_not_kept() {
        let stamp = |writer: u8, number| Some(Stamp { writer: [writer; 16], number });
        let nothing_known = Progress { known: None, writer: [2; 16] };
        assert!(nothing_known.is_kept_by(None) && nothing_known.is_kept_by(stamp(1, 7)));
        let progress = Progress { known: stamp(1, 7), writer: [2; 16] };
        for found in [stamp(1, 7), stamp(2, 8), stamp(2, 9)] {
            assert!(progress.is_kept_by(found), "{found:?}");
        }
        for found in [None, stamp(1, 6), stamp(1, 8), stamp(2, 6), stamp(2, 7), stamp(3, 8)] {
            assert!(!progress.is_kept_by(found), "{found:?}");
        }
    }

    #[test]
    fn a_late_stamp_of_a_lost_session_overwrites_none_of_the_next_seven() {
        let late = Stamp { writer: [0; 16], number: 100 };
        for session in 1..PAIRS {
            for number in 101..110 {
                assert_ne!(late.slot(0), Stamp { number, ..late }.slot(session));
            }
        }
    }
}
