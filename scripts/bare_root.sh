#!/usr/bin/env bash
# Runs commands of this tree on a bare Debian 12 with rustup's stable Rust, and nothing else.
#
#   scripts/bare_root.sh COMMAND [ARGUMENT…]
#
# Makes a root by debootstrap in a temporary directory, or in BARE_ROOT if that is set, and puts a clone of the last
# commit in /hemi. The command runs there, in a mount namespace of its own, as root with the network of this machine.
# The root is removed afterwards, unless it is BARE_ROOT. Needs root and debootstrap (`make setup-bench`).
set -euo pipefail
cd "$(dirname "$0")/.."

die() { printf 'bare root: %s\n' "$*" >&2; exit 1; }

[ $# -gt 0 ] || die "name a command, for example: scripts/bare_root.sh make demo"
[ "$(id -u)" = 0 ] || die "this needs root, for debootstrap and chroot; run it with sudo"
command -v debootstrap >/dev/null || die "debootstrap is not installed; run make setup-bench"
rustc=$(rustc --print sysroot 2>/dev/null) || die "there is no rustc; install Rust by rustup"

mirror=$(sed -n 's/^URIs: *\([^ ]*\).*/\1/p; s/^deb \(\[[^]]*\] \)\?\([^ ]*\).*/\2/p' \
  /etc/apt/sources.list.d/*.sources /etc/apt/sources.list 2>/dev/null | head -n 1 || true)
if [ -n "${BARE_ROOT:-}" ]; then
  root=$BARE_ROOT
  mkdir -p "$root"
else
  root=$(mktemp -d "${TMPDIR:-/tmp}/hemi-bare-XXXXXX")
  trap 'rm -rf --one-file-system "$root"' EXIT
fi
if [ ! -e "$root/etc/debian_version" ]; then
  # What every Debian has that came from an installer, and minbase has not; git, to have this tree.
  debootstrap --variant=minbase --include=ca-certificates,git,make bookworm "$root" "${mirror:-http://deb.debian.org/debian}"
  # The package lists and certificates of this machine, so that its mirrors are reached.
  cp -a /etc/apt/sources.list* /etc/apt/apt.conf.d "$root/etc/apt/"
  mkdir -p "$root/etc/ssl/certs" "$root/usr/share/keyrings"
  cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
  cp -a /usr/share/keyrings/. "$root/usr/share/keyrings/"
fi
rm -rf "$root/hemi"
git clone --quiet . "$root/hemi"
mkdir -p "$root/opt/rust" "$root/root/.cargo"
[ -e "$root/opt/rust/bin" ] || cp -a "$rustc/." "$root/opt/rust/"

# Downloaded crates are looked for where this machine keeps them, and hemi is built from nothing.
crates=${CARGO_HOME:-$HOME/.cargo}/registry
export root crates
exec_in_root() {
  mount --make-rprivate /
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mount --rbind /dev "$root/dev"
  cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
  if [ -d "$crates" ]; then
    mkdir -p "$root/root/.cargo/registry"
    mount --bind "$crates" "$root/root/.cargo/registry"
  fi
  exec chroot "$root" /usr/bin/env --chdir=/hemi HOME=/root PATH=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
}
export -f exec_in_root
unshare --mount --pid --fork --kill-child bash -c 'exec_in_root "$@"' bare-root "$@"
