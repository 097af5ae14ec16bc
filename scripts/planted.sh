#!/usr/bin/env bash
# Shows that the engine's scripted tests detect their mistakes: each passes, and fails once its mistake is
# planted (crates/engine/tests/planted.txt).
set -euo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT

run() {
    timeout 300 cargo test --locked --quiet -p hemi-engine --features planted --test scripted -- --exact "$1::$2" >"$log" 2>&1
}

cargo test --locked --quiet -p hemi-engine --features planted --no-run
missed=0
while read -r mistake file test; do
    mistake=${mistake%\*}
    if ! run "$file" "$test" || ! grep -q "1 passed" "$log"; then
        echo "$mistake: $file $test does not pass without it" >&2
        missed=$((missed + 1))
    elif PLANTED=$mistake run "$file" "$test"; then
        echo "$mistake: NOT CAUGHT by $file $test" >&2
        missed=$((missed + 1))
    else
        echo "$mistake: caught by $file $test"
    fi
done < <(grep -v '^#\| seed \| asserted ' crates/engine/tests/planted.txt)
[ "$missed" = 0 ] || { echo "$missed not caught" >&2; exit 1; }
