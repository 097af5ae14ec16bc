#!/bin/bash
# Builds a user-mode kernel with ublk, NBD, md and dm, from Debian's sources: build.sh DIRECTORY. Leaves
# DIRECTORY/linux. Takes some 7 minutes on two processors, once, and again when its configuration grows.
set -euo pipefail

readonly VERSION=6.12
readonly PACKAGE=linux-source-$VERSION
readonly OPTIONS="BLK_DEV_UBLK BLK_DEV_NBD MD BLK_DEV_MD MD_RAID1 BLK_DEV_DM DM_CRYPT DM_DELAY DM_FLAKEY DM_LOG_WRITES
  BLK_DEV_RAM IO_URING EXT4_FS XFS_FS BTRFS_FS TMPFS DEVTMPFS UNIX INET HOSTFS BLK_DEV_LOOP FUSE_FS
  CRYPTO_AES CRYPTO_XTS CRYPTO_SHA256 CRYPTO_USER_API_HASH CRYPTO_USER_API_SKCIPHER"
directory=$1
mkdir -p "$directory"
cd "$directory"
if [ -x linux ] && [ "$(cat options 2>/dev/null)" = "$OPTIONS" ]; then
  exit 0
fi

say() { printf 'kernel: %s\n' "$*"; }

install() {
  local missing=()
  for package in "$@"; do
    dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed ||
      missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  say "apt-get install ${missing[*]}"
  apt-get -qq update
  DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
}

install flex bison bc libelf-dev xz-utils gcc make "$PACKAGE"
say "unpacking"
rm -rf source
mkdir source
tar -C source --strip-components=1 -xf "/usr/src/$PACKAGE.tar.xz"
cd source

# A processor with AMX saves some 11 KiB of registers for each process. The kernel has room for 2.6, and the
# host refuses to restore less than all.
python3 - <<'PATCH'
from pathlib import Path

def change(path: str, old: str, new: str, times: int) -> None:
    text = Path(path).read_text()
    if text.count(old) != times:
        raise SystemExit(f"kernel: {path} is not as expected: {old!r}")
    Path(path).write_text(text.replace(old, new))

registers = "arch/x86/um/os-Linux/registers.c"
change(registers, "static int have_xstate_support;\n",
       "static int have_xstate_support;\nstatic size_t xstate_bytes = FP_SIZE * sizeof(unsigned long);\n", 1)
for request in ("GETREGSET", "SETREGSET"):
    change(registers,
           f"iov.iov_len = FP_SIZE * sizeof(unsigned long);\n\t\tif (ptrace(PTRACE_{request}",
           f"iov.iov_len = xstate_bytes;\n\t\tif (ptrace(PTRACE_{request}", 1)
change(registers, "&iov) == 0)\n\t\thave_xstate_support = 1;\n",
       "&iov) == 0) {\n\t\thave_xstate_support = 1;\n\t\txstate_bytes = iov.iov_len;\n\t}\n", 1)
change("arch/x86/um/user-offsets.c", "DEFINE_LONGS(HOST_FP_SIZE, 2696);",
       "DEFINE_LONGS(HOST_FP_SIZE, 12288);", 1)
PATCH

say "configuring"
make -s ARCH=um defconfig >/dev/null
for option in $OPTIONS; do
  scripts/config -e "$option"
done
# The registers above are on each task's stack.
scripts/config --set-val KERNEL_STACK_ORDER 4
make -s ARCH=um olddefconfig >/dev/null
say "building (log: $directory/build.log)"
make -s ARCH=um -j"$(nproc)" linux >"$directory/build.log" 2>&1 ||
  { tail -20 "$directory/build.log"; exit 1; }
cp linux "$directory/linux.new"
cd ..
rm -rf source
mv linux.new linux
echo "$OPTIONS" >options
say "built $directory/linux"
