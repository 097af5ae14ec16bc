"""Write saturation: one load from fresh, and its rate as the drive fills."""

from __future__ import annotations

from hemi_lab.bench import Bench
from hemi_lab.methods.estimate import Estimate
from hemi_lab.methods.matrix import placed
from hemi_lab.plans.model import SaturationTest
from hemi_lab.results.model import Outcome
from hemi_lab.statistics.steady import WINDOW, steadiness


def estimate(test: SaturationTest) -> Estimate:
    """Estimates one point up to the test's time, which ends early when enough is written."""
    return Estimate(test.point, test.time, int(test.time // test.point) + 1)


def run(test: SaturationTest, bench: Bench, outcome: Outcome) -> None:
    """Runs points back to back.

    The outcome records whether the rate became steady. That does not end the test."""
    values: list[float] = []
    points = max(1, round(test.time / test.point))
    for number in range(1, points + 1):
        done = bench.measure(
            test.name, "round", test.load.shown(), test.load, test.point, round_=number
        )
        values.append(done.found.iops)
        if bench.fills >= test.fills:
            break
    outcome.facts["fills"] = bench.fills
    # Judge the last window. A fresh drive's first points are even too, but not its final state.
    steady = placed(steadiness(values[-WINDOW:], WINDOW, WINDOW), len(values))
    bench.track(outcome, test.load.shown(), "IOPS", values, steady)
