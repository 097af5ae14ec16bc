"""Figures from single requests: in intervals of any length, and around a fault."""

from __future__ import annotations

import math
from dataclasses import dataclass

import polars as pl

from hemi_lab.steps import INTERVALS

PHASES = ("before", "during", "after")


def intervals(records: pl.DataFrame, length: float) -> pl.DataFrame:
    """Groups requests by completion time, for each kind and for `all`.

    An interval in which none completed has no row."""
    if records.is_empty():
        return pl.DataFrame(schema=INTERVALS)
    timed = records.with_columns(
        (pl.col("end_seconds") / length).floor().clip(lower_bound=0).alias("bin"),
        (pl.col("end_seconds") - pl.col("start_seconds")).alias("latency"),
    )
    both = pl.concat([timed, timed.with_columns(pl.lit("all").alias("operation"))])
    end = float(records["end_seconds"].max())  # type: ignore[arg-type]
    found = both.group_by("bin", "operation").agg(
        pl.len().cast(pl.Int64).alias("count"),
        pl.col("bytes").sum(),
        pl.col("latency").mean().alias("mean_seconds"),
        pl.col("latency").max().alias("maximum_seconds"),
        pl.col("latency").std(ddof=0).fill_null(0.0).alias("standard_deviation_seconds"),
    )
    start = pl.col("bin") * length
    return (
        found.with_columns(
            start.alias("start_seconds"),
            # The last interval ends with the last request, but is never a sliver.
            pl.min_horizontal(pl.lit(length), (pl.lit(end) - start).clip(lower_bound=length / 10))
            .cast(pl.Float64)
            .alias("length_seconds"),
        )
        .select(*INTERVALS)
        .cast(INTERVALS)  # type: ignore[arg-type]
        .sort("start_seconds", "operation")
    )


@dataclass(frozen=True)
class Phase:
    """The requests of one phase. Percentiles are exact, and `None` if there are too few
    requests."""

    count: int
    iops: float
    p50: float | None
    p99: float | None
    p999: float | None
    maximum: float | None


@dataclass(frozen=True)
class Around:
    """The effect of a fault on the requests."""

    phases: dict[str, Phase]
    longest_request: float
    """Longest latency of the requests in flight at any time of the fault."""
    longest_silence: float
    """Longest time without a completion, counted from the last one before the fault."""


def around(records: pl.DataFrame, begin: float, end: float) -> Around:
    """Splits requests into those before, during and after a fault.

    "Before" are those done before the fault began, "after" those due to start after it ended. All
    others were in flight while it lasted, whenever they completed."""
    timed = records.with_columns((pl.col("end_seconds") - pl.col("start_seconds")).alias("latency"))
    before = timed.filter(pl.col("end_seconds") < begin)
    after = timed.filter(pl.col("start_seconds") > end)
    during = timed.filter((pl.col("end_seconds") >= begin) & (pl.col("start_seconds") <= end))
    last = float(timed["end_seconds"].max() or 0.0)  # type: ignore[arg-type]
    done = timed.filter(pl.col("end_seconds").is_between(begin, end, closed="both")).height
    phases = {
        "before": _phase(before, before.height / begin if begin > 0 else 0.0),
        # The rate counts completions within the fault, not requests that waited and completed
        # later.
        "during": _phase(during, done / (end - begin) if end > begin else 0.0),
        "after": _phase(after, after.height / (last - end) if last > end else 0.0),
    }
    ends = timed["end_seconds"].sort()
    earlier = ends.filter(ends < begin)
    later = ends.filter(ends >= begin)
    first = float(earlier[-1]) if earlier.len() else begin
    gaps = pl.concat([pl.Series([first], dtype=pl.Float64), later]).diff().drop_nulls()
    return Around(
        phases,
        float(during["latency"].max() or 0.0),  # type: ignore[arg-type]
        float(gaps.max() or 0.0),  # type: ignore[arg-type]
    )


def between(records: pl.DataFrame, begin: float, end: float) -> Phase:
    """Returns the phase of the requests due to start from `begin` on and before `end`.

    Its rate counts the requests that completed in this time."""
    timed = records.with_columns((pl.col("end_seconds") - pl.col("start_seconds")).alias("latency"))
    own = timed.filter((pl.col("start_seconds") >= begin) & (pl.col("start_seconds") < end))
    done = timed.filter((pl.col("end_seconds") >= begin) & (pl.col("end_seconds") < end)).height
    return _phase(own, done / (end - begin) if end > begin else 0.0)


def _phase(part: pl.DataFrame, rate: float) -> Phase:
    latency = part["latency"].sort()

    def percentile(quantile: float) -> float | None:
        if latency.len() * (1 - quantile) < 1:
            return None
        return float(latency[max(1, math.ceil(quantile * latency.len() - 1e-9)) - 1])

    most = float(latency[-1]) if latency.len() else None
    return Phase(part.height, rate, percentile(0.5), percentile(0.99), percentile(0.999), most)
