"""Confidence intervals of means: Student's t over runs, batch means within one, pairs of runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

LEVEL = 0.95
"""Default confidence of an interval."""


@dataclass(frozen=True)
class Interval:
    """A mean and the interval that holds the true one with the given confidence."""

    count: int
    mean: float
    low: float
    high: float
    level: float = LEVEL

    @property
    def half_width(self) -> float:
        """Returns half the interval, or NaN if there is none."""
        return (self.high - self.low) / 2


def of_mean(values: Sequence[float], level: float = LEVEL) -> Interval:
    """Returns Student's t interval over independent values, such as one from each run.

    A single value has no interval: both ends are NaN."""
    known = np.asarray(values, dtype=float)
    if not len(known):
        raise ValueError("no values: a mean needs at least one")
    mean = float(known.mean())
    if len(known) == 1:
        return Interval(1, mean, math.nan, math.nan, level)
    error = float(known.std(ddof=1)) / math.sqrt(len(known))
    reach = float(stats.t.ppf((1 + level) / 2, len(known) - 1)) * error
    return Interval(len(known), mean, mean - reach, mean + reach, level)


def autocorrelation(values: Sequence[float]) -> float:
    """Returns the correlation of each value with the one before (lag 1), or 0 for a constant."""
    known = np.asarray(values, dtype=float)
    away = known - known.mean()
    spread = float((away**2).sum())
    return float((away[1:] * away[:-1]).sum()) / spread if spread > 0 else 0.0


def batch_means(values: Sequence[float], batches: int = 10, level: float = LEVEL) -> Interval:
    """Returns the mean of a series of correlated neighbours, such as the seconds of one run.

    The interval is Student's t over the means of equal batches. Values that do not fill the batches
    are left out at the beginning, where a run is least settled."""
    if batches < 2:
        raise ValueError(f"{batches} batches have no spread; take at least 2")
    size = len(values) // batches
    if size < 1:
        raise ValueError(f"{len(values)} values do not fill {batches} batches")
    kept = np.asarray(values[len(values) - size * batches :], dtype=float)
    return of_mean(kept.reshape(batches, size).mean(axis=1).tolist(), level)


@dataclass(frozen=True)
class Comparison:
    """The difference of B from A as a share of A, from interleaved runs."""

    pairs: int
    difference: float
    """Share: 0.1 is 10 % more than A."""
    low: float
    high: float
    level: float
    verdict: str
    """`more`, `less`, `noise` (the interval holds zero) or `unknown` (fewer than two pairs)."""


def compare(a: Sequence[float], b: Sequence[float], level: float = LEVEL) -> Comparison:
    """Compares runs made in turns (A, B, A, B, ...).

    The n-th of each are a pair, so drift common to both cancels. The interval is Student's t over
    the logarithms of the pairs' ratios, so twice as much and half as much are equally far from no
    difference."""
    if len(a) != len(b) or not a:
        raise ValueError(f"pairs need as many runs of A as of B, not {len(a)} and {len(b)}")
    if min(*a, *b) <= 0:
        raise ValueError("only positive figures have ratios")
    ratios = [math.log(y / x) for x, y in zip(a, b, strict=True)]
    known = of_mean(ratios, level)
    difference, low, high = (math.expm1(value) for value in (known.mean, known.low, known.high))
    if len(ratios) < 2:
        verdict = "unknown"
    elif low <= 0 <= high:
        verdict = "noise"
    else:
        verdict = "more" if difference > 0 else "less"
    return Comparison(len(ratios), difference, low, high, level, verdict)
