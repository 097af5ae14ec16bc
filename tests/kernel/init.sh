#!/bin/bash
# Runs as init inside the user-mode kernel, on the host's files, and runs the tests of guest/. The kernel's
# command line has PYTHON, HEMI, TREE (this checkout), RESULTS (a directory of the host), and ROUNDS.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$TREE/tests/blackbox"
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts
mount -t devpts pts /dev/pts
mount -t tmpfs tmp /run
mkdir -p /run/lock /dev/shm
mount -t tmpfs shm /dev/shm
ip link set lo up
cd "$TREE/tests/kernel/guest" || poweroff -f
# shellcheck disable=SC2086
"$PYTHON" -m pytest -ra -p no:cacheprovider -c /dev/null --rootdir . --confcutdir . . $TESTS >"$RESULTS/output" 2>&1
echo $? >"$RESULTS/status"
dmesg >"$RESULTS/dmesg"
sync
poweroff -f
