#!/bin/bash
# DiskSim takes any block from a file (`Layout Model = source FILE`), as its later disks have it. Of another kind of
# layout (dm_layout_g4, two megabytes of it), the message has to say that it is the reason.
. "$(dirname "$(readlink -f "$0")")/../common.sh"
cp "$HERE"/disk.* .
"$HEMI" sim import-disksim disk.diskspecs >out 2>err || fault "$(grep -v '^ignored' err)"
grep -q 'disk.layout, line 1: dm_layout_g1' out || fault "the file is not named as the source"
{ echo 'dm_layout_g4 {'; echo 'TP = ['; yes '0, 1087, 1088,' | head -n 150000; echo '] }'; } >disk.layout
"$HEMI" sim import-disksim disk.diskspecs >out 2>err && fault "another kind of layout is taken"
grep -q 'disk.layout, line 1:.*dm_layout_g4.*not supported' err || fault "$(cat err)"
fine "it is read, and another kind is named"
