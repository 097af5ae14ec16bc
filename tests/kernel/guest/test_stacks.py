"""File systems and mappers on a volume, while its server is killed, upgraded and started again."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kernel_guest import DEVICE, LEGS, Volume, hemi, messages, run, wait_until

MOUNT = Path("/run/mount")
DATA = b"confidential " * 100_000
#: The volume is the only disk that LVM sees. No files of the host are written.
LVM = (
    "--config",
    'devices { use_devicesfile=0 filter=["a|^/dev/hemi/|","a|^/dev/(ublkb|nbd)|","r|.*|"] } '
    "backup { backup=0 archive=0 } activation { udev_sync=0 udev_rules=0 monitoring=0 }",
)


def needs(program: str, *, target: str = "", file_system: str = "") -> None:
    """Skips the test if a program of the host or a part of the kernel is missing."""
    if not shutil.which(program):
        pytest.skip(f"no {program} on this machine")
    if target and target not in run("dmsetup", "targets"):
        pytest.skip(f"the kernel has no dm-{target}: build it anew (tests/kernel/build.sh)")
    if file_system and file_system not in Path("/proc/filesystems").read_text().split():
        pytest.skip(f"the kernel has no {file_system}: build it anew (tests/kernel/build.sh)")


@contextmanager
def mounted(device: str) -> Iterator[Path]:
    MOUNT.mkdir(exist_ok=True)
    run("mount", device, str(MOUNT))
    try:
        yield MOUNT
    finally:
        run("umount", str(MOUNT))


def disturb(volume: Volume, path: Path) -> None:
    """Writes a file while the server ends in every way."""
    for number, way in enumerate((volume.kill, volume.stop, volume.upgrade)):
        (path / f"before-{number}").write_bytes(DATA)
        way()
        written = subprocess.Popen(
            ["dd", f"if={path}/before-{number}", f"of={path}/after-{number}", "conv=fsync"],
            stderr=subprocess.DEVNULL,
        )
        if way != volume.upgrade:
            volume.start("--ledger", "/run")
        volume.wait_attached()
        assert written.wait(60) == 0
    run("sync", "-f", str(path))


def check(path: Path) -> None:
    run("sysctl", "-q", "vm.drop_caches=3")
    for number in range(3):
        for when in ("before", "after"):
            assert (path / f"{when}-{number}").read_bytes() == DATA


def serve(volume: Volume) -> None:
    volume.start("--device", "--ledger", "/run")


def finish(below: str = "nothing") -> None:
    """Checks that the legs are identical, and that the kernel complained only about `below`."""
    wait_until("the legs are whole", lambda: "healthy" in hemi("status").splitlines()[0])
    assert hemi("scrub").strip() == "all legs of vol are alike"
    hemi("detach-device")
    assert [line for line in messages() if below not in line] == []


def in_use() -> None:
    """Checks that a device in use is not removed, and that its users go on."""
    assert f"{DEVICE.resolve()} is in use" in hemi("detach-device", expect=3)


def test_an_encrypted_volume(volume: Volume) -> None:
    needs("cryptsetup", target="crypt")
    serve(volume)
    key = Path("/run/key")
    key.write_bytes(b"k" * 32)
    run(
        "cryptsetup",
        "luksFormat",
        "--batch-mode",
        "--pbkdf=pbkdf2",
        "--pbkdf-force-iterations=1000",
        f"--key-file={key}",
        str(DEVICE),
    )
    run("cryptsetup", "open", f"--key-file={key}", str(DEVICE), "secret")
    run("dmsetup", "mknodes")
    try:
        run("mkfs.ext4", "-q", "/dev/mapper/secret")
        with mounted("/dev/mapper/secret") as path:
            disturb(volume, path)
            in_use()
        with mounted("/dev/mapper/secret") as path:
            check(path)
        run("fsck.ext4", "-fn", "/dev/mapper/secret")
    finally:
        run("cryptsetup", "close", "secret")
    finish()
    for leg in LEGS:
        assert DATA[:26] not in Path(leg).read_bytes(), "the legs hold what is encrypted only"


def test_logical_volumes(volume: Volume) -> None:
    needs("lvm", target="linear")
    serve(volume)
    lvm: Callable[..., str] = lambda *words: run("lvm", *words[:1], *LVM, *words[1:])  # noqa: E731
    lvm("pvcreate", str(DEVICE))
    lvm("vgcreate", "data", str(DEVICE))
    lvm("lvcreate", "--yes", "--size", "24M", "--name", "files", "data")
    run("dmsetup", "mknodes")
    try:
        run("mkfs.ext4", "-q", "/dev/mapper/data-files")
        with mounted("/dev/mapper/data-files") as path:
            disturb(volume, path)
            in_use()
            lvm("lvextend", "--size", "40M", "data/files")
            run("resize2fs", "/dev/mapper/data-files")
        with mounted("/dev/mapper/data-files") as path:
            check(path)
            (path / "more").write_bytes(bytes(10 << 20))
        run("fsck.ext4", "-fn", "/dev/mapper/data-files")
    finally:
        lvm("vgchange", "--activate", "n", "data")
    finish()


def test_btrfs(volume: Volume) -> None:
    needs("mkfs.btrfs", file_system="btrfs")
    serve(volume)
    run("mkfs.btrfs", "--quiet", "--mixed", str(DEVICE))
    with mounted(str(DEVICE)) as path:
        disturb(volume, path)
        in_use()
    with mounted(str(DEVICE)) as path:
        check(path)
        scrubbed = run("btrfs", "scrub", "start", "-B", str(path))
        assert "Error summary:    no errors found" in scrubbed
    run("btrfs", "check", str(DEVICE))
    finish()


def test_xfs(volume: Volume) -> None:
    """Uses a file system too large for the RAM disks, on sparse files."""
    needs("mkfs.xfs", file_system="xfs")
    run("mount", "-t", "tmpfs", "-o", "size=400m", "holes", "/mnt")
    loops = []
    try:
        for number in range(2):
            run("truncate", "-s", "340M", f"/mnt/leg{number}")
            loops.append(run("losetup", "--find", "--show", f"/mnt/leg{number}").strip())
        volume.legs = loops
        volume.create("320MiB")
        serve(volume)
        run("mkfs.xfs", "-q", "-K", str(DEVICE))
        with mounted(str(DEVICE)) as path:
            disturb(volume, path)
            in_use()
        with mounted(str(DEVICE)) as path:
            check(path)
        run("xfs_repair", "-n", str(DEVICE))
        # A tmpfs writes no zeroes, so hemi uses ordinary writes.
        finish(below="dev loop")
    finally:
        if volume.server is not None and volume.server.poll() is None:
            volume.kill()
        for loop in loops:
            run("losetup", "--detach", loop, expect=None)
        run("umount", "-l", "/mnt")


def test_a_mount_in_a_container(volume: Volume) -> None:
    """Checks that a mount in another namespace holds the device, although nobody here sees it."""
    serve(volume)
    run("mkfs.ext4", "-q", str(DEVICE))
    MOUNT.mkdir(exist_ok=True)
    inside = (
        f"mount {DEVICE} {MOUNT} && echo inside >{MOUNT}/file && sync {MOUNT}/file && "
        f"echo mounted && read -r _ && umount {MOUNT}"
    )
    container = subprocess.Popen(
        ["unshare", "--mount", "--propagation=private", "sh", "-c", inside],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert container.stdin is not None and container.stdout is not None
    assert container.stdout.readline() == "mounted\n"
    assert str(MOUNT) not in Path("/proc/self/mounts").read_text()
    refused = hemi("detach-device", expect=3)
    assert "is in use" in refused and "/proc/*/mounts" in refused, refused
    assert str(MOUNT) in run("sh", "-c", "cat /proc/[0-9]*/mounts")
    volume.kill()
    volume.start("--ledger", "/run")
    container.communicate("go\n", timeout=60)
    assert container.returncode == 0
    with mounted(str(DEVICE)) as path:
        assert (path / "file").read_text() == "inside\n"
    finish()
