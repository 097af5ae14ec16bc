"""NBD with foreign clients: libnbd's tools, qemu's tools, fio."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hemi_harness import Fio, Sandbox, Volume, run, run_fails, wait_until
from hemi_harness.hemi import MIB

SIZE = 64 * MIB
NAME = "conformance"


@pytest.fixture
def volume(sandbox: Sandbox) -> Volume:
    return Volume.on_files(sandbox, SIZE, create=("--name", NAME))


def image(sandbox: Sandbox, size: int = SIZE) -> Path:
    """Returns a file with data, holes and zeros."""
    path = sandbox.file("source.img", size)
    source = random.Random(7)
    with path.open("r+b") as f:
        for offset in range(0, size, 4 * MIB):
            f.seek(offset + source.randrange(0, MIB, 512))
            f.write(source.randbytes(source.randrange(512, 2 * MIB, 512)))
        f.seek(0)
        f.write(bytes(MIB))
    return path


def test_nbdinfo_tells_what_the_export_can(volume: Volume) -> None:
    export = json.loads(run("nbdinfo", "--json", volume.uri))["exports"][0]
    assert export["export-size"] == SIZE
    for can in (
        "can_flush",
        "can_fua",
        "can_trim",
        "can_zero",
        "can_fast_zero",
        "can_multi_conn",
        "can_cache",
        "can_df",
    ):
        assert export[can] is True, f"{can}: {export[can]}"
    assert export["is_read_only"] is False
    assert export["is_rotational"] is False
    assert {"base:allocation", "hemi:copies"} <= set(export["contexts"])
    minimum, preferred, most = (
        export[f"block_size_{which}"] for which in ("minimum", "preferred", "maximum")
    )
    assert minimum in (1, 512, 4096)
    assert minimum <= preferred <= most
    assert most >= MIB


def test_nbdinfo_lists_the_volume_by_its_name(volume: Volume) -> None:
    listed = json.loads(run("nbdinfo", "--list", "--json", volume.uri))
    assert NAME in [export["export-name"] for export in listed["exports"]]
    named = f"nbd+unix:///{NAME}?socket={volume.socket}"
    assert int(run("nbdinfo", "--size", named)) == SIZE


def test_an_unknown_export_is_refused_by_name(volume: Volume) -> None:
    _, printed = run_fails("nbdinfo", f"nbd+unix:///elsewhere?socket={volume.socket}")
    assert "elsewhere" in printed or "unknown" in printed.lower(), printed
    assert int(run("nbdinfo", "--size", volume.uri)) == SIZE


def test_the_map_covers_the_export_and_never_hides_data(volume: Volume, sandbox: Sandbox) -> None:
    source = image(sandbox)
    run("nbdcopy", source, volume.uri)
    content = source.read_bytes()
    for context in ("base:allocation", "hemi:copies"):
        extents = json.loads(run("nbdinfo", f"--map={context}", "--json", volume.uri))
        position = 0
        for extent in extents:
            assert extent["offset"] == position
            position += extent["length"]
        assert position == SIZE
    for extent in json.loads(run("nbdinfo", "--map", "--json", volume.uri)):
        if extent["type"] & 2:
            piece = content[extent["offset"] : extent["offset"] + extent["length"]]
            assert not piece.strip(b"\0"), f"data at {extent['offset']} is said to read as zero"


@pytest.mark.parametrize("connections", [1, 4])
def test_nbdcopy_there_and_back(volume: Volume, sandbox: Sandbox, connections: int) -> None:
    source, back = image(sandbox), sandbox.path("back.img")
    options = (f"--connections={connections}", "--requests=32")
    run("nbdcopy", *options, "--flush", source, volume.uri)
    run("nbdcopy", *options, volume.uri, back)
    run("cmp", source, back)
    # Over the data: old content where the source has a hole must go.
    source.write_bytes(bytes(SIZE))
    run("nbdcopy", *options, "--flush", source, volume.uri)
    run("nbdcopy", *options, volume.uri, back)
    run("cmp", source, back)


def test_qemu_img_converts_and_compares(volume: Volume, sandbox: Sandbox) -> None:
    source, back = image(sandbox), sandbox.path("back.img")
    run("qemu-img", "convert", "-n", "-W", "-f", "raw", "-O", "raw", source, volume.uri)
    assert "identical" in run("qemu-img", "compare", "-f", "raw", "-F", "raw", source, volume.uri)
    run("qemu-img", "convert", "-f", "raw", "-O", "raw", volume.uri, back)
    run("cmp", source, back)
    with source.open("r+b") as f:
        f.seek(SIZE - 512)
        f.write(b"\x01" * 512)
    run_fails("qemu-img", "compare", "-f", "raw", "-F", "raw", source, volume.uri)


def test_a_qcow2_image_lives_on_the_volume(volume: Volume) -> None:
    run("qemu-img", "create", "-q", "-f", "qcow2", volume.uri, "48M")
    for command in ("write -P 17 0 5M", "write -z 1M 1M", "discard 3M 1M", "flush"):
        run("qemu-io", "-f", "qcow2", "-c", command, volume.uri)
    run("qemu-img", "check", "-f", "qcow2", volume.uri)
    run("qemu-img", "snapshot", "-c", "one", volume.uri)
    run("qemu-io", "-f", "qcow2", "-c", "write -P 18 0 5M", volume.uri)
    volume.restart()
    run("qemu-img", "check", "-f", "qcow2", volume.uri)
    run("qemu-io", "-f", "qcow2", "-c", "read -P 18 0 5M", volume.uri)
    run("qemu-img", "snapshot", "-a", "one", volume.uri)
    reads = ("read -P 17 0 1M", "read -P 0 1M 1M", "read -P 17 2M 1M")
    for command in reads:
        out = run("qemu-io", "-f", "qcow2", "-c", command, volume.uri)
        assert "Pattern verification failed" not in out, out


def test_qemu_io_writes_zeroes_and_discards(volume: Volume) -> None:
    def io(*commands: str) -> str:
        arguments = [a for command in commands for a in ("-c", command)]
        out = run("qemu-io", "-f", "raw", "-t", "none", *arguments, volume.uri)
        assert "failed" not in out.lower(), out
        return out

    io("write -P 1 0 1M", "write -f -P 2 1M 64k", "write -P 3 3M 512", "flush")
    io("write -z 256k 128k", "write -zu 512k 64k", "discard 1088k 64k")
    io(
        "read -P 1 0 256k",
        "read -P 0 256k 128k",
        "read -P 1 384k 128k",
        "read -P 0 512k 64k",
        "read -P 2 1M 64k",
        "read -P 3 3M 512",
        "read -P 0 3073k 511k",
    )
    # Many at once, overlapping none.
    io(*(f"aio_write -P {i} {8 * MIB + i * 65536} 64k" for i in range(64)), "aio_flush")
    io(*(f"read -P {i} {8 * MIB + i * 65536} 64k" for i in range(64)))

    # Zeros may be requested by the gigabyte. They do not count as slow writes.
    def counts() -> list[int]:
        clients = volume.status()["clients"]
        return [clients[kind]["total"]["count"] for kind in ("zeroes", "writes")]

    # The status is published some time later.
    wait_until("all requests are counted", lambda: sum(counts()) >= 3 + 3 + 64)
    assert counts() == [3, 3 + 64]


@pytest.mark.parametrize(
    ("depth", "block", "extra"),
    [
        (1, "512", {}),
        (32, "4k", {"fsync": 32}),
        (16, "4k-128k", {"bsrange": "4k-128k"}),
        (4, "1m", {}),
    ],
)
def test_fio_verifies(
    volume: Volume, sandbox: Sandbox, depth: int, block: str, extra: dict[str, int | str]
) -> None:
    size = 4 * MIB if block == "512" else SIZE
    options: dict[str, int | str] = {"bs": block.split("-")[0], **extra}
    written = Fio(
        sandbox,
        volume.uri,
        rw="randwrite",
        size=size,
        iodepth=depth,
        verify="crc32c",
        verify_fatal=1,
        **options,
    ).wait()
    assert written["read"]["io_bytes"] == written["write"]["io_bytes"] > 0


def test_fio_on_several_connections_with_trims(volume: Volume, sandbox: Sandbox) -> None:
    part = SIZE // 4
    Fio(
        sandbox,
        volume.uri,
        rw="randtrimwrite",
        bs="4k",
        size=part,
        offset_increment=part,
        numjobs=4,
        iodepth=8,
    ).wait()
    Fio(
        sandbox,
        volume.uri,
        rw="randrw",
        bs="8k",
        size=part,
        offset_increment=part,
        numjobs=4,
        iodepth=8,
        verify="crc32c",
        verify_fatal=1,
    ).wait()
