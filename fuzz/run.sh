#!/usr/bin/env bash
# Fuzzes targets on the stable toolchain, one after the other:
#
#   fuzz/run.sh                      all targets, ten minutes each
#   FUZZ_SECONDS=60 fuzz/run.sh page lost
#   fuzz/run.sh page -- -runs=1 fuzz/found/artifacts/crash-…    libFuzzer's own options
#   fuzz/run.sh --merge              adds the inputs found to the corpus in the tree
#
# Inputs that reach new code are kept in fuzz/found/, crashes in fuzz/found/artifacts/.
# `cargo fuzz run TARGET` does the same with a nightly toolchain, and adds the sanitizers.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${FUZZ_SECONDS:-600}
# A Rust program ignores it, so its writes fail. libFuzzer's main does not.
trap '' PIPE

targets=() options=() merge=0
while [ $# -gt 0 ]; do
  case $1 in
    --) shift; options=("$@"); break ;;
    --merge) merge=1 ;;
    -*) echo "fuzz: unknown option $1; libFuzzer's own go after --" >&2; exit 2 ;;
    *) targets+=("$1") ;;
  esac
  shift
done
all=()
for file in fuzz/fuzz_targets/*.rs; do all+=("$(basename "$file" .rs)"); done
[ "${#targets[@]}" -gt 0 ] || targets=("${all[@]}")
for target in "${targets[@]}"; do
  [ -f "fuzz/fuzz_targets/$target.rs" ] || { echo "fuzz: no target $target; there are: ${all[*]}" >&2; exit 2; }
done

# The options of `cargo fuzz`, without the sanitizers, which need a nightly compiler.
host=$(rustc --print host-tuple)
build=${CARGO_TARGET_DIR:-$PWD/fuzz/target}
RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module \
-Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
-Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares" \
  CARGO_TARGET_DIR=$build cargo build --locked --release --quiet --manifest-path fuzz/Cargo.toml \
  --target "$host" --bins

mkdir -p fuzz/found/artifacts
failed=()
for target in "${targets[@]}"; do
  binary=$build/$host/release/$target found=fuzz/found/$target corpus=fuzz/corpus/$target
  mkdir -p "$found" "$corpus"
  if [ "$merge" = 1 ]; then
    # Only small inputs that reach code the corpus does not, because the corpus is in the tree.
    "$binary" -merge=1 -use_counters=0 -use_cmp=0 -max_len=4096 "$corpus" "$found"
  elif [ "${#options[@]}" -gt 0 ]; then
    "$binary" -artifact_prefix=fuzz/found/artifacts/ "${options[@]}"
  else
    echo "== $target, $seconds s"
    log=fuzz/found/$target.log
    if "$binary" -artifact_prefix="fuzz/found/artifacts/$target-" -max_len=8192 -timeout=30 \
      -rss_limit_mb=4096 -max_total_time="$seconds" -print_final_stats=1 "$found" "$corpus" \
      >"$log" 2>&1; then
      grep -E '^(Done |stat::number_of_executed_units|stat::peak_rss_mb)|DONE ' "$log"
    else
      tail -40 "$log"
      failed+=("$target")
    fi
  fi
done
if [ "${#failed[@]}" -gt 0 ]; then
  echo "fuzz: crashed: ${failed[*]}; the inputs are in fuzz/found/artifacts/" >&2
  exit 1
fi
