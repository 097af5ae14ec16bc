//! Any page that opens encodes to the same entries again; no bytes make it panic.
#![no_main]

use hemi_core::format::block::{self, BLOCK_BYTES, Kind};
use hemi_core::format::page;
use libfuzzer_sys::fuzz_target;

const ADDRESS: u64 = 1 << 20;
const VOLUME: [u8; 16] = [7; 16];

fuzz_target!(|input: &[u8]| {
    let mut block = block::blank();
    let length = input.len().min(BLOCK_BYTES);
    block[..length].copy_from_slice(&input[..length]);
    let _ = page::open(&block, 0, ADDRESS, VOLUME);
    block::seal(&mut block, Kind::PAGE, ADDRESS, VOLUME, 7);
    if let Ok(opened) = page::open(&block, 0, ADDRESS, VOLUME) {
        let mut again = block::blank();
        page::encode(&mut again, ADDRESS, VOLUME, 7, &opened.header(), opened.entries());
        let reopened = page::open(&again, 0, ADDRESS, VOLUME).expect("just sealed");
        assert_eq!(reopened.header(), opened.header());
        assert!(reopened.entries().eq(opened.entries()));
    }
});
