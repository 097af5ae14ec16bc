"""`hemi load` and recordings: everything is counted, refusals name the reason, recordings
replay."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hemi_harness import HEMI, Sandbox, Volume, hemi, hemi_fails, wait_until
from hemi_harness.hemi import MIB
from hemi_harness.sandbox import PATIENCE, catches

ACCESS = 'access = { addresses = "uniform", sizes = "4 KiB", mix = { read_percent = %d%s } }\n'
READS = ACCESS % (100, "")
MIXED = ACCESS % (50, ", flush_every = 8, fua_percent = 25.0")
# Latency is reported however busy the machine is, since these tests are about counts.
PATIENT = ("--lateness-bound", "60s")


def spec(sandbox: Sandbox, workload: str, name: str = "load.toml") -> Path:
    path = sandbox.path(name)
    path.write_text(f'title = "a test"\n{workload}')
    return path


def load(*argv: object) -> dict[str, Any]:
    """Returns the result of a load that must succeed."""
    result: dict[str, Any] = json.loads(hemi("load", *map(str, argv), *PATIENT, "--json", "-"))
    audit = result["audit"]
    assert audit["counts_hold"] and audit["little_holds"], audit
    return result


def data(sandbox: Sandbox, size: int, name: str = "target") -> Path:
    path = sandbox.file(name, size)
    path.write_bytes(b"\1" * size)
    return path


def test_an_open_loop_on_a_file(sandbox: Sandbox) -> None:
    target = data(sandbox, MIB)
    file = spec(sandbox, f'[workload.open]\nrate = 500\nduration = "2 s"\n{READS}')
    result = load(file, "--target", target, "--buffered", "--seed", 7)
    assert result["seed"] == 7 and result["title"] == "a test"
    assert result["target"]["kind"] == "file" and result["target"]["direct"] is False
    assert result["target"]["size"] == MIB
    assert 800 < result["requests"] < 1200
    assert result["reads"]["count"] == result["completed"] == result["requests"]
    assert result["writes"]["count"] == 0 and not result["partial"]
    bins = result["reads"]["histogram"]
    assert sum(count for _, count in bins) == result["reads"]["count"]
    # Intervals contain everything, and so do their bins.
    each = [sum(count for _, count in interval["histogram"]) for interval in result["intervals"]]
    assert sum(each) == result["requests"] and len(each) >= 2
    # The same seed gives the same requests.
    again = load(file, "--target", "null:1 MiB", "--seed", 7)
    assert again["requests"] == result["requests"]


def test_every_request_is_in_the_records(sandbox: Sandbox) -> None:
    target = sandbox.file("target", MIB)
    file = spec(
        sandbox,
        f"[workload.closed]\nthreads = 2\nqueue_depth = 4\nrequests = 500\n{MIXED}",
    )
    records = sandbox.path("records.parquet")
    result = load(file, "--target", target, "--buffered", "--records", records)
    kinds = ("reads", "writes", "flushes")
    assert sum(result[kind]["count"] for kind in kinds) == 500
    assert all(result[kind]["count"] > 0 for kind in kinds)
    assert target.read_bytes() != b"\0" * MIB
    raw = records.read_bytes()
    assert raw[:4] == raw[-4:] == b"PAR1"


def test_an_export_of_a_volume_is_recorded_converted_and_replayed(sandbox: Sandbox) -> None:
    recording = sandbox.path("db.capture")
    volume = Volume.on_files(sandbox, 64 * MIB, options=("--record", recording))
    file = spec(
        sandbox,
        f'[workload.open]\nrate = 400\nduration = "2 s"\n{MIXED}',
    )
    result = load(file, "--target", volume.uri, "--queue-depth-cap", 16)
    assert result["target"]["kind"] == "nbd" and result["target"]["direct"] is None
    assert result["failed"] == 0
    volume.stop()

    csv = hemi("trace", "convert", recording, "-", "--to", "csv").splitlines()
    assert csv[0] == "at_ns,operation,fua,offset,length,latency_ns"
    rows = [line.split(",") for line in csv[1:]]
    assert [row[0] for row in rows] == sorted((row[0] for row in rows), key=int)

    def count(operation: str, fua: str | None = None) -> int:
        return sum(row[1] == operation and fua in (None, row[2]) for row in rows)

    # The client also reads the places of a leg's metadata, to learn who it talks to and whether
    # they are empty.
    assert count("read") >= result["reads"]["count"]
    assert count("write") == result["writes"]["count"]
    assert count("flush") == result["flushes"]["count"]
    assert 0 < count("write", "1") < count("write")
    # A flush that finds nothing to make durable is answered at once.
    assert all(int(row[5]) > 0 for row in rows if row[1] != "flush")

    target = sandbox.file("replayed", 64 * MIB)
    iolog = sandbox.path("db.iolog")
    hemi("trace", "convert", recording, iolog, "--to", "iolog")
    for trace, form, pace in (
        (recording, "hemi", "timed"),
        (recording, "hemi", "dependent"),
        (iolog, "fio_iolog", 'fastest"\nqueue_depth = 8\nbeyond = "refuse'),
    ):
        text = f'[workload.replay]\ntrace = "{trace}"\nformat = "{form}"\npace = "{pace}"\n'
        again = load(
            spec(sandbox, text, "replay.toml"), "--target", target, "--buffered", "--wipe", target
        )
        assert again["requests"] == len(rows)
        assert again["writes"]["count"] == result["writes"]["count"]
        assert again["flushes"]["count"] == result["flushes"]["count"]


def test_a_recording_survives_a_kill(sandbox: Sandbox) -> None:
    recording = sandbox.path("db.capture")
    volume = Volume.on_files(sandbox, 16 * MIB, options=("--record", recording))
    file = spec(sandbox, f'[workload.open]\nrate = 500\nduration = "2 s"\n{MIXED}')
    load(file, "--target", volume.uri)

    def recorded() -> int:
        return len(hemi("trace", "convert", recording, "-", "--to", "csv").splitlines())

    # Records are written every quarter of a second, without an end of the recording.
    wait_until("half of the load is recorded", lambda: recorded() > 500)
    before = recorded()
    volume.kill()
    assert recorded() >= before
    # A recording is never overwritten.
    volume.options = ["--record", recording]
    hemi_fails(
        "serve", "--leg", volume.legs[0], "--leg", volume.legs[1], "--record", recording,
        says=["cannot record to", recording, "exists"],
    )  # fmt: skip


@pytest.mark.parametrize("cap", [1, 8, 48])
def test_a_cap_holds_and_nothing_is_lost(sandbox: Sandbox, cap: int) -> None:
    target = data(sandbox, MIB)
    lines = [f"{at * 50} f read {at % 256 * 4096} 4096" for at in range(2000)]
    sandbox.path("t.iolog").write_text("\n".join(["fio version 3 iolog", *lines, ""]))
    file = spec(sandbox, '[workload.replay]\ntrace = "t.iolog"\nformat = "fio_iolog"\n')
    result = load(file, "--target", target, "--buffered", "--queue-depth-cap", cap)
    assert result["requests"] == result["completed"] == 2000
    assert result["audit"]["little"][0] <= cap
    # The last request is intended for 99.95 ms.
    assert result["time"] >= 0.09995


def test_a_late_engine_reports_no_latency(sandbox: Sandbox) -> None:
    file = spec(sandbox, f"[workload.open]\nrate = 1000\nrequests = 300\n{READS}")
    out = sandbox.path("out.json")
    says = ["no latencies", "bound"]
    hemi_fails(
        "load", file, "--target", "null", "--lateness-bound", "1ns", "--json", out, says=says
    )
    result = json.loads(out.read_text())
    assert result["refusal"] and not result["audit"]["passed"]
    assert result["reads"]["count"] == 300 and "p99" not in result["reads"]
    assert all(interval["max"] is None for interval in result["intervals"])
    assert result["lateness"]["p99"] > 0


def test_an_interrupted_load_leaves_a_partial_result(sandbox: Sandbox) -> None:
    file = spec(sandbox, f"[workload.open]\nrate = 100\n{READS}")
    out = sandbox.path("out.json")
    process = subprocess.Popen(
        [HEMI, "load", file, "--target", "null", *PATIENT, "--json", out],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        wait_until("the load has begun", lambda: catches(process.pid, signal.SIGINT))
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 1 and b"partial" in said
    result = json.loads(out.read_text())
    assert result["partial"] and result["ended"] == "stopped"
    assert result["completed"] == result["requests"] and result["unfinished"] == 0


def test_refusals_name_what_is_wrong(sandbox: Sandbox) -> None:
    target = data(sandbox, MIB)
    writes = spec(
        sandbox, f"[workload.closed]\nthreads = 1\nqueue_depth = 1\nrequests = 1\n{MIXED}"
    )
    argv = ("load", writes, "--buffered", "--target", target)
    hemi_fails(*argv, says=[target, "not empty", "--wipe"])
    hemi_fails(*argv, "--wipe", sandbox.path("other"), says=["--wipe", "does not name"])
    assert target.read_bytes() == b"\1" * MIB
    hemi_fails("load", writes, "--target", sandbox.path("none"), says=["does not exist"])
    hemi_fails("load", writes, "--target", "null:x", says=["null:x"])
    swept = spec(sandbox, f'[workload.open]\nrate = 1\n{READS}[sweep]\n"seed" = [1, 2]\n')
    hemi_fails("load", swept, "--target", "null", says=["sweep"])
    volume = Volume.on_files(sandbox, 16 * MIB)
    leg = volume.legs[0]
    hemi_fails("load", writes, "--target", leg, "--wipe", leg, says=["in use", "hemi"])
    volume.stop()
    hemi_fails("load", writes, "--target", leg, says=["not empty", "hemi volume"])
    bare = sandbox.path("bare.iolog")
    bare.write_text("fio version 3 iolog\n0 f read 0 4096\n")
    text = f'[workload.replay]\ntrace = "{bare}"\nformat = "fio_iolog"\npace = "dependent"\n'
    hemi_fails("load", spec(sandbox, text), "--target", "null", says=["how long", "dependent"])
    unknown = sandbox.path("unknown.trace")
    unknown.write_text("not the beginning of any format\n")
    hemi_fails("trace", "convert", unknown, "-", "--to", "csv", says=["--from"])


def test_what_is_below_a_loop_device_is_in_use(sandbox: Sandbox) -> None:
    writes = spec(
        sandbox, f"[workload.closed]\nthreads = 1\nqueue_depth = 1\nrequests = 1\n{MIXED}"
    )
    file = sandbox.file("disk.img", MIB)
    other_name = sandbox.path("link.img")
    other_name.hardlink_to(file)
    lower = sandbox.loop(file)
    upper = sandbox.loop(Path(lower))
    for target, user in ((file, lower), (other_name, lower), (lower, upper)):
        argv = ("load", writes, "--target", target, "--wipe", target)
        hemi_fails(*argv, says=[target, "in use", f"attached to {user}"])
    hemi("load", writes, "--target", upper, *PATIENT)


def test_what_another_program_has_locked_is_in_use(sandbox: Sandbox) -> None:
    """Locks the disk as qemu does: ranges, of the open file."""
    writes = spec(
        sandbox, f"[workload.closed]\nthreads = 1\nqueue_depth = 1\nrequests = 1\n{MIXED}"
    )
    disk = sandbox.file("disk.img", MIB)
    argv = ("load", writes, "--buffered", "--target", disk, "--wipe", disk)
    with disk.open("rb+") as held:
        whole = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        fcntl.fcntl(held, fcntl.F_OFD_SETLK, whole)
        hemi_fails(*argv, says=[disk, "in use", "locked"])
    hemi(*argv, *PATIENT)


def test_requests_below_the_targets_block_are_rounded_and_that_is_said(sandbox: Sandbox) -> None:
    small = ACCESS.replace("4 KiB", "512 B") % (100, "")
    reads = spec(
        sandbox, f"[workload.closed]\nthreads = 1\nqueue_depth = 1\nrequests = 64\n{small}"
    )
    device = sandbox.loop(sandbox.file("disk.img", MIB), "--sector-size", 4096)
    assert load(reads, "--target", device)["rounded"] == 64
    printed = hemi("load", reads, "--target", device, *PATIENT)
    assert "rounded    64 requests to whole blocks of 4096 B" in printed
