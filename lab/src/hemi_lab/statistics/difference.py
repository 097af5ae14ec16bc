"""Differences of two unpaired samples, and of percentiles from bins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from hemi_lab.statistics.confidence import LEVEL
from hemi_lab.statistics.histogram import Histogram


@dataclass(frozen=True)
class Difference:
    """The difference of B from A as a share of A, with its interval, which is NaN if there is
    none."""

    difference: float
    low: float
    high: float


def unpaired(a: Sequence[float], b: Sequence[float], level: float = LEVEL) -> Difference:
    """Returns Welch's t over logarithms, for independent samples of unequal size and spread."""
    if not a or not b:
        raise ValueError("no values: a difference needs some of A and of B")
    if min(*a, *b) <= 0:
        raise ValueError("only positive figures have ratios")
    x, y = np.log(np.asarray(a, dtype=float)), np.log(np.asarray(b, dtype=float))
    difference = float(y.mean() - x.mean())
    if min(len(x), len(y)) < 2:
        return Difference(math.expm1(difference), math.nan, math.nan)
    errors = x.var(ddof=1) / len(x), y.var(ddof=1) / len(y)
    error = math.sqrt(float(sum(errors)))
    if error == 0:
        even = math.expm1(difference)
        return Difference(even, even, even)
    freedom = float(
        sum(errors) ** 2 / (errors[0] ** 2 / (len(x) - 1) + errors[1] ** 2 / (len(y) - 1))
    )
    reach = float(stats.t.ppf((1 + level) / 2, freedom)) * error
    return Difference(
        math.expm1(difference), math.expm1(difference - reach), math.expm1(difference + reach)
    )


def bootstrap_percentile(
    a: Histogram,
    b: Histogram,
    quantile: float,
    level: float = LEVEL,
    resamples: int = 2000,
    seed: int = 1,
) -> Difference:
    """Returns the percentile bootstrap over requests, with `resamples` samples of both sides.

    Each sample has as many requests as its side. Requests count as independent, which makes the
    interval too narrow if slow ones come together."""
    if not a.total or not b.total:
        raise ValueError("no requests: a percentile needs some")
    if not 0 < quantile < 1:
        raise ValueError(f"a quantile between 0 and 1 is resampled, not {quantile}")
    chance = np.random.default_rng(seed)
    drawn = [_resampled(side, quantile, resamples, chance) for side in (a, b)]
    ratios = drawn[1] / drawn[0] - 1
    low, high = np.quantile(ratios, [(1 - level) / 2, (1 + level) / 2])
    plain = b.percentile(quantile) / a.percentile(quantile) - 1
    # The bins are steps, so the interval holds at least the figure itself.
    return Difference(plain, min(float(low), plain), max(float(high), plain))


def _resampled(
    side: Histogram, quantile: float, resamples: int, chance: np.random.Generator
) -> NDArray[np.float64]:
    """Returns the percentiles of `resamples` samples drawn from the bins.

    The k-th smallest of n draws lies at the quantile of the k-th smallest of n uniform numbers.
    That is a beta(k, n + 1 - k) number, exactly, so the n need not be drawn."""
    n = side.total
    rank = max(1, math.ceil(quantile * n - 1e-9))
    uniform = chance.beta(rank, n + 1 - rank, size=resamples)
    places = np.searchsorted(np.cumsum(side.count), uniform * n, side="left")
    return np.maximum(side.high[np.minimum(places, len(side.high) - 1)], 1) / 1e9
