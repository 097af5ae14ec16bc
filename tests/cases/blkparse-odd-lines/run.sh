#!/bin/bash
# Lines that blkparse 1.2.0 writes by itself: commands passed through to the drive (the smartctl that hemi
# asks makes them), with and without their bytes, and the names of its input files, which come first on a
# terminal and last behind -q. whole.txt has everything at once: a name that is cut within a character, a
# message of two lines, a time before the first event, a queued request of two events, the summaries of -s.
. "$(dirname "$(readlink -f "$0")")/../common.sh"
bad=0
try() {
  "$HEMI" trace convert "$HERE/$1" - --to csv "${@:3}" >out 2>err && [ "$(wc -l <out)" = "$2" ] ||
    { echo "$*: $(wc -l <out) lines, $(head -n 1 err)"; bad=1; }
}
try passthrough.txt 3 --from blkparse --event D
try terminal.txt 3 --from blkparse
try quiet.txt 3 --from blkparse
try whole.txt 10 --from blkparse
try terminal.txt 3
try quiet.txt 3
try whole.txt 10
[ $bad = 0 ] && fine "all are read, and recognised"
fault "lines of blkparse end the reading"
