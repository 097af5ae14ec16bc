#!/bin/bash
# smartctl writes the 128-bit counters of NVMe as plain numbers. One beyond 64 bits, which the firmware of some drives
# has, must not cost the rest of the drive's health: that it fails, above all.
. "$(dirname "$(readlink -f "$0")")/../common.sh"
mkdir bin
printf '#!/bin/sh\ntouch %s\ncat %s\n' "$WORK/asked" "$HERE/answer.json" >bin/smartctl
chmod +x bin/smartctl
export PATH=$WORK/bin:$PATH
"$HEMI" create --size 16M --leg a --leg b >/dev/null || broken "create"
serve --leg a --leg b || broken "it does not serve"
for _ in $(seq 100); do
  "$HEMI" status --json --control control >status.json
  grep -q '"failing": *true' status.json && grep -q '"temperature_celsius": *41' status.json && fine "both are told"
  grep -q 'wrote no JSON' status.json && fault "the drive says that it fails, and hemi does not tell: $(grep why_unknown status.json | head -n 1)"
  sleep 0.2
done
[ -e asked ] || { echo "no disk is known behind these files"; exit 77; }
fault "the drive's health is not told: $(grep why_unknown status.json | head -n 1)"
