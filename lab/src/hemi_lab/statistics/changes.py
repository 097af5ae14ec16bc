"""Steps in a series of runs: places where the level changes by more than the runs' own scatter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from hemi_lab.statistics.confidence import LEVEL
from hemi_lab.statistics.difference import Difference

LEAST = 0.01
"""Smallest change that is told as a step, as a share."""

_LEAST_FREEDOM = 2
"""Fewest degrees of freedom of a step: four runs."""


@dataclass(frozen=True)
class Change:
    """A step: the first run of the new level, and the difference of the two levels."""

    at: int
    """Index of the first run after the step."""
    found: Difference


def changes(values: Sequence[float], level: float = LEVEL, least: float = LEAST) -> list[Change]:
    """Returns the steps of a series of positive figures, in order.

    The series is cut where the difference of both parts is surest, and each part again (binary
    segmentation). A cut is a step if its interval leaves out zero. The interval is for the best of
    all places where the cut could be, so its level is that of one place in as many
    (Bonferroni)."""
    if any(value <= 0 for value in values):
        raise ValueError("only positive figures have ratios")
    found: list[Change] = []
    strict = 1 - (1 - level) / max(1, len(values) - 1)
    _cut(values, 0, len(values), strict, least, found)
    found.sort(key=lambda change: change.at)
    return found


def _cut(
    values: Sequence[float], begin: int, end: int, level: float, least: float, into: list[Change]
) -> None:
    best: tuple[float, Change] | None = None
    for at in range(begin + 1, end):
        found = between(values[begin:at], values[at:end], level)
        if found is None or abs(found.difference) < least:
            continue
        low, middle, high = (math.log1p(x) for x in (found.low, found.difference, found.high))
        if low <= 0 <= high:
            continue
        # Certainty: the distance from zero in halves of the interval.
        reach = max((high - low) / 2, 1e-12)
        surer = abs(middle) / reach
        if best is None or surer > best[0]:
            best = (surer, Change(at, found))
    if best is None:
        return
    into.append(best[1])
    _cut(values, begin, best[1].at, level, least, into)
    _cut(values, best[1].at, end, level, least, into)


def between(a: Sequence[float], b: Sequence[float], level: float = LEVEL) -> Difference | None:
    """Returns the difference of two levels, or `None` if their runs are too few to tell it.

    Student's t over logarithms, with the scatter of both pooled. So one run of a new level is held
    against the scatter of the old one."""
    freedom = len(a) + len(b) - 2
    if freedom < _LEAST_FREEDOM:
        return None
    x, y = (np.log(np.asarray(values, dtype=float)) for values in (a, b))
    middle = float(y.mean() - x.mean())
    squares = float(((x - x.mean()) ** 2).sum() + ((y - y.mean()) ** 2).sum())
    error = math.sqrt(squares / freedom * (1 / len(x) + 1 / len(y)))
    reach = float(stats.t.ppf((1 + level) / 2, freedom)) * error
    return Difference(*(math.expm1(ends) for ends in (middle, middle - reach, middle + reach)))
