"""Converts a step of sysbench into a step of the lab: seconds, bins and counts."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from hemi_lab.database.results import Step
from hemi_lab.database.sysbench import Second
from hemi_lab.statistics.histogram import Moments
from hemi_lab.steps import INTERVALS, Operation, StepResult, no_causes


def intervals(series: Iterable[Second]) -> pl.DataFrame:
    """Returns a row for each second. sysbench reports no means for seconds, and its counts are
    rates."""
    rows = []
    before = 0
    for second in series:
        length = second.at - before
        rows.append(
            {
                "start_seconds": float(before),
                "length_seconds": float(length),
                "operation": "all",
                "count": round(second.transactions * length),
                "bytes": 0,
            }
        )
        before = second.at
    return pl.DataFrame(rows, schema=INTERVALS)


def step_result(step: Step) -> StepResult:
    """Returns a step in the form that every driver uses."""
    seconds = intervals(step.series)
    report = step.report
    if report is None:
        length = float(step.series[-1].at) if step.series else 0.0
        count = int(seconds["count"].sum())
        return StepResult(
            length,
            {"all": Operation(Moments(count))},
            count,
            count,
            seconds,
            no_causes(),
            notes=["broken off: only its seconds are known, no latencies"],
            interrupted=True,
        )
    bins = report.bins
    moments = Moments(
        report.events,
        report.latency_sum_ms / 1e3 / report.events if report.events else 0.0,
        bins.moments().standard_deviation,
        report.latency_max_ms / 1e3,
    )
    transactions = Operation(moments, 0, bins)
    return StepResult(
        report.seconds,
        {"transaction": transactions, "all": transactions},
        report.events,
        bins.total,
        seconds,
        no_causes(),
        cpu_seconds=step.sysbench_cpu_seconds,
    )
