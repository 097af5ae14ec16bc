"""Stalls: clients' latencies while single requests of a leg take longer, in phases."""

from __future__ import annotations

import polars as pl

from hemi_lab import requests
from hemi_lab.bench import Bench, Done
from hemi_lab.errors import LabError
from hemi_lab.faults import Faults
from hemi_lab.methods.estimate import Estimate
from hemi_lab.plans.model import StallTest
from hemi_lab.results.model import Outcome, Stall
from hemi_lab.steps import Fault, StallPhase
from hemi_lab.units import shown_time


def estimate(test: StallTest) -> Estimate:
    """Estimates one step: the load around all phases."""
    whole = test.before + sum(phase.time for phase in test.phases) + test.after
    return Estimate(whole, whole, 1)


def run(test: StallTest, bench: Bench, outcome: Outcome) -> None:
    """Runs the load before, through all phases, and after."""
    faults: Faults | None = getattr(bench.driver, "faults", None)
    if faults is None:
        raise LabError(
            f"{test.name}: this target has no leg whose requests can stall",
            "Take a hemi volume that is served with --allow-inject, or setup:FILE.toml.",
        )
    if not faults.settle(test.settle):
        raise LabError(
            f"{test.name}: the legs did not come to rest within {shown_time(test.settle)}",
            "hemi status tells what they owe; give the plan a longer settle.",
        )
    phases = tuple(
        StallPhase(
            bench.scaled(phase.time),
            phase.read_percent / 100,
            phase.write_percent / 100,
            phase.delay,
        )
        for phase in test.phases
    )
    before, after = bench.scaled(test.before), bench.scaled(test.after)
    seconds = sum(phase.seconds for phase in phases)
    fault = Fault(test.leg, before, seconds, phases, bench.seed)
    label = f"stalls of leg {test.leg}"
    done = bench.measure(
        test.name,
        "measure",
        label,
        test.open,
        before + seconds + after,
        fault=fault,
        scale=False,
    )
    names = [phase.shown() for phase in test.phases]
    found = examined(test.name, names, fault, done)
    if not found:
        return
    bench.writer.add_stalls(found)
    whole = next(stall for stall in found if stall.phase == 0)
    if whole.ended_seconds <= 0:
        bench.writer.result.notes.append(
            f"{test.name}: the load began only after the stalls: its figures say nothing of them; "
            "run it again on a quieter machine"
        )
    if whole.maximum_seconds is not None:
        outcome.facts["longest request, s"] = whole.maximum_seconds


def examined(test: str, names: list[str], fault: Fault, done: Done) -> list[Stall]:
    """Returns the clients' figures before, in each phase, in all of them, and after.

    Empty if the step was cut short or its requests are not known."""
    result = done.result
    if result.fault is None or result.records is None or result.records.is_empty():
        return []
    began, ended = result.fault
    last = float(result.records["start_seconds"].max() or 0.0)  # type: ignore[arg-type]
    spans: list[tuple[str, int | None, StallPhase, float, float]] = []
    none = StallPhase(0.0, 0.0, 0.0, 0.0)
    spans.append(("before", None, none, 0.0, began))
    at = began
    for number, (name, phase) in enumerate(zip(names, fault.stalls, strict=True), 1):
        # The request and the answer of an injection are a while apart. The last phase includes it.
        end = ended if number == len(names) else at + phase.seconds
        spans.append((name, number, phase, at, end))
        at = end
    spans.append(("all phases", 0, none, began, ended))
    # Includes the last request.
    spans.append(("after", None, none, ended, max(ended, last + 1e-9)))
    return [
        _stall(test, fault.leg, done, name, number, phase, begin, end)
        for name, number, phase, begin, end in spans
    ]


def _stall(
    test: str,
    leg: int,
    done: Done,
    label: str,
    number: int | None,
    phase: StallPhase,
    begin: float,
    end: float,
) -> Stall:
    records = done.result.records
    assert records is not None
    every = requests.between(records, begin, end)
    reads = requests.between(records.filter(pl.col("operation") == "read"), begin, end)
    writes = requests.between(records.filter(pl.col("operation") == "write"), begin, end)
    causes = done.result.causes
    return Stall(
        step=done.found.step,
        test=test,
        label=label,
        phase=number,
        leg=leg,
        read_share=phase.reads,
        write_share=phase.writes,
        delay_seconds=phase.delay,
        began_seconds=begin,
        ended_seconds=end,
        count=every.count,
        iops=every.iops,
        p50_seconds=every.p50,
        p99_seconds=every.p99,
        p999_seconds=every.p999,
        maximum_seconds=every.maximum,
        reads_p99_seconds=reads.p99,
        reads_maximum_seconds=reads.maximum,
        writes_p99_seconds=writes.p99,
        writes_maximum_seconds=writes.maximum,
        backlog_peak_bytes=_peak(causes, "backlog_bytes", leg, begin, end),
        exposure_peak_bytes=_peak(causes, "exposure_bytes", None, begin, end),
    )


def _peak(
    causes: pl.DataFrame, name: str, leg: int | None, begin: float, end: float
) -> float | None:
    """Returns the largest sample of a cause in this time. Samples are at the ends of its rows."""
    at = pl.col("start_seconds") + pl.col("length_seconds")
    own = causes.filter(
        (pl.col("name") == name) & pl.col("leg").eq_missing(leg) & (at >= begin) & (at < end)
    )["value"]
    return float(own.max()) if own.len() else None  # type: ignore[arg-type]
