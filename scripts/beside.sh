#!/usr/bin/env bash
# Runs targets of the Makefile at the same time.
#
#   scripts/beside.sh DIRECTORY FIRST OTHER...
#
# FIRST writes to the terminal. Each OTHER writes to DIRECTORY/OTHER.log, which is printed whole when FIRST has
# ended, those of the failed after the others. Every target runs to its end, also when another has failed. Exits
# 0 if all passed, 1 if not. What still runs when this is stopped, is stopped too.
set -uo pipefail

[ $# -ge 2 ] || { echo "usage: $0 DIRECTORY FIRST OTHER..." >&2; exit 2; }
directory=$1 first=$2
shift 2
make=${MAKE:-make}
mkdir -p "$directory"

# Each in a process group of its own, with what it starts.
set -m
declare -A running=()
stop() {
  for target in "${!running[@]}"; do kill -- "-${running[$target]}" 2>/dev/null; done
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

for target; do
  "$make" "$target" >"$directory/$target.log" 2>&1 </dev/null &
  running[$target]=$!
done
set +m

failed=()
"$make" "$first" || failed+=("$first")

passed=() late=()
for target; do
  if wait "${running[$target]}"; then passed+=("$target"); else late+=("$target"); fi
  unset "running[$target]"
done
for target in ${passed[@]+"${passed[@]}"} ${late[@]+"${late[@]}"}; do
  printf '== %s\n' "$target"
  cat "$directory/$target.log"
done
failed+=(${late[@]+"${late[@]}"})
if [ "${#failed[@]}" -gt 0 ]; then
  printf 'failed: %s\n' "${failed[*]}" >&2
  exit 1
fi
