"""Intervals against scipy and against their level, and comparisons of interleaved runs."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hemi_lab.statistics.confidence import autocorrelation, batch_means, compare, of_mean
from scipy import stats


def test_students_t_is_scipys() -> None:
    values = [41.2, 40.8, 42.5, 41.9, 40.1, 41.0]
    low, high = stats.t.interval(0.95, 5, loc=np.mean(values), scale=stats.sem(values))
    found = of_mean(values)
    assert found.low == pytest.approx(low)
    assert found.high == pytest.approx(high)


def test_by_hand() -> None:
    # 8, 10, 12: mean 10, s = 2, s / sqrt(3) = 1.1547, t(0.975, 2) = 4.3027.
    found = of_mean([8, 10, 12])
    assert found.half_width == pytest.approx(4.3027 * 1.1547, rel=1e-4)


def test_one_run_has_no_interval() -> None:
    found = of_mean([5.0])
    assert found.mean == 5
    assert math.isnan(found.low)
    with pytest.raises(ValueError, match="at least one"):
        of_mean([])


def test_batch_means_hold_where_neighbours_resemble_each_other() -> None:
    """Checks 95 % intervals over an autoregressive series of known mean.

    They must hold it about that often. Intervals that take each second for independent do not
    nearly."""
    chance = random.Random(3)
    batched = naive = 0
    rounds = 300
    for _ in range(rounds):
        value, series = 0.0, []
        for _ in range(600):
            value = 0.8 * value + chance.gauss(0, 1)
            series.append(100 + value)
        found = batch_means(series)
        batched += found.low <= 100 <= found.high
        plain = of_mean(series)
        naive += plain.low <= 100 <= plain.high
    assert autocorrelation(series) > 0.6
    assert batched / rounds > 0.88
    assert naive / rounds < 0.65


def test_batches_leave_out_the_beginning() -> None:
    assert batch_means([1000.0, *[10.0] * 20]).mean == 10
    with pytest.raises(ValueError, match="do not fill"):
        batch_means([1.0, 2.0])


def test_what_drifts_for_both_cancels_in_pairs() -> None:
    a = [100, 90, 80, 70, 60]
    b = [
        value * 1.1 * wobble for value, wobble in zip(a, (1, 1.01, 0.99, 1.005, 0.995), strict=True)
    ]
    found = compare(a, b)
    assert found.verdict == "more"
    assert found.difference == pytest.approx(0.1, abs=0.005)
    assert found.low < 0.1 < found.high
    assert compare(b, a).verdict == "less"


def test_noise_is_called_noise() -> None:
    found = compare([100, 101, 99, 100], [101, 99, 100, 101])
    assert found.verdict == "noise"
    assert found.low < 0 < found.high


def test_one_pair_says_nothing() -> None:
    assert compare([100], [200]).verdict == "unknown"
    with pytest.raises(ValueError, match="as many runs"):
        compare([1, 2], [1])
    with pytest.raises(ValueError, match="positive"):
        compare([0], [1])
