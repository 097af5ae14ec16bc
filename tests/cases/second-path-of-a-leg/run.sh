#!/bin/bash
# Two paths lead to one disk: a LUN without multipathd, two loop devices over one file, a file and its loop
# device. A leg that is served must not be formatted by its other path, and one disk must not become two legs,
# even with --wipe. A copy of a leg on a disk of its own may be. Usage: run.sh [VARIANT...]; default: all.
. "$(dirname "$(readlink -f "$0")")/../common.sh"
needs losetup
needs_root

# Serves a volume with legs on the loop device $1 (over the file a) and on the file b.
serve_two() {
  "$HEMI" create --size 32M --leg "$1" --leg b --name "twice$$" >/dev/null || broken "create"
  serve --leg "$1" --leg b || broken "it does not serve"
}

# Runs a command that must be refused since its disk is in use by another path.
refused() {
  said=$("$@" 2>&1) && fault "$variant: $* was done: $said"
  grep -q "another path to" <<<"$said" || fault "$variant: $* says: $said"
  grep -q "Add --wipe\|add --wipe" <<<"$said" && fault "$variant: $* advises to wipe it: $said"
}

# The volume is stopped, and both legs still are its legs.
whole() {
  kill "$SERVER"; wait "$SERVER"
  serve "$@" || fault "$variant: the volume does not open any more: $(tail -n 1 log)"
  [ "$("$HEMI" status --control control | grep -c 'healthy')" -ge 1 ] || fault "$variant: it is not healthy"
}

try() {
  local one two variant=$1
  mkdir "$variant"; cd "$variant" || broken "cd"
  truncate -s 64M a b
  one=$(loop a); LOOPS+=("$one")
  case $variant in
  add) # a new leg by the other path of a served one
    two=$(loop a); LOOPS+=("$two")
    serve_two "$one"
    refused "$HEMI" leg add "$two" --control control
    refused "$HEMI" leg add "$two" --wipe --control control
    refused "$HEMI" leg attach "$two" --wipe --control control
    whole --leg "$one" --leg b ;;
  replace) # of another leg
    two=$(loop a); LOOPS+=("$two")
    serve_two "$one"
    "$HEMI" leg detach 1 --control control >/dev/null || broken "detach"
    refused "$HEMI" leg replace 1 "$two" --wipe --control control
    whole --leg "$one" ;;
  returns) # the leg that is out comes back by its other path
    two=$(loop b); LOOPS+=("$two")
    losetup -d "$one"; one=$(loop b); LOOPS+=("$one")
    "$HEMI" create --size 32M --leg a --leg "$one" --name "twice$$" >/dev/null || broken "create"
    serve --leg a --leg "$one" || broken "it does not serve"
    "$HEMI" leg detach 1 --control control >/dev/null || broken "detach"
    "$HEMI" leg replace 1 "$two" --wipe --control control >/dev/null || fault "$variant: a leg that is out was refused"
    ;;
  file) # the loop device of a file that is a leg
    losetup -d "$one"
    serve_two a
    two=$(loop a); LOOPS+=("$two")
    refused "$HEMI" leg add "$two" --wipe --control control
    whole --leg a --leg b ;;
  other-volume) # a new volume over a leg of one that is served
    two=$(loop a); LOOPS+=("$two")
    serve_two "$one"
    refused "$HEMI" create --size 16M --leg "$two" --leg new --name "other$$"
    refused "$HEMI" create --size 16M --leg "$two" --leg new --name "other$$" --wipe "$two"
    [ ! -e new ] || fault "$variant: what was refused left a file"
    whole --leg "$one" --leg b ;;
  create) # both paths as two legs of a new volume, blank and not
    two=$(loop a); LOOPS+=("$two")
    "$HEMI" create --size 16M --leg "$one" --leg "$two" 2>said && fault "$variant: one disk became two legs"
    grep -q "are the same storage by two paths" said || fault "$variant: create says: $(cat said)"
    printf 'data' | dd of=a bs=4096 seek=1 conv=notrunc status=none
    before=$(md5sum <a)
    "$HEMI" create --size 16M --leg "$one" --leg "$two" --wipe "$one" --wipe "$two" 2>said &&
      fault "$variant: one disk became two legs"
    grep -q "are the same storage by two paths" said || fault "$variant: create says: $(cat said)"
    [ "$(md5sum <a)" = "$before" ] || fault "$variant: what was refused has changed the disk" ;;
  start) # both paths as two legs of a start
    two=$(loop a); LOOPS+=("$two")
    "$HEMI" create --size 32M --leg "$one" --leg b --name "twice$$" >/dev/null || broken "create"
    serve --leg "$one" --leg "$two" --leg b && fault "$variant: one disk is served as two legs"
    grep -q "the same leg twice" log || fault "$variant: the start says: $(tail -n 2 log)" ;;
  copy) # a copy of a served leg on a disk of its own is no second path
    truncate -s 64M c
    two=$(loop c); LOOPS+=("$two")
    serve_two "$one"
    cp a c; losetup -d "$two"; two=$(loop c); LOOPS+=("$two")
    "$HEMI" leg add "$two" --control control 2>said && fault "$variant: a disk with content was taken without --wipe"
    grep -q "Add --wipe" said || fault "$variant: leg add says: $(cat said)"
    "$HEMI" leg add "$two" --wipe --control control >/dev/null || fault "$variant: a copy on another disk was refused" ;;
  lun) # two files of FUSE over one disk, of which the kernel does not know that they are one
    command -v nbdkit nbdfuse >/dev/null || { echo "skipped: $variant (no nbdkit or nbdfuse)"; cd "$WORK"; return; }
    start nbdkit -f -U k file a
    mkdir m n; sleep 1
    start nbdfuse m --unix k
    start nbdfuse n --unix k
    MOUNTS+=("$PWD/m" "$PWD/n")
    for _ in $(seq 50); do [ -e m/nbd ] && [ -e n/nbd ] && break; sleep 0.1; done
    "$HEMI" create --size 16M --leg m/nbd --leg n/nbd 2>said && fault "$variant: one disk became two legs"
    grep -q "are the same storage by two paths" said || fault "$variant: create says: $(cat said)"
    serve_two m/nbd
    refused "$HEMI" leg add n/nbd --wipe --control control
    refused "$HEMI" create --size 16M --leg n/nbd --leg new --wipe n/nbd
    whole --leg m/nbd --leg b ;;
  silent) # the path in use does not answer, so that nothing can be proved
    command -v nbdkit nbdfuse >/dev/null || { echo "skipped: $variant (no nbdkit or nbdfuse)"; cd "$WORK"; return; }
    start nbdkit -f -U k file a; local kit=$!
    start nbdkit -f -U l file a
    mkdir m n; sleep 1
    start nbdfuse m --unix k
    start nbdfuse n --unix l
    MOUNTS+=("$PWD/m" "$PWD/n")
    for _ in $(seq 50); do [ -e m/nbd ] && [ -e n/nbd ] && break; sleep 0.1; done
    serve_two m/nbd
    kill -STOP "$kit"
    # The command may not end before its last read does.
    (sleep 6; kill -CONT "$kit") &
    refused "$HEMI" create --size 16M --leg n/nbd --leg new --wipe n/nbd
    grep -q "may be another path to .*did not answer" <<<"$said" || fault "$variant: create says: $said"
    wait %%
    whole --leg m/nbd --leg b ;;
  export) # two URIs of one export
    command -v nbdkit >/dev/null || { echo "skipped: $variant (no nbdkit)"; cd "$WORK"; return; }
    start nbdkit -f -U k file a
    ln -s k l; sleep 1
    one="nbd+unix:///?socket=$PWD/k" two="nbd+unix:///?socket=$PWD/l"
    "$HEMI" create --size 16M --leg "$one" --leg "$two" 2>said && fault "$variant: one export became two legs"
    grep -q "are the same storage by two paths" said || fault "$variant: create says: $(cat said)"
    serve_two "$one"
    refused "$HEMI" leg add "$two" --wipe --control control
    whole --leg "$one" --leg b ;;
  *) broken "there is no variant $variant" ;;
  esac
  kill "$SERVER" 2>/dev/null; wait "$SERVER" 2>/dev/null
  rm -f log; cd "$WORK" || broken "cd"
  echo "fine: $variant"
}

SERVER=
[ "$#" -gt 0 ] || set -- add replace returns file other-volume create start copy lun silent export
for each in "$@"; do try "$each"; done
fine "no disk is formatted by its second path"
