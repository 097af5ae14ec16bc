"""Repeats one load in rounds until its rate is steady."""

from __future__ import annotations

from hemi_lab.bench import Bench
from hemi_lab.results.model import Outcome
from hemi_lab.statistics.steady import WINDOW, Steadiness, steadiness
from hemi_lab.workload import Load


def until_steady(
    test: str,
    load: Load,
    seconds: float,
    most_rounds: int,
    bench: Bench,
    outcome: Outcome,
    fills: float = 0.0,
) -> Steadiness:
    """Runs rounds of `seconds` of the plan until a window is steady.

    A window counts only if `fills` capacities were written before it began. Records the rounds in
    the outcome, and the preparation of the target."""
    values: list[float] = []
    ready = 0
    steady = steadiness(values)
    begun = bench.fills
    for number in range(1, most_rounds + 1):
        if bench.fills - begun < fills:
            ready = number
        done = bench.measure(
            test, "precondition", load.shown(), load, seconds, round_=number, keep=False
        )
        values.append(done.found.iops)
        window = values[-WINDOW:]
        # Rounds before the target was overwritten do not count.
        if len(values) - ready >= WINDOW:
            found = steadiness(window, WINDOW, WINDOW)
            if found.reached:
                steady = Steadiness(
                    tuple(values), True, number - WINDOW + 1, number, found.verdict, WINDOW
                )
                break
    if not steady.reached:
        last = steadiness(values[-WINDOW:], WINDOW, WINDOW)
        first = len(values) - WINDOW + 1 if last.verdict else None
        end = len(values) if last.verdict else None
        steady = Steadiness(tuple(values), False, first, end, last.verdict, WINDOW)
    bench.track(outcome, load.shown(), "IOPS", values, steady)
    written = bench.fills - begun
    bench.prepared_by_load(
        test, steady.reached, f"{load.shown()}: {steady.said()}, {written:.2f} capacities written"
    )
    return steady
