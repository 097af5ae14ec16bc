"""`--spare`: a drive is discarded, part of it stays unused, and unsuitable drives are refused."""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hemi_harness import Sandbox, Volume, hemi, hemi_fails, run, wait_until
from hemi_harness.hemi import MIB, leg_bytes

DISK = 100 * MIB


def allocated(path: Path) -> int:
    return path.stat().st_blocks * 512


def full(sandbox: Sandbox, name: str) -> Path:
    """Returns a file without holes, in which a discard of a loop device on it makes some."""
    path = sandbox.path(name)
    with path.open("wb") as file:
        for _ in range(DISK // MIB):
            file.write(b"\x5a" * MIB)
    return path


def test_a_drive_is_discarded_and_its_end_left_unused(sandbox: Sandbox) -> None:
    backing = full(sandbox, "disk.img")
    disk = sandbox.loop(backing)
    other = sandbox.file("other.img", DISK)
    assert allocated(backing) >= DISK
    options = ("--leg", disk, "--leg", other, "--wipe", disk, "--spare", f"{disk}=20%")
    created = json.loads(hemi("create", "--size", "max", *options, "--json"))
    size = created["size_bytes"]
    assert size + created["data_offset"] <= DISK * 8 // 10
    assert leg_bytes(size + 2 * MIB) > DISK * 8 // 10, "it is the largest"
    assert allocated(backing) < DISK // 4, "the drive knows that it is empty"
    volume = Volume(sandbox, [disk, other])
    volume.start()
    with volume.client() as client:
        for at in range(0, size, MIB):
            client.write(at, b"\xa5" * min(MIB, size - at))
        client.flush()
    volume.wait_converged()
    volume.stop()
    with backing.open("rb") as file:
        file.seek(DISK * 8 // 10)
        assert set(file.read()) == {0}, "nothing was written to the spare part"


def test_a_replacement_has_a_spare_part(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, 32 * MIB)
    volume.wait_converged()
    disk = sandbox.loop(full(sandbox, "new.img"))
    volume.command("leg", "detach", 1)
    message = "beside the 50% that --spare leaves unused"
    small = sandbox.loop(sandbox.file("small.img", 60 * MIB))
    _, printed = refused(volume, "leg", "replace", 1, small, "--spare", "50%")
    assert message in printed, printed
    _, printed = refused(volume, "leg", "replace", 1, sandbox.file("f.img", DISK), "--spare", "5%")
    assert "it is a file" in printed
    assert "fstrim" in printed
    volume.command("leg", "replace", 1, disk, "--wipe", "--spare", "20%")
    volume.wait_converged()


def refused(volume: Volume, *argv: str | int | Path) -> tuple[int, str]:
    printed = hemi_fails(*argv, "--control", volume.control)
    return 0, " ".join(printed.split())


def test_what_cannot_have_a_spare_part_is_refused(sandbox: Sandbox) -> None:
    one, two = sandbox.file("a.img", DISK), sandbox.file("b.img", DISK)
    legs = ("--leg", one, "--leg", two, "--size", "16M")
    hemi_fails("create", *legs, "--spare", "20%", says=[one, "it is a file", "fstrim", "LEG=20%"])
    hemi_fails("create", *legs, "--spare", "x=20%", says=["--spare x", "names none of the legs"])
    for share, says in (("0%", "0.1% to 50%"), ("20", "20%"), ("51%", "0.1% to 50%")):
        hemi_fails("create", *legs, "--spare", share, says=[says])
    disk = sandbox.loop(two)
    options = ("--leg", one, "--leg", disk, "--size", "60M")
    hemi_fails(
        "create", *options, "--spare", f"{disk}=50%", says=[disk, "50%", "--size max", "spare less"]
    )
    remote = ("--leg", one, "--leg", "nbd://127.0.0.1:1/x", "--size", "16M")
    hemi_fails("create", *remote, "--spare", "nbd://127.0.0.1:1/x=5%", says=["it is remote"])
    # Nothing was changed.
    assert allocated(one) == 0
    hemi("create", "--leg", one, "--leg", sandbox.file("c.img", DISK), "--size", "16M")


# Commands of /dev/loop-control (linux/loop.h).
LOOP_CTL_ADD = 0x4C80
LOOP_CTL_REMOVE = 0x4C81
# A number that `losetup --find` does not choose.
LOOP = 4711


@contextlib.contextmanager
def loop_without_discard(path: Path) -> Iterator[Path]:
    """Yields a loop device of its own, whose discards the kernel lets nobody turn on again."""
    device = Path(f"/dev/loop{LOOP}")
    with Path("/dev/loop-control").open("rb") as control:
        fcntl.ioctl(control, LOOP_CTL_ADD, LOOP)
        try:
            wait_until("the loop device is there", device.exists)
            run("losetup", device, path)
            try:
                limit = Path("/sys/block") / device.name / "queue/discard_max_bytes"
                try:
                    limit.write_text("0")
                except OSError:
                    pytest.skip("the kernel does not let discards be turned off")
                yield device
            finally:
                run("losetup", "--detach", device)
        finally:
            fcntl.ioctl(control, LOOP_CTL_REMOVE, LOOP)


def test_a_device_that_cannot_discard_is_refused(sandbox: Sandbox) -> None:
    with loop_without_discard(sandbox.file("a.img", DISK)) as disk:
        other = sandbox.file("b.img", DISK)
        options = ("--leg", disk, "--leg", other, "--size", "16M", "--spare", f"{disk}=20%")
        hemi_fails("create", *options, says=[disk, "it cannot discard", "hard disk"])
