#!/bin/bash
# Runs as init inside the user-mode kernel, and hands over to the host's systemd on a root of its own that has
# the host's /usr, and /etc from a directory. The kernel's command line has WORK, the directory with `etc` and
# `results`, and HEMI_DIR, the one with hemi.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t tmpfs -o mode=755 root /mnt
cd /mnt || poweroff -f
mkdir -p usr etc proc sys dev run tmp var/log srv/db root results hemi old
for name in bin sbin lib lib64; do ln -s "usr/$name" "$name"; done
mount -t hostfs -r none usr -o /usr
mount -t hostfs -r none hemi -o "$HEMI_DIR"
mount -t hostfs none results -o "$WORK/results"
cp -a "$WORK/etc/." etc/
umount /proc
pivot_root . old
umount -l old
exec chroot . /lib/systemd/systemd systemd.unit=multi-user.target systemd.log_target=console
