#!/bin/bash
# The sockets of the volumes "my db" and "my_db" have one file name, in which other characters become `_`. A
# command for one must not act on the other, nor may the names that are shown be the file's.
. "$(dirname "$(readlink -f "$0")")/../common.sh"
export XDG_RUNTIME_DIR=$WORK/run
mkdir -p run/hemi
name=mix$$
"$HEMI" create --size 16M --leg a --leg b --name "$name db" >/dev/null || broken "create"
"$HEMI" create --size 16M --leg c --leg d --name "${name}_db" >/dev/null || broken "create"
start "$HEMI" serve --leg a --leg b >>log 2>&1
for _ in $(seq 100); do "$HEMI" status --volume "$name db" >/dev/null 2>&1 && break; sleep 0.1; done
"$HEMI" status --volume "$name db" >/dev/null || broken "it does not serve"

"$HEMI" leg detach 1 --volume "${name}_db" 2>refused && fault "--volume ${name}_db detached a leg of \"$name db\""
grep -q "volume ${name}_db is not served here" refused || fault "the refusal says: $(cat refused)"
grep -q "$name db" refused || fault "the name of the volume that is served is not in: $(cat refused)"
"$HEMI" leg detach 1 --volume "$name/db" 2>/dev/null && fault "--volume $name/db detached a leg of \"$name db\""

timeout 20 "$HEMI" serve --leg c --leg d >other 2>&1
grep -q "control socket of the volume \"$name db\"" other || fault "the second volume's start says: $(cat other)"

# Its own name still finds it.
"$HEMI" leg detach 1 --volume "$name db" || fault "the volume is not found by its own name"

# A start that waits for a leg answers, too.
"$HEMI" create --size 16M --leg e --leg f --name "$name in wait" >/dev/null || broken "create"
mv f away
start "$HEMI" serve --leg e --leg f --volume "$name in wait" --wait-for-legs 1h >>log 2>&1
for _ in $(seq 100); do "$HEMI" status --volume "$name in wait" >waiting 2>&1 && break; sleep 0.1; done
grep -q "$name in wait" waiting || broken "the start that waits does not answer: $(cat waiting)"
"$HEMI" status --volume "${name}_in_wait" >waiting 2>&1 && fault "--volume ${name}_in_wait shows \"$name in wait\""
fine "each command acts on the volume that it names"
