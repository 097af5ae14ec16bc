"""Demand intensity: response time against demand, with histograms at three demands."""

from __future__ import annotations

from hemi_lab.bench import Bench, Done
from hemi_lab.methods.estimate import Estimate
from hemi_lab.methods.matrix import placed, together
from hemi_lab.plans.model import DemandIntensityTest
from hemi_lab.results.model import Outcome
from hemi_lab.statistics.steady import WINDOW, steadiness


def estimate(test: DemandIntensityTest) -> Estimate:
    """Estimates at least five rounds, then three histograms."""
    cells = len(test.threads) * len(test.queue_depths)
    histograms = 3 * test.histogram
    return Estimate(
        cells * WINDOW * test.cell + histograms,
        cells * test.most_rounds * test.cell + histograms,
        cells * test.most_rounds + 3,
    )


def run(test: DemandIntensityTest, bench: Bench, outcome: Outcome) -> None:
    """Runs rounds until the point of most demand is steady, since it is the one that moves."""
    points = [(t, q) for t in test.threads for q in test.queue_depths]
    tracked = max(points, key=lambda point: point[0] * point[1])
    values: list[float] = []
    last: dict[tuple[int, int], Done] = {}
    for number in range(1, test.most_rounds + 1):
        for threads, queue_depth in points:
            load = test.load.model_copy(update={"threads": threads, "queue_depth": queue_depth})
            label = f"{threads}T/{queue_depth}Q"
            done = bench.measure(test.name, "round", label, load, test.cell, round_=number)
            last[(threads, queue_depth)] = done
        values.append(last[tracked].found.iops)
        if together([values]):
            break
    steady = placed(steadiness(values[-WINDOW:], WINDOW, WINDOW), len(values))
    bench.track(outcome, f"{tracked[0]}T/{tracked[1]}Q", "IOPS", values, steady)
    for name, (threads, queue_depth) in chosen(last, test.response).items():
        load = test.load.model_copy(update={"threads": threads, "queue_depth": queue_depth})
        label = f"{name}: {threads}T/{queue_depth}Q"
        bench.measure(test.name, "measure", label, load, test.histogram)
        outcome.facts[name] = f"{threads}T/{queue_depth}Q"


def chosen(last: dict[tuple[int, int], Done], response: float) -> dict[str, tuple[int, int]]:
    """Returns three points: the least demand, the most within the response time, and a middle.

    "Most" has the highest rate. The middle's rate is nearest half-way between."""
    least = min(last, key=lambda point: (point[0] * point[1], point[0]))
    within = [point for point, done in last.items() if done.found.mean_seconds <= response]
    most = max(within or [least], key=lambda point: last[point].found.iops)
    half = (last[least].found.iops + last[most].found.iops) / 2
    middle = min(within or [least], key=lambda point: abs(last[point].found.iops - half))
    return {"least": least, "middle": middle, "most": most}
