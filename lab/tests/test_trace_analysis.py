"""Analyses of traces: figures computed by hand, exact merging of parts, agreement with hemi's own
readers, cached parts, local processes and Ray."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import random
import re
import shutil
import struct
import subprocess
from itertools import combinations
from pathlib import Path

import polars as pl
import pytest
from hemi_lab.cli import app
from hemi_lab.errors import LabError, UsageError
from hemi_lab.parallel.base import Pool, pool
from hemi_lab.statistics.histogram import fio_bin, fio_index
from hemi_lab.tool import Interrupted
from hemi_lab.trace_analysis import results, task, tasks
from hemi_lab.trace_analysis.analysis import Store, read_missing
from hemi_lab.trace_analysis.figures import Row
from hemi_lab.trace_analysis.formats import format_of
from hemi_lab.trace_analysis.parts import SHAPES, Tables, bins, tables
from hemi_lab.trace_analysis.reading import Text
from hemi_lab.trace_analysis.seams import merged, merged_gradually
from hemi_lab.trace_analysis.tasks import Trace, ranges, traces
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

HEMI = shutil.which(os.environ.get("HEMI", "hemi"))
hemi = pytest.mark.skipif(HEMI is None, reason="needs hemi (make build)")

SAMPLES = Path(__file__).parents[2] / "crates/workload/data/traces"

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


def figures(folder: Path, text: str | bytes, format_: str, **how: object) -> dict[str | None, Row]:
    """Returns the figures by volume. `None` is all of them."""
    path = folder / "a.trace"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    rows = analysed(folder / "out", traces([path], format_, **how))  # type: ignore[arg-type]
    return {row["volume"]: row for row in rows}


def is_(row: Row, **expected: object) -> None:
    for name, value in expected.items():
        wanted = pytest.approx(value) if isinstance(value, float) else value
        assert row[name] == wanted, name


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


def line_of(format_: str, chance: random.Random, seconds: int) -> str:
    """Returns a line in a format, near enough to others to make runs and rewrites."""
    volume, write = chance.randrange(3), chance.random() < 0.5
    start, sectors = 8 * chance.randrange(6) + chance.choice([0, 0, 3]), chance.choice([8, 8, 13])
    letter = "W" if write else "R"
    if format_ == "msr":
        kind = "Write" if write else "Read"
        at, took = seconds * 2_500_000, chance.randrange(9000)
        return f"{at},h,{volume},{kind},{start * 512},{sectors * 512 - (start % 7)},{took}"
    if format_ == "spc":
        return (
            f"{volume},{start},{sectors * 512},{letter.lower()},{seconds}.{chance.randrange(999)}"
        )
    if format_ == "alibaba":
        return f"{volume},{letter},{start * 512 + 1},{sectors * 512},{seconds * 300_000}"
    if format_ == "tencent":
        return f"{seconds},{start},{sectors},{int(write)},{volume}"
    if format_ == "disksim":
        return f"{seconds}.{chance.randrange(99999)} {volume} {start} {sectors} {int(not write):x}"
    if format_ == "blkparse":
        action = chance.choice("QQQGDC")
        letters = chance.choice([letter, letter + "S", "FF", "D", "N", "FWFS"])
        tail = "[x]" if letters in ("FF", "N") else f"{start} + {sectors} [x]"
        return f"  8,{volume}  1 2  {seconds}.25 77  {action} {letters} {tail}"
    action = chance.choice(["read", "write", "write", "trim", "sync"])
    tail = "" if action == "sync" else f" {start * 512} {sectors * 512}"
    return f"{seconds * 400_000} f{volume} {action}{tail}"


FORMATS: dict[str, dict[str, str]] = {
    "msr": {},
    "spc": {},
    "alibaba": {},
    "tencent": {},
    "disksim": {"time_unit": "ms"},
    "blkparse": {"event": "Q"},
    "fio_iolog": {},
}


def text_of(format_: str, count: int, seed: int) -> str:
    """Returns lines whose times mostly rise."""
    chance = random.Random(seed)
    lines = ["fio version 3 iolog", "1 f0 add", "2 f0 open"] if format_ == "fio_iolog" else []
    lines += [line_of(format_, chance, 5 + n + chance.choice([0, 0, 0, -2])) for n in range(count)]
    lines.insert(len(lines) // 2, "")
    return "\n".join(lines) + "\n"


def same(one: Tables, other: Tables) -> None:
    for name in ("edges", *SHAPES):
        assert_frame_equal(one[name], other[name], check_exact=True)


@pytest.mark.parametrize("format_", FORMATS)
def test_parts_merge_to_the_whole_wherever_it_is_cut(format_: str) -> None:
    text = text_of(format_, 10, 3)
    meant = format_of(format_, **FORMATS[format_])
    lines = text.encode().splitlines(keepends=True)

    def part(begin: int, end: int) -> Tables:
        version = 3 if format_ == "fio_iolog" and begin else None
        return tables(Text(meant, version).read(b"".join(lines[begin:end])), 4096)

    count = len(lines)
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
    same(merged([merged_gradually(iter(singles), 2)], last=True), expected)


def test_runs_go_on_over_seams() -> None:
    """Cuts ten sequential writes with a read between. The runs are always six and four."""
    lines = [f"0,W,{n * 4096},4096,{n}\n" for n in range(10)]
    lines.insert(6, "0,R,0,4096,6\n")
    meant = format_of("alibaba")
    for size in range(1, 12):
        parts = [
            tables(Text(meant).read("".join(lines[n : n + size]).encode()), 4096)
            for n in range(0, 11, size)
        ]
        runs = merged(parts, last=True)["runs"].filter(pl.col("operation") == "write")
        assert runs.select("requests", "runs", "bytes").rows() == [(4, 1, 16384), (6, 1, 24576)]


@pytest.mark.parametrize("format_", FORMATS)
def test_any_size_of_tasks_gives_the_same_figures(format_: str, tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    path.write_text(text_of(format_, 20, 7))
    how = FORMATS[format_]
    expected = analysed(tmp_path / "whole", traces([path], format_, **how))  # type: ignore[arg-type]
    for size in (1, 200):
        made = traces([path], format_, size=size, **how)  # type: ignore[arg-type]
        assert len(made[0].tasks) > 1
        assert analysed(tmp_path / str(size), made) == expected


def test_ranges_end_at_lines_and_stay_as_a_file_grows() -> None:
    content = b"one\ntwo\n\nthree\nfour"
    for size in range(1, 25):
        cuts = list(ranges(content, len(content), size))
        assert b"".join(content[a:b] for a, b in cuts) == content
        assert all(content[b - 1 : b] == b"\n" for _, b in cuts[:-1])
        longer = list(ranges(content + b"\nfive\n", len(content) + 6, size))
        assert longer[: len(cuts) - 1] == cuts[:-1]


def test_a_part_is_known_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    text = "".join(f"0,W,{n * 4096},4096,{n}\n" for n in range(100))
    path.write_text(text)
    store, again = Store(tmp_path / "out"), []

    def read(**how: object) -> int:
        made = traces([path], "alibaba", size=500, **how)  # type: ignore[arg-type]
        again.append({task.key for task in made[0].tasks})
        return read_missing(made, store, InPlace(), lambda done, whole, last: None).run

    first = read()
    assert first > 3
    assert read() == 0
    # Another name and time, with the same content.
    path = path.rename(tmp_path / "b.csv")
    os.utime(path, (1, 1))
    assert read() == 0
    # It grew. All but its end is known.
    path.write_text(text + "0,R,0,512,1000\n")
    assert read() == 1
    # A change that keeps size and time is noticed.
    stat = path.stat()
    path.write_text(path.read_text().replace("0,W,4096,", "0,R,4096,"))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert path.stat().st_size == stat.st_size
    assert read() == 1
    # Read in another way.
    assert read(block=8192) == len(again[-1])


def test_files_are_traces_of_their_own_or_one(tmp_path: Path) -> None:
    text = text_of("alibaba", 40, 5)
    lines = text.splitlines(keepends=True)
    (tmp_path / "whole.csv").write_text(text)
    for name, part in (("1.csv", lines[:17]), ("2.csv", lines[17:])):
        (tmp_path / name).write_text("".join(part))
    files = [tmp_path / "1.csv", tmp_path / "2.csv"]
    out = tmp_path / "out"
    whole = analysed(out, traces([tmp_path / "whole.csv"], "alibaba"))
    one = analysed(out, traces(files, "alibaba", joined=True))
    assert [{**row, "trace": ""} for row in one] == [{**row, "trace": ""} for row in whole]
    two = analysed(out, traces(files, "alibaba"))
    assert [row["trace"] for row in two if row["volume"] is None] == [str(file) for file in files]
    with pytest.raises(UsageError, match="named twice"):
        traces([files[0], files[0]], "alibaba")


def test_a_compressed_trace_is_one_task_with_the_same_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "PIECE", 500)
    for format_, how in FORMATS.items():
        text = text_of(format_, 30, 9)
        if format_ == "blkparse":
            text += "CPU0 (sda):\n Reads Queued: 1\n"
        plain, packed = tmp_path / "a.trace", tmp_path / "a.trace.gz"
        plain.write_text(text)
        packed.write_bytes(gzip.compress(text.encode()))
        made = traces([packed], format_, size=100, **how)  # type: ignore[arg-type]
        assert len(made[0].tasks) == 1
        expected = analysed(tmp_path / "out", traces([plain], format_, **how))  # type: ignore[arg-type]
        found = analysed(tmp_path / "out", made)
        assert [{**row, "trace": ""} for row in found] == [{**row, "trace": ""} for row in expected]
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(LabError, match=r"a\.trace\.gz.*"):
        analysed(tmp_path / "out", traces([packed], "fio_iolog"))


def test_a_log_of_version_2_is_one_task(tmp_path: Path) -> None:
    text = "fio version 2 iolog\nf add\nf open\nf write 0 4096\nf wait 1500000\nf write 4096 4096\n"
    path = tmp_path / "a.log"
    path.write_text(text)
    made = traces([path], "fio_iolog", size=1)
    assert len(made[0].tasks) == 1
    is_(analysed(tmp_path, made)[0], requests=2, span_seconds=1.5, sequential_share=0.5)


def converted(path: Path, format_: str, *options: str) -> pl.DataFrame:
    """Returns the output of `hemi trace convert` for a trace."""
    command = [str(HEMI), "trace", "convert", str(path), "-", "--from", format_, "--to", "csv"]
    done = subprocess.run([*command, "--volume", "*", *options], capture_output=True, check=True)
    kinds = {"at_ns": pl.UInt64, "operation": pl.String, "fua": pl.UInt64}
    kinds |= dict.fromkeys(("offset", "length", "latency_ns"), pl.UInt64)
    return pl.read_csv(done.stdout, schema=kinds)


def as_converted(text: bytes, format_: str, **how: str) -> pl.DataFrame:
    """Returns the same from the lab's own reader: ordered by time, the first at zero."""
    found = Text(format_of(format_, **how)).read(text)
    return (
        found.filter((pl.col("sectors") > 0) | (pl.col("operation") == "flush"))
        .sort("at_ns", maintain_order=True)
        .select(
            pl.col("at_ns") - pl.col("at_ns").min(),
            "operation",
            pl.col("fua").cast(pl.UInt64),
            (pl.col("start") * 512).alias("offset"),
            (pl.col("sectors") * 512).alias("length"),
            "latency_ns",
        )
    )


@hemi
@pytest.mark.parametrize("format_", FORMATS)
def test_what_is_read_is_what_hemi_reads(format_: str, tmp_path: Path) -> None:
    how = FORMATS[format_]
    options = [
        word for name, value in how.items() for word in (f"--{name}".replace("_", "-"), value)
    ]
    for seed in range(3):
        path = tmp_path / "a.trace"
        path.write_text(text_of(format_, 300, seed).replace("\n", "\r\n" if seed else "\n"))
        assert_frame_equal(
            as_converted(path.read_bytes(), format_, **how), converted(path, format_, *options)
        )


@hemi
@pytest.mark.parametrize(
    ("file", "format_", "how"),
    [
        ("samples/msr.csv", "msr", {}),
        ("samples/spc.csv", "spc", {}),
        ("samples/alibaba.csv", "alibaba", {}),
        ("samples/tencent.csv", "tencent", {}),
        ("samples/blkparse.txt", "blkparse", {"event": "Q"}),
        ("samples/blkparse.txt", "blkparse", {"event": "D"}),
        ("samples/fio-v2.log", "fio_iolog", {}),
        ("samples/fio-v3.log", "fio_iolog", {}),
        ("mqsim/tpcc-small.trace", "mqsim", {"time_unit": "ns"}),
    ],
)
def test_published_samples_are_what_hemi_reads(
    file: str, format_: str, how: dict[str, str]
) -> None:
    path = SAMPLES / file
    options = [
        word for name, value in how.items() for word in (f"--{name}".replace("_", "-"), value)
    ]
    assert_frame_equal(
        as_converted(path.read_bytes(), format_, **how), converted(path, format_, *options)
    )


LINES = {
    "msr": [
        "1,h,0,Read,0,512,1",
        " 1 , h , 00 , Read , 0 , 512 , 1 ",
        "1,h,0,Reed,0,512,1",
        "1,,0,Read,0,512,1",
        "1,h,0,Read,-1,512,1",
        "1,h,0,Read,+1,512,1",
        "1,h,0,Read,0",
        "1,h,0,Read,0,1,1,9",
        "1,h,0,Read,18446744073709551615,1,1",
        "18446744073709551615,h,0,Read,0,1,1",
        "184467440737095516,h,0,Read,0,1,1",
        "1,h,0,Read,0,2199023255040,1",
        "1,h,0,Read,0,2199023255553,1",
    ],
    "spc": [
        "0,1,512,X,0.5",
        "0,1,512,R,1e3",
        "0,1,512,R,.5",
        "0,1,512,R,5.",
        "0,1,512,R,.",
        "0,1,512,R,18446744073.709551615",
        "0,1,512,R,18446744073.709551616",
        "0,36028797018963968,512,R,1",
        "0,1,512,R,1,more, and more",
    ],
    "alibaba": ["device_id,opcode,offset,length,timestamp", "1,r,1,1,1", "1,RW,1,1,1", "1,R,1,1"],
    "tencent": ["1,2,3,2,4", "1,2,3,1,4", "1,36028797018963967,1,1,4", "1,36028797018963966,1,1,4"],
    "disksim": [
        "1.0 0 8 8 g",
        "1.0 0 8 8 0x1",
        "1.0 0 8 8 1F",
        "1.0 0 8 8 1ffffffff",
        "1.0 0 40000000000000000 8 0",
        "1.0 0 8 8 1 2",
        "\t1.0\t0 8   8 1",
    ],
    "blkparse": [
        "8,0 0 1 0.1 1 Q X 1 + 8 [a]",
        "8,0 0 1 0.1 1 Q R 1 - 8 [a]",
        "sda 0 1 0.1 1 Q R 1 + 8 [a]",
        "8,0 0 1 0.1 1 Q RA 1 + 8 [a]",
        "8,0 0 1 0.1 1 Q FWS [a]",
        "8,0 0 1 0.1 1 Q FS [a]",
        "8,0 0 1 0.1 1 Q FFS",
        "8,0 0 1 0.1 1 Q FX 1 + 8",
        "8,0 0 1 0.1 1 Q",
        "8,0 0 1 0.1 1 Q WZ 1 + 8",
        "8,0 0 1 0.1 1 G",
        "8,0 0 1 0.1",
    ],
    "fio_iolog": [
        "3 f wait 3",
        "3 f read 0",
        "3 f read 0 512",
        "3 f add 1",
        "3 f sync x",
        "f read 0 1",
    ],
}


@hemi
@pytest.mark.parametrize("format_", LINES)
def test_what_hemi_refuses_is_refused(format_: str, tmp_path: Path) -> None:
    """Compares line by line: the same lines are requests, and the same are refused."""
    how = FORMATS[format_]
    options = [
        word for name, value in how.items() for word in (f"--{name}".replace("_", "-"), value)
    ]
    good = line_of(format_, random.Random(2), 1)
    if format_ == "blkparse":
        good = "8,0 0 1 0.05 1 Q R 1 + 8 [a]"
    head = "fio version 3 iolog\n" if format_ == "fio_iolog" else ""
    refused = 0
    for line in LINES[format_]:
        path = tmp_path / "a.trace"
        path.write_text(f"{head}{good}\n{line}\n")
        try:
            expected = converted(path, format_, *options)
        except subprocess.CalledProcessError:
            refused += 1
            with pytest.raises(UsageError, match=f"line {2 + bool(head)} is ") as error:
                analysed(tmp_path / "out", traces([path], format_, **how))  # type: ignore[arg-type]
            assert "expected" in error.value.what
        else:
            assert_frame_equal(as_converted(path.read_bytes(), format_, **how), expected)
    assert 0 < refused < len(LINES[format_])


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
    made = traces([path], None, size=1)
    assert len(made[0].tasks) == 1
    found = {row["volume"]: row for row in analysed(tmp_path, made)}
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


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(MSR)
    for arguments, said in (
        (([path], "msrx"), "no such format"),
        (([path], None), "nothing says what it is"),
        (([path], "hemi"), "no recording"),
        (([path], "msr", "ms"), "--time-unit ms"),
        (([path], "disksim"), "--time-unit is missing"),
        (([path], "msr", None, "Q"), "--event Q"),
        (([path], "blkparse", None, "X"), "--event X"),
        (([tmp_path / "none"], "msr"), "none"),
    ):
        with pytest.raises(UsageError, match=said):
            traces(*arguments)
    with pytest.raises(UsageError, match="--block 1000"):
        traces([path], "msr", block=1000)
    path.write_text("")
    with pytest.raises(UsageError, match=r"a\.csv is empty"):
        traces([path], "msr")
    path.write_text("\n \n")
    with pytest.raises(UsageError, match="has no request"):
        analysed(tmp_path / "out", traces([path], "msr"))
    path.write_bytes(b"\x28\xb5\x2f\xfd....")
    with pytest.raises(UsageError, match="compressed"):
        traces([path], "msr")
    path.write_bytes(MSR.encode() + b"\xff\xfe\n")
    with pytest.raises(UsageError, match=r"a\.csv, line 7 is"):
        analysed(tmp_path / "out", traces([path], "msr"))


def test_a_bad_line_is_named_by_its_place_and_the_others_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    lines = [f"0,W,{n * 4096},4096,{n}\n" for n in range(50)]
    path.write_text("".join(lines[:30]) + "0,Q,1,1,1\n" + "".join(lines[30:]))
    store = Store(tmp_path / "out")
    made = traces([path], "alibaba", size=100)
    with pytest.raises(UsageError, match=r"a\.csv, line 31 is `0,Q,1,1,1`: expected `device,R\|W"):
        read_missing(made, store, InPlace(), lambda done, whole, last: None)
    path.write_text("".join(lines[:30]) + "0,W,1,1,1\n" + "".join(lines[30:]))
    made = traces([path], "alibaba", size=100)
    done = read_missing(made, store, InPlace(), lambda done, whole, last: None)
    assert (done.run, done.known) == (1, len(made[0].tasks) - 1)


def test_what_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(MSR)
    made = traces([path], "msr")
    path.write_text(MSR.replace("srv", "sry"))
    with pytest.raises(LabError, match="other bytes"):
        analysed(tmp_path / "out", made)


def test_ctrl_c_keeps_what_is_done(tmp_path: Path) -> None:
    class Stopped(InPlace):
        def run(self, function, tasks):  # type: ignore[no-untyped-def]
            yield from map(function, tasks[:3])
            raise KeyboardInterrupt

    path = tmp_path / "a.csv"
    path.write_text("".join(f"0,W,{n * 4096},4096,{n}\n" for n in range(40)))
    made, store = traces([path], "alibaba", size=100), Store(tmp_path / "out")
    with pytest.raises(Interrupted, match="3 of"):
        read_missing(made, store, Stopped(), lambda done, whole, last: None)
    assert read_missing(made, store, InPlace(), lambda done, whole, last: None).known == 3


def test_another_hemi_lab_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.csv"
    path.write_text(MSR)
    made = traces([path], "msr")
    monkeypatch.setattr(task, "lab_version", lambda: "0.0.9+feed")
    with pytest.raises(LabError, match="was begun by"):
        analysed(tmp_path / "out", made)
    monkeypatch.setattr(tasks, "lab_version", lambda: "0.0.9+feed")
    assert traces([path], "msr")[0].tasks[0].key != made[0].tasks[0].key


def test_the_command_writes_table_figures_and_page(tmp_path: Path) -> None:
    path, out = tmp_path / "a.csv", tmp_path / "out"
    path.write_text(MSR)
    command = ["traces", str(path), "--format", "msr", "--out", str(out), "--jobs", "1"]
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


@pytest.mark.long
def test_an_analysis_is_the_same_on_local_processes_and_on_ray(tmp_path: Path) -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("needs Ray (pip install -e 'lab[ray]')")
    path = tmp_path / "a.csv"
    path.write_text(text_of("msr", 20_000, 11))
    made = traces([path], "msr", size=50_000)
    assert len(made[0].tasks) > 10
    expected = analysed(tmp_path / "whole", traces([path], "msr", size=1 << 30))
    for on in ("local", "ray"):
        assert analysed(tmp_path / on, made, workers=pool(on, 2)) == expected
    written = sorted((tmp_path / "local" / "parts").rglob("*.parquet"))
    assert len(written) == len(made[0].tasks) * (1 + len(SHAPES))
    for file in written:
        same_file = tmp_path / "ray" / file.relative_to(tmp_path / "local")
        assert file.read_bytes() == same_file.read_bytes()
