#!/bin/sh
# Runs as init inside user-mode Linux, on the host's files: a volume with two legs on one
# dm-log-writes device, so that the log has the requests to both of them in one order. Its settings
# are on the kernel's command line: OUT (directory for results), HEMI, PYTHON, LOAD (the script that
# writes), LEG_KIB, CACHED (0 or 1: the leg with a volatile cache; the other leg's writes are
# durable when they complete), FLAKY (1: the other leg fails writes now and then), SIZE, REGION and
# CLEAN_AFTER of the volume, and for LOAD: FUA, SEED, FLUSHES.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mount -t tmpfs tmp /run
ip link set lo up 2>/dev/null
exec >"$OUT/guest.log" 2>&1
set -x

leg=$((LEG_KIB * 2))
echo "0 $((leg * 2)) log-writes /dev/ram0 /dev/ubdb" | dmsetup create log
dmsetup mknodes
for i in 0 1; do
  if [ "$FLAKY" = 1 ] && [ "$i" != "$CACHED" ]; then
    # Up for two seconds, then failing writes for one.
    echo "0 $leg flakey /dev/mapper/log $((leg * i)) 2 1 1 error_writes" | dmsetup create leg$i
  else
    echo "0 $leg linear /dev/mapper/log $((leg * i))" | dmsetup create leg$i
  fi
  dmsetup mknodes
  # A loop device has no FUA, so durable writes become writes and flushes, whose order is in the log.
  losetup --direct-io=on /dev/loop$i /dev/mapper/leg$i
  [ "$i" = "$CACHED" ] || echo "write through" >/sys/block/loop$i/queue/write_cache
done
"$HEMI" create --size "$SIZE" --region-size "$REGION" --leg /dev/loop0 --leg /dev/loop1 \
  --wipe /dev/loop0 --wipe /dev/loop1
"$HEMI" serve --leg /dev/loop0 --leg /dev/loop1 --nbd unix:/run/v.sock --control /run/v.ctl \
  --allow-inject --set "engine.clean_after=$CLEAN_AFTER" --set engine.wait.floor=30ms &
server=$!
until [ -S /run/v.sock ] || ! kill -0 $server; do sleep 0.1; done
"$PYTHON" "$LOAD" --uri "nbd+unix:///?socket=/run/v.sock" --control /run/v.ctl --hemi "$HEMI" \
  --log /dev/mapper/log --out "$OUT/history" --fua "$FUA" --seed "$SEED" \
  --flushes "$FLUSHES" && touch "$OUT/done"
kill -KILL $server
dmsetup message log 0 mark end
sync
for i in 0 1; do losetup -d /dev/loop$i; dmsetup remove --retry leg$i; done
# Removing it waits until the log is written.
dmsetup remove --retry log
sync
busybox poweroff -f
