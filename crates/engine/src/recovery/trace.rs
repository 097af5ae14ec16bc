//! Tells how far a leg has come by what is left of its metadata.

use super::{LegImage, block_at};
use crate::format::superblock::SuperblockError;
use crate::format::{Layout, Superblock};
use crate::format::{lost, page};

/// Returns the highest sequence of a metadata object of which the leg has a trace, be it damaged; the
/// highest of all if that cannot be told. A leg put back to an older state has no such trace.
pub(super) fn traced(image: LegImage, superblock: &Superblock, object: u32) -> u64 {
    let layout = &superblock.layout;
    let pages = layout.page_count();
    let volume = superblock.volume_id;
    let of_slot = |slot: u8| {
        let address = match object.checked_sub(pages) {
            None => layout.page_address(object, slot),
            Some(0) => Layout::superblock_address(slot),
            Some(_) => Layout::lost_address(slot),
        };
        let block = block_at(image.bytes, address)?;
        match object.checked_sub(pages) {
            None => match page::open(block, object, address, volume) {
                Ok(page) => Some(page.sequence()),
                Err(page::PageError::Torn { newest }) => Some(newest),
                Err(page::PageError::Blank) => None,
                Err(page::PageError::Damaged { newest }) => newest.or(Some(u64::MAX)),
                Err(_) => Some(u64::MAX),
            },
            Some(0) => match Superblock::decode(block, slot) {
                Ok(superblock) => Some(superblock.sequence),
                Err(SuperblockError::Torn { newest }) => Some(newest),
                Err(SuperblockError::Damaged { newest }) => newest.or(Some(u64::MAX)),
                Err(_) => None,
            },
            Some(_) => match lost::open(block, address, volume, layout.volume_sectors()) {
                Ok(list) => Some(list.sequence()),
                Err(lost::LostError::Torn { newest }) => Some(newest),
                Err(lost::LostError::Blank) => None,
                Err(lost::LostError::Damaged { newest }) => newest.or(Some(u64::MAX)),
                Err(_) => Some(u64::MAX),
            },
        }
    };
    (0..2).filter_map(of_slot).max().unwrap_or(0)
}
