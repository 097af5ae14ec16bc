#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hemi_fuzz_targets::run("disksim", input));
