#!/bin/bash
# A leg on FUSE whose server is gone fails with ENOTCONN (on NFS: ESTALE). Log and events name the error, not
# "an unexpected error".
. "$(dirname "$(readlink -f "$0")")/../common.sh"
needs nbdkit nbdfuse qemu-io
mkdir m
start nbdkit -f -U kit memory 80M
sleep 1
start nbdfuse m --unix kit; mounted=$!
MOUNTS+=("$PWD/m")
for _ in $(seq 50); do [ -e m/nbd ] && break; sleep 0.1; done
"$HEMI" create --size 64M --leg m/nbd --leg b >/dev/null || broken "create"
serve --leg m/nbd --leg b || broken "it does not serve"
kill -9 "$mounted"
sleep 0.5
qemu-io -f raw -c 'write 1M 1M' -c flush 'nbd+unix:///?socket=nbd' >/dev/null
for _ in $(seq 50); do "$HEMI" events --control control | grep -q 'failed at' && break; sleep 0.1; done
"$HEMI" events --control control | grep 'failed at' || broken "no I/O failed"
"$HEMI" events --control control | grep 'failed at' | grep -q 'os error 107\|os error 103' || fault "the events do not name the error"
grep 'I/O.* failed' log | grep -q 'os error 107\|os error 103' || fault "the log does not name the error: $(grep 'failed' log)"
grep -q 'unexpected error' log && fault "the log has an unexpected error: $(grep 'unexpected error' log)"
fine "the error is named"
