"""fio: its jobs, its output, and a real run of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hemi_lab.drivers.fio import document, job, output
from hemi_lab.drivers.fio.driver import FioDriver
from hemi_lab.errors import ToolError
from hemi_lab.steps import Step
from hemi_lab.targets.file import FileTarget
from hemi_lab.workload import Load, WeightedSize, Zone

THERE = job.Destination({"filename": "/x", "direct": "1"}, "io_uring", 1 << 30, 512)


def options(load: Load, there: job.Destination = THERE, **limits: Any) -> dict[str, str]:
    text, _ = job.job(there, load, 7, **(limits or {"seconds": 2.0}))
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def test_a_plain_job() -> None:
    given = options(Load(read_percent=70, sizes=8192, threads=16, queue_depth=4))
    assert given["rw"] == "randrw"
    assert given["rwmixread"] == "70"
    assert (given["bs"], given["numjobs"], given["iodepth"]) == ("8192", "16", "4")
    assert (given["time_based"], given["runtime"]) == ("1", "2000ms")
    assert given["randseed"] == "7"
    assert given["filename"] == "/x"


def test_an_amount_ends_a_job_before_its_time() -> None:
    given = options(Load(read_percent=0, sizes=4096), seconds=60.0, amount=1 << 20)
    assert given["io_size"] == str(1 << 20)
    assert given["runtime"] == "60000ms"
    assert "time_based" not in given


def test_one_direction_is_no_mix() -> None:
    assert options(Load(read_percent=100, sizes=4096))["rw"] == "randread"
    written = options(Load(read_percent=0, sizes=4096, pattern="sequential"))
    assert written["rw"] == "write"


def test_mixed_sizes_make_a_hundred_percent() -> None:
    mix = [WeightedSize(size=512 * n, weight=1) for n in (1, 2, 4)]
    shares = [
        int(part.split("/")[1])
        for part in options(Load(read_percent=50, sizes=mix))["bssplit"].split(":")
    ]
    assert sum(shares) == 100
    assert sorted(shares) == [33, 33, 34]


def test_zones_and_spans() -> None:
    zones = [Zone(accesses=80, space=20), Zone(accesses=20, space=80)]
    given = options(Load(read_percent=0, sizes=4096, zones=zones, span_percent=50))
    assert given["random_distribution"] == "zoned:80/20:20/80"
    assert given["size"] == str(1 << 29)


def test_sequential_threads_have_stretches_of_their_own() -> None:
    given = options(Load(read_percent=0, sizes=1 << 20, pattern="sequential", threads=3))
    stretch = int(given["size"])
    assert given["offset_increment"] == given["size"]
    assert stretch % (1 << 20) == 0
    assert stretch * 3 <= 1 << 30


def test_sizes_below_the_targets_block_are_raised_and_noted() -> None:
    there = job.Destination({}, "libaio", 1 << 30, 4096)
    mix = [WeightedSize(size=512, weight=50), WeightedSize(size=4096, weight=50)]
    text, notes = job.job(there, Load(read_percent=0, sizes=mix), 1, 1.0)
    assert "bs=4096\n" in text
    assert "512 B" in notes[0]
    assert "4096" in notes[0]


def test_warnings_before_the_json() -> None:
    text = 'fio: this is old\nnote: x\n{"jobs": [{"error": 0}]}\ntrailer'
    assert document.parse(text) == {"jobs": [{"error": 0}]}
    with pytest.raises(ValueError, match="no JSON"):
        document.parse("fio: nothing")


def test_a_documents_figures_are_in_seconds_and_bytes() -> None:
    latency = {
        "N": 4,
        "mean": 1500.0,
        "stddev": 250.0,
        "min": 1000,
        "max": 2000,
        # fio tells the middle of a bin, here beyond the longest.
        "percentile": {"50.000000": 1400, "99.900000": 2008},
        "bins": {"1400": 4},
    }
    written = {"total_ios": 5, "short_ios": 1, "io_bytes": 20480, "runtime": 1500, "iops": 3.5}
    found = document.first_job(json.dumps({"jobs": [{"write": {**written, "clat_ns": latency}}]}))
    part = document.direction(found, "write")
    assert (part.issued, part.lost, part.bytes, part.iops, part.seconds) == (5, 1, 20480, 3.5, 1.5)
    done = part.completion
    assert (done.count, done.minimum, done.maximum) == (4, 1e-6, 2e-6)
    assert (done.mean, done.deviation) == (1.5e-6, 2.5e-7)
    assert (done.percentile(50), done.percentile(99.9), done.percentile(99)) == (1.4e-6, 2e-6, 0)
    assert part.latency == document.Latency()
    assert document.direction(found, "read").issued == 0
    with pytest.raises(IndexError):
        document.first_job('{"jobs": []}')


def answer(count: int, bins: dict[str, int]) -> dict[str, Any]:
    latency = {"N": count, "mean": 1000.0, "stddev": 0.0, "max": 4000, "bins": bins}
    return {
        "read": {
            "io_bytes": count * 4096,
            "total_ios": count,
            "short_ios": 0,
            "drop_ios": 0,
            "runtime": 2500,
            "lat_ns": latency,
            "clat_ns": latency,
        },
        "write": {},
    }


def test_the_window_fio_does_not_log_is_what_the_others_leave(tmp_path: Path) -> None:
    def line(millisecond: int, index: int, count: int) -> str:
        counts = [0] * 1856
        counts[index] = count
        return f"{millisecond}, 0, 4096, {', '.join(map(str, counts))}\n"

    (tmp_path / "hemi_clat_hist.1.log").write_text(line(1001, 100, 10) + line(2003, 100, 20))
    (tmp_path / "hemi_clat_hist.2.log").write_text(line(1000, 90, 5))
    (tmp_path / "hemi_lat.1.log").write_text("1000, 4000, 0, 0, 0\n2003, 100, 0, 0, 0\n")
    frame = output.intervals(tmp_path, answer(40, {"100": 33, "90": 7}))
    whole = frame.filter(pl.col("operation") == "all").sort("start_seconds")
    assert whole["count"].to_list() == [15, 20, 5]
    assert whole["length_seconds"].to_list() == [1.0, 1.0, 0.5]
    assert whole["bytes"].sum() == 40 * 4096
    assert whole["maximum_seconds"].to_list()[0] == 4e-6


def test_the_end_of_the_last_second_is_counted_in_the_second_before(tmp_path: Path) -> None:
    counts = [0] * 1856
    counts[100] = 30
    (tmp_path / "hemi_clat_hist.1.log").write_text(f"1001, 0, 4096, {str(counts)[1:-1]}\n")
    known = answer(40, {"100": 40})
    known["read"]["runtime"] = 1010
    frame = output.intervals(tmp_path, known).filter(pl.col("operation") == "all")
    assert frame["count"].to_list() == [40]
    assert frame["length_seconds"].to_list() == [1.0]


def test_a_servers_lines_are_windows_less_those_it_took_wrongly() -> None:
    # fio 3.33's lines for 502, 500, 500, 500, 500, 499 of a bin, and 0, 3, 0, 0, 1, 0 of another.
    sent = [[502, 0], [500, 3], [1002, 0], [1000, 3], [1502, 1], [1499, 3]]
    assert output.mended(sent) == [[502, 0], [500, 3], [500, 0], [500, 0], [500, 1], [499, 0]]
    assert output.mended([]) == []
    assert output.mended([[5, 1]]) == [[5, 1]]


def test_a_server_that_sends_windows_is_believed() -> None:
    right = [[502, 0], [500, 3], [500, 0], [500, 0], [500, 1], [499, 0]]
    assert output.mended(right) == right


def test_short_requests_are_not_completed() -> None:
    known = answer(40, {"100": 40})
    assert output.issued_and_completed(known) == (40, 40)
    known["read"]["short_ios"] = 2
    assert output.issued_and_completed(known) == (40, 38)


@pytest.fixture
def driver(tmp_path: Path) -> FioDriver:
    made = FileTarget("x", tmp_path / "disk", 16 << 20).open(1)
    assert isinstance(made, FioDriver)
    return made


def test_a_real_run_accounts_for_every_request(driver: FioDriver) -> None:
    load = Load(read_percent=50, sizes=4096, threads=2, queue_depth=4)
    found = driver.run(Step("t", "measure", "x", load, seconds=2.2, seed=3))
    assert found.issued == found.completed == found.all.moments.count > 0
    kinds = [found.operations[kind] for kind in ("read", "write")]
    for kind in kinds:
        assert kind.histogram.total == kind.moments.count
        assert kind.bytes == kind.moments.count * 4096
    by_second = found.intervals.filter(pl.col("operation") == "all")
    assert by_second["count"].sum() == found.all.moments.count
    assert (by_second["maximum_seconds"] >= by_second["mean_seconds"]).all()
    assert "--rw=randrw" in found.command
    driver.close()


def test_so_many_bytes_and_no_more(driver: FioDriver) -> None:
    load = Load(read_percent=0, sizes=128 << 10, pattern="sequential", queue_depth=4)
    found = driver.run(Step("t", "precondition", "fill", load, seconds=60, bytes=32 << 20))
    assert found.all.bytes == 32 << 20
    assert driver.purge().done
    driver.close()


def test_its_own_words_and_its_command_when_it_fails() -> None:
    there = job.Destination({"filename": "/dev/null/disk"}, "psync", 1 << 20, 512)
    driver = FioDriver(there, lambda: pytest.fail("not asked for"))
    with pytest.raises(ToolError) as caught:
        driver.run(Step("t", "measure", "x", Load(read_percent=100, sizes=4096), seconds=1))
    assert "Not a directory" in caught.value.what
    assert "--filename=" in caught.value.what
    driver.close()


def test_the_generators_ceiling(driver: FioDriver) -> None:
    found = driver.ceiling(32)
    assert found is not None
    assert found.iops > 0
    assert found.cpu_seconds_per_request > 0
    json.dumps(found.command)
    driver.close()
