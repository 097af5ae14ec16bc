#!/bin/bash
# A leg died and was marked out. What is at its path now is not that leg: a blank disk in its place, a leg of
# another volume, something too short or read-only, a mount without its server. The volume is served without it,
# and the log names the way back. A leg that is in is needed as before. Usage: run.sh [VARIANT...]; default: all.
. "$(dirname "$(readlink -f "$0")")/../common.sh"
needs qemu-io

# Leaves a closed volume on the files a and b, whose leg 1 (b) is out.
leg_1_out() {
  "$HEMI" create --size 16M --leg a --leg b --name "out$$" >/dev/null || broken "create"
  serve --leg a --leg b --allow-inject --set engine.out_after=2s || broken "it does not serve"
  "$HEMI" inject --leg 1 --freeze 1h --control control >/dev/null || broken "inject"
  for _ in $(seq 40); do
    qemu-io -f raw -c 'write 0 1M' -c flush 'nbd+unix:///?socket=nbd' >/dev/null
    "$HEMI" status --control control | grep -q 'leg 1 out' && break
    sleep 0.5
  done
  "$HEMI" status --control control | grep -q 'leg 1 out' || broken "leg 1 is not out"
  kill -9 "$SERVER"; wait "$SERVER" 2>/dev/null
  mv b dead; rm -f control nbd log
}

# The volume is served without leg 1 and says why ($1); then b becomes a leg again by the command named.
passed_over() {
  local why=$1 wipe=${2:-}
  serve --leg a --leg b || fault "$variant: it is not served: $(tail -n 3 log)"
  grep -q "a leg that is out cannot be used.*$why" log || fault "$variant: the log says: $(cat log)"
  grep -q "hemi leg replace 1 b" log || fault "$variant: the way back is not named: $(cat log)"
  [ "$wipe" = no ] && return
  # shellcheck disable=SC2086 # no option, or one
  "$HEMI" leg replace 1 b $wipe --control control >/dev/null || fault "$variant: leg replace 1 b $wipe is refused"
}

try() {
  local variant=$1 size
  mkdir "$variant"; cd "$variant" || broken "cd"
  [ "$variant" = in ] || leg_1_out
  case $variant in
  blank)
    truncate -s "$(stat -c %s dead)" b
    passed_over "only zeros" ;;
  foreign)
    "$HEMI" create --size 16M --leg b --leg c --name "other$$" >/dev/null || broken "create"
    passed_over "a leg of another volume" --wipe ;;
  short) # the leg, cut off behind its metadata
    cp --sparse=always dead b; truncate -s 4M b
    passed_over "the volume needs" no ;;
  directory)
    mkdir b
    passed_over "is a directory" no ;;
  read-only)
    [ "$(id -u)" = 0 ] || { echo "skipped: $variant (loop devices need root)"; cd "$WORK"; return; }
    # The path is one of /dev in that case, and a link is a path as good.
    ln -s "$(losetup -r -f --show dead)" b; LOOPS+=("$(readlink b)")
    passed_over "read-only" no ;;
  no-server)
    command -v nbdkit nbdfuse >/dev/null || { echo "skipped: $variant (no nbdkit or nbdfuse)"; cd "$WORK"; return; }
    mkdir m; ln -s "$PWD/m/nbd" b
    start nbdkit -f -U k memory 32M; sleep 1
    start nbdfuse m --unix k; MOUNTS+=("$PWD/m")
    for _ in $(seq 50); do [ -e m/nbd ] && break; sleep 0.1; done
    kill -9 "$!"; sleep 0.5
    serve --leg a --leg b || fault "$variant: it is not served: $(tail -n 3 log)"
    grep -q "Transport endpoint is not connected\|Socket not connected" log || fault "$variant: the log says: $(cat log)" ;;
  detached)
    mv dead b
    serve --leg a --leg b || broken "it does not serve"
    "$HEMI" leg detach 1 --control control >/dev/null || broken "detach"
    kill "$SERVER"; wait "$SERVER"; rm log
    serve --leg a --leg b || fault "$variant: it is not served: $(tail -n 3 log)"
    grep -q "it was detached from the volume.*hemi leg attach b --wipe" log || fault "$variant: the log says: $(cat log)"
    "$HEMI" leg attach b --wipe --control control >/dev/null || fault "$variant: it cannot be attached" ;;
  in) # a leg that is in is needed, and the way back names its slot
    "$HEMI" create --size 16M --leg a --leg b --name "out$$" >/dev/null || broken "create"
    size=$(stat -c %s b); rm b; truncate -s "$size" b
    timeout 60 "$HEMI" serve --leg a --leg b --control control --nbd unix:nbd >log 2>&1
    [ $? = 3 ] || fault "$variant: a volume without a leg that is in is served, or fails otherwise: $(tail -n 3 log)"
    grep -q "hemi promote" log && grep -q "hemi leg replace 1 b" log || fault "$variant: the refusal says: $(cat log)"
    grep -q "hemi leg add" log && fault "$variant: the refusal advises leg add: $(cat log)" ;;
  *) broken "there is no variant $variant" ;;
  esac
  kill "$SERVER" 2>/dev/null; wait "$SERVER" 2>/dev/null
  cd "$WORK" || broken "cd"
  echo "fine: $variant"
}

SERVER=
[ "$#" -gt 0 ] || set -- blank foreign short directory read-only no-server detached in
for each in "$@"; do try "$each"; done
fine "what is at the path of a leg that is out does not keep the volume down"
