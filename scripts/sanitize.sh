#!/usr/bin/env bash
# Runs the tests of hemi-io and hemi-server, the crates with `unsafe`, under AddressSanitizer.
#
#   scripts/sanitize.sh [test name ...]
#
# It finds accesses past the end of an object, or after its end, in hemi's own code and in the
# libraries that it links. It does not see the kernel's writes, nor accesses that stay within one
# mapping of payload memory, which `Span` checks itself.
set -euo pipefail
cd "$(dirname "$0")/.."
target="$(rustc -vV | sed -n 's/^host: //p')"
if ! cargo +nightly --version >/dev/null 2>&1; then
  echo "sanitize: needs a nightly toolchain: rustup toolchain install nightly" >&2
  exit 1
fi
# Some memory is meant to live as long as the process.
export ASAN_OPTIONS="detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
export RUSTFLAGS="-Zsanitizer=address ${RUSTFLAGS:-}"
# With its own target directory: everything is built anew for it.
cargo +nightly test --locked --quiet --package hemi-io --package hemi-server --lib --target "$target" \
  --target-dir "${CARGO_TARGET_DIR:-target}/sanitize" -- "$@"
