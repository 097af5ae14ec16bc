#!/bin/bash
# A recording whose end is missing (hemi was killed, or the copy broke off) lacks requests. Every command that
# reads it says so on standard error, and says nothing of a whole one.
. "$(dirname "$(readlink -f "$0")")/../common.sh"
needs qemu-io
"$HEMI" create --size 16M --leg a --leg b >/dev/null || broken "create"
serve --leg a --leg b --record whole || broken "it does not serve"
for i in $(seq 0 11); do
  printf 'write %sk 4k\n' $((i * 64))
  [ $((i % 4)) != 3 ] || printf 'sleep 600\n'
done >requests
qemu-io -f raw 'nbd+unix:///?socket=nbd' <requests >/dev/null || broken "qemu-io"
cp whole cut
kill -TERM "$SERVER" && wait "$SERVER"
[ "$(stat -c %s whole)" -gt "$(stat -c %s cut)" ] || broken "nothing was recorded"

cat >sim.toml <<END
title = "replay"
[system]
legs = ["x25e-32gb"]
policy = "single"
scale = 16
[workload.replay]
trace = "TRACE"
END
printf 'title = "replay"\n[workload.replay]\ntrace = "TRACE"\n' >load.toml
sed '/workload/,$d' sim.toml >session.toml
truncate -s 16M target
bad=0
# Runs a command on the whole recording and on the cut one.
try() {
  local each rc
  for each in whole cut; do
    sed "s/TRACE/$each/" sim.toml >sim-$each.toml
    sed "s/TRACE/$each/" load.toml >load-$each.toml
    "${@//TRACE/$each}" >out 2>err </dev/null || { echo "$* fails: $(tail -n 2 err)"; bad=1; continue; }
    grep -q "$each has no end: hemi was killed" err
    rc=$?
    [ "$each" = whole ] && [ $rc = 0 ] && { echo "$*: untrue of the whole recording"; bad=1; }
    [ "$each" = cut ] && [ $rc != 0 ] && { echo "$*: not a word of it: '$(cat err)'"; bad=1; }
  done
}
session() { echo '{"name": "a", "workload": {"replay": {"trace": "'"$1"'"}}}' | "$HEMI" sim session session.toml; }
try "$HEMI" trace convert TRACE out.csv --to csv
try "$HEMI" trace convert TRACE out.iolog --to iolog
try "$HEMI" trace convert TRACE out.parquet --to parquet
try "$HEMI" load load-TRACE.toml --target target --wipe target --buffered --lateness-bound 10s
try "$HEMI" sim run sim-TRACE.toml
try session TRACE
try "$HEMI" advise TRACE --candidates gp3
try "$HEMI" advise TRACE --candidates gp3 --json -
[ $bad = 0 ] && fine "it is said wherever it is read"
fault "requests are missing, and nobody is told"
