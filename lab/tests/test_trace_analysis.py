"""Analyses of traces: figures computed by hand, exact merging of parts, tables that hemi converts,
cached parts, local processes and Ray."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import shutil
import struct
import subprocess
import tempfile
from itertools import combinations
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hemi_lab.cli import app
from hemi_lab.errors import LabError, UsageError
from hemi_lab.parallel.base import Pool, pool
from hemi_lab.statistics.histogram import fio_bin, fio_index
from hemi_lab.tool import Interrupted
from hemi_lab.trace_analysis import results, task, tasks
from hemi_lab.trace_analysis.analysis import Store, read_missing
from hemi_lab.trace_analysis.conversion import Reading
from hemi_lab.trace_analysis.figures import Row
from hemi_lab.trace_analysis.parts import SHAPES, Tables, bins, tables
from hemi_lab.trace_analysis.requests import COLUMNS, FORMAT_KEY, in_sectors
from hemi_lab.trace_analysis.seams import merged
from hemi_lab.trace_analysis.tasks import Trace, traces
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

HEMI = shutil.which(os.environ.get("HEMI", "hemi"))
hemi = pytest.mark.skipif(HEMI is None, reason="needs hemi (make build)")

SAMPLES = Path(__file__).parents[2] / "crates/workload/data/traces"
CORPUS = Path(__file__).parents[2] / "fuzz/corpus"

MSR = """\
10000000,srv,0,Read,0,4096,1000
10000000,srv,0,Read,4096,8192,3000
15000000,srv,0,Write,12288,4096,2000
25000000,srv,1,Write,8192,512,100
45000000,srv,0,Write,12288,8192,4000
44000000,srv,0,Read,1000,0,7
"""
"""Two volumes from second 1 to second 4. The last line requests no bytes."""


class InPlace:
    """Runs tasks in this process."""

    def run(self, function, tasks):  # type: ignore[no-untyped-def]
        yield from map(function, tasks)


def analysed(folder: Path, made: list[Trace], workers: Pool | None = None) -> list[Row]:
    store = Store(folder)
    read_missing(made, store, workers or InPlace(), lambda done, whole, last: None)
    return results.write(made, store, folder)[1]


def opened(path: Path, format_: str | None = None, event: str | None = None, **how: Any) -> Trace:
    """Opens one file, with its table beside it."""
    (trace,) = traces([path], Reading(format_, event=event), path.parent / "tables", **how)
    return trace


def figures(folder: Path, text: str | bytes, format_: str, **how: Any) -> dict[str | None, Row]:
    """Returns the figures by volume. `None` is all of them."""
    path = folder / "a.trace"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    rows = analysed(folder / "out", [opened(path, format_, **how)])
    return {row["volume"]: row for row in rows}


def is_(row: Row, **expected: object) -> None:
    for name, value in expected.items():
        wanted = pytest.approx(value) if isinstance(value, float) else value
        assert row[name] == wanted, name


@hemi
def test_figures_of_an_msr_trace(tmp_path: Path) -> None:
    found = figures(tmp_path, MSR, "msr")
    assert list(found) == [None, "srv.0", "srv.1"]
    is_(
        found["srv.0"],
        requests=4,
        reads=2,
        writes=2,
        empty=1,
        bytes=4096 + 8192 + 4096 + 8192,
        read_share=0.5,
        aligned_share=1.0,
        span_seconds=3.5,
        size_mean_bytes=6144.0,
        size_p50_bytes=4096,
        size_p90_bytes=8192,
        write_size_maximum_bytes=8192,
        # Seconds 1 to 4: 3, 0, 0 and 1 requests.
        seconds=4,
        seconds_without_requests=2,
        rate_mean=1.0,
        rate_p99=3.0,
        rate_maximum=3.0,
        rate_peak_to_mean=3.0,
        rate_dispersion=(4 + 1 + 1 + 0) / 4,
        bytes_per_second_maximum=16384.0,
        # 0 s, 0.5 s, 3 s.
        gap_p50_seconds=fio_bin(fio_index(500_000_000))[1] / 1e9,
        out_of_order=0,
        # The second read continues the first. A write after a read does not.
        sequential_share=0.25,
        run_mean_bytes=8192.0,
        run_maximum_requests=2,
        # Blocks 0, 1, 2 are read, 3 written twice, 4 once.
        touched_bytes=5 * 4096,
        touched_by_reads_bytes=3 * 4096,
        touched_by_writes_bytes=2 * 4096,
        touched_by_both_bytes=0,
        hottest_1_percent_share=2 / 6,
        hottest_20_percent_share=2 / 6,
        rewritten_share=1 / 3,
        updated_blocks_share=0.5,
        latency_mean_seconds=250e-6,
        latency_maximum_seconds=400e-6,
        read_latency_maximum_seconds=300e-6,
    )
    # 1, 3, 2 and 4 hundred microseconds: the nearest rank of 50 % is 2, within a bin.
    assert 200e-6 <= found["srv.0"]["latency_p50_seconds"] <= 204e-6
    is_(found["srv.1"], requests=1, aligned_share=0.0, gap_p50_seconds=None, sequential_share=0.0)
    is_(
        found[None],
        requests=5,
        rate_mean=1.25,
        touched_bytes=6 * 4096,
        # In the stream of all volumes: 0, 0.5, 1 and 2 s.
        gap_p50_seconds=fio_bin(fio_index(500_000_000))[1] / 1e9,
        sequential_share=0.2,
        read_share=0.4,
    )


@hemi
def test_figures_of_an_spc_trace_in_larger_blocks(tmp_path: Path) -> None:
    # Sectors 15 to 16 cross from the first block of 8 KiB into the second.
    text = "3,15,1024,w,0.5\n3,100,3,R,0.25,extra\n3,17,512,W,2.0000000019\n"
    found = figures(tmp_path, text, "spc", block=8192)["3"]
    is_(
        found,
        requests=3,
        rounded=1,
        read_bytes=512,
        out_of_order=1,
        first_ns=250_000_000,
        last_ns=2_000_000_001,
        sequential_share=0.0,
        touched_bytes=3 * 8192,
        touched_by_writes_bytes=2 * 8192,
        rewritten_share=1 / 3,
        latency_mean_seconds=None,
        # One gap goes back, the other is 1.75 s.
        gap_p50_seconds=fio_bin(fio_index(1_750_000_001))[1] / 1e9,
    )


@hemi
def test_figures_of_blkparses_text(tmp_path: Path) -> None:
    found = figures(tmp_path, (SAMPLES / "samples/blkparse.txt").read_bytes(), "blkparse")["8,0"]
    is_(
        found,
        requests=6,
        reads=1,
        writes=2,
        trims=1,
        flushes=2,
        fua_writes=1,
        read_bytes=4096,
        written_bytes=16 * 512 + 8 * 512,
        trimmed_bytes=1 << 20,
        # 528 continues where 512 + 16 ended. The flush between is no access.
        sequential_share=1 / 3,
        rate_mean=6.0,
    )


def test_bins_are_fios() -> None:
    chance = random.Random(1)
    values = [*range(300), *(chance.getrandbits(chance.randrange(1, 62)) for _ in range(2000))]
    found = bins(pl.Series(values, dtype=pl.UInt64)).to_list()
    assert found == [fio_index(value) for value in values]
    beyond = bins(pl.Series([1 << 62, (1 << 64) - 1], dtype=pl.UInt64)).to_list()
    assert beyond == [fio_index((1 << 62) - 1)] * 2


def table_of(count: int, seed: int) -> pl.DataFrame:
    """Returns requests whose times mostly rise, near enough to others to make runs and rewrites."""
    chance = random.Random(seed)
    rows = []
    for number in range(count):
        at = (5 + number + chance.choice([0, 0, 0, -2])) * 250_000_000 + chance.randrange(999)
        operation = chance.choice(["read", "write", "write", "write", "trim", "flush"])
        start = 8 * chance.randrange(6) + chance.choice([0, 0, 3])
        sectors = chance.choice([8, 8, 13, 0])
        if operation == "flush":
            start = sectors = 0
        rows.append(
            {
                "at_ns": at,
                "volume": f"v{chance.randrange(3)}",
                "operation": operation,
                "fua": operation == "write" and chance.random() < 0.1,
                "offset": start * 512 if sectors else 0,
                "length": sectors * 512,
                "rounded": chance.random() < 0.1,
                "latency_ns": chance.choice([None, chance.randrange(9000)]),
            }
        )
    return pl.DataFrame(rows, schema=COLUMNS)


def written(path: Path, table: pl.DataFrame) -> Path:
    """Writes a table as hemi does, in groups of rows."""
    table.write_parquet(path, row_group_size=7, metadata={FORMAT_KEY: "msr"})
    return path


def same(one: Tables, other: Tables) -> None:
    for name in ("edges", *SHAPES):
        assert_frame_equal(one[name], other[name], check_exact=True)


@pytest.mark.parametrize("seed", range(5))
def test_parts_merge_to_the_whole_wherever_it_is_cut(seed: int) -> None:
    count = 14
    rows = in_sectors(table_of(count, seed))

    def part(begin: int, end: int) -> Tables:
        return tables(rows[begin:end], 4096)

    whole = part(0, count)
    assert whole["operations"]["requests"].sum() > 3
    expected = merged([whole], last=True)
    assert expected["runs"]["requests"].max() >= 1  # type: ignore[operator]
    for seam in range(1, count):
        same(merged([part(0, seam), part(seam, count)], last=True), expected)
    # Three parts, in either order of merging.
    pairs = list(combinations(range(1, count), 2))
    for number, (first, second) in enumerate(random.Random(4).sample(pairs, 8)):
        parts = [part(0, first), part(first, second), part(second, count)]
        if number % 2:
            same(merged([parts[0], merged(parts[1:])], last=True), expected)
        else:
            same(merged([merged(parts[:2]), parts[2]], last=True), expected)
    singles = [part(n, n + 1) for n in range(count)]
    same(merged(singles, last=True), expected)


def sequential(count: int) -> pl.DataFrame:
    """Returns writes of 4 KiB that follow each other, a microsecond apart."""
    numbers = pl.DataFrame({"at": range(count)})
    return numbers.select(
        (pl.col("at") * 1000).cast(pl.UInt64).alias("at_ns"),
        pl.lit("0").alias("volume"),
        pl.lit("write").alias("operation"),
        pl.lit(False).alias("fua"),
        (pl.col("at") * 4096).cast(pl.UInt64).alias("offset"),
        pl.lit(4096, pl.UInt64).alias("length"),
        pl.lit(False).alias("rounded"),
        pl.lit(None, pl.UInt64).alias("latency_ns"),
    )


def a_read(at_ns: int) -> pl.DataFrame:
    """Returns one read of 4 KiB at 0."""
    other = {"volume": "0", "operation": "read", "fua": False, "rounded": False}
    row = {"at_ns": at_ns, "offset": 0, "length": 4096, "latency_ns": None, **other}
    return pl.DataFrame([row], schema=COLUMNS)


def test_runs_go_on_over_seams() -> None:
    """Cuts ten sequential writes with a read between. The runs are always six and four."""
    writes = sequential(10)
    rows = in_sectors(pl.concat([writes[:6], a_read(6), writes[6:]]))
    for size in range(1, 12):
        parts = [tables(rows[n : n + size], 4096) for n in range(0, 11, size)]
        runs = merged(parts, last=True)["runs"].filter(pl.col("operation") == "write")
        assert runs.select("requests", "runs", "bytes").rows() == [(4, 1, 16384), (6, 1, 24576)]


@pytest.mark.parametrize("seed", range(3))
def test_any_size_of_tasks_gives_the_same_figures(seed: int, tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", table_of(40, seed))
    expected = analysed(tmp_path / "whole", [opened(path)])
    for part in (1, 11):
        made = opened(path, part=part)
        assert (len(made.tasks), made.format) == (-(-40 // part), "msr")
        assert analysed(tmp_path / str(part), [made]) == expected


def test_a_part_is_known_by_its_requests(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", sequential(100))
    store, again = Store(tmp_path / "out"), []

    def missing(**how: Any) -> int:
        made = opened(path, part=9, **how)
        again.append({task.key for task in made.tasks})
        return read_missing([made], store, InPlace(), lambda done, whole, last: None).run

    assert missing() == 12
    assert missing() == 0
    # Another name, time and encoding, with the same requests.
    path = path.rename(tmp_path / "b.parquet")
    sequential(100).write_parquet(path, compression="zstd")
    os.utime(path, (1, 1))
    assert missing() == 0
    # It grew. All but its end is known.
    written(path, pl.concat([sequential(100), a_read(10**6)]))
    assert missing() == 1
    # One request changed.
    changed = pl.concat([sequential(30), a_read(30_000), sequential(100)[31:], a_read(10**6)])
    written(path, changed)
    assert missing() == 1
    # Read in another way.
    assert missing(block=8192) == len(again[-1])


def test_files_are_traces_of_their_own_or_one(tmp_path: Path) -> None:
    table = table_of(40, 5)
    whole = written(tmp_path / "whole.parquet", table)
    files = [tmp_path / "1.parquet", tmp_path / "2.parquet"]
    written(files[0], table[:17])
    written(files[1], table[17:])
    out = tmp_path / "out"
    expected = analysed(out, [opened(whole)])
    one = analysed(out, traces(files, Reading(), out, joined=True))
    assert [{**row, "trace": ""} for row in one] == [{**row, "trace": ""} for row in expected]
    two = analysed(out, traces(files, Reading(), out))
    assert [row["trace"] for row in two if row["volume"] is None] == [str(file) for file in files]
    with pytest.raises(UsageError, match="named twice"):
        traces([files[0], files[0]], Reading(), out)


@hemi
@pytest.mark.parametrize("program", ["gzip", "bzip2", "xz", "zstd"])
def test_a_compressed_trace_has_the_same_figures(program: str, tmp_path: Path) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"needs {program}")
    plain, packed = tmp_path / "a.csv", tmp_path / "a.csv.packed"
    plain.write_text(MSR)
    packed.write_bytes(subprocess.run([program, "-c", plain], capture_output=True).stdout)
    expected = analysed(tmp_path / "out", [opened(plain)])
    found = analysed(tmp_path / "out", [opened(packed)])
    assert [{**row, "trace": ""} for row in found] == [{**row, "trace": ""} for row in expected]
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(LabError, match=r"a\.csv\.packed") as error:
        opened(packed)
    assert "damaged" in error.value.way_out
    # A bad line is named, not the pipe that broke.
    plain.write_text(MSR + "what?\n" + MSR * 20_000)
    packed.write_bytes(subprocess.run([program, "-c", plain], capture_output=True).stdout)
    with pytest.raises(UsageError, match=r"a\.csv\.packed, line 7: "):
        opened(packed, "msr")


SAMPLE_FIGURES = {
    ("samples/msr.csv", None): {
        "requests": 4,
        "bytes": 41984,
        "span_seconds": 2.3320616,
        "size_p90_bytes": 32768,
        "rate_dispersion": 1 / 6,
        "gap_p50_seconds": 1.006632959,
        "touched_bytes": 49152,
        "aligned_share": 0.5,
        "latency_mean_seconds": 0.00010185,
    },
    ("samples/spc.csv", None): {
        "requests": 4,
        "bytes": 35328,
        "span_seconds": 0.573294,
        "size_p90_bytes": 15872,
        "gap_p50_seconds": 0.114294783,
        "touched_bytes": 40960,
        "hottest_20_percent_share": 0.2,
    },
    ("samples/alibaba.csv", None): {
        "requests": 4,
        "bytes": 386048,
        "span_seconds": 0.000233,
        "size_p90_bytes": 360448,
        "gap_p50_seconds": 4.6079e-05,
        "touched_bytes": 385024,
        "aligned_share": 0.75,
    },
    ("samples/tencent.csv", None): {
        "requests": 3,
        "bytes": 266240,
        "span_seconds": 1.0,
        "size_p90_bytes": 196608,
        "rate_dispersion": 1 / 6,
        "touched_bytes": 266240,
        "aligned_share": 1.0,
    },
    ("samples/blkparse.txt", None): {
        "requests": 6,
        "trims": 1,
        "flushes": 2,
        "bytes": 16384,
        "span_seconds": 0.004,
        "gap_p50_seconds": 0.001007615,
        "sequential_share": 1 / 3,
        "touched_bytes": 20480,
    },
    ("samples/fio-v2.log", None): {
        "requests": 4,
        "trims": 1,
        "flushes": 1,
        "bytes": 20480,
        "span_seconds": 0.001,
        "gap_p50_seconds": 0.000251903,
        "hottest_20_percent_share": 0.4,
        "touched_bytes": 16384,
    },
    ("samples/fio-v3.log", None): {
        "requests": 3,
        "flushes": 1,
        "bytes": 32768,
        "span_seconds": 1.3e-05,
        "gap_p50_seconds": 3.007e-06,
        "hottest_20_percent_share": 0.25,
        "touched_bytes": 32768,
    },
    ("samples/vscsi-v2.vscsi", None): {
        "requests": 3,
        "flushes": 1,
        "bytes": 15 * 512,
        "span_seconds": 3e-06,
        "rounded": 1,
        "latency_mean_seconds": 250e-6,
    },
    ("mqsim/tpcc-small.trace", "ns"): {
        "requests": 6999,
        "reads": 4381,
        "bytes": 59718656,
        "span_seconds": 0.136489,
        "rate_dispersion": 78.31183026146593,
        "gap_p50_seconds": 1.3055e-05,
        "sequential_share": 0.012430347192456065,
        "run_maximum_requests": 25,
        "touched_bytes": 83845120,
        "hottest_20_percent_share": 0.20770235618559196,
        "rewritten_share": 0.014509068167604753,
        "aligned_share": 0.12744677811115873,
    },
}
"""Figures of the traces in the repository, with the unit of their times: those of earlier versions
of hemi-lab, which read them itself."""


@hemi
@pytest.mark.parametrize("sample", SAMPLE_FIGURES)
def test_figures_of_the_samples(sample: tuple[str, str | None], tmp_path: Path) -> None:
    name, unit = sample
    made = traces([SAMPLES / name], Reading(time_unit=unit), tmp_path)
    is_(analysed(tmp_path, made)[0], **SAMPLE_FIGURES[sample])


def crc32c(content: bytes) -> int:
    rest = 0xFFFFFFFF
    for byte in content:
        rest ^= byte
        for _ in range(8):
            rest = rest >> 1 ^ (0x82F63B78 if rest & 1 else 0)
    return rest ^ 0xFFFFFFFF


def recording(records: list[tuple[int, int, int, int, int]]) -> bytes:
    """Builds a recording (docs/design/capture-format.md) of kind, at, latency, start and
    sectors."""

    def number(value: int) -> bytes:
        found = bytearray()
        while value >= 0x80:
            found.append(value & 0x7F | 0x80)
            value >>= 7
        return bytes([*found, value])

    def difference(value: int) -> bytes:
        return number(value << 1 if value >= 0 else (-value << 1) - 1)

    def block(kind: int, count: int, before: int, payload: bytes) -> bytes:
        rest = struct.pack("<IIIQQ", len(payload), kind, count, before, 0) + payload
        return b"HEMICAP\x01" + struct.pack("<I", crc32c(rest)) + rest

    payload, at_before, end = b"", 0, 0
    for kind, at, latency, start, sectors in records:
        payload += bytes([kind]) + difference(at - at_before) + number(latency)
        at_before = at
        if kind != 4:
            payload += difference(start - end) + number(sectors)
            end = start + sectors
    begin = struct.pack("<QQII", 1 << 30, 0, 512, 2) + b"db"
    return block(0, 0, 0, begin) + block(1, len(records), 1, payload) + block(2, 0, 2, b"")


@hemi
def test_a_recording_is_recognised(tmp_path: Path) -> None:
    # In the order of their answers: a write of 1 s, a flush, a read, and a write that continues.
    content = recording(
        [
            (1, 1_000_000_000, 5_000, 8, 8),
            (4, 3_000_000_000, 9_000, 0, 0),
            (0, 2_000_000_000, 1_500_000_000, 8, 16),
            (1, 3_500_000_000, 2_000, 24, 8),
        ]
    )
    path = tmp_path / "db.capture"
    path.write_bytes(content)
    made = opened(path)
    assert made.format == "hemi"
    found = {row["volume"]: row for row in analysed(tmp_path, [made])}
    is_(
        found["db"],
        requests=4,
        flushes=1,
        writes=2,
        span_seconds=2.5,
        touched_bytes=3 * 4096,
        touched_by_both_bytes=4096,
        read_latency_mean_seconds=1.5,
        write_latency_maximum_seconds=5e-6,
        # In the order of their times no request goes back.
        out_of_order=0,
        sequential_share=0.0,
    )


@hemi
def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    path, place = tmp_path / "a.csv", tmp_path / "tables"
    path.write_text(MSR)
    for reading, said in (
        (Reading("msrx"), "msrx"),
        (Reading("hemi"), "a hemi recording"),
        (Reading("msr", "ms"), "time_unit = ms: leave it out"),
        (Reading("disksim"), "time_unit = none"),
        (Reading("msr", event="Q"), "event = Queue: leave it out"),
        (Reading("blkparse", event="X"), "X"),
        (Reading("alibaba"), r"a\.csv, line 1: opcode is `srv`: write R or W"),
    ):
        with pytest.raises(UsageError, match=said):
            traces([path], reading, place)
    with pytest.raises(UsageError, match="none"):
        traces([tmp_path / "none"], Reading(), place)
    with pytest.raises(UsageError, match="--block 1000"):
        traces([path], Reading(), place, block=1000)
    for text, said, way_out in (
        ("", "is empty", "can be read"),
        ("hello\n", "in no format", "--format"),
        ("\n \n", "in no format", "--format"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=said) as error:
            traces([path], Reading(), place)
        assert way_out in error.value.way_out
    with pytest.raises(UsageError, match="has no request"):
        traces([path], Reading("msr"), place)
    path.write_bytes(MSR.encode() + b"\xff\xfe\n")
    with pytest.raises(UsageError, match=r"a\.csv, line 7: "):
        traces([path], Reading("msr"), place)
    # Nothing unfinished is left.
    assert not place.exists() or not list(place.iterdir())


def test_a_table_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pl.DataFrame({"at": [1]}).write_parquet(path)
    with pytest.raises(UsageError, match="has the columns at; a trace's table has at_ns, "):
        opened(path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UsageError, match="cannot be read as a table"):
        opened(path)
    written(path, table_of(0, 1))
    with pytest.raises(UsageError, match="has no request"):
        opened(path)


@hemi
def test_what_a_recording_lacks_is_said(tmp_path: Path) -> None:
    whole, cut = CORPUS / "capture/whole", tmp_path / "cut.capture"
    # Without the last byte of its last block.
    cut.write_bytes(whole.read_bytes()[:-1])
    for path, lacks in ((cut, "has no end: hemi was killed"), (whole, "lacks 7 requests: ")):
        answer = CliRunner().invoke(app, ["traces", str(path), "--out", str(tmp_path / "out")])
        assert answer.exit_code == 0, answer.stderr
        assert f"{path} {lacks}" in answer.stderr
        assert f"{path} {lacks}" in Path(answer.stdout.splitlines()[-1]).read_text()
    # Also of a table, and of several files as one trace.
    table = Path(opened(cut).tasks[0].path)
    (joined,) = traces([table, whole], Reading(), tmp_path / "tables", joined=True)
    said = [what.partition(": ")[0] for what in joined.lacking]
    assert said == [f"{table} has no end", f"{whole} lacks 7 requests"]


@hemi
def test_a_trace_is_converted_once(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(MSR)
    (first,) = {task.path for task in opened(path).tasks}
    made = Path(first).stat()
    assert {task.path for task in opened(path.rename(tmp_path / "b.csv")).tasks} == {first}
    assert Path(first).stat() == made
    # Its table is a trace, too.
    own = opened(Path(first))
    assert (own.format, own.tasks[0].key) == ("msr", opened(tmp_path / "b.csv").tasks[0].key)


def test_what_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", sequential(9))
    made = opened(path)
    written(path, sequential(9)[::-1])
    with pytest.raises(LabError, match="other requests"):
        analysed(tmp_path / "out", [made])
    path.unlink()
    with pytest.raises(LabError, match="is not on"):
        analysed(tmp_path / "out", [made])


def test_ctrl_c_keeps_what_is_done(tmp_path: Path) -> None:
    class Stopped(InPlace):
        def run(self, function, tasks):  # type: ignore[no-untyped-def]
            yield from map(function, tasks[:3])
            raise KeyboardInterrupt

    path = written(tmp_path / "a.parquet", sequential(40))
    made, store = [opened(path, part=5)], Store(tmp_path / "out")
    with pytest.raises(Interrupted, match="3 of"):
        read_missing(made, store, Stopped(), lambda done, whole, last: None)
    assert read_missing(made, store, InPlace(), lambda done, whole, last: None).known == 3


def test_another_hemi_lab_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "a.parquet", sequential(9))
    made = [opened(path)]
    monkeypatch.setattr(task, "lab_version", lambda: "0.0.9+feed")
    with pytest.raises(LabError, match="was begun by"):
        analysed(tmp_path / "out", made)
    monkeypatch.setattr(tasks, "lab_version", lambda: "0.0.9+feed")
    assert opened(path).tasks[0].key != made[0].tasks[0].key


@hemi
def test_the_command_writes_table_figures_and_page(tmp_path: Path) -> None:
    path, out = tmp_path / "a.csv", tmp_path / "out"
    path.write_text(MSR)
    command = ["traces", str(path), "--out", str(out), "--jobs", "1"]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0
    assert "srv.1" in done.output and "2 parts" not in done.output
    (folder,) = (out / "analyses").iterdir()
    said = json.loads((folder / "figures.json").read_text())
    assert [row["volume"] for row in said["figures"]] == [None, "srv.0", "srv.1"]
    assert said["block_bytes"] == 4096
    table = pl.read_parquet(folder / "figures.parquet")
    assert table["requests"].to_list() == [5, 4, 1]
    gaps = pl.read_parquet(folder / "gaps.parquet").filter(pl.col("volume").is_null())
    assert gaps["count"].sum() == 4 and (gaps["low_ns"] <= gaps["high_ns"]).all()
    page = (folder / "report.html").read_text()
    outside_scripts = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert "srv.0" in outside_scripts and "Response times" in outside_scripts
    # Nothing is fetched from elsewhere.
    assert '="http' not in outside_scripts and "<script src" not in page


@hemi
def test_a_first_look_prints_and_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(MSR)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    done = CliRunner().invoke(app, ["traces", str(path), "--jobs", "1"], catch_exceptions=False)
    assert done.exit_code == 0
    assert "srv.1" in done.stdout and "report.html" not in done.stdout
    assert "nothing is kept; --out" in done.stderr
    assert sorted(tmp_path.rglob("*")) == [path, tmp_path / "temporary"]
    with pytest.raises(UsageError, match="--on ray: its machines share no place"):
        CliRunner().invoke(app, ["traces", str(path), "--on", "ray"], catch_exceptions=False)


@pytest.mark.long
def test_an_analysis_is_the_same_on_local_processes_and_on_ray(tmp_path: Path) -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("needs Ray (pip install -e 'lab[ray]')")
    path = written(tmp_path / "a.parquet", table_of(20_000, 11))
    made = [opened(path, part=1500)]
    assert len(made[0].tasks) > 10
    expected = analysed(tmp_path / "whole", [opened(path)])
    for on in ("local", "ray"):
        assert analysed(tmp_path / on, made, workers=pool(on, 2)) == expected
    files = sorted((tmp_path / "local" / "parts").rglob("*.parquet"))
    assert len(files) == len(made[0].tasks) * (1 + len(SHAPES))
    for file in files:
        same_file = tmp_path / "ray" / file.relative_to(tmp_path / "local")
        assert file.read_bytes() == same_file.read_bytes()
