"""Differences against scipy, by hand, and against the level of their intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hemi_lab.statistics.difference import bootstrap_percentile, unpaired
from hemi_lab.statistics.histogram import Histogram
from scipy import stats


def test_welchs_interval_is_scipys() -> None:
    a, b = [100.0, 104.0, 97.0, 101.0], [120.0, 131.0, 118.0, 125.0, 140.0, 122.0]
    there = stats.ttest_ind(np.log(b), np.log(a), equal_var=False).confidence_interval(0.95)
    found = unpaired(a, b)
    assert math.log1p(found.low) == pytest.approx(there.low)
    assert math.log1p(found.high) == pytest.approx(there.high)


def test_by_hand() -> None:
    # Logarithms 0, 0 + d, 0 - d and 1, 1 + d, 1 - d with d = 0.1: each variance is 0.01, the
    # error sqrt(2 * 0.01 / 3) = 0.08165, 4 degrees of freedom, t = 2.7764: 1 +- 0.2267.
    a = [math.exp(value) for value in (0.0, 0.1, -0.1)]
    found = unpaired(a, [math.e * value for value in a])
    assert found.difference == pytest.approx(math.e - 1)
    assert math.log1p(found.low) == pytest.approx(1 - 0.2267, abs=1e-4)
    assert math.log1p(found.high) == pytest.approx(1 + 0.2267, abs=1e-4)


def test_one_value_has_no_interval() -> None:
    found = unpaired([100.0], [150.0, 151.0])
    assert found.difference == pytest.approx(0.505, abs=1e-3)
    assert math.isnan(found.low)
    with pytest.raises(ValueError, match="positive"):
        unpaired([0.0], [1.0])
    with pytest.raises(ValueError, match="no values"):
        unpaired([], [1.0])


def bins(values: np.ndarray) -> Histogram:
    return Histogram.of((int(value), int(value), 1) for value in values)


def test_the_bootstrap_agrees_with_scipys() -> None:
    """Checks that drawing the rank equals drawing every request."""
    chance = np.random.default_rng(4)
    a = chance.exponential(1e6, 800).astype(int) + 1
    b = chance.exponential(1.3e6, 800).astype(int) + 1

    def ratio(x: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
        def at(values: np.ndarray) -> np.ndarray:
            rank = math.ceil(0.9 * values.shape[axis]) - 1
            taken: np.ndarray = np.take(np.sort(values, axis=axis), rank, axis=axis)
            return taken

        share: np.ndarray = at(y) / at(x) - 1
        return share

    there = stats.bootstrap(
        (a, b), ratio, n_resamples=4000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    found = bootstrap_percentile(bins(a), bins(b), 0.9, resamples=8000)
    assert found.difference == pytest.approx(float(ratio(a, b)))
    assert found.low == pytest.approx(there.low, abs=0.03)
    assert found.high == pytest.approx(there.high, abs=0.03)


def test_bootstrap_intervals_hold_the_truth() -> None:
    """Uses samples of one distribution, whose difference's interval must hold zero about as often
    as its level."""
    chance = np.random.default_rng(2)
    held = 0
    for number in range(200):
        a, b = (bins(chance.exponential(1e6, 500).astype(int) + 1) for _ in range(2))
        found = bootstrap_percentile(a, b, 0.9, resamples=500, seed=number)
        held += found.low <= 0 <= found.high
    assert held / 200 > 0.9


def test_the_same_seed_gives_the_same_interval() -> None:
    sides = Histogram.of([(1, 10, 50), (11, 20, 50)]), Histogram.of([(1, 10, 20), (11, 20, 80)])
    assert bootstrap_percentile(*sides, 0.5) == bootstrap_percentile(*sides, 0.5)
    with pytest.raises(ValueError, match="no requests"):
        bootstrap_percentile(Histogram(), sides[0], 0.5)
    with pytest.raises(ValueError, match="between 0 and 1"):
        bootstrap_percentile(*sides, 1.0)
