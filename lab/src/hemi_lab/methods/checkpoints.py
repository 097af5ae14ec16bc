"""Checkpoint bursts over a load, and the latency of its reads meanwhile."""

from __future__ import annotations

import polars as pl

from hemi_lab.bench import Bench
from hemi_lab.methods.estimate import Estimate
from hemi_lab.plans.model import CheckpointTest
from hemi_lab.results.model import Outcome
from hemi_lab.timed import ReferenceLoad


def estimate(test: CheckpointTest) -> Estimate:
    """Estimates the load without and with bursts."""
    return Estimate(test.calm + test.time, test.calm + test.time, 2)


def run(test: CheckpointTest, bench: Bench, outcome: Outcome) -> None:
    """Runs the load without bursts, then with them."""
    calm = ReferenceLoad(over=test.load.over, lateness=test.load.lateness)
    bench.measure(test.name, "measure", "without bursts", calm, test.calm)
    # The interval of bursts is not scaled with the run's times, since pages and drives are not.
    seconds = max(bench.scaled(test.time), 2.5 * test.load.every)
    done = bench.measure(test.name, "measure", "with bursts", test.load, seconds, scale=False)
    outcome.facts |= during_bursts(done.result.intervals)


def during_bursts(intervals: pl.DataFrame) -> dict[str, float | str]:
    """Compares reads in the intervals with page writes to reads in the others.

    A load that writes itself has no others."""
    reads = intervals.filter(pl.col("operation") == "read")
    writes = intervals.filter((pl.col("operation") == "write") & (pl.col("count") > 0))
    if reads.is_empty() or writes.is_empty():
        return {}
    inside = pl.col("start_seconds").is_in(writes["start_seconds"].implode())
    facts: dict[str, float | str] = {}
    for name, part in (("during bursts", reads.filter(inside)), ("between", reads.filter(~inside))):
        if part.is_empty():
            continue
        count = pl.col("count")
        seen = part.select(
            (count.sum() / pl.col("length_seconds").sum()).alias("rate"),
            ((count * pl.col("mean_seconds")).sum() / count.sum()).alias("mean"),
            pl.col("maximum_seconds").max().alias("most"),
            pl.col("length_seconds").sum().alias("seconds"),
        ).row(0, named=True)
        facts[f"reads {name}: seconds"] = float(seen["seconds"])
        facts[f"reads {name}: IOPS"] = float(seen["rate"])
        facts[f"reads {name}: mean, ms"] = 1e3 * float(seen["mean"])
        facts[f"reads {name}: slowest, ms"] = 1e3 * float(seen["most"])
    return facts
