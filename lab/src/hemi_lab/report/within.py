"""Intervals of one step's rate and mean latency, from its seconds."""

from __future__ import annotations

import polars as pl

from hemi_lab.statistics.confidence import Interval, batch_means

_LEAST_SECONDS = 10
"""Fewest whole seconds of a step whose interval is told."""


def rate(step: int, intervals: pl.DataFrame) -> Interval | None:
    """Returns the mean of a step's IOPS with its interval, or `None` below ten seconds."""
    own = _seconds(step, intervals)
    return _of((own["count"] / own["length_seconds"]).to_list())


def mean_latency(step: int, intervals: pl.DataFrame) -> Interval | None:
    """Returns the same of the mean latency. `None` also if it is not known by second."""
    own = _seconds(step, intervals).filter(pl.col("mean_seconds").is_not_null())
    return _of(own["mean_seconds"].to_list())


def _seconds(step: int, intervals: pl.DataFrame) -> pl.DataFrame:
    return intervals.filter(
        (pl.col("step") == step) & (pl.col("operation") == "all") & (pl.col("length_seconds") > 0.9)
    ).sort("start_seconds")


def _of(values: list[float]) -> Interval | None:
    return batch_means(values) if len(values) >= _LEAST_SECONDS else None
