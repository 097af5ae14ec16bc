#!/usr/bin/env bash
# What `make lint` runs. Every check runs; the exit code says whether all passed.
set -uo pipefail
cd "$(dirname "$0")/.."
failed=()

check() { # NAME COMMAND...
  local name=$1; shift
  printf '== %s\n' "$name"
  "$@" || failed+=("$name")
}

check "cargo fmt" cargo fmt --all --check
check "cargo clippy" cargo clippy --locked --workspace --all-targets --quiet -- -D warnings

# cargo-deny is built from source the first time, which takes minutes.
if ! command -v cargo-deny >/dev/null && [ "${HEMI_LINT_DENY:-1}" = 1 ]; then
  echo "lint: installing cargo-deny (HEMI_LINT_DENY=0 leaves it out)"
  cargo install --locked --quiet cargo-deny || true
fi
if command -v cargo-deny >/dev/null; then
  # Advisories need a database from the network; the rest of the check does not.
  check "cargo deny" cargo deny --locked check bans licenses sources
else
  echo "lint: cargo-deny is not available; licences and bans were NOT checked"
fi

check "ruff format" .venv/bin/ruff format --check --quiet tests bench lab
check "ruff" .venv/bin/ruff check --quiet tests bench lab
check "mypy" .venv/bin/mypy tests bench
# By itself: its tests have folders that the harness's have too.
check "mypy, lab" .venv/bin/mypy -p hemi_lab
check "mypy, lab tests" env MYPYPATH=lab/tests:lab/src .venv/bin/mypy lab/tests
check "shell syntax" bash -n scripts/setup.sh scripts/lint.sh .ci/run

if [ "${#failed[@]}" -gt 0 ]; then
  printf 'lint: failed: %s\n' "${failed[*]}" >&2
  exit 1
fi
echo "lint: all passed"
