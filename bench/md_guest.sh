#!/bin/sh
# Runs as init inside user-mode Linux, on the host's files: measures Linux md RAID-1 and hemi
# on the same RAM disks behind dm-delay, with the same freezes. Told by environment variables
# on the kernel's command line (OUT: directory for results; SECONDS_RUN, VOLUME_MIB, HEMI).
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mount -t tmpfs tmp /run
mkdir -p /run/work
ip link set lo up 2>/dev/null
exec >"$OUT/guest.log" 2>&1
uname -r >"$OUT/kernel"

modules=/usr/lib/uml/modules/$(uname -r)/kernel/drivers
for module in md/md-mod md/raid1 md/dm-mod md/dm-delay; do
  busybox insmod "$modules/$module.ko"
done
leg_kib=$(((VOLUME_MIB + 64) * 1024))
busybox insmod "$modules/block/brd.ko" rd_nr=2 rd_size=$leg_kib max_part=0
sectors=$((leg_kib * 2))

# legs DELAY0 DELAY1: /dev/mapper/leg0 and leg1, each so many ms late, with nothing on them.
legs() {
  for i in 0 1; do
    [ "$i" = 0 ] && delay=$1 || delay=$2
    dd if=/dev/zero of=/dev/ram$i bs=1M 2>/dev/null
    echo "0 $sectors delay /dev/ram$i 0 $delay" | dmsetup create leg$i
  done
  dmsetup mknodes
}
no_legs() {
  dmsetup remove leg0
  dmsetup remove leg1
}

# load NAME FROZEN DEPTH TARGET-OPTIONS...: one fio run; FROZEN is none, 0 or 1.
load() {
  name=$1 frozen=$2 depth=$3
  shift 3
  fio --name=load --output-format=json --output="$OUT/$name.json" \
    --percentile_list=50:99:99.9 --rw=randwrite --bs=4k --iodepth="$depth" \
    --size="${VOLUME_MIB}m" --runtime="$SECONDS_RUN" --time_based=1 --norandommap=1 "$@" &
  fio=$!
  if [ "$frozen" != none ]; then
    sleep $((SECONDS_RUN / 3))
    dmsetup suspend --nolockfs --noflush "leg$frozen"
    sleep 2
    dmsetup resume "leg$frozen"
  fi
  wait $fio
}

md_start() { # OPTIONS...: the write-mostly leg must be slot 0 for write-behind to work here
  mdadm --create /dev/md0 --run --force --metadata=1.2 --level=1 --raid-devices=2 \
    --assume-clean "$@"
}
md_stop() {
  mdadm --stop /dev/md0
  for i in 0 1; do mdadm --zero-superblock /dev/mapper/leg$i; done
}
md_target="--ioengine=libaio --direct=1 --filename=/dev/md0"

hemi_start() {
  "$HEMI" create --size "${VOLUME_MIB}M" --leg /dev/mapper/leg0 --leg /dev/mapper/leg1 \
    --wipe /dev/mapper/leg0 --wipe /dev/mapper/leg1
  "$HEMI" serve --leg /dev/mapper/leg0 --leg /dev/mapper/leg1 --nbd unix:/run/work/v.sock \
    --control /run/work/v.ctl --set engine.exposure.bytes=1GiB --set engine.exposure.age=60s &
  server=$!
  until [ -S /run/work/v.sock ] || ! kill -0 $server; do sleep 0.1; done
}
hemi_stop() {
  kill -TERM $server
  wait $server
}
hemi_target="--ioengine=nbd --uri=nbd+unix:///?socket=/run/work/v.sock"

for depth in 1 16; do
  for frozen in none 0 1; do
    legs 0 0
    md_start /dev/mapper/leg0 /dev/mapper/leg1
    load "md.plain.$frozen.$depth" $frozen $depth $md_target
    md_stop
    md_start --bitmap=internal --write-behind=256 --write-mostly /dev/mapper/leg0 \
      /dev/mapper/leg1
    load "md.write-behind.$frozen.$depth" $frozen $depth $md_target
    md_stop
    hemi_start
    load "hemi.first.$frozen.$depth" $frozen $depth $hemi_target
    hemi_stop
    no_legs
  done
  # One leg 20 ms late: leg 0, where md's write-behind can use it.
  legs 20 0
  md_start /dev/mapper/leg0 /dev/mapper/leg1
  load "md.plain.slow.$depth" none $depth $md_target
  md_stop
  md_start --bitmap=internal --write-behind=256 --write-mostly /dev/mapper/leg0 /dev/mapper/leg1
  load "md.write-behind.slow.$depth" none $depth $md_target
  md_stop
  hemi_start
  load "hemi.first.slow.$depth" none $depth $hemi_target
  hemi_stop
  no_legs
done
sync
busybox poweroff -f
