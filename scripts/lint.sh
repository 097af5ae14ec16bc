#!/usr/bin/env bash
# Runs the checks of `make lint`, the cheap ones first. Every check runs, and the exit status is 0
# if all passed.
set -uo pipefail
cd "$(dirname "$0")/.."
failed=()

check() { # NAME COMMAND...
  local name=$1; shift
  printf '== %s\n' "$name"
  "$@" || failed+=("$name")
}

check "shell syntax" bash -n .ci/run scripts/*.sh tests/cases/*.sh tests/cases/*/*.sh tests/kernel/*.sh fuzz/run.sh
check "cargo fmt" cargo fmt --all --check
check "ruff format" .venv/bin/ruff format --check --quiet tests bench lab scripts
check "ruff" .venv/bin/ruff check --quiet tests bench lab scripts
check "mypy" .venv/bin/mypy tests bench scripts
# By itself, since its tests have directories that the harness's have too.
check "mypy, lab" .venv/bin/mypy -p hemi_lab
check "mypy, lab tests" env MYPYPATH=lab/tests:lab/src .venv/bin/mypy lab/tests
check "the engine's rooms" scripts/engine_rooms.py
check "prose" python3 scripts/check_prose.py
check "licences and sources" .venv/bin/python scripts/licences.py
# Building cargo-deny from source takes minutes, so it is optional. It reads each crate's licence
# files too. Advisories are left out, since they need a database from the network.
if command -v cargo-deny >/dev/null; then
  check "cargo deny" cargo deny --locked check bans licenses sources
fi
if [ -n "${RUSTC_WORKSPACE_WRAPPER:-}" ]; then
  echo "== cargo clippy: with the build of the tests"
else
  check "cargo clippy" cargo clippy --locked --workspace --all-targets --quiet -- -D warnings
fi

if [ "${#failed[@]}" -gt 0 ]; then
  printf 'lint: failed: %s\n' "${failed[*]}" >&2
  exit 1
fi
echo "lint: all passed"
