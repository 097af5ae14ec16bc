//! Any superblock that decodes encodes to the same values again; no bytes make it panic.
#![no_main]

use hemi_core::format::block::{self, BLOCK_BYTES, Kind};
use hemi_core::format::{Id, Superblock};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut block = block::blank();
    let length = input.len().min(BLOCK_BYTES);
    block[..length].copy_from_slice(&input[..length]);
    let _ = Superblock::decode(&block, 0);
    // The fuzzer does not guess checksums: judge what lies behind them too.
    block::seal(&mut block, Kind::SUPERBLOCK, 0, Id::default(), 7);
    if let Ok(superblock) = Superblock::decode(&block, 0) {
        let mut again = block::blank();
        superblock.encode(&mut again, 1);
        assert_eq!(Superblock::decode(&again, 1), Ok(superblock));
    }
});
