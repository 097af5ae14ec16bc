#!/bin/sh
# Runs as init inside a user-mode kernel, on the host's files, and measures the ways to a block device on the
# same RAM disks, in rounds. Its settings are environment variables on the kernel's command line: OUT
# (directory for results), SECONDS_RUN, VOLUME_MIB, HEMI, ROUNDS, and SYSTEMS and CASES (runs to make,
# separated by commas). Each run leaves $OUT/ROUND.SYSTEM.CASE.json, and $OUT/ROUND.SYSTEM.CASE.ticks with
# hemi's processor time in hundredths of a second. The reason for an early end is in $OUT/failed.
# shellcheck source=bench/guest.sh
. "$(dirname "$0")/guest.sh"

# Written in full once, so that no measured write is the one that allocates its page.
for i in 0 1; do dd if=/dev/zero of=/dev/ram$i bs=1M count=$((VOLUME_MIB + 16)) status=none; done

alike() { "$HEMI" status --json --control /run/work/v.ctl | grep -q '"converged": true'; }
start_hemi() { # OPTIONS...
  "$HEMI" create --size "${VOLUME_MIB}M" --name v --leg /dev/ram0 --leg /dev/ram1 \
    --wipe /dev/ram0 --wipe /dev/ram1 || fail "hemi could not create the volume"
  rm -f /run/work/v.sock /run/work/v.ctl
  "$HEMI" serve --leg /dev/ram0 --leg /dev/ram1 --nbd unix:/run/work/v.sock --ledger /run/work \
    --control /run/work/v.ctl "$@" &
  server=$!
  retry test -S /run/work/v.ctl
  retry alike
}
start() {
  server=
  target="--ioengine=libaio --direct=1 --allow_file_create=0"
  case $1 in
  md)
    for i in 0 1; do dd if=/dev/zero of=/dev/ram$i bs=1M count=4 status=none; done
    mdadm --create /dev/md0 --run --force --metadata=1.2 --level=1 --raid-devices=2 \
      --assume-clean --bitmap=internal /dev/ram0 /dev/ram1 || fail "no array"
    device=/dev/md0
    ;;
  ublk | nbd)
    start_hemi "--device=$1"
    retry test -b /dev/hemi/v
    device=$(readlink -f /dev/hemi/v)
    ;;
  nbd-client)
    start_hemi
    nbd-client -unix /run/work/v.sock /dev/nbd0 -connections 1 || fail "nbd-client failed"
    device=/dev/nbd0
    ;;
  socket)
    start_hemi
    target="--ioengine=nbd --uri=nbd+unix:///?socket=/run/work/v.sock"
    return
    ;;
  *) fail "no such system: $1" ;;
  esac
  target="$target --filename=$device"
}
stop() {
  case $1 in
  md) retry mdadm --stop /dev/md0 ;;
  ublk | nbd) "$HEMI" detach-device --control /run/work/v.ctl || fail "the device stays" ;;
  nbd-client) nbd-client -d /dev/nbd0 ;;
  esac
  [ -z "$server" ] && return
  kill -TERM $server
  wait $server
}
ticks() { [ -n "$server" ] && awk '{ print $14 + $15 }' "/proc/$server/stat" || echo 0; }
# load NAME CASE
load() {
  case $2 in
  read-1) how="--rw=randread --iodepth=1" ;;
  write-1) how="--rw=randwrite --iodepth=1" ;;
  sync-1) how="--rw=randwrite --iodepth=1 --fsync=1" ;;
  read-16) how="--rw=randread --iodepth=16" ;;
  write-16) how="--rw=randwrite --iodepth=16" ;;
  *) fail "no such case: $2" ;;
  esac
  before=$(ticks)
  # shellcheck disable=SC2086
  fio --name=load --output-format=json --output="$OUT/$1.part" --bs=4k --percentile_list=50:99:99.9 \
    --size="${VOLUME_MIB}m" --runtime="$SECONDS_RUN" --time_based=1 --norandommap=1 --randrepeat=0 \
    $how $target || fail "$1: fio failed"
  echo $(($(ticks) - before)) >"$OUT/$1.ticks"
  mv "$OUT/$1.part" "$OUT/$1.json"
}

for round in $(seq "$ROUNDS"); do
  for system in $(list "$SYSTEMS"); do
    start "$system"
    for case in $(list "$CASES"); do load "$round.$system.$case" "$case"; done
    stop "$system"
  done
done
sync
busybox poweroff -f
