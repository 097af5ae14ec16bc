"""Reads fio's latency log with a line for each request."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from hemi_lab.drivers.fio.job import LOGS
from hemi_lab.steps import RECORDS

_COLUMNS = ("milliseconds", "nanoseconds", "direction", "bytes")
"""First columns of a line. The others differ between versions of fio."""

_KINDS = {0: "read", 1: "write", 2: "trim"}


def records(folder: Path) -> tuple[pl.DataFrame, float]:
    """Returns every request, and the start of the first in seconds since 1970.

    Ends are known to the millisecond, latencies to the nanosecond."""
    parts = [
        _columns(pl.read_csv(path, has_header=False, infer_schema=False))
        for path in sorted(folder.glob(f"{LOGS}_lat.*.log"))
        if path.stat().st_size
    ]
    if not parts:
        return pl.DataFrame(schema=RECORDS), 0.0
    log = pl.concat(parts)
    end = pl.col("milliseconds") / 1e3
    timed = log.with_columns(end.alias("end"), (end - pl.col("nanoseconds") / 1e9).alias("start"))
    began = float(timed["start"].min())  # type: ignore[arg-type]
    found = timed.select(
        pl.col("direction").replace_strict(_KINDS, default="trim").alias("operation"),
        pl.col("bytes"),
        (pl.col("start") - began).alias("start_seconds"),
        (pl.col("end") - began).alias("end_seconds"),
    ).select(*RECORDS)
    return found, began


def _columns(log: pl.DataFrame) -> pl.DataFrame:
    """Returns the columns as numbers. fio writes a space after each comma."""
    return log.select(
        pl.col(log.columns[number]).str.strip_chars().cast(pl.Int64).alias(name)
        for number, name in enumerate(_COLUMNS)
    )
