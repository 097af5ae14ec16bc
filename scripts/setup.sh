#!/usr/bin/env bash
# Installs what a bare Debian 12 with rustup's stable Rust lacks. It tells what it installs before it does, starts
# and enables no service, and does nothing, quickly, if nothing is missing.
#
#   scripts/setup.sh [--dry-run] [build|test|bench]
#
# build: to build, pack and install hemi, for `make demo` and the README's first volume. test: for `make test`, with
# the Python environment. bench: for benchmarks and longer tests. Each has what those before it have. --dry-run only
# tells.
set -euo pipefail
cd "$(dirname "$0")/.."

BUILD=(
  build-essential
  python3                                  # `make deb` and `make container`
  fio nbdkit                               # `make demo`: the load, and legs that freeze from outside
  libnbd-bin                               # the README's first volume: nbdinfo, nbdcopy
)
TEST=(
  python3-venv python3-libnbd              # the harness; libnbd's Python client
  qemu-utils qemu-system-common            # qemu-img, qemu-io, qemu-nbd, qemu-storage-daemon
  qemu-block-extra                         # qemu's NBD and other network drivers
  e2fsprogs xfsprogs fuse3 mount util-linux fdisk # file systems end to end
  gnutls-bin                               # certtool: certificates for the TLS tests
  systemd udev                             # systemd-analyze and udevadm: what packaging/ has is understood
  man-db mandoc                            # man pages are what they read
  python3-seccomp                          # the profile for containers, applied
  jq curl procps
)
# Benchmarks leave out the peers that are missing. Chromium tests and pictures pages. MariaDB and sysbench are for the
# lab's `oltp` plan, with instances of its own.
BENCH=(
  debootstrap lintian                      # a package in a clean root
  mdadm nbd-client dmsetup busybox-static linux-perf chromium mariadb-server sysbench
  cryptsetup-bin lvm2 btrfs-progs libvirt-clients # what is put on a volume, and the schemas of libvirt
  prometheus                               # promtool: the alerts and metrics are understood
)

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

dry_run=0
if [ "${1:-}" = --dry-run ]; then dry_run=1; shift; fi
set=${1:-build}
case $set in
  build) target=setup packages=("${BUILD[@]}") purpose="building, installing and demonstrating hemi" ;;
  test) target=setup-test packages=("${BUILD[@]}" "${TEST[@]}") purpose="the tests of hemi" ;;
  bench) target=setup-bench packages=("${BUILD[@]}" "${TEST[@]}" "${BENCH[@]}") purpose="benchmarks and longer tests" ;;
  *) die "there is no set '$set' of packages: name build, test or bench" ;;
esac

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else die "needs root to run '$*', and there is no sudo: run 'make $target' as root"
  fi
}

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

announce() { # PACKAGE…
  say "Debian packages that this machine lacks for $purpose ($#):"
  fold -s -w 90 <<<"$*" | sed 's/^/setup:   /; s/ *$//'
  # It shows a plan, and ends with an error because the answer is no.
  local plan; plan=$(LC_ALL=C apt-get install --no-install-recommends --assume-no -o Debug::NoLocking=1 "$@" 2>&1 || true)
  say "With what they depend on, and without any service started or enabled:"
  grep -E '^([0-9]+ upgraded|Need to get|After this operation|E:)' <<<"$plan" | sed 's/^/setup:   /' || true
}

install_packages() { # PACKAGE…
  local log done=0; log=$(mktemp)
  as_root scripts/without_services.sh env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q -q --no-install-recommends "$@" >"$log" 2>&1 || done=$?
  if [ "$done" = 0 ]; then grep '^setup:' "$log" || true; else cat "$log" >&2; fi
  rm "$log"
  return "$done"
}

if command -v dpkg-query >/dev/null; then
  lacking=()
  for package in "${packages[@]}"; do installed "$package" || lacking+=("$package"); done
  if [ "${#lacking[@]}" -gt 0 ]; then
    if [ "$dry_run" = 0 ]; then
      say "apt-get update"
      as_root apt-get -q -q update || say "it failed: the lists of packages are older"
    fi
    announce "${lacking[@]}"
    if [ "$dry_run" = 0 ] && ! install_packages "${lacking[@]}"; then
      [ "$set" = bench ] || die "could not install: ${lacking[*]}"
      say "could not install: ${lacking[*]}. Benchmarks and tests leave out what is missing, or say so"
    fi
  fi
else
  say "not a Debian system: install these by hand for $purpose: ${packages[*]}"
fi

command -v cargo >/dev/null || die "no cargo on the PATH: install stable Rust with rustup"
if [ "$set" = build ] || [ "$dry_run" = 1 ]; then exit 0; fi

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
  say "Python packages from PyPI in .venv, of some 700 MB: requirements-dev.txt, and those of lab/"
  [ -x .venv/bin/python ] || /usr/bin/python3 -m venv --system-site-packages .venv ||
    die "could not make .venv with /usr/bin/python3"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt ||
    die "could not install requirements-dev.txt into .venv"
  # The lab is installed from its place in the tree, so that changes to it need no second setup.
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable lab ||
    die "could not install lab/ (hemi-lab) into .venv"
  echo "$wanted" >.venv/requirements-installed
fi
.venv/bin/python -c 'import nbd, pytest, hemi_lab' 2>/dev/null ||
  die "the Python environment lacks 'nbd' (Debian's python3-libnbd), 'pytest' or 'hemi_lab' (lab/): remove .venv and run 'make $target' again"
