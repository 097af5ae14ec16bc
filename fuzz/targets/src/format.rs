//! Fuzz targets for the metadata on a leg, block by block. The fuzzer does not guess checksums, so
//! every input is also tried with the right one.

use hemi_engine::format::block::{self, BLOCK_BYTES, Kind};
use hemi_engine::format::{Block, Id, Layout, Stamp, Superblock, lost, page};

const VOLUME: Id = [7; 16];
const LOST_ADDRESS: u64 = 128 << 10;
const PAGE_ADDRESS: u64 = 1 << 20;
const SECTORS: u64 = 1 << 40;

fn block_of(input: &[u8]) -> Block {
    let mut block = block::blank();
    let length = input.len().min(BLOCK_BYTES);
    block[..length].copy_from_slice(&input[..length]);
    block
}

/// Checks that any superblock that decodes encodes to the same values again.
pub(crate) fn superblock(input: &[u8]) {
    let mut block = block_of(input);
    let _ = Superblock::decode(&block, 0);
    block::seal(&mut block, Kind::SUPERBLOCK, 0, Id::default(), 7);
    if let Ok(superblock) = Superblock::decode(&block, 0) {
        let mut again = block::blank();
        superblock.encode(&mut again, 1);
        assert_eq!(Superblock::decode(&again, 1), Ok(superblock));
    }
}

/// Checks that any page that opens encodes to the same entries again.
pub(crate) fn page(input: &[u8]) {
    let mut block = block_of(input);
    let _ = page::open(&block, 0, PAGE_ADDRESS, VOLUME);
    block::seal(&mut block, Kind::PAGE, PAGE_ADDRESS, VOLUME, 7);
    if let Ok(opened) = page::open(&block, 0, PAGE_ADDRESS, VOLUME) {
        let mut again = block::blank();
        let entries: Vec<_> = opened.entries().collect();
        page::encode(&mut again, PAGE_ADDRESS, VOLUME, 7, &opened.header(), &entries);
        let reopened = page::open(&again, 0, PAGE_ADDRESS, VOLUME).expect("just sealed");
        assert_eq!(reopened.header(), opened.header());
        assert!(reopened.entries().eq(opened.entries()));
    }
}

/// Checks that any lost list that opens encodes to the same extents again.
pub(crate) fn lost(input: &[u8]) {
    let mut block = block_of(input);
    let _ = lost::open(&block, LOST_ADDRESS, VOLUME, SECTORS).map(|list| list.extents().count());
    block::seal(&mut block, Kind::LOST, LOST_ADDRESS, VOLUME, 7);
    if let Ok(list) = lost::open(&block, LOST_ADDRESS, VOLUME, SECTORS) {
        let extents: Vec<_> = list.extents().collect();
        let mut again = block::blank();
        lost::encode(&mut again, LOST_ADDRESS, VOLUME, 7, &list.header(), &extents, SECTORS)
            .expect("it was a list");
        let reopened = lost::open(&again, LOST_ADDRESS, VOLUME, SECTORS).expect("just sealed");
        assert!(reopened.extents().eq(extents));
    }
}

/// Checks that any stamp that is whole encodes to the same stamp again.
pub(crate) fn stamp(input: &[u8]) {
    let mut block = block_of(input);
    let _ = Stamp::decode(&block, 0, VOLUME);
    let _ = Stamp::newest_of(input, VOLUME);
    block::seal(&mut block, Kind::STAMP, Layout::stamp_address(0), VOLUME, 7);
    if let Some(stamp) = Stamp::decode(&block, 0, VOLUME) {
        let mut again = block::blank();
        stamp.encode(&mut again, 1, VOLUME);
        assert_eq!(Stamp::decode(&again, 1, VOLUME), Some(stamp));
    }
}
