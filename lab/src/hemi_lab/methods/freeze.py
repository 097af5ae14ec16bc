"""Freezes: clients' latencies while a leg does not answer, and the time it takes to drain."""

from __future__ import annotations

import polars as pl

from hemi_lab import requests
from hemi_lab.bench import Bench, Done
from hemi_lab.errors import LabError
from hemi_lab.faults import Faults
from hemi_lab.methods.estimate import Estimate
from hemi_lab.plans.model import FreezeTest
from hemi_lab.results.model import Freeze, Outcome
from hemi_lab.steps import Fault
from hemi_lab.units import shown_time


def estimate(test: FreezeTest) -> Estimate:
    """Estimates a calm step, and each freeze with the load around it."""
    legs = len(test.legs) if test.legs else 2
    each = [test.before + freeze + test.after for freeze in test.freezes]
    whole = test.calm + legs * sum(each)
    return Estimate(whole, whole, 1 + legs * len(each))


def run(test: FreezeTest, bench: Bench, outcome: Outcome) -> None:
    """Runs the load without a freeze, then with each length on each leg."""
    faults: Faults | None = getattr(bench.driver, "faults", None)
    if faults is None:
        raise LabError(
            f"{test.name}: this target has no leg that can be frozen",
            "Take a hemi volume that is served with --allow-inject, or setup:FILE.toml.",
        )
    load = test.load or test.open
    assert load is not None
    _settle(faults, test)
    bench.measure(test.name, "measure", "no freeze", load, test.calm)
    for seconds in test.freezes:
        for leg in test.legs or faults.legs():
            _settle(faults, test)
            label = f"leg {leg} frozen for {shown_time(seconds)}"
            fault = Fault(leg, bench.scaled(test.before), seconds)
            length = bench.scaled(test.before) + seconds + bench.scaled(test.after)
            done = bench.measure(
                test.name, "measure", label, load, length, fault=fault, scale=False
            )
            found = examined(test.name, label, fault, done)
            if found is not None:
                bench.writer.add_freeze(found)
                if found.missed:
                    bench.writer.result.notes.append(
                        f"{test.name}, {label}: the load began only after the freeze: its figures "
                        "say nothing of it; run it again on a quieter machine"
                    )
    longest = [freeze.longest_request_seconds for freeze in bench.writer.freezes(test.name)]
    if longest:
        outcome.facts["longest request, s"] = max(longest)


def _settle(faults: Faults, test: FreezeTest) -> None:
    if not faults.settle(test.settle):
        raise LabError(
            f"{test.name}: the legs did not come to rest within {shown_time(test.settle)}",
            "hemi status tells what they owe; give the plan a longer settle.",
        )


def examined(test: str, label: str, fault: Fault, done: Done) -> Freeze | None:
    """Returns a freeze's figures, or `None` if the step was cut short or its requests are not
    known."""
    result = done.result
    if result.fault is None or result.records is None or result.records.is_empty():
        return None
    begin, end = result.fault
    seen = requests.around(result.records, begin, end)
    backlog = _series(result.causes, "backlog_bytes", fault.leg)
    exposure = _series(result.causes, "exposure_bytes", None)
    age = _series(result.causes, "exposure_age_seconds", None)
    columns: dict[str, float | int | None] = {}
    for name, phase in seen.phases.items():
        columns |= {
            f"{name}_count": phase.count,
            f"{name}_iops": phase.iops,
            f"{name}_p50_seconds": phase.p50,
            f"{name}_p99_seconds": phase.p99,
            f"{name}_p999_seconds": phase.p999,
            f"{name}_maximum_seconds": phase.maximum,
        }
    return Freeze.model_validate(
        {
            "step": done.found.step,
            "test": test,
            "label": label,
            "leg": fault.leg,
            "seconds": fault.seconds,
            "began_seconds": begin,
            "ended_seconds": end,
            "longest_request_seconds": seen.longest_request,
            "longest_silence_seconds": seen.longest_silence,
            "backlog_peak_bytes": _peak(backlog, begin),
            "exposure_peak_bytes": _peak(exposure, begin),
            "exposure_age_peak_seconds": _peak(age, begin),
            "drain_seconds": drain(backlog, begin, end),
            **columns,
        }
    )


def _series(causes: pl.DataFrame, name: str, leg: int | None) -> pl.DataFrame:
    """Returns a cause at the times of its samples, the ends of its rows."""
    return (
        causes.filter((pl.col("name") == name) & pl.col("leg").eq_missing(leg))
        .select((pl.col("start_seconds") + pl.col("length_seconds")).alias("at"), "value")
        .sort("at")
    )


def _peak(series: pl.DataFrame, begin: float) -> float | None:
    later = series.filter(pl.col("at") >= begin)["value"]
    return float(later.max()) if later.len() else None  # type: ignore[arg-type]


def drain(backlog: pl.DataFrame, begin: float, end: float) -> float | None:
    """Returns the seconds from the thaw until the leg owed no more than at most before the freeze.

    The samples of the status decide. `None` if the step ended earlier or there is no status."""
    before = backlog.filter(pl.col("at") < begin)["value"]
    after = backlog.filter(pl.col("at") >= end)
    if not after.height:
        return None
    usual = float(before.max()) if before.len() else 0.0  # type: ignore[arg-type]
    # The first sample that shows it caught up. A slow leg always owes a little now and then.
    paid = after.filter(pl.col("value") <= usual)["at"].to_list()
    if not paid:
        return None
    return float(paid[0]) - end if after["value"][0] > usual else 0.0
