"""fio's JSON and its logs as a step's result."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from hemi_lab.drivers.fio.job import LOGS
from hemi_lab.statistics.histogram import (
    Histogram,
    Moments,
    from_fio_bins,
    from_fio_counts,
)
from hemi_lab.steps import INTERVALS, Operation

_DIRECTIONS = {0: "read", 1: "write"}


def parse(text: str) -> dict[str, Any]:
    """The JSON object in fio's output, which may have warnings before it."""
    begin = text.find("{")
    if begin < 0:
        raise ValueError("no JSON in fio's output")
    parsed: dict[str, Any] = json.JSONDecoder().raw_decode(text[begin:])[0]
    return parsed


def operations(job: dict[str, Any]) -> dict[str, Operation]:
    """Reads, writes and all together, of one job of the JSON (the group's, as reported)."""
    found: dict[str, Operation] = {}
    for kind in _DIRECTIONS.values():
        part = job.get(kind, {})
        latency = part.get("lat_ns", {})
        count = int(latency.get("N", 0))
        if not count:
            continue
        moments = Moments(
            count, latency["mean"] / 1e9, latency["stddev"] / 1e9, latency["max"] / 1e9
        )
        bins = from_fio_bins(latency.get("bins", {}))
        found[kind] = Operation(moments, int(part["io_bytes"]), bins)
    found["all"] = Operation(
        Moments.merged(part.moments for part in found.values()),
        sum(part.bytes for part in found.values()),
        Histogram.merged(part.histogram for part in found.values()),
    )
    return found


def issued_and_completed(job: dict[str, Any]) -> tuple[int, int]:
    """What fio counted when it issued, and when it had measured the end of each."""
    parts = [job.get(kind, {}) for kind in _DIRECTIONS.values()]
    issued = sum(int(part.get("total_ios", 0)) for part in parts)
    completed = sum(int(part.get("lat_ns", {}).get("N", 0)) for part in parts)
    lost = sum(int(part.get("short_ios", 0)) + int(part.get("drop_ios", 0)) for part in parts)
    return issued, completed - lost


def seconds(job: dict[str, Any]) -> float:
    """How long requests were made: the longest direction's, in seconds."""
    return max(int(job.get(kind, {}).get("runtime", 0)) for kind in _DIRECTIONS.values()) / 1000


def intervals(folder: Path, job: dict[str, Any]) -> pl.DataFrame:
    """Second by second. Count, mean and standard deviation are from the histogram log's bins
    (each at most 1.6 % wide), the maximum from the latency log; bytes are the requests times
    their mean size in the step (the bandwidth log has maxima where the latency log has, in fio
    before 3.37).

    fio does not write the last window of its histogram log. Bins of the whole run are in the
    JSON, so that window is what the others leave of them."""
    whole = seconds(job)
    rows: list[dict[str, Any]] = []
    maxima = _maxima(folder)
    for direction, kind in _DIRECTIONS.items():
        part = job.get(kind, {})
        total = from_fio_bins(part.get("clat_ns", {}).get("bins", {}))
        if not total.total:
            continue
        windows = _histograms(folder, direction)
        rest = _without(total, Histogram.merged(windows.values()))
        last = max(windows, default=-1) + 1
        if rest.total:
            windows[last] = Histogram.merged([windows.get(last, Histogram()), rest])
        mean_size = int(part["io_bytes"]) / total.total
        for second, window in sorted(windows.items()):
            length = min(1.0, whole - second)
            if length <= 0.02:
                # A sliver of the next second: into the one before.
                continue
            moments = window.moments()
            rows.append(
                {
                    "start_seconds": float(second),
                    "length_seconds": length,
                    "operation": kind,
                    "count": window.total,
                    "bytes": round(window.total * mean_size),
                    "mean_seconds": moments.mean,
                    "maximum_seconds": maxima.get((second, direction), moments.maximum),
                    "standard_deviation_seconds": moments.standard_deviation,
                }
            )
    return with_all(pl.DataFrame(rows, schema=INTERVALS))


def with_all(frame: pl.DataFrame) -> pl.DataFrame:
    """With a row `all` for each interval, merged from those of its operations."""
    rows = []
    for (start, length), group in frame.group_by(
        "start_seconds", "length_seconds", maintain_order=True
    ):
        rows.append((start, length, "all", *together(group)))
    added = pl.DataFrame(rows, schema=INTERVALS, orient="row")
    return pl.concat([frame, added]).sort("start_seconds", "operation")


def together(rows: pl.DataFrame) -> tuple[int, int, float, float, float]:
    """Count, bytes, mean, maximum and standard deviation of intervals of the same time taken as
    one: what stands behind `operation` in a row."""
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
    """The second that a log's line closes: it is written a little after its end."""
    return max(0, round(milliseconds / 1000) - 1)


def _lines(folder: Path, name: str) -> Iterator[list[int]]:
    for path in sorted(folder.glob(f"{LOGS}_{name}.*.log")):
        with path.open(newline="") as file:
            for line in csv.reader(file):
                yield [int(field) for field in line if field.strip()]


def _histograms(folder: Path, direction: int) -> dict[int, Histogram]:
    parts: dict[int, list[Histogram]] = defaultdict(list)
    for line in _lines(folder, "clat_hist"):
        if line[1] == direction:
            parts[_second(line[0])].append(from_fio_counts(line[3:]))
    return {second: Histogram.merged(found) for second, found in parts.items()}


def _maxima(folder: Path) -> dict[tuple[int, int], float]:
    maxima: dict[tuple[int, int], float] = defaultdict(float)
    for line in _lines(folder, "lat"):
        millisecond, nanoseconds, direction = line[:3]
        key = (_second(millisecond), direction)
        maxima[key] = max(maxima[key], nanoseconds / 1e9)
    return dict(maxima)


def _without(whole: Histogram, part: Histogram) -> Histogram:
    known = {(low, high): count for low, high, count in part.bins()}
    left = ((low, high, count - known.get((low, high), 0)) for low, high, count in whole.bins())
    return Histogram.of((low, high, count) for low, high, count in left if count > 0)
