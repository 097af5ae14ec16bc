#!/usr/bin/env bash
# Shows the storage lab: four plans' reports, a comparison, and a picture of each, in under 15
# minutes on two cores. Every time is far below its methodology's, and the reports say so.
#   scripts/lab_demo.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."

out=${1:-target/lab-demo}
lab=${HEMI_LAB:-.venv/bin/hemi-lab}
export HEMI=${HEMI:-$PWD/target/release/hemi}
[ -x "$lab" ] || { echo "lab-demo: no $lab: run 'make setup-bench' first" >&2; exit 1; }
[ -x "$HEMI" ] || { echo "lab-demo: no $HEMI: run 'make release' first" >&2; exit 1; }
if [ -e "$out" ]; then
  # Runs are never overwritten.
  mv "$out" "$out.$(date +%s)"
fi
mkdir -p "$out"
work=$(mktemp -d "$out/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
begun=$(date +%s)
failed=()

# NAME ARGUMENTS…: a run. Its directory is the only line on standard output.
run() {
  local name=$1
  shift
  printf '\n== %s: hemi-lab run %s\n' "$name" "$*"
  "$lab" run "$@" --out "$out/runs" >"$work/$name"
  last=$(tail -n 1 "$work/$name")
}

# NAME RUN…: one report of these runs, and its picture.
report() {
  local name=$1
  shift
  "$lab" report "$@" --out "$out/$name.html"
  picture "$name"
}

picture() {
  if scripts/screenshot.sh "$out/$1.html" "$out/$1.png"; then
    printf '%s\n' "$out/$1.png"
  else
    failed+=("the picture $1.png")
  fi
}

run quick quick --target "file:$work/file.img,size=512MiB" --time-scale 0.2
report quick "$last"

# Stock, and formatted smaller, so that more of its flash is spare. Flash is scaled down 16 times.
run stock enterprise --target sim:iodrive-duo-640gb,scale=16 --test write-4k --time-scale 0.25
stock=$last
run spare enterprise --target sim:iodrive-duo-640gb-op36,scale=16 --test write-4k --time-scale 0.25
report enterprise "$stock" "$last"

mirror=setup:lab/setups/pair.toml,size=256MiB,policy=all
hemi=setup:lab/setups/pair.toml,size=256MiB
short=(--test write-q16 --time-scale 0.2)
if "$lab" compare --help >/dev/null 2>&1; then
  # In turns, so that a busy hour of this machine affects both.
  printf '\n== compare: the plan freeze on a plain mirror (A) and on hemi (B), in turns\n'
  "$lab" compare --plan freeze --rounds 3 "${short[@]}" "$mirror" "$hemi" \
    --out "$out/freeze" --html "$out/compare.html"
  picture compare
  report freeze-mirror "$out"/freeze/A/*/
  report freeze-hemi "$out"/freeze/B/*/
else
  run mirror freeze --target "$mirror" "${short[@]}"
  report freeze-mirror "$last"
  run hemi freeze --target "$hemi" "${short[@]}"
  report freeze-hemi "$last"
  failed+=("the comparison: this hemi-lab has no command compare")
fi

printf '\nlab-demo: %d s; reports and pictures are in %s\n' "$(($(date +%s) - begun))" "$out"
for what in "${failed[@]}"; do
  printf 'lab-demo: NOT made: %s\n' "$what" >&2
done
[ "${#failed[@]}" = 0 ]
