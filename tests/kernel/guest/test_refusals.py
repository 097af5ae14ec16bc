"""Unsuitable devices: each refusal names the reason and a way out, and nothing is changed."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kernel_guest import DEVICE, HEMI, LEGS, SIZE, Volume, hemi, messages, run, wait_until

MOUNT = Path("/run/mount")
#: Disks without a volume.
FREE, OTHER = "/dev/ram2", "/dev/ram3"


def digest(device: str) -> str:
    return hashlib.sha256(Path(device).read_bytes()).hexdigest()


@contextmanager
def mapped(name: str, device: str, sectors: int, *options: str) -> Iterator[str]:
    """Yields a device of device-mapper on the beginning of another."""
    run("dmsetup", "create", name, *options, "--table", f"0 {sectors} linear {device} 0")
    run("dmsetup", "mknodes")
    try:
        yield f"/dev/mapper/{name}"
    finally:
        run("dmsetup", "remove", "--retry", name)


@contextmanager
def mounted(device: str, *options: str) -> Iterator[Path]:
    MOUNT.mkdir(exist_ok=True)
    run("mount", *options, device, str(MOUNT))
    try:
        yield MOUNT
    finally:
        run("umount", str(MOUNT))


def refuses(leg: str, *says: str, changes: str = FREE) -> None:
    """Checks that a leg is refused, even with permission to wipe it. Neither leg is touched."""
    before = [digest(device) for device in (changes, OTHER)]
    wipe = ("--wipe", leg, "--wipe", OTHER)
    create = ("create", "--size", "16M", "--name", "new", "--leg", OTHER, "--leg", leg, *wipe)
    refused = hemi(*create, expect=None)
    assert refused.startswith("error: "), refused
    for part in (leg, *says):
        assert part in refused, f"no {part!r} in {refused}"
    assert [digest(device) for device in (changes, OTHER)] == before


def sectors_of(device: str) -> int:
    return int(run("blockdev", "--getsz", device))


def test_disks_that_cannot_be_legs() -> None:
    run("mkfs.ext4", "-q", "-F", FREE)
    # Read-only, so that the kernel writes nothing meanwhile.
    with mounted(FREE, "-o", "ro"):
        refuses(FREE, f"mounted on {MOUNT}")
    with mapped("upon", FREE, sectors_of(FREE)) as upon:
        # The device on top holds it, in use or not.
        refuses(FREE, "held by /dev/dm-")
        with mounted(upon, "-o", "ro"):
            refuses(upon, f"mounted on {MOUNT}")
    with mapped("tiny", FREE, 2048) as tiny:
        refuses(tiny, "has 1048576 bytes", "more")
    with mapped("fixed", FREE, sectors_of(FREE), "--readonly") as fixed:
        refuses(fixed, "read-only")
    run("blockdev", "--setro", FREE)
    try:
        refuses(FREE, "read-only")
    finally:
        run("blockdev", "--setrw", FREE)
    refuses("/dev/ram9", "there is no device", "lsblk")
    refuses("/dev/null", "is a character device", "a block device")
    run("mkswap", FREE)
    run("swapon", FREE)
    try:
        refuses(FREE, "swap")
    finally:
        run("swapoff", FREE)


def test_a_volumes_own_device_is_none_of_its_legs(volume: Volume) -> None:
    volume.start("--device")
    device = str(DEVICE.resolve())
    before = [digest(leg) for leg in LEGS]
    create = ("create", "--size", "16M", "--name", "new", "--leg", OTHER, "--wipe", OTHER)
    for path in (device, str(DEVICE)):
        refused = hemi("leg", "add", path, expect=None)
        assert refused.startswith("error: ") and path in refused, refused
    # It may be another volume's, since a mirror of mirrors is valid.
    hemi(*create, "--leg", device, "--wipe", device)
    assert [digest(leg) for leg in LEGS] != before
    volume.stop()


def test_two_attaches_at_once_make_one_device(volume: Volume) -> None:
    volume.start("--ledger", "/run", wait=False)
    wait_until("it is served", lambda: "control socket" in volume.log())
    command = [HEMI, "attach", "--driver", volume.driver]
    for _ in range(4):
        attaches = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for _ in range(3)
        ]
        said = [attach.communicate(timeout=60)[0] for attach in attaches]
        assert [attach.returncode for attach in attaches] == [0, 0, 0], said
        assert set(said) == {f"{DEVICE} is {DEVICE.resolve()}\n"}
        kind = "ublk-char" if volume.driver == "ublk" else "block"
        used = [
            node.name
            for node in Path("/sys/class", kind).iterdir()
            if not node.name.startswith("nbd") or (node / "pid").exists()
            if node.name.startswith(("nbd", "ublkc"))
        ]
        assert len(used) == 1, used
        assert int(run("blockdev", "--getsize64", str(DEVICE))) == SIZE
        hemi("detach-device")
        assert not DEVICE.exists()
    assert messages() == []


def test_a_device_that_is_larger_than_the_volume_is_left_alone(volume: Volume) -> None:
    """Uses a volume that has grown, and whose disks were then restored to their earlier content."""
    half = sectors_of(LEGS[0]) // 2
    with mapped("short0", LEGS[0], half) as one, mapped("short1", LEGS[1], half) as two:
        volume.legs = [one, two]
        volume.create("16MiB")
        volume.start("--device", "--ledger", "/run")
        volume.stop()
        before = [Path(leg).read_bytes() for leg in volume.legs]
        for number, name in enumerate(("short0", "short1")):
            run("dmsetup", "reload", name, "--table", f"0 {2 * half} linear {LEGS[number]} 0")
            run("dmsetup", "resume", name)
        hemi("grow", "--ledger", "/run", *(part for leg in volume.legs for part in ("--leg", leg)))
        volume.start("--ledger", "/run")
        if volume.driver == "ublk":
            # Before Linux 6.16 it keeps its size.
            hemi("detach-device")
            hemi("attach", "--driver", "ublk")
        large = int(run("blockdev", "--getsize64", str(DEVICE)))
        assert large == 62 << 20
        device = DEVICE.resolve()
        volume.stop()
        for leg, content in zip(volume.legs, before, strict=True):
            with Path(leg).open("r+b") as disk:
                disk.write(content)
        for _ in range(2):
            volume.start("--ledger", "/run", wait=False)
            assert volume.server is not None
            status, said = volume.server.wait(60), volume.log()
            assert status == 1, said
            assert f"{device} has {large} bytes, the volume {16 << 20}" in said, said
            assert "hemi detach-device" in said, said
        assert DEVICE.resolve() == device
        # The way out that it names.
        hemi("detach-device", "--volume", "vol")
        volume.start("--device", "--ledger", "/run")
        assert int(run("blockdev", "--getsize64", str(DEVICE))) == 16 << 20
        volume.stop()
        hemi("detach-device", "--volume", "vol")


def test_a_device_whose_server_does_not_come_back(volume: Volume) -> None:
    """Checks that nothing fails by itself, however long it takes, until the way out fails it."""
    volume.start("--device")
    reader = (
        "import mmap, os, sys; "
        f"device = os.open('{DEVICE}', os.O_RDONLY | os.O_EXCL | os.O_DIRECT); "
        "print('open', flush=True); input(); os.preadv(device, [mmap.mmap(-1, 4096)], 0)"
    )
    read = subprocess.Popen(
        [sys.executable, "-c", reader],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert read.stdin is not None and read.stdout is not None
    assert read.stdout.readline() == "open\n"
    volume.kill()
    messages()
    read.stdin.write("read\n")
    read.stdin.flush()
    # The interval at which the NBD client checks requests passes a few times.
    time.sleep(4)
    assert read.poll() is None, "it waits"
    assert messages() == []
    detach = ("detach-device", "--volume", "vol")
    refused = hemi(*detach, expect=3)
    assert f"{DEVICE.resolve()} is in use" in refused, refused
    assert read.poll() is None, "a refusal changes nothing"
    hemi(*detach, "--force")
    assert "Input/output error" in read.communicate(timeout=30)[0]
    assert read.returncode == 1 and not DEVICE.exists()
    assert "is no block device" in hemi(*detach, expect=1)
    messages()
    volume.start("--device")
    run("dd", f"if={DEVICE}", "of=/dev/null", "bs=1M", "count=4", "iflag=direct")
    assert messages() == []


def test_a_name_that_leads_elsewhere_is_not_followed(volume: Volume) -> None:
    """Checks that a target of /dev/hemi/NAME that is no device of hemi's is left alone."""
    volume.start("--device")
    device = DEVICE.resolve()
    volume.stop()
    detach = ("detach-device", "--volume", "vol")
    before = digest(FREE)
    for target in (FREE, "/dev/null", "/dev/gone"):
        DEVICE.unlink()
        DEVICE.symlink_to(target)
        assert "is no block device" in hemi(*detach, "--force", expect=1), target
    assert digest(FREE) == before and device.exists()
    # The next start finds the device by the volume's id, and corrects the name.
    volume.start()
    assert DEVICE.resolve() == device
    volume.stop()
    # A directory in its place is not removed. The device is served without a name.
    DEVICE.unlink()
    DEVICE.mkdir()
    try:
        volume.start(wait=False)
        nameless = "without a name of its own in /dev/hemi"
        wait_until("it is served", lambda: nameless in volume.log())
        run("dd", f"if={device}", "of=/dev/null", "bs=1M", "count=4", "iflag=direct")
        hemi("detach-device")
    finally:
        DEVICE.rmdir()
    assert messages() == []


@pytest.mark.parametrize("volume", ["ublk"], indirect=True)
def test_a_disk_that_fails_under_a_mount(volume: Volume) -> None:
    """Removes a leg's disk while the volume is mounted. Nothing on the device notices."""
    with mapped("failing", LEGS[1], sectors_of(LEGS[1])) as failing:
        volume.legs = [LEGS[0], failing]
        volume.create()
        volume.start("--device", "--ledger", "/run")
        run("mkfs.ext4", "-q", str(DEVICE))
        with mounted(str(DEVICE)) as path:
            run("dmsetup", "wipe_table", "failing")
            (path / "file").write_bytes(b"x" * 1_000_000)
            run("sync", "-f", str(path))
            assert "Input/output error" not in "".join(messages())
            sectors = sectors_of(LEGS[1])
            run("dmsetup", "reload", "failing", "--table", f"0 {sectors} linear {LEGS[1]} 0")
            run("dmsetup", "resume", "failing")
            assert (path / "file").read_bytes() == b"x" * 1_000_000
        run("fsck.ext4", "-fn", str(DEVICE))
        volume.kill()
        hemi("detach-device", "--volume", "vol", "--force")
