"""The self-audit: checks of a run's own figures."""

from __future__ import annotations

import polars as pl

from hemi_lab.results.model import Check, Result
from hemi_lab.units import counted, shown_time

LITTLE = 0.02
"""Largest deviation from Little's law, as a share."""

CEILING = 0.7
"""Largest share of the generator's own limit at which a figure is still the target's."""

CPU = 0.85
"""Largest share of all cores that the generator may use."""

DRIFT = 0.10
"""Largest change between a measurement and its repetition."""

CLOCK = 0.001
"""Largest difference of the two clocks over the run, as a share."""

STOLEN = 0.02
"""Largest share of processor time taken by other machines."""

_SHORTEST = 0.9
"""Seconds. Shorter steps say too little about rates."""


def audit(
    result: Result, steps: pl.DataFrame, clock_drift: float | None, stolen: float | None
) -> list[Check]:
    """Returns every check, passed or failed.

    `clock_drift` is the drift between wall clock and monotonic clock as a share of the run, and
    `stolen` the share of processor time that other machines took. Both are `None` in virtual
    time."""
    loads = steps.filter((pl.col("count") > 0) & ~pl.col("interrupted"))
    return [
        _little(loads),
        _completed(loads),
        _ceiling(result, loads),
        _headroom(result, loads),
        # A step issued too late for latencies has none. It must still count here.
        _lateness(steps.filter((pl.col("issued") > 0) & ~pl.col("interrupted"))),
        _drift(result),
        _clock(clock_drift),
        _neighbours(stolen),
        *(check for test in result.tests for check in test.audit),
    ]


def _little(loads: pl.DataFrame) -> Check:
    known = loads.filter(
        pl.col("in_system").is_not_null() & (pl.col("length_seconds") >= _SHORTEST)
    ).with_columns((pl.col("rate_by_stay") / pl.col("in_system") - 1).alias("off"))
    if known.is_empty():
        return Check(
            name="Little's law", passed=None, said="no step tells it for long enough to ask"
        )
    worst = known.sort(pl.col("off").abs(), descending=True).row(0, named=True)
    beyond = known.filter(pl.col("off").abs() > LITTLE).height
    said = (
        f"rate × mean latency against requests in flight: furthest apart in step {worst['step']} "
        f"({worst['test']}, {worst['label']}): {worst['rate_by_stay']:.4g} against "
        f"{worst['in_system']:.4g}"
    )
    if beyond:
        said += (
            f"; {beyond} of {known.height} steps beyond {LITTLE:.0%}: there the generator itself "
            "took time between requests, and the target could do more than it was asked"
        )
    return Check(
        name="Little's law", passed=not beyond, said=said, value=abs(worst["off"]), bound=LITTLE
    )


def _completed(loads: pl.DataFrame) -> Check:
    issued, completed = int(loads["issued"].sum()), int(loads["completed"].sum())
    if not loads.height:
        return Check(name="issued = completed", passed=None, said="nothing was issued")
    return Check(
        name="issued = completed",
        passed=issued == completed,
        said=f"{counted(issued, 'request')} issued, {completed:,} completed and measured",
        value=float(completed - issued),
        bound=0.0,
    )


def _ceiling(result: Result, loads: pl.DataFrame) -> Check:
    name = "generator ceiling"
    if result.simulated:
        return Check(name=name, passed=None, said="virtual time: the generator takes none")
    if result.ceiling is None or loads.is_empty():
        return Check(name=name, passed=None, said="the generator's limit was not measured")
    # Each thread of a step is a generator of its own, up to the number of cores.
    threads = pl.col("threads").fill_null(1).clip(upper_bound=result.host.cores)
    shares = loads.with_columns((pl.col("iops") / (threads * result.ceiling.iops)).alias("share"))
    worst = shares.sort("share", descending=True).row(0, named=True)
    return Check(
        name=name,
        passed=worst["share"] <= CEILING,
        said=(
            f"{worst['iops']:,.0f} IOPS at most (step {worst['step']}); one thread alone, with a "
            f"target that does nothing, makes {result.ceiling.iops:,.0f}"
        ),
        value=worst["share"],
        bound=CEILING,
    )


def _headroom(result: Result, loads: pl.DataFrame) -> Check:
    name = "processor headroom"
    known = loads.filter(
        pl.col("cpu_seconds").is_not_null() & (pl.col("length_seconds") >= _SHORTEST)
    )
    if result.simulated or known.is_empty():
        said = "virtual time" if result.simulated else "no processor times are known"
        return Check(name=name, passed=None, said=said)
    used = pl.col("cpu_seconds") / pl.col("length_seconds") / result.host.cores
    worst = known.with_columns(used.alias("used")).sort("used", descending=True).row(0, named=True)
    return Check(
        name=name,
        passed=worst["used"] <= CPU,
        said=(
            f"the generator used {worst['used']:.0%} of {counted(result.host.cores, 'core')} "
            f"at most (step {worst['step']}, its start included)"
        ),
        value=worst["used"],
        bound=CPU,
    )


def _lateness(loads: pl.DataFrame) -> Check:
    known = loads.filter(pl.col("lateness_p99_seconds").is_not_null())
    if known.is_empty():
        return Check(
            name="lateness", passed=None, said="closed loops only: nothing has an intended time"
        )
    late, mean = pl.col("lateness_p99_seconds"), pl.col("mean_seconds")
    beyond = known.filter(late > mean)
    # Show the worst of the steps beyond the limit, else the latest of all.
    shown = known if beyond.is_empty() else beyond
    worst = shown.sort(late, descending=True).row(0, named=True)
    said = (
        f"requests were issued up to {shown_time(worst['lateness_p99_seconds'])} late (99 %, step "
        f"{worst['step']})"
    )
    if not beyond.is_empty():
        said += f"; {beyond.height} of {known.height} steps later than their mean latency"
        refused = beyond.filter(pl.col("count") == 0).height
        if refused:
            said += f", {refused} of them too late for latencies to be told"
    return Check(
        name="lateness",
        passed=beyond.is_empty(),
        said=said,
        value=worst["lateness_p99_seconds"],
        bound=worst["mean_seconds"],
    )


def _drift(result: Result) -> Check:
    found: list[tuple[float, str]] = []
    for test in result.tests:
        if isinstance(drift := test.facts.get("drift"), float):
            found.append((abs(drift), f"{test.name}: the first point again, {drift:+.1%}"))
        for tracked in test.tracked:
            if tracked.reached and tracked.excursion_share is not None:
                said = f"{test.name}, {tracked.label}: over the steady window"
                found.append((tracked.excursion_share, f"{said} {tracked.excursion_share:.1%}"))
    if not found:
        return Check(name="drift", passed=None, said="nothing was measured twice")
    worst, said = max(found)
    return Check(name="drift", passed=worst <= DRIFT, said=said, value=worst, bound=DRIFT)


def _clock(drift: float | None) -> Check:
    if drift is None:
        return Check(name="clock", passed=None, said="virtual time")
    return Check(
        name="clock",
        passed=abs(drift) <= CLOCK,
        said=f"wall clock and monotonic clock came apart by {drift:+.3%} of the run",
        value=abs(drift),
        bound=CLOCK,
    )


def _neighbours(stolen: float | None) -> Check:
    if stolen is None:
        return Check(name="noisy neighbours", passed=None, said="virtual time")
    return Check(
        name="noisy neighbours",
        passed=stolen <= STOLEN,
        said=f"{stolen:.1%} of processor time were taken by other machines",
        value=stolen,
        bound=STOLEN,
    )
