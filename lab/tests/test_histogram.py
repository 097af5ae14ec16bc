"""Bins: fio's and hemi's grids, merging, and percentiles that are never averaged."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hemi_lab.statistics.histogram import (
    Histogram,
    Moments,
    fio_bin,
    fio_index,
    from_fio_bins,
    from_fio_counts,
    from_hdr_bins,
)


def test_fios_grid_has_no_gaps_and_no_overlaps() -> None:
    expected = 0
    for index in range(29 * 64):
        low, high = fio_bin(index)
        assert low == expected
        assert high >= low
        expected = high + 1
        assert fio_index(low) == fio_index(high) == index


@pytest.mark.parametrize(
    # Keys as fio 3.33 printed them, and the bins of `stat.c` worked out by hand.
    ("middle", "low", "high"),
    [(231, 230, 231), (241, 240, 241), (16064, 16000, 16127), (16512, 16384, 16639), (7, 7, 7)],
)
def test_fios_json_keys_are_middles_of_bins(middle: int, low: int, high: int) -> None:
    bins = list(from_fio_bins({str(middle): 3}).bins())
    assert bins == [(low, high, 3)]


def test_a_line_of_fios_log_and_its_json_are_the_same_bins() -> None:
    counts = [0] * 1856
    counts[5], counts[200], counts[700] = 2, 7, 1
    from_log = from_fio_counts(counts)
    middles = {str(sum(fio_bin(n)) // 2 + (n >= 128)): counts[n] for n in (5, 200, 700)}
    assert list(from_log.bins()) == list(from_fio_bins(middles).bins())


def test_hdr_buckets_of_three_digits() -> None:
    bins = from_hdr_bins([(2047, 1), (2049, 2), (4097 + 2, 3), (503578623, 4)])
    assert [(low, high) for low, high, _ in bins.bins()] == [
        (2047, 2047),
        (2048, 2049),
        (4096, 4099),
        (503316480, 503578623),
    ]


def test_merging_is_exact_and_averaging_would_not_be() -> None:
    chance = random.Random(1)
    fast = [int(chance.expovariate(1 / 50_000)) + 1 for _ in range(9_000)]
    slow = [int(chance.expovariate(1 / 900_000)) + 1 for _ in range(1_000)]

    def binned(values: list[int]) -> Histogram:
        return Histogram.of((*fio_bin(fio_index(value)), 1) for value in values)

    merged = Histogram.merged([binned(fast), binned(slow)])
    assert list(merged.bins()) == list(binned(fast + slow).bins())
    for quantile in (0.5, 0.9, 0.99, 0.999):
        exact = float(np.quantile(fast + slow, quantile, method="inverted_cdf"))
        found = merged.percentile(quantile) * 1e9
        assert exact <= found <= exact * (1 + 1 / 64)
    averaged = (binned(fast).percentile(0.5) + binned(slow).percentile(0.5)) / 2
    assert abs(averaged / merged.percentile(0.5) - 1) > 0.05


def test_percentiles_at_their_edges() -> None:
    bins = Histogram.of([(10, 10, 90), (20, 20, 9), (30, 30, 1)])
    assert bins.percentile(0) == 10e-9
    assert bins.percentile(0.9) == 10e-9
    assert bins.percentile(0.90001) == 20e-9
    assert bins.percentile(0.99) == 20e-9
    assert bins.percentile(1) == 30e-9
    assert math.isnan(Histogram().percentile(0.5))
    with pytest.raises(ValueError, match="from 0 to 1"):
        bins.percentile(99)


def test_moments_merge_as_if_counted_together() -> None:
    chance = random.Random(2)
    parts = [[chance.uniform(0, size) for _ in range(100 * size)] for size in (1, 3, 7)]

    def moments(values: list[float]) -> Moments:
        known = np.array(values)
        return Moments(len(values), float(known.mean()), float(known.std()), float(known.max()))

    merged = Moments.merged(map(moments, [*parts, []][:3]))
    whole = moments([value for part in parts for value in part])
    assert merged.count == whole.count
    assert merged.mean == pytest.approx(whole.mean)
    assert merged.standard_deviation == pytest.approx(whole.standard_deviation)
    assert merged.maximum == whole.maximum
    assert Moments.merged([]) == Moments()


def test_tables_keep_bins() -> None:
    bins = Histogram.of([(1, 1, 4), (230, 231, 2)])
    assert list(Histogram.from_frame(bins.frame()).bins()) == list(bins.bins())
    with pytest.raises(ValueError, match="no bin"):
        Histogram.of([(5, 4, 1)])
