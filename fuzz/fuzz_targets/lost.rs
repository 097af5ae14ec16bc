//! Any lost list that opens encodes to the same extents again; no bytes make it panic.
#![no_main]

use hemi_core::format::block::{self, BLOCK_BYTES, Kind};
use hemi_core::format::lost;
use libfuzzer_sys::fuzz_target;

const ADDRESS: u64 = 128 << 10;
const VOLUME: [u8; 16] = [7; 16];
const SECTORS: u64 = 1 << 40;

fuzz_target!(|input: &[u8]| {
    let mut block = block::blank();
    let length = input.len().min(BLOCK_BYTES);
    block[..length].copy_from_slice(&input[..length]);
    let _ = lost::open(&block, ADDRESS, VOLUME, SECTORS).map(|list| list.extents().count());
    block::seal(&mut block, Kind::LOST, ADDRESS, VOLUME, 7);
    if let Ok(list) = lost::open(&block, ADDRESS, VOLUME, SECTORS) {
        let extents: Vec<_> = list.extents().collect();
        let mut again = block::blank();
        lost::encode(&mut again, ADDRESS, VOLUME, 7, &list.header(), &extents, SECTORS)
            .expect("it was a list");
        let reopened = lost::open(&again, ADDRESS, VOLUME, SECTORS).expect("just sealed");
        assert!(reopened.extents().eq(extents));
    }
});
