"""Makes a step's result of fio's JSON and its logs."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from hemi_lab.drivers.fio.document import Kind, direction
from hemi_lab.drivers.fio.job import LOGS
from hemi_lab.statistics.histogram import (
    Histogram,
    Moments,
    from_fio_bins,
    from_fio_counts,
)
from hemi_lab.steps import INTERVALS, Operation

_SLIVER = 0.02
"""Seconds. A shorter interval is part of the one before."""

_DIRECTIONS: dict[int, Kind] = {0: "read", 1: "write"}


def operations(job: dict[str, Any]) -> dict[str, Operation]:
    """Returns reads, writes and all together of one job of the JSON (the group's, as reported)."""
    found: dict[str, Operation] = {}
    for kind in _DIRECTIONS.values():
        part = direction(job, kind)
        latency = part.latency
        if not latency.count:
            continue
        moments = Moments(latency.count, latency.mean, latency.deviation, latency.maximum)
        found[kind] = Operation(moments, part.bytes, from_fio_bins(latency.bins))
    found["all"] = Operation(
        Moments.merged(part.moments for part in found.values()),
        sum(part.bytes for part in found.values()),
        Histogram.merged(part.histogram for part in found.values()),
    )
    return found


def issued_and_completed(job: dict[str, Any]) -> tuple[int, int]:
    """Returns fio's counts of issued requests and of those whose end it measured."""
    parts = [direction(job, kind) for kind in _DIRECTIONS.values()]
    completed = sum(part.latency.count - part.lost for part in parts)
    return sum(part.issued for part in parts), completed


def seconds(job: dict[str, Any]) -> float:
    """Returns the seconds in which requests were made, of the longest direction."""
    return max(direction(job, kind).seconds for kind in _DIRECTIONS.values())


def intervals(folder: Path, job: dict[str, Any], from_server: bool = False) -> pl.DataFrame:
    """Returns the intervals, one for each second.

    Count, mean and standard deviation come from the bins of the histogram log, each at most 1.6 %
    wide. The maximum comes from the latency log. Bytes are the requests times their mean size in
    the step, since the bandwidth log of fio before 3.37 has maxima where the latency log has.

    fio does not write the last window of its histogram log. The JSON has the bins of the whole
    run, so that window is their difference. A log that came `from_server` is first corrected
    (`mended`)."""
    whole = seconds(job)
    rows: list[dict[str, Any]] = []
    maxima = _maxima(folder)
    for number, kind in _DIRECTIONS.items():
        part = direction(job, kind)
        total = from_fio_bins(part.completion.bins)
        if not total.total:
            continue
        windows = _histograms(folder, number, from_server)
        rest = _without(total, Histogram.merged(windows.values()))
        last = max(windows, default=-1) + 1
        if rest.total:
            if last and whole - last <= _SLIVER:
                last -= 1
            windows[last] = Histogram.merged([windows.get(last, Histogram()), rest])
        mean_size = part.bytes / total.total
        for second, window in sorted(windows.items()):
            length = max(min(1.0, whole - second), _SLIVER)
            moments = window.cut(part.latency.maximum).moments()
            rows.append(
                {
                    "start_seconds": float(second),
                    "length_seconds": length,
                    "operation": kind,
                    "count": window.total,
                    "bytes": round(window.total * mean_size),
                    "mean_seconds": moments.mean,
                    "maximum_seconds": maxima.get((second, number), moments.maximum),
                    "standard_deviation_seconds": moments.standard_deviation,
                }
            )
    return with_all(pl.DataFrame(rows, schema=INTERVALS))


def with_all(frame: pl.DataFrame) -> pl.DataFrame:
    """Adds a row `all` to each interval, merged from those of its operations."""
    rows = []
    for (start, length), group in frame.group_by(
        "start_seconds", "length_seconds", maintain_order=True
    ):
        rows.append((start, length, "all", *together(group)))
    added = pl.DataFrame(rows, schema=INTERVALS, orient="row")
    return pl.concat([frame, added]).sort("start_seconds", "operation")


def together(rows: pl.DataFrame) -> tuple[int, int, float, float, float]:
    """Merges intervals of the same time.

    Returns count, bytes, mean, maximum and standard deviation, in the order of the columns after
    `operation`."""
    moments = Moments.merged(
        Moments(
            row["count"],
            row["mean_seconds"],
            row["standard_deviation_seconds"],
            row["maximum_seconds"],
        )
        for row in rows.iter_rows(named=True)
    )
    return (
        moments.count,
        int(rows["bytes"].sum()),
        moments.mean,
        moments.maximum,
        moments.standard_deviation,
    )


def _second(milliseconds: int) -> int:
    """Returns the second that a log's line closes. The line is written a little after its end."""
    return max(0, round(milliseconds / 1000) - 1)


def _lines(path: Path) -> Iterator[list[int]]:
    with path.open(newline="") as file:
        for line in csv.reader(file):
            yield [int(field) for field in line if field.strip()]


def _histograms(folder: Path, direction: int, from_server: bool) -> dict[int, Histogram]:
    parts: dict[int, list[Histogram]] = defaultdict(list)
    for path in sorted(folder.glob(f"{LOGS}_clat_hist.*.log")):
        lines = [line for line in _lines(path) if line[1] == direction]
        counts = [line[3:] for line in lines]
        for line, window in zip(lines, mended(counts) if from_server else counts, strict=True):
            parts[_second(line[0])].append(from_fio_counts(window))
    return {second: Histogram.merged(found) for second, found in parts.items()}


def mended(lines: list[list[int]]) -> list[list[int]]:
    """Returns a thread's windows from the lines that `fio --server` sends for them.

    A server makes windows of fio's growing counts by subtracting the previous line from each, in
    place. From the second line on, the previous line is no longer a count but a window
    (`__fio_append_iolog_gz_hist` in server.c, in 3.33 to 3.42 at least). So a line is the count
    less the line before, and a window is a line less the one two before. Lines of a correct server
    make no sense read this way, and are left as they are."""
    if len(lines) < 3:
        return lines
    whole = np.array(lines, dtype=np.int64)
    windows = whole.copy()
    windows[2:] -= whole[:-2]
    return lines if (windows < 0).any() else windows.tolist()


def _maxima(folder: Path) -> dict[tuple[int, int], float]:
    maxima: dict[tuple[int, int], float] = defaultdict(float)
    for path in sorted(folder.glob(f"{LOGS}_lat.*.log")):
        for millisecond, nanoseconds, number, *_ in _lines(path):
            key = (_second(millisecond), number)
            maxima[key] = max(maxima[key], nanoseconds / 1e9)
    return dict(maxima)


def _without(whole: Histogram, part: Histogram) -> Histogram:
    known = {(low, high): count for low, high, count in part.bins()}
    left = ((low, high, count - known.get((low, high), 0)) for low, high, count in whole.bins())
    return Histogram.of((low, high, count) for low, high, count in left if count > 0)
