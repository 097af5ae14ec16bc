# Sourced by the scripts that run as init inside a user-mode kernel. Mounts the usual file systems, and sends
# all output to $OUT/guest.log.
# shellcheck shell=sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mount -t tmpfs tmp /run
mkdir -p /run/work
ip link set lo up 2>/dev/null
exec >"$OUT/guest.log" 2>&1
uname -r >"$OUT/kernel"

fail() {
  dmesg | tail -n 30
  echo "$*" >"$OUT/failed"
  sync
  busybox poweroff -f
}
# retry COMMAND...: repeats it until it succeeds, for 30 s.
retry() {
  tries=0
  until "$@"; do
    tries=$((tries + 1))
    [ $tries -lt 150 ] || fail "did not succeed in 30 s: $*"
    sleep 0.2
  done
}

list() { echo "$1" | tr , " "; }
