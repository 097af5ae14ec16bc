"""Extremes of size: huge volumes in bounded memory, and full disks."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from hemi_harness import Sandbox, Volume, hemi_fails, run, wait_until
from hemi_harness.hemi import GIB, MIB, assert_identical, data_offset, leg_bytes
from hemi_harness.journal import Journal

TIB = 1 << 40
BUFFERS = 64 * MIB
FIXED = 256 * MIB


def sparse_file_system(sandbox: Sandbox) -> Path:
    """Returns XFS on a sparse file. It takes files of 16 TiB, which ext4 does not."""
    backing = sandbox.file("xfs.img", 8 * GIB)
    run("mkfs.xfs", "-q", backing)
    return sandbox.mount(sandbox.loop(backing))


@pytest.mark.parametrize("count", [2, 8])
def test_sixteen_tebibytes_open_in_bounded_memory(sandbox: Sandbox, count: int) -> None:
    size = 16 * TIB
    root = sparse_file_system(sandbox)
    legs: list[str | Path] = []
    for i in range(count):
        path = root / f"leg{i}.img"
        with path.open("wb") as f:
            f.truncate(size + data_offset(size))
        legs.append(path)
    volume = Volume(sandbox, legs, options=("--buffer-budget", BUFFERS))
    volume.create(size)
    volume.start()
    source = random.Random(count)
    with volume.client() as client:
        assert client.size() == size
        written = {}
        for _ in range(1500):
            offset = source.randrange(0, size, 4096)
            data = source.randbytes(16) * 256
            client.write(offset, data)
            written[offset] = data
        client.flush()
        for offset, data in list(written.items())[:200]:
            assert client.read(offset, 4096) == data
    peak = volume.process.peak_memory()
    assert peak <= FIXED + BUFFERS, f"{peak / MIB:.0f} MiB resident at most"
    # The same after a crash with that many dirty regions.
    volume.kill()
    volume.start()
    with volume.client() as client:
        for offset, data in written.items():
            assert client.read(offset, 4096) == data
    peak = volume.process.peak_memory()
    assert peak <= FIXED + BUFFERS, f"{peak / MIB:.0f} MiB resident at most after a crash"


def small_file_system(sandbox: Sandbox, size: int) -> Path:
    backing = sandbox.file("small.img", size)
    run("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", backing)
    return sandbox.mount(sandbox.loop(backing))


def test_a_leg_that_does_not_fit_its_disk_is_refused(sandbox: Sandbox) -> None:
    size = 128 * MIB
    root = small_file_system(sandbox, 64 * MIB)
    legs = [sandbox.file("leg0.img", leg_bytes(size)), root / "leg1.img"]
    pair = ["--leg", str(legs[0]), "--leg", str(legs[1])]
    printed = hemi_fails("create", "--size", size, *pair, "--reserve", says=["leg1.img", "space"])
    assert "sparse" in printed, printed
    assert not legs[1].exists() or legs[1].stat().st_blocks * 512 < MIB


@pytest.mark.parametrize("full", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_full_disk_under_a_sparse_leg(sandbox: Sandbox, full: int) -> None:
    """Fills a leg's disk: clients go on, the leg is reported, and it returns when there is room."""
    size = 128 * MIB
    # The leg fits, but not beside the filler.
    root = small_file_system(sandbox, 192 * MIB)
    legs: list[str | Path] = [sandbox.path("roomy.img"), root / "cramped.img"]
    if full == 0:
        legs.reverse()
    volume = Volume(sandbox, legs, options=("--set", "engine.out_after=10s"))
    volume.create(size)
    volume.start()
    filler = root / "filler"
    run("fallocate", "-l", 112 * MIB, filler)
    journal = Journal(volume.uri, blocks=size // 65536, block_bytes=65536)
    assert journal.run(2 * (size // 65536))
    volume.wait_leg_state(full, "out")
    state = volume.status()["legs"][full]
    assert state["out_reason"] == "write-errors"
    assert state["errors"] > 0
    assert "cramped" in volume.process.output()
    journal.verify()
    journal.disconnect()
    volume.kill()
    filler.unlink()
    volume.start()
    journal.settle()
    journal.disconnect()
    volume.wait_converged()
    volume.stop()
    assert_identical(volume.legs, size)


def test_clients_go_on_while_a_leg_has_no_space_for_its_rebuild(sandbox: Sandbox) -> None:
    """Rebuilds a sparse leg that holds little of regions that the other one holds whole."""
    size = 2 * GIB
    root = small_file_system(sandbox, 192 * MIB)
    legs: list[str | Path] = [sandbox.path("roomy.img"), root / "cramped.img"]
    options = ("--buffer-budget", 16 * MIB, "--set", "engine.clean_after=1h")
    volume = Volume(sandbox, legs, options=options, inject=True)
    volume.create(size)
    volume.start()
    # The other leg gets the authority, so this one owes the regions after the crash.
    volume.inject(1, "--delay", "2ms")
    source = random.Random(1)
    written = {}
    with volume.client() as client:
        for at in range(0, size, 4 * MIB):
            offset = at + source.randrange(0, 4 * MIB, 4096)
            written[offset] = source.randbytes(4096)
            client.write(offset, written[offset])
        client.flush()
    # What the slower leg is still given takes space meanwhile.
    wait_until("both have it all", lambda: volume.status()["legs"][1]["owed_bytes"] == 0)
    run("sync", "--file-system", root)
    filler = root / "filler"
    free = os.statvfs(root)
    run("fallocate", "-l", free.f_bavail * free.f_frsize - MIB, filler)
    volume.kill()
    # A region that differs at its beginning and end is written from beginning to end.
    with Path(legs[0]).open("r+b") as leg:
        for offset in written:
            region = offset // MIB * MIB
            for at in {region, region + MIB - 4096} - written.keys():
                leg.seek(data_offset(size) + at)
                leg.write(source.randbytes(4096))
    volume.start()
    wait_until("writes fail", lambda: volume.status()["legs"][1]["errors"] > 32)
    with volume.client() as client:
        for offset, data in written.items():
            assert client.read(offset, 4096) == data
            client.write(offset, data)


@pytest.mark.parametrize("reserved", [False, True])
def test_a_rebuild_takes_no_space_for_zeros(sandbox: Sandbox, reserved: bool) -> None:
    """Gives a new leg whole regions: a sparse one stays sparse, a reserved one full."""
    size = 1 * GIB
    legs: list[str | Path] = [sandbox.path(f"leg{i}.img") for i in range(2)]
    volume = Volume(sandbox, legs)
    volume.create(size, *(["--reserve"] if reserved else []))
    volume.start()
    source = random.Random(1)
    count = 64
    with volume.client() as client:
        for at in range(0, size, size // count):
            offset = at + source.randrange(0, size // count, 4096)
            client.write(offset, source.randbytes(4096))
        client.flush()
    fresh = sandbox.file("fresh.img", leg_bytes(size))
    if reserved:
        run("fallocate", "-l", leg_bytes(size), fresh)
    volume.command("leg", "detach", 1)
    volume.command("leg", "replace", 1, fresh)
    volume.wait_converged()
    assert volume.status()["legs"][1]["drained_bytes"] >= count * MIB
    volume.stop()
    assert_identical([legs[0], fresh], size)
    for leg in (Path(legs[0]), fresh):
        space = leg.stat().st_blocks * 512
        if reserved:
            assert space >= leg.stat().st_size, f"{leg}: {space} bytes are left"
        else:
            # A drain is at most a mebibyte, and is written whole where a client wrote.
            assert space <= 2 * count * MIB, f"{leg} takes {space} bytes"


def test_the_smallest_volume(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, 4096)
    with volume.client() as client:
        assert client.size() == 4096
        client.write(0, b"tiny" * 1024)
    volume.kill()
    volume.start()
    with volume.client() as client:
        assert client.read(0, 4096) == b"tiny" * 1024
