//! The superblock of a standby: a drive that waits to take the place of a leg.
//!
//! It lies where a leg's superblock would lie, in both slots, and names the volume that the drive
//! waits for. It is a block of another kind, because everything that reads a leg's superblock must
//! find none here: a standby holds nothing of the volume and decides nothing. Versions that do not
//! know the kind take it for a damaged superblock, and refuse the drive.

use zerocopy::little_endian::U32;
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute_mut, transmute_ref,
};

use super::block::{self, BLOCK_BYTES, BLOCK_SECTORS, Block, BlockState, Kind, Sector};
use super::superblock::{MAGIC, NAME_BYTES_MAX, Name};
use super::{Id, Layout};

/// The format version this code reads and writes.
const VERSION: u32 = 1;
/// The sequence of the block. It is written once.
const SEQUENCE: u64 = 1;

/// A standby's superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standby {
    /// The id of the volume it waits for, not zeros.
    pub volume_id: Id,
    /// The name of that volume.
    pub name: Name,
}

/// The payload of every sector: as in a leg's superblock, it begins with the magic and the id.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawPayload {
    magic: [u8; 8],
    volume_id: Id,
    version: U32,
    name_bytes: u8,
    reserved: [u8; 3],
    name: [u8; NAME_BYTES_MAX],
    unused: [u8; 400],
}
const _: () = assert!(size_of::<RawPayload>() == block::SECTOR_PAYLOAD_BYTES);

type RawStandby = [Sector<RawPayload>; BLOCK_SECTORS];
const _: () = assert!(size_of::<RawStandby>() == BLOCK_BYTES);

impl Standby {
    /// Returns the block for one slot.
    pub fn encode(&self, slot: u8) -> Block {
        let name = self.name.as_str().as_bytes();
        let mut block = block::blank();
        let raw: &mut RawStandby = transmute_mut!(&mut block);
        for sector in raw {
            let payload = &mut sector.payload;
            payload.magic = MAGIC;
            payload.volume_id = self.volume_id;
            payload.version = U32::new(VERSION);
            // A name has at most 64 bytes.
            payload.name_bytes = name.len() as u8;
            payload.name[..name.len()].copy_from_slice(name);
        }
        let address = Layout::superblock_address(slot);
        block::seal(&mut block, Kind::STANDBY, address, Id::default(), SEQUENCE);
        block
    }

    /// Returns the standby's superblock in a slot; none if it holds none that is whole.
    pub fn decode(block: &Block, slot: u8) -> Option<Standby> {
        let address = Layout::superblock_address(slot);
        let BlockState::Valid { .. } = block::open(block, Kind::STANDBY, address, Id::default())
        else {
            return None;
        };
        let raw: &RawStandby = transmute_ref!(block);
        let RawPayload { magic, volume_id, version, name_bytes, name, .. } = raw[0].payload;
        let is_alike = raw.iter().all(|sector| sector.payload.volume_id == volume_id);
        if magic != MAGIC || version.get() != VERSION || volume_id == Id::default() || !is_alike {
            return None;
        }
        let name = Name::from_bytes(name.get(..name_bytes.into())?).ok()?;
        Some(Standby { volume_id, name })
    }

    /// Returns the standby's superblock on a drive of which these are the first bytes; none if there is none.
    pub fn of(head: &[u8]) -> Option<Standby> {
        [0, 1].into_iter().find_map(|slot| {
            let start = usize::try_from(Layout::superblock_address(slot)).ok()?;
            let block = head.get(start..start + BLOCK_BYTES)?.try_into().ok()?;
            Standby::decode(block, slot)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::superblock::{Superblock, SuperblockError};

    fn standby() -> Standby {
        Standby { volume_id: [7; 16], name: Name::new("home ü").expect("a name") }
    }

    #[test]
    fn a_standby_reads_as_it_was_written() {
        for slot in 0..2 {
            let block = standby().encode(slot);
            assert_eq!(Standby::decode(&block, slot), Some(standby()));
            assert_eq!(Standby::decode(&block, 1 - slot), None, "from the other slot");
        }
    }

    #[test]
    fn the_bytes_stay_as_they_are() {
        let block = standby().encode(0);
        assert_eq!(&block[..8], b"HEMIVOL\0");
        assert_eq!(block[8..24], [7; 16]);
        assert_eq!(block[24..32], [1, 0, 0, 0, 7, 0, 0, 0]);
        assert_eq!(&block[32..39], "home ü".as_bytes());
        assert_eq!(&block[504..508], b"\0SBY");
        assert_eq!(crc32c::crc32c(&block), 1_890_744_862, "golden");
    }

    #[test]
    fn a_standby_is_no_leg_and_a_damaged_one_is_nothing() {
        let mut block = standby().encode(0);
        assert_eq!(Superblock::decode(&block, 0), Err(SuperblockError::Standby));
        block[700] ^= 1;
        assert_eq!(Standby::decode(&block, 0), None);
        assert_eq!(Superblock::decode(&block, 0), Err(SuperblockError::Damaged { newest: None }));
    }

    #[test]
    fn either_slot_tells() {
        let end = Layout::superblock_address(1) as usize + BLOCK_BYTES;
        let mut head = std::vec![0; end];
        assert_eq!(Standby::of(&head), None);
        head[end - BLOCK_BYTES..].copy_from_slice(&standby().encode(1));
        assert_eq!(Standby::of(&head), Some(standby()));
        head[..BLOCK_BYTES].copy_from_slice(&standby().encode(0));
        head[end - BLOCK_BYTES..].fill(0);
        assert_eq!(Standby::of(&head), Some(standby()));
    }
}
