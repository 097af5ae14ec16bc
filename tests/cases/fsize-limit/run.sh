#!/bin/bash
# Under a limit of the size of files (ulimit -f, LimitFSIZE=), a write beyond it must not end the server by
# SIGXFSZ. The write fails, as on any drive that refuses it.
. "$(dirname "$(readlink -f "$0")")/../common.sh"
needs qemu-io
"$HEMI" create --size 64M --leg a --leg b >/dev/null || broken "create"
ulimit -S -f 32768
serve --leg a --leg b || broken "it does not serve"
qemu-io -f raw -c 'write 40M 1M' 'nbd+unix:///?socket=nbd'
sleep 0.5
kill -0 "$SERVER" 2>/dev/null && fine "an error for that client"
wait "$SERVER"
fault "the server ended with status $? (153 is SIGXFSZ); the log ends with: $(tail -n 1 log)"
