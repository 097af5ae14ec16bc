#!/bin/bash
# The inside of a stage (stage.py): a shell in namespaces of its own, over a tree that
# looks like a machine's. Run by `unshare --mount --net --pid --fork --kill-child`.
#   stage.sh DIRECTORY
# DIRECTORY has `bin` (first on the PATH), `home`, `srv` (a link to the future /srv), `devices` (a
# line "NAME MAJOR MINOR" for each block device to be seen in /dev), `hosts` (lines for /etc/hosts)
# and the FIFO `asked` with numbers of commands, each of which is in the file NUMBER.command.
set -euo pipefail
dir=$1
mount --make-rprivate /

# Mounts of other tests came along as copies, which would keep them busy after their end.
mounts=$(cat /proc/self/mounts)
while read -r source point type _; do
  case $point in "$dir"/* | "${dir%/*}"/*) continue ;; esac
  case $source:$type:$point in
    /dev/loop*:*:* | *:fuse*:* | *:*:"${dir%/*/*}"/hemi-t-*) umount -l "$point" || true ;;
  esac
done <<<"$mounts"

# A private /dev: no name in it is the machine's, and nothing created in it is seen outside.
mkdir "$dir/dev"
mount -t tmpfs -o mode=755 stage "$dir/dev"
for name in null zero full random urandom tty; do
  mknod -m 666 "$dir/dev/$name" c $((0x$(stat -c %t "/dev/$name"))) $((0x$(stat -c %T "/dev/$name")))
done
mknod "$dir/dev/loop-control" c 10 237
mknod -m 666 "$dir/dev/fuse" c 10 229
for ((i = 0; i < 64; i++)); do mknod "$dir/dev/loop$i" b 7 "$i"; done
while read -r name major minor; do mknod "$dir/dev/$name" b "$major" "$minor"; done <"$dir/devices"
mkdir "$dir/dev/shm"
ln -s /proc/self/fd "$dir/dev/fd"
for fd in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${fd%:*}" "$dir/dev/${fd#*:}"; done

# A writable /etc.
mkdir "$dir/etc"
cp -a /etc/. "$dir/etc/"
mkdir -p "$dir/etc/hemi"
cat "$dir/hosts" >>"$dir/etc/hosts"

mount --bind "$dir/dev" /dev
mount --bind "$dir/etc" /etc
mount -t tmpfs -o mode=755 stage /run
mount -t tmpfs -o mode=755 stage /mnt
mount --bind "$(readlink "$dir/srv")" /srv
mount -t proc proc /proc
# Otherwise a private network has not even a loopback interface that is up.
/usr/bin/python3 - <<'PYTHON'
import fcntl, socket, struct
with socket.socket() as s:
    fcntl.ioctl(s, 0x8914, struct.pack("16sH14x", b"lo", 0x41))  # SIOCSIFFLAGS: up, running
PYTHON

export PATH=$dir/bin:$PATH HOME=$dir/home TMPDIR=$dir/home LC_ALL=C.UTF-8
export STATE_DIRECTORY=$dir/home/state
unset XDG_RUNTIME_DIR HEMI_CONTROL HEMI_LOG
set +euo pipefail
exec 3<>"$dir/asked"
cd /srv || exit 1
while read -r number <&3; do
  eval "$(cat "$dir/$number.command")" >"$dir/$number.output" 2>&1 </dev/null 3>&-
  echo $? >"$dir/$number.code.part"
  mv "$dir/$number.code.part" "$dir/$number.code"
done
