# Sourced by every case. HEMI names the program. Everything lies in a directory of its own, and only
# processes that were started here are ended. A case exits 0 if hemi does what is right, 1 if the fault is
# there, and 77 if what it needs is missing.
set -u
HEMI=${HEMI:-hemi}
HERE=$(cd "$(dirname "$0")" && pwd)
WORK=$(mktemp -d)
PIDS=()
LOOPS=()
MOUNTS=()

clean_up() {
  local each
  for each in "${MOUNTS[@]}"; do umount -l "$each" 2>/dev/null; done
  for each in "${PIDS[@]}"; do kill -9 "$each" 2>/dev/null && wait "$each" 2>/dev/null; done
  for each in "${LOOPS[@]}"; do losetup -d "$each" 2>/dev/null; done
  cd / && rm -rf "$WORK"
}
trap clean_up EXIT
cd "$WORK" || exit 2
export STATE_DIRECTORY=$WORK/state

fault() { echo "FAULT: $*"; exit 1; }
fine() { echo "fine: $*"; exit 0; }
broken() { echo "the case itself failed: $*"; [ ! -s log ] || tail -n 20 log; exit 2; }
needs() { local each; for each in "$@"; do command -v "$each" >/dev/null || { echo "there is no $each"; exit 77; }; done; }
needs_root() { [ "$(id -u)" = 0 ] || { echo "loop devices need root"; exit 77; }; }

# Runs in the background, and ends with the case.
start() { "$@" & PIDS+=($!); }

# Serves with these arguments, the control socket at ./control and NBD at ./nbd. Fails if hemi ends before
# it serves.
serve() {
  "$HEMI" serve "$@" --control control --nbd unix:nbd >>log 2>&1 &
  SERVER=$!
  PIDS+=("$SERVER")
  for _ in $(seq 200); do
    "$HEMI" status --control control --json 2>/dev/null | grep -q '"phase": *"serving"' && return 0
    kill -0 "$SERVER" 2>/dev/null || return 1
    sleep 0.1
  done
  return 1
}

# Makes a loop device of a file, and prints its name.
loop() {
  local device
  device=$(losetup -f --show "$1") || return 1
  echo "$device"
}
