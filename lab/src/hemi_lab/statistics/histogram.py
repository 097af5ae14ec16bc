"""Latencies as bins that merge. Percentiles come from merged bins and are never averaged."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

SCHEMA = {"low_ns": pl.Int64, "high_ns": pl.Int64, "count": pl.Int64}
"""Columns of bins: the lowest and highest nanoseconds of a bin, both included, and its count."""

QUANTILES = (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)


@dataclass(frozen=True)
class Moments:
    """Count, mean, standard deviation (of the population) and maximum, in seconds."""

    count: int = 0
    mean: float = 0.0
    standard_deviation: float = 0.0
    maximum: float = 0.0

    @staticmethod
    def merged(parts: Iterable[Moments]) -> Moments:
        """Merges all of them exactly, by sums and squares instead of averages."""
        known = [part for part in parts if part.count]
        count = sum(part.count for part in known)
        if not count:
            return Moments()
        mean = math.fsum(part.count * part.mean for part in known) / count
        within = math.fsum(part.count * part.standard_deviation**2 for part in known)
        between = math.fsum(part.count * (part.mean - mean) ** 2 for part in known)
        deviation = math.sqrt((within + between) / count)
        return Moments(count, mean, deviation, max(part.maximum for part in known))


def _empty() -> NDArray[np.int64]:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Histogram:
    """Bins in order of their highest values, none of them empty.

    Any two histograms merge: equal bins add up, and bins may overlap."""

    low: NDArray[np.int64] = field(default_factory=_empty)
    high: NDArray[np.int64] = field(default_factory=_empty)
    count: NDArray[np.int64] = field(default_factory=_empty)

    @staticmethod
    def of(bins: Iterable[tuple[int, int, int]]) -> Histogram:
        """Builds a histogram from (lowest, highest, count) in any order. Equal bins add up."""
        sums: dict[tuple[int, int], int] = {}
        for low, high, count in bins:
            if count < 0 or low > high:
                raise ValueError(f"no bin: {low} to {high} ns, {count} times")
            if count:
                sums[(low, high)] = sums.get((low, high), 0) + count
        # In order of the highest value, from which percentiles are read, so that they never fall.
        keys = sorted(sums, key=lambda key: (key[1], key[0]))
        return Histogram(
            np.array([key[0] for key in keys], dtype=np.int64),
            np.array([key[1] for key in keys], dtype=np.int64),
            np.array([sums[key] for key in keys], dtype=np.int64),
        )

    @staticmethod
    def merged(parts: Iterable[Histogram]) -> Histogram:
        """Merges all of them."""
        return Histogram.of(bin for part in parts for bin in part.bins())

    def cut(self, maximum: float) -> Histogram:
        """Limits the bins to the exact maximum in seconds, so that no percentile lies above it."""
        most = round(maximum * 1e9)
        if most / 1e9 > maximum:
            most -= 1
        if not self.total or int(self.high[-1]) <= most:
            return self
        return Histogram.of((min(low, most), min(high, most), n) for low, high, n in self.bins())

    def bins(self) -> Iterable[tuple[int, int, int]]:
        """Returns (lowest, highest, count) of each bin."""
        return zip(self.low.tolist(), self.high.tolist(), self.count.tolist(), strict=True)

    @property
    def total(self) -> int:
        """Returns the number of values."""
        return int(self.count.sum())

    def percentile(self, quantile: float) -> float:
        """Returns the seconds that this share of the requests did not exceed.

        That is the highest value of the bin in which the share is reached. It is never too low, and
        too high by at most one bin's width."""
        if not 0 <= quantile <= 1:
            raise ValueError(f"a quantile is from 0 to 1, not {quantile}")
        if not self.total:
            return math.nan
        rank = max(1, math.ceil(quantile * self.total - 1e-9))
        index = int(np.searchsorted(np.cumsum(self.count), rank))
        return float(self.high[index]) / 1e9

    def known_percentile(self, quantile: float) -> float | None:
        """Returns the percentile, or `None` if fewer than one request would lie beyond it."""
        return self.percentile(quantile) if self.total * (1 - quantile) >= 1 else None

    def moments(self) -> Moments:
        """Returns the moments from the bins' middles. The maximum is the last bin's highest."""
        total = self.total
        if not total:
            return Moments()
        middle = (self.low + self.high) / 2e9
        mean = float((middle * self.count).sum() / total)
        variance = float((self.count * (middle - mean) ** 2).sum() / total)
        return Moments(total, mean, math.sqrt(variance), float(self.high[-1]) / 1e9)

    def cumulative(self) -> tuple[list[float], list[float]]:
        """Returns the points of the CDF: seconds, and the share of values up to them."""
        if not self.total:
            return [], []
        shares = np.cumsum(self.count) / self.total
        return (self.high / 1e9).tolist(), shares.tolist()

    def frame(self) -> pl.DataFrame:
        """Returns the bins as a table."""
        columns = {"low_ns": self.low, "high_ns": self.high, "count": self.count}
        return pl.DataFrame(columns, schema=SCHEMA)

    @staticmethod
    def from_frame(frame: pl.DataFrame) -> Histogram:
        """Builds a histogram from a table of bins of one or more parts."""
        return Histogram.of(frame.select(*SCHEMA).iter_rows())


# fio's grid: 64 bins for each power of two, exact below 128 ns.
_BITS = 6


def fio_bin(index: int) -> tuple[int, int]:
    """Returns the lowest and highest nanoseconds of the fio bin with this number (`stat.c`)."""
    if index < 2 << _BITS:
        return index, index
    error_bits = (index >> _BITS) - 1
    low = (1 << (error_bits + _BITS)) + ((index & ((1 << _BITS) - 1)) << error_bits)
    return low, low + (1 << error_bits) - 1


def fio_index(nanoseconds: int) -> int:
    """Returns the number of fio's bin for a latency."""
    most_significant = max(nanoseconds, 1).bit_length() - 1
    if most_significant <= _BITS:
        return nanoseconds
    error_bits = most_significant - _BITS
    return ((error_bits + 1) << _BITS) + ((nanoseconds >> error_bits) & ((1 << _BITS) - 1))


def from_fio_bins(bins: Mapping[str, int]) -> Histogram:
    """Builds a histogram from json+, whose keys are the middles of fio's bins."""
    return Histogram.of((*fio_bin(fio_index(int(middle))), count) for middle, count in bins.items())


def from_fio_counts(counts: Sequence[int]) -> Histogram:
    """Builds a histogram from a line of fio's histogram log, which counts every bin of the grid."""
    return Histogram.of((*fio_bin(index), count) for index, count in enumerate(counts) if count)


def from_hdr_bins(bins: Iterable[Sequence[int]]) -> Histogram:
    """Builds a histogram from hemi's HDR histograms of three digits.

    They give the highest nanoseconds and the count of each bucket in use. Buckets are 1 ns wide
    below 2,048 and then double."""

    def low(high: int) -> int:
        width_bits = max(high.bit_length() - 11, 0)
        return high - (1 << width_bits) + 1

    return Histogram.of((low(int(high)), int(high), int(count)) for high, count in bins)
