"""Host idle recovery: tests whether a drive regains speed while the host rests."""

from __future__ import annotations

from hemi_lab.bench import Bench
from hemi_lab.methods.estimate import Estimate
from hemi_lab.methods.rounds import until_steady
from hemi_lab.plans.model import IdleRecoveryTest
from hemi_lab.results.model import Outcome
from hemi_lab.statistics.steady import WINDOW
from hemi_lab.units import shown_time


def estimate(test: IdleRecoveryTest) -> Estimate:
    """Estimates steady rounds, then every rest with its bursts and its baseline."""
    rests = sum(test.bursts * (test.burst + rest) + test.baseline for rest in test.rests)
    steps = len(test.rests) * (2 * test.bursts + 1) + test.most_rounds
    return Estimate(WINDOW * test.round + rests, test.most_rounds * test.round + rests, steps)


def run(test: IdleRecoveryTest, bench: Bench, outcome: Outcome) -> None:
    """Runs the load until steady, then bursts with each rest, each followed by the load alone."""
    until_steady(test.name, test.load, test.round, test.most_rounds, bench, outcome)
    for rest in test.rests:
        label = f"rest {shown_time(rest)}"
        speeds = []
        for number in range(1, test.bursts + 1):
            burst = bench.measure(test.name, "burst", label, test.load, test.burst, round_=number)
            speeds.append(burst.found.iops)
            bench.idle(test.name, label, rest, number)
        after = bench.measure(test.name, "baseline", f"after {label}", test.load, test.baseline)
        last = speeds[len(speeds) // 2 :]
        outcome.facts[f"{label}: IOPS of bursts"] = sum(last) / len(last)
        outcome.facts[f"{label}: IOPS without rests after it"] = after.found.iops
