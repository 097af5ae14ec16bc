"""Estimates of a plan's time and writes, before it runs."""

from __future__ import annotations

from dataclasses import dataclass

from hemi_lab.bench import SHORTEST_SECONDS
from hemi_lab.methods import METHODS
from hemi_lab.methods.estimate import Estimate
from hemi_lab.plans.model import Plan
from hemi_lab.units import shown_size, shown_time

_OVERHEAD_SECONDS = 0.6
"""A step's overhead: the start and end of fio."""

_SLOW, _FAST = 100e6, 2e9
"""Assumed range of sequential fill rates, in bytes a second."""


@dataclass(frozen=True)
class PlanEstimate:
    """The estimate of a whole plan."""

    tests: list[tuple[str, str, Estimate, float]]
    """Name, title, scaled times and number of fills of each test."""
    steady: frozenset[str]
    """Names of tests for which a simulated drive is not filled, but starts in its steady state."""

    @property
    def most(self) -> float:
        """Upper bound in seconds, without fills."""
        return sum(estimate.most for _, _, estimate, _ in self.tests)

    def lines(self, capacity: int | None, simulated: bool) -> list[str]:
        """Returns the estimate as lines to print."""
        lines = []
        for name, title, estimate, fills in self.tests:
            if simulated and name in self.steady:
                fills = 0.0
            fill = f", after {fills:g} × capacity written in order" if fills else ""
            lines.append(f"test      {name}: {title}: {_between(estimate)}{fill}")
        least = sum(estimate.least for _, _, estimate, _ in self.tests)
        fills = sum(fills for *_, fills in self.tests)
        clock = " of virtual time, which passes faster" if simulated else ""
        lines.append(f"time      {_between(Estimate(least, self.most, 0))}{clock}")
        if fills and capacity and not simulated:
            amount = fills * capacity
            lines.append(
                f"fills     {shown_size(amount)}: {shown_time(amount / _FAST)} to "
                f"{shown_time(amount / _SLOW)} at {_FAST / 1e9:g} GB/s to {_SLOW / 1e6:g} MB/s"
            )
        return lines


def _between(estimate: Estimate) -> str:
    least, most = shown_time(estimate.least), shown_time(estimate.most)
    return least if least == most else f"{least} to {most}"


def of_plan(plan: Plan, time_scale: float) -> PlanEstimate:
    """Estimates a plan with every time scaled as in the run. A step takes at least one second."""
    tests = []
    for test in plan.tests:
        estimate = METHODS[test.kind].estimate(test)
        # Judged by the mean step: steps shorter than the minimum are stretched to it.
        mean = estimate.most / max(estimate.steps, 1)
        factor = max(time_scale, min(1.0, SHORTEST_SECONDS / mean)) if mean else time_scale
        scaled = Estimate(
            estimate.least * factor + estimate.unscaled[0],
            estimate.most * factor + estimate.steps * _OVERHEAD_SECONDS + estimate.unscaled[1],
            estimate.steps,
        )
        tests.append((test.name, test.title, scaled, test.fill.times if test.fill else 0.0))
    return PlanEstimate(tests, frozenset(t.name for t in plan.tests if t.start == "steady"))
