"""A simulation's report as tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import polars as pl

from hemi_lab.statistics.histogram import SCHEMA as BINS
from hemi_lab.statistics.histogram import from_hdr_bins
from hemi_lab.sweeps.cases import Task

KEYS = {"key": pl.String, "spec": pl.String, "seed": pl.Int64, "version": pl.String}
"""Columns of every table. `key` is the hash of the other three."""

_FIGURES = {
    "count": "count",
    "iops": "iops",
    "bandwidth": "bytes_per_second",
    "mean": "mean_seconds",
    "standard_deviation": "standard_deviation_seconds",
    "p50": "p50_seconds",
    "p90": "p90_seconds",
    "p99": "p99_seconds",
    "p999": "p999_seconds",
    "p9999": "p9999_seconds",
    "max": "maximum_seconds",
}
_KINDS = {"all": "", "reads": "read_", "writes": "write_", "flushes": "flush_"}
_FAILED = {
    f"failed_{operation}": operation for operation in ("reads", "writes", "flushes", "trims")
}
"""Columns of failed requests, by operation."""
_WEAR = {"rated_cycles": pl.Int64, "cycles_mean": pl.Float64, "cycles_max": pl.Float64}

CASES = {
    **KEYS,
    "time_seconds": pl.Float64,
    "measured_seconds": pl.Float64,
    "requests": pl.Int64,
    **dict.fromkeys(_FAILED, pl.Int64),
    "in_system": pl.Float64,
    "rate_by_stay": pl.Float64,
    "exposure_peak_bytes": pl.Int64,
    "energy_joules": pl.Float64,
    **{
        prefix + column: pl.Int64 if column == "count" else pl.Float64
        for prefix in _KINDS.values()
        for column in _FIGURES.values()
    },
}
LATENCIES = {**KEYS, "operation": pl.String, **BINS}
LEGS = {
    **KEYS,
    "leg": pl.Int64,
    "preset": pl.String,
    "reads": pl.Int64,
    "writes": pl.Int64,
    "flushes": pl.Int64,
    "read_bytes": pl.Int64,
    "written_bytes": pl.Int64,
    "busy": pl.Float64,
    "write_amplification": pl.Float64,
    "energy_joules": pl.Float64,
    **dict.fromkeys(_FAILED, pl.Int64),
    **_WEAR,
}
INTERVALS = {
    **KEYS,
    "start_seconds": pl.Float64,
    "iops": pl.Float64,
    "failed": pl.Int64,
    "bytes_per_second": pl.Float64,
    "mean_seconds": pl.Float64,
    "standard_deviation_seconds": pl.Float64,
    "maximum_seconds": pl.Float64,
    "exposure_bytes": pl.Int64,
    "exposure_age_seconds": pl.Float64,
}
TABLES = {"cases": CASES, "latencies": LATENCIES, "legs": LEGS, "intervals": INTERVALS}


def _bins(part: dict[str, Any]) -> Iterable[tuple[int, int, int]]:
    return from_hdr_bins(part["histogram"]).cut(part["max"]).bins()


def _failed(part: dict[str, Any]) -> dict[str, int]:
    # A spec without faults has no failed requests, and does not count them.
    failed = part.get("failed", {})
    return {column: failed.get(operation, 0) for column, operation in _FAILED.items()}


def tables(report: dict[str, Any], task: Task) -> dict[str, pl.DataFrame]:
    """Returns all tables of one simulation."""
    head: dict[str, Any] = {
        "key": task.key,
        "spec": task.spec_hash,
        "seed": task.seed,
        "version": task.version.text,
    }
    in_system, rate_by_stay = report["little"]
    case = {
        **head,
        "time_seconds": float(report["time"]),
        "measured_seconds": float(report["measured"]),
        "requests": report["requests"],
        **_failed(report),
        "in_system": in_system,
        "rate_by_stay": rate_by_stay,
        "exposure_peak_bytes": report["exposure_peak"],
        "energy_joules": sum(leg["energy"] for leg in report["legs"]),
    }
    for kind, prefix in _KINDS.items():
        part = report[kind]
        # If nothing was counted there is no latency, which is not a latency of 0.
        case |= {
            prefix + column: part[figure] if part["count"] or column == "count" else None
            for figure, column in _FIGURES.items()
        }
    latencies = [
        {**head, "operation": operation, "low_ns": low, "high_ns": high, "count": count}
        for kind, operation in (("reads", "read"), ("writes", "write"), ("flushes", "flush"))
        for low, high, count in _bins(report[kind])
    ]
    legs = [
        {
            **head,
            "leg": number,
            "energy_joules": leg["energy"],
            **_failed(leg.get("health", {})),
            **{name: leg.get("wear", {}).get(name) for name in _WEAR},
            **{name: leg[name] for name in LEGS if name in leg},
        }
        for number, leg in enumerate(report["legs"])
    ]
    intervals = [
        {
            **head,
            "start_seconds": interval["start"],
            "iops": interval["iops"],
            "failed": interval.get("failed", 0),
            "bytes_per_second": interval["bandwidth"],
            "mean_seconds": interval["mean"],
            "standard_deviation_seconds": interval["standard_deviation"],
            "maximum_seconds": interval["max"],
            "exposure_bytes": interval["exposure_bytes"],
            "exposure_age_seconds": interval["exposure_age"],
        }
        for interval in report["intervals"]
    ]
    return {
        "cases": pl.DataFrame([case], schema=CASES),
        "latencies": pl.DataFrame(latencies, schema=LATENCIES),
        "legs": pl.DataFrame(legs, schema=LEGS),
        "intervals": pl.DataFrame(intervals, schema=INTERVALS),
    }
