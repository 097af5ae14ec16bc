"""Starts that scan for their legs, on devices that hang in the kernel and on stacked devices."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kernel_guest import HEMI, LEGS, Volume, hemi, run, wait_until


@pytest.fixture
def upon(volume: Volume) -> Iterator[str]:
    """Yields a device of device-mapper on the second disk."""
    sectors = run("blockdev", "--getsz", LEGS[1]).strip()
    run("dmsetup", "create", "hangs", "--table", f"0 {sectors} linear {LEGS[1]} 0")
    number = run("dmsetup", "info", "-c", "--noheadings", "-o", "minor", "hangs").strip()
    yield f"/dev/dm-{number}"
    run("dmsetup", "resume", "hangs", expect=None)
    wait_until("it is let go of", lambda: "hangs" not in removed())


def removed() -> str:
    run("dmsetup", "remove", "hangs", expect=None)
    return run("dmsetup", "ls", expect=None)


def serve(*more: str) -> subprocess.Popen[bytes]:
    with Path("/run/scan.log").open("wb") as log:
        return subprocess.Popen([HEMI, "serve", "--scan", "vol", *more], stdout=log, stderr=log)


def said() -> str:
    return Path("/run/scan.log").read_text(errors="replace")


def paths() -> list[str]:
    return [leg["path"] for leg in json.loads(hemi("status", "--json"))["legs"]]


def test_the_device_on_top_is_the_leg(volume: Volume, upon: str) -> None:
    volume.server = serve("--device")
    wait_until("it is a device", lambda: "block device path=" in said())
    assert paths() == [LEGS[0], upon]
    # The volume itself is not scanned, although its content may be a leg of another one.
    scan = json.loads(hemi("inspect", "--scan", "--json"))
    assert "/dev/ublkb0" not in scan["looked_at"]
    assert hemi("inspect", "--udev", "/dev/ublkb0") == "HEMI_DEVICE=vol\n"
    volume.stop()


def test_a_device_that_hangs_in_the_kernel_ends_no_scan(volume: Volume, upon: str) -> None:
    run("dmsetup", "suspend", "--nolockfs", "hangs")
    begun = time.monotonic()
    # The disk below it answers, and is the leg now.
    text = hemi("inspect", "--scan")
    took = time.monotonic() - begun
    assert f"{upon}: did not answer within 15 s" in text
    assert f"leg 1  {LEGS[1]}" in text
    assert 14 < took < 40, f"{took} s"


def test_a_partition_that_covers_its_disk_is_no_second_leg(volume: Volume) -> None:
    sectors = run("blockdev", "--getsz", LEGS[0]).strip()
    run("addpart", LEGS[0], "1", "0", sectors)
    try:
        wait_until("it is there", Path(f"{LEGS[0]}p1").exists)
        text = hemi("inspect", "--scan")
        assert f"leg 0  {LEGS[0]}\n" in text and f"{LEGS[0]}p1" not in text, text
    finally:
        run("delpart", LEGS[0], "1")
