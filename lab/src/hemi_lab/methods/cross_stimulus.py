"""Cross stimulus recovery: how long one load affects the next."""

from __future__ import annotations

from hemi_lab.bench import Bench
from hemi_lab.methods.estimate import Estimate
from hemi_lab.plans.model import CrossStimulusTest
from hemi_lab.results.model import Outcome
from hemi_lab.statistics.steady import WINDOW, steadiness


def estimate(test: CrossStimulusTest) -> Estimate:
    """Estimates all sections."""
    whole = sum(section.time for section in test.sections)
    return Estimate(whole, whole, int(whole // test.point) + len(test.sections))


def run(test: CrossStimulusTest, bench: Bench, outcome: Outcome) -> None:
    """Runs the sections in order, each in points. The target is never purged between."""
    for number, section in enumerate(test.sections, 1):
        label = f"{number}: {section.load.shown()}"
        values = []
        for point in range(1, max(1, round(section.time / test.point)) + 1):
            done = bench.measure(test.name, "round", label, section.load, test.point, round_=point)
            values.append(done.found.iops)
        steady = steadiness(values, WINDOW, len(values))
        bench.track(outcome, label, "IOPS", values, steady)
        if steady.reached and steady.first is not None:
            # The point from which the section is steady.
            outcome.facts[f"{label}: points until steady"] = steady.first
