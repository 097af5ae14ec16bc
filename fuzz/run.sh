#!/usr/bin/env bash
# Fuzzes one target on the stable toolchain: fuzz/run.sh superblock [libFuzzer options]
# e.g. -max_total_time=60. `cargo fuzz run superblock` does the same with a nightly one.
set -euo pipefail
cd "$(dirname "$0")"
target=${1:?usage: run.sh TARGET [libFuzzer options]; the targets are in fuzz_targets/}
shift
# What `cargo fuzz` sets, less the sanitizers, which need a nightly compiler.
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Ccodegen-units=1 \
-Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
-Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
mkdir -p "corpus/$target" artifacts
cargo build --release --bin "$target" --target "$(rustc --print host-tuple)"
exec "${CARGO_TARGET_DIR:-target}/$(rustc --print host-tuple)/release/$target" \
    -artifact_prefix=artifacts/ -max_len=4096 -len_control=0 "$@" "corpus/$target"
