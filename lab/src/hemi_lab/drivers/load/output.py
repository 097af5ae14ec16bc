"""Reads `hemi load`'s JSON and its requests into a step's result."""

from __future__ import annotations

from typing import Any

import polars as pl

from hemi_lab import requests
from hemi_lab.statistics.histogram import Histogram, Moments, from_hdr_bins
from hemi_lab.steps import RECORDS, Lateness, Little, Operation, StepResult
from hemi_lab.units import counted

_KINDS = {"read": "reads", "write": "writes", "flush": "flushes", "all": "all"}


def result(
    report: dict[str, Any],
    rows: pl.DataFrame,
    causes: pl.DataFrame,
    command: list[str],
    cpu_seconds: float | None,
    interrupted: bool,
    interval: float,
    keep: bool,
    lateness_bound: float,
) -> StepResult:
    """Returns the result of a load that ended.

    A load with lateness beyond its bound has no latencies. It keeps its lateness, so that the audit
    fails and shows the reason."""
    notes = [str(warning) for warning in report["warnings"]]
    refused = report["refusal"]
    if refused is not None:
        notes.append(f"hemi load reports no latencies: {refused}")
    if report["rounded"]:
        rounded = counted(report["rounded"], "request")
        notes.append(f"rounded to the target's blocks: {rounded}")
    if report["failed"]:
        said = ", ".join(
            f"{error['count']:,} × {error['operation']}: {error['error']}"
            for error in report["errors"]
        )
        notes.append(f"requests failed: {said}")
    measured = float(report["measured"])
    known = records(rows)
    in_system, by_stay = report["audit"]["little"]
    return StepResult(
        seconds=measured or float(report["time"]),
        operations={} if refused is not None else operations(report, measured),
        issued=int(report["requests"]),
        completed=int(report["completed"]),
        intervals=requests.intervals(known.clear() if refused is not None else known, interval),
        causes=causes,
        little=Little(in_system, by_stay) if report["requests"] else None,
        lateness=Lateness(report["lateness"]["p50"], report["lateness"]["p99"], lateness_bound),
        cpu_seconds=cpu_seconds,
        command=command,
        notes=notes,
        interrupted=interrupted,
        # Untrustworthy requests are not kept either.
        records=known if keep and refused is None else None,
        began=float(report["began"]),
    )


def operations(report: dict[str, Any], measured: float) -> dict[str, Operation]:
    """Returns reads, writes, flushes and all together from a report of `hemi load` or `hemi
    sim`."""
    found: dict[str, Operation] = {}
    for kind, key in _KINDS.items():
        part = report[key]
        if part["count"]:
            moments = Moments(part["count"], part["mean"], part["standard_deviation"], part["max"])
            bins = from_hdr_bins(part["histogram"])
            # All together are the kinds' bins merged, as every reader of the tables merges them.
            merged = Histogram.merged(known.histogram for known in found.values())
            if kind == "all" and merged.total == bins.total:
                bins = merged
            found[kind] = Operation(moments, round(part["bandwidth"] * measured), bins)
    return found


def records(rows: pl.DataFrame) -> pl.DataFrame:
    """Returns the successful requests, each from its intended time."""
    return (
        rows.filter(pl.col("error").is_null())
        .select(
            pl.col("operation").cast(pl.String),
            pl.col("length").cast(pl.Int64).alias("bytes"),
            (pl.col("intended") / 1e9).alias("start_seconds"),
            (pl.col("completed") / 1e9).alias("end_seconds"),
        )
        .select(*RECORDS)
    )
