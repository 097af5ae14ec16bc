#!/usr/bin/env bash
# Runs seeds of one day that nobody has run before, and reports the failures.
#
#   scripts/torture_daily.sh TARGET_DIRECTORY DAY SECONDS
#
# DAY counts from 1970 and has 100,000 seeds, beyond the threshold from which seeds have everything the
# torture can do (docs/torture.md). As many are run as fit in SECONDS. Leaves the whole output in
# torture-daily.log and, if a promise broke, a report in torture-daily.found, both in the target directory.
# Exits 0 if every promise held, 1 if not, 2 if nothing could be run.
set -uo pipefail

[ $# = 3 ] || { echo "usage: $0 TARGET_DIRECTORY DAY SECONDS" >&2; exit 2; }
target=$1 day=$2 seconds=$3
torture=$target/release/hemi-torture
log=$target/torture-daily.log
found=$target/torture-daily.found
[ -x "$torture" ] || { echo "torture: no $torture: run 'make torture-daily'" >&2; exit 2; }
rm -f "$found"

first=$((41000000000000 + day * 100000))
range=$first..$((first + 100000))
echo "torture: new seeds of day $day ($range, $seconds s)"
"$torture" --seeds "$range" --jobs 2 --time "$seconds" --doublecheck >"$log" 2>&1
code=$?
cat "$log"
[ "$code" != 0 ] || exit 0

{
  echo "######################################################################"
  echo "TORTURE: new seeds of day $day broke a promise (exit status $code)"
  seeds=$(sed -nE 's/^seed ([0-9]+): (.*) broken: .*/\1 \2/p' "$log")
  if [ -z "$seeds" ]; then
    echo "  no seed was named before it ended; the last lines of its output:"
    tail -n 20 "$log" | sed 's/^/    /'
  fi
  while read -r seed promise; do
    [ -n "$seed" ] || continue
    echo "  seed $seed broke $promise. Again:"
    echo "    $torture --seeds $seed..$((seed + 1)) --doublecheck"
    echo "    $torture --seed $seed --shrink"
  done <<<"$seeds"
  echo "  All of the day's seeds again: make torture-daily DAY=$day"
  echo "  What to do with a find: docs/torture.md"
  echo "######################################################################"
} >"$found"
cat "$found"
exit 1
