"""A load over thread counts and queue depths, in the state that its own writes left."""

from __future__ import annotations

from hemi_lab.bench import Bench
from hemi_lab.methods.estimate import Estimate
from hemi_lab.methods.rounds import until_steady
from hemi_lab.plans.model import SweepTest
from hemi_lab.results.model import Outcome
from hemi_lab.statistics.steady import WINDOW
from hemi_lab.workload import Load


def estimate(test: SweepTest) -> Estimate:
    """Estimates preconditioning from five rounds up to its time, and the points."""
    points = (len(test.points) + test.repeat_first) * test.time
    if not test.precondition:
        return Estimate(points, points, len(test.points) + 1)
    before = test.precondition
    rounds = round(before.time / before.round)
    return Estimate(
        WINDOW * before.round + points, before.time + points, rounds + len(test.points) + 1
    )


def run(test: SweepTest, bench: Bench, outcome: Outcome) -> None:
    """Runs the plan's preconditioning, the points in order, and the first again."""
    if test.precondition:
        before = test.precondition
        load = test.load if test.load.writes() else test.load.write_counterpart()
        load = _at(load, before.threads, before.queue_depth)
        rounds = max(WINDOW, round(before.time / before.round))
        until_steady(test.name, load, before.round, rounds, bench, outcome, before.fills)
    first = None
    for threads, queue_depth in test.points:
        load = _at(test.load, threads, queue_depth)
        done = bench.measure(test.name, "measure", f"{threads}T/{queue_depth}Q", load, test.time)
        first = first or done
    if test.repeat_first and first is not None:
        threads, queue_depth = test.points[0]
        load = _at(test.load, threads, queue_depth)
        label = f"{threads}T/{queue_depth}Q again"
        again = bench.measure(test.name, "again", label, load, test.time)
        if first.found.iops:
            outcome.facts["drift"] = again.found.iops / first.found.iops - 1


def _at(load: Load, threads: int, queue_depth: int) -> Load:
    return load.model_copy(update={"threads": threads, "queue_depth": queue_depth})
