#!/bin/bash
# Copies of the MSR, Alibaba and Tencent traces in circulation have a line of column names first, some a byte
# order mark. Columns in another order must not be read as if they were in the usual one.
. "$(dirname "$(readlink -f "$0")")/../common.sh"
bad=0
convert() { "$HEMI" trace convert "$@" --to csv --volume '*' >out 2>err; }
for f in msr alibaba tencent msr-bom; do
  convert "$HERE/$f.csv" - && [ "$(wc -l <out)" = 3 ] || { echo "$f: $(head -n 1 err)"; bad=1; }
  convert "$HERE/$f.csv" - --from "${f%-bom}" || { echo "$f, named: $(head -n 1 err)"; bad=1; }
done
sed '1s/Offset,Size/Size,Offset/' "$HERE/tencent.csv" >other.csv
convert other.csv - && { echo "columns in another order are read as if they were not"; bad=1; }
grep -q 'first line is `Timestamp,Size,Offset.*remove this line if' err || { cat err; bad=1; }
[ $bad = 0 ] && fine "read, and another order is refused"
fault "the first line ends the reading, or the message does not say what to do"
