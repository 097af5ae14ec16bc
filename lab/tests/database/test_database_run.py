"""Whole runs on a private MariaDB: results, failures, interruptions, nothing left over."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from database_server import TINY
from hemi_lab.database import (
    DeviceTarget,
    DirectoryTarget,
    LabError,
    NbdTarget,
    OltpRun,
    ScanRun,
    ScanSettings,
    Second,
    ToolError,
    Workplace,
    placement,
    sweep,
)
from hemi_lab.database.server import MariaDb
from hemi_lab.database.settings import MEBIBYTE
from hemi_lab.methods.database import told

pytestmark = pytest.mark.usefixtures("mariadb_installed")


def servers_of(directory: Path) -> list[int]:
    """Returns the living MariaDB servers with files in a directory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if words[0].endswith("mariadbd") and str(directory) in " ".join(words):
            found.append(int(entry.parts[2]))
    return found


@pytest.mark.long
def test_a_run_on_all_placements(tmp_path: Path) -> None:
    targets = {letter: tmp_path / letter for letter in "AB"}
    for path in targets.values():
        path.mkdir()
    settings = replace(
        TINY,
        seconds=1,
        placements=tuple(placement(text) for text in ("A/A", "A/B", "B/A", "B/B")),
        server_options={"innodb_io_capacity": "321"},
    )
    run = OltpRun(
        settings, {"A": DirectoryTarget(targets["A"]), "B": DirectoryTarget(targets["B"])}
    )
    with Workplace() as place:
        result = run.execute(place)
    assert [one.placement for one in result.placements] == ["A/A", "A/B", "B/A", "B/B"]
    for one in result.placements:
        data, log = one.placement.split("/")
        served = one.server_settings
        assert served["datadir"].startswith(f"{targets[data]}/")
        assert served["innodb_log_group_home_dir"].startswith(f"{targets[log]}/")
        assert served["innodb_flush_log_at_trx_commit"] == "1"
        assert served["innodb_doublewrite"] == "ON"
        assert served["innodb_io_capacity"] == "321"
        assert int(served["innodb_buffer_pool_size"]) == one.pool_bytes == 8 * MEBIBYTE
        assert any(
            said.startswith(f"{one.placement}: the buffer pool, 8 MiB") and "memory" in said
            for said in result.deviations
        )
        assert one.server_version and "MariaDB" in one.server_version
        assert len(one.checks_after_load) == 12
        assert len(one.checks_after_run) == 11
        assert one.data_bytes and one.data_bytes > MEBIBYTE
        step = one.steps[0]
        assert step.report and step.report.transactions > 0 and step.report.threads == 4
        assert step.counters["innodb_os_log_written"] > 0
        p50, p95, p99 = (step.percentiles_ms[rank] for rank in (50, 95, 99))
        assert p50 and p95 and p99 and p50 <= p95 <= p99
        assert set(step.kind_percentiles_ms) >= {"new_order", "payment"}
    broken = [problem for problem in result.problems if "Little" not in problem]
    assert broken == []
    assert "MariaDB with innodb_io_capacity=321" in result.deviations
    assert any("--report-interval=1 --histogram" in c.line for c in result.commands)
    assert all(c.exit_code is not None for c in result.commands)
    json.dumps(told(result))
    assert list(targets["A"].iterdir()) == list(targets["B"].iterdir()) == []


@pytest.mark.long
def test_oltp_read_write(tmp_path: Path) -> None:
    settings = replace(
        TINY, workload="oltp_read_write", tables=2, rows=2000, threads=(1, 4), warm_up_seconds=1
    )
    seen: list[Second] = []
    run = OltpRun(settings, {"A": DirectoryTarget(tmp_path)}, on_second=seen.append)
    with Workplace() as place:
        steps = run.execute(place).placements[0].steps
    assert [(step.threads, step.warm_up) for step in steps] == [(1, True), (1, False), (4, False)]
    assert seen == [second for step in steps for second in step.series]
    for step in steps:
        report = step.report
        assert report and report.kinds == [] and report.transactions > 0
        # 10 point selects and 4 ranges. Transactions repeated after a deadlock come on top.
        assert report.reads >= 14 * report.transactions
        assert report.ignored_errors > 0 or report.reads == 14 * report.transactions


@pytest.mark.long
def test_a_server_that_dies_is_an_error_that_tells(tmp_path: Path) -> None:
    def kill(second: Second) -> None:
        for pid in servers_of(place.directory):
            os.kill(pid, signal.SIGKILL)

    run = OltpRun(replace(TINY, seconds=60), {"A": DirectoryTarget(tmp_path)}, on_second=kill)
    with Workplace() as place:
        with pytest.raises(
            ToolError, match=r"sysbench failed[\s\S]*Lost connection[\s\S]*--time=60.*run"
        ):
            run.execute(place)
    assert run.result.incomplete and "Lost connection" in run.result.incomplete
    broken_off = run.result.placements[0].steps[0]
    assert broken_off.report is None
    assert len(broken_off.series) >= 1
    assert run.result.problems[0].startswith("incomplete:")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_setting_mariadb_refuses_is_shown_in_its_words(tmp_path: Path) -> None:
    settings = replace(TINY, server_options={"innodb_no_such_thing": "1"})
    run = OltpRun(settings, {"A": DirectoryTarget(tmp_path)})
    with Workplace() as place, pytest.raises(ToolError, match="innodb_no_such_thing"):
        run.execute(place)
    # Before the rows are loaded, which can take hours.
    assert not any(c.line.endswith("prepare") for c in run.result.commands)
    assert list(tmp_path.iterdir()) == []


def test_a_load_that_is_too_large_is_refused_before_it_begins(tmp_path: Path) -> None:
    run = OltpRun(replace(TINY, warehouses=1_000_000), {"A": DirectoryTarget(tmp_path)})
    with Workplace() as place, pytest.raises(LabError, match="MiB free, but this load needs"):
        run.execute(place)
    assert not any("mariadb" in command.line for command in run.result.commands)


def test_targets_that_are_no_directories(tmp_path: Path) -> None:
    with Workplace() as place:
        with pytest.raises(LabError, match="is not a directory"):
            DirectoryTarget(tmp_path / "none").open(place)
        with pytest.raises(LabError, match="is not a block device"):
            DeviceTarget(tmp_path).open(place)
        with pytest.raises(ToolError, match="nbdfuse"):
            NbdTarget(f"nbd+unix:///?socket={tmp_path}/none").open(place)


@pytest.mark.long
def test_scans(tmp_path: Path) -> None:
    run = ScanRun(ScanSettings(rows=60_000, repeats=2), DirectoryTarget(tmp_path))
    with Workplace() as place:
        result = run.execute(place)
    order = [(scan.comparison, scan.subject) for scan in result.scans]
    ways = ["key order", "secondary index alone", "secondary-index lookup of every row"]
    assert order == [("access", way) for way in ways + ways[::-1]] + [
        ("layout", name) for name in ("contiguous", "fragmented", "fragmented", "contiguous")
    ]
    read = {scan.subject: scan.read_bytes for scan in result.scans}
    assert result.data_bytes is not None
    # Cold: the whole clustered index is read, but not the secondary one.
    assert 0.5 * result.data_bytes < read["key order"] < 1.2 * result.data_bytes
    assert read["secondary index alone"] < 0.5 * read["key order"]
    # The pool holds half of the pages, and rows come in no order, so pages are read again.
    assert read[ways[2]] > 3 * read["key order"]
    whole, pieces = result.layouts["contiguous"], result.layouts["fragmented"]
    assert pieces.fragments >= 10 * whole.fragments
    assert whole.file_bytes == pieces.file_bytes
    assert result.problems == []
    json.dumps(asdict(result))
    assert list(tmp_path.iterdir()) == []


needs_devices = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/dev/loop-control").exists(),
    reason="needs root and loop devices",
)


@needs_devices
def test_a_device_is_not_destroyed_unasked(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(b"")
    os.truncate(image, 400 * MEBIBYTE)
    with Workplace() as place:
        device = place.loop(image)
        opened = DeviceTarget(device).open(place)
        assert opened.description["file_system"] == "ext4"
        # In use: not even with permission to wipe.
        with pytest.raises(LabError, match=r"cannot be used: Device or resource busy"):
            DeviceTarget(device, wipe=True).open(place)
        opened.close()
        with pytest.raises(LabError, match=r"is not empty[\s\S]*ext4"):
            DeviceTarget(device).open(place)
        again = DeviceTarget(device, "xfs", wipe=True).open(place)
        assert again.description["file_system"] == "xfs"
        again.close()


@needs_devices
def test_a_loop_device_without_direct_io_is_refused(tmp_path: Path) -> None:
    """Uses a file system without O_DIRECT (ramfs), on which the page cache would be measured."""
    with Workplace(tmp_path) as place:
        ram = place.path("ram")
        ram.mkdir()
        place.log.run("mount", "-t", "ramfs", "hemi-lab-test", ram)
        place.defer(lambda: subprocess.run(["umount", ram], check=True))
        image = ram / "image"
        image.write_bytes(bytes(MEBIBYTE))
        with pytest.raises(LabError, match=r"direct I/O|Invalid argument"):
            place.loop(image)
    assert not any(
        str(tmp_path) in entry.read_text()
        for entry in Path("/sys/block").glob("loop*/loop/backing_file")
    )


_DIES = """
import os, signal, sys
from pathlib import Path
from hemi_lab.database import NbdTarget, Workplace
with Workplace(Path(sys.argv[1])) as place:
    NbdTarget(sys.argv[2]).open(place)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@needs_devices
def test_mounts_of_a_killed_lab_are_swept(tmp_path: Path) -> None:
    """Leaves a FUSE mount without a server, which answers nothing."""
    if shutil.which("nbdkit") is None or shutil.which("nbdfuse") is None:
        pytest.skip("needs nbdkit and nbdfuse")
    work = tmp_path / "a work place"
    work.mkdir()
    with Workplace() as place:
        socket = place.path("nbd.sock")
        nbdkit = place.start("nbdkit", "nbdkit", "-f", "-U", socket, "memory", 64 * MEBIBYTE)
        nbdkit.wait_ready(socket.exists, 120)
        lab = subprocess.run(
            [sys.executable, "-c", _DIES, str(work), f"nbd+unix:///?socket={socket}"],
            capture_output=True,
            timeout=120,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert lab.returncode == -signal.SIGKILL, lab.stderr
        assert "work\\040place" in Path("/proc/self/mounts").read_text()
        sweep(work)
    assert "work\\040place" not in Path("/proc/self/mounts").read_text()
    assert list(work.iterdir()) == []
    assert not any(
        str(work) in entry.read_text()
        for entry in Path("/sys/block").glob("loop*/loop/backing_file")
    )


@pytest.mark.long
def test_a_second_start_is_cold(tmp_path: Path, mariadb_installed: None) -> None:
    """Checks that a restart forgets the pool, or scans would be read from memory."""
    with Workplace() as place:
        data, log = place.subdirectory(tmp_path, "d"), place.subdirectory(tmp_path, "l")
        server = MariaDb(place, data, log, 16 * MEBIBYTE)
        server.install()
        server.start({})
        server.query("CREATE TABLE t AS SELECT seq, REPEAT('x', 1000) FROM seq_1_to_5000")
        server.stop()
        for _ in range(2):
            server.start({})
            before = server.counters()["innodb_data_read"]
            server.query("SELECT SUM(LENGTH(`REPEAT('x', 1000)`)) FROM t")
            assert server.counters()["innodb_data_read"] - before > 4_000_000
            server.stop()
