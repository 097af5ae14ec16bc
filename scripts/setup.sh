#!/usr/bin/env bash
# Installs the packages that a bare Debian 12 (with rustup's stable Rust, Python 3.11 and Node 20)
# lacks to build, test, demonstrate and measure hemi. It may be run again, and does nothing,
# quickly, if nothing is missing.
#
# HEMI_SETUP_OPTIONAL=0 leaves the optional packages out (used only by `make bench` and `make
# power-cut-test`).
set -euo pipefail
cd "$(dirname "$0")/.."

# Needed by builds: aws-lc (TLS) compiles C with cmake's help on some targets.
BUILD=(build-essential cmake pkg-config)
# Needed by tests, the demonstration and the benchmarks.
TOOLS=(
  python3 python3-venv python3-libnbd      # the harness; libnbd's Python client
  libnbd-bin                               # nbdinfo, nbdcopy, nbdfuse
  nbdkit                                   # NBD legs, with delay, pause and error filters
  qemu-utils qemu-system-common            # qemu-img, qemu-io, qemu-nbd, qemu-storage-daemon
  qemu-block-extra                         # qemu's NBD and other network drivers
  fio                                      # load, with verification
  e2fsprogs xfsprogs fuse3 mount util-linux fdisk # file systems end to end
  gnutls-bin                               # certtool: certificates for the TLS tests
  systemd udev                             # systemd-analyze and udevadm: what packaging/ has is understood
  man-db mandoc                            # man pages are what they read
  python3-seccomp                          # the profile for containers, applied
  jq curl procps
)
# Used only by benchmarks, `make power-cut-test` and `make lab-demo`, which report their absence. Chromium
# takes the pictures of `make lab-demo`. MariaDB and sysbench are for the lab's `oltp` plan (with instances of
# its own instead of the server that Debian's package starts).
OPTIONAL=(
  debootstrap lintian                      # a package in a clean root
  mdadm nbd-client dmsetup busybox-static linux-perf chromium mariadb-server sysbench
  cryptsetup-bin lvm2 btrfs-progs libvirt-clients # what is put on a volume, and the schemas of libvirt
)

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
missing() { local p; for p in "$@"; do installed "$p" || printf '%s\n' "$p"; done; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else die "needs root to run '$*', and there is no sudo: run 'make setup' as root"
  fi
}

APT_UPDATED=0
apt_install() {
  if [ "$APT_UPDATED" = 0 ]; then
    say "apt-get update"
    as_root apt-get -q -q update || return 1
    APT_UPDATED=1
  fi
  say "apt-get install $*"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q -q \
    --no-install-recommends "$@" >/dev/null
}

if command -v dpkg-query >/dev/null; then
  mapfile -t need < <(missing "${BUILD[@]}" "${TOOLS[@]}")
  if [ "${#need[@]}" -gt 0 ]; then
    apt_install "${need[@]}" || die "could not install: ${need[*]}"
  fi
  if [ "${HEMI_SETUP_OPTIONAL:-1}" = 1 ]; then
    mapfile -t need < <(missing "${OPTIONAL[@]}")
    stamp=.venv/optional-tried
    if [ "${#need[@]}" -gt 0 ] && [ "$(cat $stamp 2>/dev/null)" != "${need[*]}" ]; then
      apt_install "${need[@]}" || say "optional packages not installed (${need[*]}): 'make bench' leaves those peers out"
      OPTIONAL_TRIED=$(missing "${OPTIONAL[@]}" | paste -sd' ')
    fi
  fi
else
  say "not a Debian system: install these by hand: ${BUILD[*]} ${TOOLS[*]}"
fi

command -v cargo >/dev/null || die "no cargo on the PATH: install stable Rust with rustup"
for component in fmt clippy; do
  if ! cargo "$component" --version >/dev/null 2>&1; then
    name=$component; [ "$component" = fmt ] && name=rustfmt
    { command -v rustup >/dev/null && rustup component add "$name"; } ||
      say "no cargo $component ('rustup component add $name' failed): 'make lint' will say so"
  fi
done

# The Python environment sees the system's packages, for libnbd's client, so it is created with the
# system's Python.
wanted=$(cat requirements-dev.txt lab/pyproject.toml | sha256sum | cut -d' ' -f1)
if [ "$(cat .venv/requirements-installed 2>/dev/null)" != "$wanted" ]; then
  say "Python environment in .venv"
  [ -x .venv/bin/python ] || /usr/bin/python3 -m venv --system-site-packages .venv ||
    die "could not make .venv with /usr/bin/python3"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt ||
    die "could not install requirements-dev.txt into .venv"
  # The lab is installed from its place in the tree, so that changes to it need no second setup.
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable lab ||
    die "could not install lab/ (hemi-lab) into .venv"
  echo "$wanted" >.venv/requirements-installed
fi
[ -z "${OPTIONAL_TRIED:-}" ] || echo "$OPTIONAL_TRIED" >.venv/optional-tried
.venv/bin/python -c 'import nbd, pytest, hemi_lab' 2>/dev/null ||
  die "the Python environment lacks 'nbd' (Debian's python3-libnbd), 'pytest' or 'hemi_lab' (lab/): remove .venv and run 'make setup' again"
