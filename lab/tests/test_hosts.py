"""fio on several hosts: two servers on loopback, merged to the result of one combined run."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from hemi_lab.drivers.base import Outcome
from hemi_lab.drivers.fio import job, output
from hemi_lab.drivers.fio.driver import FioDriver
from hemi_lab.drivers.fio.hosts import Host, HostsDriver, merged, parse_hosts
from hemi_lab.errors import RefusedError, ToolError, UsageError
from hemi_lab.statistics.histogram import Histogram
from hemi_lab.steps import Step
from hemi_lab.targets import safety
from hemi_lab.targets.hosts import HostsTarget
from hemi_lab.targets.parse import parse
from hemi_lab.workload import Load

fio = pytest.mark.skipif(shutil.which("fio") is None, reason="needs fio (make setup-test)")

SIZE = 16 << 20
ADDRESSES = ("127.0.0.1", "127.0.0.2")


def free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port


def serving(address: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Host]]:
    started, hosts = [], []
    for address in ADDRESSES:
        host = Host(address, free_port(address))
        folder = tmp_path / f"server-{address}"
        folder.mkdir()
        process = subprocess.Popen(
            ["fio", f"--server={host.name},{host.port}"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        started.append(process)
        hosts.append(host)
    try:
        for host in hosts:
            for _ in range(1200):
                if serving(host.name, host.port):
                    break
                time.sleep(0.1)
            else:
                pytest.fail(f"fio --server on {host.name} did not come up")
        yield hosts
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(30)


def driver_of(hosts: list[Host], path: Path) -> HostsDriver:
    options = {"filename": str(path), "direct": "0"}
    return HostsDriver(hosts, options, SIZE, 4096)


def step(load: Load, **limits: object) -> Step:
    return Step("test", "measure", "load", load, seed=7, **limits)  # type: ignore[arg-type]


@fio
def test_two_servers_count_what_one_combined_run_counts(
    servers: list[Host], tmp_path: Path
) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(SIZE))
    load = Load(read_percent=100, sizes=4096, threads=2)
    together = driver_of(servers, path)
    destination = job.Destination({"filename": str(path), "direct": "0"}, "psync", SIZE, 4096)
    alone = FioDriver(destination, lambda: Outcome(False, ""))
    try:
        amount = 8 << 20
        spread = together.run(step(load, bytes=amount))
        # Twice the threads on one machine, with the same total of bytes.
        one = alone.run(step(load.model_copy(update={"threads": 4}), bytes=amount))
    finally:
        together.close()
        alone.close()
    requests = amount // 4096
    for found in (spread, one):
        assert found.all.moments.count == requests
        assert found.all.bytes == amount
        assert found.all.histogram.total == requests
        assert (found.issued, found.completed) == (requests, requests)
    assert spread.little is not None
    assert spread.little.in_system == 4


@fio
def test_percentiles_are_of_every_hosts_bins(
    servers: list[Host], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compares the driver's result with fio's results of each host, merged by hand."""
    path = tmp_path / "data"
    path.write_bytes(bytes(SIZE))
    kept: list[dict[str, object]] = []
    plain = output.operations

    def watched(part: dict[str, object]) -> object:
        kept.append(part)
        return plain(part)

    monkeypatch.setattr(output, "operations", watched)
    driver = driver_of(servers, path)
    try:
        found = driver.run(step(Load(read_percent=70, sizes=4096), seconds=3.0))
    finally:
        driver.close()
    assert len(kept) == 2
    hosts = [plain(part) for part in kept]
    assert all(host["all"].moments.count > 0 for host in hosts)
    for kind in ("read", "write", "all"):
        counts: dict[int, int] = {}
        for host in hosts:
            for _, high, count in host[kind].histogram.bins():
                counts[high] = counts.get(high, 0) + count
        assert found.operations[kind].histogram.total == sum(counts.values())
        for quantile in (0.5, 0.99, 0.999):
            rank, seen = quantile * sum(counts.values()), 0
            for high in sorted(counts):
                seen += counts[high]
                if seen >= rank - 1e-6:
                    break
            assert found.operations[kind].histogram.percentile(quantile) == high / 1e9
    counted = found.intervals.filter(pl.col("operation") == "all")["count"].sum()
    assert counted == found.all.moments.count
    assert found.notes == []


@fio
def test_seconds_make_the_whole_however_many_they_are(servers: list[Host], tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(SIZE))
    driver = driver_of(servers, path)
    try:
        found = driver.run(step(Load(read_percent=50, sizes=4096, threads=2), seconds=5.3))
    finally:
        driver.close()
    assert found.notes == []
    for kind in ("read", "write", "all"):
        seconds = found.intervals.filter(pl.col("operation") == kind)
        assert seconds["count"].sum() == found.operations[kind].moments.count
    # A busy machine may leave out a second, but not all of them.
    assert found.intervals["start_seconds"].n_unique() >= 2


def test_a_slow_host_is_not_averaged_away() -> None:
    """Uses one host of four that answers in 10 ms.

    The merged 99 % is its own, and the mean of the hosts' 99 % is nobody's."""
    quick = {
        "lat_ns": {"N": 100, "mean": 1e5, "stddev": 0, "max": 100_000, "bins": {"100000": 100}}
    }
    slow = {
        "lat_ns": {"N": 100, "mean": 1e7, "stddev": 0, "max": 10_000_000, "bins": {"10000000": 100}}
    }
    parts = [{"read": {**part, "io_bytes": 409600}} for part in (quick, quick, quick, slow)]
    found = merged(output.operations(part) for part in parts)["read"]
    assert found.moments.count == 400
    assert found.bytes == 4 * 409600
    assert found.histogram.percentile(0.99) == pytest.approx(10e-3, rel=0.02)
    assert found.histogram.percentile(0.75) == pytest.approx(100e-6, rel=0.02)
    assert found.moments.mean == pytest.approx((3 * 1e-4 + 1e-2) / 4)
    assert isinstance(found.histogram, Histogram)


@fio
def test_a_host_that_is_not_there_is_said(tmp_path: Path) -> None:
    gone = Host("127.0.0.1", free_port("127.0.0.1"))
    with pytest.raises(ToolError, match="127.0.0.1") as failed:
        driver_of([gone], tmp_path / "data")
    assert "fio --server" in failed.value.way_out


def test_hosts_are_named() -> None:
    assert parse_hosts(["db1", "10.0.0.2:9000"]) == [Host("db1"), Host("10.0.0.2", 9000)]
    with pytest.raises(UsageError, match="named twice"):
        parse_hosts(["db1:1", "db1:2"])
    for wrong in ("", "db1:", "db1:0", "db1:99999", "a b"):
        with pytest.raises(UsageError, match="host"):
            parse_hosts([wrong])


def test_a_target_on_hosts() -> None:
    target = parse("file:/data/x,size=1GiB,hosts=db1+db2:9000")
    assert isinstance(target, HostsTarget)
    assert target.describe().bytes == 2 << 30
    assert isinstance(parse("/dev/sdz,size=1GiB", ["db1"]), HostsTarget)
    with pytest.raises(UsageError, match="size"):
        parse("/data/x", ["db1"]).describe()
    with pytest.raises(UsageError, match="only files and devices"):
        parse("sim:gp3", ["db1"])


def test_what_hosts_hold_has_to_be_named() -> None:
    target = parse("/data/x,size=1GiB", ["db1"])
    with pytest.raises(RefusedError, match="cannot be seen from here"):
        safety.check(target, [])
    assert safety.check(target, ["/data/x"])
