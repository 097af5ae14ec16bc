#!/usr/bin/env bash
# Runs foreign NBD clients against a volume on two file legs and prints their output, the
# transcripts in docs/nbd.md. Needs `make setup-test` and a built hemi (HEMI, default: release).
set -euo pipefail
HEMI=${HEMI:-$(cd "$(dirname "$0")/.." && pwd)/target/release/hemi}
dir=$(mktemp -d)
cd "$dir"
trap 'kill %1 2>/dev/null || true; wait; rm -rf "$dir"' EXIT

"$HEMI" create --size 1G --leg ssd.img --leg hdd.img --name vol >/dev/null
"$HEMI" serve --set state=none --leg ssd.img --leg hdd.img --nbd unix:vol.sock --control vol.ctl >serve.log 2>&1 &
until [ -S vol.sock ]; do sleep 0.1; done

show() { printf '$'; printf ' %q' "$@" | sed 's/\\\([?=]\)/\1/g'; echo; "$@" 2>&1; echo; }
uri='nbd+unix:///vol?socket=vol.sock'
qemu='nbd:unix:vol.sock:exportname=vol'

show nbdinfo "$uri"
qemu-img create -q -f raw disk.raw 1G
dd if=/dev/urandom of=disk.raw bs=1M count=64 conv=notrunc status=none
dd if=/dev/urandom of=disk.raw bs=1M count=64 seek=512 conv=notrunc status=none
show nbdcopy disk.raw "$uri"
show nbdinfo --map "$uri"
show nbdinfo --map=hemi:copies "$uri"
show nbdcopy "$uri" back.raw
show cmp disk.raw back.raw
show qemu-img convert -n -f raw -O raw disk.raw "$qemu"
show qemu-img compare -f raw -F raw disk.raw "$qemu"
show qemu-img convert -f raw -O qcow2 "$qemu" vol.qcow2
show qemu-img check vol.qcow2
show qemu-img compare -f raw -F qcow2 "$qemu" vol.qcow2
show qemu-io -f raw -c 'write -P 0x5a 4k 64k' -c 'read -P 0x5a 4k 64k' -c 'write -z 8k 8k' \
  -c 'read -P 0 8k 8k' -c 'discard 1M 1M' -c flush "$qemu"
show fio --name=verify --ioengine=nbd "--uri=$uri" --rw=randwrite --bsrange=4k-64k \
  --iodepth=16 --size=256m --verify=crc32c --verify_fatal=1 --end_fsync=1 |
  grep -v -e 'percentiles' -e '|' -e 'lat (' -e 'cpu ' -e 'IO depths' -e 'submit ' -e 'complete '
