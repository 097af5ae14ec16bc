#!/bin/sh
# Runs as init inside a user-mode kernel, on the host's files, and measures MariaDB under sysbench on a block
# device of hemi and on md RAID-1, on the same RAM disks, in rounds. Its settings are environment variables on
# the kernel's command line: OUT (directory for results), SECONDS_RUN, VOLUME_MIB, HEMI, ROUNDS, and SYSTEMS and
# CASES (runs to make, separated by commas). Each run leaves sysbench's text in $OUT/ROUND.SYSTEM.CASE.json.
# The reason for an early end is in $OUT/failed.
# shellcheck source=bench/guest.sh
. "$(dirname "$0")/guest.sh"

leg_mib=$((VOLUME_MIB + 16))
sectors=$((leg_mib * 2048))
# Written in full once, so that no measured write is the one that allocates its page.
for i in 0 1; do dd if=/dev/zero of=/dev/ram$i bs=1M count=$leg_mib status=none; done
# A leg is a mapping of a RAM disk, which is frozen by suspending it.
for i in 0 1; do echo "0 $sectors linear /dev/ram$i 0" | dmsetup create leg$i || fail "no leg $i"; done
dmsetup mknodes
legs="/dev/mapper/leg0 /dev/mapper/leg1"

alike() { "$HEMI" status --json --control /run/work/v.ctl | grep -q '"converged": true'; }
start() {
  server=
  for leg in $legs; do dd if=/dev/zero of="$leg" bs=1M count=4 status=none; done
  case $1 in
  md)
    # shellcheck disable=SC2086
    mdadm --create /dev/md0 --run --force --metadata=1.2 --level=1 --raid-devices=2 \
      --assume-clean --bitmap=internal $legs || fail "no array"
    device=/dev/md0
    ;;
  ublk | nbd)
    "$HEMI" create --size "${VOLUME_MIB}M" --name v --leg /dev/mapper/leg0 --leg /dev/mapper/leg1 \
      --wipe /dev/mapper/leg0 --wipe /dev/mapper/leg1 || fail "hemi could not create the volume"
    rm -f /run/work/v.ctl
    "$HEMI" serve --leg /dev/mapper/leg0 --leg /dev/mapper/leg1 --ledger /run/work \
      --control /run/work/v.ctl "--device=$1" &
    server=$!
    retry test -b /dev/hemi/v
    retry alike
    device=$(readlink -f /dev/hemi/v)
    ;;
  *) fail "no such system: $1" ;;
  esac
}
stop() {
  if [ "$1" = md ]; then
    retry mdadm --stop /dev/md0
  else
    "$HEMI" detach-device --control /run/work/v.ctl || fail "the device stays"
    kill -TERM $server
    wait $server
  fi
}

start_database() {
  mkfs.ext4 -q -E nodiscard "$device" || fail "no file system"
  mkdir -p /run/mount
  mount "$device" /run/mount || fail "not mounted"
  cat >/run/my.cnf <<END
[mariadbd]
datadir=/run/mount/data
socket=/run/sql.sock
tmpdir=/run
user=root
skip_networking
innodb_log_file_size=32M
innodb_buffer_pool_size=48M
innodb_buffer_pool_size_max=48M
innodb_flush_method=O_DIRECT
innodb_flush_log_at_trx_commit=1
performance_schema=OFF
END
  mariadb-install-db --defaults-file=/run/my.cnf --auth-root-authentication-method=normal \
    --skip-test-db >/run/install.log 2>&1 || fail "no database: $(tail -n 5 /run/install.log)"
  mariadbd --defaults-file=/run/my.cnf >/run/sql.log 2>&1 &
  database=$!
  retry mariadb --socket=/run/sql.sock -e "CREATE DATABASE IF NOT EXISTS sbtest" 2>/dev/null
  bench prepare >/run/prepare.log 2>&1 || fail "no tables: $(tail -n 5 /run/prepare.log)"
}
stop_database() {
  mariadb-admin --socket=/run/sql.sock shutdown || fail "the database does not end"
  wait $database
  umount /run/mount || fail "still mounted"
}
bench() {
  sysbench oltp_read_write --db-driver=mysql --mysql-socket=/run/sql.sock --mysql-user=root \
    --tables=2 --table-size=10000 --threads=4 --percentile=99 --time="$SECONDS_RUN" "$1"
}
# load NAME CASE: one run. CASE is none, 0 or 1: the leg that freezes for two seconds.
load() {
  bench run >"$OUT/$1.part" 2>&1 &
  running=$!
  if [ "$2" != none ]; then
    sleep $((SECONDS_RUN / 3))
    dmsetup suspend --nolockfs --noflush "leg$2" || fail "$1: could not freeze leg $2"
    sleep 2
    dmsetup resume "leg$2" || fail "$1: could not thaw leg $2"
    kill -0 $running || fail "$1: the load ended before the thaw"
  fi
  wait $running || fail "$1: sysbench failed: $(tail -n 5 "$OUT/$1.part")"
  mv "$OUT/$1.part" "$OUT/$1.json"
  [ -n "$server" ] && retry alike
}

for round in $(seq "$ROUNDS"); do
  for system in $(list "$SYSTEMS"); do
    start "$system"
    start_database
    for case in $(list "$CASES"); do load "$round.$system.$case" "$case"; done
    stop_database
    stop "$system"
  done
done
sync
busybox poweroff -f
