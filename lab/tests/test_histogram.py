"""Bins: fio's and hemi's grids, merging, and percentiles that are never averaged."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hemi_lab.drivers.fio import output
from hemi_lab.drivers.load.output import operations
from hemi_lab.statistics.histogram import (
    QUANTILES,
    Histogram,
    Moments,
    fio_bin,
    fio_index,
    from_fio_bins,
    from_fio_counts,
    from_hdr_bins,
)
from hemi_lab.statistics.quantiles import percentile_interval
from hemi_lab.steps import Operation


def test_fios_grid_has_no_gaps_and_no_overlaps() -> None:
    expected = 0
    for index in range(29 * 64):
        low, high = fio_bin(index)
        assert low == expected
        assert high >= low
        expected = high + 1
        assert fio_index(low) == fio_index(high) == index


@pytest.mark.parametrize(
    # Keys as fio 3.33 printed them, and the bins of `stat.c` computed by hand.
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


# Percentiles and the exact maximum.


def drawn(seed: int) -> list[int]:
    """Returns nanoseconds from 1 µs to 1 s, some close together."""
    chance = random.Random(seed)
    centre = 10 ** chance.uniform(3, 9)
    return [
        max(1, round(centre * chance.choice([1, 1, chance.lognormvariate(0, 2)])))
        for _ in range(chance.choice([1, 2, 10, 300]))
    ]


def hdr_highest(nanoseconds: int) -> int:
    """Returns the highest value that hemi's histograms count as equal to a latency."""
    return nanoseconds | ((1 << max(nanoseconds.bit_length() - 11, 0)) - 1)


def summary(samples: list[int]) -> dict[str, Any]:
    """Returns the figures that `hemi load` and `hemi sim` report for one kind of request."""
    seconds = np.array(samples) / 1e9
    return {
        "count": len(samples),
        "mean": float(seconds.mean()),
        "standard_deviation": float(seconds.std()),
        "max": max(samples) / 1e9,
        "bandwidth": 1e6,
        "histogram": [[hdr_highest(sample), 1] for sample in samples],
    }


def of_hemi(reads: list[int], writes: list[int]) -> dict[str, Operation]:
    report = {"reads": summary(reads), "writes": summary(writes), "flushes": {"count": 0}}
    report["all"] = summary([*reads, *writes])
    return operations(json.loads(json.dumps(report)), 1.0)


def of_fio(reads: list[int], writes: list[int]) -> dict[str, Operation]:
    job: dict[str, Any] = {}
    for kind, samples in (("read", reads), ("write", writes)):
        bins: dict[str, int] = {}
        for sample in samples:
            middle = str(sum(fio_bin(fio_index(sample))) // 2)
            bins[middle] = bins.get(middle, 0) + 1
        mean = float(np.mean(samples))
        latency = {"N": len(samples), "mean": mean, "stddev": 0.0, "max": max(samples)}
        job[kind] = {"io_bytes": 4096, "lat_ns": {**latency, "bins": bins}}
    return output.operations(json.loads(json.dumps(job)))


def of_sysbench(reads: list[int], writes: list[int]) -> dict[str, Operation]:
    # Its bins have no bounds of their own: 1.8 % around a middle.
    samples = [*reads, *writes]
    bins = Histogram.of((int(n * 0.99), int(n * 1.01) + 1, 1) for n in samples)
    most = max(samples) / 1e6 / 1e3
    return {"all": Operation(Moments(len(samples), most, 0.0, most), 0, bins)}


@pytest.mark.parametrize("make", [of_hemi, of_fio, of_sysbench])
@pytest.mark.parametrize("seed", range(60))
def test_no_percentile_is_above_the_maximum(make: Any, seed: int, tmp_path: Path) -> None:
    samples = {"read": drawn(seed), "write": drawn(seed + 1000)}
    samples["all"] = [*samples["read"], *samples["write"]]
    found: dict[str, Operation] = make(samples["read"], samples["write"])
    bins = {kind: operation.histogram for kind, operation in found.items()}
    if "read" in bins:
        bins["merged"] = Histogram.merged([bins["read"], bins["write"]])
        samples["merged"] = samples["all"]
    for kind, known in list(bins.items()):
        path = tmp_path / f"{kind}.parquet"
        known.frame().write_parquet(path)
        bins[f"{kind}, kept"] = Histogram.from_frame(pl.read_parquet(path))
    for kind, known in bins.items():
        of_kind = samples[kind.removesuffix(", kept")]
        least, most = min(of_kind) / 1e9, max(of_kind) / 1e9
        rising = [known.percentile(quantile) for quantile in (0, *QUANTILES, 1)]
        assert rising == sorted(rising)
        assert least <= rising[0]
        assert rising[-1] <= most
        assert known.total == len(of_kind)
        assert known.moments().maximum <= most
        assert max(percentile_interval(known, 0.9)) <= most
    if "merged" in bins:
        for quantile in QUANTILES:
            assert bins["merged"].percentile(quantile) == bins["all"].percentile(quantile)
