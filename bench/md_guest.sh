#!/bin/sh
# Runs as init inside user-mode Linux, on the host's files, and measures Linux md RAID-1 and hemi on
# the same RAM disks behind dm-delay, with the same freezes. Its settings are environment variables
# on the kernel's command line: OUT (directory for results), SECONDS_RUN, VOLUME_MIB, HEMI, and
# SYSTEMS, CASES and DEPTHS (runs to make, separated by commas). Each run leaves
# $OUT/SYSTEM.CASE.DEPTH.json. The reason for an early end is in $OUT/failed.
# shellcheck source=bench/guest.sh
. "$(dirname "$0")/guest.sh"

sectors=$(((VOLUME_MIB + 64) * 2048))
# Written in full once, so that no measured write is the one that allocates its page.
for i in 0 1; do dd if=/dev/zero of=/dev/ram$i bs=1M count=$((VOLUME_MIB + 64)) status=none; done

# legs DELAY0 DELAY1: recreates /dev/mapper/leg0 and leg1 with these delays in ms, without the
# superblocks of the run before.
legs() {
  for i in 0 1; do
    [ $i = 0 ] && delay=$1 || delay=$2
    dd if=/dev/zero of=/dev/ram$i bs=1M count=4 status=none
    echo "0 $sectors delay /dev/ram$i 0 $delay" | dmsetup create leg$i || fail "no leg $i"
  done
  dmsetup mknodes
}
# A leg may be held for a second after the last process that had it open has ended, since the kernel
# releases an io_uring and its registered files in the background.
no_legs() {
  for i in 0 1; do retry dmsetup remove leg$i; done
}
# The number of writes that leg $1 has completed.
leg_writes() {
  device=$(dmsetup info -c --noheadings --separator : -o major,minor "leg$1")
  awk '{ print $5 }' "/sys/dev/block/$device/stat"
}

start_md() { # OPTIONS...: the write-mostly leg must be slot 0 for write-behind to work here
  mdadm --create /dev/md0 --run --force --metadata=1.2 --level=1 --raid-devices=2 \
    --assume-clean "$@" || fail "mdadm could not create the array"
  [ -b /dev/md0 ] || fail "no block device /dev/md0"
}
converged() { "$HEMI" status --json --control /run/work/v.ctl | grep -q '"converged": true'; }
start_hemi() { # OPTIONS...
  "$HEMI" create --size "${VOLUME_MIB}M" --name v --leg /dev/mapper/leg0 --leg /dev/mapper/leg1 \
    --wipe /dev/mapper/leg0 --wipe /dev/mapper/leg1 || fail "hemi could not create the volume"
  rm -f /run/work/v.sock /run/work/v.ctl
  "$HEMI" serve --leg /dev/mapper/leg0 --leg /dev/mapper/leg1 --nbd unix:/run/work/v.sock \
    --control /run/work/v.ctl --ledger /run/work --set engine.exposure.bytes=1GiB \
    --set engine.exposure.age=60s "$@" &
  server=$!
  retry test -S /run/work/v.ctl
  # md's array is assumed clean, as hemi's legs also have to be identical before it is measured.
  retry converged
}
start() {
  target="--ioengine=libaio --direct=1 --allow_file_create=0 --filename=/dev/md0"
  case $1 in
  md.plain) start_md --bitmap=none /dev/mapper/leg0 /dev/mapper/leg1 ;;
  md.write-behind-*)
    start_md --bitmap=internal "--write-behind=${1#md.write-behind-}" \
      --write-mostly /dev/mapper/leg0 /dev/mapper/leg1
    ;;
  hemi)
    target="--ioengine=nbd --uri=nbd+unix:///?socket=/run/work/v.sock"
    start_hemi
    ;;
  ublk)
    start_hemi --device=ublk
    retry test -b /dev/hemi/v
    target="--ioengine=libaio --direct=1 --allow_file_create=0 --filename=$(readlink -f /dev/hemi/v)"
    ;;
  *) fail "no such system: $1" ;;
  esac
}
stop() {
  case $1 in
  md.*) retry mdadm --stop /dev/md0 ;;
  hemi | ublk)
    [ "$1" = hemi ] || "$HEMI" detach-device --control /run/work/v.ctl || fail "the device stays"
    # The debt to a slow leg does not matter here, and would take time to drain.
    kill -KILL $server
    wait $server
    ;;
  esac
}

# load NAME FROZEN DEPTH: one fio run. FROZEN is none, 0 or 1. Fails if the freeze did not fall into
# the run (if the whole machine paused, for example), since then the run shows no freeze.
load() {
  missed=
  [ "$2" = none ] || before=$(leg_writes "$2")
  # The whole latency, submission included, since md lets a writer wait there for a place among the
  # writes behind.
  # shellcheck disable=SC2086
  fio --name=load --output-format=json --output="$OUT/$1.part" --lat_percentiles=1 \
    --clat_percentiles=0 --percentile_list=50:99:99.9 --rw=randwrite --bs=4k \
    --iodepth="$3" --size="${VOLUME_MIB}m" --runtime="$SECONDS_RUN" --time_based=1 \
    --norandommap=1 --randrepeat=0 $target &
  fio=$!
  if [ "$2" != none ]; then
    # fio takes its time to start here, and the freeze has to fall into the load.
    until [ "$(leg_writes "$2")" -gt $((before + 200)) ] || ! kill -0 $fio; do
      sleep 0.1
    done
    sleep $((SECONDS_RUN / 3))
    dmsetup suspend --nolockfs --noflush "leg$2" || fail "$1: could not freeze leg $2"
    sleep 2
    dmsetup resume "leg$2" || fail "$1: could not thaw leg $2"
    kill -0 $fio || missed=1
  fi
  wait $fio || fail "$1: fio failed"
  [ -z "$missed" ] || return 1
  mv "$OUT/$1.part" "$OUT/$1.json"
}
# measure SYSTEM CASE DEPTH
measure() {
  echo "== $(cut -d ' ' -f 1 /proc/uptime) s: $1, $2, queue depth $3"
  frozen=$2 delay=0
  # One leg 20 ms late: leg 0, where md's write-behind can use it.
  [ "$2" != slow ] || frozen=none delay=20
  legs $delay 0
  start "$1"
  load "$1.$2.$3" "$frozen" "$3"
  valid=$?
  stop "$1"
  no_legs
  return $valid
}

for depth in $(list "$DEPTHS"); do
  for case in $(list "$CASES"); do
    for system in $(list "$SYSTEMS"); do
      attempts=1
      until measure "$system" "$case" "$depth"; do
        [ $attempts -lt 3 ] || fail "$system.$case.$depth: the load ended before the thaw"
        attempts=$((attempts + 1))
      done
    done
  done
done
sync
busybox poweroff -f
