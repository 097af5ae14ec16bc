"""Checkpoint bursts over a load: how long its reads wait while pages are written."""

from __future__ import annotations

import polars as pl

from hemi_lab.bench import Bench
from hemi_lab.methods.estimate import Estimate
from hemi_lab.plans.model import CheckpointTest
from hemi_lab.results.model import Outcome
from hemi_lab.timed import ReferenceLoad


def estimate(test: CheckpointTest) -> Estimate:
    """The load by itself, and with bursts."""
    return Estimate(test.calm + test.time, test.calm + test.time, 2)


def run(test: CheckpointTest, bench: Bench, outcome: Outcome) -> None:
    """The load by itself, then with the bursts over it."""
    calm = ReferenceLoad(over=test.load.over, lateness=test.load.lateness)
    bench.measure(test.name, "measure", "without bursts", calm, test.calm)
    # A burst keeps its distance in a run whose times are scaled: pages and drives do not scale.
    seconds = max(bench.scaled(test.time), 2.5 * test.load.every)
    done = bench.measure(test.name, "measure", "with bursts", test.load, seconds, scale=False)
    outcome.facts |= during_bursts(done.result.intervals)


def during_bursts(intervals: pl.DataFrame) -> dict[str, float | str]:
    """Reads in the intervals in which pages were written, and in the others. A load that writes
    itself has no others."""
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
